"""Rules for indices of ranges whose extents are variables: values from 0 to n - 1.

`arange(n)` sums over slices of a matrix of 2n - 1 columns. Where n is a number, bounds show that
the sum counts (`collapse`). Where n is a variable, these rules compare its coefficients in each
term.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import UPat
from tilegrad.ir.rules import from_terms, simplify, terms_of
from tilegrad.ir.sizes import as_node, divide, tidy
from tilegrad.ir.uop import UOp

__all__ = ["SYMBOLIC_RANGES"]

SYMBOLIC_RANGES = PatternMatcher("symbolic_ranges")


@SYMBOLIC_RANGES.rule(
    "mod-of-size",
    UPat(Ops.FLOORMOD, dtype=dtypes.index, src=(UPat(name="total"), UPat(name="by"))),
)
def mod_of_size(total: UOp, by: UOp) -> UOp | None:
    """Multiples of a symbolic divisor vanish, and a remainder that is smaller than it is itself.

    before   (k*(2*n + 2) + r) % (2*n + 1)       0 <= k, r <= n
    after    k + r
    """
    found = terms_of(total) if by.op is not Ops.CONST and by.vmin > 0 else None
    if found is None:
        return None
    terms: dict[UOp, int] = {}
    for factor, scale in found[0].items():
        base, times = _modulo(factor, by)
        terms[base] = terms.get(base, 0) + scale * times
    rest = from_terms(terms.items(), found[1], total)
    low, high = _least(rest), _least(rest * -1)
    if low is None or high is None or low.vmin < 0:
        return None
    return rest if simplify(by - 1 + high).vmin >= 0 else None


@SYMBOLIC_RANGES.rule(
    "max-of-size", UPat(Ops.MAX, dtype=dtypes.index, src=(UPat(name="x"), UPat(name="y")))
)
def max_of_size(x: UOp, y: UOp) -> UOp | None:
    """The larger of two indices, where that is the same one for all values of the ranges.

    before   MAX(n - r, 0)       r <= n
    after    n - r
    """
    least = _least(x - y)
    if least is not None and least.vmin >= 0:
        return x
    least = _least(y - x)
    return y if least is not None and least.vmin >= 0 else None


def _modulo(factor: UOp, by: UOp) -> tuple[UOp, int]:
    """A product as a multiple of one of its sides, up to multiples of `by`."""
    if factor.op is Ops.MUL:
        for base, size in (factor.src, factor.src[::-1]):
            over = simplify(size - by)
            if over.op is Ops.CONST:
                return base, int(over.arg)
    return factor, 1


def _least(total: UOp) -> UOp | None:
    """The least value of a sum over all values of its ranges, which is one of variables; None if a
    range stands in anything but a term of its own (or is split there), or all extents are numbers.
    """
    found = terms_of(simplify(total))
    if found is None:
        return None
    terms: list[tuple[UOp, int]] = []
    is_symbolic = False
    for factor, scale in found[0].items():
        extent = _extent(factor)
        if extent is not None:
            is_symbolic |= extent.op is not Ops.CONST
            if scale < 0:
                terms.append((extent - 1, scale))
        elif factor.ranges:
            return None
        else:
            terms.append((factor, scale))
    return simplify(from_terms(terms, found[1], total)) if is_symbolic else None


def _extent(factor: UOp) -> UOp | None:
    """How many values a range has, or the outer or inner half of one that is split: it takes those
    from 0 on. None for other factors.

    before   r // n, r % n       0 <= r < m*n
    after    m,      n
    """
    divisors: list[UOp] = []
    while factor.op is Ops.FLOORDIV:
        factor, by = factor.src
        divisors.append(by)
    if factor.op is Ops.RANGE:
        extent = factor.src[0]
    elif factor.op is Ops.FLOORMOD:
        extent = factor.src[1]
        divisors.append(extent)
    else:
        return None
    if any(by.ranges or by.vmin <= 0 for by in divisors):
        return None
    for by in reversed(divisors[:-1] if factor.op is Ops.FLOORMOD else divisors):
        count = divide(tidy(extent), tidy(by))
        if count is None:
            return None
        extent = as_node(count)
    return extent
