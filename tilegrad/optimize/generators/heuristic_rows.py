"""Reductions that lanes of a block share, on targets with blocks: sums, softmax, normalisation.

    rows      the reduced axis is contiguous: lanes take neighbouring vectors of it; a warp takes
              a row where rows are many and short, else a block
    columns   an output axis is contiguous: a warp of lanes follows it, others share the depth

A row that each lane holds few values of is unrolled. All reductions of it, and the loop that
stores, then read the same values, and these stay in registers from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import moved_loads, next_number, nodes_of, stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.generators.block_shaper import BlockShaper
from tilegrad.optimize.opts.group import is_second_stage
from tilegrad.optimize.opts.opt import OptOps, axes_of, reduce_axes
from tilegrad.target import Target

__all__ = [
    "FEW_RESULTS", "LITTLE", "SHORT", "WORTH_TILING", "divisor", "groups_for",
    "share_reductions", "share_scan",
]  # fmt: skip

# Tuning, worth shown by `bench/gpu.py`, reductions and rows.
# The number of results below which lanes share a reduction.
FEW_RESULTS = 8192
# Depths up to which a reduction is unrolled, and not shared by lanes: without and with an exchange
# of values between them.
SHORT, _SHORT_ROW = 32, 16
# Lanes share a reduction of columns that is this deep where one lane for each column would leave
# too few of them, and a shallower one where there are fewer results; with as many results, a tile
# of registers leaves enough lanes to keep a device busy.
_DEEP, WORTH_TILING = 64, 1024
# Values of a row that a lane holds in registers.
_IN_REGISTERS = 32
# The most vectors for each lane of a row that one warp reduces, and the fewest such rows.
_WARP_VECTORS, _MANY_ROWS = 8, 1024
# Vectors that a lane loads before it waits for the first.
_IN_FLIGHT = (4, 3, 5, 2)
# By how much padding may extend a row: where there are blocks enough, and where there are few.
LITTLE, _MUCH = 1.15, 1.5


def share_reductions(
    shaper: BlockShaper, reductions: Sequence[UOp], use_lanes: Callable[[int], None]
) -> bool:
    """Lanes of a block share the reductions, where outputs alone would not use the device well;
    False where they do not. `use_lanes(n)` gives at most n lanes to outputs.
    """
    target = shaper.target
    loops = list(dict.fromkeys(_longest(reduction) for reduction in reductions))
    known = [loop for loop in loops if loop is not None]
    if len(known) < len(loops):
        return False
    loads = [load for reduction in reductions for load in moved_loads(reduction)]
    results = trips_of(shaper.grid())
    depth = trips_of(reductions[0].src[1:])
    is_columns = any(stride_of(load.index, axis) == 1 for load in loads for axis in shaper.grid())
    if target.shuffle_lanes and not is_columns and _is_read_once(loads, shaper.grid()):
        if depth < _SHORT_ROW:
            return False
    elif depth <= SHORT or results * target.warp_lanes > depth * FEW_RESULTS:
        return False
    if not loads:
        return False
    if not is_columns:
        return _share_rows(shaper, known, results)
    amount = groups_for(known[0])
    if len(reductions) > 1 or not amount or results * _DEEP > depth * WORTH_TILING:
        return False
    columns = target.warp_lanes
    if min(load.dtype.itemsize for load in loads) >= 4:
        columns = _columns_of_a_block(results, target)
        amount = max(amount, _lanes_of_a_column(known[0], results, columns, target))
    use_lanes(columns)
    return shaper.apply(OptOps.GROUPTOP, known[0], amount)


def _lanes_of_a_column(loop: UOp, results: int, columns: int, target: Target) -> int:
    """The lanes that share each of `results` columns so that together they ask for enough bytes, as
    far as the depth is divisible; 0 where eight are enough.
    """
    warp = target.warp_lanes
    busy = 2 * target.busy_blocks * warp
    # Each loads twice before it waits for the last time.
    least = 2 * _IN_FLIGHT[0]
    fits = [
        lanes
        for lanes in (warp // 2, warp, 2 * warp)
        if _extent(loop) % (lanes * least) == 0 and lanes * columns <= target.block_lanes
    ]
    return next((lanes for lanes in fits if results * lanes >= busy), max(fits, default=0))


def _columns_of_a_block(results: int, target: Target) -> int:
    """Columns that the lanes of a block read side by side: a warp of them, or half of it where that
    would leave half of the multiprocessors without a block.
    """
    warp = target.warp_lanes
    return warp if results >= warp * target.multiprocessors // 2 else warp // 2


def _is_read_once(loads: Sequence[UOp], grid: Sequence[UOp]) -> bool:
    """Whether there is a load of one result each, or all of them have the same: no tile of results
    would use the largest operand again.
    """
    axes = {axis for axis in grid if axis.extent.arg > 1}
    return any(axes <= load.ranges for load in loads) or not any(
        axes & load.ranges for load in loads
    )


def _longest(reduction: UOp) -> UOp | None:
    """The axis of a reduction to share: the one along which most loads are contiguous."""
    loops = [axis for axis in reduction.src[1:] if axis.op is Ops.RANGE]
    if any(axis.extent.op is not Ops.CONST for axis in loops):
        return None
    loads = moved_loads(reduction)
    return max(loops, key=lambda axis: (_contiguous(loads, axis), axis.extent.arg))


def _share_rows(shaper: BlockShaper, loops: list[UOp], results: int) -> bool:
    """Lanes read neighbours of a row, each a vector, in every reduction and in the loop that
    stores.
    """
    target = shaper.target
    rows = [
        axis
        for axis in axes_of(shaper.ast)
        if axis.axis is Axis.LOOP
        and axis.extent.op is Ops.CONST
        and stride_of(shaper.store().src[1], axis) == 1
    ]
    width = next(
        (size for size in (target.memory_lanes, 2) if not any(_extent(x) % size for x in loops)), 1
    )
    if any(_extent(axis) % width for axis in rows):
        width = 1
    vectors = max(_extent(loop) for loop in loops) // width
    lanes = _lanes(vectors, width, results, target)
    if lanes < 2:
        return False
    before = shaper.ast
    loops = [_fitted(shaper, loop, lanes * width) for loop in loops]
    rows = [_fitted(shaper, axis, lanes * width) for axis in rows]
    if width > 1:
        loops = [shaper.move(OptOps.UNROLL, loop, width) or loop for loop in loops]
        rows = [shaper.move(OptOps.UPCAST, axis, width) or axis for axis in rows]
    shared = [_group(shaper, loop, lanes) for loop in loops]
    if not all(is_shared for is_shared, _ in shared):
        if any(is_shared for is_shared, _ in shared):
            return True
        shaper.ast = before
        return False
    own = [rest for _, rest in shared if rest is not None]
    _share_loads(shaper)
    _unroll(shaper, own, width, is_in_registers=len(loops) > 1 or bool(rows))
    if lanes <= target.shuffle_lanes:
        _share_block(shaper)
    return True


def _share_loads(shaper: BlockShaper) -> None:
    """Lanes that read a row of one factor for one of a few results read it for several of them, and
    two rows at a time.
    """
    firsts = [each for each in shaper.reductions() if not is_second_stage(each)]
    loads = moved_loads(firsts[0]) if len(firsts) == 1 else []
    if len(loads) != 2 or not shaper.target.shuffle_lanes:
        return
    for axis in shaper.grid():
        is_of_one = sum(axis in load.ranges for load in loads) == 1
        if not is_of_one or _extent(axis) >= shaper.target.warp_lanes:
            continue
        amount = divisor(axis, _IN_FLIGHT)
        if not amount and (padded := shaper.move(OptOps.PADTO, axis, _IN_FLIGHT[0])) is not None:
            axis, amount = padded, _IN_FLIGHT[0]
        if amount and shaper.move(OptOps.UPCAST, axis, amount) is not axis:
            many = [each for each in shaper.grid() if _extent(each) >= _MANY_ROWS]
            if many and _extent(many[-1]) % 2 == 0:
                shaper.move(OptOps.UPCAST, many[-1], 2)
        return


def _extent(loop: UOp) -> int:
    return int(loop.extent.arg)


def _lanes(vectors: int, width: int, rows: int, target: Target) -> int:
    """How many lanes share a row of `vectors` vectors."""
    warp = target.warp_lanes
    if target.shuffle_lanes and vectors <= warp:
        # Lanes without work cost less than neighbours that do not read neighbours.
        return 1 << (vectors - 1).bit_length()
    is_short = vectors <= _WARP_VECTORS * warp or vectors * width <= _IN_REGISTERS * warp
    if target.shuffle_lanes and is_short and rows >= _MANY_ROWS:
        return warp
    most = 256
    while most < target.block_lanes and vectors * width > _IN_REGISTERS * most:
        most *= 2
    most = min(most, target.block_lanes)
    whole = [size for size in range(most, warp - 1, -warp) if vectors % size == 0]
    if whole and 2 * whole[0] > min(most, vectors):
        return whole[0]
    least = warp if target.shuffle_lanes else 2
    sizes = [1 << power for power in range(10, 0, -1) if least <= 1 << power <= most]
    return _widest(sizes, vectors, LITTLE if rows >= _MANY_ROWS // 2 else _MUCH)


def _widest(sizes: Sequence[int], vectors: int, most: float) -> int:
    """The first of `sizes` that leaves few lanes without work, or the one that leaves fewest."""

    def waste(size: int) -> float:
        return -(-vectors // size) * size / vectors

    return next((size for size in sizes if waste(size) <= most), min(sizes, key=waste))


def _fitted(shaper: BlockShaper, loop: UOp, size: int) -> UOp:
    """`loop`, padded where `size` does not divide it."""
    return loop if _extent(loop) % size == 0 else shaper.move(OptOps.PADTO, loop, size) or loop


def _group(shaper: BlockShaper, loop: UOp, lanes: int) -> tuple[bool, UOp | None]:
    """Whether `lanes` share `loop` now, and the rest of it for each of them."""
    number = next_number(shaper.ast.toposort())
    if not shaper.apply(OptOps.GROUP, loop, lanes):
        return False, None
    return True, shaper.axis_numbered(number) if _extent(loop) > lanes else None


def _unroll(shaper: BlockShaper, own: Sequence[UOp], width: int, *, is_in_registers: bool) -> None:
    """Each lane's own slice of a row: all of it, where several stages read it and registers hold
    it, else several vectors of it. Where lanes met in shared memory, several of their results.
    """
    for axis in own:
        if is_in_registers and _extent(axis) * width <= _IN_REGISTERS:
            shaper.apply(OptOps.UNROLL, axis, 0)
        elif step := divisor(axis, _IN_FLIGHT):
            shaper.apply(OptOps.UNROLL, axis, step)
    if not shaper.target.shuffle_lanes:
        for axis in reduce_axes(shaper.ast):
            if axis.axis is Axis.REDUCE and _meets(shaper, axis):
                if step := divisor(axis, (16, 8, 4, 5, 3, 2)):
                    shaper.apply(OptOps.UNROLL, axis, step)
    for axis in axes_of(shaper.ast):
        if axis.axis is Axis.LOOP and axis.extent.op is Ops.CONST:
            is_row = (stride_of(shaper.store().src[1], axis) or 0) >= width
            if is_row and 1 < _extent(axis) * width <= _IN_REGISTERS:
                shaper.apply(OptOps.UPCAST, axis, 0)


def _meets(shaper: BlockShaper, loop: UOp) -> bool:
    """Whether `loop` runs over results of lanes in shared memory."""
    reductions = [reduction for reduction in shaper.reductions() if loop in reduction.src]
    return bool(reductions) and all(map(is_second_stage, reductions))


def _share_block(shaper: BlockShaper) -> None:
    """Several rows, of a warp or less each, are one block."""
    axes = sorted(shaper.grid(), key=_extent)
    if not axes:
        return
    taken = [axis for axis in axes_of(shaper.ast) if axis.axis is Axis.GROUP]
    lanes = int(prod(_extent(axis) for axis in taken))
    block = max(128 // lanes, 1)
    amount = divisor(axes[-1], [size for size in (32, 16, 8, 4, 2) if size <= block])
    if block > 1 and amount * lanes < 32:
        padded = shaper.move(OptOps.PADTO, axes[-1], block)
        if padded is not None:
            axes[-1], amount = padded, block
    if amount > 1:
        shaper.move(OptOps.LOCAL, axes[-1], amount)


def _contiguous(loads: Sequence[UOp], loop: UOp) -> int:
    return sum(stride_of(load.index, loop) == 1 for load in loads)


def divisor(loop: UOp, wanted: Iterable[int]) -> int:
    """The first of `wanted` that divides the extent, or 0."""
    return next((amount for amount in wanted if amount and _extent(loop) % amount == 0), 0)


def groups_for(loop: UOp) -> int:
    """The groups of lanes that share the sum of a column or of a register tile, or 0."""
    return divisor(loop, (8, 16, 4))


def share_scan(shaper: BlockShaper) -> bool:
    """A warp shares each row that a scan runs along; False where none does, or rows are short."""
    prefixes = nodes_of(shaper.ast, Ops.PREFIX)
    loops = {axis for prefix in prefixes for axis in prefix.src[1:]}
    warp = shaper.target.shuffle_lanes
    if len(loops) != 1 or not warp:
        return False
    (loop,) = loops
    loads = [load for prefix in prefixes for load in moved_loads(prefix)]
    if loop.extent.op is not Ops.CONST or loop.axis is not Axis.LOOP:
        return False
    if not loads or 2 * _contiguous(loads, loop) < len(loads) or _extent(loop) <= _SHORT_ROW:
        return False
    is_aligned = _extent(loop) % shaper.target.memory_lanes == 0
    width = shaper.target.memory_lanes if is_aligned and _extent(loop) > 2 * warp else 1
    before = shaper.ast
    loop = _fitted(shaper, loop, width * warp)
    if shaper.apply(OptOps.SCAN, loop, width):
        return True
    shaper.ast = before
    return False
