"""Rates that are a formula of the step: stairs, lines, powers, cosines."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.scheduler import LRScheduler, at_least_one, cosine, in_range, power
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LinearLR", "MultiStepLR", "PolynomialLR",
    "StepLR", "WarmupCosineLR",
]  # fmt: skip


class StepLR(LRScheduler):
    """Decay by steps: base * gamma^floor(t / step_size).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        step_size: steps between two drops.
        gamma: factor of a drop.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        at_least_one("StepLR", step_size=step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return power(self.gamma, (t / self.step_size).floor()) * base


class MultiStepLR(LRScheduler):
    """Decay at milestones: base * gamma^n, n the number of `milestones` up to t.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        milestones: the steps of the drops.
        gamma: factor of a drop.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.MultiStepLR(optimizer, milestones=[1], gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        passed = t * 0
        for milestone in self.milestones:
            passed = passed + (t >= milestone).cast(t.dtype)
        return power(self.gamma, passed) * base


class ConstantLR(LRScheduler):
    """Constant factor: base * factor before step total_iters, then base.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        factor: the factor.
        total_iters: number of steps.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5):
        in_range("ConstantLR", 0, 1, factor=factor)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return (t < self.total_iters).where(t * 0 + base * self.factor, base)


class LinearLR(LRScheduler):
    """Linear warm-up: base * (start + (end - start) * min(t, total_iters) / total_iters).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        start_factor: factor of step 0.
        end_factor: factor from step `total_iters` on.
        total_iters: number of steps.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.75]
    """

    is_chained = True

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ):
        at_least_one("LinearLR", total_iters=total_iters)
        in_range("LinearLR", sys.float_info.min, 1, start_factor=start_factor)
        in_range("LinearLR", 0, 1, end_factor=end_factor)
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        share = t.minimum(self.total_iters) / self.total_iters
        return (share * (self.end_factor - self.start_factor) + self.start_factor) * base


class ExponentialLR(LRScheduler):
    """Exponential decay: base * gamma^t.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        gamma: factor of a step.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, gamma: float):
        self.gamma = gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return power(self.gamma, t) * base


class PolynomialLR(LRScheduler):
    """Polynomial decay: base * (1 - min(t, total_iters) / total_iters)^power.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        total_iters: number of steps.
        power: the exponent.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.PolynomialLR(optimizer, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0):
        at_least_one("PolynomialLR", total_iters=total_iters)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        left = 1 - t.minimum(self.total_iters) / self.total_iters
        return left.pow(self.power) * base


class CosineAnnealingLR(LRScheduler):
    """Cosine decay: eta_min + (base - eta_min) * (1 + cos(pi * t / T_max)) / 2 (Loshchilov and
    Hutter, 2017, arXiv:1608.03983).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        T_max: steps of half a period.
        eta_min: least rate.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CosineAnnealingLR(optimizer, T_max=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        at_least_one("CosineAnnealingLR", T_max=T_max)
        self.T_max, self.eta_min = T_max, eta_min
        self._least = eta_min
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return cosine(base, self.eta_min, t / self.T_max)


class WarmupCosineLR(LRScheduler):
    """Warm-up and cosine decay: base * t / warmup_steps up to there, then half a cosine down to
    base * min_ratio at step total_steps, and no further.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        warmup_steps: steps upward.
        total_steps: all steps.
        min_ratio: last rate / base.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.WarmupCosineLR(optimizer, 2, 10)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, total_steps: int, min_ratio: float = 0.0
    ):
        at_least_one("WarmupCosineLR", warmup_steps=warmup_steps)
        if total_steps <= warmup_steps:
            raise ConfigError(
                f"WarmupCosineLR: total_steps {total_steps} must be above {warmup_steps}, "
                "the warmup_steps"
            )
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        self.min_ratio = min_ratio
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        share = (t - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        down = cosine(base, base * self.min_ratio, share.clip(0.0, 1.0))
        return (t < self.warmup_steps).where(t * (base / self.warmup_steps), down)
