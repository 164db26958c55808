"""Vectors gathered element by element become vector loads along the other axis, turned.

The reverse of `lower.transpose`: what is added to a register tile (a residual, a bias of its own
for each element) may lie as the tile is stored, neighbours along its rows. Element by element,
gathering the lanes of each row would cost as much as a short fold. So each lane loads its rows as
one vector, and these are turned in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.lower.transpose import LEAST_ROWS
from tilegrad.target import Target

__all__ = ["turn_loads"]

# (pointer, what the indices add to a constant, how far lanes are from the first one, the dtype)
Key = tuple[UOp, frozenset[tuple[UOp, int]], tuple[int, ...], DType]


def turn_loads(ast: UOp, target: Target) -> UOp:
    """before   VECTORIZE(LOAD(a, i*8 + r), LOAD(a, i*8 + 99 + r), ...)      for all rows r
    after    unzipped LOAD(a, i*8) : vec(8), LOAD(a, i*8 + 99) : vec(8), ...
    """
    if not target.has_vectors:
        return ast
    groups: dict[Key, dict[int, UOp]] = {}
    for node in ast.toposort():
        if (found := _row(node)) is not None:
            groups.setdefault(found[0], {})[found[1]] = node
    new: dict[UOp, UOp] = {}
    for rows in groups.values():
        for run in _runs(rows):
            for part in _cut(run, rows[run[0]].dtype.lanes):
                new |= _turned([rows[place] for place in part])
    return ast.substitute(new)


def _row(node: UOp) -> tuple[Key, int] | None:
    """What rows of one tile share, and where this one begins."""
    if node.op is not Ops.VECTORIZE or node.dtype.lanes.bit_count() != 1:
        return None
    first = node.src[0]
    if first.op is not Ops.LOAD or first.dtype is dtypes.bool or first.src[0].op is Ops.AFTER:
        return None
    pointer = first.src[0]
    places: list[int] = []
    factors: frozenset[tuple[UOp, int]] | None = None
    for load in node.src:
        if load.op is not Ops.LOAD or len(load.src) != 2 or load.src[0] is not pointer:
            return None
        terms = terms_of(load.src[1])
        if terms is None or (places and frozenset(terms[0].items()) != factors):
            return None
        factors = frozenset(terms[0].items())
        places.append(terms[1])
    if factors is None or len(set(places)) < len(places):
        # The same element for several lanes is one load already.
        return None
    apart = tuple(place - places[0] for place in places)
    return (pointer, factors, apart, node.dtype), places[0]


def _runs(rows: dict[int, UOp]) -> Iterator[list[int]]:
    """Places that follow one another."""
    run: list[int] = []
    for place in sorted(rows):
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    yield run


def _cut(run: list[int], lanes: int) -> Iterator[list[int]]:
    """Parts of a run that are one vector a lane; the last two may overlap, as a mask costs more."""
    count = min(1 << (len(run).bit_length() - 1), lanes)
    if count < LEAST_ROWS:
        return
    for first in range(0, len(run) - count + 1, count):
        yield run[first : first + count]
    if len(run) % count:
        yield run[-count:]


def _turned(rows: Sequence[UOp]) -> dict[UOp, UOp]:
    """The rows of a tile as they are picked from the vectors of its lanes."""
    dtype = rows[0].dtype
    count = len(rows)
    loads = [load.replace(dtype=load.dtype.vec(count)) for load in rows[0].src]
    together = dtype.lanes // count
    vectors = [
        _joined(loads[place : place + together], dtype) for place in range(0, len(loads), together)
    ]
    for _ in range(count.bit_length() - 1):
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = [_unzipped(a, b, side) for side in range(2) for a, b in pairs]
    return dict(zip(rows, vectors, strict=True))


def _joined(parts: Sequence[UOp], dtype: DType) -> UOp:
    """Short vectors side by side."""
    count = parts[0].dtype.lanes
    total = _spread(parts[-1], dtype)
    for place, part in reversed(list(enumerate(parts[:-1]))):
        is_before = UOp.stack(
            UOp.const(dtypes.bool, lane < (place + 1) * count) for lane in range(dtype.lanes)
        )
        total = is_before.where(_spread(part, dtype), total)
    return total


def _spread(part: UOp, dtype: DType) -> UOp:
    """A short vector again and again."""
    count = part.dtype.lanes
    return (
        part if count == dtype.lanes else part.gep(*(lane % count for lane in range(dtype.lanes)))
    )


def _unzipped(a: UOp, b: UOp, side: int) -> UOp:
    """Every second lane of both, from the first or the second on."""
    lanes = a.dtype.lanes
    places = [(2 * lane + side) % lanes for lane in range(lanes)]
    is_first = UOp.stack(UOp.const(dtypes.bool, lane < lanes // 2) for lane in range(lanes))
    return is_first.where(a.gep(*places), b.gep(*places))
