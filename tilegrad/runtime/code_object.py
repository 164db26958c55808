"""A relocatable object for an AMD GPU becomes the code object that a driver loads.

It does the work of a linker, for an object of one kernel: sections in memory with addresses, the
one reference between them (from a kernel's descriptor to its code) filled in, and a table by which
the loader finds the descriptor. The layout is that of LLVM's "User Guide for AMDGPU Backend",
section "Code Object": notes, symbols and descriptors are read, code is executed, each on pages of
its own.

    address   ELF header, segments, .note, .dynsym, .hash, .dynstr, .rodata | .text | .dynamic

An address is the offset in the file too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.errors import DataError, DeviceError
from tilegrad.runtime.elf import HEADER, SECTION, SYMBOL
from tilegrad.runtime.link import ElfObject

__all__ = ["AMDGPU", "code_object", "kernel_facts", "loaded_symbols", "metadata"]

AMDGPU = 224
"""The number of the processor in an ELF header."""

_SEGMENT = struct.Struct("<IIQQQQQQ")
_WORDS = struct.Struct("<QQ")
_NOTE = struct.Struct("<III")
_SHARED = 3  # the type of a file that is loaded anywhere
_PROGBITS, _STRTAB, _HASH, _DYNAMIC, _NOTES, _DYNSYM = 1, 3, 5, 6, 7, 11
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_PAGE = 4096
_GLOBAL = 1
_RELATIVE64 = 5
_METADATA = 32


@dataclass
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    align: int = 8
    link: str = ""
    info: int = 0
    entry: int = 0
    address: int = 0


def code_object(data: bytes) -> bytes:
    """The code object of the relocatable object `data`.

    Raises DataError for a damaged object, or one that refers to more than its own code.
    """
    try:
        return _linked(ElfObject(data, AMDGPU))
    except (struct.error, IndexError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the object is damaged", found=error) from None


def _linked(source: ElfObject) -> bytes:
    full = [number for number in source.loaded() if source.sections[number][5]]
    numbers = {source.titles[number]: number for number in full}
    unknown = set(numbers) - {".text", ".rodata", ".note"}
    if unknown or not {".text", ".rodata", ".note"} <= set(numbers):
        raise DataError("not the object of a kernel", sections=sorted(numbers))
    symbols = [each for each in source.symbols if each[1] >> 4 == _GLOBAL]
    for name, _, section, _ in symbols:
        if section not in numbers.values():
            raise DeviceError(f"an object needs the symbol {name!r}, which is nowhere")
    names = [name for name, _, _, _ in symbols]
    texts, starts = _texts(names)
    sections = [
        _Section(".note", _NOTES, _ALLOC, _content(source, numbers[".note"]), 4),
        _Section(
            ".dynsym", _DYNSYM, _ALLOC, bytes(SYMBOL.size * (len(names) + 1)), 8, ".dynstr", 1,
            SYMBOL.size,
        ),
        _Section(".hash", _HASH, _ALLOC, _hash_table(names), 4, ".dynsym", 0, 4),
        _Section(".dynstr", _STRTAB, _ALLOC, texts, 1),
        _Section(".rodata", _PROGBITS, _ALLOC, _content(source, numbers[".rodata"]), 64),
        _Section(".text", _PROGBITS, _ALLOC | _EXECUTE, _content(source, numbers[".text"]), _PAGE),
        _Section(
            ".dynamic", _DYNAMIC, _ALLOC | _WRITE, bytes(6 * _WORDS.size), _PAGE, ".dynstr", 0,
            _WORDS.size,
        ),
    ]  # fmt: skip
    by_name = {each.name: each for each in sections}
    at = HEADER.size + 5 * _SEGMENT.size
    for each in sections:
        at += -at % each.align
        each.address = at
        at += len(each.data)
    by_name[".dynsym"].data = _symbol_table(source, symbols, starts, sections)
    by_name[".dynamic"].data = _dynamic(by_name)
    for title in (".rodata", ".text"):
        by_name[title].data = _relocated(source, numbers, by_name, title)
    return _file(source, sections)


def _content(source: ElfObject, number: int) -> bytes:
    section = source.sections[number]
    return source.slice(section[4], section[5])


def _texts(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """A table of texts, and where each begins."""
    table, starts = b"\0", {}
    for name in names:
        starts[name] = len(table)
        table += name.encode() + b"\0"
    return table, starts


def _hash_table(names: Sequence[str]) -> bytes:
    """All symbols in one bucket, each leading to the next: there are two."""
    chain = [0, *(number + 1 for number in range(1, len(names))), 0]
    words = [1, len(names) + 1, 1 if names else 0, *chain[: len(names) + 1]]
    return struct.pack(f"<{len(words)}I", *words)


def _symbol_table(
    source: ElfObject,
    symbols: Sequence[tuple[str, int, int, int]],
    starts: Mapping[str, int],
    sections: Sequence[_Section],
) -> bytes:
    numbers = {section.name: number + 1 for number, section in enumerate(sections)}
    table = bytes(SYMBOL.size)
    for name, info, section, value in symbols:
        title = source.titles[section]
        # Sizes and visibility are those of the object.
        _, other, size = source.extents[name]
        address = sections[numbers[title] - 1].address + value
        table += SYMBOL.pack(starts[name], info, other, numbers[title], address, size)
    return table


def _dynamic(by_name: Mapping[str, _Section]) -> bytes:
    """The table that a loader reads first: where the others are."""
    entries = (
        (4, by_name[".hash"].address),
        (5, by_name[".dynstr"].address),
        (6, by_name[".dynsym"].address),
        (10, len(by_name[".dynstr"].data)),
        (11, SYMBOL.size),
        (0, 0),
    )
    return b"".join(_WORDS.pack(*entry) for entry in entries)


def _relocated(
    source: ElfObject, numbers: Mapping[str, int], by_name: Mapping[str, _Section], title: str
) -> bytes:
    data = bytearray(by_name[title].data)
    for each in source.relocations(numbers[title]):
        name, _, section, value = source.symbols[each.symbol]
        if each.kind != _RELATIVE64 or section not in numbers.values():
            raise DataError(f"relocation {each.kind} is not one of a kernel", symbol=name)
        target = by_name[source.titles[section]].address + value + each.addend
        struct.pack_into("<q", data, each.offset, target - by_name[title].address - each.offset)
    return bytes(data)


def _file(source: ElfObject, sections: list[_Section]) -> bytes:
    """The whole file: what is loaded at offsets that are its addresses, then names and headers."""
    end = sections[-1].address + len(sections[-1].data)
    image = bytearray(end)
    for section in sections:
        image[section.address : section.address + len(section.data)] = section.data
    titles, starts = _texts([*(section.name for section in sections), ".shstrtab"])
    names = _Section(".shstrtab", _STRTAB, 0, titles, 1, address=end)
    numbers = {section.name: number + 1 for number, section in enumerate(sections)}
    headers = bytes(SECTION.size)
    for section in (*sections, names):
        is_loaded = bool(section.flags & _ALLOC)
        headers += SECTION.pack(
            starts[section.name], section.kind, section.flags,
            section.address if is_loaded else 0, section.address, len(section.data),
            numbers.get(section.link, 0), section.info, section.align, section.entry,
        )  # fmt: skip
    image += titles
    image += bytes(-len(image) % 8)
    start = len(image)
    ident, flags = source.data[:16], source.flags
    segments = _segments(sections)
    image[: HEADER.size] = HEADER.pack(
        ident, _SHARED, AMDGPU, 1, 0, HEADER.size, start, flags, HEADER.size, _SEGMENT.size,
        len(segments), SECTION.size, len(sections) + 2, len(sections) + 1,
    )  # fmt: skip
    table = b"".join(segments)
    image[HEADER.size : HEADER.size + len(table)] = table
    return bytes(image + headers)


def _segments(sections: Sequence[_Section]) -> list[bytes]:
    by_name = {section.name: section for section in sections}

    def segment(kind: int, rights: int, start: int, end: int, align: int) -> bytes:
        return _SEGMENT.pack(kind, rights, start, start, start, end - start, end - start, align)

    def end(name: str) -> int:
        return by_name[name].address + len(by_name[name].data)

    note, text, dynamic = (by_name[name].address for name in (".note", ".text", ".dynamic"))
    return [
        segment(1, 4, 0, end(".rodata"), _PAGE),
        segment(1, 5, text, end(".text"), _PAGE),
        segment(1, 6, dynamic, end(".dynamic"), _PAGE),
        segment(2, 6, dynamic, end(".dynamic"), 8),
        segment(4, 4, note, end(".note"), 4),
    ]


# contents of the notes


def metadata(data: bytes) -> dict[str, object]:
    """The notes of a code object about its kernels, `amdhsa.kernels` and more.

    Raises DataError where there are none, or damaged ones.
    """
    try:
        for start, size in _notes(data):
            found = _Unpacking(data[start : start + size]).value()
            if isinstance(found, dict):
                return found
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError) as error:
        raise DataError("the code object is damaged", found=error) from None
    raise DataError("the code object has no notes about its kernels")


def _notes(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each note about kernels begins, and its bytes."""
    header = HEADER.unpack_from(data)
    for number in range(header[10]):
        segment = _SEGMENT.unpack_from(data, header[5] + number * _SEGMENT.size)
        if segment[0] != 4:
            continue
        at, end = segment[2], segment[2] + segment[5]
        while at + _NOTE.size <= end:
            name, size, kind = _NOTE.unpack_from(data, at)
            start = at + _NOTE.size + name + -name % 4
            if kind == _METADATA:
                yield start, size
            at = start + size + -size % 4


