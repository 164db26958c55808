"""L-BFGS: Newton's direction from the last steps, for smooth losses of whole data.

The curvature is described by the last steps s and the changes y of the gradient over them, the rows
of two matrices of a fixed size. The direction is a sum of those rows and the gradient, whose
coefficients follow from dot products alone: they are computed on the host, from products of the
matrices with a vector, so that all iterations run the same few kernels. Four runs compute the
values that an iteration reads: at the new point the loss, the gradient and the tests whether to go
on; the last step and its curvature; the dot products; the direction.

Nocedal and Wright, "Numerical Optimization" (2006): algorithms 7.4 (two loops), 3.5 and 3.6 (line
search).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError, DataError, ShapeError
from tilegrad.nn.optim.optimizer import Optimizer
from tilegrad.nn.utils.vectors import parameters_to_vector
from tilegrad.tensor.handle.size_arguments import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["LBFGS"]

# Steps along which the gradient hardly grows say nothing of the curvature.
_LEAST_CURVATURE = 1e-10
_MOST_TRIALS = 25

Vector = npt.NDArray[np.float64]


class Point(NamedTuple):
    """A point of a line search: how far, the loss there, its slope, the gradient, and the largest
    of its magnitudes.
    """

    length: float
    loss: float
    slope: float
    gradient: Tensor
    largest: float


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
            raise ConfigError("LBFGS: all parameters are one group", line=here())
        if line_search_fn not in (None, "strong_wolfe"):
            raise ConfigError(
                f"LBFGS: unknown line_search_fn {line_search_fn!r}",
                allowed="None, 'strong_wolfe'",
                line=here(),
            )
        if history_size < 1:
            raise ConfigError(f"LBFGS: history_size must be at least 1, not {history_size}")
        self._history = _History(history_size)
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
                line=here(),
            )
        group = self._param_groups[0]
        rate, least = float(self.lr.item()), group["tolerance_change"]
        trial = _Evaluation(closure, self._gradient)
        first = trial.look()
        for iteration in range(group["max_iter"]):
            if trial.largest <= group["tolerance_grad"]:
                break
            loss, gradient = trial.loss, trial.gradient
            direction = self._direction(gradient)
            numbers = (gradient * direction).sum(), direction.abs().max(), gradient.abs().sum()
            slope, reach, total = _read([direction], numbers)
            if slope > -least:
                break
            length = rate if self._last is not None else min(1.0, 1 / total) * rate
            is_last = iteration + 1 == group["max_iter"]
            length = self._go(trial, direction, (slope, reach), length, is_last=is_last)
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
        self._history = _History(self._param_groups[0]["history_size"])
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
                "elements of parameters",
                line=here(),
            )
        return tensor.detach().cast(first.dtype).to(first.device).clone().realize()

    def _direction(self, gradient: Tensor) -> Tensor:
        """Where to go, by what the last iteration told of the curvature, too."""
        if self._last is not None:
            before, length, old = self._last
            self._history.add(_times(before, length), gradient - old)
        return self._history.direction(gradient)

    def _go(
        self,
        trial: _Evaluation,
        direction: Tensor,
        slope_and_reach: tuple[float, float],
        length: float,
        *,
        is_last: bool,
    ) -> float:
        """Move the parameters along `direction`, of a slope and a largest magnitude; gives how far.
        Without a line search that is `length`, and the loss of the last point is not computed.
        """
        start = parameters_to_vector(self.params).detach().clone().realize()

        def move(t: float) -> None:
            # In no run of its own: the closure reads the parameters.
            self._take(start + _times(direction, t))

        def at(t: float) -> Point:
            move(t)
            trial.look(direction)
            return Point(t, trial.loss, trial.slope, trial.gradient, trial.largest)

        slope, reach = slope_and_reach
        if self._param_groups[0]["line_search_fn"] is None:
            if is_last:
                move(length)
            else:
                at(length)
            return length
        least = self._param_groups[0]["tolerance_change"] / max(reach, 1e-300)
        start_of_line = Point(0.0, trial.loss, slope, trial.gradient, trial.largest)
        found = _strong_wolfe(at, start_of_line, length, least)
        if found.gradient is not trial.gradient:
            # Loss and gradient at the best point are known and not asked for again.
            move(found.length)
            trial.loss, trial.gradient, trial.largest = found.loss, found.gradient, found.largest
        return found.length

    def _take(self, vector: Tensor) -> None:
        """Let the parameters have the elements of a vector that none of them is part of."""
        sizes = [int(each.numel()) for each in self.params]
        for each, values in zip(self.params, vector.split(sizes), strict=True):
            each.assign(values.reshape(each.shape).cast(each.dtype).to(each.device).clone())

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros for a parameter that has none."""
        gradients = [p.zeros_like() if p.grad is None else p.grad for p in self.params]
        return parameters_to_vector(gradients).detach()


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
        numbers = gradient.abs().max(), (gradient * way).sum()
        computed = [gradient, found] if isinstance(found, Tensor) else [gradient]
        self.largest, self.slope = _read(computed, numbers)
        self.loss = float(found.item())
        self.calls += 1
        return found


