"""Adam with other steps: layer-wise rates, Nesterov's momentum, a rectified variance, the largest
gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Unpack

from tilegrad.nn.optim.adam import Adam, Moments
from tilegrad.nn.optim.optimizer import Common, ParamGroup
from tilegrad.tensor.tensor import Tensor

__all__ = ["LAMB", "Adamax", "NAdam", "RAdam"]


class LAMB(Adam):
    """AdamW whose step has the length of the parameter (You et al., "Large Batch Optimization for
    Deep Learning", 2020).

        u = (m / c1) / (sqrt(v / c2) + eps) + weight_decay * p
        p = p - lr * r * u,  r = |p| / |u|, or 1 where either is 0

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter in the step.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.LAMB([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.842, 1.842]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        **common: Unpack[Common],
    ):
        super().__init__(params, lr, betas, eps, weight_decay, **common)

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(index, gradient)
        u = self._decayed(index, value, direction)
        return value - self._scaled(index, u * _trust(value, u)), state


def _trust(value: Tensor, step: Tensor) -> Tensor:
    """|value| / |step|; 1 where either is 0."""
    lengths = value.square().sum().sqrt(), step.square().sum().sqrt()
    is_nonzero = (lengths[0] > 0) & (lengths[1] > 0)
    return is_nonzero.where(lengths[0] / is_nonzero.where(lengths[1], 1.0), 1.0)


class NAdam(Moments):
    """Adam that looks ahead (Dozat, "Incorporating Nesterov Momentum into Adam", 2016), as PyTorch
    has it. In step t:

        u_t = b1 * (1 - 0.96^(t * momentum_decay) / 2);  U_t = u_1 * ... * u_t
        p = p - lr * ((1 - u_t) / (1 - U_t) * g + u_(t+1) / (1 - U_(t+1)) * m)
                   / (sqrt(v / c2) + eps)

    `decoupled_weight_decay` takes the decay out of the gradient, as in AdamW.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        momentum_decay: how fast the momentum grows.
        decoupled_weight_decay: decay as in AdamW.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.NAdam([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.894, 1.894]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
        )

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._not_negative(group, "momentum_decay")

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        decay, product = group["momentum_decay"], 1.0
        for t in range(1, step + 1):
            product *= group["betas"][0] * (1 - 0.5 * 0.96 ** (t * decay))
        counts = super()._counts_at(group, step)
        return {"step": step, "c2": counts["c2"], "product": product}

    def _advance(self, group: ParamGroup, counts: dict[str, Tensor]) -> list[Tensor]:
        written = super()._advance(group, counts)
        u = _lookahead(group["betas"][0], counts["step"], group["momentum_decay"])
        return [*written, counts["product"].assign(counts["product"] * u)]

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        value, g = self._decay(index, value, gradient)
        m, v = self._moved_moments(index, g)
        t, product, c2 = (self._count(index, name, g) for name in ("step", "product", "c2"))
        b1, decay = self._betas(index, g)[0], self._option(index, "momentum_decay")
        now, following = _lookahead(b1, t, decay), _lookahead(b1, t + 1, decay)
        ahead = g * ((1 - now) / (1 - product)) + m * (following / (1 - product * following))
        step = ahead / ((v / c2).sqrt() + self._option(index, "eps"))
        return value - self._scaled(index, step), [m, v]


def _lookahead(b1: Any, t: Tensor, decay: float) -> Tensor:
    """b1 * (1 - 0.96^(t * decay) / 2)."""
    moved: Tensor = (1 - (t * (decay * math.log2(0.96))).exp2() * 0.5) * b1
    return moved


class RAdam(Moments):
    """Adam that trusts v only once it is known well enough (Liu et al., "On the Variance of the
    Adaptive Learning Rate and Beyond", 2020), as PyTorch has it. In step t:

        k = 2 / (1 - b2) - 1;  r = k - 2 * t * b2^t / c2
        p = p - lr * m / c1 * s,  where s is 1 up to r = 5, then
        s = sqrt((r - 4) * (r - 2) * k / ((k - 4) * (k - 2) * r)) * sqrt(c2) / (sqrt(v) + eps)

    r is a difference of nearly equal numbers. With l = -log(b2) and x = t * l it is
    2 / l * (1 - x / expm1(x)) + (k - 2 / l), and for small x the bracket is x / 2 - x^2 / 12 + ...

    `decoupled_weight_decay` takes the decay out of the gradient, as in AdamW.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        decoupled_weight_decay: decay as in AdamW.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.RAdam([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.8, 1.6]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(
            params,
            lr,
            common,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
        )

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        value, g = self._decay(index, value, gradient)
        m, v = self._moved_moments(index, g)
        t, c1, c2 = (self._count(index, name, g) for name in ("step", "c1", "c2"))
        b2 = self._option(index, "betas")[1]
        k = 2 / (1 - b2) - 1
        step = m / c1
        if k > 5:
            r = _terms_known(t, b2)
            is_known = r > 5
            safe = is_known.where(r, 6.0)
            factor = (safe - 4) * (safe - 2) / safe * (k / ((k - 4) * (k - 2)))
            scale = (factor * c2).sqrt() / (v.sqrt() + self._option(index, "eps"))
            step = step * is_known.where(scale, 1.0)
        return value - self._scaled(index, step), [m, v]


def _terms_known(t: Tensor, b2: float) -> Tensor:
    """r of `RAdam` in step `t`: of how many gradients v is the mean."""
    rate = -math.log(b2)
    x = t * rate
    # The first terms of 1 - x / expm1(x), whose coefficients are Bernoulli's.
    series = x * 0.5 - x.square() * (1 / 12 - x.square() * (1 / 720 - x.square() * (1 / 30240)))
    bracket = (x < 0.5).where(series, 1 - x / x.expm1())
    return bracket * (2 / rate) + ((1 + b2) / (1 - b2) - 2 / rate)


class Adamax(Moments):
    """Adam by the largest gradient instead of the mean square (Kingma and Ba, 2015, section 7).

    g = gradient + weight_decay * p
    m = b1 * m + (1 - b1) * g;  u = max(b2 * u, |g| + eps)
    p = p - lr * (m / c1) / u

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.Adamax([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.9, 1.9]
    """

    _slots = (("m", "exp_avg"), ("v", "exp_inf"))

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        **common: Unpack[Common],
    ):
        super().__init__(params, lr, common, betas=betas, eps=eps, weight_decay=weight_decay)

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        g = self._decayed(index, value, gradient)
        b1, b2 = self._betas(index, g)
        m = self.m[index].assign(self.m[index] * b1 + g * (1 - b1))
        u = self.v[index].assign((self.v[index] * b2).maximum(g.abs() + self._option(index, "eps")))
        return value - self._scaled(index, m / self._count(index, "c1", g) / u), [m, u]
