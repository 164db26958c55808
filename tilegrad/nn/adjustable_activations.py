"""Activations with a slope, a threshold, an axis or another option, as modules: (any shape) to the
same shape, or half of an axis for GLU.
"""

from __future__ import annotations

from tilegrad.base.errors import ConfigError, OptionError, ShapeError, check_choice
from tilegrad.nn.layer_checks import check_size, countable
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import as_axis, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardtanh", "LeakyReLU", "LogSoftmax", "PReLU",
    "RReLU", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Threshold",
]  # fmt: skip


class LeakyReLU(Module):
    """Leaky rectifier: x, or negative_slope * x below 0 (Maas et al. 2013).

    Args:
        negative_slope: factor below 0.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.LeakyReLU(0.5)(Tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        self.negative_slope = negative_slope

    def __call__(self, x: Tensor) -> Tensor:
        return x.leaky_relu(self.negative_slope)


class PReLU(Module):
    """Rectifier with a trained slope: x, or weight * x below 0 (He et al., "Delving Deep into
    Rectifiers", 2015).

    Args:
        num_parameters: 1 for one slope, or the number of channels (axis 1).
        init: first value of the slopes.

    Shape: input (N, C, ...), or any shape with one slope; output of the same shape. `weight` is
    (num_parameters,).

    Raises ShapeError for an input of other channels.

    >>> nn.PReLU()(Tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25):
        countable("PReLU", num_parameters=num_parameters)
        self.num_parameters, self.init = num_parameters, init
        self.weight = Tensor.full((num_parameters,), init, requires_grad=True)

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.weight.cast(x.dtype) if x.dtype.is_float else self.weight
        if self.num_parameters != 1:
            check_size("PReLU", "channels", x, 1, self.num_parameters)
            weight = weight.reshape(1, -1, *[1] * (x.ndim - 2))
        return (x < 0).where(x * weight, x)


class RReLU(Module):
    """Rectifier with a random slope: x, or a * x below 0; in training a is uniform in [lower,
    upper] for each element, else the middle (Xu et al., "Empirical Evaluation of Rectified
    Activations", 2015).

    Args:
        lower: least slope.
        upper: largest slope.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.RReLU(0.25, 0.25)(Tensor([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        self.lower, self.upper = lower, upper

    def __call__(self, x: Tensor) -> Tensor:
        if not self.training:
            return x.leaky_relu((self.lower + self.upper) / 2)
        slope = x.rand_like(requires_grad=False) * (self.upper - self.lower) + self.lower
        return (x < 0).where(x * slope, x)


class ELU(Module):
    """Exponential linear unit: x, or alpha * (exp(x) - 1) below 0 (Clevert, Unterthiner and
    Hochreiter 2016).

    Args:
        alpha: minus the limit at minus infinity.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.ELU(0.5)(Tensor([-100.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        return x.elu(self.alpha)


class CELU(Module):
    """Continuously differentiable ELU: max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron
    2017).

    Args:
        alpha: minus the limit at minus infinity.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.CELU(0.5)(Tensor([-100.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        return x.celu(self.alpha)


class GELU(Module):
    """Gaussian error linear unit: x * Phi(x), Phi the normal distribution function (Hendrycks and
    Gimpel 2016).

    Args:
        approximate: "none", or "tanh" for a formula with tanh.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises ConfigError for another `approximate`.

    >>> nn.GELU()(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """

    def __init__(self, approximate: str = "none"):
        check_choice("GELU", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    def __call__(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)


class GLU(Module):
    """Gated linear unit: a * sigmoid(b) of the halves a and b of an axis (Dauphin et al. 2017).

    Args:
        dim: the axis; a negative one counts from the last.

    Shape: input (..., 2 n, ...), output (..., n, ...) along `dim`; floats keep their dtype, bool
    and integers give the default float (float32).

    Raises ShapeError for an axis of odd size, IndexBoundsError for one that is out of range.

    >>> nn.GLU()(Tensor([[4.0, 0.0]])).tolist()
    [[2.0]]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        axis = as_axis("GLU", self.dim, x.ndim)
        size = x.shape[axis]
        if not isinstance(size, int) or size % 2:
            raise ShapeError(
                f"GLU: axis {self.dim} of {show_shape(x.shape)} has no two halves",
                input=describe(x.uop),
            )
        value, gate = x.split(size // 2, axis)
        return value * gate.sigmoid()


class Hardtanh(Module):
    """x held between min_val and max_val.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Args:
        min_val: lower limit.
        max_val: upper limit.
        inplace: accepted for other libraries' sake; ignored.

    Raises OptionError unless min_val < max_val.

    >>> nn.Hardtanh()(Tensor([-4.0, 0.5, 4.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        if not min_val < max_val:
            raise OptionError(f"Hardtanh: min_val {min_val} must be below max_val {max_val}")
        self.min_val, self.max_val = min_val, max_val

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardtanh(self.min_val, self.max_val)


class Hardshrink(Module):
    """x, or 0 where |x| <= lambd.

    Args:
        lambd: the threshold.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Hardshrink()(Tensor([0.5, -2.0])).tolist()
    [0.0, -2.0]
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardshrink(self.lambd)


class Softshrink(Module):
    """x - lambd above lambd, x + lambd below -lambd, else 0.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Args:
        lambd: the threshold, at least 0.

    Raises ConfigError for a negative `lambd`.

    >>> nn.Softshrink()(Tensor([0.25, -2.0])).tolist()
    [0.0, -1.5]
    """

    def __init__(self, lambd: float = 0.5):
        if lambd < 0:
            raise ConfigError(f"Softshrink: lambd must be at least 0, not {lambd}")
        self.lambd = lambd

    def __call__(self, x: Tensor) -> Tensor:
        return x.softshrink(self.lambd)


class Threshold(Module):
    """Threshold: x where it is above `threshold`, else `value`.

    Args:
        threshold: the limit.
        value: replaces what is not above.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Threshold(1.0, 0.0)(Tensor([0.5, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        self.threshold, self.value = threshold, value

    def __call__(self, x: Tensor) -> Tensor:
        # Not "above": NaN is not, and is kept.
        return (x <= self.threshold).where(self.value, x)


class Softplus(Module):
    """Smooth rectifier: log(1 + exp(beta * x)) / beta, without overflow.

    Args:
        beta: the larger, the sharper the bend at 0.
        threshold: where beta * input is above it, the output is the input; from 20 on that is less
            than 3e-9 / beta away, and computed in any case.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    >>> nn.Softplus()(Tensor([1000.0])).tolist()
    [1000.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def __call__(self, x: Tensor) -> Tensor:
        return x.softplus(self.beta, self.threshold)


class Softmax(Module):
    """Softmax: exp(x) divided by its sum along an axis.

    Args:
        dim: the axis; a negative one counts from the last.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.Softmax(dim=-1)(Tensor([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.softmax(self.dim)


class Softmin(Module):
    """Softmax of -x.

    Args:
        dim: the axis; a negative one counts from the last.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.Softmin(1)(Tensor([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return (-x).softmax(self.dim)


class LogSoftmax(Module):
    """Logarithm of the softmax, without overflow.

    Args:
        dim: the axis; a negative one counts from the last.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.LogSoftmax()(Tensor([[0.0, 1000.0]])).tolist()
    [[-1000.0, 0.0]]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.log_softmax(self.dim)


class Softmax2d(Module):
    """Softmax over the channels of images.

    Shape: input (N, C, H, W) or (C, H, W), output of the same shape.

    Raises ShapeError for another number of axes.

    >>> nn.Softmax2d()(Tensor.zeros(1, 2, 1, 1)).tolist()
    [[[[0.5]], [[0.5]]]]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return x.softmax(-3)
