"""Named results of `torch.linalg`, which print as PyTorch's `torch.return_types`."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "Eig", "Eigh", "Factor", "Inverse", "LdlFactor", "LdlFactorWithInfo", "LeastSquares", "LogDet",
    "Lu", "LuFactor", "LuFactorWithInfo", "Qr", "Result", "Svd",
]  # fmt: skip


def _shown(name: str, found: Any) -> str:
    """A named result as it prints."""
    fields = ",\n".join(f"{key}={value!r}" for key, value in found._asdict().items())
    return f"torch.return_types.linalg_{name}(\n{fields})"


class Eigh(NamedTuple):
    """Eigenvalues in order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any

    def __repr__(self) -> str:
        return _shown("eigh", self)


class Eig(NamedTuple):
    """Eigenvalues, and the eigenvectors as columns; both complex."""

    eigenvalues: Any
    eigenvectors: Any

    def __repr__(self) -> str:
        return _shown("eig", self)


class Svd(NamedTuple):
    """U diag(S) Vh."""

    U: Any
    S: Any
    Vh: Any

    def __repr__(self) -> str:
        return _shown("svd", self)


class Qr(NamedTuple):
    """An orthogonal factor and a triangular one."""

    Q: Any
    R: Any

    def __repr__(self) -> str:
        return _shown("qr", self)


class Lu(NamedTuple):
    """A permutation, a lower triangular factor and an upper one."""

    P: Any
    L: Any
    U: Any

    def __repr__(self) -> str:
        return _shown("lu", self)


class LdlFactor(NamedTuple):
    """L and D in one matrix, and the pivots."""

    LD: Any
    pivots: Any

    def __repr__(self) -> str:
        return _shown("ldl_factor", self)


class LdlFactorWithInfo(NamedTuple):
    """Result of `ldl_factor_ex`; `info` is the first row without a pivot, or 0."""

    LD: Any
    pivots: Any
    info: Any


class LuFactor(NamedTuple):
    """Result of `lu_factor`."""

    LU: Any
    pivots: Any

    def __repr__(self) -> str:
        return _shown("lu_factor", self)


class LuFactorWithInfo(NamedTuple):
    """Result of `lu_factor_ex`; `info` is the first 0 on the diagonal of U, or 0."""

    LU: Any
    pivots: Any
    info: Any


class Result(NamedTuple):
    """Result of a function with `_ex`; `info` is 0 for each matrix that has such a solution, else
    1: it does not say in which row elimination failed.
    """

    result: Any
    info: Any


class Factor(NamedTuple):
    """Result of `cholesky_ex`; `info` as that of `Result`."""

    L: Any
    info: Any


class Inverse(NamedTuple):
    """Result of `inv_ex`; `info` as that of `Result`."""

    inverse: Any
    info: Any


class LogDet(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any

    def __repr__(self) -> str:
        return _shown("slogdet", self)


class LeastSquares(NamedTuple):
    """Result of `lstsq`."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any
