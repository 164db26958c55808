"""Which memory is behind a BUFFER leaf. It lives as long as the node does.

A buffer that is assigned to keeps its memory and gets a new leaf: so a node of the graph means one
value for ever, and values computed from the old one are never taken for the new one.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import (
    DataError,
    DeviceError,
    MissingDTypeError,
    NotANumberError,
    OutOfMemoryError,
    TilegradError,
    TransformError,
)
from tilegrad.base.origin import Entry
from tilegrad.device.registry import Device
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, remade
from tilegrad.runtime.buffer import Buffer

__all__ = [
    "VALUE_ERRORS", "OverwrittenError", "buffer_from_host", "buffer_in", "buffer_of", "buffers",
    "by_slot", "empty", "give_up_memory", "is_of_value", "is_overwritten", "is_same", "leaf",
    "mark_as_of_function", "mark_overwritten", "next_slot", "note_origin", "overwrite",
    "stale_slots", "stand_for",
]  # fmt: skip

_slots = itertools.count()
_new = tuple.__new__
_memory: dict[int, Buffer] = {}
# Slots of memory that holds another value by now, with the thread that wrote it.
_stale: dict[int, int] = {}
stale_slots = _stale.keys()


class _Reference(weakref.ref[UOp]):
    """A weak reference to the leaf of a slot."""

    __slots__ = ("slot",)
    slot: int


_leaves: dict[int, _Reference] = {}


def leaf(buffer: Buffer) -> UOp:
    """A BUFFER node for `buffer`."""
    slot = next(_slots)
    # As `BufferArg(...)`, without its frame.
    arg = _new(BufferArg, (slot, buffer.allocator.device, buffer.size))
    key = Ops.BUFFER.serial, buffer.dtype, (), arg, BufferArg
    node = remade(key, Ops.BUFFER, (buffer.size,))
    _memory[slot] = buffer
    reference = _leaves[slot] = _Reference(node, _forget)
    reference.slot = slot
    return node


def next_slot() -> int:
    """The number of a leaf that somebody else makes."""
    return next(_slots)


def stand_for(node: UOp, buffer: Buffer) -> None:
    """Let a leaf with a number of `next_slot` stand for `buffer`."""
    slot = node.arg.slot
    _memory[slot] = buffer
    reference = _leaves[slot] = _Reference(node, _forget)
    reference.slot = slot


def mark_overwritten(node: UOp) -> None:
    """Say that the memory of a leaf holds another value by now."""
    writer = _stale[node.arg.slot] = threading.get_ident()
    _writers.add(writer)


def _forget(dead: weakref.ref[UOp]) -> None:
    """May be called at any moment, so each step is one of the interpreter's."""
    slot = dead.slot  # type: ignore[attr-defined]
    _leaves.pop(slot, None)
    _memory.pop(slot, None)
    _stale.pop(slot, None)
    for table in _tables:
        table.pop(slot, None)


# Tables of other modules about leaves, by slot.
_tables: list[dict[int, Any]] = []


def by_slot() -> dict[int, Any]:
    """A table by slot for facts about leaves: an entry goes with its leaf."""
    made: dict[int, Any] = {}
    _tables.append(made)
    return made


# The threads that have ever overwritten memory.
_writers: set[int] = set()


class OverwrittenError(TilegradError):
    """A value that is needed was overwritten in place."""


class OverwrittenByThreadError(OverwrittenError):
    """A value that is needed was overwritten by another thread, or may have been."""


# Errors of a value's sources, their placement, or room for it: a run of fewer values may succeed
# after one of these. Others are failures of the compiler and are raised: caught, they would only
# show as slowness.
VALUE_ERRORS = (
    OutOfMemoryError,
    OverwrittenError,
    TransformError,
    NotANumberError,
    MissingDTypeError,
    DeviceError,
    DataError,
)


