"""Products on matrix units: of operands that pass through shared memory where they are large, else
of operands from global memory.

A block is several groups of lanes, each with a tile of the results in its registers that is several
of the unit's own: every operand that a lane reads serves as many products as the tile is wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilegrad.base.config import config
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, next_number, stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.generators.heuristic_products import (
    BUSY,
    LEAST_DEPTH,
    LITTLE,
    VECTOR,
    ProductShaper,
)
from tilegrad.optimize.opts.matrix import find_products
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side, loop_order
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.optimize.opts.stage import operand_of
from tilegrad.target import SHARED_ROWS, TILES, MatrixUnit

__all__ = ["UnitShaper"]

# Bytes of a row of an operand's tile along the sum, where a unit asks for no other.
_DEPTH_BYTES = 64
# Results of a group of lanes (rows, columns), and groups of a block along both, the largest first.
_TILES = (
    ((64, 64), (2, 2)),
    ((64, 32), (2, 4)),
    ((64, 32), (2, 2)),
    ((32, 64), (2, 2)),
    ((32, 32), (2, 2)),
    ((32, 16), (2, 2)),
    ((16, 16), (2, 2)),
    ((16, 32), (1, 4)),
)
# The registers of a lane that may hold results; half as many where a long sum has more accumulators
# (lower.levels: each takes a limited number of terms, and a unit adds several at a time).
_RESULTS, _MOST_TERMS = 5 / 9, 512
# Results of a lane in registers at a time, of a unit with a memory of its own.
_LOADED = 64
# The share of the multiprocessors that a block each must keep busy before tiles get smaller: a tile
# of half the size has half as many products for each instruction beside them.
_ALMOST = 0.9


class _Tile(NamedTuple):
    """The tile that a block computes at a time, in elements; `each` is the tile of one group of
    lanes.
    """

    each: tuple[int, int]
    groups: tuple[int, int]
    depth: int

    @property
    def sides(self) -> tuple[int, int]:
        return self.each[0] * self.groups[0], self.each[1] * self.groups[1]


class UnitShaper(ProductShaper):
    """The moves of a product on a matrix unit."""

    def use_matrix_unit(self) -> bool:
        """Products on the first unit that fits: staged, or else padded where that adds little."""
        return any(
            self._stage_on(number, unit) or self._use_directly(number, unit)
            for number, unit in self._units()
        )

    def stage_units(self) -> bool:
        """Products on the first unit for which their operands can be staged."""
        return any(self._stage_on(number, unit) for number, unit in self._units())

    def _units(self) -> list[tuple[int, MatrixUnit]]:
        """The units with their numbers, those with the most products an instruction first. Units
        with an operand in registers are left out, as operands are loaded.
        """
        units = [each for each in enumerate(self.target.matrix_units) if not each[1].takes_left]
        return sorted(units, key=lambda each: -each[1].m * each[1].n * each[1].k)

    def _stage_on(self, number: int, unit: MatrixUnit) -> bool:
        products = find_products(self.ast, unit)[:1] if config.TC == 1 else []
        return any(self._stage_unit(number, unit, axes) for axes in products)

    # staged

    def _stage_unit(self, number: int, unit: MatrixUnit, axes: tuple[UOp, UOp, UOp]) -> bool:
        before = self.ast
        tile = next(self._unit_tiles(unit, axes), None)
        if tile is None:
            return False
        operands = self._operands(unit, axes[0], axes[2])
        # Operands that a unit reads by itself are rounded by the lanes that copy them.
        is_moved = self._are_moved(operands or ()) and not (unit.row_bytes and unit.digits)
        count = self._count(unit, tile, axes) if is_moved else TILES
        sides = [
            self.tiled(loop, size, kind)
            for loop, size, kind in zip(
                axes, (*tile.sides, tile.depth), (Axis.LOOP, Axis.LOOP, Axis.REDUCE), strict=True
            )
        ]
        rows, columns, chunk = sides
        if rows is None or columns is None or chunk is None or operands is None:
            self.ast = before
            return False
        loops = loop_order(self.ast)
        outer = loops[loops.index(chunk) - 1]
        more = ((0,) * (not unit.row_bytes) + (count,)) * (count > TILES)
        is_staged = all(
            self.apply(OptOps.STAGE, outer, (name, order, *_rows_of(unit, order), *more))
            for name, order in operands
        )
        products = find_products(self.ast, unit)
        if not is_staged or (rows, columns, chunk) not in products:
            self.ast = before
            return False
        first = next_number(self.ast.toposort())
        opt = Opt(OptOps.TC, products.index((rows, columns, chunk)), (number, 1))
        try:
            self.ast = apply_opt(self.ast, opt, self.target)
        except OptError:
            self.ast = before
            return False
        for offset, (size, of_unit) in enumerate(zip(tile.each, (unit.m, unit.n), strict=True)):
            axis = self.axis_numbered(first + offset)
            if axis is not None and size > of_unit:
                axis = self.move(OptOps.UPCAST, axis, size // of_unit)
            if axis is not None:
                self.move(OptOps.LOCAL, axis, 0)
        if (axis := self.axis_numbered(first + 2)) is not None:
            self.move(OptOps.UNROLL, axis, 0)
        return True

    def _operands(
        self, unit: MatrixUnit, rows: UOp, depth: UOp
    ) -> list[tuple[ReduceOperand, tuple[int, int]]] | None:
        """The names of both operands, as they are before any cast, and the order of their tiles:
        along memory, or as the unit's lanes hold neighbours where they are read one by one.
        """
        found: list[tuple[ReduceOperand, tuple[int, int]]] = []
        for position in Side:
            name = next(
                (
                    name
                    for name in (ReduceOperand(position), ReduceOperand(position, is_cast=False))
                    if (side := operand_of(self.ast, name, is_rounded=True)) is not None
                    and side.dtype is unit.dtype_in
                ),
                None,
            )
            if name is None:
                return None
            side = operand_of(self.ast, name, is_rounded=True)
            assert side is not None
            layout, axis = (unit.a_layout, 1) if rows in side.ranges else (unit.b_layout, 0)
            # A lane of some units holds one element.
            is_deep = len({element[axis] for element in layout[0][:2]}) > 1
            itemsize = unit.dtype_in.itemsize
            sizes = (2,) if unit.row_bytes else (2, 4) if self.target.has_fragments else ()
            if itemsize in sizes:
                is_deep = _is_deep_in_memory(side, depth)
            found.append((name, (0, 1) if is_deep else (1, 0)))
        return found

    def _unit_tiles(self, unit: MatrixUnit, axes: tuple[UOp, UOp, UOp]) -> Iterator[_Tile]:
        """The tiles that fit, the largest first, as long as they leave blocks enough."""
        target, itemsize = self.target, unit.dtype_in.itemsize
        depth = max((unit.row_bytes or _DEPTH_BYTES) // itemsize, unit.k)
        extents = [int(axis.extent.arg) for axis in axes]
        others = trips_of(self.grid()) // int(prod(extents[:2]))
        (reduction,) = self.reductions()
        terms = trips_of(reduction.src[1:])
        is_thin = self._is_thin(unit, axes)
        fitting = []
        for each, groups in self._own_tiles(unit, extents[0]) if unit.row_bytes else _TILES:
            tile = _Tile(each, groups, depth)
            lanes = int(prod(groups)) * unit.lanes
            results = int(prod(each)) // unit.lanes * unit.dtype_out.itemsize // 4
            if extents[2] > _MOST_TERMS * unit.k:
                results *= 2
            elif unit.columns:
                # They are loaded a few at a time.
                results = min(results, _LOADED)
            # Elements of slices that are loaded one by one have a register each, and copies of
            # vectors their addresses and gates.
            copied = sum(tile.sides) * depth // lanes if self._has_slices() else 0
            results += copied * itemsize // (VECTOR // itemsize) if unit.row_bytes else copied
            nbytes = TILES * self._tile_bytes(unit, tile)
            work = padded = 1
            for extent, size in zip(extents, (*tile.sides, depth), strict=True):
                work, padded = work * extent, padded * (-(-extent // size) * size)
            if (
                each[0] % unit.m == each[1] % unit.n == depth % unit.k == 0
                and lanes <= target.block_lanes
                and results <= target.registers * _RESULTS
                and nbytes <= (target.block_bytes if unit.row_bytes else target.shared_bytes)
                and (padded <= LITTLE * work or (is_thin and tile.sides[0] == unit.m))
                and extents[2] >= depth
                and terms >= max(LEAST_DEPTH, 2 * depth)
            ):
                fitting.append(tile)
        for tile in fitting:
            blocks = others
            for extent, size in zip(extents, tile.sides, strict=False):
                blocks *= -(-extent // size)
            # A product with few results has smaller tiles on another unit.
            if blocks >= _ALMOST * BUSY or (tile is fitting[-1] and not unit.row_bytes):
                yield tile

    def _are_moved(self, operands: Sequence[tuple[ReduceOperand, tuple[int, int]]]) -> bool:
        """Whether lanes need no registers for their copies: the operand is not computed."""
        sides = [operand_of(self.ast, name, is_rounded=True) for name, _ in operands]
        return self.target.has_async_copies and all(
            side is not None and side.op is Ops.LOAD for side in sides
        )

    def _count(self, unit: MatrixUnit, tile: _Tile, axes: tuple[UOp, UOp, UOp]) -> int:
        """The number of tiles of an operand in shared memory, with which a multiprocessor still
        holds as many blocks as its registers allow, or all of them.
        """
        target, lanes = self.target, int(prod(tile.groups)) * unit.lanes
        trips = int(axes[2].extent.arg) // tile.depth
        if self._has_slices():
            # Indices of a sum of several axes cost more instructions than they hide.
            return TILES
        blocks = trips_of(self.grid())
        for axis, size in zip(axes, tile.sides, strict=False):
            blocks = blocks // int(axis.extent.arg) * -(-int(axis.extent.arg) // size)
        registers = int(prod(tile.each)) // unit.lanes * unit.dtype_out.itemsize // 4
        resident = max(int(target.multiprocessor_registers * _RESULTS) // (lanes * registers), 1)
        resident = min(resident, -(-blocks // max(target.multiprocessors, 1)))
        for count in target.tile_counts:
            nbytes = count * self._tile_bytes(unit, tile) + target.reserved_bytes
            room = target.block_bytes + target.reserved_bytes
            # A loop over whole rounds of the tiles is unrolled.
            is_whole = trips % count == 0 or unit.row_bytes > 0
            if resident * nbytes <= room and trips >= 2 * count and is_whole:
                return count
        return TILES

    @staticmethod
    def _tile_bytes(unit: MatrixUnit, tile: _Tile) -> int:
        """The bytes of both operands."""
        padding = 0 if unit.row_bytes else VECTOR
        return sum(side * (tile.depth * unit.dtype_in.itemsize + padding) for side in tile.sides)

    def _is_thin(self, unit: MatrixUnit, axes: tuple[UOp, UOp, UOp]) -> bool:
        """Whether reading the operand of the columns takes longer than all products of a unit whose
        rows are mostly padding. Lanes that share a row of it do as well with few rows; so does a
        smaller unit, beside one of 128 rows.
        """
        if unit.columns:
            return False
        rows, _, depth = axes
        operands = [operand_of(self.ast, ReduceOperand(side), is_rounded=True) for side in Side]
        wide = [side for side in operands if side is not None and rows not in side.ranges]
        is_deep = any(_is_deep_in_memory(side, depth) for side in wide)
        return (SHARED_ROWS if is_deep else 1) < int(rows.extent.arg) < unit.m

    def _own_tiles(
        self, unit: MatrixUnit, rows: int
    ) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Those of a unit that reads shared memory by itself: two groups of lanes share the
        columns' operand; a group is alone where there are no rows for two, or no smaller unit. One
        with a memory of its own is the only one of its block.
        """
        own = unit.m, unit.n
        if unit.columns:
            # Twice as many rows share the operand of the most columns.
            most = max(each.n for each in self.target.matrix_units if each.columns)
            twice = (2 * unit.m, unit.n)
            return [(each, (1, 1)) for each in ((twice, own) if unit.n == most else (own,))]
        least = min(each.n for each in self.target.matrix_units if each.row_bytes)
        is_alone = unit.n == least or rows <= unit.m
        return [(own, (groups, 1)) for groups in ((2, 1) if is_alone else (2,))]

    def _has_slices(self) -> bool:
        """Whether the sum has more axes than one, as that of a convolution."""
        return any(
            sum(axis.op is Ops.RANGE for axis in reduction.src) > 1
            for reduction in self.reductions()
        )

    # from global memory

    def _use_directly(self, number: int, unit: MatrixUnit) -> bool:
        """Operands from global memory, padded where that adds little."""
        sizes = (unit.m, unit.n, unit.k)
        if unit.row_bytes:
            return False
        for choice, axes in enumerate(find_products(self.ast, unit)):
            if not all(map(_pads_little, axes, sizes)):
                continue
            before = self.ast
            for axis, size in zip(axes, sizes, strict=True):
                if axis.extent.arg % size:
                    self.move(OptOps.PADTO, axis, size)
            opt = Opt(OptOps.TC, choice, (number, config.TC))
            first = next_number(self.ast.toposort())
            try:
                self.ast = apply_opt(self.ast, opt, self.target)
            except OptError:
                self.ast = before
                continue
            self.tile_units(self.axis_numbered(first), self.axis_numbered(first + 1))
            return True
        return False

    def tile_units(self, rows: UOp | None, columns: UOp | None) -> None:
        """Several of the unit's tiles per group, so that each operand serves several products; then
        several groups per block.
        """
        left = []
        for loop in (rows, columns):
            if loop is not None and (
                amount := next((n for n in (4, 3, 2) if loop.extent.arg % n == 0), 0)
            ):
                loop = self.move(OptOps.UPCAST, loop, amount)
            left.append(loop)
        for loop in reversed(left):
            blocks = trips_of(self.grid())
            if loop is not None and loop.extent.arg % 2 == 0 and blocks >= 2 * BUSY:
                self.move(OptOps.LOCAL, loop, 2)


def _rows_of(unit: MatrixUnit, order: tuple[int, int]) -> tuple[int, ...]:
    """How STAGE lays out rows: padded by a vector, or as long as the unit wants them. Rows that run
    across the sum, of elements of 4 bytes that 8 lanes read by one, are padded by two vectors: then
    four rows begin in banks 8 apart.
    """
    if unit.row_bytes:
        return (0, unit.row_elements)
    itemsize = unit.dtype_in.itemsize
    is_read_by_one = itemsize == 4 and order == (1, 0)
    return ((1 + is_read_by_one) * VECTOR // itemsize,)


def _is_deep_in_memory(side: UOp, depth: UOp) -> bool:
    """Whether neighbours along the sum are neighbours in memory."""
    loads = loads_of(side)
    return any(stride_of(load.index, depth) == 1 for load in loads)


def _pads_little(loop: UOp, size: int) -> bool:
    extent = loop.extent.arg
    return bool(-(-extent // size) * size <= LITTLE * extent)
