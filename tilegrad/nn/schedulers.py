"""Learning rates that change from step to step, by PyTorch's names and formulas.

`step()` counts in a tensor and writes the rate of each group from that count, on the device: so it
may stand inside a captured function (`jit`) as well as outside of it. The formulas are closed: they
give the rate of step t from t alone. `LambdaLR` and `MultiplicativeLR` call a Python function of
the step, which cannot be captured: their step() stands outside.

With a scheduler made, the rate is that of step 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CaptureError, ConfigError
from tilegrad.engine.run import current_recording
from tilegrad.nn.optim import Optimizer
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
    "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR", "WarmupCosineLR",
]  # fmt: skip


class LRScheduler:
    """What schedulers share; a subclass gives `_rate`, the rate of step t (a float32 tensor of one
    element) of a group whose first rate is `base`.

    >>> opt = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    >>> schedule = nn.schedulers.StepLR(opt, step_size=2, gamma=0.5)
    >>> [(schedule.step(), opt.lr.item())[1] for _ in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer):
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(
                f"{type(self).__name__}: a {type(optimizer).__name__} is no optimizer", line=here()
            )
        self.optimizer = optimizer
        # As in PyTorch, a second scheduler of the same optimizer has the rates before the first.
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", float(group["lr"].item()))
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        device = optimizer.lr.device
        self.count = Tensor([0], device=device, dtype=dtypes.int32, requires_grad=False).realize()
        self._write()

    @property
    def last_epoch(self) -> int:
        """How many steps there were; to ask waits for the device."""
        return int(self.count.item())

    def get_last_lr(self) -> list[float]:
        """The rate of each group; to ask waits for the device."""
        return [float(group["lr"].item()) for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Go on by one step: write the rate of each group."""
        self.count.assign(self.count + 1)
        self._write()

    def _write(self) -> None:
        written = [self.count]
        t = self.count.cast(dtypes.float32)
        for group, base in zip(self.optimizer.param_groups, self.base_lrs):
            rate: Tensor = group["lr"]
            written.append(rate.assign(self._rate(t, base).cast(rate.dtype)))
        Tensor.realize(*written)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        raise NotImplementedError


class StepLR(LRScheduler):
    """base * gamma^floor(t / step_size).

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        _at_least_one("StepLR", step_size=step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return _power(self.gamma, (t / self.step_size).floor()) * base


class MultiStepLR(LRScheduler):
    """base * gamma^(how many of `milestones` are at most t).

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.MultiStepLR(optimizer, milestones=[1], gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        passed = t * 0
        for milestone in self.milestones:
            passed = passed + (t >= milestone).cast(t.dtype)
        return _power(self.gamma, passed) * base


class ConstantLR(LRScheduler):
    """base * factor up to step total_iters, then base.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return (t < self.total_iters).where(t * 0 + base * self.factor, base)


class LinearLR(LRScheduler):
    """base * (start + (end - start) * min(t, total_iters) / total_iters): a warm-up.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ):
        _at_least_one("LinearLR", total_iters=total_iters)
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        share = t.minimum(self.total_iters) / self.total_iters
        return (share * (self.end_factor - self.start_factor) + self.start_factor) * base


class ExponentialLR(LRScheduler):
    """base * gamma^t.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float):
        self.gamma = gamma
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return _power(self.gamma, t) * base


class PolynomialLR(LRScheduler):
    """base * (1 - min(t, total_iters) / total_iters)^power.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.PolynomialLR(optimizer, total_iters=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0):
        _at_least_one("PolynomialLR", total_iters=total_iters)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        left = 1 - t.minimum(self.total_iters) / self.total_iters
        return left.pow(self.power) * base


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi * t / T_max)) / 2 (Loshchilov and Hutter, 2017).

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CosineAnnealingLR(optimizer, T_max=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        _at_least_one("CosineAnnealingLR", T_max=T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        return _cosine(base, self.eta_min, t / self.T_max)


class WarmupCosineLR(LRScheduler):
    """base * t / warmup_steps up to there, then half a cosine down to base * min_ratio at step
    total_steps, and no further.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.WarmupCosineLR(optimizer, 2, 10)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, total_steps: int, min_ratio: float = 0.0
    ):
        _at_least_one("WarmupCosineLR", warmup_steps=warmup_steps)
        if total_steps <= warmup_steps:
            raise ConfigError(
                f"WarmupCosineLR: total_steps {total_steps} must be above {warmup_steps}, "
                "the warmup_steps",
                line=here(),
            )
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        self.min_ratio = min_ratio
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        share = (t - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        down = _cosine(base, base * self.min_ratio, share.clip(0.0, 1.0))
        return (t < self.warmup_steps).where(t * (base / self.warmup_steps), down)


class CosineAnnealingWarmRestarts(LRScheduler):
    """CosineAnnealingLR that begins anew after T_0 steps, then after T_0 * T_mult, and so on.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0):
        _at_least_one("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)
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
        return _cosine(base, self.eta_min, share)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr in the share pct_start of the steps, then down to
    max_lr / div_factor / final_div_factor (Smith and Topin, 2019). With `three_phase` the way down
    first takes as long as the way up, back to the first rate.

    Momentum stays as it is: PyTorch's `cycle_momentum=False`.

    Raises ConfigError for another anneal_strategy than "cos" and "linear".

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
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ):
        _at_least_one("OneCycleLR", total_steps=total_steps)
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
                    _cosine(start, stop, share)
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
    ):
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ConfigError(
                f"CyclicLR: unknown mode {mode!r}",
                allowed="'triangular', 'triangular2', 'exp_range'",
                line=here(),
            )
        _at_least_one("CyclicLR", step_size_up=step_size_up)
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
            height = height * _power(0.5, cycle)
        elif self.mode == "exp_range":
            height = height * _power(self.gamma, t)
        return height * (self.max_lr - base) + base


class SequentialLR(LRScheduler):
    """One scheduler after another: `schedulers[i]` up to `milestones[i]`, each from its step 0.

    Raises ConfigError unless there is one milestone fewer than schedulers; for a scheduler that
    keeps more than its count.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = nn.schedulers.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rest = nn.schedulers.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = nn.schedulers.SequentialLR(optimizer, [warm, rest], milestones=[2])
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.75]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ):
        if len(schedulers) != len(milestones) + 1:
            raise ConfigError(
                f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} "
                f"milestones, not {len(milestones)}",
                line=here(),
            )
        for each in schedulers:
            if type(each).step is not LRScheduler.step:
                raise ConfigError(
                    f"SequentialLR: {type(each).__name__} keeps state of its own", line=here()
                )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for group, rate in zip(optimizer.param_groups, schedulers[0].base_lrs):
            group["lr"] = rate
        super().__init__(optimizer)

    def _rate(self, t: Tensor, base: float) -> Tensor:
        place = self.base_lrs.index(base)
        starts = [0, *self.milestones]
        rates = [
            each._rate((t - start).maximum(0.0), each.base_lrs[place])
            for each, start in zip(self.schedulers, starts)
        ]
        result = rates[-1]
        for rate, milestone in zip(reversed(rates[:-1]), reversed(self.milestones)):
            result = (t < milestone).where(rate, result)
        return result


