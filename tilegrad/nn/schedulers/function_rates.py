"""Rates by a Python function of the step, which the host calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilegrad.base.errors import CaptureError, ConfigError
from tilegrad.engine.run.run import current_recording
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.scheduler import LRScheduler
from tilegrad.tensor.tensor import Tensor

__all__ = ["LambdaLR", "MultiplicativeLR"]


class LambdaLR(LRScheduler):
    """Rate by a function: base * lr_lambda(t).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        lr_lambda: a Python function of the step, or one for each group.

    Shape: rates are tensors of one element, (1,), float32.

    Raises CaptureError inside a captured function, ConfigError for another number of functions than
    groups.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.LambdaLR(optimizer, lr_lambda=lambda step: 1 / (step + 1))
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_counted = False

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ):
        groups = len(optimizer._param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ConfigError(
                f"{type(self).__name__}: {len(self.lr_lambdas)} functions for {groups} groups"
            )
        self._steps = 0
        super().__init__(optimizer)

    @property
    def last_epoch(self) -> int:
        """How many steps there were."""
        return self._steps

    def step(self) -> None:
        """Go on by one step: write the rate of each group."""
        if current_recording() is not None:
            raise CaptureError(
                f"{type(self).__name__}.step: a Python function of the step cannot be captured",
                remedy="call step() outside the captured function: the rate is a tensor it reads",
            )
        self._steps += 1
        self._write()

    def state_dict(self) -> dict[str, Any]:
        """The count and the first rates; the functions are not among it."""
        return {**super().state_dict(), "count": [self._steps]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. Raises as other schedulers."""
        self._steps = int(state_dict.get("count", [self._steps])[0])
        super().load_state_dict(state_dict)

    def _factors(self) -> list[float]:
        return [float(function(self._steps)) for function in self.lr_lambdas]

    def _rates(self, t: Tensor) -> list[Tensor]:
        return [
            Tensor([base * factor], device=t.device, dtype=t.dtype)
            for base, factor in zip(self.base_lrs, self._factors())
        ]


class MultiplicativeLR(LambdaLR):
    """Rate by factors: base * lr_lambda(1) * ... * lr_lambda(t).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        lr_lambda: a Python function of the step, or one for each group.

    Shape: rates are tensors of one element, (1,), float32.

    Raises CaptureError inside a captured function, ConfigError for another number of functions than
    groups.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.MultiplicativeLR(optimizer, lr_lambda=lambda step: 0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_chained = True

    def _factors(self) -> list[float]:
        # The products so far, and the step that they are of.
        known, products = getattr(self, "_products", (0, [1.0] * len(self.lr_lambdas)))
        for step in range(known + 1, self._steps + 1):
            products = [
                product * float(function(step))
                for product, function in zip(products, self.lr_lambdas, strict=True)
            ]
        self._products = (self._steps, products)
        return products

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave: the functions are called for all steps up to there."""
        self.__dict__.pop("_products", None)
        super().load_state_dict(state_dict)
