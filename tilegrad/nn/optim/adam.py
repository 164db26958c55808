"""Adam and its relatives: a mean of gradients over a measure of how large they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Unpack

from tilegrad.nn.optim.optimizer import Common, Optimizer, ParamGroup
from tilegrad.tensor.tensor import Tensor

__all__ = ["Adam", "AdamW", "Moments", "SparseAdam"]


class Moments(Optimizer):
    """Base of optimizers with moments m and v, which begin at 0, and the divisors that make up for
    that:

        m = b1 * m + (1 - b1) * g;    c1 = 1 - b1^t
        v = b2 * v + (1 - b2) * g^2;  c2 = 1 - b2^t

    As in PyTorch the divisors are those of this step's betas, whatever they were before. To take
    b^t from 1, in float32, would lose four digits of c2 in the first steps: it is
    -expm1(t * log(b)).
    """

    _slots: ClassVar[tuple[tuple[str, str], ...]] = (("m", "exp_avg"), ("v", "exp_avg_sq"))
    m: list[Tensor]
    v: list[Tensor]

    def _check(self, group: ParamGroup) -> None:
        self._check_betas(group)
        self._not_negative(group, "eps", "weight_decay")

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        b1, b2 = group["betas"]
        return {"step": step, "c1": 1 - b1**step, "c2": 1 - b2**step}

    def _advance(self, group: ParamGroup, counts: dict[str, Tensor]) -> list[Tensor]:
        written = super()._advance(group, counts)
        step = counts["step"].detach()
        for name, b in zip(("c1", "c2"), group["betas"]):
            if name in counts:
                written.append(counts[name].assign(-(step * _logarithm(b)).expm1()))
        return written

    @property
    def c1(self) -> Tensor:
        """1 - b1^t of the first group."""
        return self._counts[0]["c1"]

    @property
    def c2(self) -> Tensor:
        """1 - b2^t of the first group."""
        return self._counts[0]["c2"]

    def _decay(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the gradient, with weight decay in one of them."""
        if self._option(index, "decoupled_weight_decay"):
            return self._shrunk(index, value), gradient
        return value, self._decayed(index, value, gradient)

    def _moved_moments(self, index: int, g: Tensor) -> tuple[Tensor, Tensor]:
        """m and v, written."""
        b1, b2 = self._betas(index, g)
        m = self.m[index].assign(self.m[index] * b1 + g * (1 - b1))
        v = self.v[index].assign(self.v[index] * b2 + g.square() * (1 - b2))
        return m, v


def _logarithm(b: Any) -> Any:
    """The logarithm of a share: a number, or a tensor where a scheduler moves it."""
    if isinstance(b, Tensor):
        return b.log()
    return math.log(b) if b else -math.inf


class Adam(Moments):
    """Adam optimizer: steps by the ratio of the first moment of the gradient to the root of the
    second (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015).

        g = gradient + weight_decay * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g^2
        p = p - lr * (m / c1) / (sqrt(v / c2) + eps),  c1 = 1 - b1^t,  c2 = 1 - b2^t

    With `amsgrad` the largest v so far takes the place of v in the last line (Reddi, Kale and
    Kumar, "On the Convergence of Adam and Beyond", 2018).

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the parameter that is added to its gradient.
        amsgrad: whether the largest second moment so far counts.
        decoupled_weight_decay: decay as in AdamW.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> p = Tensor([1.0]); opt = nn.optim.Adam([p], lr=0.5)
    >>> with Tensor.train():
    ...     loss = p.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in p.tolist()]
    [0.5]
    """

    _slots = (*Moments._slots, ("highest", "max_exp_avg_sq"))
    highest: list[Tensor]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
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
            amsgrad=amsgrad,
            decoupled_weight_decay=decoupled_weight_decay,
        )

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        state = super()._first_state(tensor, group)
        if not group["amsgrad"]:
            del state["highest"]
        return state

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self._moved(index, *self._decay(index, value, gradient))

    def _direction(self, index: int, g: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(m / c1) / (sqrt(v / c2) + eps), and the state written for it."""
        m, v = self._moved_moments(index, g)
        c1, c2 = self._count(index, "c1", g), self._count(index, "c2", g)
        state = [m, v]
        if self._option(index, "amsgrad") and self.highest[index] is not None:
            v = self.highest[index].assign(self.highest[index].maximum(v))
            state.append(v)
        return (m / c1) / ((v / c2).sqrt() + self._option(index, "eps")), state

    def _moved(self, index: int, value: Tensor, g: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(index, g)
        return value - self._scaled(index, direction), state


class AdamW(Adam):
    """Adam with decoupled weight decay: g is the gradient, p first p - lr * weight_decay * p.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), as PyTorch has it.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        weight_decay: factor of the decay.
        amsgrad: as of `Adam`.
        common: `maximize` moves along the gradients; `foreach`, `fused`, `capturable` and
            `differentiable` are accepted and ignored.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([1.0, 2.0])
    >>> opt = nn.optim.AdamW([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     opt.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.899, 1.898]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True, **common
        )


class SparseAdam(Moments):
    """Adam for tables of embeddings, where a step reads few rows: rows without a gradient stay as
    they are, and so do their moments. A row is the elements at one index of the first axis; it has
    no gradient if that is zero everywhere.

        p = p - lr * sqrt(c2) / c1 * m / (sqrt(v) + eps)

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        betas: (b1, b2), shares of the old first and second moment that stay in a step.
        eps: added to the divisor.
        maximize: move along the gradients.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for an option outside its
    range.

    >>> w = Tensor([[1.0], [2.0]])
    >>> opt = nn.optim.SparseAdam([w], lr=0.5)
    >>> with Tensor.train():
    ...     loss = w[0].square().sum().backward()
    ...     opt.step()
    >>> w.numpy().round(3).tolist()
    [[0.5], [2.0]]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ):
        super().__init__(params, lr, {"maximize": maximize}, betas=betas, eps=eps)

    def _check(self, group: ParamGroup) -> None:
        self._check_betas(group)
        self._not_negative(group, "eps")

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        b1, b2 = self._betas(index, gradient)
        axes = tuple(range(1, gradient.ndim))
        moves = gradient.ne(0).any(axes, keepdim=True) if axes else gradient.ne(0)
        m, v = self.m[index], self.v[index]
        m = m.assign(moves.where(m * b1 + gradient * (1 - b1), m))
        v = v.assign(moves.where(v * b2 + gradient.square() * (1 - b2), v))
        c1, c2 = self._count(index, "c1", m), self._count(index, "c2", m)
        step = m / (v.sqrt() + self._option(index, "eps")) * (c2.sqrt() / c1)
        return value - self._scaled(index, moves.where(step, 0.0)), [m, v]
