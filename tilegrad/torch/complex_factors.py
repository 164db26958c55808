"""Factors of complex matrices, which NumPy computes at once, with gradients of first order.

The embedding of complex_linalg.py gives no triangles and no eigenvectors. Their values are computed
of the numbers; to them is added how they change with the matrix, which is 0 here and has the
gradient. Gradients of these gradients are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError, UnsupportedError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.torch.complex import Complex, as_complex
from tilegrad.torch.complex_made import tensor
from tilegrad.torch.lu_factors import order_from, packed_factors
from tilegrad.torch.methods import LinAlgError
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor

__all__ = ["add_factors", "check_matrix", "identity", "lu_solved"]


def check_matrix(name: str, z: Any, *, is_square: bool = True) -> None:
    """Raise ShapeError for what is no matrix, or no square one."""
    if z.ndim < 2 or (is_square and z.shape[-1] != z.shape[-2]):
        kind = "square matrix" if is_square else "matrix"
        raise ShapeError(f"{name}: {show_shape(z.shape)} is no {kind}")


def identity(like: Complex, size: int) -> Complex:
    """The identity of a size, in the dtype of another tensor."""
    made: Complex = like.new_ones(size).diag()
    return made


def _change(self: Complex) -> Complex | None:
    return self - self.detach() if self.requires_grad and self.numel() else None


def _cholesky(self: Complex, upper: bool = False) -> Complex:
    """The triangular factor L of A = L L^H, or with `upper` L^H."""
    check_matrix("cholesky", self)
    given = self.mH if upper else self
    try:
        array = numpy.linalg.cholesky(given.detach().numpy())
    except numpy.linalg.LinAlgError as error:
        raise LinAlgError(
            f"linalg.cholesky: a matrix of shape {tuple(self.shape)} is not positive definite"
        ) from error
    found = tensor(array.astype(self.detach().numpy().dtype))
    change = _change(given)
    if change is not None:
        inverse = found.inv()
        inner = inverse @ ((change + change.mH) / 2) @ inverse.mH
        # The lower triangle with half of the diagonal.
        found = found + found @ ((inner.tril() + inner.tril(-1)) / 2)
    made: Complex = found.mH if upper else found
    return made


def _cholesky_ex(self: Complex, upper: bool = False) -> tuple[Complex, Tensor]:
    """As `cholesky`, and 0 of each matrix that has such a factor, else 1; NaN are its numbers."""
    if not self.numel():
        return self.clone(), self.pair.new_zeros(self.shape[:-2], dtype=dtypes.int32)
    made, info = [], []
    for each in self.reshape(-1, *self.shape[-2:]):
        try:
            made.append(_cholesky(each, upper).pair)
            info.append(0)
        except LinAlgError:
            made.append((each * float("nan")).pair)
            info.append(1)
    codes = tensor(numpy.array(info, numpy.int32)).reshape(tuple(self.shape[:-2]))
    return Complex(made[0].stack(*made[1:])).reshape(*self.shape), codes


def _eigh(self: Complex, UPLO: str = "L") -> tuple[Tensor, Complex]:
    """The eigenvalues of a Hermitian matrix in ascending order, and its eigenvectors as columns."""
    check_matrix("eigh", self)
    array = self.detach().numpy()
    values, vectors = numpy.linalg.eigh(array, "U" if UPLO in ("U", "u") else "L")
    found, columns = tensor(values), tensor(vectors)
    change = _change(self)
    if change is None:
        return found, columns
    inner = columns.mH @ ((change + change.mH) / 2) @ columns
    apart = found.unsqueeze(-2) - found.unsqueeze(-1)
    factors = (apart == 0).where(0, 1 / (apart == 0).where(1, apart))
    return found + inner.diagonal(0, -2, -1).real, columns + columns @ (inner * factors)


def _svd(self: Complex, full_matrices: bool = True) -> tuple[Complex, Tensor, Complex]:
    """The singular value decomposition U diag(S) Vh."""
    check_matrix("svd", self, is_square=False)
    arrays = numpy.linalg.svd(self.detach().numpy(), full_matrices)
    left, values, right = map(tensor, arrays)
    change = _change(self)
    if change is None:
        return left, values, right
    rows, columns = self.shape[-2:]
    if full_matrices and rows != columns:
        raise UnsupportedError(
            "linalg.svd: the gradient of full matrices that are not square is not defined",
            remedy="full_matrices=False",
        )
    inner = left.mH @ change @ right.mH
    squares = values.square()
    apart = squares.unsqueeze(-2) - squares.unsqueeze(-1)
    factors = (apart == 0).where(0, 1 / (apart == 0).where(1, apart))
    scale = values.unsqueeze(-2)
    twisted, other = inner * scale, values.unsqueeze(-1) * inner
    of_left = left @ ((twisted + twisted.mH) * factors)
    of_right = ((other + other.mH) * factors).mH @ right
    # The phases; only U takes a share of them.
    rotation = inner.diagonal(0, -2, -1).imag / values
    of_left = of_left + left * (1j * rotation).unsqueeze(-2)
    if rows > columns:
        rest = change - left @ (left.mH @ change)
        of_left = of_left + (rest @ right.mH) / scale
    if columns > rows:
        rest = change - (change @ right.mH) @ right
        of_right = of_right + (left.mH @ rest) / values.unsqueeze(-1)
    return left + of_left, values + inner.diagonal(0, -2, -1).real, right + of_right


def _qr(self: Complex, mode: str = "reduced") -> tuple[Complex, Complex]:
    """A unitary times an upper triangular matrix."""
    check_matrix("qr", self, is_square=False)
    array = self.detach().numpy()
    if mode == "r":
        return self.new_zeros(0), _qr(self)[1]
    factors: Any = numpy.linalg.qr(array, "complete" if mode == "complete" else "reduced")
    unitary, upper = map(tensor, factors)
    change = _change(self)
    if change is None:
        return unitary, upper
    rows, columns = self.shape[-2:]
    if rows < columns or (mode == "complete" and rows > columns):
        raise UnsupportedError(
            "linalg.qr: there is no gradient of wide matrices, and none of mode='complete'",
            remedy="mode='reduced' of matrices with as many rows as columns, or more",
        )
    inverse = upper.inv()
    inner = unitary.mH @ change @ inverse
    lower = inner.tril(-1)
    # Change of the columns' phases: R keeps a real diagonal.
    rotation = lower - lower.mH + 1j * inner.diagonal(0, -2, -1).imag.diag_embed()
    of_unitary = unitary @ rotation + (change - unitary @ (unitary.mH @ change)) @ inverse
    return unitary + of_unitary, upper + (inner - rotation) @ upper


def _lu_factor(self: Complex) -> tuple[Complex, Tensor]:
    """Both factors of `lu` in one matrix, and the order of the rows."""
    packed, pivots = packed_factors("lu_factor", self)
    return packed, tensor(order_from(pivots.numpy(), self.shape[-2]).astype(numpy.int32))


def _lu(self: Complex, pivot: bool = True, get_infos: bool = False) -> tuple[Any, ...]:
    """The factors in one matrix, and with which row each was exchanged; with `get_infos` zeros."""
    found = packed_factors("lu", self)
    return (*found, found[1].new_zeros(self.shape[:-2])) if get_infos else found


def _lu_solve(self: Complex, LU_data: Any, LU_pivots: Any) -> Complex:
    """The X of A X = self, by what `lu` gave of A."""
    order = tensor(order_from(LU_pivots.detach().numpy(), self.shape[-2]).astype(numpy.int32))
    found: Complex = lu_solved(as_complex(LU_data), order, self)
    return found


def lu_solved(packed: Any, order: Any, right: Any) -> Any:
    """The X of A X = right, by packed factors and the order of their rows."""
    batch = numpy.broadcast_shapes(packed.shape[:-2], right.shape[:-2])
    wide = right.expand(*batch, *right.shape[-2:])
    index = order.long().unsqueeze(-1)
    rows = wide.gather(-2, index.expand(*batch, *right.shape[-2:]))
    half = packed.solve_triangular(rows, upper=False, unitriangular=True)
    return packed.solve_triangular(half, upper=True)


def _solve_triangular(
    self: Complex, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Complex:
    """The X of A X = B, or without `left` of X A = B, for a triangular A."""
    check_matrix("solve_triangular", self)
    if not left:
        given = as_complex(B).mT
        found: Complex = _solve_triangular(
            self.mT, given, upper=not upper, unitriangular=unitriangular
        )
        return found.mT
    size = self.shape[-1]
    if unitriangular:
        triangle = self.triu(1) if upper else self.tril(-1)
        triangle = triangle + identity(self, size)
    else:
        triangle = self.triu() if upper else self.tril()
    solved: Complex = triangle.solve(B)
    return solved


def _cholesky_solve(self: Complex, L: Any, upper: bool = False) -> Complex:
    """The X of A X = self, where A is L L^H, or L^H L with `upper`."""
    factor = as_complex(L)
    first, last = (factor.mH, factor) if upper else (factor, factor.mH)
    half = first.solve_triangular(self, upper=False)
    found: Complex = last.solve_triangular(half, upper=True)
    return found


def _cholesky_inverse(self: Complex, upper: bool = False) -> Complex:
    """The inverse of A = L L^H for this triangle L, or of L^H L with `upper`."""
    check_matrix("cholesky_inverse", self)
    unit = identity(self, self.shape[-1]).expand(*self.shape)
    return _cholesky_solve(unit, self, upper)


_FACTORS: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky, "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve, "eigh": _eigh, "lu": _lu, "lu_factor": _lu_factor,
    "lu_solve": _lu_solve, "qr": _qr,
    "solve_triangular": _solve_triangular, "svd": _svd, "_cholesky_ex": _cholesky_ex,
}  # fmt: skip


def add_factors() -> None:
    """Give complex tensors the methods of this file."""
    for name, method in _FACTORS.items():
        setattr(Complex, name, called(method, name))
