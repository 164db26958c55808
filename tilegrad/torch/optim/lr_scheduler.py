"""Schedules of learning rates under the names of `torch.optim.lr_scheduler`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn import schedulers as ours
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.optim.parameter_groups import as_number
from tilegrad.torch.optim.reduce_on_plateau import ReduceLROnPlateau
from tilegrad.torch.optim.schedule_states import from_pytorch, shown_in_groups, to_pytorch

if TYPE_CHECKING:
    from tilegrad.nn.schedulers.combined import *
    from tilegrad.nn.schedulers.cycles import *
    from tilegrad.nn.schedulers.formulas import *
    from tilegrad.nn.schedulers.function_rates import *


class _Rates:
    """The rates of the last step, as numbers, of any scheduler."""

    optimizer: Any
    # The rates in a state that was loaded, until the next step: those of the groups are in the
    # optimizer's own state.
    _loaded: list[float] | None = None

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        if self._loaded is not None:
            return list(self._loaded)
        return [as_number(group["lr"]) for group in self.optimizer._param_groups]

    @property
    def _last_lr(self) -> list[float]:
        return self.get_last_lr()


class LRScheduler(_Rates, ours.LRScheduler):
    """A schedule of rates. A program's own gives `get_lr()`, the rate of each group at step
    `self.last_epoch`.
    """

    # For a schedule that tilegrad knows: its options, and the function that begins it anew with
    # others.
    _options: dict[str, Any]
    _begin: Callable[..., None]

    def __init__(self, optimizer: Any, last_epoch: int = -1, verbose: Any = None):
        self.optimizer = optimizer
        groups = optimizer.param_groups
        for group in groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in groups]
        self.last_epoch = last_epoch
        self._go_on()

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

    @property
    def _step_count(self) -> int:
        return self.last_epoch + 1

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step: write the rate of each group."""
        if self.last_epoch == 0 and not self.optimizer.__dict__.get("_has_stepped", True):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate "
                "of the schedule is skipped. Call `optimizer.step()` first.",
                stacklevel=2,
            )
        self._go_on(epoch)

    def _go_on(self, epoch: int | None = None) -> None:
        self.__dict__.pop("_loaded", None)
        if "_epoch" not in self.__dict__:
            if isinstance(self, ours.OneCycleLR) and self.last_epoch >= self.total_steps:
                raise ValueError(
                    f"Tried to step {self.last_epoch + 1} times. The specified number of total "
                    f"steps is {self.total_steps}"
                )
            super().step()
            return
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, rate in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = float(rate)

    def state_dict(self) -> dict[str, Any]:
        """The state that the schedule needs to go on."""
        if "_epoch" in self.__dict__:
            skipped = ("optimizer", "_epoch", "_loaded")
            own = {name: item for name, item in vars(self).items() if name not in skipped}
        else:
            # The options, and for a schedule of schedules the state of each.
            own = {name: _state_of(value) for name, value in self._options.items()}
        state = {
            **own,
            "base_lrs": list(self.base_lrs),
            "last_epoch": self.last_epoch,
            "_step_count": self._step_count,
            "_is_initial": False,
            "_get_lr_called_within_step": False,
            "_last_lr": self.get_last_lr(),
        }
        return to_pytorch(type(self).__name__, state, self.optimizer.param_groups)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if "_epoch" in self.__dict__:
            skipped = ("last_epoch", "_last_lr", "_step_count")
            self.__dict__.update({k: v for k, v in state_dict.items() if k not in skipped})
            self.last_epoch = int(state_dict["last_epoch"])
            return
        groups = self.optimizer.param_groups
        state_dict = from_pytorch(type(self).__name__, state_dict, list(self.base_lrs), groups)
        options = {
            name: state_dict.get(name, old) if _is_plain(old) else old
            for name, old in self._options.items()
        }
        rates = [as_number(group["lr"]) for group in self.optimizer._param_groups]
        self._begin(**{**options, "optimizer": self.optimizer})
        self.base_lrs = [float(rate) for rate in state_dict["base_lrs"]]
        for name, option in options.items():
            if isinstance(option, (list, tuple)) and name == "schedulers":
                for each, state in zip(option, state_dict[name]):
                    each.load_state_dict(state)
        _resume(self, int(state_dict["last_epoch"]))
        for group, rate in zip(self.optimizer._param_groups, rates):
            group["lr"] = rate
        self._loaded = state_dict.get("_last_lr")


_LRScheduler = LRScheduler


def _is_plain(value: Any) -> bool:
    """Whether a state dict holds an option: functions and schedules are the program's own."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _state_of(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_state_of(each) for each in value]
    if isinstance(value, ours.LRScheduler):
        return value.state_dict()
    return value if _is_plain(value) else None


def _made(name: str) -> type:
    kind = getattr(ours, name)
    signature = inspect.signature(kind)

    def begin(self: Any, *args: Any, **options: Any) -> None:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        self._options = {k: v for k, v in bound.arguments.items() if k != "optimizer"}
        for group in getattr(bound.arguments.get("optimizer"), "_param_groups", ()):
            group.setdefault("initial_lr", as_number(group["lr"]))
        kind.__init__(self, *args, **options)
        for key, value in self._options.items():
            self.__dict__.setdefault(key, value)
        for view, shown in zip(*shown_in_groups(name, self._options, self.optimizer.param_groups)):
            view.update(shown)

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        options.pop("verbose", None)
        last = options.pop("last_epoch", -1)
        if last >= 0 and any("initial_lr" not in each for each in args[0].param_groups):
            raise KeyError(f"{name}: last_epoch is {last}, and a group has no 'initial_lr'")
        begin(self, *args, **options)
        self.optimizer.__dict__.setdefault("_has_stepped", False)
        if last >= 0:
            _resume(self, last + 1)

    space: dict[str, Any] = {"__init__": __init__, "_begin": begin, "__doc__": kind.__doc__}
    if name == "CyclicLR":
        space |= {
            "max_lrs": property(lambda self: list(self._peaks)),
            "total_size": property(lambda self: float(self.step_size_up + self.step_size_down)),
            "step_ratio": property(lambda self: self.step_size_up / self.total_size),
        }
    return type(name, (LRScheduler, kind), {**space, "__module__": __name__})


def _resume(scheduler: Any, count: int) -> None:
    """Let a schedule stand behind `count` steps."""
    if not hasattr(scheduler, "count"):
        raise ConfigError(
            f"{type(scheduler).__name__}: last_epoch is not supported",
            remedy="load_state_dict(other.state_dict())",
        )
    if hasattr(scheduler, "_steps"):
        scheduler._steps = count
    scheduler.count.assign(scheduler.count * 0 + count)
    scheduler._write(anew=True)


if not TYPE_CHECKING:
    _others = ("LRScheduler", "ReduceLROnPlateau")
    globals().update({name: _made(name) for name in ours.__all__ if name not in _others})

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR", "WarmupCosineLR",
]  # fmt: skip

refuse_others(__name__)
