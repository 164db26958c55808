"""GROUP and GROUPTOP: the lanes of a block share a fold, each a part of it, and meet in shared memory."""

from __future__ import annotations

from tilegrad.base.dtype import Place, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opt import Opt, axes_of, loop_order
from tilegrad.optimize.split import next_number, reorder, split
from tilegrad.target import Target

__all__ = ["group"]


def group(ast: UOp, opt: Opt, loop: UOp, target: Target, *, top: bool) -> UOp:
    """Split a reduce axis over `opt.arg` lanes (0: all of it).

    GROUP lets neighbouring lanes read neighbours, GROUPTOP gives each lane a run of its own.

    before   REDUCE(x, r)                                       r: 0..n
    after    REDUCE(LOAD(AFTER(shared, BARRIER(STORE(shared, g, REDUCE(x, r))))), g2), stored by lane g = 0
    """
    name = opt.op.value
    extent = loop.src[0]
    amount = extent.vmax if opt.arg == 0 else opt.arg
    if not target.shared_bytes:
        raise OptError(f"{name}: {target.name} has no shared memory", opt=opt)
    if extent.op is not Ops.CONST or not isinstance(amount, int) or amount < 2 or extent.arg % amount:
        raise OptError(f"{name}: {amount} does not divide the reduce axis of {extent.vmax}", opt=opt)
    folds = [node for node in ast.toposort() if node.op is Ops.REDUCE and loop in node.src]
    if len(folds) != 1 or any(node.op is Ops.BARRIER for node in ast.toposort()):
        raise OptError(f"{name}: {len(folds)} folds run over the axis; one is asked for", opt=opt)
    lanes = [part for part in axes_of(ast) if part.arg[1] is Axis.LOCAL]
    block = amount * int(prod(part.src[0].arg for part in lanes))
    written = [part for part in axes_of(ast) if part.arg[1] is Axis.UPCAST]
    size = block * int(prod(part.src[0].arg for part in written))
    (fold,) = folds
    if block > target.block_lanes or size * fold.dtype.itemsize > target.shared_bytes:
        raise OptError(f"{name}: {block} lanes with {size * fold.dtype.itemsize} shared bytes are too much for {target.name}", opt=opt)
    # GROUP: r = outer * amount + lane. GROUPTOP: r = lane * (extent / amount) + inner.
    ast = split(ast, loop, amount, Axis.GROUP, top=top)
    (lane,) = [part for part in loop_order(ast) if part.arg[1] is Axis.GROUP]
    fold = next(node for node in ast.toposort() if node.op is Ops.REDUCE and lane in node.src)
    rest = tuple(part for part in fold.src[1:] if part is not lane)
    partial = UOp(Ops.REDUCE, fold.dtype, (fold.src[0], *rest), fold.arg) if rest else fold.src[0]
    places = [part for part in loop_order(ast) if part in fold.ranges and part.arg[1] in (Axis.LOCAL, Axis.UPCAST)]
    shared = UOp(Ops.DEFINE_LOCAL, fold.dtype.ptr(size, Place.SHARED), (), 1)
    again = UOp.range(amount, next_number(ast), Axis.REDUCE)
    written_back = shared.after(UOp(Ops.BARRIER, dtypes.void, (shared.store(_flat([*places, lane]), partial),)))
    total = UOp(Ops.REDUCE, fold.dtype, (written_back.load(_flat([*places, again]), dtype=fold.dtype), again), fold.arg)
    result = ast.substitute({fold: total})
    stores = {node: _only_first(node, lane) for node in result.src}
    result = simplify(result.replace(src=tuple(stores[node] for node in result.src)))
    order = list(ast.arg.order)
    order.insert(order.index(lane.arg[0]) + 1, again.arg[0])
    return reorder(result, order)


def _flat(parts: list[UOp]) -> UOp:
    position, stride = UOp.const(dtypes.index, 0), 1
    for part in reversed(parts):
        position = part * stride + position
        stride *= part.src[0].arg
    return simplify(position)


def _only_first(store: UOp, lane: UOp) -> UOp:
    """The store, made by lane 0 alone: after the barrier all lanes hold the same value."""
    gate = lane.eq(0)
    if len(store.src) == 4:
        gate = store.src[3] & gate
    return store.replace(src=(*store.src[:3], gate))
