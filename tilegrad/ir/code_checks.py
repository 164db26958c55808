"""Checks of kernels and programs: memory, ranges, accumulators, accesses, matrix units."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.args import TileMap
from tilegrad.ir.checks import (
    INTEGERS,
    Check,
    any_number,
    as_first_source,
    cut,
    dtype_text,
    is_gate,
    is_reduction,
    mismatch,
    reduces,
    same_dtype,
    types_of,
    void,
)
from tilegrad.ir.counterexample import find_outside
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.proof import bounds_under, lane_of
from tilegrad.ir.queries import memory_of, values_of
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp

__all__ = ["CODE_CHECKS", "running"]


def _define_global(node: UOp) -> str | None:
    if not isinstance(node.dtype, Pointer) or node.dtype.space is not AddressSpace.GLOBAL:
        return f"{dtype_text(node.dtype)} is no pointer to global memory"
    is_slot = isinstance(node.arg, int) and node.arg >= 0
    return None if is_slot else f"its argument is {node.arg!r}, not a slot"


def _define_local(node: UOp) -> str | None:
    dtype = node.dtype
    if not isinstance(dtype, Pointer) or dtype.space is AddressSpace.GLOBAL or dtype.size < 1:
        return f"{dtype_text(dtype)} is no pointer to shared memory or scratch of a known size"
    return _all_ranges(node.src)


def _all_ranges(nodes: Sequence[UOp]) -> str | None:
    for node in nodes:
        if node.op is not Ops.RANGE:
            return f"its sources hold a {node.op.name.lower()} where ranges stand"
    return None


def _define_acc(node: UOp) -> str | None:
    if not node.src or node.src[0].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)} set to {types_of(node.src[:1]) or 'nothing'}"
    return _all_ranges(node.src[1:])


def _special(node: UOp) -> str | None:
    if node.dtype.kind not in INTEGERS:
        return f"a position cannot be {dtype_text(node.dtype)}"
    is_pair = isinstance(node.arg, tuple) and len(node.arg) == 2 and isinstance(node.arg[0], str)
    if is_pair and isinstance(node.arg[1], (int, UOp)):
        return None
    return f"its argument is {node.arg!r}, not (name, extent)"


def _range(node: UOp) -> str | None:
    if node.dtype.kind not in INTEGERS:
        return f"a loop variable cannot be {dtype_text(node.dtype)}"
    if node.src[0].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)} up to {types_of(node.src)}"
    is_pair = isinstance(node.arg, tuple) and len(node.arg) == 2 and isinstance(node.arg[1], Axis)
    return None if is_pair else f"its argument is {node.arg!r}, not (number, axis)"


def _access(node: UOp, dtype: DType, gate: UOp | None) -> str | None:
    """The check of a load's or store's pointer, index and gate, for values of `dtype`."""
    pointer, index = node.src[0].dtype, node.src[1]
    if not isinstance(pointer, Pointer):
        return f"its buffer is {dtype_text(pointer)}, no pointer"
    base = pointer.base
    if dtype.scalar is not base.scalar or dtype.lanes % base.lanes:
        return f"{dtype_text(dtype)} in a buffer of {dtype_text(base)}"
    if index.dtype.kind not in INTEGERS or index.dtype.lanes not in (1, dtype.lanes):
        return f"its index is {dtype_text(index.dtype)}"
    if gate is not None and not is_gate(gate, dtype.lanes):
        return f"its gate is {dtype_text(gate.dtype)}, not bool"
    if pointer.size >= 0:
        count = 1 if index.dtype.lanes > 1 else dtype.lanes // base.lanes
        low, high = index.bounds
        if low < 0 or high + count > pointer.size:
            return _outside(index, gate, count, pointer.size)
    return None


@functools.lru_cache(maxsize=4096)
def _outside(index: UOp, gate: UOp | None, count: int, size: int) -> str | None:
    """How an access of `count` elements leaves a buffer of `size`; None if it does not."""
    if index.op is Ops.GEP and index.dtype.lanes == 1:
        index = lane_of(index.src[0], index.arg[0])
    if index.dtype.lanes == 1 and (gate is None or gate.dtype.lanes == 1):
        low, high = bounds_under(index, gate)
        if low > high or (low >= 0 and high + count <= size):
            return None
    unproven: list[tuple[UOp, UOp | None]] = []
    for lane in range(max(count, index.dtype.lanes)):
        position = (
            lane_of(index, lane) if index.dtype.lanes > 1 else index + lane if lane else index
        )
        allowed = gate if gate is None or gate.dtype.lanes == 1 else lane_of(gate, lane)
        low, high = bounds_under(position, allowed)
        if low <= high and (low < 0 or high >= size):
            unproven.append((position, allowed))
    found = find_outside(unproven, size) if unproven else None
    if found is None:
        return None
    return f"its index {cut(render(found[0]))} is not below {size} where {found[1]}"


def _load(node: UOp) -> str | None:
    src = node.src
    if len(src) not in (2, 4):
        return f"{len(src)} sources, not 2 or 4"
    if len(src) == 4 and src[2].dtype is not node.dtype:
        return f"{dtype_text(node.dtype)}, and its alternative is {dtype_text(src[2].dtype)}"
    return _access(node, node.dtype, src[3] if len(src) == 4 else None)


def _store(node: UOp) -> str | None:
    src = node.src
    if len(src) not in (3, 4):
        return f"{len(src)} sources, not 3 or 4"
    if node.arg is not None and not reduces(node.arg):
        return f"it combines with {node.arg!r}"
    return void(node) or _access(node, src[2].dtype, src[3] if len(src) == 4 else None)


def _reduced_values(node: UOp) -> tuple[int, str | None]:
    """The number of values that a REDUCE or PREFIX combines, and the fault in them."""
    values = values_of(node)
    if values and all(value.dtype is node.dtype for value in values):
        return len(values), None
    return len(values), f"{dtype_text(node.dtype)} of {types_of(values) or 'nothing'}"


def _reduce(node: UOp) -> str | None:
    _, wrong = _reduced_values(node)
    return wrong or (None if reduces(node.arg) else f"it reduces with {node.arg!r}")


def _prefix(node: UOp) -> str | None:
    count, wrong = _reduced_values(node)
    if wrong or count == len(node.src):
        return wrong or "it runs over nothing"
    fits = is_reduction(node.arg) and 0 <= node.arg[1] <= count
    return None if fits else f"{node.arg!r} of {count} values"


def _vectorize(node: UOp) -> str | None:
    if node.dtype.lanes != len(node.src):
        return f"{len(node.src)} sources for {node.dtype.lanes} lanes"
    scalar = node.dtype.scalar
    wrong = [source for source in node.src if source.dtype is not scalar]
    return f"{dtype_text(node.dtype)} of {types_of(wrong)}" if wrong else None


def _gep(node: UOp) -> str | None:
    (source,) = node.src
    lanes = node.arg
    if not isinstance(lanes, tuple) or any(not 0 <= lane < source.dtype.lanes for lane in lanes):
        return f"lanes {lanes!r} of {dtype_text(source.dtype)}"
    wanted = source.dtype.scalar.vec(len(lanes))
    return None if node.dtype is wanted else f"{dtype_text(node.dtype)}, not {dtype_text(wanted)}"


def _end(node: UOp) -> str | None:
    is_closing = any(source.op is Ops.RANGE for source in node.src)
    return void(node) or (None if is_closing else "it closes no range")


def _wmma(node: UOp) -> str | None:
    a, b, c = node.src
    if c.dtype is not node.dtype or a.dtype.scalar is not b.dtype.scalar:
        return mismatch(node)
    return None


def _copy_async(node: UOp) -> str | None:
    if len(node.src) not in (3, 4) or node.src[2].op is not Ops.LOAD:
        return f"of {types_of(node.src)}"
    return void(node)


def _wait(node: UOp) -> str | None:
    """A void or the value of its source, with the groups of copies or units that may go on."""
    if node.arg is not None and not (isinstance(node.arg, int) and node.arg > 0):
        return f"for all but {node.arg!r} groups"
    if node.dtype is dtypes.void:
        return None
    is_value = len(node.src) == 1 and node.src[0].dtype is node.dtype
    return None if is_value else mismatch(node)


def _copy_tile(node: UOp) -> str | None:
    """The box lies in the tile, and the matrix in its buffer."""
    if len(node.src) < 7 or not isinstance(node.arg, TileMap):
        return f"of {types_of(node.src)}"
    memory, index, source, _, _, gate, *coordinates = node.src
    tile, whole = memory.dtype, source.dtype
    if not _is_in(tile, AddressSpace.SHARED) or not _is_in(whole, AddressSpace.GLOBAL):
        return f"from {dtype_text(whole)} to {dtype_text(tile)}"
    assert isinstance(tile, Pointer) and isinstance(whole, Pointer)
    if tile.base is not whole.base or len(coordinates) != len(node.arg.sizes):
        return mismatch(node)
    count = math.prod(node.arg.box)
    if index.vmin < 0 or index.vmax + count > tile.size:
        return f"its index {cut(render(index))} leaves {tile.size} elements"
    if node.arg.last >= whole.size:
        return f"its matrix leaves {whole.size} elements"
    return void(node) or _is_barrier(node.src[3:5]) or _gate(gate)


def _is_in(dtype: DType, space: AddressSpace) -> bool:
    return isinstance(dtype, Pointer) and dtype.space is space


def _gate(gate: UOp) -> str | None:
    return None if is_gate(gate, 1) else f"its gate is {dtype_text(gate.dtype)}, not bool"


def _is_barrier(barrier: Sequence[UOp]) -> str | None:
    """The check of the array of barriers and the number of one."""
    array, number = barrier
    pointer = array.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.SHARED:
        return f"{dtype_text(pointer)} is no array of barriers"
    if pointer.base is not dtypes.uint64 or number.vmin < 0 or number.vmax >= pointer.size:
        return f"barrier {cut(render(number))} of {dtype_text(pointer)}"
    return None


def _arrive(node: UOp) -> str | None:
    is_count = isinstance(node.arg, int) and node.arg > 0
    wrong = None if is_count else f"for {node.arg!r} bytes"
    return void(node) or wrong or _is_barrier(node.src[:2]) or _gate(node.src[2])


def _elect(node: UOp) -> str | None:
    (lane,) = node.src
    is_number = node.dtype is dtypes.bool and lane.dtype.kind in INTEGERS and lane.vmin == 0
    return None if is_number else mismatch(node)


def _wait_tile(node: UOp) -> str | None:
    parity = node.src[2]
    wrong = None if 0 <= parity.vmin and parity.vmax <= 1 else f"of parity {cut(render(parity))}"
    return void(node) or wrong or _is_barrier(node.src[:2])


def _descriptor(node: UOp) -> str | None:
    values, memory, _ = node.src
    if not isinstance(node.arg, tuple) or len(node.arg) != 3:
        return f"{node.arg!r} is no leading, stride, transposed"
    if not isinstance(memory.dtype, Pointer) or memory.dtype.space is not AddressSpace.SHARED:
        return f"in {dtype_text(memory.dtype)}, not shared memory"
    return None if values.dtype is node.dtype else mismatch(node)


def _fragment(node: UOp) -> str | None:
    (rows,) = node.src
    if not isinstance(node.arg, tuple) or len(node.arg) != 2 or node.arg[0] not in (1, 2, 4):
        return f"{node.arg!r} matrices"
    count, is_transposed = node.arg
    own = max(4 // rows.dtype.itemsize, 1)
    is_row = rows.dtype.lanes * rows.dtype.itemsize == 16 and rows.dtype.itemsize <= 4
    if not is_row or (is_transposed and own != 2):
        return mismatch(node)
    if node.dtype is not rows.dtype.scalar.vec(own * count):
        return mismatch(node)
    return None


def _shuffle(node: UOp) -> str | None:
    is_mask = isinstance(node.arg, int) and node.arg >= 1
    return same_dtype(node) or (
        None if is_mask else f"lanes that differ in the bits of {node.arg!r}"
    )


def _assign_accumulator(node: UOp) -> str | None:
    target = memory_of(node.src[0])
    if target.op is not Ops.DEFINE_ACC:
        return f"its target is a {target.op.name.lower()}, no accumulator"
    return same_dtype(node)


def running(node: UOp) -> str | None:
    """A PREFIX while a kernel becomes a program: its range may be unrolled."""
    return _prefix(node) if any(source.op is Ops.RANGE for source in node.src) else None


CODE_CHECKS: dict[Ops, Check] = {
    Ops.DEFINE_GLOBAL: _define_global,
    Ops.DEFINE_LOCAL: _define_local,
    Ops.DEFINE_ACC: _define_acc,
    Ops.SPECIAL: _special,
    Ops.RANGE: _range,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.REDUCE: _reduce,
    Ops.RESCALED: any_number,
    Ops.PREFIX: _prefix,
    Ops.VECTORIZE: _vectorize,
    Ops.GEP: _gep,
    Ops.AFTER: as_first_source,
    Ops.END: _end,
    Ops.ASSIGN: _assign_accumulator,
    Ops.BARRIER: void,
    Ops.SHUFFLE: _shuffle,
    Ops.WMMA: _wmma,
    Ops.FRAGMENT: _fragment,
    Ops.COPY_ASYNC: _copy_async,
    Ops.WAIT: _wait,
    Ops.COPY_TILE: _copy_tile,
    Ops.ARRIVE: _arrive,
    Ops.ELECT: _elect,
    Ops.WAIT_TILE: _wait_tile,
    Ops.DESCRIPTOR: _descriptor,
    Ops.SINK: void,
}
