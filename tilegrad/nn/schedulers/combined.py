"""Schedulers made of others: one after another, or all at once."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.base import LRScheduler
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = ["ChainedScheduler", "SequentialLR"]


class SequentialLR(LRScheduler):
    """One scheduler after another: `schedulers[i]` up to `milestones[i]`, each from its step 0.

    Raises ConfigError unless there is one milestone fewer than schedulers; for a scheduler that
    keeps more than its count.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = nn.schedulers.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rest = nn.schedulers.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = nn.schedulers.SequentialLR(optimizer, [warm, rest], milestones=[2])
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.75]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ):
        if len(schedulers) != len(milestones) + 1:
            raise ConfigError(
                f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} "
                f"milestones, not {len(milestones)}",
                line=here(),
            )
        for each in schedulers:
            if type(each).step is not LRScheduler.step:
                raise ConfigError(
                    f"SequentialLR: {type(each).__name__} keeps state of its own", line=here()
                )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for group, rate in zip(optimizer.param_groups, schedulers[0].base_lrs):
            group["lr"] = rate
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        place = self.base_lrs.index(base)
        starts = [0, *self.milestones]
        rates = [
            each._rate((t - start).maximum(0.0), each.base_lrs[place])
            for each, start in zip(self.schedulers, starts)
        ]
        result = rates[-1]
        for rate, milestone in zip(reversed(rates[:-1]), reversed(self.milestones)):
            result = (t < milestone).where(rate, result)
        return result


class ChainedScheduler(LRScheduler):
    """All schedulers at once: base times what each makes of it, as a factor.

    Raises ConfigError for none, for schedulers of several optimizers, or for one that keeps more
    than its count.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = nn.schedulers.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rest = nn.schedulers.ExponentialLR(optimizer, gamma=0.9)
    >>> scheduler = nn.schedulers.ChainedScheduler([warm, rest])
    >>> [(scheduler.step(), round(scheduler.get_last_lr()[0], 4))[1] for _ in range(3)]
    [0.45, 0.81, 0.729]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        self.schedulers = list(schedulers)
        if not self.schedulers:
            raise ConfigError("ChainedScheduler: there are no schedulers", line=here())
        first = self.schedulers[0].optimizer if optimizer is None else optimizer
        for each in self.schedulers:
            if each.optimizer is not first:
                raise ConfigError("ChainedScheduler: schedulers of several optimizers", line=here())
            if type(each).step is not LRScheduler.step:
                raise ConfigError(
                    f"ChainedScheduler: {type(each).__name__} keeps state of its own", line=here()
                )
        super().__init__(first)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        place = self.base_lrs.index(base)
        rate = t * 0 + base
        for each in self.schedulers:
            first = each.base_lrs[place]
            rate = rate * each._rate(t, first) * (1 / first if first else 0.0)
        return rate
