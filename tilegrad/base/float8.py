"""Floats of 8 bits: the meaning of each of their 256 bit patterns, and rounding to them.

Two splits of the bits, each in two kinds. `fp8e4m3` and `fp8e5m2` are those of the Open Compute
Project (OCP 8-bit Floating Point Specification, 2023), the kinds ending in `fnuz` ("finite, no
unsigned zero") those of AMD, Graphcore and Qualcomm, with the exponent's bias one larger, a single
zero and a single NaN in place of -0.0.

A number that rounds to more than the largest becomes the largest in fp8e4m3, infinities too;
infinite in fp8e5m2; and NaN in the others, which have no infinities. PyTorch 2.13 has these rules.
"""

from __future__ import annotations

import math
from functools import cache

__all__ = ["FORMATS", "Float8"]


class Float8:
    """One kind: `digits` of the mantissa behind the point, the exponent's `bias`, the `largest`
    number, and the `overflow`: what a positive number becomes that rounds to more.
    """

    __slots__ = (
        "bias",
        "digits",
        "has_infinity",
        "has_one_zero",
        "largest",
        "name",
        "nan",
        "overflow",
    )

    def __init__(
        self,
        name: str,
        digits: int,
        bias: int,
        largest: float,
        nan: int,
        overflow: float = math.nan,
    ):
        self.name, self.digits, self.bias, self.largest, self.nan = name, digits, bias, largest, nan
        self.has_infinity = math.isinf(overflow)
        self.overflow = overflow
        self.has_one_zero = nan == 0x80

    def round(self, value: float) -> float:
        """The nearest number of this kind, ties to the even one; zeros keep their sign if there
        are two.
        """
        if value != value:
            return math.nan
        if math.isinf(value):
            return self._beyond(value)
        _, exponent = math.frexp(value)
        step = math.ldexp(1.0, max(exponent - 1, 1 - self.bias) - self.digits)
        size = round(abs(value) / step) * step
        if size > self.largest:
            return self._beyond(value)
        return math.copysign(size, value) if size or not self.has_one_zero else 0.0

    def _beyond(self, value: float) -> float:
        has_sign = self.overflow == self.overflow
        return math.copysign(self.overflow, value) if has_sign else math.nan

    def to_bits(self, value: float) -> int:
        """The bits of a value of this kind; NaN is positive where it has a sign."""
        if value != value:
            return self.nan
        sign = 0x80 if math.copysign(1.0, value) < 0 and (value or not self.has_one_zero) else 0
        if math.isinf(value):
            return sign | 0x7C
        size = abs(value)
        exponent = max(math.frexp(size)[1] - 1, 1 - self.bias) if size else 1 - self.bias
        digits = int(math.ldexp(size, self.digits - exponent))
        # The leading digit of a normal number adds one to the exponent's field.
        return sign | ((exponent + self.bias - 1) << self.digits) + digits

    @cache  # noqa: B019 - there are four of these, and they live for ever
    def values(self) -> tuple[float, ...]:
        """The value of each of the 256 bit patterns."""
        return tuple(self._value(bits) for bits in range(256))

    def _value(self, bits: int) -> float:
        size, sign = bits & 0x7F, -1.0 if bits & 0x80 else 1.0
        exponent, digits = size >> self.digits, size & ((1 << self.digits) - 1)
        if self.has_one_zero:
            if bits == self.nan:
                return math.nan
        elif self.has_infinity and exponent == 0x1F:
            return math.nan if digits else sign * math.inf
        elif not self.has_infinity and size == self.nan:
            return math.nan
        if exponent == 0:
            return sign * math.ldexp(digits, 1 - self.bias - self.digits)
        return sign * math.ldexp((1 << self.digits) + digits, exponent - self.bias - self.digits)


FORMATS = {
    "fp8e4m3": Float8("fp8e4m3", 3, 7, 448.0, 0x7F, overflow=448.0),
    "fp8e5m2": Float8("fp8e5m2", 2, 15, 57344.0, 0x7E, overflow=math.inf),
    "fp8e4m3fnuz": Float8("fp8e4m3fnuz", 3, 8, 240.0, 0x80),
    "fp8e5m2fnuz": Float8("fp8e5m2fnuz", 2, 16, 57344.0, 0x80),
}
