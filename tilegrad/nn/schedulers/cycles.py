"""Rates that go up and down again: restarts, one cycle, many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, check_choice
from tilegrad.nn.optim import Optimizer
from tilegrad.nn.schedulers.scheduler import (
    LRScheduler,
    at_least_one,
    check_optimizer,
    cosine,
    power,
)
from tilegrad.tensor.tensor import Tensor

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class CosineAnnealingWarmRestarts(LRScheduler):
    """CosineAnnealingLR that begins anew after T_0 steps, then after T_0 * T_mult, and so on
    (Loshchilov and Hutter 2017, arXiv:1608.03983).

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        T_0: steps of the first cycle.
        T_mult: factor of the length of the next cycle.
        eta_min: least rate.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for an option outside its range.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    is_counted = False

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


class _MomentumCycle(LRScheduler):
    """Moves momentum, or the first of the betas, against the rate."""

    # The memory of each group's momentum; none where momentum stays as it is.
    _momenta: list[Tensor]

    def _hold(
        self,
        optimizer: Optimizer,
        cycle_momentum: bool,
        low: float | Sequence[float],
        high: float | Sequence[float],
    ) -> None:
        """Let momentum begin at `high`, of each group or of all, and go down to `low`."""
        self._lowest = per_group(type(self).__name__, "base_momentum", low, optimizer)
        self._highest = per_group(type(self).__name__, "max_momentum", high, optimizer)
        self._momenta = optimizer.hold_momentum(self._highest) if cycle_momentum else []

    def _others(self, t: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [
            (memory, self._momentum(t, low, high))
            for memory, low, high in zip(self._momenta, self._lowest, self._highest)
        ]

    def _momentum(self, t: Tensor, low: float, high: float) -> Tensor:
        raise NotImplementedError


class OneCycleLR(_MomentumCycle):
    """One cycle: up from max_lr / div_factor to max_lr in the share pct_start of the steps, then
    down to max_lr / div_factor / final_div_factor (Smith and Topin, 2019, arXiv:1708.07120). With
    `three_phase` the way down first takes as long as the way up, back to the first rate.

    Momentum, or the first of the betas, goes down from max_momentum to base_momentum as the rate
    goes up, and up again, unless `cycle_momentum` is off. The steps are `total_steps`, or `epochs`
    times `steps_per_epoch`.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        max_lr: largest rate, or one for each group.
        total_steps: number of steps.
        epochs: number of epochs, instead.
        steps_per_epoch: steps of an epoch.
        pct_start: share of the steps upward.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: whether the momentum moves the other way.
        base_momentum: least momentum.
        max_momentum: largest momentum.
        div_factor: max_lr / first rate.
        final_div_factor: first rate / last rate.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for another anneal_strategy than "cos" and "linear", for an optimizer without
    momentum to cycle, and if it is not said how many steps there are.

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
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ConfigError(
                    "OneCycleLR: how many steps there are is not known",
                    remedy="pass total_steps, or epochs and steps_per_epoch",
                )
            total_steps = epochs * steps_per_epoch
        at_least_one("OneCycleLR", total_steps=total_steps)
        check_choice("OneCycleLR", "anneal_strategy", anneal_strategy, ("cos", "linear"))
        peaks = per_group("OneCycleLR", "max_lr", max_lr, optimizer)
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        up = pct_start * total_steps - 1
        # (where a phase ends, the divisor of max_lr at its start and at its end, and how far
        # momentum is below its largest value there: 0 or 1)
        self._div_factor = low = div_factor
        last = div_factor * final_div_factor
        self._stages = (
            [(up, low, 1.0, 0, 1), (2 * up, 1.0, low, 1, 0), (total_steps - 1.0, low, last, 0, 0)]
            if three_phase
            else [(up, low, 1.0, 0, 1), (total_steps - 1.0, 1.0, last, 1, 0)]
        )
        self._hold(optimizer, cycle_momentum, base_momentum, max_momentum)
        for group, peak in zip(optimizer._param_groups, peaks):
            group["lr"] = group["initial_lr"] = peak / div_factor
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        peak = base * self._div_factor
        return self._at(t, [(peak / first, peak / last) for _, first, last, _, _ in self._stages])

    def _momentum(self, t: Tensor, low: float, high: float) -> Tensor:
        ends = ((high, low)[first] for *_, first, _ in self._stages)
        others = ((high, low)[last] for *_, last in self._stages)
        return self._at(t, list(zip(ends, others)))

    def _at(self, t: Tensor, ends: list[tuple[float, float]]) -> Tensor:
        """A value that goes from the first to the second of `ends` in each phase, and behind the
        last on along its curve, as in PyTorch.
        """
        result: Tensor | None = None
        begin = 0.0
        found = []
        for (end, *_), (start, stop) in zip(self._stages, ends):
            share = ((t - begin) / max(end - begin, 1e-9)).clip(0.0)
            if self.anneal_strategy == "cos":
                found.append((end, cosine(start, stop, share)))
            else:
                found.append((end, share * (stop - start) + start))
            begin = end
        for end, value in reversed(found):
            result = value if result is None else (t <= end).where(value, result)
        assert result is not None
        return result


class CyclicLR(_MomentumCycle):
    """Cycles: up from base_lr to max_lr in step_size_up steps, down in step_size_down, again and
    again (Smith, 2017, arXiv:1506.01186).

    Momentum, or the first of the betas, goes the other way, from max_momentum down to
    base_momentum, unless `cycle_momentum` is off.

    Args:
        optimizer: the optimizer whose rates are moved; each group has its own base rate.
        base_lr: least rate, or one for each group.
        max_lr: largest rate, or one for each group.
        step_size_up: steps upward.
        step_size_down: steps downward, by default as many.
        mode: "triangular" (the height stays), "triangular2" (it halves in each cycle) or
            "exp_range" (times gamma^t).
        gamma: base of "exp_range".
        scale_fn: height as a function of a tensor of one element, instead of `mode`.
        scale_mode: that element is the cycle, counted from 1, or the step for "iterations".
        cycle_momentum: whether the momentum moves the other way.
        base_momentum: least momentum.
        max_momentum: largest momentum.

    Shape: rates are tensors of one element, (1,), float32.

    Raises ConfigError for another mode, or an optimizer without momentum to cycle.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> scheduler = nn.schedulers.CyclicLR(optimizer, base_lr=1.0, max_lr=3.0, step_size_up=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [2.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Tensor], Tensor] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
    ):
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ConfigError(
                f"CyclicLR: unknown mode {mode!r}",
                allowed="'triangular', 'triangular2', 'exp_range'",
            )
        at_least_one("CyclicLR", step_size_up=step_size_up)
        bases = per_group("CyclicLR", "base_lr", base_lr, optimizer)
        self._peaks = per_group("CyclicLR", "max_lr", max_lr, optimizer)
        self.max_lr, self.mode, self.gamma = max_lr, mode, gamma
        self._scale_fn, self._is_by_cycle = scale_fn, scale_mode == "cycle"
        self.step_size_up = step_size_up
        self.step_size_down = step_size_up if step_size_down is None else step_size_down
        self._hold(optimizer, cycle_momentum, base_momentum, max_momentum)
        for group, base in zip(optimizer._param_groups, bases):
            group["lr"] = group["initial_lr"] = base
        super().__init__(optimizer)

    def _rates(self, t: Tensor) -> list[Tensor]:
        height = self._height(t)
        return [height * (peak - base) + base for peak, base in zip(self._peaks, self.base_lrs)]

    def _momentum(self, t: Tensor, low: float, high: float) -> Tensor:
        return high - self._height(t) * (high - low)

    def _height(self, t: Tensor) -> Tensor:
        """How far from the base to the peak step t is."""
        whole = self.step_size_up + self.step_size_down
        cycle = (t / whole).floor()
        position = t - cycle * whole
        height = (position <= self.step_size_up).where(
            position / self.step_size_up, (whole - position) / self.step_size_down
        )
        if self._scale_fn is not None:
            return height * self._scale_fn(cycle + 1 if self._is_by_cycle else t)
        if self.mode == "triangular2":
            return height * power(0.5, cycle)
        return height * power(self.gamma, t) if self.mode == "exp_range" else height


def per_group(
    name: str, what: str, value: float | Sequence[float], optimizer: Optimizer
) -> list[float]:
    """One number for each group: `value`, or its elements.

    Raises ConfigError for another number of them, KindError for what is no optimizer.
    """
    check_optimizer(name, optimizer)
    groups = len(optimizer._param_groups)
    found = list(value) if isinstance(value, Sequence) else [value] * groups
    if len(found) != groups:
        raise ConfigError(f"{name}: {len(found)} values of {what} for {groups} groups")
    return found
