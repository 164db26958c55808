"""A relocatable object becomes code that can be called, without linker or compiler library.

A warm start loads a hundred small objects from the disk cache; this loader takes tens of
microseconds for each and imports nothing. It serves x86-64 ELF, position independent, small code
model, which is what `compile.llvm` writes there; on every other machine LLVM's own loader does the
work.

One mapping holds a whole object: code and read-only data, then on pages of their own the writable
data. It is writable while it is filled and relocated, and only then executable, never both at once.
Memory is given back with the object, so a caller keeps a reference to it.

Symbols that an object does not define come from a closed table given by the caller. Nothing is
looked up in the process by name, so a kernel cannot come to depend on a library that happens to be
loaded.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tilegrad.base.errors import DataError, DeviceError, InternalError

__all__ = [
    "HEADER", "RELOCATION", "SECTION", "SYMBOL", "LoadedObject", "libc_symbols", "load", "slice_of",
]  # fmt: skip

# Layouts and numbers of the ELF specification and of its x86-64 supplement.
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
_RELOCATABLE, _X86_64 = 1, 62
_SYMTAB, _RELA, _NOBITS, _REL, _UNWIND = 2, 4, 8, 9, 0x70000001
_WRITE, _ALLOC, _TLS = 1, 2, 0x400
_LOCAL = 0
_ABSOLUTE = 0xFFF1
_ADDRESS64, _RELATIVE32, _CALL32, _RELATIVE64 = 1, 2, 4, 24
_INDIRECT32 = frozenset((9, 41, 42))  # through a slot with the address: GOTPCREL, relaxable or not

# Symbols outside the mapping may be farther than 32 bits reach: a slot holds the address, behind a
# jump to it.
_SLOT = struct.Struct("<QQ")
_JUMP = int.from_bytes(bytes.fromhex("ff2502000000"), "little")  # jmp *2(%rip)
_LARGEST = 1 << 30


class LoadedObject:
    """An object's code and data in memory, alive as long as this is."""

    __slots__ = ("_find", "_memory")

    def __init__(self, find: Callable[[str], int | None], memory: Any):
        self._find = find
        self._memory = memory

    def address(self, symbol: str) -> int:
        """Where `symbol`, which the object defines, lies."""
        found = self._find(symbol)
        if found is None:
            raise InternalError(f"the object does not define {symbol!r}")
        return found


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True) if os.name == "posix" else ctypes.CDLL("msvcrt")


@cache
def libc_symbols(*names: str) -> Mapping[str, int]:
    """The addresses of C library functions, a table for `load`; by default those that LLVM calls.

    Raises DeviceError for a function that the C library lacks.
    """
    table: dict[str, int] = {}
    for name in names or ("memcpy", "memmove", "memset"):
        try:
            table[name] = ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise DeviceError(
                f"the C library has no function {name!r}", platform=sys.platform
            ) from None
    return table


def load(data: bytes, symbols: Mapping[str, int] | None = None) -> LoadedObject:
    """Put an object in memory; `symbols`, by default `libc_symbols()`, has those that it does not
    define.

    Raises DeviceError for a symbol that neither has, and DataError for a damaged object.
    """
    table = libc_symbols() if symbols is None else symbols
    if not _is_served():
        return _load_by_llvm(data, table)
    try:
        return _Loading(data, table).run()
    except DataError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise DataError("the object is damaged", bytes=len(data), found=error) from None


def slice_of(data: bytes, start: int, size: int) -> bytes:
    """`size` bytes of an object from `start` on.

    Raises DataError where it is shorter.
    """
    if start + size > len(data):
        raise DataError("the object is damaged", bytes=len(data), needs=start + size)
    return data[start : start + size]


@cache
def _is_served() -> bool:
    is_elf_system = os.name == "posix" and sys.platform != "darwin"
    return is_elf_system and platform.machine() in ("x86_64", "amd64")


