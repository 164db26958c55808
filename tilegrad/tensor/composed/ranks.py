"""Reductions that rank elements: the k-th value, medians, quantiles.

They sort the elements (see ordering/sort.py); NaN counts as larger than every number there, and a
rank that falls on it gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.incomplete import IncompleteGamma
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.pairs import Ranked
from tilegrad.tensor.handle.size_arguments import as_axis, as_number, is_of_number

__all__ = ["Ranks"]


class Ranks(IncompleteGamma):
    """Reductions that rank elements."""

    __slots__ = ()

    @templated
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Ranked[Self]:
        """The `k`-th smallest value along an axis, and its position.

        Args:
            k: 1 for the smallest.
            dim: the axis; a negative one counts from the last.
            keepdim: keep the reduced axis, with size 1.

        Returns a pair (values, indices) without the axis, in this dtype and int32.

        Raises ShapeError unless `k` is 1 to the size of the axis, IndexBoundsError for an axis that
        is out of range.

        >>> Tensor([3, 1, 2]).kthvalue(2).values.item()
        2
        """
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.kthvalue(k, 0))
        axis = as_axis("kthvalue", dim, self.ndim)
        size = self._length(axis)
        if not 1 <= k <= size:
            raise ShapeError(
                f"kthvalue: k is {k}, of {size} elements",
                tensor=describe(self.uop),
                allowed=f"1 to {size}",
            )
        values, positions = self.sort(axis)
        picked = [each.narrow(axis, k - 1, 1) for each in (values, positions)]
        return Ranked(*(each if keepdim else each.squeeze(axis) for each in picked))

    def _shared_by_equals(self, found: Self) -> Self:
        """`found`, the value of one of the elements, with a gradient that all equal ones share."""
        if not found._requires_grad:
            return found
        found = found.detach()
        is_equal = self.eq(found) | (self.isnan() & found.isnan())
        # Elements that are not equal are lower; there is nothing lower than the least.
        lower = is_equal.where(self, -math.inf).max()
        return found.eq(-math.inf).where(is_equal.where(self, math.inf).min(), lower)

    @templated
    @composed
    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Median of all elements, or along an axis: of an even number the lower of the two in the
        middle; NaN if there is one.

        Args:
            dim: the axis, or None for all elements.
            keepdim: keep the reduced axis, with size 1.

        Returns a number in this dtype without `dim`; with it a pair (values, indices), indices
        int32, without the axis.

        Raises ShapeError if there is no element, but for floats without `dim`, whose median is NaN
        then; IndexBoundsError for an axis that is out of range.

        >>> Tensor([4.0, 1.0, 3.0, 2.0]).median().item()
        2.0
        """
        if dim is None:
            if self.dtype.is_float and not self._has_elements():
                return self.sum() * math.nan
            return self._shared_by_equals(self.flatten().median(0).values)
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.median(0))
        axis = as_axis("median", dim, self.ndim)
        size = self._length(axis)
        if not size:
            raise ShapeError("median: there is no element", tensor=describe(self.uop))
        found = self.kthvalue((size + 1) // 2, axis, keepdim)
        if not self.dtype.is_float:
            return found
        bad = self.isnan()
        is_bad = bad.any(axis, keepdim)
        return Ranked(
            is_bad.where(math.nan, found.values),
            is_bad.where(bad.argmax(axis, keepdim), found.indices),
        )

    @composed
    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """Values below which given shares of the elements lie; NaN if there is one.

        Args:
            q: share in 0..1, a number or a vector.
            dim: the axis, or None for all elements.
            keepdim: keep the reduced axis, with size 1.
            interpolation: between two elements "linear", "lower", "higher", "midpoint" or
                "nearest".

        Returns a float tensor without `dim`, with the axis of a vector `q` in front.

        Raises DTypeError for integers or another interpolation, ShapeError if there is no element
        or a share is not in 0..1, IndexBoundsError for an axis that is out of range.

        >>> Tensor([0.0, 1.0, 2.0, 3.0]).quantile(0.5).item()
        1.5
        """
        if dim is None:
            flat = self.flatten().quantile(q, 0, False, interpolation)
            return flat.reshape(*flat.shape, *[1] * self.ndim) if keepdim else flat
        if is_of_number(dim, self.ndim):
            return self.flatten().quantile(q, 0, False, interpolation)
        q = q.tolist() if hasattr(q, "tolist") else q
        shares = tuple(_shares(q))
        is_several = isinstance(q, (list, tuple))
        return self._quantiles(shares, dim, keepdim, interpolation, is_several)

    @templated
    @composed
    def _quantiles(
        self,
        shares: tuple[float, ...],
        dim: int,
        keepdim: bool,
        interpolation: str,
        is_several: bool,
    ) -> Self:
        axis = as_axis("quantile", dim, self.ndim)
        size = self._length(axis)
        if not self.dtype.is_float:
            raise DTypeError(
                f"quantile: floats are needed, not {self.dtype.name}", tensor=describe(self.uop)
            )
        check_choice("quantile", "interpolation", interpolation, _BETWEEN, DTypeError)
        if not size or not all(0 <= share <= 1 for share in shares):
            raise ShapeError(
                f"quantile: shares {[*shares]} of {size} elements",
                tensor=describe(self.uop),
                rule="shares are 0 to 1, of at least one element",
            )
        ordered, bad = self.sort(axis)[0], self.isnan().any(axis, keepdim=True)
        picked = []
        for share in shares:
            position = share * (size - 1)
            low = ordered.narrow(axis, math.floor(position), 1)
            high = ordered.narrow(axis, math.ceil(position), 1)
            between = _BETWEEN[interpolation](position - math.floor(position), position)
            found = low if not between else high if between == 1 else low.lerp(high, between)
            found = bad.where(math.nan, found)
            picked.append(found if keepdim else found.squeeze(axis))
        return picked[0].stack(*picked[1:]) if is_several else picked[0]


# Weight of the higher element, by the fraction between both and the fractional position.
_BETWEEN: dict[str, Callable[[float, float], float]] = {
    "linear": lambda fraction, position: fraction,
    "lower": lambda fraction, position: 0.0,
    "higher": lambda fraction, position: 1.0 if fraction else 0.0,
    "midpoint": lambda fraction, position: 0.5 if fraction else 0.0,
    "nearest": lambda fraction, position: float(round(position) - math.floor(position)),
}


def _shares(q: Any) -> list[float]:
    shares = q if isinstance(q, (list, tuple)) else [q]
    return [as_number("quantile", "a share", share) for share in shares]
