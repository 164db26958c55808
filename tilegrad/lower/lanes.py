"""Written-out axes become vector lanes where memory allows it.

Of the axes that are written out, those along which most loads and stores touch neighbouring
elements run as the lanes of vectors; no value may depend on two of them. A load whose index moves
by one per lane is a vector load; one whose lanes stay close together is a few vector loads, from
which the lanes are picked (window.py); any other that depends on the lane is made of scalar loads,
one for each. The rest of the arithmetic follows.

Folds along lanes give a number each. Where several are stored side by side, what is made of them is
computed for all at once.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, Pointer, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.lower.dots import join_operand, operand_parts, widen_operand, widen_unit
from tilegrad.lower.transpose import LEAST_ROWS
from tilegrad.lower.window import MOST_LOADS, load_window
from tilegrad.target import Target

__all__ = ["use_lanes"]

_WRITTEN = (Axis.UPCAST, Axis.UNROLL)
# So many bytes beside a buffer there most likely is memory, too.
_NEARBY = 1 << 16
# So many results of folds are a vector; what they are made of stands in such places.
_LEAST_RESULTS = 4
_PLACES = (Ops.CONST, Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR)
# Groups of so many lanes are turned as one.
_MOST_GROUPED = 8


def use_lanes(ast: UOp, target: Target) -> UOp:
    """`ast` with its best written-out axes as vector lanes.

    before   STORE(a, i*4 + u, LOAD(b, i*4 + u))       u: upcast 0..4
    after    STORE(a, i*4, LOAD(b, i*4) : float.vec(4))
    """
    numbers = [node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE]
    number = 1 + max(numbers, default=-1)
    chosen = _choose(ast, target)
    results = _results(ast, chosen, target)
    if results is not None:
        ast = _join_results(ast, results, target) or ast
    for axis in chosen:
        width, extent = _width(ast, axis, target), axis.src[0].arg
        lane = UOp.range(width, number, axis.arg[1])
        if extent == width:
            ast = replace_ranges(ast, {axis: (lane, (lane,))})
        else:
            part = UOp.range(extent // width, number + 1, axis.arg[1])
            ast = replace_ranges(ast, {axis: (part * width + lane, (part, lane))})
        ast = _vectorize(ast, lane, width, target)
        number += 2
    return ast


def _choose(ast: UOp, target: Target) -> list[UOp]:
    """The axes to run as lanes, best first, no two of which meet in one value."""
    nodes = ast.toposort()
    score: dict[UOp, int] = {}
    for node in nodes:
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        for axis in node.src[1].ranges:
            if axis.arg[1] in _WRITTEN and axis.src[0].op is Ops.CONST:
                if stride_of(node.src[1], axis) == 1:
                    gain = 3 if node.op is Ops.STORE else 2
                elif node.op is Ops.STORE:
                    gain = 0 if _is_turned(node.src[1], axis) else -4
                else:
                    gain = _gain_of_window(node.src[1], axis)
                score[axis] = score.get(axis, 0) + gain * _weight(node)
    # A vector half as wide is worth half.
    worth = {axis: score[axis] * _width(ast, axis, target) for axis in score}
    chosen: list[UOp] = []
    for axis in sorted(score, key=lambda axis: (-worth[axis], axis.arg[0])):
        if score[axis] <= 0 or _width(ast, axis, target) < 2:
            continue
        if not any(_meet(nodes, axis, other) for other in chosen):
            chosen.append(axis)
    return chosen


def _results(ast: UOp, chosen: list[UOp], target: Target) -> UOp | None:
    """The axis along which results of folds that have lanes of their own are stored side by side,
    if they are just a vector.
    """
    outside = toposort([ast], lambda node: node.op is Ops.REDUCE)
    stores = [node for node in outside if node.op is Ops.STORE]
    known = (Ops.CAST, Ops.BITCAST, Ops.LOAD, Ops.STORE, Ops.SINK, Ops.REDUCE, *_PLACES)
    if len(stores) != 1 or any(not node.op.is_alu and node.op not in known for node in outside):
        return None
    (store,) = stores
    for axis in sorted(store.src[1].ranges, key=lambda axis: axis.arg[0]):
        folds = [node for node in outside if node.op is Ops.REDUCE and axis in node.ranges]
        if (
            axis.arg[1] is Axis.UPCAST
            and axis.src[0].op is Ops.CONST
            and axis.src[0].arg == _width(ast, axis, target) >= _LEAST_RESULTS
            and stride_of(store.src[1], axis) == 1
            and store.ranges.isdisjoint(chosen)
            and folds
            and all(any(part in chosen for part in fold.src) for fold in folds)
            and not any(_is_filled_within(fold, axis) for fold in folds)
        ):
            return axis
    return None


def _is_filled_within(fold: UOp, axis: UOp) -> bool:
    """Whether `fold` reads scratch that is filled for each place of `axis`, one after the other."""
    return any(node.op is Ops.DEFINE_LOCAL and axis in node.src for node in fold.toposort())


def _join_results(ast: UOp, lane: UOp, target: Target) -> UOp | None:
    """What is made of the folds of all places of `lane` as vectors, and the folds one by one; None
    where one of these (beyond an end that was padded) is less than the others, whose loops it then
    could not share.

    before   STORE(a, i*4 + u, f(REDUCE(x[i*4 + u, k], k)))       u: upcast 0..4
    after    STORE(a, i*4, f(VECTORIZE(REDUCE(x[i*4, k], k), REDUCE(x[i*4 + 1, k], k), ...)))
    """
    width = lane.src[0].arg
    lanes = UOp.stack(UOp.const(dtypes.index, place) for place in range(width))
    done: dict[UOp, UOp] = {lane: lanes}
    for node in toposort([ast], lambda node: node.op is Ops.REDUCE):
        if node is lane:
            continue
        if node.op is Ops.REDUCE:
            is_one = lane not in node.ranges
            done[node] = (
                node if is_one else UOp.stack(_at(node, lane, place) for place in range(width))
            )
            continue
        src = tuple(done[source] for source in node.src)
        if src == node.src:
            done[node] = node
        elif lane in node.ranges or node.op is Ops.SINK:
            done[node] = _wide(node, src, lane, width, target)
        else:
            done[node] = UOp(node.op, node.dtype, src, node.arg)
    joined = simplify(done[ast])
    loops = {(node.src[1:], node.ranges - {lane}) for node in _folds(ast)}
    return joined if all((node.src[1:], node.ranges) in loops for node in _folds(joined)) else None


def _folds(ast: UOp) -> list[UOp]:
    return [node for node in ast.toposort() if node.op is Ops.REDUCE]


def _is_turned(index: UOp, axis: UOp) -> bool:
    """Whether lanes that lie apart, or groups of them, are stored with their neighbours along
    another written-out axis (transpose.py).
    """
    for part in index.ranges:
        if part is axis or part.arg[1] not in _WRITTEN or part.src[0].op is not Ops.CONST:
            continue
        rows, step = part.src[0].arg, stride_of(index, part)
        if step == 1 and (rows >= LEAST_ROWS or 1 < rows == stride_of(index, axis)):
            return True
        if (
            step is not None
            and 1 < step <= _MOST_GROUPED
            and rows > 1
            and _has_runs(index, axis, step)
        ):
            return True
    return False


def _has_runs(index: UOp, axis: UOp, length: int) -> bool:
    """Whether `length` neighbours along `axis` are neighbours in memory."""
    if axis.src[0].arg % length:
        return False
    first = _at(index, axis, 0)
    apart = [simplify(_at(index, axis, place) + first * -1) for place in range(1, length)]
    return all(each.op is Ops.CONST and each.arg == 1 + at for at, each in enumerate(apart))


def _gain_of_window(index: UOp, axis: UOp) -> int:
    """What it is worth that a load's lanes are close together, or that they are not."""
    last = axis.src[0].arg - 1
    span = simplify(_at(index, axis, last) - _at(index, axis, 0))
    return 1 if span.op is Ops.CONST and 0 < abs(span.arg) <= MOST_LOADS * last else -4


