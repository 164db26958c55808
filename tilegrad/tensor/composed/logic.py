"""Truth of elements: combinations of truth values, tests of a value, equality of whole tensors."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.composed.digest import Digests

__all__ = ["Logic"]


class Logic(Digests):
    """Logic of each element, and comparisons that give one bool."""

    __slots__ = ()

    # truth values

    @elementwise
    def logical_and(self, other: Any) -> Self:
        """Combine truth values by and: whether both are not zero.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0, 2]).logical_and(Tensor([1, 1])).tolist()
        [False, True]
        """
        left, right = self._same_dtype("logical_and", other)
        return left.cast(dtypes.bool) & right.cast(dtypes.bool)

    @elementwise
    def logical_or(self, other: Any) -> Self:
        """Combine truth values by or: whether one of the two is not zero.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0, 2]).logical_or(Tensor([0, 1])).tolist()
        [False, True]
        """
        left, right = self._same_dtype("logical_or", other)
        return left.cast(dtypes.bool) | right.cast(dtypes.bool)

    @elementwise
    def logical_xor(self, other: Any) -> Self:
        """Combine truth values by exclusive or: whether just one of the two is not zero.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0, 2]).logical_xor(Tensor([1, 1])).tolist()
        [True, False]
        """
        left, right = self._same_dtype("logical_xor", other)
        return left.cast(dtypes.bool).ne(right.cast(dtypes.bool))

    # tests of a value

    def isposinf(self) -> Self:
        """Test for +inf.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0, float("inf")]).isposinf().tolist()
        [False, True]
        """
        return self.isinf(True, False)

    def isneginf(self) -> Self:
        """Test for -inf.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0, float("-inf")]).isneginf().tolist()
        [False, True]
        """
        return self.isinf(False, True)

    @templated
    @composed
    def signbit(self) -> Self:
        """Test for the sign bit, that of -0.0 too.

        Returns a bool tensor of this shape.

        >>> Tensor([-0.0, 0.0]).signbit().tolist()
        [True, False]
        """
        if not self.dtype.is_float:
            return self < 0
        return self.bitcast(dtypes.from_name(f"int{8 * self.dtype.itemsize}")) < 0

    @templated
    @composed
    def isin(self, elements: Any, *, invert: bool = False) -> Self:
        """Test for membership: true where the value is one of `elements`.

        Args:
            elements: a tensor, or a list of numbers.
            invert: true where it is none of them.

        Returns a bool tensor of this shape.

        >>> Tensor([1, 2, 3]).isin([1, 3]).tolist()
        [True, False, True]
        """
        kind: Any = type(self)
        wanted = elements if isinstance(elements, kind) else kind(elements, device=self.device)
        found: Self = self.unsqueeze(-1).eq(wanted.flatten()).any(-1)
        return found.logical_not() if invert else found

    # whole tensors

    def equal(self, other: Self) -> bool:
        """Whether both have the same shape and the same elements; this computes.

        Args:
            other: a tensor.

        Returns a bool.

        >>> Tensor([1, 2]).equal(Tensor([1, 2]))
        True
        """
        return self.shape == other.shape and bool(self.eq(other).all())

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close (see `isclose`); this computes.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            rtol: tolerance relative to `other`.
            atol: absolute tolerance.
            equal_nan: whether two NaN are close.

        Returns a bool.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0]).allclose(Tensor([1.0000001]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())
