"""Schedules of learning rates under the names of `torch.optim.lr_scheduler`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn import schedulers as ours
from tilegrad.tensor.sizes import here
from tilegrad.torch.absent import absent
from tilegrad.torch.optim.groups import as_number

if TYPE_CHECKING:
    from tilegrad.nn.schedulers import ChainedScheduler as ChainedScheduler
    from tilegrad.nn.schedulers import ConstantLR as ConstantLR
    from tilegrad.nn.schedulers import CosineAnnealingLR as CosineAnnealingLR
    from tilegrad.nn.schedulers import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
    from tilegrad.nn.schedulers import CyclicLR as CyclicLR
    from tilegrad.nn.schedulers import ExponentialLR as ExponentialLR
    from tilegrad.nn.schedulers import LambdaLR as LambdaLR
    from tilegrad.nn.schedulers import LinearLR as LinearLR
    from tilegrad.nn.schedulers import MultiplicativeLR as MultiplicativeLR
    from tilegrad.nn.schedulers import MultiStepLR as MultiStepLR
    from tilegrad.nn.schedulers import OneCycleLR as OneCycleLR
    from tilegrad.nn.schedulers import PolynomialLR as PolynomialLR
    from tilegrad.nn.schedulers import ReduceLROnPlateau as ReduceLROnPlateau
    from tilegrad.nn.schedulers import SequentialLR as SequentialLR
    from tilegrad.nn.schedulers import StepLR as StepLR
    from tilegrad.nn.schedulers import WarmupCosineLR as WarmupCosineLR


class _Rates:
    """What schedulers share: the rates of the last step, as numbers."""

    optimizer: Any

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return [as_number(group["lr"]) for group in self.optimizer._param_groups]

    @property
    def _last_lr(self) -> list[float]:
        return self.get_last_lr()


class LRScheduler(_Rates, ours.LRScheduler):
    """A schedule of rates. A program's own gives `get_lr()`, the rate of each group at step
    `self.last_epoch`.
    """

    def __init__(self, optimizer: Any, last_epoch: int = -1, verbose: Any = None):
        self.optimizer = optimizer
        groups = optimizer.param_groups
        for group in groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in groups]
        self.last_epoch = last_epoch
        self.step()

    @property
    def last_epoch(self) -> int:
        """How many steps there were."""
        own = self.__dict__.get("_epoch")
        return super().last_epoch if own is None else own

    @last_epoch.setter
    def last_epoch(self, number: int) -> None:
        self.__dict__["_epoch"] = number

    def get_lr(self) -> list[float]:
        """The rate of each group."""
        return self.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step: write the rate of each group."""
        if "_epoch" not in self.__dict__:
            super().step()
            return
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, rate in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = float(rate)

    def state_dict(self) -> dict[str, Any]:
        """What the schedule needs to go on."""
        if "_epoch" in self.__dict__:
            own = {name: item for name, item in vars(self).items() if name != "optimizer"}
            return {**own, "last_epoch": self.last_epoch}
        found = super().state_dict()
        return {**found, "last_epoch": self.last_epoch, "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if "_epoch" in self.__dict__:
            self.__dict__.update({k: v for k, v in state_dict.items() if k != "last_epoch"})
            self.last_epoch = int(state_dict["last_epoch"])
            return
        given = dict(state_dict)
        given.setdefault("count", [int(given.get("last_epoch", 0))])
        super().load_state_dict(given)


_LRScheduler = LRScheduler


def _made(name: str) -> type:
    kind = getattr(ours, name)
    is_plain = not issubclass(kind, ours.LRScheduler)

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        options.pop("verbose", None)
        last = options.pop("last_epoch", -1)
        kind.__init__(self, *args, **options)
        if last >= 0:
            _resume(self, last)

    space = {"__init__": __init__, "__doc__": kind.__doc__, "__module__": __name__}
    return type(name, (_Rates, kind) if is_plain else (LRScheduler, kind), space)


def _resume(scheduler: Any, last: int) -> None:
    """Let a schedule stand behind step `last`."""
    if not hasattr(scheduler, "count"):
        raise ConfigError(
            f"{type(scheduler).__name__}: last_epoch is not supported",
            fix="load_state_dict(other.state_dict())",
            line=here(),
        )
    if hasattr(scheduler, "_steps"):
        scheduler._steps = last + 1
    scheduler.count.assign(scheduler.count * 0 + (last + 1))
    scheduler._write()


if not TYPE_CHECKING:
    globals().update({name: _made(name) for name in ours.__all__ if name != "LRScheduler"})

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR", "WarmupCosineLR",
]  # fmt: skip


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(absent("torch.optim.lr_scheduler", name, __all__), name=name)