class _History:
    """The last steps s and changes of the gradient y, as rows of two matrices, and all their dot
    products; a row that is not there yet is zeros.
    """

    def __init__(self, size: int):
        self._size = size
        self._rows: list[Tensor] = []
        self._order: list[int] = []
        # Products of row i of s with row j of y, and of y with y.
        self._sy = np.zeros((size, size))
        self._yy = np.zeros((size, size))

    def add(self, s: Tensor, y: Tensor) -> None:
        """Keep a step, in place of the oldest where there is no room."""
        (curvature,) = _read([s, y], [(s * y).sum()])
        if curvature <= _LEAST_CURVATURE:
            return
        if not self._rows:
            self._rows = [
                type(s)
                .zeros(self._size, s._sizes[0], device=s.device, dtype=s.dtype)
                .clone()
                .realize()
                for _ in range(2)
            ]
        row = len(self._order) if len(self._order) < self._size else self._order.pop(0)
        self._order.append(row)
        index = _in_memory([row], dtypes.int32, s)
        is_row = type(s).arange(self._size, device=s.device).eq(index).unsqueeze(1)
        for rows, new in zip(self._rows, (s, y), strict=True):
            rows.assign(is_row.where(new, rows))
        of_s, of_y = self._rows
        found = self._dots(of_y @ s, of_s @ y, of_y @ y)
        self._sy[row], self._sy[:, row] = found[:2]
        self._yy[row] = self._yy[:, row] = found[2]

    def _dots(self, *products: Tensor) -> Vector:
        """Products of rows with vectors, (number of products, number of rows)."""
        first, *rest = products
        joined = first.stack(*rest)
        Tensor.realize(*self._rows, joined)
        found: Vector = np.asarray(joined.numpy(), np.float64)
        return found

    def saved(self, like: Tensor) -> dict[str, Any]:
        """The state, oldest first, by PyTorch's names; numbers in the dtype of `like`."""
        order, squares = self._order, np.diagonal(self._sy)
        scale = squares[order[-1]] / self._yy[order[-1], order[-1]] if order else 1.0

        def number(value: float) -> Tensor:
            return Tensor(float(value), dtype=like.dtype, device=like.device)

        return {
            "old_stps": [self._rows[0][row].clone().realize() for row in order],
            "old_dirs": [self._rows[1][row].clone().realize() for row in order],
            "ro": [number(1 / squares[row]) for row in order],
            "H_diag": number(scale),
            "al": [None] * self._size,
        }

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the inverse of the Hessian, as far as it is known, times `gradient`."""
        if not self._order:
            return -gradient
        sg, yg = self._dots(*[rows @ gradient for rows in self._rows])
        # q = gradient + b @ Y, then r = scale * q + a @ S, by coefficients.
        a, b = np.zeros(self._size), np.zeros(self._size)
        steps = {}
        for i in reversed(self._order):
            steps[i] = (sg[i] + self._sy[i] @ b) / self._sy[i, i]
            b[i] -= steps[i]
        newest = self._order[-1]
        scale = self._sy[newest, newest] / self._yy[newest, newest]
        for i in self._order:
            slope = scale * (yg[i] + self._yy[i] @ b) + self._sy[:, i] @ a
            a[i] += steps[i] - slope / self._sy[i, i]
        coefficients = [_in_memory(x, gradient.dtype, gradient) for x in (a, b * scale)]
        known = coefficients[0] @ self._rows[0] + coefficients[1] @ self._rows[1]
        return -(_times(gradient, scale) + known)


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
                raise DataError(
                    f"LBFGS.load_state_dict: the state lacks {', '.join(missing)}", line=here()
                )
            return state
    return None


def _read(computed: Sequence[Tensor], numbers: Sequence[Tensor]) -> list[float]:
    """The values of `numbers`, by the run that computes the tensors `computed`."""
    first, *rest = numbers
    joined = first.stack(*rest)
    Tensor.realize(*computed, joined)
    return [float(each) for each in joined.tolist()]


def _times(vector: Tensor, factor: float) -> Tensor:
    """A product with a number in memory, so that another number is no other kernel."""
    return vector * _in_memory([factor], vector.dtype, vector)


def _in_memory(values: Any, dtype: DType, like: Tensor) -> Tensor:
    """Numbers, (number of them,), on the device of `like`."""
    name = dtype.name
    if not hasattr(np, name):
        return type(like)([float(each) for each in values], dtype=dtype, device=like.device)
    return type(like)(np.asarray(values).astype(name), dtype=dtype, device=like.device)


def _strong_wolfe(at: Callable[[float], Point], start: Point, length: float, least: float) -> Point:
    """A length whose loss lies below the line of slope 1e-4 and whose slope is at most 0.9 of that
    at the start; or the best of those that were tried.
    """
    loss, slope = start.loss, start.slope
    last, tried = start, 0

    def is_low(point: Point) -> bool:
        return math.isfinite(point.loss) and point.loss <= loss + 1e-4 * point.length * slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -0.9 * slope

    while True:
        now = at(length)
        tried += 1
        if not is_low(now) or (tried > 1 and now.loss >= last.loss):
            low, high = last, now
            break
        if is_flat(now) or tried == _MOST_TRIALS:
            return now
        if now.slope >= 0:
            low, high = now, last
            break
        # Still downhill: further, by what a cubic through both says, within limits.
        nearest = length + 0.01 * (length - last.length)
        length = _cubic(last, now, nearest, length * 10)
        last = now
    while tried < _MOST_TRIALS and abs(high.length - low.length) > least:
        ends = sorted((low.length, high.length))
        margin = 0.1 * (ends[1] - ends[0])
        now = at(_cubic(low, high, ends[0] + margin, ends[1] - margin))
        tried += 1
        if not is_low(now) or now.loss >= low.loss:
            high = now
            continue
        if is_flat(now):
            return now
        if now.slope * (high.length - low.length) >= 0:
            high = low
        low = now
    return low


def _cubic(one: Point, two: Point, least: float, most: float) -> float:
    """Where the cubic through two points with their slopes is lowest, within limits; the middle
    where there is none.
    """
    (x1, f1, g1, *_), (x2, f2, g2, *_) = sorted((one, two), key=lambda point: point.length)
    middle = (least + most) / 2
    if not all(map(math.isfinite, (f1, f2, g1, g2))) or x1 == x2:
        return middle
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return middle
    d2 = math.sqrt(square)
    below = g2 - g1 + 2 * d2
    if below == 0:
        return middle
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / below), least), most)
