"""Functions that no op computes, as polynomials.

Each table is a least-squares fit on Chebyshev points (numpy.polynomial.chebyshev.chebfit of 400
points), written as a polynomial of the argument scaled to -1..1, so that Horner's scheme is well
conditioned. Two degrees: one whose error is below that of float32's own rounding (about 1e-7), and
one for float64 (about 2e-15). Half and bfloat16 are computed in float32.
tests/tensor/test_functions.py measures the errors against NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ATAN", "ERFC_ROOT", "ERFC_SCALED", "ERF_TO_1", "EXPM1", "LOG1P", "NORMAL_MIDDLE",
    "NORMAL_TAIL", "Fit",
]  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """A polynomial on `low` to `high`, its coefficients from the constant on."""

    low: float
    high: float
    single: tuple[float, ...]
    double: tuple[float, ...]


# atan(x) / x on 0 <= x <= 1, in x * x.
ATAN = Fit(
    0, 1,
    (
        0.870419753, -0.101876546, 0.0208517514, -0.00503079513, 0.00131637223, -0.000361359315,
        0.000100132044, -2.88120423e-05, 1.10705637e-05, -3.40566628e-06,
    ),
    (),
)  # fmt: skip
# (1 + 2 x) exp(x^2) (1 - erf(x)) on x >= 1/2, in 1 - 8.5 / (x + 3.75), for float64 (Shepherd and
# Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", 1981).
ERFC_SCALED = (
    1.221178425707597, -0.12053676481185502, 0.01941362941520812, 0.028932667379666342,
    -0.03952116335237628, 0.031165502865669385, -0.018340273618437125, 0.008370971263334453,
    -0.0028573580260563666, 0.0006163686006132117, -7.550796565672559e-06, -5.0463128097397e-05,
    1.5886357658447743e-05, 7.174801932503225e-07, -1.8122304251263266e-06, 2.8872256243271603e-07,
    1.550343047482075e-07, -5.548256773050545e-08, -1.1233843227970847e-08, 6.981858004358982e-09,
    4.424595913008903e-10, -5.165458484489457e-10, 4.115903174891998e-11,
)  # fmt: skip

# Not scaled, for float32, where what is left out of a sum is the larger part: these polynomials, by
# minimax fits weighted by what they add to, take part in one last multiply-add.

# erf(x) / x - 1 on 0 <= x <= 1, in x * x.
ERF_TO_1 = (
    0.12837912249346908, -0.3761232618473036, 0.11280180097316136, -0.026711310912204037,
    0.004917550976657123, -0.0005631420433128836,
)  # fmt: skip
# (1 - erf(x)) ** (-1/8) on 1 <= x <= 4, where erf is 1 in float32 from there on: nearly straight,
# and its reciprocal's eighth power is no exponential.
ERFC_ROOT = (
    1.0015827082346502, 0.1320537634329021, 0.11172945435373059, -0.006613020245656889,
    0.030610186628923945, -0.01393629941773841, 0.005677783735067699, -0.001114327285035771,
    0.00012185648212309558,
)  # fmt: skip
# (Phi(x) - 1/2) / x on -1.4 <= x <= 1.4, in x * x, where Phi is the normal distribution function.
NORMAL_MIDDLE = (
    0.3989422619342804, -0.06648983061313629, 0.009970365092158318, -0.001180484308861196,
    0.00010866355296457186, -6.221899184311042e-06,
)  # fmt: skip
# Phi(-x) ** (1/4) / (6 - x) on 1.4 <= x <= 6, in x - 2.75: so that the tail ends, where it is below
# rounding, in an exact zero.
NORMAL_TAIL = (
    0.07188891619443893, -0.03272753953933716, 0.0025774408131837845, 0.0016769759822636843,
    -0.00030154292471706867, -3.495869896141812e-05, 1.65037654369371e-05, 1.227363782163593e-06,
)  # fmt: skip
# (e^x - 1 - x) / x^2 on -0.5 <= x <= 0.5.
EXPM1 = (
    0.5000000385326147, 0.16666663985441033, 0.0416653585827233, 0.008333579042872657,
    0.0013996176804079719, 0.00019849808339178487,
)  # fmt: skip
# (log(1 + x) - x) / x^2 on 0 <= x <= 1.
LOG1P = (
    -0.49999932760826993, 0.33330511233703247, -0.24958586486407558, 0.19695395622165365,
    -0.15355381954621253, 0.10680531056763073, -0.057664201910188506, 0.020204455625898995,
    -0.0033184438149732737,
)  # fmt: skip
