"""Optimizers with a step size for each element, or each row and column."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Unpack

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim.optimizer import Common, Optimizer, ParamGroup
from tilegrad.tensor.tensor import Tensor

__all__ = ["Adadelta", "Adafactor", "Adagrad", "RMSprop", "Rprop"]


class RMSprop(Optimizer):
    """RMSprop optimizer: steps by the gradient divided by the root of its mean square (Tieleman and
    Hinton, 2012), as PyTorch has it.

    g = gradient + weight_decay * p
    v = alpha * v + (1 - alpha) * g^2
    a = alpha * a + (1 - alpha) * g       (centered: v - a^2 takes the place of v below)
    p = p - lr * b,  b = momentum * b + g / (sqrt(v) + eps)

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        alpha: share of the old mean square that stays in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        momentum: share of the old step that stays.
        centered: take the square of the mean off the mean square.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.RMSprop([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.0, 1.0]
    """

    _slots = (("v", "square_avg"), ("a", "grad_avg"), ("b", "momentum_buffer"))
    v: list[Tensor]
    a: list[Tensor]
    b: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
        )

    def _check(self, group: ParamGroup) -> None:
        self._in_range(alpha=(group["alpha"], 1))
        self._not_negative(group, "eps", "momentum")

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        wanted = {"v": True, "a": group["centered"], "b": group["momentum"]}
        return {name: self._zeros(tensor) for name, is_wanted in wanted.items() if is_wanted}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        alpha, momentum = self._option(index, "alpha"), self._momentum(index, value)
        g = self._decayed(index, value, gradient)
        v = self.v[index].assign(self.v[index] * alpha + g.square() * (1 - alpha))
        state, spread = [v], v
        if self.a[index] is not None:
            mean = self.a[index].assign(self.a[index] * alpha + g * (1 - alpha))
            state, spread = [v, mean], v - mean.square()
        step = g / (spread.sqrt() + self._option(index, "eps"))
        if self.b[index] is not None:
            step = self.b[index].assign(self.b[index] * momentum + step)
            state.append(step)
        return value - self._scaled(index, step), state


class Adagrad(Optimizer):
    """Adagrad optimizer: steps by the gradient divided by the root of the sum of its squares
    (Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011), as PyTorch has it. In step t:

    g = gradient + weight_decay * p;  v = v + g^2
    p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps)

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        lr_decay: how fast the rate falls.
        weight_decay: factor of the parameter that is added to its gradient.
        initial_accumulator_value: first value of v.
        eps: added to the divisor.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Adagrad([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.9, 1.9]
    """

    _slots = (("v", "sum"),)
    v: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )

    def _check(self, group: ParamGroup) -> None:
        self._not_negative(group, "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        zeros = self._zeros(tensor)
        first = group["initial_accumulator_value"]
        return {"v": zeros.full_like(first, requires_grad=False) if first else zeros}

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        return {"step": step} if group["lr_decay"] else {}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        g = self._decayed(index, value, gradient)
        v = self.v[index].assign(self.v[index] + g.square())
        step = g / (v.sqrt() + self._option(index, "eps"))
        if decay := self._option(index, "lr_decay"):
            step = step / ((self._count(index, "step", g) - 1) * decay + 1)
        return value - self._scaled(index, step), [v]


class Adadelta(Optimizer):
    """Adadelta optimizer: steps by the gradient times the ratio of the roots of the mean squares of
    steps and gradients (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012), as PyTorch has
    it.

    g = gradient + weight_decay * p;  v = rho * v + (1 - rho) * g^2
    d = sqrt(a + eps) / sqrt(v + eps) * g;  a = rho * a + (1 - rho) * d^2
    p = p - lr * d

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        rho: share of the old mean squares that stays in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Adadelta([w])
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.997, 1.997]
    """

    _slots = (("v", "square_avg"), ("a", "acc_delta"))
    v: list[Tensor]
    a: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        **common: Unpack[Common],
    ):
        super().__init__(params, lr, common, rho=rho, eps=eps, weight_decay=weight_decay)

    def _check(self, group: ParamGroup) -> None:
        self._in_range(rho=(group["rho"], math.nextafter(1, 2)))
        self._not_negative(group, "eps", "weight_decay")

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        rho, eps = self._option(index, "rho"), self._option(index, "eps")
        g = self._decayed(index, value, gradient)
        v = self.v[index].assign(self.v[index] * rho + g.square() * (1 - rho))
        old = self.a[index].detach()
        d = (old + eps).sqrt() / (v + eps).sqrt() * g
        return value - self._scaled(index, d), [
            v,
            self.a[index].assign(old * rho + d.square() * (1 - rho)),
        ]


class Rprop(Optimizer):
    """Resilient backpropagation: steps by the sign of the gradient (Riedmiller and Braun, "A direct
    adaptive method for faster backpropagation learning", 1993), as PyTorch has it: for gradients of
    the whole data, whose size does not count.

    A step size, first `lr`, is times `etas[1]` where the gradient keeps its sign, times `etas[0]`
    where it turns, within `step_sizes`; where it turns the element stays for this step.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: first step size.
        etas: factors of the step size where the gradient changes its sign, and where it keeps it.
        step_sizes: least and largest step size.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Rprop([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.9, 1.9]
    """

    _slots = (("before", "prev"), ("size", "step_size"))
    before: list[Tensor]
    size: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        **common: Unpack[Common],
    ):
        super().__init__(params, lr, common, etas=etas, step_sizes=step_sizes)

    def _check(self, group: ParamGroup) -> None:
        (less, more), (smallest, largest) = group["etas"], group["step_sizes"]
        if not 0 < less < 1 < more:
            raise ConfigError(
                f"Rprop: etas must be a factor below 1 and one above, not {group['etas']}"
            )
        if not 0 <= smallest <= largest:
            raise ConfigError(
                f"Rprop: step_sizes must be the smallest and the largest, not {group['step_sizes']}"
            )

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        zeros = self._zeros(tensor)
        size = zeros.full_like(float(group["lr"]), requires_grad=False)
        return {"before": zeros, "size": size}

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        return {"step": step}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        (less, more), limits = self._option(index, "etas"), self._option(index, "step_sizes")
        product = gradient * self.before[index].detach()
        # The first step is as large as the learning rate that it finds.
        is_first = self._count(index, "step", value) == 1
        old = is_first.where(self._rate(index, value), self.size[index].detach())
        new = (product > 0).where(old * more, (product < 0).where(old * less, old))
        size = self.size[index].assign(new.clip(*limits))
        g = (product < 0).where(gradient * 0, gradient)
        return value - g.sign() * size, [size, self.before[index].assign(g)]


class Adafactor(Optimizer):
    """Adafactor optimizer: as Adam, but of the squares of gradients only the means of rows and of
    columns are stored (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory
    Cost", 2018), as PyTorch has it. In step t:

        r = r + (mean of g^2 along the last axis - r) * t^beta2_decay;  c as r, along the one before
        v = r * c / max(mean of r, eps1);  u = g / sqrt(max(v, eps1^2))
        p = p - lr * weight_decay * p - a * u / max(1, rms(u) / d)
        a = max(eps2, rms(p)) * min(lr, 1 / sqrt(t))

    Parameters of fewer than two axes have a v of their own size. eps1 is the resolution of the
    dtype unless it is given.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: upper limit of the relative step.
        beta2_decay: exponent of the decay.
        eps: (eps1, eps2).
        d: limit of the root mean square of a step.
        weight_decay: factor of the decay.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Adafactor([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.842, 1.842]
    """

    _slots = (("r", "row_var"), ("c", "col_var"), ("v", "variance"))
    r: list[Tensor]
    c: list[Tensor]
    v: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0,
        **common: Unpack[Common],
    ):
        super().__init__(
            params, lr, common, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay
        )

    def _check(self, group: ParamGroup) -> None:
        self._in_range(
            weight_decay=(group["weight_decay"], math.inf),
            eps1=(group["eps"][0] or 0.0, math.inf),
            eps2=(group["eps"][1], math.inf),
        )
        if not group["d"] > 0 or group["beta2_decay"] > 0:
            raise ConfigError(
                "Adafactor: d must be above 0, and beta2_decay at most 0",
                d=group["d"],
                beta2_decay=group["beta2_decay"],
            )

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        zeros = self._zeros(tensor)
        if tensor.ndim < 2:
            return {"v": zeros}
        factors = {"r": zeros[..., :1], "c": zeros[..., :1, :]}
        return {name: factor.zeros_like(requires_grad=False) for name, factor in factors.items()}

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        return {"step": step}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        least, least_size = self._option(index, "eps")
        least = 2.0 ** -dtypes.finfo(value.dtype)[1] if least is None else least
        t = self._count(index, "step", value)
        share, square = t.pow(self._option(index, "beta2_decay")), gradient.square()
        if self.v[index] is not None:
            v = self.v[index].assign(_toward(self.v[index], square, share))
            state = [v]
        else:
            means = square.mean(-1, keepdim=True), square.mean(-2, keepdim=True)
            r = self.r[index].assign(_toward(self.r[index], means[0], share))
            c = self.c[index].assign(_toward(self.c[index], means[1], share))
            v, state = r * c / r.mean(-2, keepdim=True).maximum(least), [r, c]
        u = gradient * v.maximum(least * least).rsqrt()
        size = value.square().mean().sqrt().maximum(least_size)
        rate = size * self._rate(index, value).minimum(t.rsqrt())
        limited = (u.square().mean().sqrt() / self._option(index, "d")).maximum(1.0)
        return self._shrunk(index, value) - u * (rate / limited), state


def _toward(old: Tensor, new: Tensor, share: Tensor) -> Tensor:
    return old + (new - old) * share
