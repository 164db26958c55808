"""Two products with a softmax between them, as attention is, on targets with blocks: a block has a
tile of the rows, and goes over their keys and values slice by slice.

Keys and values of a slice are copied to shared memory by all lanes (STAGE); each lane has the
scores of some rows by every few of the slice, and some columns of the results, in registers
(SLICE). How large a slice is the schedule has said, by the shared memory that both need.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from tilegrad.base.config import config
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, next_number, scratch_of, stride_of, trips_of
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.optimize.generators.block_shaper import BlockShaper
from tilegrad.optimize.generators.heuristic_products import BUSY, LITTLE, VECTOR
from tilegrad.optimize.generators.heuristic_rows import divisor
from tilegrad.optimize.opts.opt import OptOps, axes_of, loop_order
from tilegrad.optimize.opts.stage import name_of_load
from tilegrad.target import OTHER_REGISTERS, MatrixUnit

__all__ = ["SliceShaper"]


class _Shape(NamedTuple):
    """How a block shares its rows.

    Attributes:
        lanes: of a row.
        each: rows of a lane.
        row_lanes: lanes along the rows of a block.
    """

    lanes: int
    each: int
    row_lanes: int

    @property
    def side(self) -> int:
        return self.each * self.row_lanes


# Tuning, worth shown by `bench/gpu.py`, attention.
# The largest first.
_SHAPES = (_Shape(8, 4, 16), _Shape(8, 2, 16), _Shape(8, 2, 8), _Shape(8, 1, 8))
# Groups of lanes of a block, where products run on a matrix unit.
_WARPS = (4, 2, 1)
# Terms of a product that are unrolled.
_UNROLLED = (8, 4, 2)


class SliceShaper(BlockShaper):
    """The moves of a kernel whose rows go through it in slices."""

    def share_slices(self) -> bool:
        """Shape such a kernel; False if it is none."""
        memories = scratch_of(self.ast)
        loops = {each for memory in memories for each in memory.src if each.axis is Axis.REDUCE}
        if len(loops) != 1:
            return False
        (loop,) = loops
        passed = self._passed(memories, loop)
        rows = [
            each
            for each in self.grid()
            if each in memories[0].src and all(each not in load.ranges for load in passed)
        ]
        if len(passed) != 2 or not rows:
            return False
        row = max(rows, key=lambda each: (each.extent.arg, -each.number))
        self._pad_slices(memories)
        before = self.ast
        for numbers in self._slice_units() if config.TC == 1 else ():
            for groups in self._groups(row, numbers[0]):
                if self._on_unit(loop, row, numbers, groups):
                    return True
                self.ast = before
        for shape in self._shapes(row):
            if self._shaped(loop, row, shape):
                return True
            self.ast = before
        return False

    def _pad_slices(self, memories: list[UOp]) -> None:
        """The last slice of a row is as long as the others, with gates."""
        for memory in memories:
            pointer = pointer_of(memory)
            for loop in loop_order(self.ast):
                if loop.extent.op is not Ops.CONST and loop.vmax + 1 == pointer.size:
                    self.apply(OptOps.PADTO, loop, pointer.size)

    def _shapes(self, row: UOp) -> list[_Shape]:
        """The shapes that fit, the largest first of those that leave blocks enough and pad rows
        little.
        """
        fitting = [each for each in _SHAPES if self._registers(each) <= self.target.registers]
        others = trips_of(loop for loop in self.grid() if loop is not row)
        extent = row.extent.arg

        def is_good(shape: _Shape) -> bool:
            blocks = -(-extent // shape.side)
            return bool(blocks * others >= BUSY and blocks * shape.side <= LITTLE * extent)

        return sorted(fitting, key=lambda shape: not is_good(shape))

    def _passed(self, memories: list[UOp], loop: UOp) -> list[UOp]:
        """Loads of a slice that all rows repeat: those that move with it and not with rows."""
        around = set(memories[0].src) - {loop}
        return [
            node
            for node in loads_of(self.ast)
            if node.src[0].op is Ops.DEFINE_GLOBAL
            and loop in node.ranges
            and not around <= node.ranges
        ]

    def _registers(self, shape: _Shape) -> int:
        """Registers of a lane: sums twice, as a slice has its own, and scores."""
        memory = scratch_of(self.ast)[0]
        pointer = pointer_of(memory)
        columns = self.columns()
        own = columns.extent.arg // shape.lanes if columns is not None else 0
        return shape.each * (2 * own + pointer.size // shape.lanes) + OTHER_REGISTERS

    def columns(self) -> UOp | None:
        """The output loop that is no block's."""
        return next((loop for loop in axes_of(self.ast) if loop.axis is Axis.LOOP), None)

    def _shaped(self, loop: UOp, row: UOp, shape: _Shape) -> bool:
        """All moves of a shape; False where one is refused."""
        if row.extent.arg % shape.side:
            padded = self.move(OptOps.PADTO, row, shape.side)
            if padded is None:
                return False
            row = padded
        memories = scratch_of(self.ast)
        if not all(self._staged(load, loop) for load in self._passed(memories, loop)):
            return False
        if not self.apply(OptOps.SLICE, loop, shape.lanes):
            return False
        left: UOp | None = row
        if shape.each > 1:
            left = self.move(OptOps.UPCAST, row, shape.each)
        if left is None or not self.apply(OptOps.LOCAL, left, shape.row_lanes):
            return False
        for each in axes_of(self.ast):
            if each.axis is Axis.REDUCE and each is not loop:
                self.apply(OptOps.UNROLL, each, divisor(each, _UNROLLED))
        return True

    def _slice_units(self) -> list[tuple[int, ...]]:
        """The units to try, by their numbers: first two that read keys and values from shared
        memory, one as wide as a slice and one as wide as the results; then each that reads nothing
        by itself.
        """
        memory = scratch_of(self.ast)[0]
        columns = self.columns()
        known = self.target.matrix_units
        own = [number for number, unit in enumerate(known) if unit.takes_left]
        found: list[tuple[int, ...]] = [
            (first, last)
            for first, last in itertools.product(own, own)
            if known[first].n == pointer_of(memory).size
            and columns is not None
            and known[last].n == columns.extent.arg
            and known[first].dtype_in is known[last].dtype_in
        ]
        plain = [number for number, unit in enumerate(known) if not unit.row_bytes]
        return [*found, *((number,) for number in plain)]

    def _groups(self, row: UOp, number: int) -> tuple[int, ...]:
        """The groups of lanes of a block to try: those of four warps share each slice by twos where
        that leaves a block for each multiprocessor.
        """
        unit = self.target.matrix_units[number]
        if not unit.takes_left:
            return _WARPS
        blocks = trips_of(loop for loop in self.grid() if loop is not row)
        blocks *= -(-row.extent.arg // (2 * unit.m))
        return (2, 1) if blocks >= self.target.multiprocessors else (1,)

    def _on_unit(self, loop: UOp, row: UOp, numbers: tuple[int, ...], groups: int) -> bool:
        """Both products on matrix units, for as many groups of lanes as a block has."""
        unit = self.target.matrix_units[numbers[0]]
        size = unit.m
        if not self._fits_unit(unit):
            return False
        if row.extent.arg % (size * groups):
            padded = self.move(OptOps.PADTO, row, size * groups)
            if padded is None or padded.extent.arg > LITTLE * row.extent.arg:
                return False
        memories = scratch_of(self.ast)
        if not all(self._staged(load, loop, unit) for load in self._passed(memories, loop)):
            return False
        made = next_number(self.ast.toposort())
        if not self.apply(OptOps.SLICE, loop, numbers):
            return False
        outer = self.axis_numbered(made)
        return outer is None or groups == 1 or self.apply(OptOps.LOCAL, outer, groups)

    def _fits_unit(self, unit: MatrixUnit) -> bool:
        """Whether registers hold sums, twice as a slice has its own, and scores."""
        memory = scratch_of(self.ast)[0]
        pointer, columns = pointer_of(memory), self.columns()
        if columns is None:
            return False
        if unit.takes_left:
            # The schedule has chosen slices for these registers.
            return True
        tiles = (2 * columns.extent.arg + pointer.size) // unit.n
        # The left operand of the first product is about as large as a row of results.
        rows = columns.extent.arg * unit.m // unit.lanes * unit.dtype_in.itemsize // 4
        needed = tiles * len(unit.c_layout[0]) + rows + OTHER_REGISTERS
        return bool(needed <= self.target.registers)

    def _staged(self, load: UOp, loop: UOp, unit: MatrixUnit | None = None) -> bool:
        """Copy a slice of the operand that all rows read, in its order in memory; in the row layout
        of `unit`, if that unit reads shared memory by itself.
        """
        inner = [
            each
            for each in loop_order(self.ast)
            if each in load.ranges and each is not loop and each.axis is not Axis.GLOBAL
        ]
        order = sorted(range(len(inner)), key=lambda at: stride_of(load.index, inner[at]) == 1)
        rows: tuple[int, ...] = (VECTOR // load.dtype.itemsize,)
        if unit is not None and unit.row_bytes:
            rows = (0, unit.row_elements)
        name = name_of_load(self.ast, load)
        if name is None:
            return False
        return self.apply(OptOps.STAGE, loop, (name, tuple(order), *rows))
