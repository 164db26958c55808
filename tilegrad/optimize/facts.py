"""What a list of Opts is chosen by: strides, sizes of copies, extents that divide."""

from __future__ import annotations

import math

from tilegrad.base.dtype import Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import stride_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.overlap import dimensions
from tilegrad.optimize.stage import operand_of

__all__ = [
    "ACCUMULATORS",
    "FEW_ROWS",
    "LONG",
    "PER_VECTOR",
    "ROWS",
    "WORTH_STAGING",
    "WORTH_THREADS",
    "has_functions",
    "heaviest",
    "is_known",
    "nbytes_of",
    "operand",
    "packed_bytes",
    "padded_to",
    "parameters_of",
    "power_below",
    "power_in",
    "steps_of",
    "stores",
    "stride",
]

# A launch over threads pays from about this many operations on.
WORTH_THREADS = 9 << 15
# Copies of operands pay from about this many on.
WORTH_STAGING = 1 << 18
# Accumulators and operands must stay in registers: this share of them may hold accumulators.
ACCUMULATORS = 3 / 4
# What a vector of results costs in a tile that is so many of them wide: of one alone, each element
# of the other operand is loaded for one multiply-add.
PER_VECTOR = {1: 1.35, 2: 1.0, 3: 1.03, 4: 1.0}
# How many rows a register tile may have, the best first.
ROWS = (8, 12, 10, 9, 7, 6, 11, 5, 4)
# One axis with fewer is joined by others.
FEW_ROWS = 4
# An axis that is so many times its parts is hardly longer for being padded to a multiple of them.
LONG = 16
# A symbolic extent of at most this many or more is taken for long.
_SYMBOLIC = 128


def heaviest(folds: list[UOp]) -> UOp | None:
    """The fold that does nearly all the work, if one does."""
    if not folds:
        return None
    work = {fold: steps_of(fold) for fold in folds}
    heavy = max(folds, key=work.__getitem__)
    return heavy if 8 * (sum(work.values()) - work[heavy]) <= work[heavy] else None


def steps_of(fold: UOp) -> int:
    """How many values a fold combines, over all its results."""
    loops = {*fold.ranges, *(part for part in fold.src[1:] if part.op is Ops.RANGE)}
    return int(prod(part.vmax + 1 for part in loops))


def stores(ast: UOp) -> list[UOp]:
    return [
        node
        for node in ast.toposort()
        if node.op is Ops.STORE and node.src[0].op is Ops.DEFINE_GLOBAL
    ]


def is_known(loop: UOp) -> bool:
    """Whether an extent is a number, or so large at most that its last vector hardly matters."""
    return loop.src[0].op is Ops.CONST or loop.vmax >= _SYMBOLIC


def operand(ast: UOp, name: int) -> UOp:
    found = operand_of(ast, name)
    assert found is not None
    return found


def parameters_of(value: UOp) -> set[int]:
    """The parameters that are loaded for a value."""
    loads = (node for node in value.toposort() if node.op is Ops.LOAD)
    return {load.src[0].arg for load in loads if load.src[0].op is Ops.DEFINE_GLOBAL}


stride = stride_of


def has_functions(value: UOp) -> bool:
    """Whether a polynomial is computed for `value`: an op dearer than a division of integers, the
    slowest that processors have an instruction for.
    """
    most = Ops.IDIV.definition.price
    return any(node.op.is_alu and node.op.definition.price > most for node in value.toposort())


def nbytes_of(loads: list[UOp]) -> int:
    """The size of the parameters that are loaded."""
    memories = {load.src[0].dtype for load in loads if isinstance(load.src[0].dtype, Pointer)}
    return sum(memory.size * memory.base.itemsize for memory in memories)


def packed_bytes(load: UOp, outside: list[UOp], tile: tuple[UOp, int] | None = None) -> int:
    """The size of a copy of what `load` reads inside the loops `outside`; of a loop that is tiled,
    `tile` is the loop and how much of it.
    """
    total = load.dtype.itemsize
    inner = sorted(load.ranges.difference(outside), key=lambda part: part.arg[0])
    for each in dimensions(load, inner):
        extent = each.extent
        if tile is not None and tile[0] in each.times:
            extent -= abs(each.times[tile[0]]) * int(tile[0].vmax + 1 - tile[1])
        total *= extent
    return total


def padded_to(extent: int, step: int) -> int:
    return -(-extent // step) * step


def power_below(extent: int) -> int:
    return 1 << (extent.bit_length() - 1)


def power_in(extent: UOp, most: int) -> int:
    """The largest power of two up to `most` that divides an extent."""
    return math.gcd(extent.arg, most) if extent.op is Ops.CONST else 1
