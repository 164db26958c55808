"""Divisors of integers; mantissas, exponents and neighbours of floats; kinds of numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError, UnsupportedDTypeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.composed.matrix_products import Products
from tilegrad.tensor.handle.core import describe

__all__ = ["Frexp", "Numbers"]

# Bits of the fraction of each float whose parts can be looked at.
_FRACTION = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}


class Frexp(NamedTuple):
    """Numbers as mantissa * 2**exponent."""

    mantissa: Any
    exponent: Any


class Numbers(Products):
    """Divisors of integers, parts of floats."""

    __slots__ = ()

    # integers

    @templated
    @composed
    def gcd(self, other: Any) -> Self:
        """Greatest common divisor, not negative; that of 0 and 0 is 0. By Euclid's algorithm, with
        as many steps as the dtype can take: 46 divisions for int32.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers, ShapeError unless the shapes broadcast.

        >>> Tensor([12, -18, 0]).gcd(8).tolist()
        [4, 2, 8]
        """
        self._check_integers("gcd", other)
        left, right = self._same_dtype("gcd", other)
        # Unsigned integers have the remainder in one division, that by 0 is 0, and the magnitude of
        # the smallest signed integer is one of them.
        unsigned = dtypes.from_name(f"uint{left.dtype.bits}")
        a, b = left.abs().cast(unsigned), right.abs().cast(unsigned)
        # The slowest pair are neighbours among Fibonacci's numbers, phi**n / sqrt(5).
        steps = math.ceil(left.dtype.bits / math.log2((1 + math.sqrt(5)) / 2)) + 1
        for _ in range(steps):
            a, b = b.eq(0).where(a, b), a % b
        return a.cast(left.dtype)

    @templated
    @composed
    def lcm(self, other: Any) -> Self:
        """Least common multiple, not negative; 0 if one of the two is 0.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; a multiple
        that this does not hold wraps.

        Raises DTypeError unless both are integers, ShapeError unless the shapes broadcast.

        >>> Tensor([4, 0]).lcm(6).tolist()
        [12, 0]
        """
        divisor = self.gcd(other)
        left, right = self._same_dtype("lcm", other)
        steps = left // divisor.eq(0).where(1, divisor)
        if left.dtype in (dtypes.int8, dtypes.int16):
            # The magnitude is that of the multiple, not that of its lowest 8 bits.
            product = (steps.cast(dtypes.int32) * right.cast(dtypes.int32)).abs()
            return product.cast(left.dtype)
        return (steps * right).abs()

    def _check_integers(self, name: str, other: Any) -> None:
        kind = getattr(other, "dtype", dtypes.int32 if isinstance(other, int) else dtypes.float32)
        if not (self.dtype.is_int and kind.is_int):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not {self.dtype.name} and {kind.name}",
                tensor=describe(self.uop),
            )

    # the parts of floats

    def _as_fields(self, name: str) -> tuple[Self, int]:
        """The bits of each number as an integer, and how many of them are its fraction."""
        if self.dtype.name not in _FRACTION:
            raise DTypeError(
                f"{name}: {', '.join(_FRACTION)} have parts, {self.dtype.name} does not",
                tensor=describe(self.uop),
            )
        kind = dtypes.from_name(f"int{self.dtype.bits}")
        return self.bitcast(kind), _FRACTION[self.dtype.name]

    @composed
    def _power_of_two(self, exponent: Self) -> Self:
        """2**exponent in this dtype, for what is a normal number."""
        bits, fraction = self._as_fields("ldexp")
        bias = (1 << (self.dtype.bits - 2 - fraction)) - 1
        return ((exponent.cast(bits.dtype) + bias) << fraction).bitcast(self.dtype)

    @templated
    @composed
    def frexp(self) -> Frexp:
        """Split each number into mantissa * 2**exponent. The magnitude of the mantissa is in
        1/2..1, or 0; infinite numbers and NaN are their own mantissa.

        Returns a pair (mantissa, exponent) of this shape, in this dtype and int32.

        Raises DTypeError for what is no float of 16 bits or more.

        >>> made = Tensor([8.0, -0.75]).frexp()
        >>> made.mantissa.tolist(), made.exponent.tolist()
        ([0.5, -0.75], [4, 0])
        """
        _, fraction = self._as_fields("frexp")
        # Numbers smaller than the normal ones are brought among them first, by an exact product.
        bias = (1 << (self.dtype.bits - 2 - fraction)) - 1
        is_tiny = self.abs() < 2.0 ** (1 - bias)
        bits, _ = is_tiny.where(self * 2.0 ** (fraction + 1), self)._as_fields("frexp")
        exponent = ((bits >> fraction) & (2 * bias + 1)).cast(dtypes.int32) - (bias - 1)
        exponent = is_tiny.where(exponent - (fraction + 1), exponent)
        is_plain = self.ne(0) & self.isfinite()
        exponent = is_plain.where(exponent, 0)
        return Frexp(is_plain.where(self.ldexp(-exponent), self), exponent)

    @elementwise
    @composed
    def ldexp(self, other: Any) -> Self:
        """Multiply by a power of two: self * 2**other, exact where the result is a normal number.

        Args:
            other: integers, or floats, whose fractions are powers, too.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0.5, 3.0]).ldexp(Tensor([4, -1])).tolist()
        [8.0, 1.5]
        """
        if isinstance(other, (int, float)):
            other = self._operand("ldexp", other)
        if other.dtype.is_float:
            # The whole share counts here, the rest is a factor, and has the derivative.
            whole = other.floor().detach()
            rest = other.isinf().where(0.0, other - whole)
            wide = self.cast(promote(self.dtype, other.dtype))
            scaled: Self = wide.ldexp(whole.cast(dtypes.int32)) * rest.exp2()
            return scaled

        def function(x: Self) -> Self:
            bias = (1 << (x.dtype.bits - 2 - _FRACTION[x.dtype.name])) - 1
            # In steps whose powers are normal numbers.
            # Exponents beyond int32 are limited before they are cast, so that they do not wrap.
            rest = other.cast(dtypes.int32) if other.dtype.bits < 32 else other
            rest = rest.minimum(3 * bias)
            if rest.dtype.min < 0:
                rest = rest.maximum(-3 * bias)
            rest = rest.cast(dtypes.int32)
            for _ in range(3):
                bounded = rest.clip(1 - bias, bias)
                x, rest = x * x._power_of_two(bounded), rest - bounded
            return x

        return self._floating()._in_float(function)

    @elementwise
    @composed
    def nextafter(self, other: Any) -> Self:
        """The next number of the dtype on the way to `other`; NaN if either is.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError for what is no float of 16 bits or more, ShapeError unless the shapes
        broadcast.

        >>> (Tensor([1.0]).nextafter(2.0) - 1).tolist()
        [1.1920928955078125e-07]
        """
        left, right = self._same_dtype("nextafter", other)
        bits, _ = left._as_fields("nextafter")
        # The bits of positive numbers are in their order, those of negative ones in reverse.
        away = (right > left).eq(left > 0)
        next_ = bits + away.where(bits.const_like(1), -1)
        smallest = bits.const_like(1).bitcast(left.dtype)
        moved = left.eq(0).where((right > 0).where(smallest, -smallest), next_.bitcast(left.dtype))
        is_bad = left.isnan() | right.isnan()
        return is_bad.where(math.nan, left.eq(right).where(right, moved))

    # other arithmetic

    def float_power(self, exponent: Any) -> Self:
        """Power in float64: self ** exponent.

        Args:
            exponent: a number, or a tensor that broadcasts with this one.

        Returns a float64 tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is no number.

        >>> Tensor([2]).float_power(-1).tolist()
        [0.5]
        """
        power = exponent.double() if isinstance(exponent, type(self)) else float(exponent)
        return self.double().pow(power)

    def sgn(self) -> Self:
        """As `sign`: there are no complex numbers.

        Returns a tensor of this shape and dtype.

        >>> Tensor([-3.0, 0.0]).sgn().tolist()
        [-1.0, 0.0]
        """
        return self.sign()

    # kinds of numbers

    def isreal(self) -> Self:
        """Test for real numbers: true everywhere.

        Returns a bool tensor of this shape.

        >>> Tensor([1.0]).isreal().tolist()
        [True]
        """
        return self.const_like(1).cast(dtypes.bool)

    def is_complex(self) -> bool:
        """Whether the dtype is complex: never; a complex number is a pair along the last axis (see
        `fft`).

        Returns False.

        >>> Tensor([1.0]).is_complex()
        False
        """
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers.

        Returns a bool.

        >>> Tensor([1]).is_signed()
        True
        """
        return self.dtype.is_float or self.dtype.kind == "int"

    def is_nonzero(self) -> bool:
        """Whether the one element is not zero; this computes.

        Returns a bool.

        Raises ShapeError unless there is one element.

        >>> Tensor([2.0]).is_nonzero()
        True
        """
        return bool(self.item())

    def is_same_size(self, other: Self) -> bool:
        """Whether both have the same shape.

        Args:
            other: a tensor.

        Returns a bool.

        >>> Tensor([1]).is_same_size(Tensor([2.0]))
        True
        """
        return self.shape == other.shape

    @property
    def itemsize(self) -> int:
        """As `element_size`.

        >>> Tensor([1]).itemsize
        4
        """
        return self.element_size()
