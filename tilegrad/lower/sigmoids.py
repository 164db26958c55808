"""tanh and the logistic function of one exponential, a division and, for tanh near 0, a polynomial.

In the graph each is one node, whose derivative is a product of its result; so the graphs of
recurrent networks, of their gradients and of their schedules are small. No target needs the ops:
the graphs here replace each node before anything is rendered. The exponent is at most 0, so the
power is at most 1, and infinities and NaN take the same path as numbers. An error of at most 1.5
ulp for float32 and 2 ulp for float64 (tests/lower/test_transcendental.py).
"""

from __future__ import annotations

from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.lower.transcendental import horner, wide_enough

__all__ = ["COMPOSED", "FUNCTIONS", "sigmoid", "tanh"]

# (tanh(x) / x - 1) / x^2 in x * x, on 0 <= x <= 0.625 for float32 and 0.75 for float64: fits on
# Chebyshev points.
_TANH_FLOAT = (
    -0.33333281940980203, 0.1333144217529943, -0.05373971344032077, 0.020639082477080867,
    -0.005704982170141786,
)  # fmt: skip
_TANH_DOUBLE = (
    -0.333333333333333, 0.13333333333325711, -0.05396825396335104, 0.021869488389232472,
    -0.008863233046952175, 0.003592101827604733, -0.001455650980731706, 0.0005891465815054115,
    -0.00023617515600121713, 8.998060671565791e-05, -2.8020688982656717e-05, 3.656650267063963e-06,
    2.0600768859001456e-06, -9.537641416713722e-07,
)  # fmt: skip


def sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)) for float32 and float64, as exact far below 0 as above."""
    is_negative = x < 0.0
    one = UOp.const(x.dtype, 1.0)
    power = is_negative.where(x, -x).alu(Ops.EXP)
    return is_negative.where(power, one).alu(Ops.FDIV, power + 1.0)


def tanh(x: UOp) -> UOp:
    """tanh(x) for float32 and float64: a polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1)."""
    is_double = x.dtype.itemsize == 8
    limit = 0.75 if is_double else 0.625
    is_negative = x < 0.0
    power = (is_negative.where(x, -x) * 2.0).alu(Ops.EXP)
    size = 1.0 - (power * 2.0).alu(Ops.FDIV, power + 1.0)
    far = is_negative.where(-size, size)
    square = x * x
    rest = horner(square, _TANH_DOUBLE if is_double else _TANH_FLOAT)
    near = UOp(Ops.MULACC, x.dtype, (square, rest, UOp.const(x.dtype, 1.0))) * x
    is_near = (x < limit) & (UOp.const(x.dtype, -limit) < x)
    return is_near.where(near, far)


COMPOSED = {Ops.TANH: tanh, Ops.SIGMOID: sigmoid}
"""The functions that no target needs to have."""

FUNCTIONS = PatternMatcher(
    "functions",
    [
        Rule(f"no-{op.name.lower()}", UPat(op, name="node"), function=wide_enough(build))
        for op, build in COMPOSED.items()
    ],
)
