"""Launch dimensions: which axis runs as blocks, lanes of a block, or chunks for threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    bytes_of,
    copied_of,
    memory_of,
    nesting_depth,
    next_number,
    nodes_of,
    points_to,
)
from tilegrad.ir.ranges import pad_range, replace_ranges
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, pointer_of, prod
from tilegrad.lower.block_pairs import pair_blocks
from tilegrad.target import Target

__all__ = ["fix_launch", "order_of_blocks", "share_tiles", "spread_shared", "use_grid"]

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
    (`order_of_blocks`), where `target` has a cache for it.

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
             STORE(shared, i*32 + l, x)                where other lanes share the depth of columns
    """
    # Where the slice of a lane begins, and how far its elements are apart.
    slices: dict[UOp, tuple[UOp, int]] = {}
    if not any(_is_shared_by_lanes(node) for node in ast.toposort()):
        return ast
    columns = _columns_of_groups(ast)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if _is_shared_by_lanes(node):
            pointer = pointer_of(node)
            lanes = [lane for lane in node.src if lane.axis in _LANES]
            total = prod(lane.extent.arg for lane in lanes)
            is_woven = len(columns) == len(lanes) and set(columns) == set(lanes)
            if is_woven:
                lanes = columns
            size, offset = 1 if is_woven else pointer.size, UOp.const(dtypes.index, 0)
            for lane in lanes:
                offset = lane * size + offset
                size *= lane.extent.arg
            src = tuple(lane for lane in src if lane not in lanes)
            slices[node] = simplify(offset), total if is_woven else 1
            return UOp(
                node.op, pointer.base.ptr(pointer.size * total, pointer.space), src, node.arg
            )
        if not node.src or node.src[0] not in slices:
            return None
        offset, step = slices[node.src[0]]
        if node.op is Ops.AFTER:
            slices[node] = offset, step
            return src[0].after(*src[1:])
        return node.over((src[0], simplify(src[1] * step + offset), *src[2:]))

    return rebuilt(ast, change, (Ops.DEFINE_LOCAL, Ops.AFTER, Ops.LOAD, Ops.STORE))


def _columns_of_groups(ast: UOp) -> list[UOp]:
    """The lanes of a block that have a result each, the fastest first, where groups of others share
    its reduction and are further apart: side by side, they meet in no bank.
    """
    ranges = sorted(nodes_of(ast, Ops.RANGE), key=nesting_depth(ast), reverse=True)
    lanes = [loop for loop in ranges if loop.axis in _LANES]
    columns = [loop for loop in lanes if loop.axis is Axis.LOCAL]
    is_apart = bool(columns) and lanes[0] is columns[0] and len(columns) < len(lanes)
    is_single = all(
        (node if node.op is Ops.LOAD else node.src[2]).dtype.lanes == 1
        for node in ast.toposort()
        if node.op in (Ops.LOAD, Ops.STORE) and points_to(node.src[0], AddressSpace.SHARED)
    )
    return columns if is_apart and is_single else []


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


# Blocks of a product that a multiprocessor runs at the same time (docs/gpu.md).
_RESIDENT = 2


