"""Symmetric matrices that are not definite: A = L D L^T with pivots and blocks of one or two rows
(Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear
systems", 1977), computed now by NumPy, in LAPACK's compact layout of the lower triangle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
import numpy.typing

__all__ = ["factor", "solve"]

Array = numpy.typing.NDArray[Any]
# The bound that makes two steps of one row grow no more than one of two.
_ALPHA = (1 + math.sqrt(17)) / 8


def factor(a: Array) -> tuple[Array, Array, int]:
    """Factors of one symmetric matrix, from its lower triangle: packed, the pivots counted from 1
    (both negative for a block of two), and the first row without a pivot, or 0.
    """
    a, size = numpy.tril(a).copy(), len(a)
    pivots, info, k = numpy.zeros(size, numpy.int32), 0, 0
    while k < size:
        row, step = _pivot(a, k)
        _exchange(a, k, row, step)
        if step == 1:
            pivots[k] = row + 1
            info = info or (k + 1 if a[k, k] == 0 else 0)
        else:
            pivots[k : k + 2] = -(row + 1)
        _eliminate(a, k, step)
        k += step
    return a, pivots, info


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """The row to bring to the top, and the number of rows of the block."""
    size, here = len(a), abs(a[k, k])
    if k == size - 1:
        return k, 1
    row = k + 1 + int(numpy.argmax(abs(a[k + 1 :, k])))
    largest = abs(a[row, k])
    if here >= _ALPHA * largest:
        return k, 1
    others = numpy.concatenate([abs(a[row, k:row]), abs(a[row + 1 :, row])])
    widest = others.max()
    if here >= _ALPHA * largest * (largest / widest):
        return k, 1
    return (row, 1) if abs(a[row, row]) >= _ALPHA * widest else (row, 2)


def _exchange(a: Array, k: int, row: int, step: int) -> None:
    """Exchange rows and columns `row` and the last of the block, in the part that is not yet
    eliminated.
    """
    top = k + step - 1
    if row == top:
        return
    a[row + 1 :, [top, row]] = a[row + 1 :, [row, top]]
    between = a[top + 1 : row, top].copy()
    a[top + 1 : row, top] = a[row, top + 1 : row]
    a[row, top + 1 : row] = between
    a[top, top], a[row, row] = a[row, row], a[top, top]
    if step == 2:
        a[k + 1, k], a[row, k] = a[row, k], a[k + 1, k]


def _eliminate(a: Array, k: int, step: int) -> None:
    below = a[k + step :, k : k + step].copy()
    block = _block(a, k, step)
    if not len(below) or (step == 1 and block[0, 0] == 0):
        return
    scaled = numpy.linalg.solve(block, below.T).T
    a[k + step :, k + step :] -= numpy.tril(scaled @ below.T)
    a[k + step :, k : k + step] = scaled


def _block(a: Array, k: int, step: int) -> Array:
    lower = a[k : k + step, k : k + step]
    return numpy.tril(lower) + numpy.tril(lower, -1).T


def solve(packed: Array, pivots: Array, b: Array) -> Array:
    """The x of A x = b, by what `factor` gave of A."""
    x, blocks, k = b.copy(), [], 0
    while k < len(packed):
        step = 1 if pivots[k] > 0 else 2
        row, top = abs(int(pivots[k])) - 1, k + step - 1
        x[[top, row]] = x[[row, top]]
        x[k + step :] -= packed[k + step :, k : k + step] @ x[k : k + step]
        x[k : k + step] = numpy.linalg.solve(_block(packed, k, step), x[k : k + step])
        blocks.append((k, step, top, row))
        k += step
    for k, step, top, row in reversed(blocks):
        x[k : k + step] -= packed[k + step :, k : k + step].T @ x[k + step :]
        x[[top, row]] = x[[row, top]]
    return x
