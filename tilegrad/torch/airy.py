"""The Airy function Ai of real numbers.

Between -12.5 and 2.5 it is the Taylor series around the nearest integer, whose coefficients follow
from Ai'' = x Ai and the two values there. Above, it is the integral along the steepest descent
through the saddle point at the root of x, for which the trapezoidal rule converges exponentially
(NIST DLMF 9.5.8); below, the expansion for large numbers (9.7.9).
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

from tilegrad.torch.bessel import in_wide
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.tensor import Tensor

__all__ = ["airy_ai"]

_LEAST, _MOST = -12, 2
# Ai(0) and -Ai'(0), to 40 digits: 3**(-2/3) / gamma(2/3) and 3**(-1/3) / gamma(1/3).
_AT_ZERO = "0.3550280538878172392600631860041831763979791742"
_SLOPE_AT_ZERO = "0.2588194037928067984051835601892039634790911383"
# Terms of a series within half of an integer, and of the expansion, whose least term at -12.5 is
# below 1e-20.
_TERMS, _FAR_TERMS = 26, 20
# The bell of width 1 of the integral: steps of 0.15 up to 6.3, where it is below 1e-17.
_STEP, _STEPS = 0.15, 43


@cache
def _at_integers() -> tuple[list[float], list[float]]:
    """Ai and its derivative at the integers from the least on: the series around 0, with more
    digits than cancel in it.
    """
    pairs = [_series(Decimal(number)) for number in range(_LEAST, _MOST + 1)]
    return [float(value) for value, _ in pairs], [float(slope) for _, slope in pairs]


def _series(x: Decimal) -> tuple[Decimal, Decimal]:
    with localcontext() as context:
        context.prec = 60
        coefficients = [Decimal(_AT_ZERO), -Decimal(_SLOPE_AT_ZERO), Decimal(0)]
        for n in range(1, 150):
            coefficients.append(coefficients[n - 1] / ((n + 1) * (n + 2)))
        value = slope = Decimal(0)
        for n in range(len(coefficients) - 1, 0, -1):
            value = value * x + coefficients[n]
            slope = slope * x + n * coefficients[n]
        return value * x + coefficients[0], slope


def _near(x: Tensor) -> Tensor:
    center = x.detach().round()
    index = (center - _LEAST).long()
    values, slopes = (tensor(table, dtype=x.dtype) for table in _at_integers())
    step = x - center
    coefficients: list[Any] = [values[index], slopes[index]]
    for n in range(_TERMS - 2):
        before = coefficients[n - 1] if n else 0
        coefficients.append((center * coefficients[n] + before) / ((n + 1) * (n + 2)))
    found = coefficients[-1]
    for each in reversed(coefficients[:-1]):
        found = found * step + each
    return found  # type: ignore[no-any-return]


def _above(x: Tensor) -> Tensor:
    root = x.sqrt()
    points = [number * _STEP for number in range(_STEPS)]
    weights = [_STEP * math.exp(-u * u) / (1 if u else 2) for u in points]
    cubes = tensor([u**3 / 3 for u in points], dtype=x.dtype)
    narrow = root.sqrt()
    waves = (cubes / (narrow * root).unsqueeze(-1)).cos() * tensor(weights, dtype=x.dtype)
    return waves.sum(-1) / narrow * (x * root * (-2 / 3)).exp() / math.pi


def _below(x: Tensor) -> Tensor:
    size = -x
    root = size.sqrt()
    angle = size * root * (2 / 3)
    inverse = 1 / angle
    square = -inverse * inverse
    coefficients = [1.0]
    for k in range(1, _FAR_TERMS):
        factor = (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))
        coefficients.append(coefficients[-1] * factor)
    p, q = x.zeros_like(), x.zeros_like()
    for even, odd in zip(reversed(coefficients[::2]), reversed(coefficients[1::2])):
        p, q = p * square + even, q * square + odd
    c, s = angle.cos(), angle.sin()
    waves = (c + s) * p + (s - c) * q * inverse
    return waves / root.sqrt() / math.sqrt(2 * math.pi)


def _airy(x: Tensor) -> Tensor:
    is_above, is_below = x > _MOST + 0.5, x < _LEAST - 0.5
    is_near = ~(is_above | is_below | x.isnan())
    # Larger angles leave the dtype.
    above = _above(is_above.where(x, _MOST + 1.0).clip(1, 1e200))
    below = _below(is_below.where(x, _LEAST - 1.0).clip(-1e200, -1))
    found = is_near.where(_near(is_near.where(x, 0)), is_above.where(above, below))
    made: Tensor = x.isnan().where(math.nan, x.isinf().where(0, found))
    return made


airy_ai = in_wide("airy_ai", _airy)
airy_ai.__name__ = airy_ai.__qualname__ = "airy_ai"
airy_ai.__doc__ = "The Airy function Ai."
