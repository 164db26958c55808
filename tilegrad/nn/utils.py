"""What is done to all parameters at once: clipping of gradients, a moving average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tilegrad.base.errors import ConfigError
from tilegrad.nn.state import get_state_dict
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = ["EMA", "clip_grad_norm_", "clip_grad_value_"]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients so that their norm, taken together, is at most `max_norm`; gives the norm
    that they had.

    As in PyTorch the factor is min(1, max_norm / (norm + 1e-6)). Nothing is computed until the
    gradients are: a step of an optimizer takes the factor in.

    >>> p = Tensor([3.0, 4.0], requires_grad=True); (p * p).sum().backward().item()
    25.0
    >>> nn.utils.clip_grad_norm_([p], 1.0).item()
    10.0
    """
    if not max_norm > 0:
        raise ConfigError(f"clip_grad_norm_: max_norm must be above 0, not {max_norm}", line=here())
    tensors = _with_gradients(parameters)
    if not tensors:
        return Tensor(0.0)
    parts = [_gradient(tensor).detach().abs() for tensor in tensors]
    first = tensors[0].device
    if norm_type == math.inf:
        norm = Tensor.stack(*[part.max().to(first) for part in parts]).max()
    else:
        sums = [part.pow(norm_type).sum().to(first) for part in parts]
        norm = Tensor.stack(*sums).sum().pow(1 / norm_type)
    factor = (max_norm / (norm + 1e-6)).minimum(1.0)
    for tensor in tensors:
        gradient = _gradient(tensor)
        tensor.grad = gradient * factor.cast(gradient.dtype).to(gradient.device)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Hold every element of every gradient between -clip_value and clip_value.

    >>> p = Tensor([3.0], requires_grad=True); loss = (p * p).sum().backward()
    >>> nn.utils.clip_grad_value_([p], 0.5); p.grad.tolist()
    [0.5]
    """
    for tensor in _with_gradients(parameters):
        tensor.grad = _gradient(tensor).clip(-clip_value, clip_value)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [tensor for tensor in found if tensor.grad is not None]


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


class EMA:
    """An average of a model's tensors that forgets: average = decay * average + (1 - decay) * now.

    Integers are copied. `update()` follows a step of the optimizer; with `warm_up` the decay of
    update n is min(decay, (1 + n) / (10 + n)).

    >>> layer = nn.Linear(1, 1); ema = nn.utils.EMA(layer, 0.5)
    >>> with ema.applied():
    ...     y = layer(Tensor([[1.0]]))
    """

    def __init__(self, model: object, decay: float = 0.999, warm_up: bool = False):
        if not 0 <= decay <= 1:
            raise ConfigError(f"EMA: decay must be between 0 and 1, not {decay}", line=here())
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
