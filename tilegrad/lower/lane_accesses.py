"""Loads whose lanes are close together: a load of the span and a shuffle."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.queries import stride_of
from tilegrad.ir.rules import distance_between, simplify
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import LEAST_ROWS, MOST_LOADS, is_transposed
from tilegrad.target import Target

__all__ = ["load_and_shuffle", "scattered"]


def load_and_shuffle(
    node: UOp, src: tuple[UOp, ...], positions: Sequence[UOp], target: Target
) -> UOp | None:
    """The lanes of the scalar load `node` at `positions`. `src` has the pointer and, for a gated
    load, the alternative and the gate as vectors. None where the lanes are not close together.

    before   LOAD(a, i*8 + u//2)                         u: lane 0..16
    after    GEP(LOAD(a, i*8) : float.vec(8), (0, 0, 1, 1, ...))

    A stride of two (every other pixel) and a division by two (the gradient of pooling) are of this
    kind. All memory between the first and the last element is in the buffer, so an ungated span may
    be loaded whole; with gates, an element is loaded where a lane that needs it may.
    """
    pointer, *gated = src
    is_open = _known_lanes(gated[1]) if gated else None
    if is_open is not None and any(is_open):
        return _load_open(node, (pointer, *gated), positions, is_open, target)
    offsets = _offsets(positions)
    if offsets is None:
        return None
    width, span = len(offsets), max(offsets) + 1
    is_exact = span.bit_count() == 1 and span <= width
    needs_mask = bool(gated) or (span < width and not is_exact)
    if span > MOST_LOADS * width or (needs_mask and not target.has_mask):
        return None
    first = positions[offsets.index(0)]
    lanes = span if is_exact and not gated else width
    starts = [*range(0, span - lanes, lanes), max(span - lanes, 0)]
    # A load of the span that no lane needs would have no gate: it is left out.
    starts = [start for start in starts if any(0 <= each - start < lanes for each in offsets)]
    found: UOp | None = None
    for number, start in enumerate(starts):
        wanted = [offset - start for offset in offsets]
        loaded = _load(node, (pointer, *gated), simplify(first + start), wanted, lanes)
        picked = _pick(loaded, [min(max(each, 0), lanes - 1) for each in wanted])
        if found is None:
            found = picked
        else:
            # Lanes within the loads before this one take their element from those.
            theirs = [offset < starts[number - 1] + lanes for offset in offsets]
            found = _flags(theirs).where(found, picked)
    assert found is not None
    if gated:
        found = gated[1].where(found, gated[0])
    return found


def _known_lanes(gate: UOp) -> list[bool] | None:
    """The lanes that a gate opens, if each is constant."""
    flags = [simplify(_lane_of(gate, lane, {})) for lane in range(gate.dtype.lanes)]
    return [bool(flag.arg) for flag in flags] if all(f.op is Ops.CONST for f in flags) else None


def _lane_of(vector: UOp, lane: int, known: dict[UOp, UOp]) -> UOp:
    """One lane of a value that is computed lane by lane; `known` caches results."""
    if vector in known:
        return known[vector]
    if vector.op is Ops.VECTORIZE:
        return vector.src[lane]
    if vector.op is Ops.CONST:
        return UOp.const(vector.dtype.scalar, vector.arg)
    if vector.op.is_alu:
        src = tuple(_lane_of(source, lane, known) for source in vector.src)
        made = known[vector] = UOp(vector.op, vector.dtype.scalar, src, vector.arg)
        return made
    return vector.gep(lane)


def _load_open(
    node: UOp, src: tuple[UOp, ...], positions: Sequence[UOp], is_open: list[bool], target: Target
) -> UOp | None:
    """As `load_and_shuffle`, for a gate that is constant in each lane: closed lanes need no
    element, and no gate is needed between the open ones.
    """
    pointer, other, gate = src
    anywhere = positions[is_open.index(True)]
    wanted = [at if is_wanted else anywhere for at, is_wanted in zip(positions, is_open)]
    found = load_and_shuffle(node, (pointer,), wanted, target)
    return None if found is None else gate.where(found, other)


def _offsets(positions: Sequence[UOp]) -> list[int] | None:
    """The distance of each position from the lowest one, if constant."""
    apart: list[int] = []
    for position in positions:
        distance = distance_between(positions[0], position)
        if distance is None:
            return None
        apart.append(distance)
    lowest = min(apart)
    return [each - lowest for each in apart]


def _load(node: UOp, src: tuple[UOp, ...], start: UOp, wanted: Sequence[int], lanes: int) -> UOp:
    """`lanes` elements from `start`; lane l needs the element number `wanted[l]`."""
    pointer, *gated = src
    dtype = node.dtype.vec(lanes)
    if not gated and max(wanted) >= lanes - 1:
        return UOp(Ops.LOAD, dtype, (pointer, start), node.arg)
    users = [
        [lane for lane, each in enumerate(wanted) if each == number] for number in range(lanes)
    ]
    zero = UOp.const(node.dtype, 0).broadcast(lanes)
    gate = _flags([bool(each) for each in users])
    if gated:
        most = max(len(each) for each in users)
        any_of = [
            _pick(gated[1], [each[min(rank, len(each) - 1)] if each else 0 for each in users])
            for rank in range(most)
        ]
        total = any_of[0]
        for other in any_of[1:]:
            total = total | other
        gate = total & gate if not all(users) else total
    return UOp(Ops.LOAD, dtype, (pointer, start, zero, gate), node.arg)


def _pick(vector: UOp, lanes: Sequence[int]) -> UOp:
    if vector.dtype.lanes == 1:
        return vector.broadcast(len(lanes))
    return UOp(Ops.GEP, vector.dtype.scalar.vec(len(lanes)), (vector,), tuple(lanes))


def _flags(values: Sequence[bool]) -> UOp:
    return UOp.stack([UOp.const(dtypes.bool, value) for value in values])


# Bytes of the elements that machines scatter. Fewer lanes than this are stored one by one.
_SIZES = (4, 8)
_LEAST_LANES = 8


def scattered(
    store: UOp, src: tuple[UOp, UOp], lane: UOp, width: int, target: Target
) -> UOp | None:
    """The store of the vector `src[1]` to `src[0]`, one element for each value of `lane`; None
    where lanes are stored one by one.

    before   STORE(a, i + l*9, x)                         l: the lane
    after    STORE(a, (i, i, ...) + (0, 9, ...), x)       x: a vector

    Neither the lanes nor the rows of such a tile are neighbours in memory, so the vector is one
    store at a vector of indices, on machines that have such an instruction.

    It is one node for all passes that follow, and for the compiler, in place of three for each
    lane.
    """
    if not target.has_scatter or store.is_gated or store.arg is not None:
        return None
    index, value = store.src[1:3]
    if value.dtype.itemsize not in _SIZES or width < _LEAST_LANES:
        return None
    step = stride_of(index, lane)
    if not step or is_transposed(index, lane) or _run_beside(index, lane) >= LEAST_ROWS:
        return None
    first = simplify(index, {lane: UOp.const(dtypes.index, 0)})
    steps = UOp.stack(UOp.const(dtypes.index, step * number) for number in range(width))
    return src[0].store(first.broadcast(width) + steps, src[1])


def _run_beside(index: UOp, lane: UOp) -> int:
    """How many consecutive elements the other unrolled axes access together: a transpose makes
    vectors of them.
    """
    others = [
        (stride_of(index, axis), axis.extent.arg)
        for axis in index.ranges
        if axis is not lane and axis.axis in UNROLLED and axis.extent.op is Ops.CONST
    ]
    run = 1
    for step, rows in sorted((step, rows) for step, rows in others if step):
        run *= rows if step == run else 1
    return run
