"""Base of all distributions: shapes, parameters of one shape, draws, and axes made events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "HALF_LOG_TAU", "Distribution", "Independent", "LocationScale", "NoFormulaError", "chance",
    "normal", "one_of", "over_last", "together", "uniform",
]  # fmt: skip


class NoFormulaError(ConfigError, NotImplementedError):
    """Nothing is known of a distribution by which this could be computed."""


HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution:
    """Base of distributions: a subclass defines `rsample`, or `sample` where draws have no
    gradient, and `log_prob`.

    Args:
        batch_shape: shape of independent distributions.
        event_shape: shape of one draw.
        validate_args: what a subclass finds in `_validate_args`, True unless this is False.

    Shape: `sample(s)` gives (*s, *batch_shape, *event_shape); `log_prob` of that gives (*s,
    *batch_shape).

    Raises NotImplementedError for what the subclass does not define, ConfigError for parameters
    outside their range under `validate_args`.

    >>> class Fixed(nn.distributions.Distribution):
    ...     def rsample(self, sample_shape=()):
    ...         return Tensor.ones(self._shape(sample_shape))
    >>> Fixed((3,)).sample((2,)).shape
    (2, 3)
    """

    def __init__(
        self,
        batch_shape: Sequence[Any] = (),
        event_shape: Sequence[Any] = (),
        validate_args: bool | None = None,
    ):
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        self._validate_args = validate_args is not False

    def _validate_sample(self, value: Any) -> None:
        """For subclasses that have a `support`.

        Raises ConfigError for a value outside.
        """
        support: Any = self.support  # type: ignore[attr-defined]
        if not support.check(value).all().item():
            raise ConfigError(
                f"{type(self).__name__}: a value is outside of {support}", value=repr(value)
            )

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        """The shape of draws, for subclasses."""
        return self._shape(sample_shape)

    mean: Tensor
    variance: Tensor

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape (*sample_shape, *batch_shape, *event_shape), through which no gradient
        flows.
        """
        return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws as by `sample`, with the gradient of the parameters.

        Raises NoFormulaError where a draw has none.
        """
        raise NoFormulaError(
            f"{type(self).__name__}.rsample: a draw has no gradient", remedy="sample()"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or the probability, of each event in `value`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def _shape(self, sample_shape: Sequence[int]) -> tuple[Any, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        shapes = f"batch_shape={show_shape(self.batch_shape)}"
        if self.event_shape:
            shapes += f", event_shape={show_shape(self.event_shape)}"
        return f"{type(self).__name__}({shapes})"


def together(*given: Any) -> list[Tensor]:
    """Parameters as tensors of one shape."""
    tensors = [each for each in given if isinstance(each, Tensor)]
    made = [
        each
        if isinstance(each, Tensor)
        else tensors[0].full_like(each)
        if tensors
        else Tensor(float(each))
        for each in given
    ]
    return list(Tensor.broadcast_tensors(*made))


def one_of(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ConfigError(
            f"{name}: {'neither' if probs is None else 'both'} of probs and logits given",
            remedy="pass one of them",
        )


def chance(name: str, probs: Any, logits: Any) -> tuple[Tensor, Tensor]:
    """A probability and its logit; one of the two is given."""
    one_of(name, probs, logits)
    (given,) = together(logits if probs is None else probs)
    return (given.sigmoid(), given) if probs is None else (given, given.logit(1e-7))


def normal(shape: Sequence[Any], like: Tensor) -> Tensor:
    return Tensor.randn(*shape, dtype=like.dtype, device=like.device)


def uniform(shape: Sequence[Any], like: Tensor) -> Tensor:
    return Tensor.rand(*shape, dtype=like.dtype, device=like.device)


def over_last(x: Tensor, count: int) -> Tensor:
    return x.sum(tuple(range(-count, 0))) if count else x


class LocationScale(Distribution):
    """`loc` plus `scale` times a standard draw."""

    def __init__(self, loc: Any, scale: Any):
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    def _standard(self, value: Any) -> Tensor:
        standard: Tensor = (value - self.loc) / self.scale
        return standard


class Independent(Distribution):
    """`base` with the last axes of its batch as one event.

    Args:
        base: a distribution.
        reinterpreted_batch_ndims: number of axes that move.

    Shape: batch (*batch[:-k]), event (*batch[-k:], *event).

    Raises ConfigError for more axes than the batch has.

    >>> d = nn.distributions.Independent(nn.distributions.Normal(Tensor.zeros(4, 3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(Tensor.zeros(4, 3)).shape
    ((4,), (3,), (4,))
    """

    def __init__(self, base: Distribution, reinterpreted_batch_ndims: int):
        count = reinterpreted_batch_ndims
        if not 0 <= count <= len(base.batch_shape):
            raise ConfigError(
                f"Independent: {count} axes of the batch {show_shape(base.batch_shape)}"
            )
        self.base, self.count = base, count
        cut = len(base.batch_shape) - count
        super().__init__(base.batch_shape[:cut], base.batch_shape[cut:] + base.event_shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.base.mean

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.base.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return over_last(self.base.log_prob(value), self.count)

    def entropy(self) -> Tensor:
        return over_last(self.base.entropy(), self.count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r}, {self.count})"