def kernel_facts(data: bytes, name: str) -> dict[str, object]:
    """Facts in the notes about the kernel `name`: `.private_segment_fixed_size`, `.vgpr_count`,
    ...
    """
    kernels = metadata(data)["amdhsa.kernels"]
    assert isinstance(kernels, list)
    for kernel in kernels:
        if kernel[".name"] == name:
            found: dict[str, object] = kernel
            return found
    raise DataError(f"the code object has no kernel {name!r}")


class _Unpacking:
    """MessagePack, as far as notes use it."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise DataError("notes are cut off", bytes=len(self.data))
        return self.data[self.at - count : self.at]

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def value(self) -> object:
        kind = self.number(1)
        if kind < 0x80:
            return kind
        if kind < 0x90:
            return self.map(kind & 15)
        if kind < 0xA0:
            return [self.value() for _ in range(kind & 15)]
        if kind < 0xC0:
            return self.take(kind & 31).decode()
        if kind in (0xC2, 0xC3):
            return kind == 0xC3
        if kind in (0xCC, 0xCD, 0xCE, 0xCF):
            return self.number(1 << kind - 0xCC)
        if kind in (0xD9, 0xDA):
            return self.take(self.number(1 << kind - 0xD9)).decode()
        if kind == 0xDC:
            return [self.value() for _ in range(self.number(2))]
        if kind == 0xDE:
            return self.map(self.number(2))
        raise DataError(f"notes hold a value of kind {kind:#x}")

    def map(self, count: int) -> dict[str, object]:
        return {str(self.value()): self.value() for _ in range(count)}


def loaded_symbols(data: bytes) -> tuple[bytes, dict[str, int]]:
    """The image of a code object in memory, and the positions of its symbols there. The one that
    `code_object` makes needs no relocation.

    Raises DataError for a damaged one.
    """
    try:
        header = HEADER.unpack_from(data)
        image, tables = bytearray(), {}
        for number in range(header[10]):
            segment = _SEGMENT.unpack_from(data, header[5] + number * _SEGMENT.size)
            start, size = segment[2], segment[5]
            if segment[0] == 1:
                image += bytes(max(segment[3] + segment[6] - len(image), 0))
                image[segment[3] : segment[3] + size] = data[start : start + size]
            elif segment[0] == 2:
                tables = dict(_WORDS.iter_unpack(data[start : start + size]))
        count = struct.unpack_from("<2I", image, tables[4])[1]
        found = {}
        for number in range(1, count):
            name, _, _, _, value, _ = SYMBOL.unpack_from(image, tables[6] + number * SYMBOL.size)
            text = tables[5] + name
            found[image[text : image.index(0, text)].decode()] = value
        return bytes(image), found
    except (struct.error, KeyError, ValueError, IndexError) as error:
        raise DataError("the code object is damaged", found=error) from None