class LambdaLR(LRScheduler):
    """base * lr_lambda(t), a Python function, or one for each group.

    Raises CaptureError inside a captured function.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.LambdaLR(optimizer, lr_lambda=lambda step: 1 / (step + 1))
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ConfigError(
                f"{type(self).__name__}: {len(self.lr_lambdas)} functions for {groups} groups",
                line=here(),
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
                fix="call step() outside the captured function: the rate is a tensor it reads",
                line=here(),
            )
        self._steps += 1
        self._write()

    def _factors(self) -> list[float]:
        return [float(function(self._steps)) for function in self.lr_lambdas]

    def _write(self) -> None:
        factors = self._factors()
        for group, base, factor in zip(self.optimizer.param_groups, self.base_lrs, factors):
            group["lr"] = base * factor


class MultiplicativeLR(LambdaLR):
    """base * lr_lambda(1) * ... * lr_lambda(t).

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = nn.schedulers.MultiplicativeLR(optimizer, lr_lambda=lambda step: 0.5)
    >>> scheduler.step()
    >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
    [0.5]
    """

    def _factors(self) -> list[float]:
        if not self._steps:
            self._products = [1.0] * len(self.lr_lambdas)
        else:
            self._products = [
                product * float(function(self._steps))
                for product, function in zip(self._products, self.lr_lambdas)
            ]
        return self._products


class ReduceLROnPlateau:
    """The rate times `factor` after more than `patience` steps whose metric was no better.

    Better is below best * (1 - threshold) ("rel") or best - threshold ("abs") for mode "min", and
    the reverse for "max". After a reduction, `cooldown` steps are not counted. All of it is kept on
    the device: `step` may be given a tensor, and may be captured.

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
                line=here(),
            )
        if not factor < 1:
            raise ConfigError(f"ReduceLROnPlateau: factor {factor} must be below 1", line=here())
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
        return [float(group["lr"].item()) for group in self.optimizer.param_groups]

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
        for group in self.optimizer.param_groups:
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


def _power(base: float, exponent: Tensor) -> Tensor:
    """base^exponent, for a base that is a number at least 0."""
    if base <= 0:
        return exponent.eq(0).where(exponent * 0 + 1.0, 0.0)
    return (exponent * math.log(base)).exp()


def _cosine(first: float, last: float, share: Tensor) -> Tensor:
    """Half a cosine from `first` to `last` as `share` goes from 0 to 1, and on."""
    return ((share * math.pi).cos() + 1) * ((first - last) / 2) + last


def _at_least_one(name: str, **values: int) -> None:
    for key, value in values.items():
        if value < 1:
            raise ConfigError(f"{name}: {key} must be at least 1, not {value}", line=here())