def mark_as_of_function(error: Exception) -> None:
    """Note that a Python function in a graph has raised `error`."""
    error.__dict__["is_of_function"] = True


def is_of_value(error: Exception) -> bool:
    """Whether an error is one of `VALUE_ERRORS`, or of a Python function in a graph."""
    return isinstance(error, VALUE_ERRORS) or "is_of_function" in error.__dict__


def buffer_of(node: UOp) -> Buffer:
    """The memory of a BUFFER node."""
    slot = node.arg.slot
    if slot in _stale:
        if _stale[slot] != threading.get_ident() or len(_writers) > 1:
            # A value may be assigned by one thread while the other writes, and run by either.
            raise OverwrittenByThreadError(
                "realize: a value that is needed was overwritten by another thread"
                if _stale[slot] != threading.get_ident()
                else "realize: a value that is needed was overwritten in place after its use, "
                "by this thread, or was overwritten by another thread",
                memory=f"{node.arg.size} elements of {node.dtype.name} on {node.arg.device}",
                rule="what two threads assign to, or one assigns to and another reads, they must "
                "take in turns",
                remedy="hold a lock from the use of the tensor to its realize(), or give each "
                "thread a clone()",
            )
        raise OverwrittenError(
            "realize: a value that is needed was overwritten in place after its use",
            memory=f"{node.arg.size} elements of {node.dtype.name} on {node.arg.device}",
            rule="what a gradient is computed from stays as it is until then",
            remedy="ask for the gradient before the write, or write to a clone()",
        )
    found = _memory.get(slot)
    if found is None:
        raise TransformError(
            "realize: a value depends on what stood for a tensor while a function was mapped",
            node=repr(node),
            remedy="return what the function makes, instead of keeping it elsewhere",
        )
    return found


def buffer_in(node: UOp) -> Buffer | None:
    """As `buffer_of`; None where that is an error."""
    slot = node.arg.slot
    return None if slot in _stale else _memory.get(slot)


def buffers() -> list[Buffer]:
    """All memory that some leaf stands for now."""
    return list(_memory.copy().values())


def give_up_memory(device: str) -> None:
    """Let no leaf have memory on a device whose name another one has taken."""
    for buffer in buffers():
        if buffer.device == device:
            buffer.give_up()


def note_origin(node: UOp, origin: tuple[Entry, ...]) -> None:
    """Note the user's calls behind the value in the memory of [movement of] a BUFFER."""
    found = _memory.get(base_of(node).arg.slot)
    if found is not None and origin:
        (found.base or found).origin = origin


def is_overwritten(node: UOp) -> bool:
    """Whether the memory of a BUFFER node holds another value by now, or there is none."""
    slot = node.arg.slot
    return slot in _stale or slot not in _memory


def is_same(node: UOp, other: UOp) -> bool:
    """Whether two BUFFER nodes stand for one memory, now or before it was overwritten."""
    return _memory.get(node.arg.slot) is _memory.get(other.arg.slot)


def overwrite(node: UOp) -> UOp:
    """The leaf of the same memory with the value just written; the old leaf may not be read any
    more.
    """
    fresh = leaf(_memory[node.arg.slot])
    mark_overwritten(node)
    return fresh


def buffer_from_host(
    device: str,
    dtype: DType,
    data: bytes | bytearray | memoryview | None,
    size: int,
    *,
    is_fixed: bool = False,
) -> UOp:
    """A leaf of `size` elements over the bytes `data`, which are not copied, and never written to
    if the memory `is_fixed`; without data, of fresh memory.
    """
    backend = Device[device]
    if data is None:
        return leaf(backend.buffer(size, dtype))
    source = memoryview(data)
    return leaf(Buffer.from_memory(backend.allocator, source, dtype, is_fixed=is_fixed))


def empty(device: str, dtype: DType, size: int) -> UOp:
    """A leaf of `size` elements of undefined content."""
    return leaf(Device[device].buffer(size, dtype))
