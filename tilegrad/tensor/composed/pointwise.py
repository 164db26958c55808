"""Functions of each element made of a few others, and other names of functions that are
elsewhere.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.composed.logic import Logic

__all__ = ["Pointwise"]


class Pointwise(Logic):
    """Short compositions, and other names."""

    __slots__ = ()

    @templated
    @composed
    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Replace NaN and infinity; integers stay as they are.

        Args:
            nan: replaces NaN.
            posinf: replaces inf, by default the largest finite value of the dtype.
            neginf: replaces -inf, by default the least finite value.

        Returns a tensor of this shape and dtype.

        >>> Tensor([float("nan"), 2.0]).nan_to_num().tolist()
        [0.0, 2.0]
        """
        if not self.dtype.is_float:
            return self._copy_of(self)
        largest = self.dtype.largest
        finite = self.eq(math.inf).where(largest if posinf is None else posinf, self)
        finite = self.eq(-math.inf).where(-largest if neginf is None else neginf, finite)
        return self.isnan().where(nan, finite)

    @elementwise
    @composed
    def heaviside(self, values: Any) -> Self:
        """Step function: 0 below 0, 1 above, `values` at 0; NaN for NaN.

        Args:
            values: a number, or a tensor whose shape broadcasts with this one.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([-3.0, 0.0, 2.0]).heaviside(0.5).tolist()
        [0.0, 0.5, 1.0]
        """
        left, right = self._same_dtype("heaviside", values)
        return left.isnan().where(left, left.eq(0).where(right, (left > 0).cast(left.dtype)))

    def frac(self) -> Self:
        """Fraction: self - trunc(self), with the sign of the value.

        Returns a tensor of this shape and dtype; bool gives int32.

        >>> Tensor([2.5, -2.5]).frac().tolist()
        [0.5, -0.5]
        """
        return self - self.trunc()

    def fmax(self, other: Any) -> Self:
        """Larger of the two; of a number and NaN the number.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0, float("nan")]).fmax(Tensor([2.0, 3.0])).tolist()
        [2.0, 3.0]
        """
        left, right = self._same_dtype("fmax", other)
        return ((left >= right) | right.isnan()).where(left, right)

    def fmin(self, other: Any) -> Self:
        """Smaller of the two; of a number and NaN the number.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0, float("nan")]).fmin(Tensor([2.0, 3.0])).tolist()
        [1.0, 3.0]
        """
        left, right = self._same_dtype("fmin", other)
        return ((left <= right) | right.isnan()).where(left, right)

    # sums of products

    def addcmul(self, first: Any, second: Any, *, value: float = 1) -> Self:
        """Add a product: self + value * first * second. float16 and bfloat16 are computed in
        float32 and rounded once.

        Args:
            first: a number, or a tensor that broadcasts with this one.
            second: likewise.
            value: factor of the product.

        Returns a tensor of the broadcast shape, in the dtype to which all promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1]).addcmul(Tensor([2]), Tensor([3])).tolist()
        [7]
        """
        return self._wide_with(
            lambda x, y, z: x + (y * z if value == 1 else y * z * value), first, second
        )

    def addcdiv(self, first: Any, second: Any, *, value: float = 1) -> Self:
        """Add a quotient: self + value * first / second. float16 and bfloat16 are computed in
        float32 and rounded once.

        Args:
            first: a number, or a tensor that broadcasts with this one.
            second: likewise.
            value: factor of the quotient.

        Returns a float tensor of the broadcast shape, in the dtype to which all promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0]).addcdiv(Tensor([3.0]), Tensor([2.0])).tolist()
        [2.5]
        """
        return self._wide_with(
            lambda x, y, z: x + (y / z if value == 1 else y / z * value), first, second
        )

    # PyTorch's other names

    absolute = Logic.abs
    negative = Logic.neg
    subtract = Logic.sub
    multiply = Logic.mul
    divide = Logic.div
    true_divide = Logic.div
    remainder = Logic.mod
    fix = Logic.trunc
    greater = Logic.gt
    greater_equal = Logic.ge
    less = Logic.lt
    less_equal = Logic.le
    not_equal = Logic.ne
    arcsin = Logic.asin
    arccos = Logic.acos
    arctan = Logic.atan
    arcsinh = Logic.asinh
    arccosh = Logic.acosh
    arctanh = Logic.atanh
    bitwise_left_shift = Logic.lshift
    bitwise_right_shift = Logic.rshift

    def positive(self) -> Self:
        """Unary plus: this tensor.

        Returns a tensor of this shape and dtype.

        >>> Tensor([-1]).positive().tolist()
        [-1]
        """
        return self

    def clamp_min(self, min: Any) -> Self:
        """Limit the values from below.

        Args:
            min: a number, or a tensor that broadcasts with this one.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 5]).clamp_min(3).tolist()
        [3, 5]
        """
        return self.clip(min=min)

    def clamp_max(self, max: Any) -> Self:
        """Limit the values from above.

        Args:
            max: a number, or a tensor that broadcasts with this one.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 5]).clamp_max(3).tolist()
        [1, 3]
        """
        return self.clip(max=max)
