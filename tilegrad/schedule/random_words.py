"""Random words: threefry-2x32 with 20 rounds, as arithmetic on the element's position.

Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (2011). Word number w of a
stream is word w % 2 of the block that counter w // 2 gives. Seed and offset are launch-time
variables, so one kernel serves all draws; every lane counts by global position, so the split of the
work does not show.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import RandArg
from tilegrad.ir.uop import UOp

__all__ = ["random_variables", "random_word"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def random_variables(number: int) -> tuple[UOp, UOp, UOp]:
    """The launch-time variables of draw `number`: low and high word of the seed, and the offset."""
    words = [UOp.variable(f"seed{number}_{half}", 0, 2**32 - 1) for half in ("low", "high")]
    return words[0], words[1], UOp.variable(f"offset{number}", 0, 2**62)


def random_word(arg: RandArg, position: UOp) -> UOp:
    """The uint32 word of draw `arg` at the element `position`; in a normalised graph `arg.seed` is
    the draw's number.
    """
    low, high, offset = random_variables(arg.seed)
    position_in_stream = position + offset
    block = position_in_stream // 2
    keys = [low.cast(dtypes.uint32), high.cast(dtypes.uint32)]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    x0 = (block % 2**32).cast(dtypes.uint32) + keys[0]
    x1 = (block // 2**32).cast(dtypes.uint32) + keys[1]
    for step in range(5):
        for bits in _ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = ((x1 << bits) | (x1 >> (32 - bits))) ^ x0
        x0 = x0 + keys[(step + 1) % 3]
        x1 = x1 + keys[(step + 2) % 3] + (step + 1)
    return (position_in_stream % 2).eq(0).where(x0, x1)