def _weight(access: UOp) -> int:
    """How often an access runs, roughly: each fold's loop around it counts for many."""
    loops = sum(loop.arg[1] is Axis.REDUCE for loop in access.ranges)
    return int(8 ** min(loops, 3))


def _meet(nodes: dict[UOp, None], a: UOp, b: UOp) -> bool:
    return any(node.op is not Ops.END and a in node.ranges and b in node.ranges for node in nodes)


def _width(ast: UOp, axis: UOp, target: Target) -> int:
    """Lanes: the largest power of two that divides the extent and that a vector of the widest dtype
    here holds.
    """
    sizes = [
        node.dtype
        for node in ast.toposort()
        if node.op in (Ops.LOAD, Ops.REDUCE, Ops.PREFIX)
        and axis in node.ranges | frozenset(node.src)
    ]
    stored = [
        node.src[2].dtype
        for node in ast.toposort()
        if node.op is Ops.STORE and axis in node.src[1].ranges
    ]
    widest: DType = max([*sizes, *stored], key=lambda dtype: dtype.itemsize, default=dtypes.float32)
    most = target.lanes_of(widest)
    width = 1
    while width * 2 <= most and axis.src[0].arg % (width * 2) == 0:
        width *= 2
    return width


def stride_of(index: UOp, axis: UOp) -> int | None:
    """By how much `index` moves per step of `axis`, or None where that is not one number."""
    found = terms_of(index)
    if found is None:
        return None
    scale = found[0].get(axis, 0)
    if any(axis in factor.ranges for factor in found[0] if factor is not axis):
        return None
    return scale