def order_of_blocks(
    ast: UOp, blocks: Sequence[UOp], target: Target
) -> tuple[UOp, list[UOp]] | None:
    """`ast` with an axis of `blocks` in groups, and the axes in their order, the fastest first;
    None where any order is as good.

    Blocks that are resident at the same time share the second-level cache. In a product, the blocks
    of one row of tiles read one strip of the left operand and all strips of the right one. A group
    of some rows and some columns, as square as it goes, reads fewer strips: of 64 x 64 tiles, 216
    blocks read 68 strips in rows, and 31 in groups of 16 rows. Blocks that read nothing in common,
    as those of different matrices of a batch, come last.

    Where all that is read again fits the cache, the order is that of the axes.
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


# Blocks of a cluster.
_BLOCKS = 2
# Rows whose vectors are swizzled in different ways: a slice of a tile begins at a multiple.
_GROUP = 8
# Sources of a COPY_TILE before its coordinates.
_COORDINATES = 6


def share_tiles(ast: UOp, axis: UOp, target: Target) -> UOp:
    """`ast` in which neighbours along `axis`, the fastest one of the launch, share the tiles that
    they both read.

    Neighbouring blocks of a product read one strip of an operand. On hardware with clusters
    (`Target.has_clusters`), one instruction copies a box to the same place of the shared memory of
    all blocks of a cluster, and its bytes count for the same barrier of each. So half of the bytes
    of that operand come from the second-level cache, which binds products whose tiles are as small
    as those of wgmma: of 128x256 results by 64 terms, 48 KiB take an H100's multiprocessor 1,267
    cycles, and its units 1,024; 32 KiB take 845 (rates of tools.gpu_time).

    before   COPY_TILE(shared, at, b, ..., k*64, n*256)              a box of 64 by 256
    after    COPY_TILE(shared, at + r*8192, b, ..., k*64, n*256 + r*128)   of 64 by 128, to 2 blocks
             r = m % 2, m the fastest axis of the launch

    Each block copies half of the boxes of a tile that is several boxes. Where the tile that both
    read is the smaller one, less than a quarter of the bytes would be saved, for ten instructions
    of each lane at a barrier of two blocks (a product of 1024 with tiles of 128x64 has 1.7 others
    for each product of 16x8x16 with clusters, 1.35 without): nothing is shared.

    The barrier behind which a tile's place is free must then be one of both blocks, which have to
    come to it equally often: each barrier of such a kernel is one of the cluster, and its loops
    have extents that are constants.
    """
    if not target.has_clusters or not _is_even(axis) or not _is_uniform(ast):
        return ast
    rank = simplify(axis % _BLOCKS)
    copies = nodes_of(ast, Ops.COPY_TILE)
    shared = [
        node for node in copies if not any(axis in each.ranges for each in copied_of(node)[1])
    ]
    if 2 * sum(map(_size, shared)) < sum(map(_size, copies)):
        return ast
    pairs = _pairs(shared)
    sliced = {node: rows for node in shared if node not in pairs and (rows := _slice(node))}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made, arg = list(src), replace(node.arg, blocks=_BLOCKS)
        if node in pairs:
            one, other = pairs[node]
            for at in (1, *range(_COORDINATES, len(src))):
                made[at] = simplify(one.src[at] + rank * (other.src[at] - one.src[at]))
        elif node in sliced:
            at, rows = sliced[node]
            box = (*node.arg.box[:at], rows, *node.arg.box[at + 1 :])
            made[_COORDINATES + at] = simplify(made[_COORDINATES + at] + rank * rows)
            made[1] = simplify(made[1] + rank * (rows * box[0]))
            arg = replace(arg, box=box)
        else:
            return None
        return node.replace(src=tuple(made), arg=arg)

    return rebuilt(ast, change, (Ops.COPY_TILE,)) if pairs or sliced else ast


def _size(copy: UOp) -> int:
    return math.prod(copy.arg.box)


def _pairs(copies: Sequence[UOp]) -> dict[UOp, tuple[UOp, UOp]]:
    """Boxes of one tile, two by two; each block copies one of both."""
    tiles: dict[tuple[Any, ...], list[UOp]] = {}
    for node in copies:
        memory, _, source, *rest = node.src[:_COORDINATES]
        tiles.setdefault((memory, source, *rest, node.arg), []).append(node)
    found: dict[UOp, tuple[UOp, UOp]] = {}
    for boxes in tiles.values():
        if len(boxes) % _BLOCKS == 0:
            for pair in zip(boxes[::_BLOCKS], boxes[1::_BLOCKS], strict=True):
                found |= dict.fromkeys(pair, pair)
    return found


def _slice(node: UOp) -> tuple[int, int] | None:
    """The dimension of a box along which each block copies a slice, and how many rows; None where
    slices would begin between groups of swizzled rows.
    """
    long = [at for at, length in enumerate(node.arg.box) if at and length > 1]
    if len(long) != 1:
        return None
    rows, rest = divmod(node.arg.box[long[0]], _BLOCKS)
    return None if rest or rows % _GROUP else (long[0], rows)


def _is_even(axis: UOp) -> bool:
    extent = axis.extent
    return extent.op is Ops.CONST and extent.arg % _BLOCKS == 0


def _is_uniform(ast: UOp) -> bool:
    """Whether each block comes to as many barriers, whose units are waited for in a loop of all
    lanes: units that add in a memory of their own have one of one lane.
    """
    nodes = ast.toposort()
    if any(node.op is Ops.WMMA and node.arg.columns for node in nodes):
        return False
    loops = (node for node in nodes if node.op is Ops.RANGE and node.axis is not Axis.GLOBAL)
    return all(loop.extent.op is Ops.CONST for loop in loops)
