"""Operations on all gradients at once: their norm, and limits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn.tree import Paired, is_tensor
from tilegrad.tensor.handle.gradient import set_gradient
from tilegrad.tensor.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`.

    As in PyTorch the factor is min(1, max_norm / (norm + 1e-6)). Nothing is computed until the
    gradients are: a step of an optimizer computes the factor with it.

    Args:
        parameters: a tensor, or several, of any shapes; those without a gradient do not count.
        max_norm: the limit.
        norm_type: order of the norm.

    Returns the norm before, a float number.

    Raises ConfigError for a limit that is not positive.

    >>> p = Tensor([3.0, 4.0], requires_grad=True); (p * p).sum().backward().item()
    25.0
    >>> nn.utils.clip_grad_norm_([p], 1.0).item()
    10.0
    """
    if not max_norm > 0:
        raise ConfigError(f"clip_grad_norm_: max_norm must be above 0, not {max_norm}")
    tensors = _with_gradients(parameters)
    norm = get_total_norm([_gradient(tensor) for tensor in tensors], norm_type)
    clip_grads_with_norm_(tensors, max_norm, norm)
    return norm


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """Common norm of all tensors, as one vector; 0 for none.

    Args:
        tensors: a tensor, or several, of any shapes.
        norm_type: order of the norm.

    Returns a float number.

    Raises DTypeError for what is no tensor.

    >>> nn.utils.get_total_norm([Tensor([3.0]), Tensor([4.0])]).item()
    5.0
    """
    norms = [
        each.detach().abs() for each in ([tensors] if isinstance(tensors, Tensor) else tensors)
    ]
    if not norms:
        return Tensor(0.0)
    first = norms[0].device
    if norm_type == math.inf:
        return Tensor.stack(*[each.max().to(first) for each in norms]).max()
    sums = [each.pow(norm_type).sum().to(first) for each in norms]
    return Tensor.stack(*sums).sum().pow(1 / norm_type)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor
) -> None:
    """Scale all gradients by min(1, max_norm / (total_norm + 1e-6)).

    Args:
        parameters: a tensor, or several, of any shapes; those without a gradient do not count.
        max_norm: the limit.
        total_norm: their norm, as `get_total_norm` gives it.

    Returns None.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> loss = w.square().sum().backward()
    >>> nn.utils.clip_grads_with_norm_([w], 5.0, Tensor(10.0))
    >>> w.grad.numpy().round(3).tolist()
    [3.0, 4.0]
    """
    factor = (max_norm / (total_norm + 1e-6)).minimum(1.0)
    for tensor in _with_gradients(parameters):
        stored = tensor.pair if isinstance(tensor, Paired) else tensor
        set_gradient(stored, _scaled(_gradient(stored), factor))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of every gradient to -clip_value..clip_value.

    Args:
        parameters: a tensor, or several, of any shapes; those without a gradient do not count.
        clip_value: the limit.

    Returns None; gradients keep their dtypes.

    >>> p = Tensor([3.0], requires_grad=True); loss = (p * p).sum().backward()
    >>> nn.utils.clip_grad_value_([p], 0.5); p.grad.tolist()
    [0.5]
    """
    for tensor in _with_gradients(parameters):
        set_gradient(tensor, _gradient(tensor).clip(-clip_value, clip_value))


def _scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    return gradient * factor.cast(gradient.dtype).to(gradient.device)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    found: list[Any] = [parameters] if is_tensor(parameters) else list(parameters)
    return [tensor for tensor in found if tensor.grad is not None]


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad
