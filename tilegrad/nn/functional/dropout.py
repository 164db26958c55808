"""Functions that leave out a share of their input in training."""

from __future__ import annotations

import math

from tilegrad.base.errors import ConfigError
from tilegrad.tensor.handle.size_arguments import as_number
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
]  # fmt: skip


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout: in training each element is zero with probability `p`, else divided by 1 - p;
    otherwise the input (Srivastava et al. 2014).

    Args:
        input: a tensor of any shape.
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.dropout(Tensor([1.0, 2.0]), training=False).tolist()
    [1.0, 2.0]
    """
    if not _drops("dropout", p, training):
        return input
    with Tensor.train():
        return input.dropout(p)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels: one draw for each item and channel (Tompson et al. 2014,
    arXiv:1411.4280).

    Args:
        input: (N, C, ...).
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.dropout1d(Tensor.ones(1, 2, 2), training=False).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return input * _channels(input, p) if _drops("dropout2d", p, training) else input


dropout1d = dropout3d = dropout2d


def _channels(input: Tensor, p: float) -> Tensor:
    """0 or 1 / (1 - p) for each item and channel."""
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    with Tensor.train():
        return Tensor.ones(*shape, device=input.device, dtype=input.dtype).dropout(p)


def _drops(name: str, p: float, training: bool) -> bool:
    if not 0 <= as_number(name, "p", p) <= 1:
        raise ConfigError(f"{name}: p must be between 0 and 1, not {p!r}")
    return training and p > 0


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for `selu`: in training a share `p` of the elements takes SELU's least value, and all
    are scaled and shifted so that mean 0 and variance 1 stay (Klambauer et al. 2017,
    arXiv:1706.02515).

    Args:
        input: a tensor of any shape.
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.alpha_dropout(Tensor([1.0, 2.0]), training=False).tolist()
    [1.0, 2.0]
    """
    if not _drops("alpha_dropout", p, training):
        return input
    return _alpha(input, input.rand_like(requires_grad=False) >= p, p)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels.

    Args:
        input: (N, C, ...).
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.feature_alpha_dropout(Tensor([[1.0, 2.0]]), training=False).tolist()
    [[1.0, 2.0]]
    """
    if not _drops("feature_alpha_dropout", p, training):
        return input
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha(input, Tensor.rand(*shape, device=input.device) >= p, p)


def _alpha(input: Tensor, is_retained: Tensor, p: float) -> Tensor:
    least = -1.0507009873554805 * 1.6732632423543772
    if p == 1:
        return input * 0
    scale = 1 / math.sqrt((least * least * p + 1) * (1 - p))
    return is_retained.where(input, least) * scale - scale * least * p