class _Loading:
    """One object on its way into memory."""

    def __init__(self, data: bytes, table: Mapping[str, int]):
        self.data = data
        self.table = table
        ident, kind, machine, _, _, _, start, _, _, _, _, size, count, _ = HEADER.unpack_from(data)
        if (
            ident[:6] != b"\x7fELF\x02\x01"
            or kind != _RELOCATABLE
            or machine != _X86_64
            or size != SECTION.size
        ):
            raise DataError("not a relocatable object for x86-64", kind=kind, machine=machine)
        self.sections = list(SECTION.iter_unpack(slice_of(self.data, start, count * size)))
        self.symbols: list[tuple[Any, ...]] = []
        for _, section, _, _, offset, extent, link, _, _, _ in self.sections:
            if section == _SYMTAB:
                self.symbols = list(SYMBOL.iter_unpack(slice_of(self.data, offset, extent)))
                self.names = slice_of(self.data, self.sections[link][4], self.sections[link][5])
        self.offsets: dict[int, int] = {}  # number of a section in memory -> its offset there
        self.slots: dict[int, int] = {}  # address -> offset of the slot that holds it

    def run(self) -> LoadedObject:
        entries = self.relocations()
        size, code_size = self.arrange(sum(map(len, entries.values())))
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for number, to in self.offsets.items():
            _, kind, _, _, start, extent, _, _, _, _ = self.sections[number]
            if kind != _NOBITS:
                self.memory[to : to + extent] = slice_of(self.data, start, extent)
        for number, listed in entries.items():
            start, extent = self.offsets[number], self.sections[number][5]
            for offset, info, addend in listed:
                self.relocate(start, offset, extent, info & 0xFFFFFFFF, info >> 32, addend)
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        if _process().mprotect(ctypes.c_void_p(self.base), ctypes.c_size_t(code_size), protection):
            reason = os.strerror(ctypes.get_errno())
            raise DeviceError("the system refuses to make memory executable", reason=reason)
        addresses = {
            self.name(symbol): self.symbol_address(number)[0]
            for number, symbol in enumerate(self.symbols)
            if symbol[1] >> 4 != _LOCAL and symbol[3] in self.offsets
        }
        return LoadedObject(addresses.get, self.memory)

    def name(self, symbol: tuple[Any, ...]) -> str:
        return self.names[symbol[0] : self.names.index(0, symbol[0])].decode()

    def is_loaded(self, number: int) -> bool:
        """Unwind tables stay out: they serve exceptions, and are a third of a small object."""
        return bool(self.sections[number][2] & _ALLOC) and self.sections[number][1] != _UNWIND

    def relocations(self) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = {}
        for _, kind, _, _, start, extent, _, target, _, _ in self.sections:
            if kind == _RELA and self.is_loaded(target):
                found[target] = list(RELOCATION.iter_unpack(slice_of(self.data, start, extent)))
            elif kind == _REL:
                raise DataError("not an object for x86-64: a relocation without an addend")
        return found

    def arrange(self, max_slots: int) -> tuple[int, int]:
        """Give every section its offset: read-only ones, slots, a new page, writable ones.

        Returns the size of all sections, and of those before the new page.
        """
        end = code_size = 0
        for writable in (0, _WRITE):
            for number, (_, _, flags, _, _, size, _, _, align, _) in enumerate(self.sections):
                if flags & _WRITE != writable or not self.is_loaded(number):
                    continue
                if flags & _TLS or align > mmap.PAGESIZE or size > _LARGEST:
                    raise DataError(
                        "a section cannot be loaded",
                        number=number,
                        flags=flags,
                        align=align,
                        size=size,
                    )
                end += -end % max(align, 1)
                self.offsets[number] = end
                end += size
            if not writable:
                self.next_slot = end + -end % _SLOT.size
                end = self.next_slot + max_slots * _SLOT.size
                code_size = end = max(end + -end % mmap.PAGESIZE, mmap.PAGESIZE)
        return end, code_size

    def symbol_address(self, number: int) -> tuple[int, bool]:
        """The address of a symbol, and whether it lies in the mapping."""
        symbol = self.symbols[number]
        section, value = symbol[3], symbol[4]
        if section in self.offsets:
            if value > self.sections[section][5]:
                raise DataError("a symbol lies outside its section", symbol=self.name(symbol))
            return self.base + self.offsets[section] + value, True
        if section == _ABSOLUTE:
            return value, False
        if section:
            raise DataError(
                "a symbol lies in no loaded section", symbol=self.name(symbol), section=section
            )
        name = self.name(symbol)
        address = self.table.get(name)
        if address is None:
            raise DeviceError(
                f"an object needs the symbol {name!r}, which the table lacks",
                table=", ".join(self.table),
            )
        return address, False

    def slot(self, address: int) -> int:
        slot = self.slots.get(address)
        if slot is None:
            slot = self.slots[address] = self.next_slot
            self.next_slot += _SLOT.size
            _SLOT.pack_into(self.memory, slot, _JUMP, address)
        return slot

    def relocate(
        self, start: int, offset: int, extent: int, kind: int, symbol: int, addend: int
    ) -> None:
        target, inside = self.symbol_address(symbol)
        code = "<i"
        if kind == _CALL32 and not inside:
            target = self.base + self.slot(target)
        elif kind in _INDIRECT32:
            target = self.base + self.slot(target) + 8
        elif kind in (_ADDRESS64, _RELATIVE64):
            code = "<q"
        elif kind not in (_RELATIVE32, _CALL32):
            raise DataError(
                f"relocation {kind} is not one of position independent x86-64 code", symbol=symbol
            )
        if offset + struct.calcsize(code) > extent:
            raise DataError("a relocation lies outside its section", offset=offset, size=extent)
        here = 0 if kind == _ADDRESS64 else self.base + start + offset
        struct.pack_into(code, self.memory, start + offset, target + addend - here)


@cache
def _session() -> Any:
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # JITLink gives an object one allocation. RuntimeDyld gives each section its own, anywhere, and
    # ends the process where two that refer to each other lie more than 2 GB apart. For Windows'
    # objects JITLink is not complete.
    return binding.create_lljit_compiler(use_jit_link=os.name == "posix", suppress_errors=True)


_library_numbers = itertools.count()


def _load_by_llvm(data: bytes, table: Mapping[str, int]) -> LoadedObject:
    """The portable way: several times slower, and it imports llvmlite.

    LLVM completes the table from the process; a lack shows when an address is asked for.
    """
    import llvmlite.binding as binding

    library = f"object{next(_library_numbers)}"
    builder = binding.JITLibraryBuilder().add_object_img(data)
    for symbol, address in table.items():
        builder.import_symbol(symbol, address)
    trackers: list[Any] = []

    def find(symbol: str) -> int:
        try:
            trackers.append(_session().lookup(library, symbol))
        except RuntimeError as error:
            raise DeviceError(f"llvm cannot load the object: {error}", symbol=symbol) from None
        return int(trackers[-1][symbol])

    try:
        trackers.append(builder.link(_session(), library))
    except RuntimeError as error:
        raise DataError(f"llvm cannot load the object: {error}", bytes=len(data)) from None
    return LoadedObject(find, trackers)
