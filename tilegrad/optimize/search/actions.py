"""The moves that may be made next: every legal Opt on a kernel, of the amounts that make sense.

Amounts are divisors: small ones, whole vectors, and the whole axis. An amount that does not divide
    takes two moves, PADTO or OVERLAP and the split, so those pairs are offered as a step beside the
    single Opts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, nodes_of, stores_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of, loop_order, reduce_axes
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

__all__ = ["actions", "canonical", "edits", "steps"]

# Limits of a search: the amounts that it tries, `bench/search.py`.
_SMALL = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_BLOCKS = (2, 3, 4, 8, 13, 16, 29, 32)
_TILES = (8, 16, 32, 64, 128, 256, 512)
_CHUNKS = (2, 4, 8, 16, 32)
# The most iterations of an axis that may be unrolled as a whole.
_WHOLE = 16
_GRID = (Axis.LOOP, Axis.GLOBAL)


def actions(ast: UOp, target: Target) -> list[Opt]:
    """Every legal single Opt on `ast`, in a fixed order.

    `ast` is a kernel graph as `opts.start` or earlier Opts left it. Each of the Opts may be
    given to `apply_opt`, and none changes the computed values.
    """
    return [
        opt
        for opt in dict.fromkeys(_possible(ast, target))
        if _after(ast, [opt], target) is not None
    ]


def steps(ast: UOp, target: Target) -> list[tuple[Opt, ...]]:
    """Steps of a search: `actions`, and splits of axes that must be padded first or end with a
    chunk that overlaps, legal or not.
    """
    found: list[tuple[Opt, ...]] = [(opt,) for opt in dict.fromkeys(_possible(ast, target))]
    width = _width(ast, target)
    axes, reductions = axes_of(ast), reduce_axes(ast)
    for position, axis in enumerate(axes):
        extent = axis.extent
        if extent.op is not Ops.CONST or axis.axis not in (*_GRID, Axis.REDUCE):
            continue
        for amount in dict.fromkeys((4, 6, 8, width, 2 * width)):
            if amount > 1 and extent.arg % amount and amount < 4 * extent.arg:
                pad = Opt(OptOps.PADTO, position, amount)
                if axis.axis is Axis.REDUCE:
                    found.append((pad, Opt(OptOps.UNROLL, reductions.index(axis), amount)))
                    continue
                found.append((pad, Opt(OptOps.UPCAST, position, amount)))
                if axis.axis is Axis.LOOP and amount < extent.arg and not target.has_locals:
                    overlap = Opt(OptOps.OVERLAP, position, amount)
                    found.append((overlap, Opt(OptOps.UPCAST, position + 1, 0)))
    return found


def edits(
    opts: Sequence[Opt], shaped: Callable[[tuple[Opt, ...]], UOp | None], target: Target
) -> Iterator[tuple[Opt, ...]]:
    """Lists one change away from `opts`, legal or not: one step more, another amount for one Opt,
    one left out, two in the other order. `shaped` gives the kernel after a list.
    """
    opts = tuple(opts)
    here = shaped(opts)
    if here is not None:
        for step in steps(here, target):
            yield (*opts, *step)
    cut = next((position for position, opt in enumerate(opts) if opt.op is OptOps.THREAD), None)
    # Axes count from the chunks on once there are chunks: moves are easier to make before.
    here = None if cut is None else shaped(opts[:cut])
    if here is not None:
        for step in steps(here, target):
            if step[0].op is not OptOps.THREAD:
                yield (*opts[:cut], *step, *opts[cut:])
    for position, opt in enumerate(opts):
        before, after = opts[:position], opts[position + 1 :]
        yield (*before, *after)
        for changed in _variants(opt):
            yield (*before, changed, *_padded_alike(opt, changed, after))
        if after:
            yield (*before, after[0], opt, *after[1:])


def canonical(ast: UOp) -> bytes:
    """A key that two shaped kernels share if they differ in nothing but the way that led there."""
    numbers = {loop.number: position for position, loop in enumerate(loop_order(ast))}
    ranges = nodes_of(ast, Ops.RANGE)
    for loop in ranges:
        numbers.setdefault(loop.number, len(numbers))
    # Twice, as the new numbers may be old ones of other ranges.
    far = 1 + max(numbers, default=0) + len(numbers)
    info = ast.arg
    plain = ast.replace(arg=type(info)(info.name, tuple(range(len(info.order))), ()))
    away = {loop: loop.replace(arg=(numbers[loop.number] + far, *loop.arg[1:])) for loop in ranges}
    moved = plain.substitute(away)
    back = {
        node: node.replace(arg=(node.number - far, *node.arg[1:]))
        for node in nodes_of(moved, Ops.RANGE)
    }
    return moved.substitute(back).key


def _after(ast: UOp, opts: Sequence[Opt], target: Target) -> UOp | None:
    try:
        return apply_opts(ast, opts, target)
    except OptError:
        return None


def _width(ast: UOp, target: Target) -> int:
    """Lanes of a vector of the widest dtype here."""
    widths = [target.lanes_of(node.dtype) for node in loads_of(ast)]
    return min(widths, default=target.lanes_of(stores_of(ast)[0].value.dtype))


def _amounts(extent: UOp, wanted: Sequence[int]) -> list[int]:
    """Those of `wanted` that divide and are less than the whole."""
    divisor, most = extent.divisor, extent.vmax
    return [n for n in dict.fromkeys(wanted) if 1 < n < most and divisor % n == 0]


def _possible(ast: UOp, target: Target) -> Iterator[Opt]:
    width = _width(ast, target)
    vectors = [count * width for count in (1, 2, 4) if width > 1]
    movable = _movable(ast)
    for position, axis in enumerate(axes_of(ast)):
        extent, kind = axis.extent, axis.axis
        whole = [0] if extent.op is Ops.CONST and 1 < extent.arg <= _WHOLE else []
        if kind in (*_GRID, Axis.LOCAL):
            for amount in _amounts(extent, [*_SMALL, *vectors]) + whole:
                yield Opt(OptOps.UPCAST, position, amount)
        if kind is Axis.GLOBAL:
            for amount in _amounts(extent, _BLOCKS) + whole:
                yield Opt(OptOps.LOCAL, position, amount)
        if axis in movable:
            for amount in _amounts(extent, _TILES):
                yield Opt(OptOps.TILE, position, amount)
        if kind is Axis.LOOP and target.threads:
            if extent.op is Ops.CONST:
                counts = [count for count in _CHUNKS if count < extent.arg]
                for chunks in counts + ([0] if 1 < extent.arg <= 32 else []):
                    yield Opt(OptOps.THREAD, position, chunks)
        if kind in (*_GRID, Axis.REDUCE):
            # Loops of nests that follow one another cannot be exchanged.
            for other, beside in enumerate(axes_of(ast)[:position]):
                if beside.axis is kind and {axis, beside} <= movable:
                    yield Opt(OptOps.SWAP, position, other)
            for amount in dict.fromkeys((4, 8, width)):
                if amount > 1 and extent.op is Ops.CONST and extent.arg % amount:
                    yield Opt(OptOps.PADTO, position, amount)
    for position, axis in enumerate(reduce_axes(ast)):
        extent = axis.extent
        whole = [0] if extent.op is Ops.CONST and 1 < extent.arg <= _WHOLE else []
        if axis.axis in (Axis.REDUCE, Axis.GROUP):
            for amount in _amounts(extent, [*_SMALL, *vectors]) + whole:
                yield Opt(OptOps.UNROLL, position, amount)
        if axis.axis is Axis.REDUCE and target.has_locals:
            for amount in _amounts(extent, [*_BLOCKS, 64]) + whole:
                yield Opt(OptOps.GROUP, position, amount)
                yield Opt(OptOps.GROUPTOP, position, amount)
    if not target.has_locals:
        yield from _stagings(ast)
    for choice in range(len(target.matrix_units)):
        yield Opt(OptOps.TC, choice, (0, 2))


def _movable(ast: UOp) -> set[UOp]:
    """Loops that may stand elsewhere in the order: those around everything, and those of the
    reduction if there is only one. Several reductions or nests follow one another inside their
    loops.
    """
    nodes = ast.toposort()
    reductions = [node for node in nodes if node.op is Ops.REDUCE]
    closed = {
        loop
        for node in nodes
        if node.op is Ops.END or (node.op is Ops.REDUCE and len(reductions) > 1)
        for loop in node.src[1:]
    }
    kinds = (*_GRID, Axis.REDUCE)
    return {loop for loop in loop_order(ast) if loop.axis in kinds and loop not in closed}


def _stagings(ast: UOp) -> Iterator[Opt]:
    loads = [node for node in loads_of(ast) if node.src[0].op is Ops.DEFINE_GLOBAL]
    slots = [load.src[0].arg for load in loads]
    for slot in sorted(slot for slot in slots if slots.count(slot) == 1):
        yield Opt(OptOps.STAGE, -1, slot)
        for position, axis in enumerate(axes_of(ast)):
            if axis.axis in (Axis.LOOP, Axis.REDUCE):
                yield Opt(OptOps.STAGE, position, slot)


def _variants(opt: Opt) -> Iterator[Opt]:
    """The same move by another amount or on the axis beside."""
    if opt.op is OptOps.STAGE:
        for axis in range(-1, 5):
            if axis != opt.axis:
                yield Opt(opt.op, axis, opt.arg)
        return
    if opt.op in (OptOps.SWAP, OptOps.TC) or not isinstance(opt.arg, int) or opt.axis is None:
        return
    amount = opt.arg
    for other in dict.fromkeys((amount * 2, amount // 2, amount + 1, amount - 1, amount + 2,
                                amount - 2, amount * 4, amount // 4, 0)):  # fmt: skip
        if other != amount and (other > 1 or (other == 0 and opt.op is not OptOps.PADTO)):
            yield Opt(opt.op, opt.axis, other)
    for axis in (opt.axis + 1, opt.axis - 1):
        if axis >= 0:
            yield Opt(opt.op, axis, amount)


def _padded_alike(opt: Opt, changed: Opt, after: Sequence[Opt]) -> Sequence[Opt]:
    """The Opts after a changed PADTO: a split by the old amount becomes one by the new."""
    if opt.op is not OptOps.PADTO or not after or after[0].arg != opt.arg:
        return after
    return (Opt(after[0].op, after[0].axis, changed.arg), *after[1:])
