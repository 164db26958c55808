"""`torch.linalg`: factorisations and solutions, with named results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import indefinite
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.autocast_methods import from_float32, without_autocast
from tilegrad.torch.complex import Complex
from tilegrad.torch.complexes import from_numpy
from tilegrad.torch.eigenvalues import eig, eigvals
from tilegrad.torch.linalg_results import (
    Eigh,
    Factor,
    Inverse,
    LdlFactor,
    LdlFactorWithInfo,
    LeastSquares,
    LogDet,
    Lu,
    LuFactor,
    LuFactorWithInfo,
    Qr,
    Result,
    Svd,
)
from tilegrad.torch.lu_factors import factors_of, unpacked
from tilegrad.torch.methods import FACTORS_FROM_FLOAT32, LinAlgError
from tilegrad.torch.pivots import order_of
from tilegrad.torch.tensor import Tensor, as_ours, with_ours
from tilegrad.torch.thread_modes import autocast_dtype

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank",
    "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular",
    "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular factor L of A = L L^T, from the lower triangle of A; with `upper` L^T, from
    the upper one.
    """
    return A.cholesky(upper)


def _info(found: Any, axes: int = 2) -> Any:
    good = found.detach().isfinite()
    return (~good.all(tuple(range(-axes, 0)))).int()


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Factor:
    """As `cholesky`, which says in `info` where it failed instead of raising."""
    found = cholesky(A, upper=upper) if check_errors else _lazily(A, "cholesky", upper)
    return Factor(found, _info(found))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Inverse:
    """As `inv`, which says in `info` where it failed instead of raising."""
    found = inv(A) if check_errors else _lazily(A, "inv")
    return Inverse(found, _info(found))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Result:
    """As `solve`, which says in `info` where it failed instead of raising."""
    is_vector = B.ndim == 1 or (left and _is_batch_of_vectors(A, B))
    if check_errors:
        found = solve(A, B, left=left)
    elif left and _is_batch_of_vectors(A, B):
        found = _lazily(A, "solve", B.unsqueeze(-1)).squeeze(-1)
    else:
        found = _lazily(A, "solve", B) if left else _lazily(A.mT, "solve", B.mT).mT
    return Result(found, _info(found, 1 if is_vector else 2))


def _is_batch_of_vectors(A: Any, B: Any) -> bool:
    return bool(B.ndim > 1 and B.shape == A.shape[:-1])


def _lazily(A: Any, name: str, *args: Any) -> Any:
    """The result of a method of tilegrad's own, which raises nothing."""
    return A._lazily(name, *args) if isinstance(A, Complex) else getattr(OurTensor, name)(A, *args)


def _by_lower(name: str, A: Any, UPLO: str) -> Any:
    """Matrices whose lower triangles are those, or the upper ones, of `A`."""
    if UPLO not in ("L", "l", "U", "u"):
        raise RuntimeError(f"linalg.{name}: UPLO is L or U, not {UPLO}")
    return A.mT.conj() if UPLO in ("U", "u") else A


def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues and eigenvectors of symmetric matrices, from one triangle."""
    given = _by_lower("eigh", A, UPLO)
    return Eigh(*(A.eigh(UPLO) if isinstance(A, Complex) else given.eigh()))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices, from one triangle."""
    return _by_lower("eigvalsh", A, UPLO).eigvalsh()  # type: ignore[no-any-return]


def _without_gradient(name: str, A: Any) -> Any:
    """The values of matrices of any kind, computed now.

    Raises RuntimeError for what requires a gradient: the decomposition has none here.
    """
    if A.requires_grad:
        raise RuntimeError(f"linalg.{name}: detach() the matrices: it has no gradient")
    return A.numpy()


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Svd:
    """The singular value decomposition."""
    return Svd(*A.svd(full_matrices))


def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values."""
    return A.svdvals()


def qr(A: Tensor, mode: str = "reduced") -> Qr:
    """An orthogonal times a triangular matrix."""
    if mode == "r" and not isinstance(A, Complex):
        return Qr(A.new_zeros(0), A.qr("reduced")[1])
    return Qr(*A.qr(mode))


def _check_pivot(name: str, pivot: bool) -> None:
    if not pivot:
        raise RuntimeError(f"linalg.{name}: LU without pivoting is not implemented on the CPU")


def lu(A: Tensor, *, pivot: bool = True) -> Lu:
    """A permutation, a lower and an upper triangular matrix."""
    _check_pivot("lu", pivot)
    if not isinstance(A, Complex) and A.ndim > 1 and A.shape[-1] == A.shape[-2]:
        return Lu(*OurTensor.lu(A))
    return Lu(*unpacked(*factors_of("linalg.lu", A)))


def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """A lower and an upper triangular matrix in one, and with which row each was exchanged, counted
    from 1.
    """
    _check_pivot("lu_factor", pivot)
    return LuFactor(*factors_of("linalg.lu_factor", A))


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solution of A X = B by what `lu_factor` gave of A; of A^H X = B with `adjoint`, and of
    X A = B without `left`.
    """
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    if not adjoint:
        return B.lu_solve(LU, pivots)
    y: Any = LU.triu().mH.solve_triangular(B, upper=False)
    z: Any = LU.tril().mH.solve_triangular(y, upper=True, unitriangular=True)
    order = order_of(pivots).argsort(-1).unsqueeze(-1)
    return z.gather(-2, order.expand(*z.shape))  # type: ignore[no-any-return]


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LuFactorWithInfo:
    """As `lu_factor`, which says in `info` where U has a 0 on its diagonal."""
    _check_pivot("lu_factor", pivot)
    packed, pivots = factors_of("linalg.lu_factor_ex", A)
    is_zero = packed.detach().diagonal(0, -2, -1) == 0
    info = is_zero.any(-1).where(is_zero.int().argmax(-1) + 1, 0).int()
    if check_errors and info.any().item():
        raise LinAlgError("linalg.lu_factor_ex: U has a 0 on its diagonal")
    return LuFactorWithInfo(packed, pivots, info)


