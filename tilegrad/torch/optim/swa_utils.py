"""`torch.optim.swa_utils`: averages of weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.torch import modes
from tilegrad.torch.creation import tensor
from tilegrad.torch.nn.module import Module
from tilegrad.torch.tensor import Tensor

__all__ = ["AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "update_bn"]


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The running mean in which the newest weights have a share of 1 - decay."""

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return average


get_ema_multi_avg_fn = get_ema_avg_fn


class AveragedModel(Module):
    """A copy of a model whose weights are averages of those at each `update_parameters`."""

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool = False,
    ):
        self.module = copy.deepcopy(model)
        self.n_averaged: Tensor
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn, self.use_buffers = avg_fn or multi_avg_fn, use_buffers

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.module(*args, **options)

    def update_parameters(self, model: Any) -> None:
        """Take the weights of `model` into the averages."""
        pairs = list(zip(self.module.parameters(), model.parameters()))
        buffers = list(zip(self.module.buffers(), model.buffers()))
        count = int(self.n_averaged.item())
        with modes.no_grad():
            for mine, other in [*pairs, *(buffers if self.use_buffers else ())]:
                if count == 0 or not mine.dtype.is_float:
                    new = other.detach()
                elif self.avg_fn is not None:
                    new = self.avg_fn(mine.detach(), other.detach(), count)
                else:
                    new = mine.detach() + (other.detach() - mine.detach()) / (count + 1)
                mine.copy_(new)
            for mine, other in () if self.use_buffers else buffers:
                mine.copy_(other)
            self.n_averaged.fill_(count + 1)


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the running statistics of all batch normalisations of `model` over a loader."""
    norms = [each for each in model.modules() if getattr(each, "running_mean", None) is not None]
    before = [each.momentum for each in norms]
    was_training = model.training
    for each in norms:
        each.reset_running_stats()
        each.momentum = None
    model.train()
    with modes.no_grad():
        for batch in loader:
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
            for each in norms:
                each.running_mean.realize(each.running_var, each.num_batches_tracked)
    for each, momentum in zip(norms, before):
        each.momentum = momentum
    model.train(was_training)
