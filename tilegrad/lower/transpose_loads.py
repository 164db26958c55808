"""Gathered vectors become vector loads along the other axis and a transpose in registers.

The reverse of `lower.transpose_stores`: an operand of a register tile's epilogue (a residual, a
bias for each element) may have the layout of the stored tile, contiguous along its rows. Element by
element, gathering the lanes of each row would cost as much as a short reduction. So each lane loads
its rows as one vector, and the vectors are transposed in registers. Lanes may be padding, as those
of a packed copy whose channels are no whole vectors: then each vector has the gate of its lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import LEAST_ROWS
from tilegrad.target import Target

__all__ = ["transpose_loads"]

# (pointer, the terms of the indices, the offset of each lane from the first, the alternative and
# the gate of each lane, the dtype)
Key = tuple[UOp, frozenset[tuple[UOp, int]], tuple[int, ...], tuple[tuple[UOp, ...], ...], DType]


def transpose_loads(ast: UOp, target: Target) -> UOp:
    """before   VECTORIZE(LOAD(a, i*8 + r), LOAD(a, i*8 + 99 + r), ...)      for all rows r
    after    unzipped LOAD(a, i*8) : vec(8), LOAD(a, i*8 + 99) : vec(8), ...
    """
    if not target.has_vectors:
        return ast
    groups: dict[Key, dict[int, UOp]] = {}
    for node in ast.toposort():
        if node.op is Ops.VECTORIZE and (found := _row(node, target)) is not None:
            groups.setdefault(found[0], {})[found[1]] = node
    new: dict[UOp, UOp] = {}
    for rows in groups.values():
        for run in _runs(rows):
            for chunk in _cut(run, rows[run[0]].dtype.lanes):
                new |= _transposed([rows[offset] for offset in chunk])
    return ast.substitute(new)


def _row(node: UOp, target: Target) -> tuple[Key, int] | None:
    """The key that the rows of a tile share, and the constant offset of this row; None for a vector
    that is no gathered row.
    """
    if node.dtype.lanes.bit_count() != 1:
        return None
    first = node.src[0]
    if first.op is not Ops.LOAD or first.dtype is dtypes.bool or first.src[0].op is Ops.AFTER:
        return None
    pointer = first.src[0]
    offsets: list[int] = []
    factors: frozenset[tuple[UOp, int]] | None = None
    for load in node.src:
        if load.op is not Ops.LOAD or load.src[0] is not pointer:
            return None
        if load.is_gated and not target.has_mask:
            return None
        terms = terms_of(load.index)
        if terms is None or (offsets and frozenset(terms[0].items()) != factors):
            return None
        factors = frozenset(terms[0].items())
        offsets.append(terms[1])
    if factors is None or len(set(offsets)) < len(offsets):
        # One element for several lanes is one load already.
        return None
    apart = tuple(offset - offsets[0] for offset in offsets)
    gates = tuple(load.src[2:] if load.is_gated else () for load in node.src)
    return (pointer, factors, apart, gates, node.dtype), offsets[0]


def _runs(rows: dict[int, UOp]) -> Iterator[list[int]]:
    """Runs of consecutive offsets."""
    run: list[int] = []
    for offset in sorted(rows):
        if run and offset != run[-1] + 1:
            yield run
            run = []
        run.append(offset)
    yield run


def _cut(run: list[int], lanes: int) -> Iterator[list[int]]:
    """Chunks of a run that are one vector a lane; the last two may overlap to avoid a mask."""
    count = min(1 << (len(run).bit_length() - 1), lanes)
    if count < LEAST_ROWS:
        return
    for first in range(0, len(run) - count + 1, count):
        yield run[first : first + count]
    if len(run) % count:
        yield run[-count:]


def _transposed(rows: Sequence[UOp]) -> dict[UOp, UOp]:
    """The rows of a tile, each by the vector that replaces it."""
    dtype = rows[0].dtype
    count = len(rows)
    loads = [
        load.replace(
            dtype=load.dtype.vec(count),
            src=(*load.src[:2], *(each.broadcast(count) for each in load.src[2:])),
        )
        for load in rows[0].src
    ]
    together = dtype.lanes // count
    vectors = [
        _joined(loads[number : number + together], dtype)
        for number in range(0, len(loads), together)
    ]
    for _ in range(count.bit_length() - 1):
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = [_unzipped(a, b, side) for side in range(2) for a, b in pairs]
    return dict(zip(rows, vectors, strict=True))


def _joined(vectors: Sequence[UOp], dtype: DType) -> UOp:
    """The concatenation of short vectors."""
    count = vectors[0].dtype.lanes
    total = _spread(vectors[-1], dtype)
    for number, vector in reversed(list(enumerate(vectors[:-1]))):
        is_before = UOp.stack(
            UOp.const(dtypes.bool, lane < (number + 1) * count) for lane in range(dtype.lanes)
        )
        total = is_before.where(_spread(vector, dtype), total)
    return total


def _spread(vector: UOp, dtype: DType) -> UOp:
    """A short vector repeated."""
    count = vector.dtype.lanes
    return (
        vector
        if count == dtype.lanes
        else vector.gep(*(lane % count for lane in range(dtype.lanes)))
    )


def _unzipped(a: UOp, b: UOp, side: int) -> UOp:
    """Every second lane of both, from the first or the second on."""
    lanes = a.dtype.lanes
    picks = [(2 * lane + side) % lanes for lane in range(lanes)]
    is_first = UOp.stack(UOp.const(dtypes.bool, lane < lanes // 2) for lane in range(lanes))
    return is_first.where(a.gep(*picks), b.gep(*picks))
