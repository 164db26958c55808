"""Sums of products, in the dtype in which the operands meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import as_operands
from tilegrad.base.errors import IndexBoundsError, ShapeError

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def _pair(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    return as_operands(name, as_array(name, x1), as_array(name, x2))


def matmul(x1: Array, x2: Array, /) -> Array:
    """The product of matrices, or of a matrix and a vector; axes before the matrices broadcast.

    Raises ShapeError for an array without axes, and for sizes that do not fit.

    >>> from tilegrad import array_api as xp
    >>> xp.matmul(xp.asarray([[1, 2]]), xp.asarray([3, 4])).tensor.tolist()
    [11]
    """
    a, b = _pair("matmul", x1, x2)
    return Array(a.matmul(b).cast(a.dtype))


def matrix_transpose(x: Array, /) -> Array:
    """The array with its last two axes exchanged.

    >>> from tilegrad import array_api as xp
    >>> xp.matrix_transpose(xp.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    return as_array("matrix_transpose", x).mT


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """Sums of products over the last `axes` of one and the first of the other, or over two lists of
    axes.

    >>> from tilegrad import array_api as xp
    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 4)), axes=1).tensor.tolist()
    [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
    """
    a, b = _pair("tensordot", x1, x2)
    return Array(a.tensordot(b, axes).cast(a.dtype))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sums of products along `axis`, which counts from the end; the other axes broadcast.

    Raises ShapeError where the sizes along `axis` differ.

    >>> from tilegrad import array_api as xp
    >>> xp.vecdot(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).tensor.tolist()
    [3, 7]
    """
    a, b = _pair("vecdot", x1, x2)
    least = min(a.ndim, b.ndim)
    if not -least <= axis < least or (axis >= 0 and a.ndim != b.ndim):
        raise IndexBoundsError(f"vecdot: both arrays need axis {axis}, from the end")
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: sizes along axis {axis} differ: {a.shape[axis]} and {b.shape[axis]}"
        )
    return Array((a * b).sum(axis).cast(a.dtype))
