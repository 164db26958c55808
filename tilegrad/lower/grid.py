"""Launch dimensions: which axis runs as blocks, lanes of a block, or chunks for threads."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import nesting_depth, nodes_of, points_to
from tilegrad.ir.ranges import pad_range
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, pointer_of, prod
from tilegrad.lower.block_order import order_of_blocks
from tilegrad.lower.block_pairs import pair_blocks
from tilegrad.lower.clusters import share_tiles
from tilegrad.target import Target

__all__ = ["fix_launch", "spread_shared", "use_grid"]

_GRID_AXES = 3
_LANES = (Axis.LOCAL, Axis.GROUP)
# The most blocks along the second and third axis of a launch, and the most lanes along the third
# (CUDA: 65,535 blocks along y and z, 64 lanes along z).
_MOST_BLOCKS, _MOST_DEEP = 65535, 64


def fix_launch(ast: UOp) -> UOp:
    """A launch has as many blocks as the largest value of a symbolic size needs; blocks beyond the
    size do nothing. So one launch, recorded once, serves every size. The one chunk axis
    becomes a launch position here already, while the kernel is small.

    before   RANGE(n, GLOBAL)                          n: 1..8
    after    RANGE(8, GLOBAL), accesses gated by r < n
    """
    for loop in list(ast.toposort()):
        if loop.op is Ops.RANGE and loop.axis is Axis.GLOBAL and loop.extent.op is not Ops.CONST:
            largest = UOp.const(dtypes.index, loop.extent.vmax)
            ast = pad_range(ast, loop, loop.replace(src=(largest,)))
    chunks = [loop for loop in nodes_of(ast, Ops.RANGE) if loop.axis is Axis.THREAD]
    return simplify(ast, {loop: _special("chunk", loop.extent) for loop in chunks})


def use_grid(ast: UOp, target: Target | None = None) -> UOp:
    """Ranges that the launch runs become SPECIAL.

    A launch has three axes of each kind. The first axis of a block is its innermost, because lanes
    that are consecutive there run together and should access consecutive elements; the lanes of a
    matrix unit are the innermost. Blocks of a product are ordered by their reads
    (lower.block_order), where `target` has a cache for it.

    before   RANGE(16, GLOBAL)
    after    SPECIAL("gidx0", 16)
    """
    ranges = sorted(nodes_of(ast, Ops.RANGE), key=nesting_depth(ast))
    mapping: dict[UOp, UOp] = {}
    blocks = [loop for loop in ranges if loop.axis is Axis.GLOBAL]
    lanes = [loop for loop in ranges if loop.axis in _LANES]
    ordered = None if target is None else order_of_blocks(ast, blocks, target)
    if ordered is not None:
        ast, blocks = ordered
    crowded = max(len(blocks) - _GRID_AXES + 1, 1)
    if any(loop.extent.vmax > _MOST_BLOCKS for loop in blocks[crowded:]):
        crowded = len(blocks)
    # The last of the axes that share one is the fastest.
    first = blocks[:crowded] if ordered is None else blocks[:crowded][::-1]
    if target is not None and first:
        ast = pair_blocks(share_tiles(ast, first[-1], target), first[-1], target)
    for number, loops in enumerate([first, *([loop] for loop in blocks[crowded:])]):
        mapping |= _share(f"gidx{number}", loops)
    crowded = max(len(lanes) - _GRID_AXES + 1, 1)
    if len(lanes) >= _GRID_AXES and prod(loop.extent.arg for loop in lanes[:crowded]) > _MOST_DEEP:
        crowded = len(lanes)
    for number, loops in enumerate(
        [*([loop] for loop in lanes[: crowded - 1 : -1]), lanes[:crowded]]
    ):
        mapping |= _share(f"lidx{number}", loops)
    return simplify(ast, mapping)


def spread_shared(ast: UOp) -> UOp:
    """Shared memory inside lanes becomes one array of the block, with a slice for each lane.

    before   STORE(shared(l), i, x)                    l: LOCAL 0..32, shared: 4 floats
    after    STORE(shared, l*4 + i, x)                 shared: 128 floats
    """
    offsets: dict[UOp, UOp] = {}
    if not any(_is_shared_by_lanes(node) for node in ast.toposort()):
        return ast

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if _is_shared_by_lanes(node):
            pointer = pointer_of(node)
            lanes = [lane for lane in node.src if lane.axis in _LANES]
            size, offset = pointer.size, UOp.const(dtypes.index, 0)
            for lane in lanes:
                offset = lane * size + offset
                size *= lane.extent.arg
            src = tuple(lane for lane in src if lane not in lanes)
            offsets[node] = simplify(offset)
            return UOp(node.op, pointer.base.ptr(size, pointer.space), src, node.arg)
        if not node.src or node.src[0] not in offsets:
            return None
        offset = offsets[node.src[0]]
        if node.op is Ops.AFTER:
            offsets[node] = offset
            return src[0].after(*src[1:])
        return node.over((src[0], simplify(src[1] + offset), *src[2:]))

    return rebuilt(ast, change, (Ops.DEFINE_LOCAL, Ops.AFTER, Ops.LOAD, Ops.STORE))


def _is_shared_by_lanes(node: UOp) -> bool:
    """Whether this is shared memory that each lane has for itself."""
    return (
        node.op is Ops.DEFINE_LOCAL
        and points_to(node, AddressSpace.SHARED)
        and any(lane.axis in _LANES for lane in node.src)
    )


def _share(name: str, loops: Sequence[UOp]) -> dict[UOp, UOp]:
    """One axis of the launch for all of `loops`, the last the fastest."""
    if len(loops) < 2:
        return {loop: _special(name, loop.extent) for loop in loops}
    position = _special(name, prod(loop.extent for loop in loops))
    mapping = {}
    for loop in reversed(loops[1:]):
        mapping[loop] = position % loop.extent
        position = position // loop.extent
    return {**mapping, loops[0]: position}


def _special(name: str, extent: UOp) -> UOp:
    extent = simplify(extent)
    value = extent.arg if extent.op is Ops.CONST else extent
    return UOp(Ops.SPECIAL, dtypes.index, (), (name, value))
