"""Rates that fall where a metric no longer does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.scheduler import restore, saved
from tilegrad.tensor.tensor import Tensor

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau:
    """Decay on a plateau: multiply the rate by `factor` after more than `patience` steps whose
    metric was no better.

    Better is below best * (1 - threshold) ("rel") or best - threshold ("abs") for mode "min", and
    the reverse for "max". After a reduction, `cooldown` steps are not counted. All of it is kept on
    the device: `step` may be given a tensor, and may be captured.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        mode: "min" or "max", which metric is better.
        factor: factor of a drop.
        patience: steps without improvement that are allowed.
        threshold: least improvement that counts.
        threshold_mode: "rel" or "abs".
        cooldown: steps after a drop that are not counted.
        min_lr: least rate.
        eps: least change of the rate.

    Shape: `step` takes the metric, a number or a tensor of one element.

    Raises ConfigError for an option outside its range.

    >>> opt = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    >>> schedule = nn.schedulers.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    >>> [(schedule.step(1.0), opt.lr.item())[1] for _ in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ConfigError(
                f"ReduceLROnPlateau: unknown mode {mode!r} or threshold_mode {threshold_mode!r}",
                allowed="'min', 'max'; 'rel', 'abs'",
            )
        if not factor < 1:
            raise ConfigError(f"ReduceLROnPlateau: factor {factor} must be below 1")
        self.optimizer, self.mode, self.factor = optimizer, mode, factor
        self.patience, self.threshold, self.threshold_mode = patience, threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        worst = math.inf if mode == "min" else -math.inf
        device = optimizer.lr.device
        self.best = Tensor([worst], device=device, requires_grad=False)
        self.num_bad_epochs = Tensor([0], device=device, dtype=dtypes.int32, requires_grad=False)
        self.cooldown_counter = Tensor([0], device=device, dtype=dtypes.int32, requires_grad=False)
        Tensor.realize(self.best, self.num_bad_epochs, self.cooldown_counter)

    def get_last_lr(self) -> list[float]:
        """The rate of each group; to ask waits for the device."""
        return [float(group["lr"].item()) for group in self.optimizer._param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The best metric and the counts, as lists; to ask waits for the device."""
        return saved(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. Raises DataError where something is missing."""
        restore(self, state_dict)

    def step(self, metrics: Tensor | float) -> None:
        """Take the metric of this step, and reduce the rates if it is time."""
        best, bad, cooling = self.best, self.num_bad_epochs, self.cooldown_counter
        given = metrics if isinstance(metrics, Tensor) else Tensor([float(metrics)])
        metric = given.detach().reshape(1).cast(best.dtype).to(best.device)
        sign = -1 if self.mode == "min" else 1
        line = (
            best * (1 + sign * self.threshold)
            if self.threshold_mode == "rel"
            else best + sign * self.threshold
        )
        is_better = metric < line if self.mode == "min" else metric > line
        is_cooling = cooling > 0
        counted = is_better.where(0, bad + 1)
        counted = is_cooling.where(0, counted)
        is_late = counted > self.patience
        rates = []
        for group in self.optimizer._param_groups:
            rate: Tensor = group["lr"]
            lower = (rate * self.factor).maximum(self.min_lr)
            rates.append((rate, (is_late & (rate - lower > self.eps)).where(lower, rate)))
        left = is_cooling.where(cooling - 1, cooling)
        new = [
            (best, is_better.where(metric, best)),
            (bad, is_late.where(0, counted)),
            (cooling, is_late.where(self.cooldown, left)),
        ]
        pairs = [(target, value.cast(target.dtype)) for target, value in [*rates, *new]]
        Tensor.realize(*[value for _, value in pairs])
        Tensor.realize(*[target.assign(value) for target, value in pairs])
