"""A relocatable object for another processor, laid out and relocated for an address over there.

The counterpart of `runtime.elf`, which puts code into this process. Here the bytes are made for
memory that another process or an emulator runs: `link` returns them and where each symbol lies. It
serves what `compile.llvm` writes for AArch64 and for RISC-V, which is little: references to
constants relative to the instruction, and calls. Several objects are laid out one after the other
and see each other's global symbols, so a kernel that LLVM made to call `memset` takes a copy of it
along.

Numbers and layouts are those of the ELF specification and of its supplements: "ELF for the Arm
64-bit Architecture" (AAELF64) and the "RISC-V ELF psABI".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilegrad.base.errors import DataError, DeviceError
from tilegrad.runtime.elf import HEADER, RELOCATION, SECTION, SYMBOL, slice_of

__all__ = ["AARCH64", "RISCV", "ElfObject", "Linked", "executable", "link"]

AARCH64, RISCV = 183, 243
"""The numbers of the processors in an ELF header."""

_SEGMENT = struct.Struct("<IIQQQQQQ")
_RELOCATABLE, _EXECUTABLE = 1, 2
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_ALLOC = 2
_ABSOLUTE = 0xFFF1
_LOAD_ALL = 7  # a segment that is read, written and executed
_IDENT = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_PAGE = 4096
_LARGEST = 1 << 26


@dataclass(frozen=True)
class Linked:
    """Bytes for `base`, and the address of each global symbol. `flags` are those of the header."""

    base: int
    image: bytes
    symbols: Mapping[str, int]
    flags: int


@dataclass(frozen=True)
class _Relocation:
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass
class ElfObject:
    """One object: its sections and their titles, its symbols as (name, info, section, value), of
    each named one (section, visibility, size), and where each section was put.
    """

    data: bytes
    machine: int
    flags: int = 0
    sections: list[tuple[int, ...]] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    symbols: list[tuple[str, int, int, int]] = field(default_factory=list)
    extents: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        head = HEADER.unpack_from(self.data)
        ident, kind, machine, start, size, count = (head[i] for i in (0, 1, 2, 6, 11, 12))
        if ident[:6] != _IDENT[:6] or kind != _RELOCATABLE or machine != self.machine:
            raise DataError(
                "not a relocatable object for this processor",
                machine=machine,
                expected=self.machine,
            )
        self.flags = head[7]
        self.sections = list(SECTION.iter_unpack(self.slice(start, count * size)))
        names = self.sections[head[13]]
        self.titles = [
            _text(self.slice(names[4], names[5]), section[0]) for section in self.sections
        ]
        for section in self.sections:
            if section[1] == _SYMTAB:
                texts = self.sections[section[6]]
                table = self.slice(texts[4], texts[5])
                for name, info, other, number, value, size in SYMBOL.iter_unpack(
                    self.slice(section[4], section[5])
                ):
                    title = _text(table, name)
                    self.symbols.append((title, info, number, value))
                    self.extents[title] = (number, other, size)

    def slice(self, start: int, size: int) -> bytes:
        return slice_of(self.data, start, size)

    def loaded(self) -> list[int]:
        """Numbers of the sections that go to memory; tables for exceptions serve nothing there."""
        return [
            number
            for number, section in enumerate(self.sections)
            if section[2] & _ALLOC and not self.titles[number].startswith(".eh_frame")
        ]

    def relocations(self, target: int) -> list[_Relocation]:
        return [
            _Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
            for section in self.sections
            if section[1] == _RELA and section[7] == target
            for offset, info, addend in RELOCATION.iter_unpack(self.slice(section[4], section[5]))
        ]


def _text(table: bytes, start: int) -> str:
    return table[start : table.index(0, start)].decode()


def link(objects: Sequence[bytes], machine: int, base: int, table: Mapping[str, int]) -> Linked:
    """The objects for the address `base`, a multiple of a page; `table` has the addresses of the
    symbols that none of them defines.

    Raises DataError for an object of another kind or a damaged one, DeviceError for a symbol that
    is nowhere.
    """
    try:
        return _link([ElfObject(data, machine) for data in objects], machine, base, table)
    except (struct.error, IndexError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the object is damaged", found=error) from None


def _link(objects: list[ElfObject], machine: int, base: int, table: Mapping[str, int]) -> Linked:
    end = 0
    for source in objects:
        for number in source.loaded():
            align, size = max(source.sections[number][8], 1), source.sections[number][5]
            if align > _PAGE or size > _LARGEST:
                raise DataError("a section cannot be loaded", number=number, align=align, size=size)
            end += -end % align
            source.offsets[number] = end
            end += source.sections[number][5]
    known = dict(table)
    for source in objects:
        for name, info, section, value in source.symbols:
            if info >> 4 and section in source.offsets:
                known[name] = base + source.offsets[section] + value
    image = bytearray(end)
    for source in objects:
        for number, start in source.offsets.items():
            header = source.sections[number]
            if header[1] != _NOBITS:
                image[start : start + header[5]] = source.slice(header[4], header[5])
        for number in source.offsets:
            _relocate(source, number, image, base, known, _APPLY[machine])
    return Linked(base, bytes(image), known, objects[0].flags)


def _relocate(
    source: ElfObject,
    number: int,
    image: bytearray,
    base: int,
    known: Mapping[str, int],
    apply: Callable[[bytearray, int, int, int, int], bool],
) -> None:
    """Fill in every reference of one section."""
    start = source.offsets[number]
    found = source.relocations(number)

    def target(each: _Relocation) -> int:
        name, _, section, value = source.symbols[each.symbol]
        if section in source.offsets:
            return base + source.offsets[section] + value + each.addend
        if section == _ABSOLUTE:
            return value + each.addend
        if section or name not in known:
            raise DeviceError(
                f"an object needs the symbol {name!r}, which is nowhere", known=", ".join(known)
            )
        return known[name] + each.addend

    # The second half of a RISC-V address names its first half, which names the symbol.
    upper = {
        base + start + each.offset: target(each) - (base + start + each.offset)
        for each in found
        if source.machine == RISCV and each.kind == _RV_PCREL_HI20
    }
    for each in found:
        where = base + start + each.offset
        value = target(each)
        if source.machine == RISCV and each.kind in (_RV_PCREL_LO12_I, _RV_PCREL_LO12_S):
            value = upper[value]
        if not apply(image, start + each.offset, where, each.kind, value):
            raise DataError(
                f"relocation {each.kind} is not one of position independent code",
                symbol=source.symbols[each.symbol][0],
                machine=source.machine,
            )


def _patch(image: bytearray, at: int, bits: int, mask: int) -> None:
    """Put `bits`, all within `mask`, into the instruction at `at`."""
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & ~mask & 0xFFFFFFFF | bits)


def _in_reach(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise DataError("a reference is out of an instruction's reach", distance=value, bits=bits)
    return value


_A64_ABS64, _A64_PREL32 = 257, 261
_A64_PAGE, _A64_ADD_LO12 = 275, 277
# The low bits of an address within an access of 2**n bytes, by n.
_A64_ACCESS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_A64_CALLS = (282, 283)


def _apply_aarch64(image: bytearray, at: int, where: int, kind: int, value: int) -> bool:
    if kind == _A64_PAGE:
        pages = _in_reach((value >> 12) - (where >> 12), 21)
        _patch(image, at, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5, 3 << 29 | 0x7FFFF << 5)
    elif kind == _A64_ADD_LO12:
        _patch(image, at, (value & 0xFFF) << 10, 0xFFF << 10)
    elif kind in _A64_ACCESS:
        _patch(image, at, (value & 0xFFF) >> _A64_ACCESS[kind] << 10, 0xFFF << 10)
    elif kind in _A64_CALLS:
        words = _in_reach(value - where, 28) >> 2
        _patch(image, at, words & 0x3FFFFFF, 0x3FFFFFF)
    elif kind == _A64_ABS64:
        struct.pack_into("<Q", image, at, value)
    elif kind == _A64_PREL32:
        struct.pack_into("<i", image, at, value - where)
    else:
        return False
    return True


_RV_64, _RV_CALL, _RV_CALL_PLT, _RV_RELAX = 2, 18, 19, 51
_RV_PCREL_HI20, _RV_PCREL_LO12_I, _RV_PCREL_LO12_S = 23, 24, 25
_RV_UPPER = 0xFFFFF000


def _apply_riscv(image: bytearray, at: int, where: int, kind: int, value: int) -> bool:
    if kind == _RV_PCREL_HI20:
        # The lower 12 bits are added with their sign.
        _patch(image, at, _in_reach(value - where, 32) + 0x800 & _RV_UPPER, _RV_UPPER)
    elif kind == _RV_PCREL_LO12_I:
        _patch(image, at, (value & 0xFFF) << 20, 0xFFF << 20)
    elif kind == _RV_PCREL_LO12_S:
        bits = (value >> 5 & 0x7F) << 25 | (value & 0x1F) << 7
        _patch(image, at, bits, 0x7F << 25 | 0x1F << 7)
    elif kind in (_RV_CALL, _RV_CALL_PLT):
        distance = _in_reach(value - where, 32)
        _patch(image, at, distance + 0x800 & _RV_UPPER, _RV_UPPER)
        _patch(image, at + 4, (distance & 0xFFF) << 20, 0xFFF << 20)
    elif kind == _RV_64:
        struct.pack_into("<Q", image, at, value)
    else:
        return kind == _RV_RELAX
    return True


_APPLY = {AARCH64: _apply_aarch64, RISCV: _apply_riscv}


def executable(linked: Linked, machine: int, entry: str) -> bytes:
    """A program file of one segment that begins at the symbol `entry`; it needs no library.

    `linked.base` is on a page; the headers stand on the page before it.
    """
    size = _PAGE + len(linked.image)
    header = HEADER.pack(
        _IDENT, _EXECUTABLE, machine, 1, linked.symbols[entry], HEADER.size, 0, linked.flags,
        HEADER.size, _SEGMENT.size, 1, SECTION.size, 0, 0,
    )  # fmt: skip
    start = linked.base - _PAGE
    segment = _SEGMENT.pack(1, _LOAD_ALL, 0, start, start, size, size, _PAGE)
    return (header + segment).ljust(_PAGE, b"\0") + linked.image
