"""Optimizers: rules that move parameters against their gradients.

A step writes the parameters and all state in place, in one schedule, so that they keep their
memory. What changes from step to step, the learning rate included, is a tensor and not a number in
a kernel: nothing is compiled again, and a captured step (`jit`) sees the change. State and update
are computed in at least float32, for half parameters too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tilegrad.base.dtype import dtypes, promote, sum_dtype
from tilegrad.base.errors import ConfigError, DTypeError
from tilegrad.nn.module import has_modes
from tilegrad.tensor.assignment import all_or_nothing
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "LAMB", "LARS", "SGD", "Adagrad", "Adam", "AdamW", "Lion", "Muon", "Optimizer", "ParamGroup",
    "RMSprop",
]  # fmt: skip


class ParamGroup(dict[str, Any]):
    """Parameters with options of their own: `params`, `lr`, and what the optimizer takes.

    `lr` is a tensor of one element; to assign a number is to write it there.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        held = self.get(key)
        if isinstance(held, Tensor) and value is not held:
            new = value if isinstance(value, Tensor) else Tensor([value], dtype=held.dtype)
            held.assign(new.detach().reshape(1).cast(held.dtype).to(held.device)).realize()
        else:
            super().__setitem__(key, value)


class Optimizer:
    """What all optimizers share; a subclass gives `_update`.

    `params` are tensors, or dicts {"params": tensors, "lr": ..., ...}, whose options stand in for
    those of the optimizer.

    Attributes:
        params: the parameters, each once; they keep gradients from here on.
        param_groups: the same in groups with their options; `group["lr"] = 0.1` writes the tensor.
        buffers: what was passed but is not trained: integers, and what was made with
            `requires_grad=False`, such as the running statistics of a BatchNorm. They are computed
            with each step, so that no graph piles up on them.
    """

    def __init__(self, params: Iterable[Any], lr: float, **options: Any):
        self._in_range(lr=(lr, math.inf))
        given = self._listed(params)
        if given and all(isinstance(each, Mapping) for each in given):
            groups: list[dict[str, Any]] = [dict(each) for each in given]
        else:
            groups = [{"params": given}]
        self.param_groups: list[ParamGroup] = []
        self.params: list[Tensor] = []
        self.buffers: list[Tensor] = []
        self._group_of: list[int] = []
        found: set[int] = set()
        for group in groups:
            unknown = sorted(set(group) - {"params", "lr", *options})
            if unknown:
                raise ConfigError(
                    f"{self._name}: a group has unknown options: {', '.join(unknown)}",
                    known=", ".join(["params", "lr", *options]),
                    line=here(),
                )
            own = []
            for tensor in self._tensors(group["params"]):
                if id(tensor) in found:
                    continue
                found.add(id(tensor))
                if _is_trainable(tensor):
                    own.append(tensor)
                    self._group_of.append(len(self.param_groups))
                else:
                    self.buffers.append(tensor)
            self.params += own
            self.param_groups.append(ParamGroup({"lr": lr, **options, **group, "params": own}))
        if not self.params:
            raise ConfigError(
                f"{self._name}: there is nothing to train",
                params=f"{len(found)} tensors; none is a float that may require a gradient",
                fix="pass nn.state.get_parameters(model)",
                line=here(),
            )
        dtype = dtypes.float32
        for tensor in self.params:
            tensor.requires_grad = True
            dtype = promote(dtype, tensor.dtype)
        for group in self.param_groups:
            self._in_range(lr=(float(group["lr"]), math.inf))
            device = self.params[0].device
            rate = Tensor([float(group["lr"])], device=device, dtype=dtype, requires_grad=False)
            dict.__setitem__(group, "lr", rate)

    def _option(self, place: int, name: str) -> Any:
        """An option of the group that holds parameter number `place`."""
        return self.param_groups[self._group_of[place]][name]

    def _has(self, name: str) -> bool:
        """Whether an option is on in some group."""
        return any(
            isinstance(group[name], Tensor) or bool(group[name]) for group in self.param_groups
        )

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _listed(self, params: Any) -> list[Any]:
        if isinstance(params, Tensor):
            return [params]
        if isinstance(params, Iterable) and not isinstance(params, Mapping):
            return list(params)
        raise DTypeError(
            f"{self._name}: a {type(params).__name__} is no list of parameters",
            fix="pass tensors: nn.state.get_parameters(model)",
            line=here(),
        )

    def _tensors(self, params: Iterable[Tensor]) -> list[Tensor]:
        found = self._listed(params)
        for tensor in found:
            if not isinstance(tensor, Tensor):
                raise DTypeError(
                    f"{self._name}: a {type(tensor).__name__} is no parameter",
                    fix="pass tensors: nn.state.get_parameters(model)",
                    line=here(),
                )
        return found

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group, a tensor of one element; to assign a number writes
        that of all groups.
        """
        rate: Tensor = self.param_groups[0]["lr"]
        return rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def zero_grad(self) -> None:
        """Forget all gradients. Otherwise the next ones are added to them."""
        for tensor in self.params:
            tensor.grad = None

    def step(self) -> None:
        """Move each parameter that has a gradient.

        Raises ConfigError unless `Tensor.training` is on, or if no parameter has a gradient;
        OutOfMemoryError where there is no room, and then no parameter has moved.
        """
        if not (Tensor.training or has_modes()):
            raise ConfigError(
                f"{self._name}.step: Tensor.training is off",
                fix="put the training step under `with Tensor.train():`, or decorate it with that",
                line=here(),
            )
        moving = [place for place, tensor in enumerate(self.params) if tensor.grad is not None]
        if not moving:
            raise ConfigError(
                f"{self._name}.step: none of the {len(self.params)} parameters has a gradient",
                fix="call backward() on a loss that depends on them, after zero_grad()",
                line=here(),
            )
        with all_or_nothing():
            written = self._advance()
            for place in moving:
                written += self._written(place)
            Tensor.realize(*written, *self.buffers)

    def _written(self, place: int) -> list[Tensor]:
        """Assign to parameter number `place` and its state. The new value itself stays in here: a
        tensor that holds it while the step runs would be given memory of its own.
        """
        tensor = self.params[place]
        wide = sum_dtype(tensor.dtype)
        assert tensor.grad is not None
        new, state = self._update(
            place, tensor.detach().cast(wide), tensor.grad.detach().cast(wide)
        )
        return [tensor.assign(new.cast(tensor.dtype)), *state]

    def _advance(self) -> list[Tensor]:
        """Move the state that all parameters share to this step; gives what it has written."""
        return []

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The new value of parameter number `place`, and the state written for it."""
        raise NotImplementedError

    def _scaled(self, place: int, tensor: Tensor) -> Tensor:
        """`tensor` times the learning rate of parameter number `place`."""
        rate: Tensor = self._option(place, "lr")
        return tensor * rate.cast(tensor.dtype).to(tensor.device)

    def _zeros(self) -> list[Tensor]:
        """State for each parameter, in the dtype of its update."""
        return [
            tensor.zeros_like(dtype=sum_dtype(tensor.dtype), requires_grad=False)
            for tensor in self.params
        ]

    def _in_range(self, **values: tuple[float, float]) -> None:
        """Raise ConfigError unless each value is at least 0 and below its limit."""
        for name, (value, limit) in values.items():
            if not hasattr(value, "__float__"):
                raise DTypeError(
                    f"{self._name}: {name} must be a number, not {value!r}", line=here()
                )
            if not 0 <= value < limit:
                raise ConfigError(
                    f"{self._name}: {name} must be at least 0 and below {limit}, not {value}",
                    line=here(),
                )


