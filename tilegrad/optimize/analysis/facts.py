"""Facts about kernels from which Opts are chosen: strides, sizes of copies, divisors of extents."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import iterations_of, loads_of, stores_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import StageOperand
from tilegrad.optimize.opts.overlap import dimensions
from tilegrad.optimize.opts.stage import operand_of

__all__ = [
    "COPIED", "FEW_ROWS", "LIGHT", "LONG", "OFTEN", "PER_VECTOR", "ROWS", "UNROLLED",
    "has_functions", "heaviest", "is_known", "is_mostly_used", "is_peeled", "loops_around",
    "operand", "packed_bytes", "padded_to", "parameters_of", "power_below", "power_in", "stores",
]  # fmt: skip

# Tuning, worth shown by `bench/corpus.py`, families products, convolutions and reductions.
# Relative cost of a vector of results, by the vectors that a tile is wide: with one alone, each
# element of the other operand is loaded for a single multiply-add.
PER_VECTOR = {1: 1.35, 2: 1.0, 3: 1.03, 4: 1.0}
# Rows of a register tile, the best number first.
ROWS = (8, 12, 10, 9, 7, 6, 11, 5, 4)
# An axis with fewer rows is joined by others.
FEW_ROWS = 4
# The fewest tiles of an axis that may be padded to whole tiles: it gets 1/16 longer at most.
LONG = 16
# The share of the work that is little: of the largest reduction's steps, below which others need no
# shape of their own, and padding of vectors.
LIGHT = 1 / 8
# The iterations up to which a loop is unrolled as a whole.
UNROLLED = 16
# Cost of an element that is copied to scratch, or stored without neighbours, in multiply-adds.
COPIED = 32
# Uses of an operand from which on it may be packed more than once; with fewer, it takes as long to
# arrive from memory as to be used.
OFTEN = 64


def loops_around(nodes: Collection[UOp], loops: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """By loop of a reduction, or of a nest that fills scratch: the loops in which its body runs.
    They are the loops of its results and its own, those of `loops`, outermost first, in which these
    run, and none of those in which only later work runs.
    """
    depth = {loop: at for at, loop in enumerate(loops) if loop.axis is not Axis.REDUCE}
    outside = {loop: frozenset[UOp]() for loop in depth}
    for ranges in {node.ranges for node in nodes}:
        nested = sorted(ranges.intersection(depth), key=depth.__getitem__)
        for at, loop in enumerate(nested):
            outside[loop] = outside[loop].union(nested[:at])
    for loop in depth:
        outside[loop] = outside[loop].union(*(outside[each] for each in outside[loop]))
    around: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        for loop in node.src[1:] if node.op in (Ops.REDUCE, Ops.END) else ():
            own = node.ranges.union(node.src[1:])
            own = own.union(*(outside[each] for each in own if each in outside))
            around[loop] = around.get(loop, frozenset()) | own
    return around


def heaviest(reduces: list[UOp]) -> UOp | None:
    """The reduction that does nearly all the work, if there is one."""
    if not reduces:
        return None
    work = {reduce: iterations_of(reduce) for reduce in reduces}
    heavy = max(reduces, key=work.__getitem__)
    return heavy if sum(work.values()) - work[heavy] <= LIGHT * work[heavy] else None


def stores(ast: UOp) -> list[UOp]:
    return [node for node in stores_of(ast) if node.src[0].op is Ops.DEFINE_GLOBAL]


def is_known(loop: UOp) -> bool:
    """Whether an extent is a number, or its bound so large that the last vector hardly counts."""
    return loop.extent.op is Ops.CONST or loop.vmax >= LONG


def operand(ast: UOp, name: StageOperand) -> UOp:
    found = operand_of(ast, name)
    assert found is not None
    return found


def parameters_of(value: UOp) -> set[int]:
    """The parameters that are loaded for a value."""
    loads = loads_of(value)
    return {load.src[0].arg for load in loads if load.src[0].op is Ops.DEFINE_GLOBAL}


def has_functions(value: UOp, loop: UOp | None = None) -> bool:
    """Whether `value` needs an op that is computed by a polynomial: one with a higher price than a
    division of integers, which is the slowest instruction. With a `loop`, an op that runs in it.
    """
    most = Ops.IDIV.definition.price
    found = (node for node in value.toposort() if loop is None or loop in node.ranges)
    return any(node.op.is_alu and node.op.definition.price > most for node in found)


def packed_bytes(load: UOp, outside: list[UOp], tile: tuple[UOp, int] | None = None) -> int:
    """Bytes of a packed copy of the elements that `load` reads inside the loops `outside`; `tile`
    is a loop that is tiled, and the iterations of one tile.
    """
    total = load.dtype.itemsize
    inner = sorted(load.ranges.difference(outside), key=lambda loop: loop.number)
    for each in dimensions(load, inner):
        extent = each.extent
        if tile is not None and tile[0] in each.times:
            extent -= abs(each.times[tile[0]]) * int(tile[0].vmax + 1 - tile[1])
        total *= extent
    return total


def padded_to(extent: int, step: int) -> int:
    return -(-extent // step) * step


def is_peeled(extent: int, amount: int) -> bool:
    """Whether a loop over an axis of `extent`, `amount` of it in an iteration, is long enough for
    its last iteration to be peeled (lower.peel): the others know no padding.
    """
    return padded_to(extent, amount) >= 3 * amount


def is_mostly_used(extent: int, step: int) -> bool:
    """Whether little of an axis of `extent` is padding where it is as long as whole steps."""
    return extent > (1 - LIGHT) * padded_to(extent, step)


def power_below(extent: int) -> int:
    return 1 << (extent.bit_length() - 1)


def power_in(extent: UOp, most: int) -> int:
    """The largest power of two up to `most` that divides an extent."""
    return math.gcd(extent.arg, most) if extent.op is Ops.CONST else 1
