"""Optimizers: rules that move parameters against their gradients.

A step writes the parameters and all state in place, in one schedule, so that they keep their
memory. What changes from step to step, the learning rate included, is a tensor and not a number in
a kernel: nothing is compiled again, and a captured step (`jit`) sees the change. State and update
are computed in at least float32, for half parameters too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilegrad.base.dtype import dtypes, promote, sum_dtype
from tilegrad.base.errors import ConfigError, DTypeError
from tilegrad.nn.module import has_modes
from tilegrad.tensor.assignment import all_or_nothing
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]


class Optimizer:
    """What all optimizers share; a subclass gives `_update`.

    Attributes:
        params: the parameters, each once; they keep gradients from here on.
        buffers: what was passed but is not trained: integers, and what was made with
            `requires_grad=False`, such as the running statistics of a BatchNorm. They are computed
            with each step, so that no graph piles up on them.
    """

    def __init__(self, params: Iterable[Tensor], lr: float):
        self._in_range(lr=(lr, math.inf))
        found = list({id(tensor): tensor for tensor in self._tensors(params)}.values())
        self.params = [tensor for tensor in found if _is_trainable(tensor)]
        self.buffers = [tensor for tensor in found if not _is_trainable(tensor)]
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
        self._lr = Tensor([lr], device=self.params[0].device, dtype=dtype, requires_grad=False)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _tensors(self, params: Iterable[Tensor]) -> list[Tensor]:
        found = [params] if isinstance(params, Tensor) else list(params)
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
        """The learning rate, a tensor of one element; to assign a number is to write it there."""
        return self._lr

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        new = value if isinstance(value, Tensor) else Tensor([value], dtype=self._lr.dtype)
        self._lr.assign(new.detach().reshape(1).cast(self._lr.dtype).to(self._lr.device)).realize()

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

    def _scaled(self, tensor: Tensor) -> Tensor:
        """`tensor` times the learning rate."""
        return tensor * self._lr.cast(tensor.dtype).to(tensor.device)

    def _zeros(self) -> list[Tensor]:
        """State for each parameter, in the dtype of its update."""
        return [
            tensor.zeros_like(dtype=sum_dtype(tensor.dtype), requires_grad=False)
            for tensor in self.params
        ]

    def _in_range(self, **values: tuple[float, float]) -> None:
        """Raise ConfigError unless each value is at least 0 and below its limit."""
        for name, (value, limit) in values.items():
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
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(params, lr)
        self._in_range(momentum=(momentum, math.inf), weight_decay=(weight_decay, math.inf))
        if nesterov and not momentum:
            raise ConfigError("SGD: nesterov needs a momentum", line=here())
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.b = self._zeros() if momentum else []

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        g = gradient + value * self.weight_decay if self.weight_decay else gradient
        if not self.momentum:
            return value - self._scaled(g), []
        m = self.b[place].assign(self.b[place] * self.momentum + g)
        return value - self._scaled(g + m * self.momentum if self.nesterov else m), [m]


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
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr)
        b1, b2 = betas
        self._in_range(b1=(b1, 1), b2=(b2, 1), eps=(eps, math.inf))
        self._in_range(weight_decay=(weight_decay, math.inf))
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.m, self.v = self._zeros(), self._zeros()
        self.c1, self.c2 = (Tensor.zeros_like(self._lr, requires_grad=False) for _ in betas)

    def _advance(self) -> list[Tensor]:
        return [c.assign(c * b + (1 - b)) for c, b in ((self.c1, self.b1), (self.c2, self.b2))]

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        g = gradient + value * self.weight_decay if self.weight_decay else gradient
        return self._moved(place, value, g)

    def _moved(self, place: int, value: Tensor, g: Tensor) -> tuple[Tensor, list[Tensor]]:
        m = self.m[place].assign(self.m[place] * self.b1 + g * (1 - self.b1))
        v = self.v[place].assign(self.v[place] * self.b2 + g.square() * (1 - self.b2))
        c1, c2 = (c.cast(value.dtype).to(value.device) for c in (self.c1, self.c2))
        return value - self._scaled((m / c1) / ((v / c2).sqrt() + self.eps)), [m, v]


class AdamW(Adam):
    """Adam with decoupled weight decay: g is the gradient, p first p - lr * weight_decay * p.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), as PyTorch has it.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(self, place: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        decayed = value - self._scaled(value * self.weight_decay) if self.weight_decay else value
        return self._moved(place, decayed, gradient)
