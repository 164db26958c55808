"""The remainder of floats by arithmetic that every target has: exact, and vectorized.

Let n be the quotient |x| / |y| without its fraction. Then |x| - n * |y| is a float, as it is a
multiple of the last bit of |y| and less than |y|. A fused multiply-add gives it exactly; so do
products with two halves of |y| that are exact. A rounded quotient is n or n + 1: then the remainder
is negative, and adding |y| once corrects it, again exactly.

n must have few bits. Where the quotient has more, multiples |y| * 2**(k * bits) are subtracted, the
largest k first, in a loop that all lanes share; it does not run where no lane needs it. A multiple
that overflows, or exceeds the lane's value, subtracts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.range_reduction import any_lane

__all__ = ["remainder"]


@dataclass(frozen=True)
class _QuotientSteps:
    """The steps for a dtype: `bits` of the quotient at a time, a multiple of 3; `most` steps do for
    any quotient; `mask` selects the bits of |y| whose product with n is exact.
    """

    bits: int
    most: int
    mask: int


# The largest quotient, of the largest by the least number, is 2**277 for float32 and 2**2098 for
# float64.
_FUSED = {4: _QuotientSteps(21, 15, 0), 8: _QuotientSteps(51, 43, 0)}
_SPLIT = {4: _QuotientSteps(9, 32, 0xFFFFF000), 8: _QuotientSteps(24, 89, 0xFFFFFFFFF8000000)}
# The steps that do for most quotients that need more than one.
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
    # Three products, as the whole factor would overflow.
    multiple = b * factor * factor * factor
    step = _step(rest, multiple, rest.alu(Ops.FDIV, multiple), steps)
    last = rest.after(UOp(Ops.ASSIGN, x.dtype, (rest, step)).end(loop))
    return (last.bitcast(kind) | (x.bitcast(kind) & sign)).bitcast(x.dtype)


def _loops_around(*values: UOp) -> tuple[UOp, ...]:
    found = frozenset[UOp]().union(*(value.ranges for value in values))
    return tuple(sorted(found, key=lambda loop: loop.number))


def _all(like: UOp, value: float) -> UOp:
    return UOp.const(like.dtype, value)


def _exceeds(quotient: UOp, bits: int) -> UOp:
    """Whether a quotient may have more than `bits` bits. Its rounding error is far below the
    margin.
    """
    return _all(quotient, 2.0**bits * 0.99) < quotient


def _power(step: UOp, steps: _QuotientSteps, dtype: DType) -> UOp:
    """2**(step * bits / 3), in every lane."""
    kind, digits, bias = (
        (dtypes.int64, 52, 1023) if dtype.itemsize == 8 else (dtypes.int32, 23, 127)
    )
    exponent = step.cast(kind) * (steps.bits // 3) + bias
    return (exponent << digits).bitcast(dtype.scalar).broadcast(dtype.lanes)


def _step(rest: UOp, by: UOp, quotient: UOp, steps: _QuotientSteps) -> UOp:
    """`rest` minus the multiples of `by` in it, for a quotient of at most `steps.bits` bits."""
    whole = quotient.alu(Ops.TRUNC)
    if steps.mask:
        left = _split_rest(rest, whole, by, steps.mask)
    else:
        left = UOp(Ops.MULACC, rest.dtype, (whole * -1.0, by, rest))
    right = (left < UOp.const(left.dtype, 0.0)).where(left + by, left)
    return whole.eq(0.0).where(rest, right)


def _split_rest(rest: UOp, whole: UOp, by: UOp, mask: int) -> UOp:
    """`rest` - `whole` * `by`, which is a float, without a fused multiply-add: `by` is split in
    two, and the error of the first difference is added at the end (Knuth's two-sum).
    """
    kind = (dtypes.uint64 if by.dtype.itemsize == 8 else dtypes.uint32).vec(by.dtype.lanes)
    high = (by.bitcast(kind) & mask).bitcast(by.dtype)
    first, second = whole * high, whole * (by - high)
    total = rest - first
    taken = rest - total
    error = (rest - (total + taken)) + (taken - first)
    return (total - second) + error
