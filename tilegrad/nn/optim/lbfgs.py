"""L-BFGS: Newton's direction from the last steps, for smooth losses of whole data.

The curvature is described by the last steps s and the changes y of the gradient over them, the rows
of one matrix of a fixed size. The direction is a sum of those rows and the gradient, whose
coefficients follow from dot products alone: they are computed on the host, from products of the
matrices with a vector, so that all iterations run the same few kernels. Three runs compute the
values that an iteration reads: at the new point the loss, the gradient and the tests whether to go
on; the last step and the dot products; the direction.

Nocedal and Wright, "Numerical Optimization" (2006): algorithms 7.4 (two loops), 3.5 and 3.6 (line
search).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilegrad.base.errors import ConfigError, DataError, ShapeError, check_choice
from tilegrad.nn.optim.lbfgs_history import Change, History, in_memory
from tilegrad.nn.optim.line_search import Point, strong_wolfe
from tilegrad.nn.optim.optimizer import Optimizer
from tilegrad.nn.utils.vectors import parameters_to_vector
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal 1989) as PyTorch has it: one `step` has up to `max_iter` iterations;
    each moves all parameters and calls `closure`, which computes the loss anew with its gradients.

    Args:
        max_eval: the most calls of `closure`; 5 / 4 of `max_iter` unless given.
        tolerance_grad: a step ends where no element of the gradient is larger.
        tolerance_change: a step ends where parameters or loss change by less.
        history_size: how many steps are kept, each as large as two times the parameters.
        line_search_fn: None, each iteration goes `lr` along its direction; or "strong_wolfe".
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        max_iter: most iterations in a step.

    Shape: parameters of any shapes and float dtypes.

    Raises ConfigError for several groups, or an unknown line search.

    >>> p = Tensor([3.0, -2.0])
    >>> opt = nn.optim.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad()
    ...     return ((p - 1).square() * Tensor([1.0, 10.0])).sum().backward()
    >>> with Tensor.train():
    ...     first = opt.step(closure).item()
    >>> first, [round(value, 3) for value in p.tolist()]
    (94.0, [1.0, 1.0])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        most = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(
            params,
            lr,
            {},
            max_iter=max_iter,
            max_eval=most,
            tolerance_grad=tolerance_grad,
            tolerance_change=tolerance_change,
            history_size=history_size,
            line_search_fn=line_search_fn,
        )
        if len(self._param_groups) != 1:
            raise ConfigError("LBFGS: all parameters are one group")
        check_choice("LBFGS", "line_search_fn", line_search_fn, (None, "strong_wolfe"))
        if history_size < 1:
            raise ConfigError(f"LBFGS: history_size must be at least 1, not {history_size}")
        self._history = History(history_size)
        # The direction, how far it was gone, and the gradient and the loss before.
        self._last: tuple[Tensor, float, Tensor] | None = None
        self._loss_before = 0.0
        self._iterations = self._evaluations = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate; gives the loss before.

        Raises ConfigError without a `closure`.
        """
        if closure is None:
            raise ConfigError(
                "LBFGS.step: needs a closure that computes the loss and its gradients",
                remedy="step(closure), with zero_grad() and backward() in it",
            )
        group = self._param_groups[0]
        rate, least = float(self.lr.item()), group["tolerance_change"]
        trial = _Evaluation(closure, self._gradient)
        first = trial.look()
        for iteration in range(group["max_iter"]):
            if trial.largest <= group["tolerance_grad"]:
                break
            loss, gradient = trial.loss, trial.gradient
            direction, tests = self._direction(gradient)
            start = _flat(*self.params).clone()
            slope, reach, total = _read(tests, direction, start)
            if slope > -least:
                break
            length = rate if self._last is not None else min(1.0, 1 / total) * rate
            is_last = iteration + 1 == group["max_iter"]
            way = start, direction, slope, reach
            length = self._go(trial, way, length, is_last=is_last)
            self._last, self._loss_before = (direction, length, gradient), loss
            self._iterations += 1
            moved = reach * length
            if moved <= least or trial.calls >= group["max_eval"] or abs(trial.loss - loss) < least:
                break
        self._evaluations += trial.calls
        return first

    def state_dict(self) -> dict[str, Any]:
        """As `nn.optim.Optimizer.state_dict`: the state, that of all parameters, stands by the
        first of them, as in PyTorch.

        >>> p = Tensor([3.0])
        >>> opt = nn.optim.LBFGS([p], max_iter=1)
        >>> with Tensor.train():
        ...     loss = opt.step(lambda: (p * p).sum().backward())
        >>> opt.state_dict()["state"][0]["prev_flat_grad"].tolist()
        [6.0]
        """
        found = super().state_dict()
        found["state"] = {}
        if self._last is not None:
            direction, length, gradient = self._last
            found["state"][0] = {
                "func_evals": self._evaluations,
                "n_iter": self._iterations,
                "d": direction,
                "t": length,
                "prev_flat_grad": gradient,
                "prev_loss": self._loss_before,
                **self._history.saved(direction),
            }
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the options and the state of `state_dict`, of this form, by PyTorch too.

        Raises DataError for other groups, numbers of parameters or names, ShapeError for vectors
        of another length; nothing is written then.
        """
        state = _state_in(state_dict)
        steps, changes, last = [], [], None
        if state is not None:
            steps = [self._vector(each) for each in state["old_stps"]]
            changes = [self._vector(each) for each in state["old_dirs"]]
            direction, gradient = self._vector(state["d"]), self._vector(state["prev_flat_grad"])
            last = direction, float(state["t"]), gradient
        super().load_state_dict(state_dict)
        self._history = History(self._param_groups[0]["history_size"])
        for step, change in zip(steps, changes, strict=True):
            self._history.add(step, change)
        self._last = last
        counts = state or {"prev_loss": 0.0, "n_iter": 0, "func_evals": 0}
        self._loss_before = float(counts["prev_loss"])
        self._iterations, self._evaluations = int(counts["n_iter"]), int(counts["func_evals"])

    def _vector(self, value: Any) -> Tensor:
        """`value` as a vector of all parameters.

        Raises ShapeError if it is none.
        """
        first = self.params[0]
        tensor = value if isinstance(value, Tensor) else Tensor(value)
        size = sum(parameter.numel() for parameter in self.params)
        if tensor.shape != (size,):
            raise ShapeError(
                f"LBFGS.load_state_dict: state of shape {show_shape(tensor.shape)} for {size} "
                "elements of parameters"
            )
        return tensor.detach().cast(first.dtype).to(first.device).clone().realize()

    def _direction(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Where to go, by what the last iteration told of the curvature, too; and its slope, its
        largest magnitude, and the sum of the magnitudes of the gradient.
        """
        if self._last is None:
            return self._history.direction(gradient)
        before, length, old = self._last
        return self._history.direction(gradient, Change(before, length, old))

    def _go(
        self,
        trial: _Evaluation,
        way: tuple[Tensor, Tensor, float, float],
        length: float,
        *,
        is_last: bool,
    ) -> float:
        """Move the parameters along a `way`: from a start in a direction, of a slope and a largest
        magnitude; gives how far. Without a line search that is `length`, and the loss of the last
        point is not computed.
        """
        start, direction, slope, reach = way

        def move(t: float) -> None:
            # In no run of its own: the closure reads the parameters.
            self._take(start, direction, t)

        def at(t: float) -> Point:
            move(t)
            trial.look(direction)
            return Point(t, trial.loss, trial.slope, trial.gradient, trial.largest)

        if self._param_groups[0]["line_search_fn"] is None:
            if is_last:
                move(length)
            else:
                at(length)
            return length
        least = self._param_groups[0]["tolerance_change"] / max(reach, 1e-300)
        start_of_line = Point(0.0, trial.loss, slope, trial.gradient, trial.largest)
        found = strong_wolfe(at, start_of_line, length, least)
        if found.gradient is not trial.gradient:
            # Loss and gradient at the best point are known and not asked for again.
            move(found.length)
            trial.loss, trial.gradient, trial.largest = found.loss, found.gradient, found.largest
        return found.length

    def _take(self, start: Tensor, direction: Tensor, length: float) -> None:
        """Let the parameters be `length` along a direction from the start."""
        shapes = tuple([each.shape for each in self.params])
        moved = _moved(start, direction, in_memory([length], direction), shapes)
        for each, value in zip(self.params, moved, strict=True):
            own = value if value.dtype is each.dtype else value.cast(each.dtype)
            each.assign(own if own.device == each.device else own.to(each.device))

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros for a parameter that has none."""
        gradients = [p.zeros_like() if p.grad is None else p.grad for p in self.params]
        return _flat(*gradients)


class _Evaluation:
    """The loss and its gradient where the parameters are, the largest magnitude in that, its slope
    along a direction, and how often they were asked for.
    """

    loss: float
    gradient: Tensor
    largest: float
    slope: float

    def __init__(self, closure: Callable[[], Any], gradient_of: Callable[[], Tensor]):
        self._closure, self._gradient_of = closure, gradient_of
        self.calls = 0

    def look(self, direction: Tensor | None = None) -> Any:
        """Ask again; gives what the closure gives."""
        found = self._closure()
        gradient = self.gradient = self._gradient_of()
        way = gradient if direction is None else direction
        is_alike = isinstance(found, Tensor) and found.dtype is gradient.dtype
        # The run of the gradient computes the loss: it has no graph then, as a realized one has.
        loss = [found.detach()] if is_alike and found.numel() == 1 else []
        self.largest, self.slope, *numbers = _read(_tests(gradient, way, *loss), gradient)
        self.loss = numbers[0] if numbers else float(found.item())
        self.calls += 1
        return found


_NAMES = ("d", "t", "prev_flat_grad", "prev_loss", "old_stps", "old_dirs", "n_iter", "func_evals")


def _state_in(state_dict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The state of the first parameter, which is that of all; None before the first step.

    Raises DataError for one that lacks a name.
    """
    saved = state_dict.get("state") if isinstance(state_dict, Mapping) else None
    states = saved.values() if isinstance(saved, Mapping) else ()
    for state in states:
        if isinstance(state, Mapping) and state.get("d") is not None:
            if missing := [name for name in _NAMES if name not in state]:
                raise DataError(f"LBFGS.load_state_dict: the state lacks {', '.join(missing)}")
            return state
    return None


def _read(numbers: Tensor, *computed: Tensor) -> list[float]:
    """The values of `numbers`, by the run that computes the tensors `computed`."""
    Tensor.realize(*computed, numbers)
    return [float(each) for each in numbers.tolist()]


@templated
def _flat(first: Tensor, *rest: Tensor) -> Tensor:
    """The elements of all tensors as one vector."""
    return parameters_to_vector([first, *rest]).detach()


@templated
def _moved(
    start: Tensor, direction: Tensor, length: Tensor, shapes: tuple[tuple[int, ...], ...]
) -> tuple[Tensor, ...]:
    """The parameters of certain shapes, a `length` along a direction from the start."""
    vector = start + direction * length.cast(direction.dtype)
    slices = vector.split([math.prod(shape) for shape in shapes])
    pairs = zip(slices, shapes, strict=True)
    return tuple([each.reshape(shape).clone() for each, shape in pairs])


@templated
def _tests(gradient: Tensor, way: Tensor, *loss: Tensor) -> Tensor:
    """The largest magnitude in the gradient, its slope along a way, and the loss if it is given."""
    numbers = [(gradient * way).sum(), *[each.reshape(()) for each in loss]]
    return gradient.abs().max().stack(*numbers)
