"""Rates that go up and down again: restarts, one cycle, many."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.base import LRScheduler, at_least_one, cosine, power
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class CosineAnnealingWarmRestarts(LRScheduler):
    """CosineAnnealingLR that begins anew after T_0 steps, then after T_0 * T_mult, and so on.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0):
        at_least_one("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        device = optimizer.lr.device
        # The length of this round; steps before it.
        self.length = Tensor([T_0], device=device, dtype=dtypes.int32, requires_grad=False)
        self.start = Tensor([0], device=device, dtype=dtypes.int32, requires_grad=False)
        Tensor.realize(self.length, self.start)
        super().__init__(optimizer)

    def step(self) -> None:
        """Go on by one step: write the rate of each group."""
        self.count.assign(self.count + 1)
        is_over = self.count - self.start >= self.length
        start = is_over.where(self.start + self.length, self.start)
        length = is_over.where(self.length * self.T_mult, self.length)
        self.start.assign(start)
        self.length.assign(length)
        self._write()
        Tensor.realize(self.start, self.length)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        share = (t - self.start.cast(t.dtype)) / self.length.cast(t.dtype)
        return cosine(base, self.eta_min, share)


def _refuse_momentum(name: str, cycle_momentum: bool) -> None:
    """Raise ConfigError where momentum shall move, too: it is a number in the kernels."""
    if cycle_momentum:
        raise ConfigError(
            f"{name}: momentum cannot be cycled", fix="cycle_momentum=False", line=here()
        )


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr in the share pct_start of the steps, then down to
    max_lr / div_factor / final_div_factor (Smith and Topin, 2019). With `three_phase` the way down
    first takes as long as the way up, back to the first rate.

    The steps are `total_steps`, or `epochs` times `steps_per_epoch`. Momentum stays as it is:
    PyTorch's `cycle_momentum=False`.

    Raises ConfigError for another anneal_strategy than "cos" and "linear", for `cycle_momentum`,
    and if it is not said how many steps there are.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.8117]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = False,
        *,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ):
        _refuse_momentum("OneCycleLR", cycle_momentum)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ConfigError(
                    "OneCycleLR: how many steps there are is not known",
                    fix="pass total_steps, or epochs and steps_per_epoch",
                    line=here(),
                )
            total_steps = epochs * steps_per_epoch
        at_least_one("OneCycleLR", total_steps=total_steps)
        if anneal_strategy not in ("cos", "linear"):
            raise ConfigError(
                f"OneCycleLR: unknown anneal_strategy {anneal_strategy!r}",
                allowed="'cos', 'linear'",
                line=here(),
            )
        groups = len(optimizer.param_groups)
        peaks = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * groups
        if len(peaks) != groups:
            raise ConfigError(
                f"OneCycleLR: {len(peaks)} values of max_lr for {groups} groups", line=here()
            )
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        up = pct_start * total_steps - 1
        # (where a phase ends, the divisor of max_lr at its start, and at its end)
        low = div_factor
        last = div_factor * final_div_factor
        self._phases = (
            [(up, low, 1.0), (2 * up, 1.0, low), (total_steps - 1.0, low, last)]
            if three_phase
            else [(up, low, 1.0), (total_steps - 1.0, 1.0, last)]
        )
        for group, peak in zip(optimizer.param_groups, peaks):
            group["lr"] = group["initial_lr"] = peak
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        result: Tensor | None = None
        begin = 0.0
        found = []
        for end, first, last in self._phases:
            share = ((t - begin) / max(end - begin, 1e-9)).clip(0.0, 1.0)
            start, stop = base / first, base / last
            found.append(
                (
                    end,
                    cosine(start, stop, share)
                    if self.anneal_strategy == "cos"
                    else share * (stop - start) + start,
                )
            )
            begin = end
        for end, rate in reversed(found):
            result = rate if result is None else (t <= end).where(rate, result)
        assert result is not None
        return result


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr in step_size_up steps, down in step_size_down, again and again
    (Smith, 2017). The height of cycle n is whole ("triangular"), halved each time ("triangular2"),
    or times gamma^t ("exp_range").

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CyclicLR(optimizer, base_lr=1.0, max_lr=3.0, step_size_up=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [2.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        *,
        cycle_momentum: bool = False,
    ):
        _refuse_momentum("CyclicLR", cycle_momentum)
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ConfigError(
                f"CyclicLR: unknown mode {mode!r}",
                allowed="'triangular', 'triangular2', 'exp_range'",
                line=here(),
            )
        at_least_one("CyclicLR", step_size_up=step_size_up)
        self.max_lr, self.mode, self.gamma = max_lr, mode, gamma
        self.step_size_up = step_size_up
        self.step_size_down = step_size_up if step_size_down is None else step_size_down
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = base_lr
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        whole = self.step_size_up + self.step_size_down
        cycle = (t / whole).floor()
        place = t - cycle * whole
        height = (place <= self.step_size_up).where(
            place / self.step_size_up, (whole - place) / self.step_size_down
        )
        if self.mode == "triangular2":
            height = height * power(0.5, cycle)
        elif self.mode == "exp_range":
            height = height * power(self.gamma, t)
        return height * (self.max_lr - base) + base
