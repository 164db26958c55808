"""Activations as functions: any shape to the same shape.

`inplace` is taken where PyTorch has it, and does nothing: a result is a new tensor.
"""

from __future__ import annotations

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import as_axis, as_number, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid",
    "silu", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Rectified linear unit: max(x, 0).

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape and dtype of `input`.

    >>> nn.functional.relu(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Rectified linear unit with a limit: min(max(x, 0), 6) (Krizhevsky 2010).

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape and dtype of `input`.

    >>> nn.functional.relu6(Tensor([-1.0, 8.0])).tolist()
    [0.0, 6.0]
    """
    return input.relu6()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Leaky rectifier: x, or negative_slope * x below 0 (Maas et al. 2013).

    Args:
        input: a tensor of any shape.
        negative_slope: factor below 0.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.leaky_relu(Tensor([-4.0, 2.0]), 0.25).tolist()
    [-1.0, 2.0]
    """
    return input.leaky_relu(negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Rectifier with a trained slope: x, or weight * x below 0 (He et al. 2015, arXiv:1502.01852).

    Args:
        input: (N, C, ...), or any shape with one weight.
        weight: one slope, (1,), or one for each channel, (C,).

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError for another number of weights.

    >>> nn.functional.prelu(Tensor([-4.0, 2.0]), Tensor([0.25])).tolist()
    [-1.0, 2.0]
    """
    check_tensors("prelu", input, weight)
    count = weight.numel()
    if input.dtype.is_float:
        weight = weight.cast(input.dtype)
    if count == 1:
        return _with_slope(input, weight.reshape(()))
    if input.ndim < 2 or input.shape[1] != count:
        raise ShapeError(
            f"prelu: {count} weights for {show_shape(input.shape)}",
            input=describe(input.uop),
            rule="one weight, or as many as there are channels (axis 1)",
        )
    return _with_slope(input, weight.reshape(1, -1, *[1] * (input.ndim - 2)))


def _with_slope(x: Tensor, slope: Tensor) -> Tensor:
    """`slope` times x where that is not above 0, else x, which the slope's gradient ignores."""
    is_above = x > 0
    return is_above.where(x, is_above.where(0, x) * slope)


def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Rectifier with a random slope: x, or a * x below 0; in training a is uniform in [lower,
    upper], else the middle (Xu et al. 2015, arXiv:1505.00853).

    Args:
        input: a tensor of any shape.
        lower: least slope.
        upper: largest slope.
        training: whether slopes are drawn.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.rrelu(Tensor([-4.0, 2.0]), 0.25, 0.25).tolist()
    [-1.0, 2.0]
    """
    lower, upper = as_number("rrelu", "lower", lower), as_number("rrelu", "upper", upper)
    if not training:
        return input.leaky_relu((lower + upper) / 2)
    slope = input.rand_like(requires_grad=False) * (upper - lower) + lower
    return (input < 0).where(input * slope, input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Exponential linear unit: x, or alpha * (exp(x) - 1) below 0 (Clevert et al. 2015,
    arXiv:1511.07289).

    Args:
        input: a tensor of any shape.
        alpha: minus the limit at minus infinity.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.elu(Tensor([-100.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return input.elu(alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Continuously differentiable ELU: max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron
    2017, arXiv:1704.07483).

    Args:
        input: a tensor of any shape.
        alpha: minus the limit at minus infinity.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.celu(Tensor([-100.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return input.celu(alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled exponential linear unit: scale * (max(x, 0) + min(0, alpha * (exp(x) - 1))), with the
    constants of Klambauer et al. 2017, arXiv:1706.02515.

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.selu(Tensor([0.0])).tolist()
    [0.0]
    """
    return input.selu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: x * Phi(x), Phi the normal distribution function (Hendrycks and
    Gimpel 2016, arXiv:1606.08415).

    Args:
        input: a tensor of any shape.
        approximate: "none", or "tanh" for a formula with tanh.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises DTypeError for another `approximate`.

    >>> nn.functional.gelu(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Sigmoid linear unit: x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.silu(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Mish: x * tanh(softplus(x)) (Misra 2019, arXiv:1908.08681).

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.mish(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.mish()


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Gated linear unit: a * sigmoid(b) of the halves a and b of an axis (Dauphin et al. 2017,
    arXiv:1612.08083).

    Args:
        input: a tensor of any shape.
        dim: the axis; a negative one counts from the last.

    Returns a tensor of half the size along `dim`; floats keep their dtype.

    Raises ShapeError for an axis of odd size, IndexBoundsError for one that is out of range.

    >>> nn.functional.glu(Tensor([[4.0, 0.0]])).tolist()
    [[2.0]]
    """
    axis = as_axis("glu", dim, input.ndim)
    size = input.shape[axis]
    if not isinstance(size, int) or size % 2:
        raise ShapeError(
            f"glu: axis {dim} of {show_shape(input.shape)} has no two halves",
            input=describe(input.uop),
        )
    value, gate = input.split(size // 2, axis)
    return value * gate.sigmoid()


def sigmoid(input: Tensor) -> Tensor:
    """Logistic function: 1 / (1 + exp(-x)).

    Args:
        input: a tensor of any shape.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.sigmoid(Tensor([0.0])).tolist()
    [0.5]
    """
    return input.sigmoid()


def logsigmoid(input: Tensor) -> Tensor:
    """Logarithm of the sigmoid, without overflow.

    Args:
        input: a tensor of any shape.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.logsigmoid(Tensor([-1000.0])).tolist()
    [-1000.0]
    """
    return input.logsigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Piecewise linear sigmoid: 0 up to -3, 1 from 3 on, between them x / 6 + 1 / 2.

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.hardsigmoid(Tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return input.hardsigmoid()


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Piecewise approximation of `silu`: x * hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).

    Args:
        input: a tensor of any shape.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.hardswish(Tensor([-4.0, 0.0, 4.0])).tolist()
    [-0.0, 0.0, 4.0]
    """
    return input.hardswish()


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Limit x to min_val..max_val.

    Args:
        input: a tensor of any shape.
        min_val: lower limit.
        max_val: upper limit.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.hardtanh(Tensor([-4.0, 0.5, 4.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    return input.hardtanh(min_val, max_val)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Set x to 0 where |x| <= lambd.

    Args:
        input: a tensor of any shape.
        lambd: the threshold.

    Returns a tensor of the shape and dtype of `input`.

    >>> nn.functional.hardshrink(Tensor([-0.25, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Bring x nearer to 0 by `lambd`: x - lambd above lambd, x + lambd below -lambd, else 0.

    Args:
        input: a tensor of any shape.
        lambd: the distance, at least 0.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError for a negative `lambd`.

    >>> nn.functional.softshrink(Tensor([-0.25, 2.0])).tolist()
    [0.0, 1.5]
    """
    if as_number("softshrink", "lambd", lambd) < 0:
        raise ConfigError(f"softshrink: lambd must be at least 0, not {lambd}")
    return input.softshrink(lambd)


def softsign(input: Tensor) -> Tensor:
    """Softsign: x / (1 + |x|), between -1 and 1.

    Args:
        input: a tensor of any shape.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.softsign(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """
    return input.softsign()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Smooth rectifier: log(1 + exp(beta * x)) / beta, without overflow.

    Args:
        input: a tensor of any shape.
        beta: the larger, the sharper the bend at 0.
        threshold: where beta * input is above it, the result is `input`; from 20 on that is less
            than 3e-9 / beta away, and computed in any case.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.softplus(Tensor([1000.0])).tolist()
    [1000.0]
    """
    return input.softplus(beta, threshold)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent.

    Args:
        input: a tensor of any shape.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.tanh(Tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """Tanh shrinkage: x - tanh(x).

    Args:
        input: a tensor of any shape.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    >>> nn.functional.tanhshrink(Tensor([0.0])).tolist()
    [0.0]
    """
    return input - input.tanh()


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Threshold: x where it is above `threshold`, else `value`.

    Args:
        input: a tensor of any shape.
        threshold: the limit.
        value: replaces what is not above.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape and dtype of `input`.

    >>> nn.functional.threshold(Tensor([0.5, 2.0]), 1.0, 0.0).tolist()
    [0.0, 2.0]
    """
    # Not "above": NaN is not, and is kept.
    return (input <= threshold).where(value, input)
