"""Values that a kernel materialises in scratch, a few rows at a time: a product between two others.

A value whose axes are output ranges of the one kernel that reads it is inlined by that proof alone
(inlining.py). One that is read over a whole axis again, as the scores of a row are by a softmax and
a second product, can be inlined as well: each row of it lives in scratch, between the loop nest
that fills it and those that read it, and is computed once all the same.

Bytes decide whether that pays. Values invariant in the rows (a matrix) are read again for every few
of them, so they must fit the second cache together with the rows in scratch; and the reductions
that do the work must use them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    below_casts,
    bytes_of,
    iterations_of,
    loads_of,
    loops_of,
    moved_loads,
    trips_of,
)
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.cost import WORTH_A_KERNEL, elements, nbytes
from tilegrad.schedule.online_reductions import Row, longest_row, reduce_online
from tilegrad.target import OTHER_REGISTERS, TILES, Target

__all__ = [
    "ScratchAxes",
    "find_scratch_axes",
    "is_worth_materialising",
    "is_worth_slicing",
    "shared_axes",
    "slice_of_block",
    "slice_rows",
]

# Tuning, worth shown by `bench/corpus.py`, family attention.
# Rows that are computed at once; their common operand is packed, which pays where four times as
# many use it.
_ROWS = 8
# Bytes that all rows read, as a multiple of the second cache, up to which the last cache delivers
# them in time for a tile of eight rows. The scratch of some rows may take half of the second cache.
_PASSED_OVER = 2
# The share of time that reductions lose as they read whole matrices, not panels of these; and the
# cycles to pack an element, which each chunk of rows does for itself.
_LOST = 0.045
_PACKED = 2.5
# Size of a value, as a multiple of the last cache and of the kernel's results, from which it is in
# scratch even where a dot unit would multiply it in a kernel of its own, in less time.
_HUGE = 16
# The share of the largest reduction's iterations below which another needs no tile of registers.
_LIGHT = 1 / 16


class ScratchAxes(NamedTuple):
    """Axes of a value in scratch: `shared` are those that are output ranges of the kernel, which
    are `outer`.
    """

    shared: tuple[int, ...]
    outer: tuple[UOp, ...]


def shared_axes(uses: Sequence[tuple[UOp, ...]], outputs: Sequence[UOp]) -> tuple[int, ...]:
    """The axes of a value whose index is the same one of the `outputs` in all `uses`."""
    return tuple(
        axis
        for axis, position in enumerate(uses[0])
        if position in outputs and all(index[axis] is position for index in uses)
    )


def find_scratch_axes(
    value: UOp, uses: Sequence[tuple[UOp, ...]], outputs: Sequence[UOp]
) -> ScratchAxes | None:
    """The axes that `value`, read at `uses`, shares with a kernel with the output ranges `outputs`
    if it is in scratch there; None where some of it would be computed more than once.
    """
    if not uses:
        return None
    shared = shared_axes(uses, outputs)
    inner = [axis for axis in range(len(value.shape)) if axis not in shared]
    if any(index[axis].op not in (Ops.RANGE, Ops.CONST) for index in uses for axis in inner):
        return None
    outer = tuple(uses[0][axis] for axis in shared if uses[0][axis].op is Ops.RANGE)
    if not outer or len(set(outer)) != len(outer):
        return None
    return ScratchAxes(shared, outer)


def is_worth_materialising(
    value: UOp,
    element: UOp,
    axes: ScratchAxes,
    inlinable: Set[int],
    target: Target,
    *,
    is_long: bool,
) -> bool:
    """Whether a kernel that stores `element`, with `value` in its scratch, takes less time than one
    that reads it from memory, with a second kernel that writes it. `inlinable` are the parameters
    that may still be inlined; `is_long` says that rows are processed in slices that fit.
    """
    if target.has_locals:
        return is_long and is_worth_slicing(element, axes.outer, target)
    if not target.has_vectors or len(target.cache_bytes) < 2:
        return False
    nodes = element.toposort()
    reductions = _heavy([node for node in nodes if node.op is Ops.REDUCE])
    in_scratch = sum(bytes_of(node) for node in nodes if node.op is Ops.DEFINE_LOCAL)
    second = _second(target)
    if not reductions or any(n.op is Ops.PREFIX for n in nodes):
        return False
    if 2 * _ROWS * in_scratch > second and not is_long:
        return False
    is_huge = nbytes(value) > _HUGE * max(target.cache_bytes[-1], _nbytes(element))
    if not is_huge and any(_has_dot_unit(reduction, target) for reduction in reductions):
        return False
    if not _is_filled_contiguously(nodes):
        return False
    saved = 2 * nbytes(value) * _byte_cycles(nbytes(value), target) + _masked(value, target)
    row_bytes = _in_rows(element, reductions, axes, inlinable)
    for row in axes.outer:
        invariant = [_invariant_loads(reduction, row, target) for reduction in reductions]
        if row.vmax + 1 < 4 * _ROWS or not all(invariant):
            continue
        passed = {load: _reach(load, axes.outer) for found in invariant for load in found}
        apart = trips_of(axes.outer) // (row.vmax + 1)
        chunks = target.threads if apart < target.threads // 2 else 1
        steps = sum(iterations_of(each) / (2 * target.lanes_of(each.dtype)) for each in reductions)
        packed = _PACKED * (chunks - 1) * sum(passed.values())
        lost = _LOST * steps + packed + row_bytes * _byte_cycles(row_bytes, target)
        nearer = sum(count * load.dtype.itemsize for load, count in passed.items())
        if (nearer <= _PASSED_OVER * second or is_long) and saved > lost:
            return True
    return False


def slice_rows(ast: UOp, target: Target) -> UOp | None:
    """The kernel `ast` with its rows in slices that fit; None where they fit as a whole, or where
    they cannot be sliced.
    """
    if not target.has_locals and (not target.has_vectors or len(target.cache_bytes) < 2):
        return None
    row = longest_row(ast)
    if row is None:
        return None
    if target.has_locals:
        size = slice_of_block(ast, row, target)
        return reduce_online(ast, row, size, target) if size else None
    second = _second(target)
    around = {loop for memory in row.memories for loop in memory.src}
    # Loads that all rows repeat, for each position in the row.
    passed = {
        node for node in loads_of(ast) if node.ranges & row.ranges and not around <= node.ranges
    }
    each = sum(trips_of(load.ranges - around - row.ranges) * load.dtype.itemsize for load in passed)
    rows = _ROWS * row.nbytes
    if 2 * row.length * rows <= second and row.length * each <= _PASSED_OVER * second:
        return None
    most = min(second // (2 * rows), second // max(each, 1))
    # Slices of two lines of memory; with fewer than two of these, correcting the sums of each costs
    # more than it saves.
    step = 2 * target.line_bytes // dtypes.float32.itemsize
    if most < 2 * step:
        return None
    # Equal slices of whole lines, if there are such, else the last one is shorter.
    equal = (size for size in range(most, most // 2, -1) if row.length % size == 0)
    count = -(-row.length // most)
    size = next((size for size in equal if size % step == 0), 0)
    size = size or min(-(-row.length // (count * step)) * step, most)
    return reduce_online(ast, row, size, target)


def _second(target: Target) -> int:
    """Bytes of the second cache that scratch may use; scratch is on a thread's stack."""
    return min(target.cache_bytes[1], target.scratch_bytes // 2)


def _byte_cycles(nbytes: int, target: Target) -> float:
    """Cycles per byte of a value of `nbytes`, beyond those of one in the nearest cache."""
    return target.timing.byte[target.level_of(nbytes)] - target.timing.byte[0]


def _masked(value: UOp, target: Target) -> float:
    """Cycles to store `value` by rows that vectors do not divide, beyond those of whole vectors:
    rows in scratch are padded.
    """
    length = value.shape[-1]
    extent = length if isinstance(length, int) else int(length.vmax)
    is_whole = not target.has_mask or extent % target.lanes_of(value.dtype) == 0
    return 0.0 if is_whole else elements(value) / extent * (target.timing.masked_store - 1.0)


def _in_rows(element: UOp, reductions: list[UOp], axes: ScratchAxes, inlinable: Set[int]) -> int:
    """Bytes of whole rows that are read or stored outside of `reductions`; reductions have tiles
    for theirs.
    """
    found: dict[int, int] = {}
    for node in toposort([element], stop=lambda node: node in reductions):
        if node.op is Ops.LOAD and node.src[0].op is Ops.DEFINE_GLOBAL:
            number = node.src[0].arg
            if number not in inlinable and node.ranges.issuperset(axes.outer):
                found[number] = max(found.get(number, 0), _nbytes(node))
    inner = element.ranges.difference(axes.outer)
    is_tiled = any(inner & reduction.ranges for reduction in reductions)
    return sum(found.values()) + (0 if is_tiled or not inner else _nbytes(element))


def _nbytes(element: UOp) -> int:
    """Bytes of the values that `element` has in all iterations of its ranges."""
    return trips_of(element.ranges) * element.dtype.itemsize


def _heavy(reductions: list[UOp]) -> list[UOp]:
    """The reductions that do most of the work, if it is enough for a tile."""
    steps = {reduction: iterations_of(reduction) for reduction in reductions}
    most = max(steps.values(), default=0)
    if most < WORTH_A_KERNEL:
        return []
    return [reduction for reduction in reductions if steps[reduction] > most * _LIGHT]


def _invariant_loads(reduction: UOp, row: UOp, target: Target) -> list[UOp]:
    """The loads that a tile of `row` by lanes of another range does once for all its rows; none
    where the reduction has no such tile.
    """
    loads = moved_loads(reduction)
    varying = [load for load in loads if row in load.ranges]
    invariant = [load for load in loads if row not in load.ranges]
    lanes = target.lanes_of(reduction.dtype)
    for loop in reduction.ranges:
        if (
            loop is not row
            and loop.axis is Axis.LOOP
            and loop.vmax + 1 >= lanes
            and varying
            and all(loop in load.ranges for load in invariant)
            and not any(loop in load.ranges for load in varying)
        ):
            return invariant
    return []


def _reach(load: UOp, outer: Iterable[UOp]) -> int:
    """Elements that are loaded within one iteration of the ranges `outer`."""
    return trips_of(load.ranges.difference(outer))


def _has_dot_unit(reduction: UOp, target: Target) -> bool:
    """Whether a dot unit serves the reduction, which needs a kernel for itself then."""
    units = [unit for unit in target.matrix_units if unit.is_dot]
    shorts = {unit.dtype_in for unit in units} | {unit.dtype_right for unit in units}
    return any(node.op is Ops.LOAD and node.dtype in shorts for node in reduction.src[0].toposort())


def _is_filled_contiguously(nodes: Iterable[UOp]) -> bool:
    """Whether each value in scratch that is no reduction is loaded contiguously."""
    for node in nodes:
        if node.op is not Ops.END or node.src[0].op is not Ops.STORE:
            continue
        value, own = node.src[0].value, set(node.src[1:])
        loads = loads_of(value)
        if any(each.op is Ops.REDUCE and own & each.ranges for each in value.toposort()):
            continue
        last = node.src[-1]
        for load in loads:
            terms = terms_of(load.index)
            if last in load.index.ranges and (terms is None or terms[0].get(last) != 1):
                return False
    return True


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
# Lanes that share a row (optimize.generators.heuristic_slices).
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

    Rows between two products on targets with blocks: a block has slices of some rows in shared
    memory, as scores of attention, so that no row is ever stored to global memory.

    Operands that all rows read (keys, values) are copied to shared memory slice by slice, for all
    rows of the block; optimize.opts.shared_slices assigns the lanes. This is worth it where enough
    rows share each copy, and where both products are large beside the work on a row.
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
