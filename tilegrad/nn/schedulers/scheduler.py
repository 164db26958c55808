"""Base of schedulers: a count on the device, and the rates that are written from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, DataError, KindError, article
from tilegrad.nn.optim import Optimizer
from tilegrad.tensor.storage import writes
from tilegrad.tensor.tensor import Tensor

__all__ = ["LRScheduler", "Moved", "at_least_one", "cosine", "power", "restore", "saved"]

# New rates; and pairs of memory and its new value.
Moved = tuple[list[Tensor], list[tuple[Tensor, Tensor]]]


class LRScheduler:
    """Base of schedulers: a subclass defines `_rate`, the rate of step t (a float32 tensor of one
    element) of a group whose first rate is `base`.

    Schedulers that decay by a formula go on from the rate that a group has, as in PyTorch: several
    of one optimizer, stepped one after another, all have their effect, and so has a rate that the
    program writes in between.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.

    Shape: rates are tensors of one element, (1,), float32.

    Raises KindError for what is no optimizer, NotImplementedError where `_rate` is not defined.

    >>> opt = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    >>> schedule = nn.schedulers.StepLR(opt, step_size=2, gamma=0.5)
    >>> [(schedule.step(), opt.lr.item())[1] for _ in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """

    # Whether the count alone says what the rates are.
    is_counted: ClassVar[bool] = True
    # Whether a step moves the rate that a group has, as PyTorch chains schedulers: several of one
    # optimizer multiply, and a rate that the program wrote is gone on from. Others write the rate
    # of the step, whatever it was.
    is_chained: ClassVar[bool] = False
    # The rate from which a chained scheduler scales.
    _least: float = 0.0

    def __init__(self, optimizer: Optimizer):
        check_optimizer(type(self).__name__, optimizer)
        self._attach(optimizer)
        self._write()

    def _attach(self, optimizer: Optimizer) -> None:
        """Stand at step 0 of an optimizer, and write nothing yet."""
        self.optimizer = optimizer
        # As in PyTorch, a second scheduler of the same optimizer has the rates before the first.
        for group in optimizer._param_groups:
            group.setdefault("initial_lr", float(group["lr"].item()))
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer._param_groups]
        device = optimizer.lr.device
        self.count = Tensor([0], device=device, dtype=dtypes.int32, requires_grad=False)
        # The formula's last rate, for each group.
        self._formula = [
            Tensor([base], device=device, dtype=group["lr"].dtype, requires_grad=False)
            for group, base in zip(optimizer._param_groups, self.base_lrs)
            if self.is_chained
        ]
        Tensor.realize(self.count, *self._formula)

    @property
    def last_epoch(self) -> int:
        """How many steps there were; to ask waits for the device."""
        return int(self.count.item())

    def get_last_lr(self) -> list[float]:
        """The rate of each group; to ask waits for the device."""
        return [float(group["lr"].item()) for group in self.optimizer._param_groups]

    def step(self) -> None:
        """Go on by one step: write the rate of each group."""
        self.count.assign(self.count + 1)
        self._write()

    def state_dict(self) -> dict[str, Any]:
        """The counts and first rates, as numbers and lists; to ask waits for the device.

        >>> schedule = nn.schedulers.StepLR(nn.optim.SGD([Tensor.ones(2)], lr=0.5), step_size=2)
        >>> schedule.step(); schedule.state_dict()
        {'base_lrs': [0.5], 'rates': [0.5], 'count': [1]}
        """
        return {
            "base_lrs": list(self.base_lrs), "rates": self.get_last_lr(), **saved(self),
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave: write the counts, and the rate of each group.

        Raises DataError where something is missing, or is for another number of groups.
        """
        rates = state_dict.get("base_lrs", ())
        if len(rates) != len(self.base_lrs):
            raise DataError(
                f"{type(self).__name__}.load_state_dict: {len(rates)} rates for "
                f"{len(self.base_lrs)} groups"
            )
        restore(self, state_dict)
        self.base_lrs = [float(rate) for rate in rates]
        self._write(anew=True)
        for group, rate in zip(self.optimizer._param_groups, state_dict.get("rates", ())):
            group["lr"] = float(rate)

    def _write(self, *, anew: bool = False) -> None:
        """Write the rates of the step that `count` has reached; those of the formula if `anew`."""
        t = self.count.cast(dtypes.float32)
        rates = [group["lr"] for group in self.optimizer._param_groups]
        moved, formula = self._moved(t, rates)
        pairs = [*zip(rates, self._rates(t) if anew else moved), *formula, *self._others(t)]
        made = [(memory, new.cast(memory.dtype)) for memory, new in pairs]
        writes.realize_written([self.count, *(memory.assign(new) for memory, new in made)])

    def _moved(self, t: Tensor, rates: Sequence[Tensor]) -> Moved:
        """The rates of step t of groups that have `rates`, and the formula's, each with the memory
        that keeps it for the next step.
        """
        found = self._rates(t)
        if not self.is_chained:
            return found, []
        moved = [
            self._scaled(rate, old, new.cast(rate.dtype))
            for rate, old, new in zip(rates, self._formula, found)
        ]
        return moved, list(zip(self._formula, found))

    def _scaled(self, rate: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """The rate after a step in which the formula goes from `old` to `new`. If something else
        has moved the rate, its distance from the least rate keeps its ratio to the formula's.
        """
        least = self._least
        scaled = (rate - least) / (old - least) * (new - least) + least
        # Out of the least rate no ratio leads: there it moves as far as the formula.
        moved = old.eq(least).where(rate + (new - least), scaled)
        return rate.eq(old).where(new, moved)

    def _rates(self, t: Tensor) -> list[Tensor]:
        """The rate of each group at step t."""
        return [self._rate(t, base) for base in self.base_lrs]

    def _others(self, t: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Other memory that is written for step t, and its new value."""
        return []

    def _rate(self, t: Tensor, base: float) -> Tensor:
        raise NotImplementedError


def saved(scheduler: object) -> dict[str, Any]:
    """The tensors that a scheduler keeps, as lists."""
    own = {name: item for name, item in vars(scheduler).items() if isinstance(item, Tensor)}
    return {name: tensor.tolist() for name, tensor in own.items()}


def restore(scheduler: object, state: Mapping[str, Any]) -> None:
    """Write what `saved` gave."""
    own = {name: item for name, item in vars(scheduler).items() if isinstance(item, Tensor)}
    missing = [name for name in own if name not in state]
    if missing:
        raise DataError(
            f"{type(scheduler).__name__}.load_state_dict: missing: {', '.join(missing)}"
        )
    if own:
        Tensor.realize(
            *[
                tensor.assign(Tensor(state[name], dtype=tensor.dtype, device=tensor.device))
                for name, tensor in own.items()
            ]
        )


def power(base: float, exponent: Tensor) -> Tensor:
    """base^exponent, for a base that is a number at least 0."""
    if base <= 0:
        return exponent.eq(0).where(exponent * 0 + 1.0, 0.0)
    return (exponent * math.log(base)).exp()


def cosine(first: float, last: float, share: Tensor) -> Tensor:
    """Half a cosine from `first` to `last` as `share` goes from 0 to 1, and on."""
    return ((share * math.pi).cos() + 1) * ((first - last) / 2) + last


def at_least_one(name: str, **values: int) -> None:
    for key, value in values.items():
        if value < 1:
            raise ConfigError(f"{name}: {key} must be at least 1, not {value}")


def in_range(name: str, least: float, most: float, **values: float) -> None:
    """Raises ConfigError for a value that does not lie between `least` and `most`."""
    for key, value in values.items():
        if not least <= value <= most:
            raise ConfigError(f"{name}: {key} must lie between {least} and {most}, not {value}")


def check_optimizer(name: str, optimizer: object) -> None:
    """Raises KindError for what is no optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise KindError(
            f"{name}: {article(type(optimizer).__name__)} is no optimizer",
            remedy="pass the optimizer first, as nn.optim.SGD(nn.state.get_parameters(model))",
        )
