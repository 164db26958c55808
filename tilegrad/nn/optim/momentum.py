"""Optimizers whose step is a mean of gradients: SGD and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, check_choice
from tilegrad.nn.optim.optimizer import Common, Optimizer, ParamGroup
from tilegrad.tensor.tensor import Tensor

__all__ = ["ASGD", "LARS", "SGD", "Lion", "Muon"]


class SGD(Optimizer):
    """Stochastic gradient descent, as PyTorch defines it.

        g = gradient + weight_decay * p
        m = momentum * m + (1 - dampening) * g       (g alone in the first step)
        p = p - lr * (g + momentum * m if nesterov, m if momentum, else g)

    Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013),
    with the learning rate outside of m.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        momentum: share of the old step that stays.
        weight_decay: factor of the parameter that is added to its gradient.
        nesterov: look ahead.
        dampening: share of the gradient that is left out of the momentum.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> p = Tensor([1.0]); opt = nn.optim.SGD([p], lr=0.5)
    >>> with Tensor.train():
    ...     loss = p.square().sum().backward()
    ...     opt.step()
    >>> p.tolist()
    [0.0]
    """

    _slots = (("b", "momentum_buffer"),)
    b: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        dampening: float = 0.0,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            dampening=dampening,
        )

    def _check(self, group: ParamGroup) -> None:
        self._not_negative(group, "momentum", "weight_decay")
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ConfigError(
                "SGD: nesterov needs a momentum, and no dampening",
                momentum=group["momentum"],
                dampening=group["dampening"],
            )

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"b": self._zeros(tensor)} if group["momentum"] else {}

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        # Only a dampened momentum asks whether this is the first step.
        return {"step": step} if group["dampening"] else {}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        momentum, dampening = self._momentum(index, value), self._option(index, "dampening")
        g = self._decayed(index, value, gradient)
        if self.b[index] is None or (isinstance(momentum, float) and not momentum):
            return value - self._scaled(index, g), []
        added = g
        if dampening:
            is_first = self._count(index, "step", g) <= 1
            added = is_first.where(g, g * (1 - dampening))
        m = self.b[index].assign(self.b[index] * momentum + added)
        moved = g + m * momentum if self._option(index, "nesterov") else m
        return value - self._scaled(index, moved), [m]


class ASGD(Optimizer):
    """SGD that also averages the parameters (Polyak and Juditsky, "Acceleration of stochastic
    approximation by averaging", 1992), as PyTorch has it. In step t:

        g = gradient + weight_decay * p;  eta = lr / (1 + lambd * lr * (t - 1))^alpha
        p = p * (1 - lambd * eta) - eta * g
        ax = ax + (p - ax) / max(1, t - 1 - t0)

    The averages are `ax`, a list beside `params`.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        lambd: decay.
        alpha: exponent of the rate's decay.
        t0: step at which averaging begins.
        weight_decay: factor of the parameter that is added to its gradient.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.ASGD([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.8, 1.6]
    """

    _slots = (("ax", "ax"), ("eta", "eta"))
    ax: list[Tensor]
    eta: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        **common: Unpack[Common],
    ):
        super().__init__(
            params, lr, common, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay
        )

    def _check(self, group: ParamGroup) -> None:
        self._not_negative(group, "weight_decay")

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        return {"step": step}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        lambd, alpha, t0 = (self._option(index, name) for name in ("lambd", "alpha", "t0"))
        g = self._decayed(index, value, gradient)
        before, lr = self._count(index, "step", value) - 1, self._rate(index, value)
        # Each step leaves the next one its rate, by the learning rate that it has itself.
        own = self.eta[index].detach()
        eta = (before > 0).where(own, lr)
        next_eta = lr / (lr * (before + 1) * lambd + 1).pow(alpha)
        moved = value * (1 - eta * lambd) - g * eta
        old = self.ax[index]
        ax = old.assign(old + (moved - old) / (before - t0).maximum(1.0))
        return moved, [ax, self.eta[index].assign(next_eta.reshape(()))]

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        zeros = self._zeros(tensor)
        return {"ax": zeros, "eta": Tensor.zeros(dtype=tensor.dtype, device=tensor.device)}


class LARS(Optimizer):
    """SGD whose step is scaled layer by layer (You, Gitman and Ginsburg, "Large Batch Training of
    Convolutional Networks", 2017).

        g = r * (gradient + weight_decay * p),  r = tcoef * |p| / (|gradient| + weight_decay * |p|)
        m = momentum * m + lr * g;  p = p - m      (nesterov: p - (lr * g + momentum * m))

    r is 1 where |p| or |gradient| is 0.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        momentum: share of the old step that stays.
        weight_decay: factor of the parameter that is added to its gradient.
        nesterov: look ahead.
        tcoef: the trust coefficient.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.LARS([w], lr=10.0)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.99, 1.98]
    """

    _slots = (("b", "momentum_buffer"),)
    b: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        tcoef: float = 1e-3,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            tcoef=tcoef,
        )

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"b": self._zeros(tensor)} if group["momentum"] else {}

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay, momentum = self._option(index, "weight_decay"), self._momentum(index, value)
        own, other = value.square().sum().sqrt(), gradient.square().sum().sqrt()
        is_nonzero = (own > 0) & (other > 0)
        below = is_nonzero.where(other + own * decay, 1.0)
        ratio = is_nonzero.where(own * self._option(index, "tcoef") / below, 1.0)
        g = self._scaled(index, self._decayed(index, value, gradient) * ratio)
        if self.b[index] is None or (isinstance(momentum, float) and not momentum):
            return value - g, []
        m = self.b[index].assign(self.b[index] * momentum + g)
        return value - (g + m * momentum if self._option(index, "nesterov") else m), [m]


class Lion(Optimizer):
    """Lion optimizer: steps by the sign of the momentum (Chen et al., "Symbolic Discovery of
    Optimization Algorithms", 2023, arXiv:2302.06675).

    p = p - lr * (sign(b1 * m + (1 - b1) * gradient) + weight_decay * p)
    m = b2 * m + (1 - b2) * gradient

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the momentum in the step, and of the old one in the new.
        weight_decay: factor of the decay.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Lion([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.9, 1.9]
    """

    _slots = (("m", "exp_avg"),)
    m: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **common: Unpack[Common],
    ):
        super().__init__(params, lr, common, betas=betas, weight_decay=weight_decay)

    def _check(self, group: ParamGroup) -> None:
        self._check_betas(group)
        self._not_negative(group, "weight_decay")

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        b1, b2 = self._betas(index, gradient)
        old = self.m[index].detach()
        step = (old * b1 + gradient * (1 - b1)).sign()
        decay = self._option(index, "weight_decay")
        moved = value - self._scaled(index, step + value * decay if decay else step)
        return moved, [self.m[index].assign(old * b2 + gradient * (1 - b2))]


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal before they move a parameter (Jordan et al.,
    "Muon", 2024), as PyTorch has it; for parameters of two axes, more are flattened to two.

        m = momentum * m + (1 - momentum) * gradient
        u = orthogonal((1 - momentum) * gradient + momentum * m if nesterov, else m)
        p = p - lr * weight_decay * p - lr * s * u

    `orthogonal` is `ns_steps` of X = a X + (b A + c A^2) X, A = X X^T, from X = u / |u|, in
    bfloat16. s is sqrt(max(1, rows / columns)), or by "match_rms_adamw" 0.2 * sqrt(max(rows,
    columns)), with which a step is about as long as one of AdamW (Liu et al., "Muon is Scalable for
    LLM Training", 2025). Other parameters belong to another optimizer.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        weight_decay: factor of the decay.
        momentum: share of the old momentum that stays.
        nesterov: look ahead.
        ns_coefficients: (a, b, c).
        eps: least norm.
        ns_steps: number of iterations.
        adjust_lr_fn: which s; None is "original".
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of two or more axes, more are flattened to two.

    Raises ConfigError for a parameter of fewer than two axes, or another `adjust_lr_fn`.

    >>> w = Tensor([[1.0, 2.0]])
    >>> opt = nn.optim.Muon([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.flatten().tolist()]
    [0.959, 1.919]
    """

    _slots = (("b", "momentum_buffer"),)
    b: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )

    def _check(self, group: ParamGroup) -> None:
        check_choice("Muon", "adjust_lr_fn", group["adjust_lr_fn"], (None, *_ADJUSTMENTS))

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        if tensor.ndim < 2:
            raise ConfigError(
                f"Muon: a parameter of shape {tensor.shape} is no matrix",
                remedy="give biases and norms to AdamW",
            )
        return super()._first_state(tensor, group)

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        momentum = self._momentum(index, gradient)
        m = self.b[index].assign(self.b[index] * momentum + gradient * (1 - momentum))
        u = gradient * (1 - momentum) + m * momentum if self._option(index, "nesterov") else m
        matrix = u.reshape(int(value._sizes[0]), -1)
        rows, columns = matrix._sizes
        straight = self._orthogonal(index, matrix.T if rows > columns else matrix)
        u = (straight.T if rows > columns else straight).reshape(value.shape).cast(u.dtype)
        adjust = _ADJUSTMENTS[self._option(index, "adjust_lr_fn") or "original"]
        return self._shrunk(index, value) - self._scaled(index, u * adjust(rows, columns)), [m]

    def _orthogonal(self, index: int, matrix: Tensor) -> Tensor:
        """A wide matrix with its singular values near 1; sums are those of float32."""
        rounded = self._rounded
        x = rounded(matrix)
        x = rounded(x / rounded(x.square().sum().sqrt()).maximum(self._option(index, "eps")))
        a, b, c = self._option(index, "ns_coefficients")
        for _ in range(self._option(index, "ns_steps")):
            square = rounded(x @ x.T)
            x = rounded(x * a + rounded(square * b + (square @ square) * c) @ x)
        return x

    def _rounded(self, x: Tensor) -> Tensor:
        """The values of bfloat16, in float32, as PyTorch computes the steps."""
        return x.cast(dtypes.bfloat16).cast(dtypes.float32)


_ADJUSTMENTS: dict[str, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
