"""`torch.optim.swa_utils`: averages of weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.nn.module import Module
from tilegrad.torch.optim.lr_scheduler import LRScheduler
from tilegrad.torch.tensor import Tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "update_bn",
]  # fmt: skip


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The running mean in which the newest weights have a share of 1 - decay."""

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return average


get_ema_multi_avg_fn = get_ema_avg_fn


def get_swa_avg_fn() -> Callable[..., Any]:
    """The mean of all weights so far."""

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        moved: Tensor = averaged + (current - averaged) / (count + 1)
        return moved

    return average


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
        with thread_modes.no_grad():
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


class SWALR(LRScheduler):
    """Rates that go to `swa_lr`, one or one a group, in `anneal_epochs` steps, on a line or a half
    cosine, and stay there. Each step begins at the rate that the groups have, which another
    schedule may have changed.

    Raises ValueError for another `anneal_strategy`.
    """

    def __init__(
        self,
        optimizer: Any,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy {anneal_strategy!r}: 'cos' or 'linear'")
        groups = optimizer.param_groups
        self._goals = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        self._epochs, self._is_linear = anneal_epochs, anneal_strategy == "linear"
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        """The share of the way after `epoch` steps, from 0 to 1."""
        done = min(1.0, max(0.0, epoch / max(1, self._epochs)))
        return done if self._is_linear else (1 - math.cos(math.pi * done)) / 2

    def get_lr(self) -> list[float]:
        epoch = max(1, self.last_epoch) if self._epochs == 0 else self.last_epoch
        before, now = self._share(epoch - 1), self._share(epoch)
        found = []
        for group, goal in zip(self.optimizer.param_groups, self._goals):
            begin = goal if before == 1 else (group["lr"] - before * goal) / (1 - before)
            found.append(goal * now + begin * (1 - now))
        return found


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the running statistics of all batch normalisations of `model` over a loader."""
    norms = [each for each in model.modules() if getattr(each, "running_mean", None) is not None]
    before = [each.momentum for each in norms]
    was_training = model.training
    for each in norms:
        each.reset_running_stats()
        each.momentum = None
    model.train()
    with thread_modes.no_grad():
        for batch in loader:
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
            for each in norms:
                each.running_mean.realize(each.running_var, each.num_batches_tracked)
    for each, momentum in zip(norms, before):
        each.momentum = momentum
    model.train(was_training)


refuse_others(__name__)
