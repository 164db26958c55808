"""Unrolled loop bodies, for drivers that leave all loops of a lane after 65,535 iterations.

Mesa's lavapipe counts the iterations of all loops of a lane together, and goes on as if the loops
were done when there were 65,535: without an error, and with a wrong result. There the text repeats
the body of a loop, so that an iteration of the text is several of the program.

    before   for (var ridx0: i32 = 0i; ridx0 < 100000i; ridx0++) { BODY }
    after    for (var trip0: i32 = 0i; trip0 < 100000i; trip0 += 2i) {
               { let ridx0: i32 = trip0; BODY }
               { let ridx0: i32 = trip0 + 1i; BODY }
             }
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loops_of
from tilegrad.ir.uop import UOp
from tilegrad.render.wgsl_long import DIVISION_TRIPS

__all__ = ["repeated", "repetitions"]

_DIVISIONS = (Ops.IDIV, Ops.MOD)
# The most copies of a body, and the most instructions of all copies.
_MOST_COPIES, _MOST_TEXT = 256, 8192


def repetitions(program: Sequence[UOp], most: int) -> dict[UOp, int]:
    """How often the text repeats the body of each loop, so that a lane has `most` iterations.

    Raises CompileError where it would have to be too long.
    """
    loops: dict[UOp, tuple[UOp, ...]] = {}
    sizes: dict[UOp, int] = {}
    inside: dict[tuple[UOp, ...], int] = {}
    around: list[UOp] = []
    for node in program:
        if node.op is Ops.RANGE:
            around.append(node)
            loops[node], sizes[node] = tuple(around), 0
        elif node.op is Ops.END:
            for loop in loops_of(node):
                around.remove(loop)
        for loop in around:
            sizes[loop] += 1
        if node.op in _DIVISIONS and not all(map(_is_short, node.src)):
            inside[tuple(around)] = inside.get(tuple(around), 0) + DIVISION_TRIPS + 1

    copies = dict.fromkeys(loops, 1)

    def trips(path: Sequence[UOp]) -> int:
        return math.prod(-(-int(loop.extent.vmax) // copies[loop]) for loop in path)

    def total() -> int:
        divided = sum(
            count * math.prod(int(loop.extent.vmax) for loop in path)
            for path, count in inside.items()
        )
        # The test that ends a loop counts as well.
        return divided + sum(trips(path) + trips(path[:-1]) for path in loops.values())

    while total() > most:
        open_loops = [
            loop
            for loop, path in loops.items()
            if 2 * copies[loop] <= min(_MOST_COPIES, int(loop.extent.vmax))
            and 2 * sizes[loop] * math.prod(copies[each] for each in path) <= _MOST_TEXT
            and loop.dtype.itemsize == 4
        ]
        if not open_loops:
            raise CompileError(
                f"render: a lane of this kernel has {total()} iterations of its loops",
                limit=f"{most}, behind which this driver leaves loops without an error",
                remedy="use another device, or realize a part of what is reduced first",
            )
        # An inner loop before those around it: the text is shorter.
        worst = max(open_loops, key=lambda loop: (trips(loops[loop]), len(loops[loop])))
        copies[worst] *= 2
    return {loop: count for loop, count in copies.items() if count > 1}


def _is_short(value: UOp) -> bool:
    """Whether a number is divided by one instruction: its size has 32 bits."""
    return value.dtype.itemsize <= 4 or (value.vmin > -(1 << 32) and value.vmax < 1 << 32)


def repeated(loop: UOp, copies: int, body: Sequence[str], names: tuple[str, str, str]) -> list[str]:
    """The lines of a loop whose text has `copies` of the lines `body`. `names` are those of the
    loop's position, of the first position of an iteration of the text, and of the extent.
    """
    position, first, extent = names
    kind, suffix = ("u32", "u") if loop.dtype is dtypes.uint32 else ("i32", "i")
    ends_inside = loop.extent.op is not Ops.CONST or loop.extent.arg % copies
    lines = [
        f"for (var {first}: {kind} = 0{suffix}; {first} < {extent}; {first} += {copies}{suffix}) {{"
    ]
    for copy in range(copies):
        lines.append(f"  {{ let {position}: {kind} = {first} + {copy}{suffix};")
        if copy and ends_inside:
            lines.append(f"  if ({position} < {extent}) {{")
        lines += body
        lines.append("  } }" if copy and ends_inside else "  }")
    return [*lines, "}"]
