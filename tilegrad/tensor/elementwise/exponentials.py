"""Functions of each element: exponentials, logarithms, erf, and how functions are composed.

The machine has exp, exp2, log2, sin, cos and sqrt; the rest is composed. Half, bfloat16 and
integers are computed in float32, and half types get their own dtype back. Every composition keeps
its value and its derivative finite where the function's are: an exponent is limited before it can
overflow, and a branch that is not chosen has a harmless argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.approximation import ERF_TO_1, ERFC_ROOT, ERFC_SCALED, EXPM1, Fit
from tilegrad.tensor.elementwise.choices import Elementwise
from tilegrad.tensor.elementwise.double_word import product
from tilegrad.tensor.handle.core import Operand, compute

__all__ = ["LN2", "Functions", "inverse_factorials"]

LN2 = math.log(2.0)
# erf(x) / x - 1 in x * x, below 1/2 (NIST DLMF 7.6.1).
_ERF_SERIES = [
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) - (k == 0)
    for k in range(14)
]


class Functions(Elementwise):
    """Exponentials and logarithms, and what functions share."""

    __slots__ = ()

    @composed
    def _in_float(self, function: Callable[[Self], Self]) -> Self:
        """`function` computed in at least float32; half types keep their dtype, and integers give
        the default float dtype.
        """
        own = self.dtype
        return function(self._wide()).cast(own if own.is_float else dtypes.default_float)

    def _fitted(self, fit: Fit) -> Self:
        """The polynomial of the fit for this dtype."""
        scale = 2 / (fit.high - fit.low)
        scaled = self * scale - (fit.high + fit.low) / (fit.high - fit.low)
        return scaled._powers(fit.double if self.dtype is dtypes.float64 else fit.single)

    def _powers(self, coefficients: Sequence[float]) -> Self:
        """c0 + c1 * self + c2 * self^2 + ..., by Horner's scheme."""
        wanted = (
            coefficients
            if self.dtype is dtypes.float64
            else [c for c in coefficients if abs(c) > 1e-9 or c == coefficients[0]]
        )
        total = self._like(UOp.const(self.dtype, wanted[-1]))
        for coefficient in wanted[-2::-1]:
            total = total._times_plus(self, coefficient)
        return total

    def _times_plus(self, factor: Self, addend: Self | float) -> Self:
        """self * factor + addend, of one dtype, rounded once where the target can. A product and a
        sum that a user writes are rounded twice everywhere.
        """
        dtype = self.dtype
        operands = (self, addend) if isinstance(addend, Functions) else (self,)
        last = addend.uop if isinstance(addend, Functions) else UOp.const(dtype, addend)
        node = compute(Ops.MULACC, dtype, (self.uop, factor.uop, last))
        return factor._joined(node, *operands)

    def _near_zero(
        self, limit: float, series: Callable[[Self], Self], otherwise: Callable[[Self], Self]
    ) -> Self:
        """`series` where |self| < limit, else `otherwise`; neither sees an argument it is not
        chosen for.
        """
        is_small = (self < limit) & (self > -limit)
        return is_small.where(
            series(is_small.where(self, 0)), otherwise(is_small.where(limit, self))
        )

    # exponentials and logarithms

    @templated
    def exp2(self) -> Self:
        """2 to the power of each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([3.0]).exp2().tolist()
        [8.0]
        """
        return self._in_float(lambda x: x._unary(Ops.EXP2))

    @templated
    def exp(self) -> Self:
        """Exponential function: e to the power of each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        return self._in_float(lambda x: x._unary(Ops.EXP))

    @templated
    def expm1(self) -> Self:
        """exp(self) - 1, accurate near 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).expm1().tolist()
        [0.0]
        """

        def near(x: Self) -> Self:
            if x.dtype is dtypes.float64:
                return x * x._powers(inverse_factorials(18))
            return x._times_plus(x._powers(EXPM1), 1.0) * x

        return self._in_float(lambda x: x._near_zero(0.5, near, lambda y: y.exp() - 1))

    @templated
    def log2(self) -> Self:
        """Logarithm to base 2; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([8.0]).log2().tolist()
        [3.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2))

    @templated
    def log(self) -> Self:
        """Natural logarithm; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1.0]).log().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2) * LN2)

    @templated
    def log10(self) -> Self:
        """Logarithm to base 10; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([100.0]).log10().tolist()
        [2.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2) * math.log10(2.0))

    @templated
    def log1p(self) -> Self:
        """log(1 + self), accurate near 0; NaN below -1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).log1p().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            # The rounding error of 1 + x comes back, to first order.
            u = x + 1
            lost = ((x - (u - 1)) / u).detach()
            # -0.0 stays so, and the second derivative at 0 is -1.
            is_zero = x.eq(0)
            zero = is_zero.where(x, 0.0)
            return is_zero.where(zero * (1 - zero * 0.5), u.log() + lost.isfinite().where(lost, 0))

        return self._in_float(function)

    @templated
    def logaddexp(self, other: Operand) -> Self:
        """log(exp(self) + exp(other)), without overflow.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1000.0]).logaddexp(0.0).tolist()
        [1000.0]
        """
        left, right = self._same_dtype("logaddexp", other)
        left, right = left._floating(), right._floating()
        dtype = left.dtype
        left, right = left._wide(), right._wide()
        is_left = left >= right
        largest, smallest = is_left.where(left, right), is_left.where(right, left)
        # The distance of equal infinities would be NaN.
        is_endless = left.eq(right) & left.isinf()
        distance = is_endless.where(0.0, smallest - largest)
        return (largest + distance.exp().log1p()).cast(dtype)

    @templated
    def erf(self) -> Self:
        """Error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 9.0]).erf().tolist()
        [0.0, 1.0]
        """

        def tail_in_single(size: Self) -> Self:
            root = (size > 4).where(4, size)._powers(ERFC_ROOT).reciprocal()
            return root.square().square().square()

        def function(x: Self) -> Self:
            is_negative, is_double = x < 0, x.dtype is dtypes.float64
            size = is_negative.where(-x, x)
            is_small = size < (0.5 if is_double else 1)
            inner = is_small.where(x, 0)
            square = inner.square()
            if is_double:
                near = inner._times_plus(square._powers(_ERF_SERIES), inner)
                far = 1 - is_small.where(1, size)._erfc_tail()
            else:
                near = inner._times_plus(square._powers(ERF_TO_1), inner)
                far = 1 - tail_in_single(size)
            return is_small.where(near, is_negative.where(-far, far))

        return self._in_float(function)

    def _erfc_tail(self) -> Self:
        """1 - erf(self) for 1/2 and above, as exact far out as near."""
        x = (self > 30).where(30, self)
        fraction: Self = (1 - (x + 3.75).reciprocal() * 8.5)._powers(ERFC_SCALED) / (x * 2 + 1)
        # The rounding error of the square matters: it is an exponent.
        _, rest = product(x.detach(), x.detach())
        power: Self = (-x.square()).exp() * (1 - rest)
        return power * fraction


def inverse_factorials(end: int) -> list[float]:
    """1/1!, 1/2!, ..., up to that of `end` - 1."""
    return [1 / math.factorial(n) for n in range(1, end)]