def _is_trainable(tensor: Tensor) -> bool:
    return tensor.requires_grad is not False and tensor.dtype.is_float


class SGD(Optimizer):
    """Stochastic gradient descent, as PyTorch defines it.

        g = gradient + weight_decay * p
        m = momentum * m + g
        p = p - lr * (g + momentum * m if nesterov, m if momentum, else g)

    Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013),
    with the learning rate outside of m.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(
            params, lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov
        )
        for group in self.param_groups:
            self._in_range(
                momentum=(group["momentum"], math.inf),
                weight_decay=(group["weight_decay"], math.inf),
            )
            if group["nesterov"] and not group["momentum"]:
                raise ConfigError("SGD: nesterov needs a momentum", line=here())
        self.b = self._zeros() if self._has("momentum") else []

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay, momentum = self._option(place, "weight_decay"), self._option(place, "momentum")
        g = gradient + value * decay if decay else gradient
        if not self.b:
            return value - self._scaled(place, g), []
        m = self.b[place].assign(self.b[place] * momentum + g)
        moved = g + m * momentum if self._option(place, "nesterov") else m
        return value - self._scaled(place, moved), [m]


class Adam(Optimizer):
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015).

        g = gradient + weight_decay * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g^2
        p = p - lr * (m / c1) / (sqrt(v / c2) + eps),  c1 = 1 - b1^t,  c2 = 1 - b2^t

    The divisors move by c = b * c + (1 - b), from 0. To keep b^t and take it from 1, in float32,
    would lose four digits of c2 in the first steps.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)
        for group in self.param_groups:
            b1, b2 = group["betas"]
            self._in_range(b1=(b1, 1), b2=(b2, 1), eps=(group["eps"], math.inf))
            self._in_range(weight_decay=(group["weight_decay"], math.inf))
        self.m, self.v = self._zeros(), self._zeros()
        # For each group, c1 and c2.
        self._corrections = [
            [Tensor.zeros_like(self.lr, requires_grad=False) for _ in betas]
            for _ in self.param_groups
        ]

    @property
    def c1(self) -> Tensor:
        """1 - b1^t of the first group."""
        return self._corrections[0][0]

    @property
    def c2(self) -> Tensor:
        """1 - b2^t of the first group."""
        return self._corrections[0][1]

    def _advance(self) -> list[Tensor]:
        return [
            c.assign(c * b + (1 - b))
            for group, pair in zip(self.param_groups, self._corrections)
            for c, b in zip(pair, group["betas"])
        ]

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay = self._option(place, "weight_decay")
        return self._moved(place, value, gradient + value * decay if decay else gradient)

    def _direction(self, place: int, g: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(m / c1) / (sqrt(v / c2) + eps), and the state written for it."""
        b1, b2 = self._option(place, "betas")
        m = self.m[place].assign(self.m[place] * b1 + g * (1 - b1))
        v = self.v[place].assign(self.v[place] * b2 + g.square() * (1 - b2))
        c1, c2 = (c.cast(g.dtype).to(g.device) for c in self._corrections[self._group_of[place]])
        return (m / c1) / ((v / c2).sqrt() + self._option(place, "eps")), [m, v]

    def _moved(self, place: int, value: Tensor, g: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(place, g)
        return value - self._scaled(place, direction), state


class AdamW(Adam):
    """Adam with decoupled weight decay: g is the gradient, p first p - lr * weight_decay * p.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), as PyTorch has it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay = self._option(place, "weight_decay")
        decayed = value - self._scaled(place, value * decay) if decay else value
        return self._moved(place, decayed, gradient)


class LAMB(Adam):
    """AdamW whose step has the length of the parameter (You et al., "Large Batch Optimization for
    Deep Learning", 2020).

        u = (m / c1) / (sqrt(v / c2) + eps) + weight_decay * p
        p = p - lr * r * u,  r = |p| / |u|, or 1 where either is 0
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        direction, state = self._direction(place, gradient)
        decay = self._option(place, "weight_decay")
        u = direction + value * decay if decay else direction
        return value - self._scaled(place, u * _trust(value, u, 1.0)), state


def _trust(value: Tensor, step: Tensor, scale: float) -> Tensor:
    """scale * |value| / |step|; 1 where either is 0."""
    lengths = value.square().sum().sqrt(), step.square().sum().sqrt()
    is_moving = (lengths[0] > 0) & (lengths[1] > 0)
    return is_moving.where(lengths[0] * scale / is_moving.where(lengths[1], 1.0), 1.0)


class LARS(Optimizer):
    """SGD whose step is scaled layer by layer (You, Gitman and Ginsburg, "Large Batch Training of
    Convolutional Networks", 2017).

        g = r * (gradient + weight_decay * p),  r = tcoef * |p| / (|gradient| + weight_decay * |p|)
        m = momentum * m + lr * g;  p = p - m      (nesterov: p - (lr * g + momentum * m))

    r is 1 where |p| or |gradient| is 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        tcoef: float = 1e-3,
    ):
        super().__init__(
            params,
            lr,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            tcoef=tcoef,
        )
        self.b = self._zeros() if self._has("momentum") else []

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay, momentum = self._option(place, "weight_decay"), self._option(place, "momentum")
        own, other = value.square().sum().sqrt(), gradient.square().sum().sqrt()
        is_moving = (own > 0) & (other > 0)
        below = is_moving.where(other + own * decay, 1.0)
        ratio = is_moving.where(own * self._option(place, "tcoef") / below, 1.0)
        g = self._scaled(place, (gradient + value * decay if decay else gradient) * ratio)
        if not self.b:
            return value - g, []
        m = self.b[place].assign(self.b[place] * momentum + g)
        return value - (g + m * momentum if self._option(place, "nesterov") else m), [m]


class RMSprop(Optimizer):
    """Tieleman and Hinton (2012), as PyTorch has it.

    g = gradient + weight_decay * p
    v = alpha * v + (1 - alpha) * g^2
    a = alpha * a + (1 - alpha) * g       (centered: v - a^2 takes the place of v below)
    p = p - lr * b,  b = momentum * b + g / (sqrt(v) + eps)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ):
        super().__init__(
            params,
            lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
        )
        self._in_range(alpha=(alpha, 1), eps=(eps, math.inf), momentum=(momentum, math.inf))
        self.v = self._zeros()
        self.a = self._zeros() if self._has("centered") else []
        self.b = self._zeros() if self._has("momentum") else []

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay, alpha = self._option(place, "weight_decay"), self._option(place, "alpha")
        g = gradient + value * decay if decay else gradient
        v = self.v[place].assign(self.v[place] * alpha + g.square() * (1 - alpha))
        state, spread = [v], v
        if self._option(place, "centered"):
            mean = self.a[place].assign(self.a[place] * alpha + g * (1 - alpha))
            state, spread = [v, mean], v - mean.square()
        step = g / (spread.sqrt() + self._option(place, "eps"))
        if self.b:
            step = self.b[place].assign(self.b[place] * self._option(place, "momentum") + step)
            state.append(step)
        return value - self._scaled(place, step), state


class Adagrad(Optimizer):
    """Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011), as PyTorch has it.

    g = gradient + weight_decay * p;  v = v + g^2;  p = p - lr * g / (sqrt(v) + eps)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ):
        super().__init__(params, lr, weight_decay=weight_decay, eps=eps)
        self._in_range(initial_accumulator_value=(initial_accumulator_value, math.inf))
        self.v = [zeros + initial_accumulator_value for zeros in self._zeros()]
        for tensor in self.v:
            tensor.requires_grad = False

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decay = self._option(place, "weight_decay")
        g = gradient + value * decay if decay else gradient
        v = self.v[place].assign(self.v[place] + g.square())
        return value - self._scaled(place, g / (v.sqrt() + self._option(place, "eps"))), [v]


class Lion(Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).

    p = p - lr * (sign(b1 * m + (1 - b1) * gradient) + weight_decay * p)
    m = b2 * m + (1 - b2) * gradient
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)
        self._in_range(b1=(betas[0], 1), b2=(betas[1], 1), weight_decay=(weight_decay, math.inf))
        self.m = self._zeros()

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        b1, b2 = self._option(place, "betas")
        old = self.m[place].detach()
        step = (old * b1 + gradient * (1 - b1)).sign()
        decay = self._option(place, "weight_decay")
        moved = value - self._scaled(place, step + value * decay if decay else step)
        return moved, [self.m[place].assign(old * b2 + gradient * (1 - b2))]


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal before they move a parameter (Jordan et al.,
    "Muon", 2024), as PyTorch has it; for parameters of two axes, more are flattened to two.

        m = momentum * m + (1 - momentum) * gradient
        u = orthogonal((1 - momentum) * gradient + momentum * m if nesterov, else m)
        p = p - lr * weight_decay * p - lr * sqrt(max(1, rows / columns)) * u

    `orthogonal` is `ns_steps` of X = a X + (b A + c A^2) X, A = X X^T, from X = u / |u|. Other
    parameters belong to another optimizer.

    Raises ConfigError for a parameter of fewer than two axes.
    """

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
    ):
        super().__init__(
            params,
            lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
        )
        for tensor in self.params:
            if tensor.ndim < 2:
                raise ConfigError(
                    f"Muon: a parameter of shape {tensor.shape} is no matrix",
                    fix="give biases and norms to AdamW",
                    line=here(),
                )
        self.b = self._zeros()

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        momentum = self._option(place, "momentum")
        m = self.b[place].assign(self.b[place] * momentum + gradient * (1 - momentum))
        u = gradient * (1 - momentum) + m * momentum if self._option(place, "nesterov") else m
        rows = int(value._sizes[0])
        matrix = u.reshape(rows, -1)
        columns = matrix._sizes[1]
        x = matrix.T if rows > columns else matrix
        x = x / x.square().sum().sqrt().maximum(self._option(place, "eps"))
        a, b, c = self._option(place, "ns_coefficients")
        for _ in range(self._option(place, "ns_steps")):
            square = x @ x.T
            x = x * a + (square * b + (square @ square) * c) @ x
        u = (x.T if rows > columns else x).reshape(value.shape)
        decay = self._option(place, "weight_decay")
        decayed = value - self._scaled(place, value * decay) if decay else value
        return decayed - self._scaled(place, u * math.sqrt(max(1, rows / columns))), [m]
