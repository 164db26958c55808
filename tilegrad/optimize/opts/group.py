"""GROUP and GROUPTOP: the lanes of a block share a reduction, each takes a slice, and they exchange
partial results in shared memory.

Behind the barrier every lane holds the whole sum. Later stores are made by lane 0 alone, or, where
the outputs have a loop of their own (the row that a softmax writes), by all lanes, each a slice.
Several reductions of a kernel are shared by the same lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number, points_to, reductions_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, loop_order
from tilegrad.optimize.opts.split import reorder, split
from tilegrad.target import Target

__all__ = ["group", "is_second_stage"]

# Axes outside a reduction that lanes share: it runs once per block, lane or unrolled copy.
_PARALLEL = (Axis.GLOBAL, Axis.LOCAL, Axis.UPCAST)


def group(ast: UOp, opt: Opt, loop: UOp, target: Target, *, top: bool) -> UOp:
    """Split a reduce axis over `opt.arg` lanes (0: all of it).

    GROUP lets neighbouring lanes read neighbours, GROUPTOP gives each lane a run of its own.

    before   REDUCE(x, r)                                          r: 0..n
    after    REDUCE(LOAD(AFTER(shared, BARRIER(STORE(shared, g, REDUCE(x, r)))), g2), g2)
             stored by lane g = 0
    """
    name = opt.op.value
    extent = loop.extent
    amount = extent.vmax if opt.arg == 0 else opt.arg
    if not target.shared_bytes:
        raise OptError(f"{name}: {target.name} has no shared memory", opt=opt)
    is_divisor = extent.op is Ops.CONST and isinstance(amount, int) and amount > 1
    if not is_divisor or extent.arg % amount:
        raise OptError(
            f"{name}: {amount} does not divide the reduce axis of {extent.vmax}", opt=opt
        )
    lane = _known_lane(ast, loop, amount, opt)
    order = list(ast.arg.order)
    before = next_number(ast.toposort())
    ast = split(ast, loop, amount, Axis.GROUP, top=top)
    made = next(axis for axis in loop_order(ast) if axis.number == before + 1)
    if lane is None:
        lane = made
    else:
        ast = replace_ranges(ast, {made: (lane, [lane])})
    if extent.arg > amount:
        order[order.index(loop.number)] = before
    else:
        order.remove(loop.number)
    again = UOp.range(amount, before + 2, Axis.REDUCE)
    ast = _meet(ast, lane, again)
    position = order.index(before) if before in order else len(order)
    order[position + (before in order) : position + (before in order)] = [again.number]
    if lane is made:
        order.insert(_position_of_lane(ast, order, top=top), lane.number)
    ast = reorder(ast, order)
    return _store_once(ast, lane) if lane is made else ast


def _known_lane(ast: UOp, loop: UOp, amount: int, opt: Opt) -> UOp | None:
    """The lanes that share another reduction already, once it is sure that `loop` can be shared."""
    name = opt.op.value
    nodes = ast.toposort()
    reductions = [node for node in nodes if node.op is Ops.REDUCE and loop in node.src]
    if not reductions or any(node.op is Ops.WMMA for node in nodes):
        raise OptError(f"{name}: no reduction that lanes can share runs over the axis", opt=opt)
    if any(node.op is Ops.STORE and node.arg is not None for node in nodes):
        raise OptError(f"{name}: a store adds to memory, which lanes would do together", opt=opt)
    for reduction in reductions:
        if is_second_stage(reduction) or any(
            reduction in store.value.toposort() for store in _to_shared(nodes)
        ):
            raise OptError(f"{name}: lanes share the reduction already", opt=opt)
        around = [axis for axis in reduction.ranges if axis.axis not in _PARALLEL]
        if around:
            kind = around[0].axis.value
            raise OptError(f"{name}: the reduction stands inside a {kind} axis", opt=opt)
    known = [axis for axis in loop_order(ast) if axis.axis is Axis.GROUP]
    if not known and any(node.op is Ops.BARRIER for node in nodes):
        raise OptError(f"{name}: the lanes of another reduction are unrolled", opt=opt)
    if known and (len(known) > 1 or known[0].extent.arg != amount):
        raise OptError(f"{name}: other reductions of the kernel are shared by other lanes", opt=opt)
    return known[0] if known else None


def is_second_stage(reduction: UOp) -> bool:
    """Whether the reduction runs over results of lanes in shared memory."""
    loops = reduction.src[1:]
    return any(
        node.op is Ops.LOAD
        and points_to(node.src[0], AddressSpace.SHARED)
        # A tile that the block has staged is filled by loops, which an END closes.
        and not any(fill.op is Ops.END for each in node.src[0].src[1:] for fill in each.src)
        and any(axis in node.src[1].ranges for axis in loops)
        for node in reduction.src[0].toposort()
    )


def _to_shared(nodes: Iterable[UOp]) -> list[UOp]:
    stores = [node for node in nodes if node.op is Ops.STORE]
    return [node for node in stores if node.src[0].op is Ops.DEFINE_LOCAL]


def _meet(ast: UOp, lane: UOp, again: UOp) -> UOp:
    """The reductions over `lane` in two stages with a barrier between."""
    nodes = ast.toposort()
    reductions = [node for node in nodes if node.op is Ops.REDUCE and lane in node.src]
    number = next_number(nodes, Ops.DEFINE_LOCAL)
    shared: list[UOp] = []
    stores: list[UOp] = []
    for offset, reduction in enumerate(reductions):
        rest = tuple(axis for axis in reduction.src[1:] if axis is not lane)
        partial = reduction.replace(src=(reduction.src[0], *rest)) if rest else reduction.src[0]
        lives_in = sorted(reduction.ranges, key=lambda axis: axis.number)
        pointer = reduction.dtype.ptr(lane.extent.arg, AddressSpace.SHARED)
        shared.append(UOp(Ops.DEFINE_LOCAL, pointer, tuple(lives_in), number + offset))
        stores.append(shared[-1].store(lane, partial))
    barrier = UOp(Ops.BARRIER, dtypes.void, tuple(stores))
    totals = {
        reduction: reduction.replace(src=(memory.after(barrier).load(again), again))
        for reduction, memory in zip(reductions, shared, strict=True)
    }
    return simplify(ast.substitute(totals))


def _position_of_lane(ast: UOp, order: Sequence[int], *, top: bool) -> int:
    """Where the lane stands among the loops: the last of the lanes, so that neighbours read
    neighbours; the first where each reads a run of its own.
    """
    kinds = {axis.number: axis.axis for axis in loop_order(reorder(ast, order))}
    wanted = Axis.LOCAL if top else Axis.REDUCE
    return next((at for at, number in enumerate(order) if kinds.get(number) is wanted), len(order))


def _store_once(ast: UOp, lane: UOp) -> UOp:
    """Behind the barrier all lanes hold the same values: they share the loop over the outputs if
    there is one, else lane 0 stores.
    """
    loop = _shared_loop(ast, lane)
    if loop is None:
        stores = tuple(_only_first(node, lane) for node in ast.src)
        return simplify(ast.replace(src=stores))
    amount = lane.extent.arg
    rest = loop.extent.arg // amount
    order = list(ast.arg.order)
    position = order.index(loop.number)
    if rest == 1:
        ast, order[position : position + 1] = replace_ranges(ast, {loop: (lane, [lane])}), []
    else:
        chunk = UOp.range(rest, next_number(ast.toposort()), Axis.LOOP)
        ast = replace_ranges(ast, {loop: (chunk * amount + lane, [chunk, lane])})
        order[position] = chunk.number
    return reorder(ast, order)


def _shared_loop(ast: UOp, lane: UOp) -> UOp | None:
    """A loop over outputs that can be divided among lanes: the contiguous one if there is."""
    loops = set(loop_order(ast))
    reductions = reductions_of(ast)
    found: list[tuple[bool, UOp]] = []
    for loop in loops:
        if (
            loop.axis is Axis.LOOP
            and loop.extent.op is Ops.CONST
            and loop.extent.arg % lane.extent.arg == 0
            and all(node.op is Ops.STORE and loop in node.index.ranges for node in ast.src)
            and not any(loop in reduction.ranges for reduction in reductions)
        ):
            terms = terms_of(ast.src[0].src[1])
            found.append((terms is not None and terms[0].get(loop) == 1, loop))
    return max(found, key=lambda each: (each[0], -each[1].number))[1] if found else None


def _only_first(store: UOp, lane: UOp) -> UOp:
    gate = lane.eq(0)
    if store.is_gated:
        gate = store.gate & gate
    return store.replace(src=(*store.src[:3], gate))
