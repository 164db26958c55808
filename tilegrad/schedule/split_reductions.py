"""Reductions of a whole value to one number, and reductions of nothing.

The first take two steps, so that there are chunks to share among threads:

before   REDUCE_AXIS(x, all)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x, (8, n/8)), 1), 0)

The number of slices is fixed, so that the result does not depend on the machine. On a target with
blocks, over_blocks.py says what is split, and into how many, and channels.py which operands are
stored in another order.

What is made of a value without elements, and has some, is constant: the sum over an empty axis is
0. The graph that is differentiated holds the reduction, so that the gradient of an empty batch is
zeros and not unknown; no kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tilegrad.base.dtype import as_const, dtypes
from tilegrad.ir.movement import expand, fill, reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.channels import channels_innermost
from tilegrad.schedule.cost import SLICES, WORTH_A_KERNEL, elements
from tilegrad.schedule.one_hot import as_scatter
from tilegrad.schedule.over_blocks import over_blocks
from tilegrad.schedule.scans import in_slices
from tilegrad.schedule.scatter_collisions import is_crowded, with_exact_sums
from tilegrad.target import Target

# Ops whose result may have elements where their source has none.
_REDUCE = (Ops.REDUCE_AXIS, Ops.PAD, Ops.GATHER, Ops.SCATTER_ADD)

# Ops that are replaced even where none of their sources is.
_SPLIT = (*_REDUCE, Ops.PREFIX_AXIS)

__all__ = ["split_reductions"]


def split_reductions(
    sink: UOp, targets: Collection[Target], target_of: Callable[[UOp], Target], *, plain: bool
) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph with large reductions to one number and scans of few rows split for the largest of
    `targets`, unless it is `plain`, and reductions of nothing constant; and for each node of it the
    one it came from. `target_of` says what the device of a node is.
    """
    blocks = max((target.busy_blocks for target in targets), default=0)
    multiprocessors = max((target.multiprocessors for target in targets), default=0)
    warps = max((target.busy_warps for target in targets), default=0)
    has_doubles = all(target.supports(dtypes.float64) for target in targets)

    of_units = {dtype for target in targets for dtype in target.short_products}

    def split(node: UOp) -> UOp | None:
        return over_blocks(node, blocks, multiprocessors, of_units)

    def exact(node: UOp) -> UOp:
        return with_exact_sums(node) if has_doubles and is_crowded(node) else node

    made: dict[UOp, UOp] = {}
    came_from: dict[UOp, UOp] = {}
    for node in toposort([sink]):
        src = tuple([made[source] for source in node.src])
        fresh = node if src == node.src else node.replace(src=src)
        if node.op in _REDUCE and 0 not in node.shape and any(0 in x.shape for x in node.src):
            fresh = _made_of_nothing(node, src)
        elif node.op is Ops.SCATTER_ADD:
            fresh = (None if plain else _as_mask(fresh)) or exact(fresh)
        elif node.op in _SPLIT and not plain:
            fresh = channels_innermost(fresh, target_of) or fresh
            fresh = (
                as_scatter(fresh, exact)
                or (split(fresh) if blocks else _in_slices(fresh))
                or in_slices(fresh, has_lanes=blocks > 0, warps=warps)
                or fresh
            )
        made[node] = fresh
        if fresh is node:
            came_from.setdefault(node, node)
            continue
        for step in toposort([fresh], stop=came_from.__contains__):
            if step not in came_from:
                came_from[step] = node
                step.origin = step.origin or node.origin
    return made[sink], came_from


def _as_mask(node: UOp) -> UOp | None:
    """One row that is added to zeros: an elementwise value, which others go on with.

    before   SCATTER_ADD(zeros, index, row)
    after    where(numbers of the rows == index, row, 0)
    """
    base, index, row = node.src
    if index.shape != () or not isinstance(base.shape[0], int):
        return None
    below = base
    while below.op in (Ops.CONTIGUOUS, Ops.CAST) or below.op.is_movement:
        (below,) = below.src
    if below.op is not Ops.CONST or below.arg != 0:
        return None
    rows = base.shape[0]
    ones = fill((rows,), 1, index.dtype)
    numbers = UOp(Ops.PREFIX_AXIS, index.dtype, (ones,), (Ops.ADD, 0)) - 1
    is_here = reshape(numbers, (rows, *[1] * (len(base.shape) - 1))).eq(index)
    given = expand(reshape(row, (1, *row.shape)), base.shape)
    return expand(is_here, base.shape).where(given, UOp.const(node.dtype, 0))


def _made_of_nothing(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` without those of its sources that have no elements."""
    if node.op is Ops.SCATTER_ADD:
        return src[0]
    value: float | bool = 0
    if node.op is Ops.REDUCE_AXIS:
        identity = node.combine.definition.identity
        assert identity is not None
        value = identity(node.dtype)
    one = UOp.const(node.dtype, as_const(value, node.dtype))
    whole = reshape(one, (1,) * len(node.shape))
    device = device_of(node)
    if device is not None:
        # A constant is of no device, and what becomes of it must stay on this one.
        whole = UOp(Ops.CONTIGUOUS, node.dtype, (whole,), device)
    return expand(whole, node.shape)


def _in_slices(node: UOp) -> UOp | None:
    """A large reduction to one number, as that of the results of a few slices."""
    if node.op is not Ops.REDUCE_AXIS or elements(node) != 1 or node.src[0].is_constant:
        return None
    (x,), (function, _) = node.src, node.arg[:2]
    count = elements(x)
    is_number = all(isinstance(size, int) for size in x.shape)
    if not is_number or count < WORTH_A_KERNEL or count % SLICES:
        return None
    slices = reshape(x, (SLICES, count // SLICES))
    total = reduce_axes(reduce_axes(slices, function, (1,)), function, (0,))
    return reshape(total, node.shape)
