"""`ReduceLROnPlateau` in plain numbers, as PyTorch keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilegrad.nn.schedulers.scheduler import check_optimizer

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau:
    """Multiply the rates by `factor` after more than `patience` steps whose metric was no better.

    The options, the counts and the best metric are attributes, and all of them are in the state.
    `tilegrad.nn.schedulers.ReduceLROnPlateau` keeps the same on the device.
    """

    def __init__(
        self,
        optimizer: Any,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] | tuple[float, ...] = 0,
        eps: float = 1e-8,
        verbose: Any = None,
    ):
        if factor >= 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1.0, it is {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: mode {mode!r}, threshold_mode {threshold_mode!r}")
        check_optimizer("ReduceLROnPlateau", optimizer)
        groups = optimizer.param_groups
        self.optimizer, self.factor = optimizer, factor
        self.default_min_lr: float | None = None
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != len(groups):
                raise ValueError(f"expected {len(groups)} min_lrs, got {len(min_lr)}")
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * len(groups)
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch, self._last_lr = 0, [group["lr"] for group in groups]
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        # The metric that every other is better than.
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        """Forget the metrics so far."""
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return self._last_lr

    @property
    def in_cooldown(self) -> bool:
        """Whether steps are not counted yet after a drop."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a metric is better than the best so far, by more than the threshold."""
        sign = -1 if self.mode == "min" else 1
        step = sign * self.threshold
        line = best * (1 + step) if self.threshold_mode == "rel" else best + step
        return a < line if self.mode == "min" else a > line

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Take the metric of this step, and reduce the rates if it is time."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                group["lr"] = new

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        vars(self).update(state_dict)
