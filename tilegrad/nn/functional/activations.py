"""Activations as functions: any shape to the same shape.

`inplace` is taken where PyTorch has it, and does nothing: a result is a new tensor.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.core import check_tensors, describe
from tilegrad.tensor.sizes import as_axis, here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6",
    "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0).

    >>> nn.functional.relu(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6).

    >>> nn.functional.relu6(Tensor([-1.0, 8.0])).tolist()
    [0.0, 6.0]
    """
    return input.relu6()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x, or negative_slope * x below 0.

    >>> nn.functional.leaky_relu(Tensor([-4.0, 2.0]), 0.25).tolist()
    [-1.0, 2.0]
    """
    return input.leaky_relu(negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x, or weight * x below 0: one weight, or one for each channel (axis 1).

    Raises ShapeError for another number of weights.

    >>> nn.functional.prelu(Tensor([-4.0, 2.0]), Tensor([0.25])).tolist()
    [-1.0, 2.0]
    """
    check_tensors("prelu", input, weight)
    count = weight.numel()
    if count == 1:
        return (input < 0).where(input * weight.reshape(()), input)
    if input.ndim < 2 or input.shape[1] != count:
        raise ShapeError(
            f"prelu: {count} weights for {show_shape(input.shape)}",
            input=describe(input.uop),
            rule="one weight, or as many as there are channels (axis 1)",
            line=here(),
        )
    return (input < 0).where(input * weight.reshape(1, -1, *[1] * (input.ndim - 2)), input)


def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x, or a * x below 0: in training a is uniform in [lower, upper], else the middle.

    >>> nn.functional.rrelu(Tensor([-4.0, 2.0]), 0.25, 0.25).tolist()
    [-1.0, 2.0]
    """
    if not training:
        return input.leaky_relu((lower + upper) / 2)
    slope = input.rand_like(requires_grad=False) * (upper - lower) + lower
    return (input < 0).where(input * slope, input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, or alpha * (exp(x) - 1) below 0.

    >>> nn.functional.elu(Tensor([-100.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return input.elu(alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> nn.functional.celu(Tensor([-100.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return input.celu(alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """scale * (max(x, 0) + min(0, alpha * (exp(x) - 1))), with two fixed numbers.

    >>> nn.functional.selu(Tensor([0.0])).tolist()
    [0.0]
    """
    return input.selu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution; approximate="tanh" is a formula with tanh.

    >>> nn.functional.gelu(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x).

    >>> nn.functional.silu(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)).

    >>> nn.functional.mish(Tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return input.mish()


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) of the halves a and b of axis `dim`.

    Raises ShapeError for an axis of odd size.

    >>> nn.functional.glu(Tensor([[4.0, 0.0]])).tolist()
    [[2.0]]
    """
    axis = as_axis("glu", dim, input.ndim)
    size = input.shape[axis]
    if not isinstance(size, int) or size % 2:
        raise ShapeError(
            f"glu: axis {dim} of {show_shape(input.shape)} has no two halves",
            input=describe(input.uop),
            line=here(),
        )
    value, gate = input.split(size // 2, axis)
    return value * gate.sigmoid()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> nn.functional.sigmoid(Tensor([0.0])).tolist()
    [0.5]
    """
    return input.sigmoid()


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow.

    >>> nn.functional.logsigmoid(Tensor([-1000.0])).tolist()
    [-1000.0]
    """
    return input.logsigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """0 up to -3, 1 from 3 on, between them x / 6 + 1 / 2.

    >>> nn.functional.hardsigmoid(Tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return input.hardsigmoid()


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x).

    >>> nn.functional.hardswish(Tensor([-4.0, 0.0, 4.0])).tolist()
    [-0.0, 0.0, 4.0]
    """
    return input.hardswish()


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x held between min_val and max_val.

    >>> nn.functional.hardtanh(Tensor([-4.0, 0.5, 4.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    return input.hardtanh(min_val, max_val)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, or 0 where |x| <= lambd.

    >>> nn.functional.hardshrink(Tensor([-0.25, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x - lambd above lambd, x + lambd below -lambd, else 0. Raises ConfigError below 0.

    >>> nn.functional.softshrink(Tensor([-0.25, 2.0])).tolist()
    [0.0, 1.5]
    """
    if lambd < 0:
        raise ConfigError(f"softshrink: lambd must be at least 0, not {lambd}", line=here())
    return input.softshrink(lambd)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> nn.functional.softsign(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """
    return input.softsign()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta. There is no overflow, and no need of a `threshold`.

    >>> nn.functional.softplus(Tensor([1000.0])).tolist()
    [1000.0]
    """
    return input.softplus(beta)


def tanh(input: Tensor) -> Tensor:
    """tanh(x).

    >>> nn.functional.tanh(Tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    >>> nn.functional.tanhshrink(Tensor([0.0])).tolist()
    [0.0]
    """
    return input - input.tanh()


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x above `threshold`, else `value`.

    >>> nn.functional.threshold(Tensor([0.5, 2.0]), 1.0, 0.0).tolist()
    [0.0, 2.0]
    """
    # Not "above": NaN is not, and is kept.
    return (input <= threshold).where(value, input)


def softmax(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """exp(x) over its sum along axis `dim`.

    >>> nn.functional.softmax(Tensor([1.0, 1.0]), dim=0).tolist()
    [0.5, 0.5]
    """
    return input.softmax(dim, dtype)


def softmin(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """`softmax` of -x.

    >>> nn.functional.softmin(Tensor([[0.0, 0.0]]), dim=1).tolist()
    [[0.5, 0.5]]
    """
    return (-input).softmax(dim, dtype)


def log_softmax(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """The logarithm of `softmax`, without overflow.

    >>> nn.functional.log_softmax(Tensor([[0.0, 1000.0]]), dim=1).tolist()
    [[-1000.0, 0.0]]
    """
    return input.log_softmax(dim, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A draw of classes that has a gradient: softmax((logits + g) / tau), g from Gumbel's
    distribution. With `hard` one-hot, with the gradient of the soft draw (Jang, Gu and Poole,
    "Categorical Reparameterization with Gumbel-Softmax", 2017). `eps` is taken and not needed.

    >>> nn.functional.gumbel_softmax(Tensor.zeros(2, 5), hard=True).sum(-1).tolist()
    [1.0, 1.0]
    """
    check_tensors("gumbel_softmax", logits)
    noise = -Tensor.exponential(*logits.shape, device=logits.device, dtype=logits.dtype).log()
    soft = ((logits + noise.detach()) * (1 / tau)).softmax(dim)
    if not hard:
        return soft
    axis = as_axis("gumbel_softmax", dim, logits.ndim)
    chosen = soft.argmax(axis).one_hot(soft._sizes[axis]).movedim(-1, axis).cast(soft.dtype)
    return chosen.detach() - soft.detach() + soft
