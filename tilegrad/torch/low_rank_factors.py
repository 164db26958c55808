"""Few singular values, components or eigenvalues of large matrices."""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.tensor import Tensor

__all__ = ["lobpcg", "pca_lowrank", "svd_lowrank"]


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of the singular value decomposition U diag(S) V^T next to A, or to A - M, of rank
    `q`: in the range of A times random vectors, turned to that of A A^T `niter` times (Halko,
    Martinsson and Tropp, "Finding structure with randomness", 2009, algorithms 4.4 and 5.1).
    """
    matrix: Any = A if M is None else A - M
    count = min(6 if q is None else q, *matrix.shape[-2:])
    is_wide = matrix.shape[-2] < matrix.shape[-1]
    tall = matrix.mT if is_wide else matrix
    start = OurTensor.randn(*tall.shape[:-2], tall.shape[-1], count, dtype=tall.dtype)
    basis = (tall @ start).qr("reduced")[0]
    for _ in range(2 if niter is None else niter):
        basis = (tall @ (tall.mT @ basis).qr("reduced")[0]).qr("reduced")[0]
    left, values, right = (basis.mT @ tall).svd(False)
    U, V = basis @ left, right.mT
    return (V, values, U) if is_wide else (U, values, V)


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of `svd_lowrank`; with `center` of A less the mean of its rows. The columns of V
    are the principal directions.

    Raises ValueError for a `q` above the sizes of A, or a negative `niter`.
    """
    least = min(A.shape[-2:])
    if q is not None and not 0 <= q <= least:
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than {least}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    centred = A - A.mean(dim=-2, keepdim=True) if center else A
    return svd_lowrank(centred, min(6, least) if q is None else q, niter)


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The `k` largest eigenvalues of a symmetric A, or with `largest=False` the smallest, and their
    vectors as columns: the x of A x = e B x. All eigenvalues are computed, whatever says how to
    iterate to a few; matrices are dense here.

    Raises ValueError unless A has at least 3 k rows.
    """
    count = k or n or (1 if X is None else int(X.shape[-1]))
    if A.shape[-1] < 3 * count:
        raise ValueError(
            f"lobpcg: A has {A.shape[-1]} rows, fewer than 3 x {count} eigenvalues; linalg.eigh "
            "gives all"
        )
    matrix: Any = A
    if B is not None:
        lower: Any = B.cholesky()
        half = lower.solve_triangular(matrix, upper=False)
        matrix = lower.solve_triangular(half.mT, upper=False)
    values, vectors = matrix.eigh()
    if B is not None:
        vectors = lower.mT.solve_triangular(vectors, upper=True)
    if largest is None or largest:
        return values[..., -count:].flip(-1), vectors[..., -count:].flip(-1)
    return values[..., :count], vectors[..., :count]
