"""The remainder of floats by arithmetic that every target has: exact, and in whole vectors.

Where n is the quotient |x| / |y| without its fraction, |x| - n * |y| is a float: it is a multiple
of the last place of |y|, and less than |y|. So it comes out exact where a fused multiply-add gives
it, or where |y| is split into halves whose products with n are exact. A rounded quotient is n, or
one more: then the remainder is negative, and adding |y| once makes it right, again exactly.

n must have few bits. Where the quotient has more, multiples |y| * 2**(k * bits) are taken away, the
largest k first, in a loop whose iterations all lanes share and that does not run where no lane
needs it. A multiple that overflows, or is more than the lane has, takes away nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.turns import any_lane

__all__ = ["remainder"]


@dataclass(frozen=True)
class _Steps:
    """How a dtype is stepped through: `bits` of the quotient at a time, a multiple of 3; `most`
    steps take any quotient; `kept` are the bits of |y| whose product with n is exact, as a mask.
    """

    bits: int
    most: int
    kept: int


# The largest quotient is 2**277 of float32, 2**2098 of float64: the largest by the least number.
_FUSED = {4: _Steps(21, 15, 0), 8: _Steps(51, 43, 0)}
_SPLIT = {4: _Steps(9, 32, 0xFFFFF000), 8: _Steps(24, 89, 0xFFFFFFFFF8000000)}
# Steps that most quotients which need more than one are content with.
_FEW = 4


def remainder(x: UOp, y: UOp, number: int, has_fma: bool) -> UOp:
    """C's fmod of float32 or float64, with the sign of x.

    before   FMOD(x, y)
    after    rest = is_far ? |x| : step(|x|, |y|)
             for (k = 0; k < (any is_far ? steps : 0); k++) rest = step(rest, |y| * 2**(...))
             rest with the sign of x

    `number` is that of the loop and of its accumulator.
    """
    steps = (_FUSED if has_fma else _SPLIT)[x.dtype.itemsize]
    kind = (dtypes.uint64 if x.dtype.itemsize == 8 else dtypes.uint32).vec(x.dtype.lanes)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    a, b = ((side.bitcast(kind) & (sign - 1)).bitcast(x.dtype) for side in (x, y))
    quotient = a.alu(Ops.FDIV, b)
    is_far = _exceeds(quotient, steps.bits) & (a < _all(a, float("inf"))) & (_all(b, 0.0) < b)
    first = is_far.where(a, _step(a, b, quotient, steps))
    rest = UOp(Ops.DEFINE_ACC, x.dtype, (first, *_loops_around(first)), number)
    is_further = is_far & _exceeds(quotient, steps.bits * _FEW)
    few, most, none = (UOp.const(dtypes.int32, count) for count in (_FEW, steps.most, 0))
    count = any_lane(is_far).where(any_lane(is_further).where(most, few), none)
    loop = UOp(Ops.RANGE, dtypes.int32, (count,), (number, Axis.LOOP))
    factor = _power(count - 1 - loop, steps, x.dtype)
    # In three products, as the whole factor is no float.
    multiple = b * factor * factor * factor
    step = _step(rest, multiple, rest.alu(Ops.FDIV, multiple), steps)
    last = rest.after(UOp(Ops.ASSIGN, x.dtype, (rest, step)).end(loop))
    return (last.bitcast(kind) | (x.bitcast(kind) & sign)).bitcast(x.dtype)


def _loops_around(*values: UOp) -> tuple[UOp, ...]:
    found = frozenset[UOp]().union(*(value.ranges for value in values))
    return tuple(sorted(found, key=lambda loop: loop.arg[0]))


def _all(like: UOp, value: float) -> UOp:
    return UOp.const(like.dtype, value)


def _exceeds(quotient: UOp, bits: int) -> UOp:
    """Whether a quotient may have more than `bits` bits; it is rounded by a little at most."""
    return _all(quotient, 2.0**bits * 0.99) < quotient


def _power(step: UOp, steps: _Steps, dtype: DType) -> UOp:
    """2**(step * bits / 3), in every lane."""
    kind, digits, bias = (
        (dtypes.int64, 52, 1023) if dtype.itemsize == 8 else (dtypes.int32, 23, 127)
    )
    exponent = step.cast(kind) * (steps.bits // 3) + bias
    return (exponent << digits).bitcast(dtype.scalar).broadcast(dtype.lanes)


def _step(rest: UOp, by: UOp, quotient: UOp, steps: _Steps) -> UOp:
    """`rest` less the whole multiples of `by` in it, where the quotient has at most `steps.bits`
    bits.
    """
    whole = quotient.alu(Ops.TRUNC)
    if steps.kept:
        left = _split_rest(rest, whole, by, steps.kept)
    else:
        left = UOp(Ops.MULACC, rest.dtype, (whole * -1.0, by, rest))
    right = (left < UOp.const(left.dtype, 0.0)).where(left + by, left)
    return whole.eq(0.0).where(rest, right)


def _split_rest(rest: UOp, whole: UOp, by: UOp, kept: int) -> UOp:
    """`rest` - `whole` * `by`, which is a float, without a fused multiply-add: `by` in two parts,
    and the error of the first difference added at the end (Knuth's two-sum).
    """
    kind = (dtypes.uint64 if by.dtype.itemsize == 8 else dtypes.uint32).vec(by.dtype.lanes)
    high = (by.bitcast(kind) & kept).bitcast(by.dtype)
    first, second = whole * high, whole * (by - high)
    total = rest - first
    taken = rest - total
    error = (rest - (total + taken)) + (taken - first)
    return (total - second) + error
