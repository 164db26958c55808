"""Which numbers of a graph are variables of its launches: those that change from run to run.

The first time, a graph is planned with the numbers that Python gave it, and its kernels know them.
When an equal graph comes with others, those that differ get variables, and one plan serves all
values. A variable of a launch is an integer: it holds the 32 bits of the float.

before   MUL(x, CONST 0.1)
after    MUL(x, BITCAST(CAST(_number0)))            and _number0 is 0x3dcccccd in this launch

Numbers that rules ask for stay as they are. An integer may be one that Python counts up, as in
`places <= step`, so 32 bits of these change too; where the sizes of a graph change with it, it may
be one of them (`engine.realize.sized`).
"""

from __future__ import annotations

import math
from struct import Struct

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["bits_of", "may_change", "number_variable", "variable_name"]

_PREFIX = "_number"
# Numbers that shape code: x * 1, x + 0, x * 2, 1 / x, and masks.
_SHAPING = frozenset({0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5})
_SHAPING_INTS = frozenset({0, 1, -1})
_FLOAT, _WORD = Struct("<f"), Struct("<I")


def may_change(node: UOp) -> bool:
    """Whether the value of the CONST `node` may be a variable of a launch."""
    value, dtype = node.arg, node.dtype
    if dtype is dtypes.float32:
        return value not in _SHAPING and math.isfinite(value)
    return dtype is dtypes.int32 and value not in _SHAPING_INTS


def bits_of(node: UOp) -> int:
    """The bits of the constant `node`, a float32 or an int32, as a number."""
    if node.dtype is dtypes.int32:
        return int(node.arg) & 0xFFFFFFFF
    found: int = _WORD.unpack(_FLOAT.pack(node.arg))[0]
    return found


def variable_name(number: int) -> str:
    """The name of the variable for number `number`."""
    return f"{_PREFIX}{number}"


def number_variable(number: int, dtype: DType) -> UOp:
    """What stands for a constant of `dtype` that is number `number` of those that change."""
    word = UOp.variable(variable_name(number), 0, 2**32 - 1).cast(dtypes.uint32)
    return UOp(Ops.BITCAST, dtype, (word,))
