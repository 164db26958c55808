"""Determinants with first and second derivatives that are right for singular matrices too.

The derivative of a determinant is the matrix of cofactors, and its second one is made of the
determinants that are left without two rows and two columns: polynomials, finite for any matrix. By
elimination both are quotients with a 0 below where the matrix is singular. The cofactors come from
there nonetheless, with a tiny pivot that cancels. Cofactors that are differentiated again do not
cancel, so the second derivative is taken of the singular values: det(U S V^T + H) is det(S + U^T H
V) up to a sign, and without two rows and columns of S it is the product of the other singular
values.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.tensor.matrices.factorise import Factorising, epsilon, take

__all__ = ["Determinants"]


class Determinants(Factorising):
    """The determinant of matrices along one axis, and its derivatives."""

    __slots__ = ()

    def _determinants(self) -> Self:
        """(matrices,)"""
        count, _, _ = self._sizes
        a = self.detach()
        packed = a._eliminated()
        sign, pivots = a._pivots_of(packed)
        value = (sign * pivots.prod(-1)).cast(self.dtype)

        def rule(g: Self, _: Self, __: Self, packed: Self, a: Self) -> list[Self | None]:
            return [None, None, a._cofactors(packed) * g.reshape(count, 1, 1)]

        return self._by_rule("take", (count,), take, [value, packed, self], rule)

    def _cofactors(self, packed: Self) -> Self:
        """The derivative of the determinant of a matrix that was eliminated to `packed`."""
        count, size, _ = self._sizes
        packed = packed.detach()
        sign, pivots = self._pivots_of(packed)
        others: Self = _products_of_others(pivots) * sign.reshape(count, 1)
        flow = (others.reshape(count, size, 1) * self._identity()).pad(((0, 0), (0, 0), (0, 1)))
        value = self._eliminated_rule(flow, packed)

        def rule(g: Self, _: Self, __: Self, packed: Self, a: Self) -> list[Self | None]:
            return [None, None, a._cofactors_rule(g, packed.detach())]

        return self._by_rule("take", self._sizes, take, [value, packed, self], rule)

    def _cofactors_rule(self, g: Self, packed: Self) -> Self:
        """The gradient from that of the cofactors, `g`. For a matrix far from singular it is the
        gradient of the determinant times the inverse, whose derivatives are right for equal
        singular values.
        """
        count, size, _ = self._sizes
        pivots = packed._slice(2, 0, size).diagonal(0, 1, 2).abs()
        limit = pivots.max(1) * epsilon(self) ** 0.25
        is_singular: Self = (pivots.min(1) <= limit).reshape(count, 1, 1)
        unit = self._identity()
        inverse = is_singular.where(unit, self)._solved(unit)
        total = (inverse * g.transpose(1, 2)).sum((1, 2)).reshape(count, 1, 1)
        inner = inverse * total - inverse @ g @ inverse
        regular = inner.transpose(1, 2) * self._determinants().reshape(count, 1, 1)
        return is_singular.where(self._cofactors_rule_of_values(g), regular)

    def _cofactors_rule_of_values(self, g: Self) -> Self:
        """The same by singular values."""
        count, size, _ = self._sizes
        u, s, v = self._rotated()
        signed = [each._pivots_of(each.detach()._eliminated()) for each in (u, v)]
        (sign, pivots), (other_sign, other_pivots) = signed
        sign = sign * other_sign * (pivots.prod(1) * other_pivots.prod(1)).detach().sign()
        left: Self = _products_of_other_pairs(s)
        inner = u.transpose(1, 2) @ g @ v
        own = inner.diagonal(0, 1, 2).reshape(count, size, 1)
        both = (left @ own) * inner._identity() - (left * inner).transpose(1, 2)
        return u @ both @ v.transpose(1, 2) * sign.reshape(count, 1, 1)


def _products_of_others(x: Any) -> Any:
    """For each of the numbers (count, size), the product of the others of its row."""
    size = x._sizes[1]
    before = x.cumprod(1).pad(((0, 0), (1, 0)), value=1.0)._slice(1, 0, size)
    behind = x.flip(1).cumprod(1).pad(((0, 0), (1, 0)), value=1.0)._slice(1, 0, size).flip(1)
    return before * behind


def _products_of_other_pairs(s: Any) -> Any:
    """For each two of the falling numbers (count, size), the product of the others; 0 for one
    twice. Where one beside the last two is 0, so are all products.
    """
    count, size = s._sizes
    if size < 2:
        return s.reshape(count, 1, 1) * 0
    low, least = s._slice(1, size - 2, size - 1), s._slice(1, size - 1, size)
    position = s._iota(size)
    row, column = position.reshape(size, 1), position
    is_last = position >= size - 2
    # The last two are factors of their own: a pair leaves both of them, one or none.
    large = is_last.where(1.0, s)
    is_zero = large.eq(0)
    inverse = is_zero.where(0.0, 1 / is_zero.where(1.0, large))
    pairs = inverse.reshape(count, size, 1) * inverse.reshape(count, 1, size)
    for number, factor in ((size - 2, low), (size - 1, least)):
        is_taken = row.eq(number) | column.eq(number)
        pairs = pairs * is_taken.where(1.0, factor.reshape(count, 1, 1))
    return row.eq(column).where(0.0, pairs * large.prod(1).reshape(count, 1, 1))
