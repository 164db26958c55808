"""Rows between two products on targets with blocks: a block has slices of some rows in shared
memory, as scores of attention, so that no row is ever stored to global memory.

Operands that all rows read (keys, values) are copied to shared memory slice by slice, for all rows
of the block; optimize.shared_slices assigns the lanes. This is worth it where enough rows share
each copy, and where both products are large beside the work on a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import below_casts, loads_of, loops_of, moved_loads, trips_of
from tilegrad.ir.uop import UOp
from tilegrad.schedule.online_reductions import Row
from tilegrad.target import OTHER_REGISTERS, TILES, Target

__all__ = ["is_worth_slicing", "slice_of_block"]

# Tuning, worth shown by `bench/gpu.py`, attention.
# Rows that share a copy at least: fewer leave most lanes without work.
_LEAST_ROWS = 64
# Elements of a slice, the longest first.
_SLICES = (32, 16, 8)
# The factor by which the last slice may extend rows.
_LITTLE = 1.15
# Terms of a product at least, so that it outweighs the exponentials of a row.
_LEAST_TERMS = 16
# Bytes by which rows of a copy are padded.
_PADDING = 16
# The share of a block's shared memory that slices and copies may take.
_MOST_OF_SHARED = 15 / 16
# Lanes that share a row (optimize.heuristic_slices).
_LANES = 8


def is_worth_slicing(element: UOp, outer: Iterable[UOp], target: Target) -> bool:
    """Whether a kernel that stores `element`, with rows in scratch inside the ranges `outer`, may
    process its rows in slices: it multiplies rows by a matrix that other rows share.
    """
    if not target.shuffle_lanes or any(node.op is Ops.PREFIX for node in element.toposort()):
        return False
    products = _products(element.toposort())
    rows = [row for row in outer if all(_shares(reduction, row) for reduction in products)]
    return bool(products) and any(_extent(row) >= _LEAST_ROWS for row in rows)


def slice_of_block(ast: UOp, row: Row, target: Target) -> int:
    """The elements of each row that a block takes at a time; 0 where rows are not sliced.

    The rows must be those of a softmax between two products: one fills scratch, the other reads it,
    and the kernel computes the largest element of each row.
    """
    nodes = ast.toposort()
    if any(loop.op is Ops.RANGE and loop.extent.op is not Ops.CONST for loop in nodes):
        return 0
    products = _products(nodes)
    filled = [node for node in nodes if node.op is Ops.END and row.ranges & set(node.src[1:])]
    inside = {node for fill in filled for node in fill.toposort()}
    reading = [reduction for reduction in products if row.ranges & set(reduction.src[1:])]
    filling = [each for each in products if each in inside and row.ranges & each.ranges]
    is_softmax = any(
        node.op is Ops.REDUCE and node.arg is Ops.MAX and row.ranges & set(node.src[1:])
        for node in nodes
    )
    if len(filling) != 1 or len(reading) != 1 or len(products) != 2 or not is_softmax:
        return 0
    if len(ast.src) != 1 or ast.src[0].op is not Ops.STORE or ast.src[0].arg is not None:
        return 0
    around = {loop for memory in row.memories for loop in memory.src}
    columns = [loop for loop in reading[0].ranges if loop not in around and loop.axis is Axis.LOOP]
    if len(columns) != 1 or _extent(columns[0]) % _LANES:
        return 0
    if columns[0] not in ast.src[0].ranges:
        # The result of the second product is a row that is reduced once more.
        return 0
    passed = {load for reduction in products for load in _shared_loads(reduction, around)}
    (depth,) = filling[0].src[1:] if len(filling[0].src) == 2 else (columns[0],)
    if size := _slice_of_units(passed, row, _extent(columns[0]), _extent(depth), target):
        return size
    each = sum(
        trips_of(load.ranges - around - row.ranges) * load.dtype.itemsize + _PADDING
        for load in passed
    )
    fitting = [
        size
        for size in _SLICES
        if TILES * each * size + _LEAST_ROWS * 4 * (size + _LANES)
        <= _MOST_OF_SHARED * target.shared_bytes
    ]
    padded = {size: -(-row.length // size) * size for size in fitting}
    good = (size for size in fitting if padded[size] <= _LITTLE * row.length)
    return next(good, min(fitting, key=padded.__getitem__, default=0))


def _slice_of_units(
    passed: Iterable[UOp], row: Row, columns: int, depth: int, target: Target
) -> int:
    """Elements of a slice for matrix units that read keys and values from shared memory by
    themselves; 0 where no slice fits. Such units take whole rows of keys and values and one unit's
    tile of results; the results, rows and weights are in registers.
    """
    kinds = {load.dtype for load in passed}
    units = [unit for unit in target.matrix_units if unit.takes_left and {unit.dtype_in} == kinds]
    for unit in sorted(units, key=lambda each: -each.n):
        size = unit.n
        registers = (columns + size + (size + depth) // 2) * unit.m // unit.lanes
        nbytes = TILES * size * (columns + depth) * unit.dtype_in.itemsize
        if (
            columns in {each.n for each in units}
            and depth % unit.row_elements == 0
            and -(-row.length // size) * size <= _LITTLE * row.length
            and registers + OTHER_REGISTERS <= target.registers
            and nbytes <= _MOST_OF_SHARED * target.block_bytes
        ):
            return size
    return 0


def _products(nodes: Iterable[UOp]) -> list[UOp]:
    """Sums of products of two loads, or of values computed from loads."""
    reductions = [node for node in nodes if node.op is Ops.REDUCE and node.arg is Ops.ADD]
    return [
        each
        for each in reductions
        if trips_of(loops_of(each)) >= _LEAST_TERMS and _is_product(each.src[0])
    ]


def _is_product(value: UOp) -> bool:
    return below_casts(value).op is Ops.MUL


def _extent(loop: UOp) -> int:
    return int(loop.vmax) + 1


def _shares(reduction: UOp, row: UOp) -> bool:
    """Whether an operand of a product is invariant in `row`."""
    loads = moved_loads(reduction)
    return any(row in load.ranges for load in loads) and any(
        row not in load.ranges for load in loads
    )


def _shared_loads(reduction: UOp, around: set[UOp]) -> list[UOp]:
    """The loads of a product from global memory that are invariant in the rows."""
    loads = loads_of(reduction.src[0])
    return [
        load for load in loads if load.src[0].op is Ops.DEFINE_GLOBAL and not around <= load.ranges
    ]
