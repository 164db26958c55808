"""Bessel functions of whole order of real numbers.

Up to 25, J and Y are integrals over a period, for which the trapezoidal rule is exact but for
Bessel functions of an order beyond the number of points:

    J_n(x) = mean over t of cos(n t - x sin t)
    Y_n(x) = logarithm, and a sum of J_(n + 2k) (Neumann's series; Abramowitz and Stegun, 9.1.88)

so both are sums of cos(x sin t) or sin(x sin t) with weights that do not depend on x. Beyond 25
they are Hankel's expansions (9.2.5). K is its series up to 1 (9.6.11), and beyond that an integral
of exp(-x cosh t), for which the trapezoidal rule converges as fast (9.6.24).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.expecting import no_tensor
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "in_wide", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
]  # fmt: skip

# Points in a quarter of a period; with them J of order 64 is what is left out, 1e-19 at 25.
_POINTS, _ORDERS, _MOST = 32, 31, 25.0
_TERMS = 18
_LARGEST, _SMALLEST = dtypes.float64.largest, 5e-324
_EULER = 0.57721566490153286
# Steps of the integral of K. At 25 the integrand is a bell of width 0.2, for which the error is
# exp(-2 * (0.2 * pi / step)**2); at 1 it is below 1e-300 at the last step.
_STEP, _STEPS = 0.1, 80


def _as_float(name: str, input: Any) -> Tensor:
    if not isinstance(input, OurTensor):
        raise no_tensor(name, input)
    x: Tensor = as_ours(input)
    return x if x.dtype.is_float else x.float()


def in_wide(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Any], Tensor]:
    """A function of float64 or float32 as one of all floats."""

    def of(input: Any) -> Tensor:
        x = _as_float(name, input)
        wide = x if x.dtype is dtypes.float64 else x.double()
        return function(wide).to(x.dtype)

    return of


@cache
def _weights(order: int) -> tuple[list[float], list[float], list[float]]:
    """For each point t of a quarter of the period: sin t, its weight in J, and in the sum of J of
    higher orders that is part of Y.
    """
    angles = [(number + 0.5) * math.pi / (2 * _POINTS) for number in range(_POINTS)]
    wave = math.sin if order else math.cos
    series = [(-1) ** k * (order + 2 * k) / (k * (order + k)) for k in range(1, _ORDERS + 1)]
    return (
        [math.sin(angle) for angle in angles],
        [wave(order * angle) / _POINTS for angle in angles],
        [
            sum(factor * wave((order + 2 * k) * angle) for k, factor in enumerate(series, 1))
            / _POINTS
            for angle in angles
        ],
    )


def _waves(x: Tensor, order: int) -> Tensor:
    """sin or cos of x sin t, along a last axis."""
    sines = tensor(_weights(order)[0], dtype=x.dtype)
    angles_of_x = x.unsqueeze(-1) * sines
    return angles_of_x.sin() if order else angles_of_x.cos()


def _hankel(order: int) -> list[float]:
    """The coefficients of Hankel's expansion."""
    coefficients = [1.0]
    for k in range(1, _TERMS):
        factor = (4 * order**2 - (2 * k - 1) ** 2) / (8 * k)
        coefficients.append(coefficients[-1] * factor)
    return coefficients


