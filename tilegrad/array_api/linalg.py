"""The extension `linalg`: matrices, in the last two axes.

Factors are computed as `Tensor.svd` and its kin do. A matrix without an inverse, or without a
factor, gives inf or NaN; the standard leaves it open.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import as_operands
from tilegrad.array_api.matrix_functions import matmul, matrix_transpose, tensordot, vecdot
from tilegrad.array_api.reductions import sum as _sum
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.broadcasting import broadcast_shape
from tilegrad.tensor.handle.size_arguments import as_axes

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Array
    S: Array
    Vh: Array


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The lower triangle L with L @ L.mT = x, or the upper one.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.cholesky(xp.asarray([[4.0, 2.0], [2.0, 5.0]])).tensor.tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    tensor = as_array("cholesky", x).tensor
    if upper:
        # The upper triangle is read, which of a symmetric matrix is the lower one.
        return Array(tensor.transpose(-2, -1).cholesky().transpose(-2, -1))
    return Array(tensor.cholesky())


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The vector at right angles to both, along an axis of size 3.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0])).tensor.tolist()
    [0, 0, 1]
    """
    a, b = as_operands("cross", as_array("cross", x1), as_array("cross", x2))
    least = min(a.ndim, b.ndim)
    if not -least <= axis < least or a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ShapeError(f"cross: axis {axis} of both must have size 3")
    shape = broadcast_shape("cross", [a.uop, b.uop])
    return Array(a.broadcast_to(shape).cross(b.broadcast_to(shape), axis))


