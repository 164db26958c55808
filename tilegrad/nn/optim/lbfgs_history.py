"""The curvature as L-BFGS knows it: the last steps and the changes of the gradient over them.

Dot products of the rows of one matrix with a vector tell all coefficients of a direction, so each
iteration reads them once. All that is computed between two reads is one call of a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.tensor import Tensor

__all__ = ["Change", "History", "in_memory"]

# Steps along which the gradient hardly grows say nothing of the curvature.
_LEAST_CURVATURE = 1e-10

Vector = npt.NDArray[np.float64]


class Change(NamedTuple):
    """The last step: its direction, how far it went, and the gradient before it."""

    direction: Tensor
    length: float
    gradient: Tensor


class History:
    """The last steps s and changes of the gradient y, as the halves of a matrix, a row each, and
    all their dot products; a row that is not there yet is zeros.
    """

    def __init__(self, size: int):
        self._size = size
        self._rows: Tensor | None = None
        self._order: list[int] = []
        # Products of row i of s with row j of y, and of y with y.
        self._sy = np.zeros((size, size))
        self._yy = np.zeros((size, size))

    def add(self, s: Tensor, y: Tensor) -> None:
        """Keep a step, in place of the oldest where there is no room."""
        self._products(y, Change(s, 1.0, y.zeros_like()))

    def direction(self, gradient: Tensor, last: Change | None = None) -> tuple[Tensor, Tensor]:
        """Minus the inverse of the Hessian, as far as it is known, times `gradient`; the `last`
        step is kept first. And its slope, its largest magnitude, and the sum of the magnitudes of
        the gradient.
        """
        if last is not None or self._order:
            sg, yg = self._products(gradient, last)
        if self._rows is None or not self._order:
            return _downhill(gradient)
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
        coefficients = in_memory([*a, *b * scale, scale], gradient)
        return _combined(coefficients, self._rows, gradient)

    def _products(self, gradient: Tensor, last: Change | None) -> Vector:
        """The products of all s and of all y with `gradient`, (2, size). The `last` step is kept,
        by the same run, unless its curvature is too small.
        """
        if last is None:
            assert self._rows is not None
            (of_g,) = self._read(self._rows @ gradient.unsqueeze(1))
            return of_g
        if self._rows is None:
            shape = 2 * self._size, gradient._sizes[0]
            device, dtype = gradient.device, gradient.dtype
            self._rows = type(gradient).zeros(*shape, device=device, dtype=dtype).clone().realize()
        is_full = len(self._order) == self._size
        row = self._order[0] if is_full else len(self._order)
        numbers = in_memory([row, row + self._size, last.length], gradient)
        new, s, y, is_replaced = _with_step(
            self._rows, last.direction, last.gradient, gradient, numbers
        )
        self._rows.assign(new)
        columns = _columns(self._rows, gradient, s, y, is_replaced)
        # The rows alone are to be computed.
        del new, s, y
        of_g, of_s, of_y, replaced = self._read(columns)
        if replaced.any():
            if is_full:
                self._order.pop(0)
            self._order.append(row)
            self._sy[row], self._sy[:, row] = of_s[1], of_y[0]
            self._yy[row] = self._yy[:, row] = of_y[1]
        return of_g

    def _read(self, columns: Tensor) -> Sequence[Vector]:
        """Values of columns that have an element for each row, as (number of columns, 2, size)."""
        assert self._rows is not None
        Tensor.realize(self._rows, columns)
        found: Vector = np.asarray(columns.numpy(), np.float64)
        return [*found.T.reshape(-1, 2, self._size)]

    def saved(self, like: Tensor) -> dict[str, Any]:
        """The state, oldest first, by PyTorch's names; numbers in the dtype of `like`."""
        order, squares = self._order, np.diagonal(self._sy)
        scale = squares[order[-1]] / self._yy[order[-1], order[-1]] if order else 1.0

        def number(value: float) -> Tensor:
            return Tensor(float(value), dtype=like.dtype, device=like.device)

        def vectors(first: int) -> list[Tensor]:
            rows = self._rows
            return [] if rows is None else [rows[first + row].clone().realize() for row in order]

        return {
            "old_stps": vectors(0),
            "old_dirs": vectors(self._size),
            "ro": [number(1 / squares[row]) for row in order],
            "H_diag": number(scale),
            "al": [None] * self._size,
        }


def in_memory(values: Sequence[float], like: Tensor) -> Tensor:
    """Numbers in memory, so that others are no other kernel; (number of them,)."""
    wide = np.float64 if like.dtype is dtypes.float64 else np.float32
    return type(like)(np.asarray(values, wide), device=like.device)


@templated
def _downhill(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the gradient, and numbers of it as `_combined` gives."""
    return -gradient, _numbers(-gradient, gradient)


@templated
def _combined(coefficients: Tensor, rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the sum of rows and gradient by their coefficients; and `_numbers` of it."""
    known = coefficients.cast(gradient.dtype)
    count = rows._sizes[0]
    direction = -(gradient * known[count:] + known[:count] @ rows)
    return direction, _numbers(direction, gradient)


def _numbers(direction: Tensor, gradient: Tensor) -> Tensor:
    """The slope of a direction, its largest magnitude, and the sum of those in the gradient."""
    slope = (gradient * direction).sum()
    return slope.stack(direction.abs().max(), gradient.abs().sum())


@templated
def _with_step(
    rows: Tensor, direction: Tensor, old: Tensor, gradient: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows, two of them replaced by a step along `direction` and the change of the gradient if
    they have curvature; these two; and a column that says which rows were replaced. The `numbers`
    are those of the rows, and how far the step went.
    """
    s, y = direction * numbers[2:].cast(direction.dtype), gradient - old
    indices = rows._iota(rows._sizes[0]).cast(numbers.dtype)
    is_curved = (s * y).sum() > _LEAST_CURVATURE
    is_s, is_y = ((indices.eq(numbers[at : at + 1]) & is_curved).unsqueeze(1) for at in (0, 1))
    return is_s.where(s, is_y.where(y, rows)), s, y, (is_s | is_y).cast(rows.dtype)


@templated
def _columns(rows: Tensor, gradient: Tensor, s: Tensor, y: Tensor, is_replaced: Tensor) -> Tensor:
    """The products of all rows with three vectors, a column each, and the column `is_replaced`."""
    return (rows @ gradient.stack(s, y, dim=1)).cat(is_replaced, dim=1)
