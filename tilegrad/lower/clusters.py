"""Tiles that the two blocks of a cluster share: each block copies half of such a tile, to the
shared memory of both.

Neighbouring blocks of a product read one strip of an operand. On hardware with clusters
(`Target.has_clusters`), one instruction copies a box to the same place of the shared memory of all
blocks of a cluster, and its bytes count for the same barrier of each. So half of the bytes of that
operand come from the second-level cache, which binds products whose tiles are as small as those of
wgmma: of 128x256 results by 64 terms, 48 KiB take an H100's multiprocessor 1,267 cycles, and its
units 1,024; 32 KiB take 845 (rates of tools.gpu_time).

    before   COPY_TILE(shared, at, b, ..., k*64, n*256)              a box of 64 by 256
    after    COPY_TILE(shared, at + r*8192, b, ..., k*64, n*256 + r*128)   of 64 by 128, to 2 blocks
             r = m % 2, m the fastest axis of the launch

Each block copies half of the boxes of a tile that is several boxes. Where the tile that both read
is the smaller one, less than a quarter of the bytes would be saved, for ten instructions of each
lane at a barrier of two blocks (a product of 1024 with tiles of 128x64 has 1.7 others for each
product of 16x8x16 with clusters, 1.35 without): nothing is shared.

The barrier behind which a tile's place is free must then be one of both blocks, which have to come
to it equally often: each barrier of such a kernel is one of the cluster, and its loops have extents
that are constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import copied_of, nodes_of
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["share_tiles"]

# Blocks of a cluster.
_BLOCKS = 2
# Rows whose vectors are swizzled in different ways: a slice of a tile begins at a multiple.
_GROUP = 8
# Sources of a COPY_TILE before its coordinates.
_COORDINATES = 6


def share_tiles(ast: UOp, axis: UOp, target: Target) -> UOp:
    """`ast` in which neighbours along `axis`, the fastest one of the launch, share the tiles that
    they both read.
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
