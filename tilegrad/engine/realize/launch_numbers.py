"""Which numbers of a graph are variables of its launches: those that change from run to run.

The first time, a graph is planned with the numbers that Python gave it, and its kernels know them.
When an equal graph comes with others, those that differ get variables, and one plan serves all
values. A variable of a launch is an integer: it holds the 32 bits of the float.

before   MUL(x, CONST 0.1)
after    MUL(x, BITCAST(CAST(_number0)))            and _number0 is 0x3dcccccd in this launch

Numbers that rules ask for stay as they are. An integer may be one that Python counts up, as in
`places <= step`, so 32 bits of these change too, also of an int64, if its value has no more; where
the sizes of a graph change with it, it may be one of them (`engine.realize.size_ranges`).
"""

from __future__ import annotations

import math
from struct import Struct

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "INDEXED", "as_shaping", "bits_of", "changing_bits", "is_index", "may_be_number", "may_change",
    "number_variable", "variable_name",
]  # fmt: skip

# Ops whose second source is an index. One that is a number shapes no code, whatever it is.
INDEXED = frozenset({Ops.GATHER, Ops.SCATTER_ADD})
_PREFIX = "_number"
# Numbers that shape code: x * 1, x + 0, 1 / x, and masks.
_SHAPING = frozenset({0.0, 1.0, -1.0})
# Those that shape the graph of a method too: x * 2, x**2 and x**0.5.
_SHAPING_METHODS = _SHAPING | {2.0, -2.0, 0.5, -0.5}
_SHAPING_INTS = frozenset({0, 1, -1})
_INTS = frozenset({dtypes.int32, dtypes.int64})
_FLOAT, _WORD = Struct("<f"), Struct("<I")


def may_change(node: UOp) -> bool:
    """Whether the value of the CONST `node` may be a variable of a launch."""
    value, dtype = node.arg, node.dtype
    if dtype is dtypes.float32:
        return value not in _SHAPING and math.isfinite(value)
    return dtype in _INTS and may_be_number(value)


def may_be_number(value: int) -> bool:
    """Whether an integer constant of this value may be a variable of a launch."""
    return value not in _SHAPING_INTS and -(1 << 31) <= value < 1 << 31


def is_index(node: UOp) -> bool:
    """Whether the index `node` is a number that may be a variable of a launch."""
    return node.op is Ops.CONST and node.dtype is dtypes.int32


def bits_of(node: UOp) -> int:
    """The bits of the constant `node`, a float32 or an integer, as a number."""
    if node.dtype in _INTS:
        return int(node.arg) & 0xFFFFFFFF
    found: int = _WORD.unpack(_FLOAT.pack(node.arg))[0]
    return found


def changing_bits(value: float, dtype: DType) -> int | None:
    """The bits of a constant of `dtype`, a float32 or an integer, that is made of `value`; None if
    that may not be a variable.
    """
    if dtype in _INTS:
        number = int(value)
        return number & 0xFFFFFFFF if may_be_number(number) else None
    try:
        packed = _FLOAT.pack(value)
    except OverflowError:
        return None
    (rounded,) = _FLOAT.unpack(packed)
    if rounded in _SHAPING_METHODS or not math.isfinite(rounded):
        return None
    bits: int = _WORD.unpack(packed)[0]
    return bits


def as_shaping(value: float) -> float:
    """The number that shapes code and that `value` is as a float32; else `value` itself."""
    try:
        (rounded,) = _FLOAT.unpack(_FLOAT.pack(value))
    except OverflowError:
        return value
    return float(rounded) if rounded in _SHAPING_METHODS else value


def variable_name(number: int) -> str:
    """The name of the variable for number `number`."""
    return f"{_PREFIX}{number}"


def number_variable(number: int, dtype: DType) -> UOp:
    """The node that replaces a constant of `dtype` that changes: variable number `number`."""
    word = UOp.variable(variable_name(number), 0, 2**32 - 1).cast(dtypes.uint32)
    if dtype is dtypes.int64:
        return UOp(Ops.BITCAST, dtypes.int32, (word,)).cast(dtype)
    return UOp(Ops.BITCAST, dtype, (word,))
