"""Softmax and what is like it, as functions: any shape to the same shape."""

from __future__ import annotations

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.handle.size_arguments import as_axis, as_number
from tilegrad.tensor.tensor import Tensor

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


def softmax(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """Softmax: exp(x) divided by its sum along an axis, without overflow.

    Args:
        input: a tensor of any shape.
        dim: the axis; a negative one counts from the last.
        dtype: dtype in which to compute, and of the result.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.functional.softmax(Tensor([1.0, 1.0]), dim=0).tolist()
    [0.5, 0.5]
    """
    return input.softmax(dim, dtype)


def softmin(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """Softmax of -x.

    Args:
        input: a tensor of any shape.
        dim: the axis; a negative one counts from the last.
        dtype: dtype in which to compute, and of the result.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.functional.softmin(Tensor([[0.0, 0.0]]), dim=1).tolist()
    [[0.5, 0.5]]
    """
    return (-input).softmax(dim, dtype)


def log_softmax(input: Tensor, dim: int = -1, dtype: DType | str | None = None) -> Tensor:
    """Logarithm of `softmax`, without overflow.

    Args:
        input: a tensor of any shape.
        dim: the axis; a negative one counts from the last.
        dtype: dtype in which to compute, and of the result.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.functional.log_softmax(Tensor([[0.0, 1000.0]]), dim=1).tolist()
    [[-1000.0, 0.0]]
    """
    return input.log_softmax(dim, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Draw classes with a gradient: softmax((logits + g) / tau), g from Gumbel's distribution
    (Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax", 2017).

    Args:
        logits: logarithms of probabilities, of any shape.
        tau: the temperature: the lower, the nearer to one-hot.
        hard: give one-hot values, with the gradient of the soft draw.
        eps: accepted and ignored.
        dim: the axis; a negative one counts from the last.

    Returns a float tensor of the shape of `logits`.

    Raises IndexBoundsError for an axis that is out of range, ConfigError unless `tau` is above 0.

    >>> nn.functional.gumbel_softmax(Tensor.zeros(2, 5), hard=True).sum(-1).tolist()
    [1.0, 1.0]
    """
    check_tensors("gumbel_softmax", logits)
    if as_number("gumbel_softmax", "tau", tau) <= 0:
        raise ConfigError(f"gumbel_softmax: tau must be above 0, not {tau}")
    noise = -Tensor.exponential(*logits.shape, device=logits.device, dtype=logits.dtype).log()
    soft = ((logits + noise.detach()) * (1 / tau)).softmax(dim)
    if not hard:
        return soft
    axis = as_axis("gumbel_softmax", dim, logits.ndim)
    chosen = soft.argmax(axis).one_hot(soft._sizes[axis]).movedim(-1, axis).cast(soft.dtype)
    return chosen.detach() - soft.detach() + soft