def ldl_factor_ex(
    A: Any, *, hermitian: bool = False, check_errors: bool = False
) -> LdlFactorWithInfo:
    """Factors of symmetric matrices A = L D L^T, from their lower triangles, with rows exchanged
    and blocks of one or two rows, as LAPACK packs them; by NumPy, without gradients.
    """
    array = _without_gradient("ldl_factor", A)
    size = array.shape[-1]
    made = [indefinite.factor(each) for each in array.reshape(-1, size, size)]
    packed, pivots, info = (numpy.array([each[at] for each in made]) for at in range(3))
    if check_errors and info.any():
        raise LinAlgError("linalg.ldl_factor_ex: D is singular")
    return LdlFactorWithInfo(
        from_numpy(packed.astype(array.dtype).reshape(array.shape)),
        from_numpy(pivots.astype(numpy.int32).reshape(array.shape[:-1])),
        from_numpy(info.astype(numpy.int32).reshape(array.shape[:-2])),
    )


def ldl_factor(A: Any, *, hermitian: bool = False) -> LdlFactor:
    """As `ldl_factor_ex`.

    Raises LinAlgError for a singular D.
    """
    found = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return LdlFactor(found.LD, found.pivots)


def ldl_solve(LD: Any, pivots: Any, B: Any, *, hermitian: bool = False) -> Any:
    """The X of A X = B by what `ldl_factor` gave of A."""
    packed, order, right = (_without_gradient("ldl_solve", each) for each in (LD, pivots, B))
    batch = numpy.broadcast_shapes(packed.shape[:-2], right.shape[:-2])
    size, columns = right.shape[-2:]
    found = [
        indefinite.solve(*each)
        for each in zip(
            numpy.broadcast_to(packed, (*batch, size, size)).reshape(-1, size, size),
            numpy.broadcast_to(order, (*batch, size)).reshape(-1, size),
            numpy.broadcast_to(right, (*batch, size, columns)).reshape(-1, size, columns),
        )
    ]
    return from_numpy(numpy.array(found, right.dtype).reshape(*batch, size, columns))


def slogdet(A: Tensor) -> LogDet:
    """The sign and the logarithm of the magnitude of the determinant."""
    return LogDet(*A.slogdet())


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The X for which A X is next to B."""
    solution, residuals, rank, singular = A.lstsq(B, rcond)
    # As many equations as unknowns leave no residuals.
    residuals = residuals if A.shape[-2] > A.shape[-1] else residuals.new_zeros(0)
    # As LAPACK's drivers: which of them finds ranks and singular values.
    rank = rank.cast(dtypes.int64) if driver != "gels" else rank.new_zeros(0, dtype=dtypes.int64)
    singular = singular if driver in ("gelsd", "gelss") else singular.new_zeros(0)
    return LeastSquares(solution, residuals, rank, singular)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X of A X = B, or of X A = B. `B` of the shape of `A` without its last axis holds a vector
    for each matrix.
    """
    if left and _is_batch_of_vectors(A, B):
        return A.solve(B.unsqueeze(-1)).squeeze(-1)
    return A.solve(B) if left else A.mT.solve(B.mT).mT


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The X of A X = B for a triangular A."""
    return A.solve_triangular(B, upper=upper, left=left, unitriangular=unitriangular)


def norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of vectors, or of matrices where there are two axes and `ord` says which."""
    x: Any = A if dtype is None else A.to(dtype)
    axes = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    if ord is None:
        return vector_norm(x, 2, axes, keepdim)
    is_matrix = (isinstance(axes, tuple) and len(axes) == 2) or (axes is None and x.ndim == 2)
    if is_matrix:
        return matrix_norm(x, ord, axes or (-2, -1), keepdim)
    return vector_norm(x, ord, axes, keepdim)


