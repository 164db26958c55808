"""Arithmetic, comparison, choice and bits: one op, or a few, for each pair of elements.

Operands meet as core.py says. The rules of dtypes beyond that: true division and roots give floats,
comparisons give bool, bits need integers. NaN is kept wherever NumPy keeps it, so that a diverging
computation is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.dtype import dtypes, promote, truncate
from tilegrad.base.errors import DTypeError, UnsupportedDTypeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.handle.core import Core, Operand, cast_node, compute, describe, number_dtype
from tilegrad.tensor.handle.sizes import here
from tilegrad.tensor.views.patches import Patches

__all__ = ["Arithmetic"]

# Arithmetic that rounds, so that it matters whether a number was rounded before.
_ROUNDING = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.FMOD})
# What arithmetic means on truth values.
_LOGICAL = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}


class Arithmetic(Patches):
    """Arithmetic methods and Python's operators."""

    __slots__ = ()

    def _unary(self, op: Ops, *constants: Any) -> Self:
        """The op on this tensor and constants of its dtype."""
        node = self.uop
        dtype = dtypes.bool if op.is_boolean else node.dtype
        return self._like(
            compute(op, dtype, (node, *[UOp.const(node.dtype, value) for value in constants]))
        )

    def _binary(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        """The op on this tensor and `other`, or on `other` and this tensor."""
        if op in _ROUNDING and self._would_round(other):
            return self._wide_with(lambda x: x._binary(name, op, other, swap=swap))
        left, right, others = self._sides(name, other)
        if swap:
            left, right = right, left
        dtype = left.dtype
        if dtype is dtypes.bool:
            if op is Ops.CMPLT:
                op, left = Ops.AND, UOp(Ops.XOR, dtype, (left, UOp.const(dtype, True)))
            op = _LOGICAL.get(op, op)
        node = compute(op, dtypes.bool if op.is_boolean else dtype, (left, right))
        return self._joined(node, *others)

    def _sides(self, name: str, other: Operand) -> tuple[UOp, UOp, tuple[Core, ...]]:
        """The nodes of this tensor and `other` as they meet, and the tensor that `other` is, if it
        is one: a number makes none of its own.
        """
        left = self.uop
        if type(other) in (int, float, bool):
            kind = number_dtype(name, left.dtype, other)
            left = cast_node(left, promote(left.dtype, kind))
            return left, UOp(Ops.CONST, left.dtype, (), other), ()
        tensor = self._operand(name, other)
        right = tensor.uop
        is_alike = left.dtype is right.dtype and left.shape == right.shape
        if not is_alike or self.device != tensor.device:
            left, right = self._meet(name, tensor)
        return left, right, (tensor,)

    def _would_round(self, other: Operand) -> bool:
        """Whether `other` is a number that this tensor's dtype, of less than 32 bits, would round.
        Then arithmetic is done in float32, and its result rounded, once.
        """
        dtype = self.dtype
        if not (dtype.is_float and dtype.itemsize < 4) or type(other) not in (int, float):
            return False
        return bool(other == other and truncate(other, dtype) != other)

    def _wide_with(self, function: Callable[..., Self], *others: Operand) -> Self:
        """`function` of this tensor and `others`: where they meet in a dtype of less than 32 bits,
        in float32, and rounded once.
        """
        dtype = self.dtype
        for other in others:
            if isinstance(other, Core):
                dtype = promote(dtype, other.dtype)
        if not dtype.is_float or dtype.itemsize >= 4:
            return function(self, *others)
        sides: list[Any] = [self, *others]
        wide = [x.cast(dtypes.float32) if isinstance(x, Core) else x for x in sides]  # type: ignore[attr-defined]
        found: Self = function(*wide).cast(dtype)
        return found

    def _integers(self, name: str, *, but_bool: bool = False) -> None:
        """Raise DTypeError unless this tensor holds integers (or bools)."""
        if self.dtype.is_float or (but_bool and self.dtype is dtypes.bool):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not {self.dtype.name}",
                tensor=describe(self.uop),
                line=here(),
                remedy="cast it: .cast(dtypes.int32)",
            )

    # sums and products

    @elementwise
    def add(self, other: Operand, *, alpha: Any = 1) -> Self:
        """Add `other`, times `alpha`: self + alpha * other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            alpha: factor of `other`, a number.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).add(10).tolist()
        [11, 12]
        """
        if alpha != 1:
            return self._wide_with(lambda x, y: x + x._times_alpha("add", y, alpha), other)
        return self._binary("add", Ops.ADD, other)

    @elementwise
    def sub(self, other: Operand, *, alpha: Any = 1) -> Self:
        """Subtract `other`, times `alpha`: self - alpha * other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            alpha: factor of `other`, a number.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).sub(10).tolist()
        [-9, -8]
        """
        if alpha != 1:
            return self._wide_with(lambda x, y: x - x._times_alpha("sub", y, alpha), other)
        return self._subtract(other)

    def _times_alpha(self, name: str, other: Operand, alpha: Any) -> Operand:
        scaled: Any = self._operand(name, other)
        if scaled.dtype is dtypes.bool and isinstance(alpha, int) and not self.dtype.is_float:
            # The dtype is that of the operands, whatever the factor's.
            if self.dtype is dtypes.bool:
                return scaled & bool(alpha)
            scaled = scaled.cast(self.dtype)
        return scaled * alpha

    def _subtract(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._subtract(other, swap=swap))
        left, right, others = self._sides("sub", other)
        if left.dtype is dtypes.bool:
            left, right = cast_node(left, dtypes.default_int), cast_node(right, dtypes.default_int)
        if swap:
            left, right = right, left
        if right.op is Ops.CONST:
            right = UOp.const(right.dtype, -right.arg)
        else:
            right = compute(Ops.MUL, right.dtype, (right, UOp.const(right.dtype, -1)))
        return self._joined(compute(Ops.ADD, left.dtype, (left, right)), *others)

    @elementwise
    def mul(self, other: Operand) -> Self:
        """Multiply by `other`.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).mul(10).tolist()
        [10, 20]
        """
        return self._binary("mul", Ops.MUL, other)

    @templated
    def neg(self) -> Self:
        """Negate: -self. Unsigned integers wrap around, a bool is inverted.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        return self.logical_not() if self.dtype is dtypes.bool else self._unary(Ops.MUL, -1)

    @templated
    def div(self, other: Operand, rounding_mode: str | None = None) -> Self:
        """Divide by `other`, as floats or rounded to a whole quotient.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            rounding_mode: None for the quotient itself, "trunc" to round it toward zero, "floor" to
                round it down.

        Returns a tensor of the broadcast shape: without rounding in the promoted dtype, or the
        default float (float32) if that is no float; with rounding in the promoted dtype.

        Raises DTypeError for another `rounding_mode`, ShapeError unless the shapes broadcast.

        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        if rounding_mode == "floor":
            return self._floor_divide(other)
        if rounding_mode == "trunc":
            return self._divide_toward_zero(other)
        if rounding_mode is not None:
            raise DTypeError(
                f"div: unknown rounding_mode {rounding_mode!r}",
                allowed="None, 'trunc', 'floor'",
                line=here(),
            )
        return self._true_divide(other)

    def _true_divide(self, other: Operand, *, swap: bool = False) -> Self:
        x = self
        if not self.dtype.is_float:
            # Beside floats integers take their dtype, beside others the default float.
            is_beside = not isinstance(other, (int, float)) and other.dtype.is_float
            x = self.cast(other.dtype) if is_beside else self._floating()
        return x._binary("div", Ops.FDIV, other, swap=swap)

    @composed
    def _divide_toward_zero(self, other: Operand) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._divide_toward_zero(other))
        left, right = self._pair("div", other)
        if left.dtype.is_float:
            return left._true_divide(right).trunc()
        quotient = left // right
        is_rounded_down = (quotient < 0) & (quotient * right).ne(left)
        return quotient + is_rounded_down.cast(quotient.dtype)

    @templated
    def trunc(self) -> Self:
        """Round toward zero.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
        return self._unary(Ops.TRUNC) if self.dtype.is_float else self

    @templated
    def floor(self) -> Self:
        """Round down, toward minus infinity.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.2, -1.2]).floor().tolist()
        [1.0, -2.0]
        """
        if not self.dtype.is_float:
            return self._copy_of(self)
        whole = self.trunc()
        return whole - (self < whole).cast(self.dtype)

    @composed
    def _floor_divide(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._floor_divide(other, swap=swap))
        left, right = self._pair("floordiv", other, swap=swap)
        if left.dtype.is_float:
            # A step: its derivative is 0 wherever it has one.
            sides: list[Any] = [left, right]
            whole: Self = sides[0]._whole_quotient(sides[1]).trunc()
            return whole
        return left._binary("floordiv", Ops.FLOORDIV, right)

    @composed
    def _floor_modulo(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._floor_modulo(other, swap=swap))
        left, right = self._pair("mod", other, swap=swap)
        if left.dtype.is_float:
            rest: Any = left._binary("mod", Ops.FMOD, right)
            is_below: Any = right < 0
            # A remainder of 0 has the divisor's sign, too, and the derivatives of the others.
            zero = is_below.where(rest.const_like(-0.0), 0.0) - (rest.detach() - rest)
            found: Self = rest.eq(0).where(zero, (rest < 0).ne(is_below).where(rest + right, rest))
            return found
        return left._binary("mod", Ops.FLOORMOD, right)

    def _whole_quotient(self, right: Self) -> Self:
        """The float quotient rounded down, by way of the exact remainder: a rounded quotient may
        reach the next whole number.
        """
        sides: list[Any] = [self, right]
        left, divisor = (side._wide() for side in sides)
        rest = left._binary("floordiv", Ops.FMOD, divisor)
        quotient = left._true_divide(divisor)
        nearest = (left - rest)._true_divide(divisor)
        is_below = rest.ne(0) & (rest < 0).ne(divisor < 0)
        whole = (nearest - is_below.cast(nearest.dtype)).round()
        # From here on every float is whole, and the quotient is rounded but once.
        limit = 2.0**53 if quotient.dtype is dtypes.float64 else 2.0**24
        whole = ((quotient < limit) & (quotient > -limit)).where(whole, quotient)
        # Of an infinite number there is no remainder, and no quotient.
        whole = (rest.ne(rest) & divisor.ne(0)).where(rest, whole)
        # A zero has the quotient's sign; by zero there is no remainder.
        whole = whole.eq(0).where(quotient * 0.0, whole)
        found: Self = divisor.eq(0).where(quotient, whole).cast(self.dtype)
        return found

    def _pair(self, name: str, other: Operand, *, swap: bool = False) -> tuple[Self, Self]:
        """This tensor and `other` as tensors of one dtype, not bool; exchanged if asked."""
        other = self._operand(name, other)
        left, right = self._meet(name, other)
        if left.dtype is dtypes.bool:
            left, right = left.cast(dtypes.default_int), right.cast(dtypes.default_int)
        pair = self._joined(left, other), self._joined(right, other)
        return (pair[1], pair[0]) if swap else pair

    @templated
    def mod(self, other: Operand) -> Self:
        """Remainder of floor division, exact, with the sign of `other`. It is NaN for an infinite
        number and for a divisor of zero; with integers a divisor of zero gives 0.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).mod(3).tolist()
        [1, 2]
        """
        return self._floor_modulo(other)

    def fmod(self, other: Operand) -> Self:
        """Remainder of division rounded toward zero, exact, with the sign of this tensor. It is NaN
        for an infinite number and for a divisor of zero.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        if self._would_round(other):
            return self._wide_with(lambda x: x.fmod(other))
        left, right = self._pair("fmod", other)
        if left.dtype.is_float:
            return left._binary("fmod", Ops.FMOD, right)
        return left - left._divide_toward_zero(right) * right

    @templated
    def floor_divide(self, other: Operand) -> Self:
        """Divide and round down: self // other. With integers a divisor of zero gives 0.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).floor_divide(2).tolist()
        [3, -4]
        """
        return self._floor_divide(other)

    # comparisons

    @elementwise
    def eq(self, other: Operand) -> Self:
        """Compare: true where the two are equal; NaN equals nothing.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).eq(Tensor([1, 3])).tolist()
        [True, False]
        """
        return self._compared("eq", Ops.CMPEQ, other)

    @elementwise
    def ne(self, other: Operand) -> Self:
        """Compare: true where the two differ; NaN differs from all.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).ne(Tensor([1, 3])).tolist()
        [False, True]
        """
        return self._compared("ne", Ops.CMPNE, other)

    @elementwise
    def lt(self, other: Operand) -> Self:
        """Compare: true where self < other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).lt(2).tolist()
        [True, False]
        """
        return self._compared("lt", Ops.CMPLT, other)

    @elementwise
    def gt(self, other: Operand) -> Self:
        """Compare: true where self > other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).gt(1).tolist()
        [False, True]
        """
        return self._compared("gt", Ops.CMPLT, other, swap=True)

    @elementwise
    def le(self, other: Operand) -> Self:
        """Compare: true where self <= other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).le(1).tolist()
        [True, False]
        """
        return self._at_most("le", other)

    @elementwise
    def ge(self, other: Operand) -> Self:
        """Compare: true where self >= other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).ge(2).tolist()
        [False, True]
        """
        return self._at_most("ge", other, swap=True)

    def _compared(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        x = self
        if isinstance(other, int) and not isinstance(other, bool) and x.dtype.is_int:
            if not x.dtype.min <= other <= x.dtype.max:
                # Wrapping the number would change the answer.
                x = x.cast(dtypes.int64 if -(1 << 63) <= other < 1 << 63 else dtypes.float64)
                other = float(other) if x.dtype.is_float else other
        return x._binary(name, op, other, swap=swap)

    @composed
    def _at_most(self, name: str, other: Operand, *, swap: bool = False) -> Self:
        other = self._operand(name, other) if not isinstance(other, int) else other
        if (
            self.dtype.is_float
            or isinstance(other, float)
            or (isinstance(other, Core) and other.dtype.is_float)
        ):
            # Not "not greater": that would be true of NaN.
            return self._compared(name, Ops.CMPLT, other, swap=swap) | self._compared(
                name, Ops.CMPEQ, other
            )
        return self._compared(name, Ops.CMPLT, other, swap=not swap).logical_not()

    # logic and bits

    @templated
    def logical_not(self) -> Self:
        """Invert the truth value: true where the value is zero.

        Returns a bool tensor of this shape.

        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)._unary(Ops.XOR, True)

    def bitwise_not(self) -> Self:
        """Invert all bits; a bool is negated.

        Returns a tensor of this shape and dtype.

        Raises DTypeError for floats.

        >>> Tensor([0, 5]).bitwise_not().tolist()
        [-1, -6]
        """
        self._integers("bitwise_not")
        return self._unary(Ops.XOR, True if self.dtype is dtypes.bool else -1)

    @templated
    def bitwise_and(self, other: Operand) -> Self:
        """Combine bits by and: self & other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_and(3).tolist()
        [2]
        """
        return self._bits("bitwise_and", Ops.AND, other)

    @templated
    def bitwise_or(self, other: Operand) -> Self:
        """Combine bits by or: self | other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_or(3).tolist()
        [7]
        """
        return self._bits("bitwise_or", Ops.OR, other)

    @templated
    def bitwise_xor(self, other: Operand) -> Self:
        """Combine bits by exclusive or: self ^ other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_xor(3).tolist()
        [5]
        """
        return self._bits("bitwise_xor", Ops.XOR, other)

    def _bits(self, name: str, op: Ops, other: Operand) -> Self:
        self._integers(name)
        if isinstance(other, float) or (isinstance(other, Core) and other.dtype.is_float):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not "
                + (other.dtype.name if isinstance(other, Core) else repr(other)),
                left=describe(self.uop),
                right=describe(other.uop) if isinstance(other, Core) else repr(other),
                line=here(),
                remedy="cast it: .cast(dtypes.int32)",
            )
        return self._binary(name, op, other)

    @templated
    def lshift(self, other: Operand) -> Self:
        """Shift bits left: self * 2**other, wrapped around. The result is 0 where `other` is the
        width in bits or more, or negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError for floats and bools, and for a number that is negative; ShapeError unless
        the shapes broadcast.

        >>> Tensor([1, 3]).lshift(2).tolist()
        [4, 12]
        """
        return self._shifted("lshift", Ops.SHL, other)

    @templated
    def rshift(self, other: Operand) -> Self:
        """Shift bits right: self // 2**other. The result is 0 or -1, by the sign, where `other` is
        the width in bits or more, or negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError for floats and bools, and for a number that is negative; ShapeError unless
        the shapes broadcast.

        >>> Tensor([8, -8]).rshift(2).tolist()
        [2, -2]
        """
        return self._shifted("rshift", Ops.SHR, other)

    def _shifted(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        self._integers(name, but_bool=True)
        if isinstance(other, Core) and (other.dtype.is_float or other.dtype is dtypes.bool):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not {other.dtype.name}",
                left=describe(self.uop),
                right=describe(other.uop),
                line=here(),
                remedy="cast it: .cast(dtypes.int32)",
            )
        if isinstance(other, int) and not swap:
            if other < 0:
                raise DTypeError(
                    f"{name}: a shift by {other} bits",
                    tensor=describe(self.uop),
                    line=here(),
                    rule="amounts are not negative",
                    remedy=f"{'x >> ' if op is Ops.SHL else 'x << '}{-other}",
                )
            # All amounts from the width on do the same, and this one fits the dtype.
            other = min(other, self.dtype.bits)
        return self._binary(name, op, other, swap=swap)

    # Python's operators

    @elementwise
    def __add__(self, other: Operand) -> Self:
        return self._binary("add", Ops.ADD, other)

    @elementwise
    def __radd__(self, other: Operand) -> Self:
        return self._binary("add", Ops.ADD, other, swap=True)

    @elementwise
    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    @elementwise
    def __rsub__(self, other: Operand) -> Self:
        return self._subtract(other, swap=True)

    @elementwise
    def __mul__(self, other: Operand) -> Self:
        return self._binary("mul", Ops.MUL, other)

    @elementwise
    def __rmul__(self, other: Operand) -> Self:
        return self._binary("mul", Ops.MUL, other, swap=True)

    @elementwise
    def __truediv__(self, other: Operand) -> Self:
        return self._true_divide(other)

    @elementwise
    def __rtruediv__(self, other: Operand) -> Self:
        return self._true_divide(other, swap=True)

    @templated
    def __floordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other, swap=True)

    @templated
    def __mod__(self, other: Operand) -> Self:
        return self._floor_modulo(other)

    def __rmod__(self, other: Operand) -> Self:
        return self._floor_modulo(other, swap=True)

    @templated
    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    @templated
    def __invert__(self) -> Self:
        return self.bitwise_not()

    @templated
    def __and__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    def __rand__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    @templated
    def __or__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    def __ror__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    @templated
    def __xor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __rxor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __lshift__(self, other: Operand) -> Self:
        return self.lshift(other)

    def __rlshift__(self, other: Operand) -> Self:
        return self._shifted("lshift", Ops.SHL, other, swap=True)

    def __rshift__(self, other: Operand) -> Self:
        return self.rshift(other)

    def __rrshift__(self, other: Operand) -> Self:
        return self._shifted("rshift", Ops.SHR, other, swap=True)

    @elementwise
    def __lt__(self, other: Operand) -> Self:
        return self.lt(other)

    @elementwise
    def __gt__(self, other: Operand) -> Self:
        return self.gt(other)

    @elementwise
    def __le__(self, other: Operand) -> Self:
        return self.le(other)

    @elementwise
    def __ge__(self, other: Operand) -> Self:
        return self.ge(other)

    @elementwise
    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.eq(other)

    @elementwise
    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.ne(other)

    def __hash__(self) -> int:
        return object.__hash__(self)
