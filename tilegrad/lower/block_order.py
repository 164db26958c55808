"""The order in which a launch runs its blocks, so that those that run together read the same.

Blocks that are resident at the same time share the second-level cache. In a product, the blocks of
one row of tiles read one strip of the left operand and all strips of the right one. A group of some
rows and some columns, as square as it goes, reads fewer strips: of 64 x 64 tiles, 216 blocks read
68 strips in rows, and 31 in groups of 16 rows. Blocks that read nothing in common, as those of
different matrices of a batch, come last.

Where all that is read again fits the cache, the order is that of the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import bytes_of, copied_of, memory_of, next_number, points_to
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["order_of_blocks"]

# Blocks of a product that a multiprocessor runs at the same time (docs/gpu.md).
_RESIDENT = 2


def order_of_blocks(
    ast: UOp, blocks: Sequence[UOp], target: Target
) -> tuple[UOp, list[UOp]] | None:
    """`ast` with an axis of `blocks` in groups, and the axes in their order, the fastest first;
    None where any order is as good.
    """
    if len(blocks) < 2:
        return None
    loads = _loads(ast, blocks)
    repeated = {memory: axes for memory, axes in loads.items() if len(axes) < len(blocks)}
    nbytes = sum(bytes_of(memory) for memory in repeated)
    if not repeated or nbytes <= target.cache_bytes[-1]:
        return None
    if any(axis.extent.op is not Ops.CONST for axis in blocks):
        return None
    # Axes along which something is read again; the others tell apart blocks that read nothing in
    # common.
    again = [axis for axis in blocks if any(axis not in axes for axes in repeated.values())]
    others = [axis for axis in blocks if axis not in again]
    if len(again) == 2:
        rows, columns = again
        size = _group(rows.extent.arg, _RESIDENT * target.multiprocessors)
        if size and any(rows in axes for axes in repeated.values()):
            number = next_number(ast.toposort())
            group = UOp.range(rows.extent.arg // size, number, rows.axis)
            inside = UOp.range(size, number + 1, rows.axis)
            ast = replace_ranges(ast, {rows: (group * size + inside, (group, inside))})
            return ast, [inside, columns, group, *others]
    return ast, [*again, *others]


def _group(extent: int, together: int) -> int:
    """The divisor of `extent` nearest to the side of a square of `together` blocks; 0 where that is
    no group.
    """
    side = math.sqrt(max(together, 1))
    divisors = [size for size in range(2, extent) if extent % size == 0]
    size = min(divisors, key=lambda size: max(size / side, side / size), default=0)
    return size if side < extent else 0


def _loads(ast: UOp, blocks: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """The axes of `blocks` that each memory is read at, by the memory."""
    found: dict[UOp, frozenset[UOp]] = {}
    for node in ast.toposort():
        index: tuple[UOp, ...]
        if node.op is Ops.LOAD:
            memory, index = memory_of(node.src[0]), (node.index,)
        elif node.op is Ops.COPY_TILE:
            # Only where the copy begins counts: its other sources depend on more loops.
            memory, index = copied_of(node)
        else:
            continue
        if points_to(memory, AddressSpace.GLOBAL):
            axes = frozenset(axis for axis in blocks if any(axis in each.ranges for each in index))
            found[memory] = found.get(memory, frozenset()) | axes
    return found
