"""Bernoulli's numbers, and series that have them as coefficients."""

from __future__ import annotations

import math

__all__ = ["DIGAMMA", "OVER_FACTORIALS", "STIRLING", "STIRLING_FROM"]

# Bernoulli's numbers that are not zero, from B2 on (NIST DLMF 24.2).
_NUMBERS = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# B(2n) / (2n)!.
OVER_FACTORIALS = tuple(b / math.factorial(2 * n) for n, b in enumerate(_NUMBERS, 1))
# x (log(gamma(x)) - (x - 1/2) log(x) + x - log(2 pi) / 2), the series of Stirling, in 1 / x^2 (NIST
# DLMF 5.11.1), and x^2 (log(x) - 1 / (2x) - digamma(x)) likewise (5.11.2).
STIRLING = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(_NUMBERS[:7], 1))
DIGAMMA = tuple(b / (2 * n) for n, b in enumerate(_NUMBERS[:7], 1))
# They are used from here on, where the first term left out is below 1e-16.
STIRLING_FROM = 10
