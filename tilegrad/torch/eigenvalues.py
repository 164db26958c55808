"""Eigenvalues and eigenvectors of square matrices of any kind, which NumPy computes at once."""

from __future__ import annotations

from typing import Any

import numpy

from tilegrad.torch.complex import as_complex
from tilegrad.torch.complexes import from_numpy
from tilegrad.torch.linalg_results import Eig

__all__ = ["eig", "eigvals"]

_NO_NUMBER = complex(numpy.nan, numpy.nan)


def eig(A: Any) -> Eig:
    """Eigenvalues and eigenvectors of any square matrices, by NumPy, with gradients of first order
    where the eigenvalues of a matrix differ.
    """
    array = A.detach().numpy()
    is_wide = array.dtype in (numpy.float64, numpy.complex128)
    kind = numpy.complex128 if is_wide else numpy.complex64
    is_known = numpy.isfinite(array).all((-2, -1), keepdims=True)
    values, vectors = numpy.linalg.eig(numpy.where(is_known, array, 0))
    # A matrix with an infinite number, or with NaN, has no eigenvalues; the others have theirs.
    values = numpy.where(is_known[..., 0], values, _NO_NUMBER)
    vectors = numpy.where(is_known, vectors, _NO_NUMBER)
    found = Eig(from_numpy(values.astype(kind)), from_numpy(vectors.astype(kind)))
    return _with_change(A, found) if A.requires_grad and array.size else found


def eigvals(A: Any) -> Any:
    """Eigenvalues of any square matrices, by NumPy, with gradients of first order."""
    return eig(A).eigenvalues


def _with_change(A: Any, found: Eig) -> Eig:
    """Eigenvalues and eigenvectors and how they change with the matrix, which is 0 here and has the
    gradient. The eigenvectors keep their length.
    """
    values, columns = found
    change = as_complex(A - A.detach())
    inner = columns._lazily("inv") @ change @ columns
    apart = values.unsqueeze(-2) - values.unsqueeze(-1)
    is_same = apart.abs() == 0
    factors = (apart + is_same).reciprocal() * is_same.logical_not()
    rotated = columns @ (inner * factors)
    lengths = (columns.conj() * rotated).sum(-2, keepdim=True).real
    return Eig(values + inner.diagonal(0, -2, -1), columns + rotated - columns * lengths)