def det(x: Array, /) -> Array:
    """The determinant of each matrix.

    >>> from tilegrad import array_api as xp
    >>> float(xp.linalg.det(xp.asarray([[2.0, 1.0], [0.0, 4.0]])))
    8.0
    """
    return Array(as_array("det", x).tensor.det())


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonal of each matrix, that many places above the main one.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.diagonal(xp.asarray([[1, 2], [3, 4]])).tensor.tolist()
    [1, 4]
    """
    tensor = _matrices("diagonal", x)
    rows, columns = tensor._sizes[-2:]
    if not -rows < offset < columns:
        return Array(Tensor.zeros((*tensor._sizes[:-2], 0), dtype=tensor.dtype))
    return Array(tensor.diagonal(offset, -2, -1))


def _matrices(name: str, x: Any) -> Tensor:
    tensor = as_array(name, x).tensor
    if tensor.ndim < 2:
        raise ShapeError(f"{name}: {tensor.ndim} axes, and a matrix has two")
    return tensor


def eigh(x: Array, /) -> EighResult:
    """The eigenvalues of symmetric matrices, the smallest first, and their vectors as columns.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.eigh(xp.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tensor.tolist()
    [1.0, 2.0]
    """
    values, vectors = as_array("eigh", x).tensor.eigh()
    return EighResult(Array(values), Array(vectors))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues of symmetric matrices, the smallest first.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.eigvalsh(xp.asarray([[2.0, 0.0], [0.0, 1.0]])).tensor.tolist()
    [1.0, 2.0]
    """
    return Array(as_array("eigvalsh", x).tensor.eigvalsh())


def inv(x: Array, /) -> Array:
    """The inverse of each matrix.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.inv(xp.asarray([[2.0, 0.0], [0.0, 4.0]])).tensor.tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return Array(as_array("inv", x).tensor.inv())


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """A norm of each matrix: "fro", "nuc", 1, 2, inf, or one of these numbers negative.

    >>> from tilegrad import array_api as xp
    >>> float(xp.linalg.matrix_norm(xp.asarray([[1.0, -2.0], [3.0, 4.0]]), ord=1))
    6.0
    """
    tensor = _matrices("matrix_norm", x)
    if 0 in tensor._sizes[-2:] and ord != "fro":
        # A matrix without elements has the norm 0, as in the standard's test.
        return Array(tensor.matrix_norm("fro", keepdims))
    return Array(tensor.matrix_norm("fro" if ord is None else ord, keepdims))


def matrix_power(x: Array, n: int, /) -> Array:
    """Each matrix multiplied `n` times; the inverse for n below 0.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.matrix_power(xp.asarray([[1.0, 1.0], [0.0, 1.0]]), 5).tensor.tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    tensor = as_array("matrix_power", x).tensor
    return Array(tensor.matrix_power(n).cast(tensor.dtype))


def _limits(name: str, x: Tensor, rtol: Any) -> tuple[Tensor, Tensor]:
    """The singular values, and the size up to which they count as zero."""
    values = x.svdvals()
    if isinstance(rtol, Array):
        share: Any = rtol.tensor.unsqueeze(-1)
    elif rtol is None:
        share = max(x._sizes[-2:]) * 2.0 ** -dtypes.finfo(x.dtype)[1]
    else:
        share = rtol
    largest = values.max(-1, keepdim=True) if values._sizes[-1] else values
    return values, largest * share


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values of each matrix are larger than `rtol` times the largest.

    >>> from tilegrad import array_api as xp
    >>> int(xp.linalg.matrix_rank(xp.asarray([[1.0, 1.0], [1.0, 1.0]])))
    1
    """
    values, limit = _limits("matrix_rank", _matrices("matrix_rank", x), rtol)
    return Array((values > limit).cast(dtypes.int32).sum(-1))


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of all pairs of elements of two vectors.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4])).tensor.tolist()
    [[3, 4], [6, 8]]
    """
    a, b = as_operands("outer", as_array("outer", x1), as_array("outer", x2))
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: two vectors are needed, not {a.shape} and {b.shape}")
    return Array(a.unsqueeze(1) * b.unsqueeze(0))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The pseudo-inverse of each matrix; singular values up to `rtol` times the largest count as 0.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.pinv(xp.asarray([[2.0, 0.0], [0.0, 0.0]])).tensor.tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    tensor = _matrices("pinv", x)
    if not isinstance(rtol, Array):
        return Array(tensor.pinv(rtol))
    u, s, v = tensor.svd(full_matrices=False)
    limit = s.max(-1, keepdim=True) * rtol.tensor.unsqueeze(-1)
    inverse = (s > limit).where(1 / s, 0.0)
    return Array((v.transpose(-2, -1) * inverse.unsqueeze(-2)) @ u.transpose(-2, -1))


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Q, of orthonormal columns, and R, an upper triangle, with Q @ R = x.

    >>> from tilegrad import array_api as xp
    >>> [each.shape for each in xp.linalg.qr(xp.ones((3, 2)), mode="complete")]
    [(3, 3), (3, 2)]
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    q, r = as_array("qr", x).tensor.qr(mode)
    return QRResult(Array(q), Array(r))


def slogdet(x: Array, /) -> SlogdetResult:
    """The sign of the determinant, and the logarithm of its size.

    >>> from tilegrad import array_api as xp
    >>> [float(each) for each in xp.linalg.slogdet(xp.asarray([[0.0, 1.0], [1.0, 0.0]]))]
    [-1.0, 0.0]
    """
    sign, log = as_array("slogdet", x).tensor.slogdet()
    return SlogdetResult(Array(sign), Array(log))


def solve(x1: Array, x2: Array, /) -> Array:
    """x with x1 @ x = x2, where x2 is a vector or matrices.

    >>> from tilegrad import array_api as xp
    >>> a = xp.asarray([[2.0, 0.0], [0.0, 4.0]])
    >>> xp.linalg.solve(a, xp.asarray([2.0, 2.0])).tensor.tolist()
    [1.0, 0.5]
    """
    a, b = as_operands("solve", as_array("solve", x1), as_array("solve", x2))
    return Array(a.solve(b))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S and Vh with U @ diag(S) @ Vh = x, the largest of S first.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.svd(xp.asarray([[0.0, 2.0], [1.0, 0.0]])).S.tensor.tolist()
    [2.0, 1.0]
    """
    u, s, v = as_array("svd", x).tensor.svd(full_matrices)
    return SVDResult(Array(u), Array(s), Array(v))


def svdvals(x: Array, /) -> Array:
    """The singular values, the largest first.

    >>> from tilegrad import array_api as xp
    >>> xp.linalg.svdvals(xp.asarray([[3.0, 0.0], [0.0, 4.0]])).tensor.tolist()
    [4.0, 3.0]
    """
    return Array(as_array("svdvals", x).tensor.svdvals())


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sum of a diagonal of each matrix, in dtypes as `sum`.

    >>> from tilegrad import array_api as xp
    >>> int(xp.linalg.trace(xp.asarray([[1, 2], [3, 4]])))
    5
    """
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of vectors along `axis`, or of all elements: any number, inf or -inf.

    >>> from tilegrad import array_api as xp
    >>> float(xp.linalg.vector_norm(xp.asarray([3.0, 4.0])))
    5.0
    """
    tensor = as_array("vector_norm", x).tensor
    axes = as_axes("vector_norm", axis, tensor.ndim)
    size = math.prod([tensor._sizes[each] for each in axes])
    if not size and ord in (math.inf, -math.inf):
        # An array without elements has 0 as its largest size.
        return Array(tensor._floating().sum(axes, keepdims))
    return Array(tensor.vector_norm(ord, axes, keepdims))