def _expansion(x: Tensor, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """sqrt(2 / (pi x)), and the sums P and Q, of a large x."""
    coefficients = _hankel(order)
    inverse = 1 / x
    square = -inverse * inverse
    p, q = x.zeros_like(), x.zeros_like()
    for even, odd in zip(reversed(coefficients[::2]), reversed(coefficients[1::2])):
        p, q = p * square + even, q * square + odd
    return (2 / math.pi * inverse).sqrt(), p, q * inverse


def _rotation(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """cos and sin of x - (order / 2 + 1 / 4) pi."""
    c, s, root = x.cos(), x.sin(), math.sqrt(0.5)
    first, second = ((c + s) * root, (s - c) * root)
    return (second, -first) if order else (first, second)


def _first_kind(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    near, far = size.clip(0, _MOST), size.clip(_MOST, _LARGEST)
    weights = tensor(_weights(order)[1], dtype=x.dtype)
    within = (_waves(near, order) * weights).sum(-1)
    scale, p, q = _expansion(far, order)
    c, s = _rotation(far, order)
    found = (size <= _MOST).where(within, scale * (p * c - q * s))
    found = size.isinf().where(0, found)
    found = size.isnan().where(math.nan, found)
    return (x < 0).where(-found, found) if order else found  # type: ignore[no-any-return]


def _second_kind(x: Tensor, order: int) -> Tensor:
    near, far = x.clip(_SMALLEST, _MOST), x.clip(_MOST, _LARGEST)
    _, first, series = _weights(order)
    waves = _waves(near, order)
    j = (waves * tensor(first, dtype=x.dtype)).sum(-1)
    rest = (waves * tensor(series, dtype=x.dtype)).sum(-1)
    logarithm = near.log() + (_EULER - math.log(2) - order)
    within = (logarithm * j - rest) * (2 / math.pi)
    if order:
        within = within - _first_kind(near, 0) * (2 / math.pi) / near
    scale, p, q = _expansion(far, order)
    c, s = _rotation(far, order)
    found = (x <= _MOST).where(within, scale * (p * s + q * c))
    found = x.isinf().where(0, found)
    found = x.eq(0).where(-math.inf, found)
    return ((x < 0) | x.isnan()).where(math.nan, found)  # type: ignore[no-any-return]


def _modified(x: Tensor, order: int, *, is_scaled: bool) -> Tensor:
    near, far = x.clip(_SMALLEST, 1.0), x.clip(1.0, _LARGEST)
    # The series up to 1, by Horner's scheme.
    quarter = near * near / 4
    regular, sums = near.zeros_like(), near.zeros_like()
    for k in range(11, -1, -1):
        harmonic = sum(1 / j for j in range(1, k + 1))
        factor = 1 / ((k + 1) * (k + 1 + order))
        weight = 2 * harmonic + (1 / (k + 1) if order else 0)
        regular = regular * quarter * factor + 1
        # Each term carries its harmonic number.
        sums = sums * quarter * factor + weight
    logarithm = near.log() + (_EULER - math.log(2))
    if order:
        within = 1 / near + near / 2 * (logarithm * regular - sums / 2)
    else:
        within = sums / 2 - logarithm * regular
    if is_scaled:
        within = within * near.exp()
    steps = [number * _STEP for number in range(_STEPS)]
    hyperbolic = tensor([2 * math.sinh(step / 2) ** 2 for step in steps], dtype=x.dtype)
    weights = [_STEP * math.cosh(order * step) / (1 if step else 2) for step in steps]
    terms = (far.unsqueeze(-1) * -hyperbolic).exp() * tensor(weights, dtype=x.dtype)
    beyond = terms.sum(-1)
    # Hankel's expansion with all signs positive (9.7.2), for narrower integrands.
    inverse, narrow = 1 / far, far.zeros_like()
    for each in reversed(_hankel(order)):
        narrow = narrow * inverse + each
    beyond = (far > _MOST).where((math.pi / 2 * inverse).sqrt() * narrow, beyond)
    if not is_scaled:
        beyond = beyond * (-far).exp()
    found = (x <= 1).where(within, beyond)
    found = x.eq(0).where(math.inf, found)
    found = (x == math.inf).where(0, found)
    return ((x < 0) | x.isnan()).where(math.nan, found)  # type: ignore[no-any-return]


def _sinc(x: Tensor) -> Tensor:
    safe = x.eq(0).where(1, x)
    return x.isinf().where(0, x.eq(0).where(1, safe.sin() / safe))  # type: ignore[no-any-return]


def _named(name: str, function: Callable[[Tensor], Tensor], text: str) -> Callable[[Any], Tensor]:
    made: Any = in_wide(name, function)
    made.__name__ = made.__qualname__ = name
    made.__doc__ = text
    return made  # type: ignore[no-any-return]


bessel_j0 = _named("bessel_j0", lambda x: _first_kind(x, 0), "The Bessel function J of order 0.")
bessel_j1 = _named("bessel_j1", lambda x: _first_kind(x, 1), "The Bessel function J of order 1.")
bessel_y0 = _named(
    "bessel_y0", lambda x: _second_kind(x, 0), "The Bessel function Y of order 0; NaN below 0."
)
bessel_y1 = _named(
    "bessel_y1", lambda x: _second_kind(x, 1), "The Bessel function Y of order 1; NaN below 0."
)
modified_bessel_k0 = _named(
    "modified_bessel_k0",
    lambda x: _modified(x, 0, is_scaled=False),
    "The modified Bessel function K of order 0; NaN below 0.",
)
modified_bessel_k1 = _named(
    "modified_bessel_k1",
    lambda x: _modified(x, 1, is_scaled=False),
    "The modified Bessel function K of order 1; NaN below 0.",
)
scaled_modified_bessel_k0 = _named(
    "scaled_modified_bessel_k0",
    lambda x: _modified(x, 0, is_scaled=True),
    "exp(x) times K of order 0.",
)
scaled_modified_bessel_k1 = _named(
    "scaled_modified_bessel_k1",
    lambda x: _modified(x, 1, is_scaled=True),
    "exp(x) times K of order 1.",
)
spherical_bessel_j0 = _named("spherical_bessel_j0", _sinc, "sin(x) / x, and 1 at 0.")
