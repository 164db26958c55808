"""Layers that leave out a share of their input in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tilegrad.base.errors import ConfigError
from tilegrad.nn import functional
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout",
]  # fmt: skip


class Dropout(Module):
    """Dropout: in training each element is zero with probability `p`, else divided by 1 - p;
    otherwise the input (Srivastava et al. 2014).

    Args:
        p: the probability of zero, in 0..1.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.Dropout(0.5).eval()(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    _function: ClassVar[Callable[[Tensor, float, bool], Tensor]] = functional.dropout

    def __init__(self, p: float = 0.5, inplace: bool = False):
        if not 0 <= p <= 1:
            raise ConfigError(f"{type(self).__name__}: p must be between 0 and 1, not {p!r}")
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        check_tensors(type(self).__name__, x)
        return type(self)._function(x, self.p, self.training)


class Dropout2d(Dropout):
    """Dropout of whole channels: one draw for each item and channel (Tompson et al. 2014,
    arXiv:1411.4280).

    Args:
        p: the probability of zero, in 0..1.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input (N, C, ...), output of the same shape; floats keep their dtype, bool and integers
    give the default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.Dropout1d(0.5).eval()(Tensor.ones(1, 2, 2)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """

    _function = functional.dropout2d


# One class serves any number of axes behind the channels.
Dropout1d = Dropout3d = Dropout2d


class AlphaDropout(Dropout):
    """Dropout for SELU: what is left out takes SELU's least value, and all is scaled and shifted so
    that mean 0 and variance 1 stay (Klambauer et al., "Self-Normalizing Neural Networks", 2017).

    Args:
        p: the probability of zero, in 0..1.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input of any shape, output of the same shape; floats keep their dtype.

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.AlphaDropout(0.5).eval()(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    _function = functional.alpha_dropout


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels.

    Args:
        p: the probability of zero, in 0..1.
        inplace: accepted for other libraries' sake; ignored.

    Shape: input (N, C, ...), output of the same shape; floats keep their dtype, bool and integers
    give the default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """

    _function = functional.feature_alpha_dropout
