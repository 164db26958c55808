"""Choices between values, what a value is, rounding and signs."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.elementwise.arithmetic import Arithmetic
from tilegrad.tensor.handle.aliases import extended, shared
from tilegrad.tensor.handle.broadcasting import broadcast
from tilegrad.tensor.handle.core import Core, Operand, cast_node, compute, describe
from tilegrad.tensor.handle.size_arguments import as_int

__all__ = ["Elementwise"]


class Elementwise(Arithmetic):
    """Choices, tests, rounding and signs."""

    __slots__ = ()

    # choices

    @elementwise
    def where(self, yes: Operand, no: Operand) -> Self:
        """Choose by this condition: `yes` where it is true, else `no`.

        Args:
            yes: a number, or a tensor that broadcasts with this one.
            no: likewise.

        Returns a tensor of the broadcast shape, in the dtype to which `yes` and `no` promote.

        Raises DTypeError for a float tensor with a condition as `yes` (the order of arguments is
        that of `torch.where` less its first), ShapeError unless the shapes broadcast.

        >>> x = Tensor([-1, 2])
        >>> (x > 0).where(x, 0).tolist()
        [0, 2]
        """
        if self.dtype.is_float and isinstance(yes, Core) and yes.dtype is dtypes.bool:
            raise DTypeError(
                "where: the condition is float, and what to choose is bool",
                condition=describe(self.uop),
                yes=describe(yes.uop),
                remedy="the condition is the tensor itself, as in (x > 0).where(x, 0)",
            )
        condition = self.cast(dtypes.bool)
        if isinstance(yes, Elementwise):
            no = yes._operand("where", no)
        elif isinstance(no, Elementwise):
            yes = no._operand("where", yes)
        else:
            yes, no = condition._free_number(yes), condition._free_number(no)
        condition, yes, no = condition._on_one_device("where", [condition, yes, no])
        dtype = promote(yes.dtype, no.dtype)
        nodes = broadcast(
            "where", [condition.uop, cast_node(yes.uop, dtype), cast_node(no.uop, dtype)]
        )
        made: Self = condition._joined(compute(Ops.WHERE, dtype, nodes), yes, no)
        return made

    def _free_number(self, value: Operand) -> Self:
        """A number in the default dtype of its kind."""
        kinds = {bool: dtypes.bool, float: dtypes.default_float}
        zero = self._of(UOp.const(kinds.get(type(value), dtypes.default_int), 0), self.device)
        return zero._operand("where", value)

    @elementwise
    def masked_fill(self, mask: Core, value: Operand) -> Self:
        """Put `value` wherever `mask` is true.

        Args:
            mask: a tensor that broadcasts with this one.
            value: a number, or a tensor that broadcasts.

        Returns a tensor of the broadcast shape, in the dtype to which this tensor and `value`
        promote; an integer that truth values are filled with is one.

        Raises ShapeError unless the shapes broadcast.

        >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 0).tolist()
        [0, 2]
        """
        test: Any = mask
        if self.dtype is dtypes.bool and isinstance(value, int):
            value = bool(value)
        filled: Self = test.where(value, self)
        return filled

    @elementwise
    def maximum(self, other: Operand) -> Self:
        """Larger of the two; NaN if either is.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 5]).maximum(3).tolist()
        [3, 5]
        """
        return self._binary("maximum", Ops.MAX, other)

    @elementwise
    @composed
    def minimum(self, other: Operand) -> Self:
        """Smaller of the two; NaN if either is.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 5]).minimum(3).tolist()
        [1, 3]
        """
        left, right = self._same_dtype("minimum", other)
        return left._mirrored()._binary("minimum", Ops.MAX, right._mirrored())._mirrored()

    def _same_dtype(self, name: str, other: Operand) -> tuple[Self, Self]:
        other = self._operand(name, other)
        left, right = self._meet(name, other)
        return self._joined(left, other), self._joined(right, other)

    def _mirrored(self) -> Self:
        """The order reversed, exactly: negated floats, inverted bits of integers; twice is the
        value itself.
        """
        return self._unary(Ops.MUL, -1) if self.dtype.is_float else self.bitwise_not()

    @elementwise
    @composed
    def clip(self, min: Operand = None, max: Operand = None) -> Self:
        """Limit the values to `min` from below and `max` from above.

        Args:
            min: a number, a tensor that broadcasts, or None for no limit.
            max: likewise.

        Returns a tensor of the broadcast shape, in the dtype to which all promote.

        Raises DTypeError if both limits are None, ShapeError unless the shapes broadcast.

        >>> Tensor([-3, 0, 5]).clip(-1, 2).tolist()
        [-1, 0, 2]
        """
        if min is None and max is None:
            raise DTypeError("clip: neither min nor max is given")
        x = self if min is None else self._no_less(min)
        return x if max is None else x._no_more(max)

    def _no_less(self, bound: Operand) -> Self:
        """The larger of self and a bound. Unlike that of `maximum` the gradient of a float that
        equals its bound goes to the float alone.
        """
        if not self.dtype.is_float:
            return self.maximum(bound)
        return self._is_replaced(bound, self._compared("clip", Ops.CMPLT, bound)).where(bound, self)

    def _no_more(self, bound: Operand) -> Self:
        if not self.dtype.is_float:
            return self.minimum(bound)
        is_above = self._compared("clip", Ops.CMPLT, bound, swap=True)
        return self._is_replaced(bound, is_above).where(bound, self)

    def _is_replaced(self, bound: Operand, is_beyond: Self) -> Self:
        """Where a limited value is the bound: where it lies beyond, or where the bound is NaN."""
        if isinstance(bound, Elementwise):
            return is_beyond | bound.ne(bound)
        # No value lies beyond a NaN, and every one becomes it.
        return is_beyond | True if bound != bound else is_beyond

    def clamp(self, min: Operand = None, max: Operand = None) -> Self:
        """As `clip`.

        >>> Tensor([-3, 5]).clamp(max=2).tolist()
        [-3, 2]
        """
        return self.clip(min, max)

    # what a value is

    @templated
    def isnan(self) -> Self:
        """Test for NaN.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self.ne(self)

    @templated
    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Test for infinity.

        Args:
            detect_positive: whether inf counts.
            detect_negative: whether -inf counts.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
        """
        if not self.dtype.is_float:
            return self.ne(self)
        positive, negative = self.eq(float("inf")), self.eq(float("-inf"))
        if detect_positive and detect_negative:
            return positive | negative
        return (
            positive if detect_positive else negative if detect_negative else self.ne(self) & False
        )

    def isfinite(self) -> Self:
        """Test for what is neither infinite nor NaN.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0, float("inf")]).isfinite().tolist()
        [True, False]
        """
        if not self.dtype.is_float:
            return self.eq(self)
        return (self < float("inf")) & (self > float("-inf"))

    @templated
    @composed
    def isclose(
        self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Compare approximately: |self - other| <= atol + rtol * |other|.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            rtol: tolerance relative to `other`.
            atol: absolute tolerance.
            equal_nan: whether two NaN are close.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        left, right = self._same_dtype("isclose", other)
        left, right = left._floating(), right._floating()
        is_close = (left - right).abs() <= right.abs() * rtol + atol
        is_close = left.eq(right) | (is_close & left.isfinite() & right.isfinite())
        return is_close | (left.isnan() & right.isnan()) if equal_nan else is_close

    # rounding and signs

    @templated
    def ceil(self) -> Self:
        """Round up, toward infinity.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.2, -1.2]).ceil().tolist()
        [2.0, -1.0]
        """
        if not self.dtype.is_float:
            return self._copy_of(self)
        whole = self.trunc()
        # Not a sum with 0 or 1: what is -0.0 stays so.
        return (whole < self).where(whole + 1, whole)

    @templated
    @composed
    def round(self, decimals: int = 0) -> Self:
        """Round to the nearest integer, halves to the even one.

        Args:
            decimals: digits after the point that stay.

        Returns a tensor of this shape and dtype.

        >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if not self.dtype.is_float:
            return self._copy_of(self)
        decimals = as_int("round", "decimals", decimals)
        if decimals:
            scaled = self * 10.0**decimals if decimals > 0 else self / 10.0**-decimals
            whole = scaled.round()
            return whole / 10.0**decimals if decimals > 0 else whole * 10.0**-decimals
        below = self.floor()
        rest = self - below
        half = below * 0.5
        is_odd = half.trunc().ne(half)
        whole = ((rest > 0.5) | (rest.eq(0.5) & is_odd)).where(below + 1, below)
        # A zero keeps the sign.
        return whole.eq(0).where(self * 0.0, whole)

    @templated
    @composed
    def sign(self) -> Self:
        """Sign of each value: -1, 0 or 1; 0 for -0.0, NaN for NaN.

        Returns a tensor of this shape and dtype.

        >>> Tensor([-3, 0, 2]).sign().tolist()
        [-1, 0, 1]
        """
        x = self.detach()
        if x.dtype is dtypes.bool or x.dtype.kind == "uint":
            return x.ne(0).cast(x.dtype)
        # NaN is not detached, so that a gradient of 0 flows everywhere else.
        return (x < 0).where(-1, (x > 0).where(1, x.eq(0).where(0, self)))

    def _signs(self) -> Self:
        """-1 or 1; at zeros the zero itself, with its sign."""
        x = self.detach()
        return (x < 0).where(-1, (x > 0).where(1, x))

    @templated
    @composed
    def abs(self) -> Self:
        """Magnitude of each value; the derivative at 0 is 0.

        Returns a tensor of this shape and dtype.

        >>> Tensor([-1.5, 2.0]).abs().tolist()
        [1.5, 2.0]
        """
        if self.dtype.is_float:
            return self * self._signs()
        return self if self.dtype.kind in ("uint", "bool") else (self < 0).where(-self, self)

    @elementwise
    @composed
    def copysign(self, other: Operand) -> Self:
        """Magnitude of this tensor with the sign of `other`, that of -0.0 included.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0, -2.0]).copysign(-0.0).tolist()
        [-1.0, -2.0]
        """
        left, right = self._same_dtype("copysign", other)
        left, right = left._floating(), right._floating()
        is_negative = (right < 0) | (right.eq(0) & (right.reciprocal() < 0))
        return is_negative.where(-left.abs(), left.abs())

    @templated
    def square(self) -> Self:
        """Square each value: self * self.

        Returns a tensor of this shape and dtype.

        >>> Tensor([2, -3]).square().tolist()
        [4, 9]
        """
        return self * self

    @templated
    def reciprocal(self) -> Self:
        """Invert each value: 1 / self.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([2.0, 4.0]).reciprocal().tolist()
        [0.5, 0.25]
        """
        return self._floating()._unary(Ops.RECIP)

    @composed
    def lerp(self, end: Operand, weight: Operand) -> Self:
        """Interpolate linearly: self + (end - self) * weight, and from 0.5 on the same from the
        other side, end - (end - self) * (1 - weight), so that `end` is reached at 1. float16 and
        bfloat16 are computed in float32.

        Args:
            end: the value at weight 1; a number or a tensor that broadcasts.
            weight: likewise.

        Returns a tensor of the broadcast shape, in the dtype to which all promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0.0, 10.0]).lerp(Tensor([4.0, 20.0]), 0.25).tolist()
        [1.0, 12.5]
        """
        dtype = promote(self.dtype, self._operand("lerp", end).dtype)
        if isinstance(weight, Elementwise):
            dtype = promote(dtype, weight.dtype)
        start, stop = self, self._operand("lerp", end)
        is_wide = not dtype.is_float or dtype.itemsize >= 4
        if not is_wide:
            start, stop = start._wide(), stop.cast(dtypes.float32)
        way = stop.sub(start)
        if isinstance(weight, (int, float)):
            is_far = abs(weight) >= 0.5
            found = stop.sub(way.mul(1 - weight)) if is_far else start.add(way.mul(weight))
        else:
            share = start._operand("lerp", weight)
            share = share if is_wide else share.cast(dtypes.float32)
            near, far = start.add(way.mul(share)), stop.sub(way.mul(share.mul(-1).add(1)))
            found = (share.abs() < 0.5).where(near, far)
        return found if is_wide else found.cast(dtype)

    @templated
    def detach(self) -> Self:
        """Alias of this tensor through which no gradient flows; what is written to it is written to
        this tensor.

        Returns a tensor of this shape and dtype.

        >>> x = Tensor([2.0], requires_grad=True)
        >>> loss = (x * x.detach()).sum().backward()
        >>> x.grad.tolist()
        [2.0]
        """
        node = self.uop
        storage, path = self._alias or shared(self)
        is_detached = node.op is Ops.DETACH and not self._requires_grad
        if not is_detached and node.op is not Ops.CONST:
            node, path = UOp(Ops.DETACH, node.dtype, (node,)), extended(path, Ops.DETACH, None)
        detached = self._of(node, self.device, self._variables, False)
        detached._alias, detached._is_shared = (storage, path), self._is_shared
        storage.note(detached)
        return detached

    def _alike(self) -> Self:
        """Another tensor of all of this one's storage. Such tensors are detached ones here, unlike
        PyTorch's.
        """
        return self.detach()

    def __abs__(self) -> Self:
        return self.abs()
