"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.nn.distributions.distribution import Distribution
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Mixture: a draw of one of several distributions, chosen by a `Categorical`.

    Shape: batch (*batch), events as those of the components.

    Args:
        mixture_distribution: a `Categorical` of batch (*batch).
        component_distribution: distributions of batch (*batch, classes).

    Shape: batch (*batch), events of the shape of those of the components; float.

    Raises ShapeError unless there are as many distributions as classes.

    >>> parts = nn.distributions.Normal(Tensor([0.0, 4.0]), 1.0)
    >>> classes = nn.distributions.Categorical(probs=Tensor([0.5, 0.5]))
    >>> nn.distributions.MixtureSameFamily(classes, parts).mean.item()
    2.0
    """

    def __init__(self, mixture_distribution: Any, component_distribution: Any):
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        batch = component_distribution.batch_shape
        classes = mixture_distribution.probs.shape[-1]
        if not batch or batch[-1] != classes:
            raise ShapeError(
                f"MixtureSameFamily: {classes} classes, distributions of {show_shape(batch)}",
                rule="the last axis of the components is that of the classes",
            )
        super().__init__(batch[:-1], component_distribution.event_shape)

    def _shares(self) -> Any:
        """The probabilities, with an axis for each of an event."""
        shares = self.mixture_distribution.probs
        return shares.reshape(*shares.shape, *(1 for _ in self.event_shape))

    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        found: Tensor = (self._shares() * self.component_distribution.mean).sum(self._axis())
        return found

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        shares, components = self._shares(), self.component_distribution
        apart = (components.mean - self.mean.unsqueeze(self._axis())).square()
        found: Tensor = (shares * (components.variance + apart)).sum(self._axis())
        return found

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        draws = self.component_distribution.sample(sample_shape)
        index = self.mixture_distribution.sample(sample_shape)
        index = index.reshape(*index.shape, 1, *(1 for _ in self.event_shape))
        sizes = list(draws.shape)
        sizes[self._axis()] = 1
        found: Tensor = draws.gather(self._axis(), index.expand(*sizes)).squeeze(self._axis())
        return found.detach()

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.component_distribution.log_prob(value.unsqueeze(self._axis()))
        found: Tensor = (each + self.mixture_distribution.logits).logsumexp(-1)
        return found

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        each = self.component_distribution.cdf(value.unsqueeze(-1))
        found: Tensor = (self.mixture_distribution.probs * each).sum(-1)
        return found
