"""A moving average of a model's tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.base.errors import ConfigError
from tilegrad.nn.state import get_state_dict
from tilegrad.tensor.tensor import Tensor

__all__ = ["EMA"]


class EMA:
    """Exponential moving average of a model's tensors: average = decay * average + (1 - decay) *
    now.

    Integers are copied. `update()` follows a step of the optimizer.

    Args:
        model: a module, or any object that holds tensors.
        decay: share of the average that stays in an update.
        warm_up: the decay of update n is min(decay, (1 + n) / (10 + n)).

    Shape: averages of the shapes and dtypes of the tensors.

    Raises ConfigError for a decay outside 0..1.

    >>> layer = nn.Linear(1, 1); ema = nn.utils.EMA(layer, 0.5)
    >>> with ema.applied():
    ...     y = layer(Tensor([[1.0]]))
    """

    def __init__(self, model: object, decay: float = 0.999, warm_up: bool = False):
        if not 0 <= decay <= 1:
            raise ConfigError(f"EMA: decay must be between 0 and 1, not {decay}")
        self._model, self.decay, self.warm_up = get_state_dict(model), decay, warm_up
        self.average = {name: tensor.detach().clone() for name, tensor in self._model.items()}
        for tensor in self.average.values():
            tensor.requires_grad = False
        Tensor.realize(*self.average.values())
        self.count = Tensor([0.0], requires_grad=False)

    def update(self) -> None:
        """Move the average toward the model, in one schedule."""
        self.count.assign(self.count + 1)
        decay: Tensor | float = self.decay
        if self.warm_up:
            decay = ((self.count + 1) / (self.count + 10)).minimum(self.decay)
        for name, tensor in self._model.items():
            mean, now = self.average[name], tensor.detach()
            if mean.dtype.is_float:
                share = (
                    decay.cast(mean.dtype).to(mean.device) if isinstance(decay, Tensor) else decay
                )
                wide = mean * share + now * (1 - share)
                mean.assign(wide.reshape(mean.shape).cast(mean.dtype))
            else:
                mean.assign(now)
        Tensor.realize(self.count, *self.average.values())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """In this block the model has the averaged values; after it, its own again."""
        own = {name: tensor.detach().clone() for name, tensor in self._model.items()}
        Tensor.realize(*own.values())
        self._put(self.average)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, values: dict[str, Tensor]) -> None:
        Tensor.realize(*[self._model[name].assign(new) for name, new in values.items()])