def _vectorize(ast: UOp, lane: UOp, width: int, target: Target) -> UOp:
    """Every value that depends on `lane` becomes a vector of `width` lanes."""
    lanes = UOp.stack(UOp.const(dtypes.index, place) for place in range(width))
    done: dict[UOp, UOp] = {lane: lanes}
    depends: set[UOp] = {lane}
    nodes = ast.toposort()
    parts = operand_parts(nodes)
    waiting: dict[UOp, None] = {}
    for node in nodes:
        if node is lane:
            continue
        if node in parts and any(source in depends for source in node.src):
            # What is joined to an operand has no lanes of its own.
            waiting[node] = None
            depends.add(node)
            continue
        if node.op is Ops.VECTORIZE and any(source in depends for source in node.src):
            joined = join_operand(node, done, lane, width)
            if joined is None:
                for part in [each for each in node.toposort() if each in waiting]:
                    src = tuple(done[source] for source in part.src)
                    done[part] = _wide(part, src, lane, width, target)
                    del waiting[part]
                joined = widen_operand(node, done, width)
            done[node] = joined
            depends.add(node)
            continue
        src = tuple(done[source] for source in node.src)
        if not any(source in depends for source in node.src):
            done[node] = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
            continue
        made = _wide(node, src, lane, width, target)
        done[node] = made
        if (
            lane in node.ranges
            or node.op is Ops.DEFINE_LOCAL
            or (node.op is Ops.AFTER and any(source in depends for source in node.src[:1]))
        ):
            depends.add(node)
    return simplify(done[ast])


def _wide(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int, target: Target) -> UOp:
    op = node.op
    if op is Ops.LOAD:
        return _wide_load(node, src, lane, width, target)
    if op is Ops.STORE:
        return _wide_store(node, src, lane, width)
    if op is Ops.DEFINE_LOCAL:
        lives_in = tuple(part for part in node.src if part is not lane)
        pointer = node.dtype
        assert isinstance(pointer, Pointer)
        array = pointer.base.ptr(pointer.size * width, pointer.place)
        return UOp(op, array, lives_in, node.arg)
    if op is Ops.REDUCE:
        if lane not in node.src:
            return UOp(op, node.dtype.vec(width), tuple(src), node.arg)
        rest = tuple(
            part for old, part in zip(node.src[1:], src[1:], strict=True) if old is not lane
        )
        partial = UOp(op, node.dtype.vec(width), (src[0].broadcast(width), *rest), node.arg)
        return across(partial, node.arg)
    if op is Ops.PREFIX:
        return _wide_prefix(node, src, lane, width)
    if op is Ops.END:
        return UOp(
            op,
            node.dtype,
            tuple(part for old, part in zip(node.src, src, strict=True) if old is not lane),
        )
    if op is Ops.WMMA:
        return widen_unit(node, src, width)
    if op in (Ops.AFTER, Ops.SINK):
        return UOp(op, src[0].dtype if op is Ops.AFTER else node.dtype, src, node.arg)
    if op.is_alu or op in (Ops.CAST, Ops.BITCAST, Ops.RESCALED):
        wide = tuple(part if part.dtype.lanes == width else part.broadcast(width) for part in src)
        return UOp(op, node.dtype.vec(width), wide, node.arg)
    raise InternalError(f"lower.lanes cannot vectorize a {op} node", node=repr(node)[:300])


def _wide_prefix(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int) -> UOp:
    """Each lane a prefix of its own; along the lanes, the prefixes within the vector after all that
    the vectors before it come to.

    before   PREFIX(x, i, lane)
    after    PREFIX(last lane of p, i; without this one) + p        p: x and its prefixes by lanes
    """
    value, loops = src[0].broadcast(width), src[1:]
    if lane not in node.src:
        return UOp(Ops.PREFIX, node.dtype.vec(width), (value, *loops), node.arg)
    function = node.arg[0]
    rest = tuple(part for old, part in zip(node.src[1:], loops, strict=True) if old is not lane)
    step = 1
    while step < width:
        before = value.gep(*(max(place - step, 0) for place in range(width)))
        reached = UOp.stack(UOp.const(dtypes.bool, place >= step) for place in range(width))
        value = reached.where(before.alu(function, value), value)
        step *= 2
    if not rest:
        return value
    last = value.gep(width - 1)
    earlier = UOp(Ops.PREFIX, node.dtype, (last, *rest), (function, 0))
    return earlier.broadcast(width).alu(function, value)


