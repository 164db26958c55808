"""Activations as methods: compositions of functions of each element, each finite where it has a
value.

`nn.functional` gives them as functions, `nn.activations` as layers.
"""

from __future__ import annotations

import math
from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, DTypeError, check_choice
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.approximation import LOG1P, NORMAL_MIDDLE, NORMAL_TAIL
from tilegrad.tensor.elementwise.trigonometry import Trigonometry
from tilegrad.tensor.handle.core import compute
from tilegrad.tensor.handle.size_arguments import as_number

__all__ = ["Activations"]


class Activations(Trigonometry):
    """Functions that a layer applies to each element."""

    __slots__ = ()

    @templated
    def relu(self) -> Self:
        """Replace negative values by 0: max(self, 0). -0.0 stays -0.0. The derivative at 0 is 0,
        that at NaN is 1.

        Returns a tensor of this shape and dtype.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        node = self.uop
        zero = UOp.const(node.dtype, 0)
        # No gradient flows through the maximum, which keeps NaN and -0.0.
        rest = UOp(Ops.DETACH, node.dtype, (node,)) if node.dtype.is_float else node
        limited = UOp(Ops.MAX, node.dtype, (rest, zero))
        # Above 0, or NaN.
        above = UOp(Ops.CMPNE, dtypes.bool, (limited, zero))
        return self._like(compute(Ops.WHERE, node.dtype, (above, node, limited)))

    @templated
    def relu6(self) -> Self:
        """Limit the values to 0..6 (Krizhevsky 2010, "Convolutional deep belief networks on
        CIFAR-10").

        Returns a tensor of this shape and dtype; bool gives int32.

        >>> Tensor([-1.0, 8.0]).relu6().tolist()
        [0.0, 6.0]
        """
        return (self >= 6).where(6, self.relu())

    @templated
    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """Scale negative values: self where it is positive, else negative_slope * self (Maas et al.
        2013).

        Args:
            negative_slope: factor of the negative values.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-4.0, 2.0]).leaky_relu(0.25).tolist()
        [-1.0, 2.0]
        """
        if not self.dtype.is_float:
            return (self > 0).where(self, self * negative_slope)
        return self._in_float(lambda x: (x > 0).where(x, x * negative_slope))

    @templated
    def elu(self, alpha: float = 1.0) -> Self:
        """Exponential linear unit: self where it is positive, else alpha * (exp(self) - 1) (Clevert
        et al. 2015, arXiv:1511.07289).

        Args:
            alpha: minus the limit at minus infinity.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-100.0, 2.0]).elu(0.5).tolist()
        [-0.5, 2.0]
        """
        return self._in_float(lambda x: (x > 0).where(x, (x > 0).where(0, x).expm1() * alpha))

    @templated
    def celu(self, alpha: float = 1.0) -> Self:
        """Continuously differentiable ELU: self where it is positive, else alpha * (exp(self /
        alpha) - 1) (Barron 2017, arXiv:1704.07483).

        Args:
            alpha: minus the limit at minus infinity.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-100.0, 2.0]).celu(0.5).tolist()
        [-0.5, 2.0]
        """
        return self._in_float(
            lambda x: (x > 0).where(x, ((x > 0).where(0, x) / alpha).expm1() * alpha)
        )

    @templated
    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """Scaled ELU: gamma * elu(self, alpha). The default constants keep mean 0 and variance 1
        from layer to layer (Klambauer et al. 2017, arXiv:1706.02515).

        Args:
            alpha: as that of `elu`.
            gamma: factor of the result.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).selu().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x.elu(alpha) * gamma)

    @templated
    def sigmoid(self) -> Self:
        """Logistic function: 1 / (1 + exp(-self)).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        return self._in_float(lambda x: x._unary(Ops.SIGMOID))

    @templated
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """Piecewise linear sigmoid: alpha * self + beta, limited to 0..1.

        Args:
            alpha: the slope.
            beta: the value at 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return self._in_float(lambda x: (x * alpha + beta).hardtanh(0, 1))

    @templated
    def logsigmoid(self) -> Self:
        """Logarithm of the sigmoid, log(sigmoid(self)), without overflow.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-1000.0]).logsigmoid().tolist()
        [-1000.0]
        """
        return self._in_float(lambda x: -((-x).softplus()))

    @templated
    def silu(self) -> Self:
        """Sigmoid linear unit: self * sigmoid(self) (Elfwing et al. 2017, arXiv:1702.03118).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 100.0]).silu().tolist()
        [0.0, 100.0]
        """
        return self._in_float(lambda x: x * x.sigmoid())

    @templated
    def swish(self) -> Self:
        """As `silu`.

        >>> Tensor([0.0, 100.0]).swish().tolist()
        [0.0, 100.0]
        """
        return self.silu()

    @templated
    def gelu(self, approximate: str = "none") -> Self:
        """Gaussian error linear unit: self * Phi(self), Phi the standard normal distribution
        function (Hendrycks and Gimpel 2016, arXiv:1606.08415).

        Args:
            approximate: "none" for the error function, "tanh" for self / 2 * (1 + tanh(sqrt(2 / pi)
                * (self + 0.044715 * self**3))).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises DTypeError for another `approximate`.

        >>> Tensor([-100.0, 100.0]).gelu().tolist()
        [0.0, 100.0]
        """
        check_choice("gelu", "approximation", approximate, ("none", "tanh"), DTypeError)
        if approximate == "none":
            return self._in_float(Activations._times_normal)
        # (1 + tanh(y)) / 2 is sigmoid(2 y)
        return self._in_float(
            lambda x: x * ((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi))).sigmoid()
        )

    def _times_normal(self) -> Self:
        """self * Phi(self), with Phi the normal distribution function; of float32 without a
        division, and as exact as float32 allows also far below zero, where 1 + erf is rounded.
        """
        if self.dtype is dtypes.float64:
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        size, square = self.abs(), self.square()
        inside = (square > 2).where(2, square)
        middle = self * self._times_plus(inside._powers(NORMAL_MIDDLE), 0.5)
        limited = (size > 6).where(6, size)
        root = (limited - 2.75)._powers(NORMAL_TAIL) * (6 - limited)
        tail = (-limited)._times_plus(root.square().square(), self.maximum(0))
        return (size < 1.4).where(middle, tail)

    @templated
    def quick_gelu(self) -> Self:
        """Approximation of `gelu`: self * sigmoid(1.702 * self) (Hendrycks and Gimpel 2016,
        arXiv:1606.08415).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-100.0, 100.0]).quick_gelu().tolist()
        [-0.0, 100.0]
        """
        return self._in_float(lambda x: x * (x * 1.702).sigmoid())

    @templated
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """Smooth `relu`: log(1 + exp(beta * self)) / beta, without overflow.

        Args:
            beta: the larger, the sharper the bend at 0.
            threshold: where beta * self is above it, the result is self; from 20 on that is less
                than 3e-9 / beta away, and computed in any case.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1000.0]).softplus().tolist()
        [1000.0]
        """
        beta = as_number("softplus", "beta", beta)
        threshold = as_number("softplus", "threshold", threshold)
        share = 1 / beta if beta else math.copysign(math.inf, beta)

        def function(x: Self) -> Self:
            scaled = x if beta == 1 else x * beta
            # Not `abs` and `maximum`, which have no second derivative at 0.
            is_negative = scaled < 0
            beyond = is_negative.where(scaled, -scaled).exp()._log1p_to_one()
            upper = is_negative.where(0, x)
            smooth = upper + (beyond if beta == 1 else beyond * share)
            return smooth if threshold >= 20 else (scaled > threshold).where(x, smooth)

        return self._in_float(function)

    def _log1p_to_one(self) -> Self:
        """log(1 + self) of a number from 0 to 1."""
        if self.dtype is dtypes.float64:
            return self.log1p()
        return (self * self)._times_plus(self._powers(LOG1P), self)

    @templated
    def softsign(self) -> Self:
        """self / (1 + |self|), between -1 and 1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1.0, -3.0]).softsign().tolist()
        [0.5, -0.75]
        """
        return self._in_float(lambda x: x / (x.abs() + 1))

    @templated
    def mish(self) -> Self:
        """self * tanh(softplus(self)) (Misra 2019, arXiv:1908.08681).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 100.0]).mish().tolist()
        [0.0, 100.0]
        """

        def function(x: Self) -> Self:
            # tanh(log(1 + e)) is e (e + 2) / (e (e + 2) + 2), which is 1 before it overflows.
            power = (x > 30).where(30, x).exp()
            above = power * (power + 2)
            return x * (above / (above + 2))

        return self._in_float(function)

    @templated
    def hardswish(self) -> Self:
        """Piecewise approximation of `silu`: self * relu6(self + 3) / 6 (Howard et al. 2019,
        arXiv:1905.02244).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([-4.0, 0.0, 4.0]).hardswish().tolist()
        [-0.0, 0.0, 4.0]
        """
        return self._in_float(lambda x: x * (x + 3).relu6() * (1 / 6))

    @templated
    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Limit the values to min_val..max_val.

        Args:
            min_val: the lower limit.
            max_val: the upper limit.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises ConfigError if `min_val` is above `max_val`.

        >>> Tensor([-4.0, 0.5, 4.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        if as_number("hardtanh", "min_val", min_val) > as_number("hardtanh", "max_val", max_val):
            raise ConfigError(f"hardtanh: {min_val} is above {max_val}")
        inside = (self >= max_val).where(max_val, self)
        return (self <= min_val).where(min_val, inside)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Set to 0 what is not further than `lambd` from 0.

        Args:
            lambd: the threshold.

        Returns a tensor of this shape and dtype; bool gives int32.

        >>> Tensor([0.25, -2.0]).hardshrink().tolist()
        [0.0, -2.0]
        """
        most = as_number("hardshrink", "lambd", lambd)
        return ((self >= -most) & (self <= most)).where(0, self)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """Bring values nearer to 0 by `lambd`; 0 for what is not further from it.

        Args:
            lambd: the distance.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.25, -2.0]).softshrink().tolist()
        [0.0, -1.5]
        """
        most = as_number("softshrink", "lambd", lambd)
        inside = (self >= -most) & (self <= most)
        return inside.where(0, (self > 0).where(self - most, self + most))
