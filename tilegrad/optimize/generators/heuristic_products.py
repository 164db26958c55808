"""Products on a target with blocks: a block computes a tile of the results from tiles of both
operands in shared memory, and each lane a smaller tile of it from registers.

How large the tiles are follows from the target: results and operands of a lane must stay in its
registers, two tiles of each operand in shared memory, and there must be blocks enough for the
device. Every element that a block of N x N results copies to shared memory serves N products, and
every element that a lane reads there as many as its tile is wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.generators.block_shaper import BlockShaper
from tilegrad.optimize.opts.opt import OptOps, ReduceOperand, Side, axes_of, loop_order
from tilegrad.optimize.opts.stage import operand_of
from tilegrad.target import TILES

__all__ = ["BUSY", "LEAST_DEPTH", "LITTLE", "VECTOR", "ProductShaper"]

# Tuning, worth shown by `bench/gpu.py`, products.
# Blocks that keep a device busy: about one for each of its multiprocessors (A100: 108, H100: 132).
BUSY = 128
# Bytes of one access of shared memory, by which rows are padded too.
VECTOR = 16
# Padding may add this share of work.
LITTLE = 1.34
# Registers of a lane for addresses, the next tile and loop variables.
_OTHER_REGISTERS = 32
# Products with a shorter sum are over before a copy pays.
LEAST_DEPTH = 32


class _ProductTile(NamedTuple):
    """The tile that a block computes at a time.

    Attributes:
        lanes: lanes along each axis of the results.
        each: results of a lane along each axis.
        depth: terms of the sum in one chunk.
    """

    lanes: int
    each: int
    depth: int

    @property
    def side(self) -> int:
        return self.lanes * self.each


class ProductShaper(BlockShaper):
    """The moves of a product."""

    def stage_product(self, reduction: UOp) -> bool:
        """Shape a product of two operands that share no output axis; False if it is none, or too
        small.
        """
        axes = self._axes_of_product(reduction)
        if axes is None:
            return False
        rows, columns, depth = axes
        tile = next(self._tiles(rows, columns, depth, reduction), None)
        if tile is None:
            return False
        before = self.ast
        sides = [
            self.tiled(rows, tile.side, Axis.LOOP),
            self.tiled(columns, tile.side, Axis.LOOP),
        ]
        chunk = self.tiled(depth, tile.depth, Axis.REDUCE)
        if None in sides or chunk is None or not self._stage_both(chunk, reduction.dtype.itemsize):
            self.ast = before
            return False
        vector = max(VECTOR // reduction.dtype.itemsize, 2)
        for side in sides:
            assert side is not None
            self._share(side, tile, min(vector, tile.each))
        self.move(OptOps.UNROLL, chunk, 0)
        return True

    def merge_outputs(self, reduction: UOp) -> UOp:
        """The reduction of a product after output axes are joined: those of one operand alone that
        are adjacent in the result, such as the rows and columns of an image.
        """
        while (pair := self._mergeable(reduction)) is not None:
            axes = axes_of(self.ast)
            if not self.apply(OptOps.MERGE, axes[pair[0]], pair[1]):
                break
            (reduction,) = self.reductions()
        return reduction

    def _mergeable(self, reduction: UOp) -> tuple[int, int] | None:
        """Positions of an axis and of the one inside it."""
        operands = [operand_of(self.ast, ReduceOperand(side), is_rounded=True) for side in Side]
        if reduction.arg is not Ops.ADD or any(side is None for side in operands):
            return None
        axes, index = axes_of(self.ast), self.store().src[1]
        strides = {axis: stride_of(index, axis) for axis in self.grid() if axis in reduction.ranges}
        for outer, far in strides.items():
            for inner, near in strides.items():
                sides = [
                    (outer in side.ranges, inner in side.ranges)
                    for side in operands
                    if side is not None
                ]
                is_next = near and far == near * inner.extent.arg and outer is not inner
                if is_next and sorted(sides) == [(False, False), (True, True)]:
                    return axes.index(outer), axes.index(inner)
        return None

    def _axes_of_product(self, reduction: UOp) -> tuple[UOp, UOp, UOp] | None:
        """Rows, columns and depth: the last two such that neighbouring columns are stored together,
        and the depth is the longest axis of the sum.
        """
        if reduction.arg is not Ops.ADD or reduction.src[0].op is not Ops.MUL:
            return None
        left, right = (operand_of(self.ast, ReduceOperand(side)) for side in Side)
        if left is None or right is None:
            return None
        index = self.store().src[1]
        outputs = [axis for axis in self.grid() if axis in reduction.ranges]
        outputs.sort(key=lambda axis: (stride_of(index, axis) != 1, -axis.extent.arg))
        depths = [
            axis
            for axis in reduction.src[1:]
            if axis.op is Ops.RANGE
            and axis.extent.op is Ops.CONST
            and axis in left.ranges
            and axis in right.ranges
        ]
        for columns in outputs:
            for rows in outputs:
                apart = {(columns in side.ranges, rows in side.ranges) for side in (left, right)}
                if apart == {(True, False), (False, True)} and depths:
                    return rows, columns, max(depths, key=lambda axis: axis.extent.arg)
        return None

    def _tiles(self, rows: UOp, columns: UOp, depth: UOp, reduction: UOp) -> Iterator[_ProductTile]:
        """The tiles that fit, the largest first, as long as they leave blocks enough."""
        target, itemsize = self.target, reduction.dtype.itemsize
        extents = [int(axis.extent.arg) for axis in (rows, columns)]
        others = trips_of(self.grid()) // int(prod(extents))
        fitting = []
        for lanes, each in ((16, 8), (8, 8), (16, 4), (8, 4)):
            registers = (each * each + 2 * each) * max(itemsize // 4, 1) + _OTHER_REGISTERS
            if lanes * lanes > target.block_lanes or registers > target.registers:
                continue
            for terms in (16, 8) if each == 4 else (8,):
                tile = _ProductTile(lanes, each, terms)
                nbytes = 2 * TILES * terms * (tile.side * itemsize + VECTOR)
                if nbytes <= target.shared_bytes and self._pads_little(tile, extents, depth):
                    fitting.append(tile)
                    break
        for tile in fitting:
            blocks = others * int(prod(-(-extent // tile.side) for extent in extents))
            if blocks >= BUSY or tile is fitting[-1]:
                yield tile

    @staticmethod
    def _pads_little(tile: _ProductTile, extents: list[int], depth: UOp) -> bool:
        work = padded = 1
        for extent, size in (
            *((each, tile.side) for each in extents),
            (depth.extent.arg, tile.depth),
        ):
            work *= extent
            padded *= -(-extent // size) * size
        return bool(padded <= LITTLE * work and depth.extent.arg >= LEAST_DEPTH)

    def tiled(self, loop: UOp, size: int, kind: Axis) -> UOp | None:
        """The inner loop of `loop` in tiles of `size`, padded if need be."""
        if loop.extent.arg % size:
            found = self.move(OptOps.PADTO, loop, size)
            if found is None:
                return None
            loop = found
        known = set(loop_order(self.ast))
        if not self.apply(OptOps.TILE, loop, size):
            return None
        fresh = [axis for axis in loop_order(self.ast) if axis not in known]
        inner = fresh[-1]
        return inner if inner.axis is kind and inner.extent.arg == size else None

    def _stage_both(self, chunk: UOp, itemsize: int) -> bool:
        """Both operands by rows of one term of the sum, so that a lane reads neighbours along the
        results.
        """
        loops = loop_order(self.ast)
        outer = loops[loops.index(chunk) - 1]
        return all(
            self.apply(OptOps.STAGE, outer, (ReduceOperand(side), (1, 0), VECTOR // itemsize))
            for side in Side
        )

    def _share(self, side: UOp, tile: _ProductTile, vector: int) -> None:
        """A lane's results are vectors, a vector of each lane apart: so lanes read neighbours."""
        left = self.move(OptOps.UPCAST, side, vector)
        if left is not None:
            left = self.move(OptOps.LOCAL, left, tile.lanes)
        if left is not None:
            self.move(OptOps.UPCAST, left, 0)