def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The norm of vectors."""
    given = x if dtype is None else x.to(dtype)
    axes = tuple(dim) if isinstance(dim, list) else dim
    return given.vector_norm(ord, None if axes == () else axes, keepdim)


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of matrices."""
    given = A if dtype is None else A.to(dtype)
    is_empty = given.ndim > 1 and not all(given.shape[axis] for axis in dim)
    if is_empty and ord in (1, 2, math.inf):
        # The norm of a matrix without elements is 0.
        return given.abs().sum(tuple(dim), keepdim)
    last = tuple(axis % given.ndim for axis in dim) == (given.ndim - 2, given.ndim - 1)
    if last:
        return given.matrix_norm(ord, keepdim)
    found = given.movedim(tuple(dim), (-2, -1)).matrix_norm(ord, keepdim)
    return found.movedim((-2, -1), tuple(dim)) if keepdim else found


def _least(A: Any, largest: Any, atol: Any, rtol: Any) -> Any:
    """The lower bound of singular values with the given `largest`: `atol`, or `rtol` times that.
    Without an `atol` above 0, `rtol` is by default the larger size times the epsilon.
    """
    eps = max(A.shape[-2:]) * 2.0 ** -dtypes.finfo(largest.dtype)[1]
    atol, rtol = (
        each.unsqueeze(-1) if isinstance(each, OurTensor) and each.ndim else each
        for each in (atol, rtol)
    )
    if rtol is None and isinstance(atol, OurTensor):
        rtol = (atol > 0).where(0.0, eps)
    elif rtol is None:
        rtol = 0.0 if atol else eps
    least = largest * rtol
    return least if atol is None else least.maximum(atol)


def matrix_rank(
    A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """The number of singular values that are not next to 0: above `atol` and `rtol` times the
    largest; `tol` is another name of `atol`. Only the lower triangle of `hermitian` matrices is
    read.
    """
    found = A.detach()
    values: Any = found.eigvalsh().abs() if hermitian else found.svdvals()
    if not values.numel():
        return values.sum(-1).long()  # type: ignore[no-any-return]
    least = _least(A, values.amax(-1, keepdim=True), tol if atol is None else atol, rtol)
    return (values > least).sum(-1).long()  # type: ignore[no-any-return]


def pinv(
    A: Tensor,
    rcond: Any = None,
    *,
    atol: Any = None,
    rtol: Any = None,
    hermitian: bool = False,
) -> Tensor:
    """The pseudoinverse, rounded in `autocast`; `rcond` is another name of `rtol`. Only the lower
    triangle of `hermitian` matrices is read.
    """
    rtol = rcond if rtol is None else rtol
    if (atol is None and not hermitian and not isinstance(rtol, OurTensor)) or not A.numel():
        plain = Complex.pinv if isinstance(A, Complex) else OurTensor.pinv
        found = without_autocast(plain)(A, rtol)
    else:
        found = without_autocast(_pinv)(A, atol, rtol, hermitian)
    kind = None if isinstance(found, Complex) else autocast_dtype()
    rounded: Tensor = as_ours(found).cast(kind or found.dtype)
    return rounded


def _pinv(A: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """As `pinv`, by the singular values, or the eigenvalues."""
    if hermitian:
        values, right = A.eigh()
        left = right
    else:
        left, values, right = A.svd(False)
        right = right.mH
    sizes = values.detach().abs()
    is_above = sizes > _least(A, sizes.amax(-1, keepdim=True), atol, rtol)
    factors = is_above.where(1 / is_above.where(values, 1.0), 0.0)
    return (right * factors.unsqueeze(-2)) @ left.mH


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, in the order that takes the least work."""
    first, *others = [as_ours(each) for each in tensors]
    return with_ours(Tensor.multi_dot(first, *others))  # type: ignore[no-any-return]


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector that stands upright on two."""
    return input.cross(other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices."""
    return A.diagonal(offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of products along an axis."""
    return x.vecdot(y, dim)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0, 1, ... of each element."""
    return (x if x.ndim else x.reshape(1)).vander(N, increasing=True)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in a norm."""
    if A.ndim > 1 and 0 in A.shape[-2:]:
        # A matrix without elements has the norm 0.
        return A.abs().sum((-2, -1))
    return A.cond(p)


def det(A: Tensor) -> Tensor:
    """The determinant."""
    return A.det()


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The product of reflections, whose vectors stand below the diagonal of A."""
    return A.householder_product(tau)


def inv(A: Tensor) -> Tensor:
    """The inverse."""
    return A.inv()


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The product of matrices."""
    return input.matmul(other)


def matrix_exp(A: Tensor) -> Tensor:
    """The sum of A^k / k!."""
    return A.matrix_exp()


def matrix_power(A: Tensor, n: int) -> Tensor:
    """The n-th power, of the inverse where n is negative."""
    return A.matrix_power(n)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor, whose first `ind` axes are the rows."""
    return A.tensorinv(ind)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """The X for which tensordot(A, X, X.ndim) is B."""
    return A.tensorsolve(B, dims)


if not TYPE_CHECKING:
    globals().update({name: from_float32(globals()[name]) for name in FACTORS_FROM_FLOAT32})

refuse_others(__name__)
