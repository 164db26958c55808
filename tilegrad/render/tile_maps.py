"""Matrices in global memory whose boxes a kernel copies: a launch passes a tensor map of each."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["blocks_together", "map_text", "maps_of"]


def blocks_together(program: Sequence[UOp]) -> int:
    """The blocks of a cluster, neighbours along the first axis of the launch; 1 where blocks have
    nothing to do with each other.
    """
    together = (node.arg.blocks for node in program if node.op in (Ops.COPY_TILE, Ops.WMMA))
    return max(together, default=1)


def maps_of(program: Sequence[UOp]) -> list[tuple[UOp, TileMap]]:
    """The buffer and the matrix of each tensor map, in the order in which a launch passes them."""
    copies = (node for node in program if node.op is Ops.COPY_TILE)
    return list(dict.fromkeys((node.src[2], node.arg) for node in copies))


def map_text(slot: int, itemsize: int, matrix: TileMap) -> str:
    """Text for a launch that encodes a tensor map: the slot of the buffer, the bytes of an element,
    and sizes, strides and box.
    """
    rows = (matrix.sizes, matrix.strides, matrix.box)
    return f"{slot}:{itemsize}:{':'.join(','.join(map(str, row)) for row in rows)}"
