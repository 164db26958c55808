"""Schedulers made of others: one after another, or all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.scheduler import LRScheduler, Moved
from tilegrad.tensor.tensor import Tensor

__all__ = ["ChainedScheduler", "SequentialLR"]


class SequentialLR(LRScheduler):
    """One scheduler after another: `schedulers[i]` up to `milestones[i]`, each from its step 0.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        schedulers: the schedulers.
        milestones: steps at which the next one begins.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError unless there is one milestone fewer than schedulers; for a scheduler with
    more state than its count.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = nn.schedulers.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rest = nn.schedulers.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = nn.schedulers.SequentialLR(optimizer, [warm, rest], milestones=[2])
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.75]
    """

    is_chained = True

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ):
        if len(schedulers) != len(milestones) + 1:
            raise ConfigError(
                f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} "
                f"milestones, not {len(milestones)}"
            )
        for each in schedulers:
            if not each.is_counted:
                raise ConfigError(f"SequentialLR: {type(each).__name__} keeps state of its own")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for group, rate in zip(optimizer._param_groups, schedulers[0].base_lrs):
            group["lr"] = rate
        super().__init__(optimizer)

    def _times(self, t: Tensor) -> list[Tensor]:
        """The step of each scheduler."""
        return [(t - start).maximum(0.0) for start in (0, *self.milestones)]

    def _rates(self, t: Tensor) -> list[Tensor]:
        found = [each._rates(own) for each, own in zip(self.schedulers, self._times(t))]
        return self._running(t, found)

    def _running(self, t: Tensor, found: list[list[Tensor]]) -> list[Tensor]:
        """The rates of the scheduler that runs at step t, out of the rates of each."""
        result = found[-1]
        for rates, milestone in zip(reversed(found[:-1]), reversed(self.milestones)):
            result = [(t < milestone).where(rate, old) for rate, old in zip(rates, result)]
        return result

    def _moved(self, t: Tensor, rates: Sequence[Tensor]) -> Moved:
        moved, formulas = [], []
        for each, own, start in zip(self.schedulers, self._times(t), (0, *self.milestones)):
            found = each._rates(own)
            formulas.append(found)
            if each.is_chained:
                # A scheduler begins at the rate of its step 0, whatever was before it.
                found = [
                    t.eq(start).where(new, each._scaled(rate, old, new.cast(rate.dtype)))
                    for rate, old, new in zip(rates, self._formula, found)
                ]
            moved.append(found)
        return self._running(t, moved), list(zip(self._formula, self._running(t, formulas)))

    def _others(self, t: Tensor) -> list[tuple[Tensor, Tensor]]:
        # Tensors that a scheduler moves stay as they are while others run.
        written: dict[int, tuple[Tensor, Tensor]] = {}
        bounds = zip((0, *self.milestones), (*self.milestones, math.inf))
        for each, own, (start, end) in zip(self.schedulers, self._times(t), bounds):
            is_running = (t >= start) & (t < end)
            for memory, new in each._others(own):
                old = written.get(id(memory), (memory, memory.detach()))[1]
                written[id(memory)] = memory, is_running.where(new, old)
        return list(written.values())


class ChainedScheduler(LRScheduler):
    """All schedulers at once: the base rate times the factor of each.

    Args:
        schedulers: the schedulers, of one optimizer.
        optimizer: that optimizer.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for none, for schedulers of several optimizers, or for one with more state
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
            raise ConfigError("ChainedScheduler: there are no schedulers")
        first = self.schedulers[0].optimizer if optimizer is None else optimizer
        for each in self.schedulers:
            if each.optimizer is not first:
                raise ConfigError("ChainedScheduler: schedulers of several optimizers")
            if not each.is_counted:
                raise ConfigError(f"ChainedScheduler: {type(each).__name__} keeps state of its own")
        # Each has written its step 0.
        self._attach(first)

    def _moved(self, t: Tensor, rates: Sequence[Tensor]) -> Moved:
        moved, formulas = list(rates), []
        for each in self.schedulers:
            moved, formula = each._moved(t, moved)
            formulas += formula
        return moved, formulas

    def _rates(self, t: Tensor) -> list[Tensor]:
        result = [t * 0 + base for base in self.base_lrs]
        for each in self.schedulers:
            result = [
                rate * new * (1 / first if first else 0.0)
                for rate, new, first in zip(result, each._rates(t), each.base_lrs)
            ]
        return result

    def _others(self, t: Tensor) -> list[tuple[Tensor, Tensor]]:
        # Where two move one tensor, the last counts.
        found = [pair for each in self.schedulers for pair in each._others(t)]
        return list({id(memory): (memory, new) for memory, new in found}.values())
