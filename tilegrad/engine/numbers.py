"""Which numbers of a graph are variables of its launches: those that change from run to run.

The first time, a graph is planned with the numbers that Python gave it, and its kernels know them.
When an equal graph comes with others, those that differ get variables, and one plan serves all
values. A variable of a launch is an integer: it holds the 32 bits of the float.

before   MUL(x, CONST 0.1)
after    MUL(x, BITCAST(CAST(_number0)))            and _number0 is 0x3dcccccd in this launch

Numbers that rules ask for stay as they are, and so do integers, which may be sizes and positions.
"""

from __future__ import annotations

import math
from struct import Struct

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["bits_of", "may_change", "number_variable", "variable_name"]

_PREFIX = "_number"
# Numbers that shape code: x * 1, x + 0, x * 2, 1 / x, and masks.
_SHAPING = frozenset({0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5})
_FLOAT, _WORD = Struct("<f"), Struct("<I")


def may_change(node: UOp) -> bool:
    """Whether the value of the CONST `node` may be a variable of a launch."""
    value = node.arg
    return node.dtype is dtypes.float32 and value not in _SHAPING and math.isfinite(value)


def bits_of(value: float) -> int:
    """The bits of a float32, as a number."""
    found: int = _WORD.unpack(_FLOAT.pack(value))[0]
    return found


def variable_name(number: int) -> str:
    """The name of the variable for number `number`."""
    return f"{_PREFIX}{number}"


def number_variable(number: int) -> UOp:
    """What stands for a constant that is number `number` of those that change."""
    word = UOp.variable(variable_name(number), 0, 2**32 - 1).cast(dtypes.uint32)
    return UOp(Ops.BITCAST, dtypes.float32, (word,))
