"""Rules for `//` and `%` of index expressions, and for comparing them with constants.

Division rounds toward minus infinity, so a multiple of the divisor can always be taken out,
whatever the sign of the rest. Where the rest is known to lie within one multiple, it vanishes from
the quotient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat, fold
from tilegrad.ir.rules.sums import difference_of, from_terms, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["COMPARISONS", "DIVISION"]

x, y = UPat.wilds("x y", dtype=dtypes.index)
c0, c1, c2 = UPat.constants("c0 c1 c2")

DIVISION = PatternMatcher("division", [
    Rule("div-one",          x // 1,                 x),
    Rule("div-twice",        (x // c0) // c1,        x // fold(c0 * c1),           when=lambda c0, c1: c0 > 0 and c1 > 0),
    Rule("mod-in-range",     x % c0,                 x,                            when=lambda x, c0: 0 <= x.vmin and x.vmax < c0),
    Rule("mod-twice",        (x % c0) % c1,          x % c1,                       when=lambda c0, c1: c0 > 0 and c1 > 0 and c0 % c1 == 0),
    Rule("div-of-mod",       (x % c0) // c1,         (x // c1) % fold(c0 // c1),   when=lambda c0, c1: c0 > 0 and c1 > 0 and c0 % c1 == 0),
])  # fmt: skip


def _positive(node: UOp) -> int | None:
    return node.arg if node.op is Ops.CONST and node.arg > 0 else None


def _by_common_factor(
    terms: Mapping[UOp, int], constant: int, total: UOp, divisor: int
) -> tuple[int, UOp, UOp] | None:
    """A sum as common * quotient + remainder, where 0 <= remainder < common, for the largest common
    factor of the divisor and a coefficient for which that is known. None if there is none.
    """
    for common in sorted({math.gcd(scale, divisor) for scale in terms.values()}, reverse=True):
        if common == 1:
            continue
        small = {factor: scale for factor, scale in terms.items() if scale % common}
        rest = from_terms(small.items(), constant, total)
        step = int(rest.vmin // common)
        if step == rest.vmax // common:
            large = {
                factor: scale // common for factor, scale in terms.items() if factor not in small
            }
            remainder = from_terms(small.items(), constant - step * common, total)
            return common, from_terms(large.items(), step, total), remainder
    return None


@DIVISION.rule(
    "div-sum",
    UPat(Ops.FLOORDIV, dtype=dtypes.index, src=(UPat(name="total"), UPat(Ops.CONST, name="by"))),
)
def div_sum(total: UOp, by: UOp) -> UOp | None:
    """Multiples of the divisor leave the quotient; a common factor cancels where the rest stays within one step of it.

    before   (i*8 + j*4 + k) // 16       4 <= k < 8
    after    (i*2 + j + 1) // 4
    """
    divisor = _positive(by)
    found = terms_of(total) if divisor is not None else None
    if found is None or divisor is None:
        return None
    terms, constant = found
    outside = {factor: _toward_zero(scale, divisor) for factor, scale in terms.items()}
    taken = constant // divisor
    if taken or any(outside.values()):
        rest = {factor: scale - outside[factor] * divisor for factor, scale in terms.items()}
        whole = from_terms(outside.items(), taken, total)
        inside = from_terms(rest.items(), constant - taken * divisor, total)
        return whole if inside.op is Ops.CONST else whole + inside // divisor
    split = _by_common_factor(terms, constant, total, divisor)
    if split is None:
        return None
    common, inner, _ = split
    return inner if divisor == common else inner // (divisor // common)


@DIVISION.rule(
    "mod-sum",
    UPat(Ops.FLOORMOD, dtype=dtypes.index, src=(UPat(name="total"), UPat(Ops.CONST, name="by"))),
)
def mod_sum(total: UOp, by: UOp) -> UOp | None:
    """Multiples of the divisor vanish; a factor comes out where the rest is smaller than it; so
    does the division, where coefficients of the other sign show that nothing is to divide.

    before   (i*8 + j*2 + k) % 8         0 <= k < 2
    after    (j % 4)*2 + k

    before   (i*4 + j + 2) % 5           0 <= i, j < 3
    after    j - i + 2
    """
    divisor = _positive(by)
    found = terms_of(total) if divisor is not None else None
    if found is None or divisor is None:
        return None
    terms, constant = found
    reduced = {factor: _nearest(scale, divisor) for factor, scale in terms.items()}
    if constant % divisor != constant or any(
        reduced[factor] != scale for factor, scale in terms.items()
    ):
        rest = from_terms(reduced.items(), constant % divisor, total)
        return (
            rest % divisor
            if rest.op is not Ops.CONST
            else UOp.const(total.dtype, rest.arg % divisor)
        )
    if total.vmin // divisor == total.vmax // divisor:
        return total - int(total.vmin // divisor) * divisor
    signed = {factor: _smallest(scale, divisor) for factor, scale in terms.items()}
    # By a power of two it is one instruction; and a swizzled address has no negative part.
    if signed != terms and divisor & (divisor - 1):
        alike = from_terms(signed.items(), constant, total)
        if alike.vmin // divisor == alike.vmax // divisor:
            return alike - int(alike.vmin // divisor) * divisor
    split = _by_common_factor(terms, constant, total, divisor)
    if split is None:
        return None
    common, inner, remainder = split
    return remainder if divisor == common else inner % (divisor // common) * common + remainder


def _toward_zero(scale: int, divisor: int) -> int:
    """How often `divisor` goes into the coefficient `scale`, rounded toward zero."""
    return scale // divisor if scale >= 0 else -(-scale // divisor)


def _nearest(scale: int, divisor: int) -> int:
    """`scale` modulo `divisor`; a small negative one stays, as its term would only grow."""
    return scale if -divisor < scale < divisor else scale % divisor


def _smallest(scale: int, divisor: int) -> int:
    """The number nearest to 0 that is congruent to `scale` modulo `divisor`."""
    return (scale + divisor // 2) % divisor - divisor // 2


COMPARISONS = PatternMatcher("comparisons", [
    Rule("move-const-lt",    (x + c0) < c1,          x < fold(c1 - c0)),
    Rule("move-const-eq",    (x + c0).eq(c1),        x.eq(fold(c1 - c0))),
    Rule("move-const-ne",    (x + c0).ne(c1),        x.ne(fold(c1 - c0))),
    Rule("lt-itself",        x < x,                  False),
    Rule("eq-factor",        (x * c0).eq(c1),        x.eq(fold(c1 // c0)),         when=lambda c0, c1: c0 != 0 and c1 % c0 == 0),
    Rule("div-lt",           (x // c0) < c1,         x < fold(c0 * c1),            when=lambda c0: c0 > 0),
    Rule("div-ge",           UPat.const(0) < x // c0, fold(c0 - UPat.const(1)) < x,  when=lambda c0: c0 > 0),
])  # fmt: skip


@COMPARISONS.rule(
    "lt-sum",
    UPat(Ops.CMPLT, src=(UPat(dtype=dtypes.index, name="total"), UPat(Ops.CONST, name="limit"))),
)
def lt_sum(total: UOp, limit: UOp) -> UOp | None:
    """A common factor cancels where the rest is smaller than it.

    before   i*4 + k < 16                0 <= k < 4
    after    i < 4
    """
    found = terms_of(total)
    if found is None or found[1]:
        return None
    terms = found[0]
    for factor_of in sorted({abs(scale) for scale in terms.values()}, reverse=True):
        if factor_of <= 1:
            continue
        small = {factor: scale for factor, scale in terms.items() if scale % factor_of}
        if small and limit.arg % factor_of:
            continue
        remainder = from_terms(small.items(), 0, total)
        if 0 <= remainder.vmin and remainder.vmax < factor_of:
            large = (
                (factor, scale // factor_of)
                for factor, scale in terms.items()
                if factor not in small
            )
            return from_terms(large, 0, total) < -(-int(limit.arg) // factor_of)
    return None


@COMPARISONS.rule(
    "lt-two-sums", UPat(Ops.CMPLT, src=(UPat(dtype=dtypes.index, name="left"), UPat(name="right")))
)
def lt_two_sums(left: UOp, right: UOp) -> UOp | None:
    """One side is a constant if the other can take all terms and some cancel.

    before   i + j < j + 3
    after    i < 3
    """
    if right.op is Ops.CONST:
        return None
    ours, theirs = terms_of(left), terms_of(right)
    if ours is None or theirs is None or not ours[0].keys() & theirs[0].keys():
        return None
    terms, constant = difference_of(ours, theirs)
    return from_terms(terms.items(), 0, left) < -constant
