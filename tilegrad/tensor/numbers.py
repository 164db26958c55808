"""Divisors of integers; mantissas, exponents and neighbours of floats; kinds of numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.tensor.core import describe
from tilegrad.tensor.products import Products
from tilegrad.tensor.sizes import here

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

    @composed
    def gcd(self, other: Any) -> Self:
        """The greatest common divisor, not negative; that of 0 and 0 is 0.

        By Euclid's steps, as many as numbers of the dtype can take, so an int32 takes 46 divisions.

        Raises DTypeError unless both are integers.

        >>> Tensor([12, -18, 0]).gcd(8).tolist()
        [4, 2, 8]
        """
        self._check_integers("gcd", other)
        left, right = self._same_dtype("gcd", other)
        a, b = left.abs(), right.abs()
        # The slowest pair are neighbours among Fibonacci's numbers, phi**n / sqrt(5).
        steps = math.ceil(left.dtype.bits / math.log2((1 + math.sqrt(5)) / 2)) + 1
        for _ in range(steps):
            is_found = b.eq(0)
            rest = a.fmod(is_found.where(1, b))
            a, b = is_found.where(a, b), is_found.where(0, rest)
        return a

    @composed
    def lcm(self, other: Any) -> Self:
        """The least common multiple, not negative; 0 if one of both is 0.

        Raises DTypeError unless both are integers.

        >>> Tensor([4, 0]).lcm(6).tolist()
        [12, 0]
        """
        divisor = self.gcd(other)
        left, right = self._same_dtype("lcm", other)
        is_zero = divisor.eq(0)
        return (left // is_zero.where(1, divisor) * right).abs()

    def _check_integers(self, name: str, other: Any) -> None:
        kind = getattr(other, "dtype", dtypes.int32 if isinstance(other, int) else dtypes.float32)
        if not (self.dtype.is_int and kind.is_int):
            raise DTypeError(
                f"{name}: integers are needed, not {self.dtype.name} and {kind.name}",
                tensor=describe(self.uop),
                line=here(),
            )

    # the parts of floats

    def _as_fields(self, name: str) -> tuple[Self, int]:
        """The bits of each number as an integer, and how many of them are its fraction."""
        if self.dtype.name not in _FRACTION:
            raise DTypeError(
                f"{name}: {', '.join(_FRACTION)} have parts, {self.dtype.name} does not",
                tensor=describe(self.uop),
                line=here(),
            )
        kind = dtypes.from_name(f"int{self.dtype.bits}")
        return self.bitcast(kind), _FRACTION[self.dtype.name]

    @composed
    def _power_of_two(self, exponent: Self) -> Self:
        """2**exponent in this dtype, for what is a normal number."""
        bits, fraction = self._as_fields("ldexp")
        bias = (1 << (self.dtype.bits - 2 - fraction)) - 1
        return ((exponent.cast(bits.dtype) + bias) << fraction).bitcast(self.dtype)

    @composed
    def frexp(self) -> Frexp:
        """Each number as mantissa * 2**exponent: the mantissa's size is in 1/2..1 or 0, the
        exponent is an int32. Infinite numbers and NaN are their own mantissa.

        Raises DTypeError for what is no float of 16 bits or more.

        >>> made = Tensor([8.0, -0.75]).frexp()
        >>> made.mantissa.tolist(), made.exponent.tolist()
        ([0.5, -0.75], [4, 0])
        """
        _, fraction = self._as_fields("frexp")
        # What is smaller than a normal number is brought among them first, by an exact product.
        bias = (1 << (self.dtype.bits - 2 - fraction)) - 1
        is_tiny = self.abs() < 2.0 ** (1 - bias)
        bits, _ = is_tiny.where(self * 2.0 ** (fraction + 1), self)._as_fields("frexp")
        exponent = ((bits >> fraction) & (2 * bias + 1)).cast(dtypes.int32) - (bias - 1)
        exponent = is_tiny.where(exponent - (fraction + 1), exponent)
        is_plain = self.ne(0) & self.isfinite()
        exponent = is_plain.where(exponent, 0)
        return Frexp(is_plain.where(self.ldexp(-exponent), self), exponent)

    @composed
    def ldexp(self, other: Any) -> Self:
        """self * 2**other, exact where the result is a normal number. `other` are integers, or
        floats that are whole numbers.

        >>> Tensor([0.5, 3.0]).ldexp(Tensor([4, -1])).tolist()
        [8.0, 1.5]
        """
        other = self._operand("ldexp", other) if isinstance(other, (int, float)) else other

        def function(x: Self) -> Self:
            bias = (1 << (x.dtype.bits - 2 - _FRACTION[x.dtype.name])) - 1
            # In steps whose powers are normal numbers.
            rest = other.cast(dtypes.int32).clip(-3 * bias, 3 * bias)
            for _ in range(3):
                part = rest.clip(1 - bias, bias)
                x, rest = x * x._power_of_two(part), rest - part
            return x

        return self._floating()._in_float(function)

    @composed
    def nextafter(self, other: Any) -> Self:
        """The next number of the dtype on the way to `other`; NaN if either is.

        Raises DTypeError for what is no float of 16 bits or more.

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
        """`pow` in float64.

        >>> Tensor([2]).float_power(-1).tolist()
        [0.5]
        """
        power = exponent.double() if isinstance(exponent, type(self)) else float(exponent)
        return self.double().pow(power)

    def sgn(self) -> Self:
        """As `sign`: there are no complex numbers.

        >>> Tensor([-3.0, 0.0]).sgn().tolist()
        [-1.0, 0.0]
        """
        return self.sign()

    # kinds of numbers

    def isreal(self) -> Self:
        """True everywhere: there are no complex numbers.

        >>> Tensor([1.0]).isreal().tolist()
        [True]
        """
        return self.const_like(1).cast(dtypes.bool)

    def is_complex(self) -> bool:
        """False: a complex number is a pair along the last axis (see `fft`).

        >>> Tensor([1.0]).is_complex()
        False
        """
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers.

        >>> Tensor([1]).is_signed()
        True
        """
        return self.dtype.is_float or self.dtype.kind == "int"

    def is_nonzero(self) -> bool:
        """Whether the one element is not zero; this computes.

        Raises ShapeError unless there is one element.

        >>> Tensor([2.0]).is_nonzero()
        True
        """
        return bool(self.item())

    def is_same_size(self, other: Self) -> bool:
        """Whether both have one shape.

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
