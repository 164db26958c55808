"""Vectorization: unrolled axes become vector lanes where memory allows it.

The axes along which most loads and stores access consecutive elements become lanes; no value may
depend on two of them. A load whose index moves by one per lane is a vector load. One whose lanes
are close together is a few vector loads and a shuffle (lane_accesses.py). Any other load that
depends on the lane is a gather of scalar loads. The arithmetic follows.

A reduction along the lanes gives one number. Where several such numbers are stored side by side,
the epilogue is computed on a vector of them.
"""

from __future__ import annotations

from collections.abc import Collection

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of, next_number, reductions_of, stride_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, pointer_of, toposort
from tilegrad.ir.vector_lanes import in_lane, lane_axes, lane_count
from tilegrad.lower.dot_operands import join_operand, operand_values, widen_operand, widen_unit
from tilegrad.lower.lane_accesses import load_and_shuffle, scattered
from tilegrad.target import Target

__all__ = ["use_lanes"]

# Bytes beyond a buffer that are most likely mapped memory too.
_NEARBY = 1 << 16
# The least number of reduction results that are worth a vector; and the leaves of an epilogue.
_LEAST_RESULTS = 4
_LEAVES = (Ops.CONST, Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR)


def use_lanes(ast: UOp, target: Target) -> UOp:
    """`ast` with its best unrolled axes as vector lanes.

    before   STORE(a, i*4 + u, LOAD(b, i*4 + u))       u: upcast 0..4
    after    STORE(a, i*4, LOAD(b, i*4) : float.vec(4))
    """
    number = next_number(ast.toposort())
    chosen = lane_axes(ast, target.lanes_of, target.gather_bytes)
    results = _results(ast, chosen, target)
    if results is not None:
        ast = _join_results(ast, results, target) or ast
    for axis, width in chosen.items():
        extent = axis.extent.arg
        lane = UOp.range(width, number, axis.axis)
        if extent == width:
            ast = replace_ranges(ast, {axis: (lane, (lane,))})
        else:
            group = UOp.range(extent // width, number + 1, axis.axis)
            ast = replace_ranges(ast, {axis: (group * width + lane, (group, lane))})
        ast = _vectorize(ast, lane, width, target)
        number += 2
    return ast


def _results(ast: UOp, chosen: Collection[UOp], target: Target) -> UOp | None:
    """The axis along which the results of reductions with lanes of their own are stored side by
    side, if they fill one vector.
    """
    outside = toposort([ast], lambda node: node.op is Ops.REDUCE)
    stores = [node for node in outside if node.op is Ops.STORE]
    known = (Ops.CAST, Ops.BITCAST, Ops.LOAD, Ops.STORE, Ops.SINK, Ops.REDUCE, *_LEAVES)
    if len(stores) != 1 or any(not node.op.is_alu and node.op not in known for node in outside):
        return None
    (store,) = stores
    for axis in sorted(store.index.ranges, key=lambda axis: axis.number):
        reductions = [node for node in outside if node.op is Ops.REDUCE and axis in node.ranges]
        if (
            axis.axis is Axis.UPCAST
            and axis.extent.op is Ops.CONST
            and axis.extent.arg
            == lane_count(ast, axis, target.lanes_of, target.gather_bytes)
            >= _LEAST_RESULTS
            and stride_of(store.index, axis) == 1
            and store.ranges.isdisjoint(chosen)
            and reductions
            and all(any(loop in chosen for loop in reduce.src) for reduce in reductions)
            and not any(_fills_scratch_within(reduce, axis) for reduce in reductions)
        ):
            return axis
    return None


def _fills_scratch_within(reduce: UOp, axis: UOp) -> bool:
    """Whether `reduce` reads scratch that each iteration of `axis` fills anew."""
    return any(node.op is Ops.DEFINE_LOCAL and axis in node.src for node in reduce.toposort())


def _join_results(ast: UOp, lane: UOp, target: Target) -> UOp | None:
    """The kernel with the epilogue of all iterations of `lane` as vectors, and their reductions one
    by one; None where one of these (beyond padding) has other loops than the rest, so that they
    could not share them.

    before   STORE(a, i*4 + u, f(REDUCE(x[i*4 + u, k], k)))       u: upcast 0..4
    after    STORE(a, i*4, f(VECTORIZE(REDUCE(x[i*4, k], k), REDUCE(x[i*4 + 1, k], k), ...)))
    """
    width = lane.extent.arg
    lanes = UOp.stack(UOp.const(dtypes.index, number) for number in range(width))
    done: dict[UOp, UOp] = {lane: lanes}
    for node in toposort([ast], lambda node: node.op is Ops.REDUCE):
        if node is lane:
            continue
        if node.op is Ops.REDUCE:
            each = (in_lane(node, lane, number) for number in range(width))
            done[node] = UOp.stack(each) if lane in node.ranges else node
            continue
        src = tuple(done[source] for source in node.src)
        if src == node.src:
            done[node] = node
        elif lane in node.ranges or node.op is Ops.SINK:
            done[node] = _wide(node, src, lane, width, target)
        else:
            done[node] = UOp(node.op, node.dtype, src, node.arg)
    joined = simplify(done[ast])
    loops = {(node.src[1:], node.ranges - {lane}) for node in reductions_of(ast)}
    return (
        joined
        if all((node.src[1:], node.ranges) in loops for node in reductions_of(joined))
        else None
    )


def _vectorize(ast: UOp, lane: UOp, width: int, target: Target) -> UOp:
    """`ast` with each value that depends on `lane` as a vector of `width` lanes."""
    lanes = UOp.stack(UOp.const(dtypes.index, number) for number in range(width))
    done: dict[UOp, UOp] = {lane: lanes}
    depends: set[UOp] = {lane}
    nodes = ast.toposort()
    has_units = any(node.op is Ops.WMMA for node in nodes)
    operands = operand_values(nodes) if has_units else set()
    waiting: dict[UOp, None] = {}
    for node in nodes:
        if node is lane:
            continue
        if node in operands and any(source in depends for source in node.src):
            # A value that only a joined operand uses gets no lanes of its own.
            waiting[node] = None
            depends.add(node)
            continue
        if node.op is Ops.VECTORIZE and any(source in depends for source in node.src):
            joined = join_operand(node, done, lane, width)
            if joined is None:
                for value in [each for each in node.toposort() if each in waiting]:
                    src = tuple(done[source] for source in value.src)
                    done[value] = _wide(value, src, lane, width, target)
                    del waiting[value]
                joined = widen_operand(node, done, width)
            done[node] = joined
            depends.add(node)
            continue
        src = tuple(done[source] for source in node.src)
        if not any(source in depends for source in node.src):
            done[node] = node.over(src)
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
        return _wide_store(node, src, lane, width, target)
    if op is Ops.DEFINE_LOCAL:
        owners = tuple(value for value in node.src if value is not lane)
        pointer = pointer_of(node)
        array = pointer.base.ptr(pointer.size * width, pointer.space)
        return UOp(op, array, owners, node.arg)
    if op is Ops.REDUCE:
        if lane not in node.src:
            return UOp(op, node.dtype.vec(width), tuple(src), node.arg)
        rest = tuple(
            value for old, value in zip(node.src[1:], src[1:], strict=True) if old is not lane
        )
        partial = UOp(op, node.dtype.vec(width), (src[0].broadcast(width), *rest), node.arg)
        return across(partial, node.arg)
    if op is Ops.PREFIX:
        return _wide_prefix(node, src, lane, width)
    if op is Ops.END:
        return UOp(
            op,
            node.dtype,
            tuple(value for old, value in zip(node.src, src, strict=True) if old is not lane),
        )
    if op is Ops.WMMA:
        return widen_unit(node, src, width)
    if op in (Ops.AFTER, Ops.SINK):
        return UOp(op, src[0].dtype if op is Ops.AFTER else node.dtype, src, node.arg)
    if op.is_alu or op in (Ops.CAST, Ops.BITCAST, Ops.RESCALED):
        wide = tuple(
            value if value.dtype.lanes == width else value.broadcast(width) for value in src
        )
        return UOp(op, node.dtype.vec(width), wide, node.arg)
    raise InternalError(f"lower.lanes cannot vectorize a {op} node", node=repr(node)[:300])


def _wide_prefix(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int) -> UOp:
    """A scan in lanes. Along the lanes, it is a scan within the vector, combined with the total of
    the vectors before it.

    before   PREFIX(x, i, lane)
    after    PREFIX(last lane of p, i; exclusive) + p       p: x and its prefixes by lanes
    """
    value, loops = src[0].broadcast(width), src[1:]
    if lane not in node.src:
        return UOp(Ops.PREFIX, node.dtype.vec(width), (value, *loops), node.arg)
    function = node.combine
    rest = tuple(loop for old, loop in zip(node.src[1:], loops, strict=True) if old is not lane)
    step = 1
    while step < width:
        before = value.gep(*(max(number - step, 0) for number in range(width)))
        reached = UOp.stack(UOp.const(dtypes.bool, number >= step) for number in range(width))
        value = reached.where(before.alu(function, value), value)
        step *= 2
    if not rest:
        return value
    last = value.gep(width - 1)
    earlier = UOp(Ops.PREFIX, node.dtype, (last, *rest), (function, 0))
    return earlier.broadcast(width).alu(function, value)


def across(vector: UOp, op: Ops) -> UOp:
    """The reduction across a vector's lanes, by halves: the number of lanes fixes the tree."""
    while vector.dtype.lanes > 1:
        half = vector.dtype.lanes // 2
        vector = _pick(vector, range(half)).alu(op, _pick(vector, range(half, 2 * half)))
    return vector


def _pick(vector: UOp, lanes: range) -> UOp:
    return UOp(Ops.GEP, vector.dtype.scalar.vec(len(lanes)), (vector,), tuple(lanes))


def _is_private(pointer: UOp, lane: UOp) -> bool:
    """Whether each lane has the memory for itself."""
    memory = memory_of(pointer)
    return memory.op is Ops.DEFINE_LOCAL and lane in memory.src


def _wide_load(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int, target: Target) -> UOp:
    pointer, index = node.src[:2]
    private = _is_private(pointer, lane)
    extra = tuple(value.broadcast(width) if value.dtype.lanes == 1 else value for value in src[2:])
    if private and lane not in index.ranges:
        return UOp(Ops.LOAD, node.dtype.vec(width), (src[0], index * width, *extra), node.arg)
    if not private and stride_of(index, lane) == 1 and _is_pure(index, lane):
        position = in_lane(index, lane, 0)
        if extra and src[3].dtype.lanes == 1 and _goes_far(node):
            position = src[3].where(position, 0)
        return UOp(Ops.LOAD, node.dtype.vec(width), (src[0], position, *extra), node.arg)
    if lane not in index.ranges and not private and not extra:
        return UOp(Ops.LOAD, node.dtype, src, node.arg)
    if not private and _is_pure(index, lane):
        positions = [in_lane(index, lane, number) for number in range(width)]
        found = load_and_shuffle(node, (src[0], *extra), positions, target)
        if found is not None:
            return found
    if not private and not _is_pure(index, lane) and src[1].dtype.lanes == width:
        return _gather(node, src[0], src[1], extra, width)
    loads: list[UOp] = []
    for number in range(width):
        position, *rest = (
            _lane_of(old, new, lane, number) for old, new in zip(node.src[1:], src[1:], strict=True)
        )
        if private:
            # The lanes' private arrays are interleaved.
            position = position * width + number
        loads.append(UOp(Ops.LOAD, node.dtype, (src[0], position, *rest), node.arg))
    return UOp.stack(loads)


def _gather(load: UOp, pointer: UOp, index: UOp, extra: tuple[UOp, ...], width: int) -> UOp:
    """Loads at the lanes of a vector of indices, which is computed and tested as a vector.

    before   LOAD(pointer, index, default, gate)    index: vectors that depend on loaded lanes
    after    WHERE(gate, STACK(LOAD(pointer, WHERE(gate, index, 0) lane by lane)), default)
    """
    default, gate = extra or (None, None)
    position = index if gate is None else gate.where(index, UOp.const(index.dtype, 0))
    lanes = (simplify(position.gep(number)) for number in range(width))
    found = UOp.stack(UOp(Ops.LOAD, load.dtype, (pointer, at), load.arg) for at in lanes)
    return found if gate is None or default is None else gate.where(found, default)


def _goes_far(load: UOp) -> bool:
    """Whether a load whose gate is closed in all lanes may point to unmapped memory. Processors
    take about a hundred times as long for such a load as for a load of all lanes.
    """
    memory, index = memory_of(load.src[0]), load.index
    if memory.op is not Ops.DEFINE_GLOBAL:
        return False
    beyond = max(-index.vmin, index.vmax - memory.dtype.size)  # type: ignore[attr-defined]
    return bool(beyond * load.dtype.itemsize > _NEARBY)


def _lane_of(scalar: UOp, vector: UOp, lane: UOp, number: int) -> UOp:
    """One lane of a value: computed for that lane alone where possible, else extracted from the
    vector.
    """
    if all(node.op not in (Ops.AFTER, Ops.REDUCE, Ops.PREFIX) for node in scalar.toposort()):
        return in_lane(scalar, lane, number)
    return simplify(vector.gep(number)) if vector.dtype.lanes > 1 else vector


def _is_pure(index: UOp, lane: UOp) -> bool:
    """Whether the index may be evaluated for any lane: its loads are uniform over the lanes."""
    return all(node.op is not Ops.LOAD or lane not in node.ranges for node in index.toposort())


def _wide_store(node: UOp, src: tuple[UOp, ...], lane: UOp, width: int, target: Target) -> UOp:
    pointer, index = node.src[:2]
    value = src[2].broadcast(width)
    gates = tuple(value.broadcast(width) if value.dtype.lanes == 1 else value for value in src[3:])
    private = _is_private(pointer, lane)
    if private and lane not in index.ranges:
        return UOp(Ops.STORE, dtypes.void, (src[0], index * width, value, *gates), node.arg)
    if not private and stride_of(index, lane) == 1 and _is_pure(index, lane):
        return UOp(
            Ops.STORE, dtypes.void, (src[0], in_lane(index, lane, 0), value, *gates), node.arg
        )
    if not private and (found := scattered(node, (src[0], value), lane, width, target)) is not None:
        return found
    stores = []
    for number in range(width):
        position = _lane_of(index, src[1], lane, number)
        if private:
            position = position * width + number
        rest = tuple(
            _lane_of(old, new, lane, number) for old, new in zip(node.src[3:], src[3:], strict=True)
        )
        stores.append(
            UOp(Ops.STORE, dtypes.void, (src[0], position, value.gep(number), *rest), node.arg)
        )
    return UOp(Ops.END, dtypes.void, tuple(stores))