def across(vector: UOp, op: Ops) -> UOp:
    """The fold of a vector's lanes, halving it until one is left: the tree is fixed by the number
    of lanes.
    """
    while vector.dtype.lanes > 1:
        half = vector.dtype.lanes // 2
        vector = _pick(vector, range(half)).alu(op, _pick(vector, range(half, 2 * half)))
    return vector


def _pick(vector: UOp, lanes: range) -> UOp:
    return UOp(Ops.GEP, vector.dtype.scalar.vec(len(lanes)), (vector,), tuple(lanes))


def _is_private(pointer: UOp, lane: UOp) -> bool:
    """Whether the memory lives inside `lane`, so that each lane has its own."""
    while pointer.op is Ops.AFTER:
        pointer = pointer.src[0]
    return pointer.op is Ops.DEFINE_LOCAL and lane in pointer.src


def _at(node: UOp, lane: UOp, place: int) -> UOp:
    return simplify(node, {lane: UOp.const(dtypes.index, place)})


def _wide_load(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int, target: Target) -> UOp:
    pointer, index = node.src[:2]
    private = _is_private(pointer, lane)
    extra = tuple(part.broadcast(width) if part.dtype.lanes == 1 else part for part in src[2:])
    if private and lane not in index.ranges:
        return UOp(Ops.LOAD, node.dtype.vec(width), (src[0], index * width, *extra), node.arg)
    if not private and stride_of(index, lane) == 1 and _is_pure(index, lane):
        position = _at(index, lane, 0)
        if extra and src[3].dtype.lanes == 1 and _goes_far(node):
            position = src[3].where(position, 0)
        return UOp(Ops.LOAD, node.dtype.vec(width), (src[0], position, *extra), node.arg)
    if lane not in index.ranges and not private and not extra:
        return UOp(Ops.LOAD, node.dtype, src, node.arg)
    if not private and _is_pure(index, lane):
        positions = [_at(index, lane, place) for place in range(width)]
        found = load_window(node, (src[0], *extra), positions, target)
        if found is not None:
            return found
    parts: list[UOp] = []
    for place in range(width):
        position, *rest = (
            _lane_of(old, new, lane, place) for old, new in zip(node.src[1:], src[1:], strict=True)
        )
        if private:
            # Of memory that each lane has of its own, the lanes' copies lie side by side.
            position = position * width + place
        parts.append(UOp(Ops.LOAD, node.dtype, (src[0], position, *rest), node.arg))
    return UOp.stack(parts)


def _goes_far(load: UOp) -> bool:
    """Whether, where its gate is closed, a load points to where there may be no memory at all:
    processors take a hundred times as long for a load of no lanes there as for one of all.
    """
    memory, index = load.src[:2]
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    if memory.op is not Ops.DEFINE_GLOBAL:
        return False
    beyond = max(-index.vmin, index.vmax - memory.dtype.size)  # type: ignore[attr-defined]
    return bool(beyond * load.dtype.itemsize > _NEARBY)


def _lane_of(scalar: UOp, vector: UOp, lane: UOp, place: int) -> UOp:
    """One lane of a value: computed for that lane alone where it can be, else picked from the
    vector.
    """
    if all(node.op not in (Ops.AFTER, Ops.REDUCE, Ops.PREFIX) for node in scalar.toposort()):
        return _at(scalar, lane, place)
    return simplify(vector.gep(place)) if vector.dtype.lanes > 1 else vector


def _is_pure(index: UOp, lane: UOp) -> bool:
    """Whether the index may be evaluated for any lane: what it reads is the same for all."""
    return all(node.op is not Ops.LOAD or lane not in node.ranges for node in index.toposort())


def _wide_store(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int) -> UOp:
    pointer, index = node.src[:2]
    value = src[2].broadcast(width)
    gates = tuple(part.broadcast(width) if part.dtype.lanes == 1 else part for part in src[3:])
    private = _is_private(pointer, lane)
    if private and lane not in index.ranges:
        return UOp(Ops.STORE, dtypes.void, (src[0], index * width, value, *gates), node.arg)
    if not private and stride_of(index, lane) == 1 and _is_pure(index, lane):
        return UOp(Ops.STORE, dtypes.void, (src[0], _at(index, lane, 0), value, *gates), node.arg)
    stores = []
    for place in range(width):
        position = _lane_of(index, src[1], lane, place)
        if private:
            position = position * width + place
        rest = tuple(
            _lane_of(old, new, lane, place) for old, new in zip(node.src[3:], src[3:], strict=True)
        )
        stores.append(
            UOp(Ops.STORE, dtypes.void, (src[0], position, value.gep(place), *rest), node.arg)
        )
    return UOp(Ops.END, dtypes.void, tuple(stores))
