"""STAGE: copy the slice of an operand that the inner loops need, packed, to memory nearer by.

The slice becomes a DEFINE_LOCAL that lives inside the loops outside of it, filled by a nest of its
own: scratch that stays in a cache. On targets with blocks it is shared memory that the whole block
fills (`optimize.opts.stage_shared`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import (
    bytes_of,
    iterations_of,
    loads_of,
    next_number,
    nodes_of,
    reductions_of,
)
from tilegrad.ir.ranges import gate_loads
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opts.dots import narrow
from tilegrad.optimize.opts.opt import Opt, ReduceOperand, Side, StageOperand, axes_of, loop_order
from tilegrad.optimize.opts.overlap import Dimension, dimensions, join
from tilegrad.optimize.opts.stage_shared import stage_shared
from tilegrad.target import Target

__all__ = ["name_of_load", "name_of_side", "operand_of", "stage"]

# The most vectors of a copy that are unrolled, so that the gate of each is known.
_MOST_VECTORS = 16


def stage(ast: UOp, opt: Opt, target: Target) -> UOp:
    """`Opt(STAGE, axis, operand)` or `Opt(STAGE, axis, (operand, order))`: copy the elements of
    `operand` (`operand_of`) read inside the loop `axis`. `order` names the packed dimensions, as
    positions among the inner ranges that the operand's index uses, outermost first; by default
    loops come before unrolled axes.

    before   LOAD(b, k*N + j)                                  loops: K, i, j, k
    after    LOAD(AFTER(scratch, END(STORE(scratch, ...))), ...) filled once for each iteration of
    the loop K

    On a target with blocks the argument is `operand` or `(operand, order, padding)`; see
    `optimize.opts.stage_shared`.
    """
    if target.has_locals:
        operand, *layout = opt.arg if isinstance(opt.arg, tuple) else (opt.arg,)
        return stage_shared(ast, opt, operand_of(ast, operand, is_rounded=True), layout)
    operand, order = opt.arg if isinstance(opt.arg, tuple) else (opt.arg, None)
    axis = _axis(ast, opt, target)
    load = operand_of(ast, operand)
    if load is None:
        raise OptError(
            f"stage: no one value {operand}",
            opt=opt,
            names="a parameter that is loaded at one position, or ReduceOperand(Side.LEFT) or "
            "(Side.RIGHT) for what the largest reduction combines",
        )
    loops = loop_order(ast)
    if not load.ranges <= set(loops):
        raise OptError(f"stage: operand {operand} is read to fill another copy", opt=opt)
    around = loops[: loops.index(axis) + 1] if axis is not None else []
    outer = [loop for loop in around if loop.axis not in UNROLLED]
    inner = [loop for loop in loops if loop in load.ranges and loop not in outer]
    if not inner:
        raise OptError(f"stage: no loop inside axis {opt.axis} uses operand {operand}", opt=opt)
    if order is not None:
        if sorted(order) != list(range(len(inner))):
            raise OptError(
                f"stage: {order} does not order the {len(inner)} inner ranges of operand {operand}",
                opt=opt,
            )
        inner = [inner[position] for position in order]
    packed = dimensions(load, inner) if order is None else _in_order(load, inner)
    is_unrolled = inner[-1].axis in UNROLLED
    copy = _copy(load, packed, is_unrolled, target, next_number(ast.toposort()))
    memory = _scratch(ast, load, copy.size, outer, opt, target)
    filled = memory.store(simplify(copy.filled_at), copy.value).end(*copy.nest)
    read = memory.after(filled).load(simplify(copy.read_at), dtype=load.dtype)
    return simplify(ast.substitute({load: read}))


def _axis(ast: UOp, opt: Opt, target: Target) -> UOp | None:
    """The loop that fills the copy anew in each iteration; None if it is filled once.

    Raises OptError where no copy can stand.
    """
    axes = axes_of(ast)
    if opt.axis is None or not -1 <= opt.axis < len(axes):
        raise OptError(f"stage: axis {opt.axis} of a kernel with {len(axes)} axes", opt=opt)
    if any(loop.axis is Axis.THREAD for loop in axes):
        raise OptError("stage: the kernel is cut into chunks already", opt=opt)
    return None if opt.axis == -1 else axes[opt.axis]


def _in_order(load: UOp, ranges: Sequence[UOp]) -> list[Dimension]:
    """A dimension for each of `ranges`, but two for which one goes on where the next ends are one:
    the last two, or else the two before the last.
    """
    packed = [Dimension({loop: 1}) for loop in ranges]
    if len(packed) > 1 and (joined := join(load, *packed[-2:])) is not None:
        packed[-2:] = [joined]
    elif len(packed) > 2 and (joined := join(load, *packed[-3:-1])) is not None:
        packed[-3:-1] = [joined]
    return packed


class _CopyLayout(NamedTuple):
    """How a copy of `size` elements is filled, and where an element is found in it.

    Attributes:
        nest: the ranges that fill it.
        filled_at, value: the index and the element, over these ranges.
        read_at: the index, over the ranges of the kernel.
    """

    size: int
    nest: list[UOp]
    filled_at: UOp
    value: UOp
    read_at: UOp


def _copy(
    load: UOp, packed: list[Dimension], is_unrolled: bool, target: Target, number: int
) -> _CopyLayout:
    """The copy of `load` with the dimensions `packed`, by ranges that count from `number`;
    `is_unrolled` if the last one is unrolled where it is read.
    """
    last = packed[-1]
    lanes = [_lanes(each, last, is_unrolled, load, target) for each in packed]
    groups = _groups(load, packed, is_unrolled, target)
    if groups is not None:
        lanes[groups.outer], lanes[groups.rows] = groups.amount // last.extent, groups.together
    else:
        _unroll_whole(packed, lanes, load, target)
    extents = [-(-each.extent // count) * count for each, count in zip(packed, lanes, strict=True)]
    nest: list[UOp] = []
    read_at, filled_at = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 0)
    fresh: dict[UOp, UOp] = {}
    outside: list[UOp] = []
    run: UOp | None = None
    for rank, (each, count, extent) in enumerate(zip(packed, lanes, extents, strict=True)):
        if groups is not None and rank == groups.outer:
            run, loops = _index(extent * last.extent, groups.amount, number)
            number, nest = number + 2, nest + loops
            fresh |= groups.run.ranges_at(run)
            index = run // last.extent
        elif groups is not None and run is not None and each is last:
            index = run % each.extent
        else:
            index, loops = _index(_symbolic_extent(each, count) or extent, count, number)
            number, nest = number + 2, nest + loops
            fresh |= each.ranges_at(index)
        outside += _symbolic_bounds(each, index)
        read_at, filled_at = read_at * extent + each.position, filled_at * extent + index
        if extent != each.extent:
            outside.append(index < each.extent)
    # A loop that ends earlier in some iterations of those around it may leave the memory behind its
    # end.
    outside += [
        index < loop.extent.substitute(fresh)
        for loop, index in fresh.items()
        if loop.extent.ranges and _is_open(load, loop)
    ]
    value = load.substitute(fresh)
    for inside in outside:
        value = gate_loads(value, inside)
    return _CopyLayout(int(prod(extents)), nest, filled_at, value, read_at)


def _symbolic_extent(each: Dimension, lanes: int) -> UOp | None:
    """The extent of a dimension that one loop moves along, if a launch says it: the copy ends where
    the loop does. None where several lanes are copied at once.
    """
    (loop, *others) = each.times
    return loop.extent if lanes == 1 and not others and _is_symbolic(loop) else None


def _symbolic_bounds(each: Dimension, index: UOp) -> list[UOp]:
    """That `index` is a position which the loops of a dimension reach, where a launch says how far
    some of them go: memory of a length ends there.
    """
    if not any(map(_is_symbolic, each.times)):
        return []
    least, most = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 0)
    for loop, times in each.times.items():
        last = loop.extent - 1
        least, most = (least, most + last * times) if times > 0 else (least + last * times, most)
    moved = index + each.first
    return [moved >= least, moved < most + 1]


def _is_symbolic(loop: UOp) -> bool:
    """Whether a variable of the launch says how many iterations a loop has."""
    return loop.extent.op is not Ops.CONST and not loop.extent.ranges


def _is_open(value: UOp, loop: UOp) -> bool:
    """Whether something that `loop` moves is loaded without a gate that asks for it."""
    loads = (node for node in loads_of(value) if loop in node.ranges)
    return any(all(loop not in gate.ranges for gate in load.src[3:]) for load in loads)


def _scratch(ast: UOp, load: UOp, size: int, outer: Sequence[UOp], opt: Opt, target: Target) -> UOp:
    """Memory for `size` elements, anew in each iteration of those loops `outer` that `load` depends
    on.

    Raises OptError if there is not so much.
    """
    others = nodes_of(ast, Ops.DEFINE_LOCAL)
    nbytes = size * load.dtype.itemsize + sum(bytes_of(node) for node in others)
    most = min(target.cache_bytes[-1], target.scratch_bytes)
    if nbytes > most:
        raise OptError(f"stage: {nbytes} bytes of scratch, {target.name} has {most}", opt=opt)
    return UOp(
        Ops.DEFINE_LOCAL,
        load.dtype.ptr(size, AddressSpace.SCRATCH),
        tuple(loop for loop in outer if loop in load.ranges),
        next_number(others, Ops.DEFINE_LOCAL),
    )


def _unroll_whole(packed: list[Dimension], lanes: list[int], value: UOp, target: Target) -> None:
    """Make `lanes` whole dimensions, from the last outwards, while they are few vectors."""
    width = target.lanes_of(value.dtype)
    if not packed[-1].is_overlapping or lanes[-1] < 2:
        return
    vectors = 1
    for position in reversed(range(len(packed))):
        extent = packed[position].extent
        count = -(-extent // width) if position == len(packed) - 1 else extent
        if vectors * count > _MOST_VECTORS or (lanes[position] > 1 and position < len(packed) - 1):
            return
        vectors *= count
        lanes[position] = -(-extent // lanes[position]) * lanes[position]


def operand_of(ast: UOp, name: StageOperand, *, is_rounded: bool = False) -> UOp | None:
    """The value that STAGE copies: the only load of a parameter, or an operand of a reduction; None
    if there is none. With `is_rounded`, a product may be cast before it is summed, and the operands
    of all reductions but the largest are those before they were cast without loss.
    """
    if isinstance(name, int):
        loads = [
            load
            for load in loads_of(ast)
            if load.src[0].op is Ops.DEFINE_GLOBAL and load.src[0].arg == name
        ]
        return loads[0] if len(loads) == 1 else None
    reductions = _by_size(ast)
    if name.reduction >= len(reductions):
        return None
    value = reductions[name.reduction].src[0]
    if is_rounded and value.op is Ops.CAST and value.src[0].op is Ops.MUL:
        value = value.src[0]
    if not value.op.is_alu or len(value.src) != 2:
        return None
    side = value.src[name.side.value]
    if not name.is_cast or (is_rounded and name.reduction):
        side = narrow(side)
    if any(node.op in (Ops.REDUCE, Ops.AFTER) for node in side.toposort()) or not side.ranges:
        return None
    return side


def name_of_side(ast: UOp, reduction: UOp, side: Side) -> ReduceOperand:
    """The name that `operand_of` has for an operand of `reduction`."""
    return ReduceOperand(side, _by_size(ast).index(reduction))


def name_of_load(ast: UOp, load: UOp) -> StageOperand | None:
    """The name by which `operand_of` finds a load on a target with blocks: its parameter, or an
    operand of a product where another load reads that parameter, as in attention whose keys are its
    values.
    """
    names: list[StageOperand] = [
        load.src[0].arg,
        *[ReduceOperand(side) for side in Side],
        *[ReduceOperand(side, is_cast=False) for side in Side],
        *[ReduceOperand(side, rank) for rank in range(1, len(_by_size(ast))) for side in Side],
    ]
    return next((x for x in names if operand_of(ast, x, is_rounded=True) is load), None)


def _by_size(ast: UOp) -> list[UOp]:
    """The reductions of a kernel, largest first."""
    reductions = reductions_of(ast)
    return sorted(reductions, key=iterations_of, reverse=True)


def _lanes(each: Dimension, last: Dimension, is_unrolled: bool, value: UOp, target: Target) -> int:
    """How many elements along a dimension are copied at once; its extent is rounded up to that."""
    width = target.lanes_of(value.dtype)
    if each is last:
        if target.has_mask and (each.is_overlapping or (is_unrolled and len(each.times) > 1)):
            return min(width, 1 << (each.extent - 1).bit_length())
        return each.extent if is_unrolled else 1
    if is_unrolled and each.is_contiguous(value) and not last.is_contiguous(value):
        # Neighbours in memory are not neighbours in the copy: a tile of both is transposed.
        return width if target.has_mask and each.extent >= width else math.gcd(each.extent, width)
    return 1


class _Groups(NamedTuple):
    """Runs of a copy that are cut into groups: memory goes on from a dimension into the last one,
    and in the copy, rows stand between them.

    Attributes:
        outer, rows: positions of the dimensions.
        run: the outer and the last dimension as one.
        amount: elements of a run that are copied at once.
        together: rows that are.
    """

    outer: int
    rows: int
    run: Dimension
    amount: int
    together: int


def _groups(
    value: UOp, packed: list[Dimension], is_unrolled: bool, target: Target
) -> _Groups | None:
    """Groups that are transposed in registers: as many rows as a vector has groups."""
    if not is_unrolled or len(packed) < 3 or not target.has_mask:
        return None
    last, rows = packed[-1], packed[-2]
    size, width = last.extent, target.lanes_of(value.dtype)
    is_plain = len(last.times) == len(rows.times) == 1 and size.bit_count() == 1 < size < width
    if not is_plain or next(iter(rows.times)).axis is not Axis.UPCAST:
        return None
    for outer, each in enumerate(packed[:-2]):
        if len(each.times) > 1 or each.extent < 2 or not last.is_contiguous(value):
            continue
        if (run := join(value, each, last)) is not None:
            amount = min(width, 1 << (run.extent - 1).bit_length())
            return _Groups(
                outer, len(packed) - 2, run, amount, math.gcd(rows.extent, width // size)
            )
    return None


def _index(extent: int | UOp, lanes: int, number: int) -> tuple[UOp, list[UOp]]:
    """An index in a dimension of `extent` elements, `lanes` of them unrolled, and the ranges that
    go over it.
    """
    if isinstance(extent, UOp):
        index = UOp.range(extent, number, Axis.STAGE)
        return index, [index]
    count = -(-extent // lanes)
    if lanes == 1:
        index = UOp.range(count, number, Axis.STAGE)
        return index, [index]
    lane = UOp.range(lanes, number + 1, Axis.UPCAST)
    if count == 1:
        return lane, [lane]
    loop = UOp.range(count, number, Axis.STAGE)
    return loop * lanes + lane, [loop, lane]
