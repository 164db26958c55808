"""LU factors of matrices of any shape, real or complex: rows are exchanged as LAPACK does it.

The elimination is computed at once by NumPy. The gradient is that of the factors' first-order
change: with P the exchanges, C the change of P A, and L, U of the leading square block,

    X = L^-1 C U^-1     dL = L tril(X, -1)     dU = triu(X) U

and the rest of a wide or a tall matrix follows from these. Second derivatives are not there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.torch.pivots import pivots_of

__all__ = ["eliminated", "factors_of", "lu_changes", "order_from", "packed_factors", "unpacked"]


def eliminated(array: Any) -> tuple[Any, Any]:
    """The factors of matrices in one, and with which row each was exchanged, counted from 1."""
    rows, columns = array.shape[-2:]
    found = numpy.array(array).reshape(math.prod(array.shape[:-2]), rows, columns)
    batch = numpy.arange(len(found))
    pivots = numpy.zeros((len(found), min(rows, columns)), numpy.int32)
    for step in range(min(rows, columns)):
        column = found[:, step:, step]
        # As LAPACK, which adds the magnitudes of the parts.
        at = step + (numpy.abs(column.real) + numpy.abs(column.imag)).argmax(-1)
        pivots[:, step] = at + 1
        found[batch, step], found[batch, at] = found[batch, at].copy(), found[batch, step].copy()
        pivot = found[:, step, step][:, None]
        below = found[:, step + 1 :, step]
        below[...] = numpy.where(pivot == 0, below, below / numpy.where(pivot == 0, 1, pivot))
        found[:, step + 1 :, step + 1 :] -= below[:, :, None] * found[:, None, step, step + 1 :]
    return found.reshape(array.shape), pivots.reshape(*array.shape[:-2], min(rows, columns))


def order_from(pivots: Any, rows: int) -> Any:
    """The order of `rows` rows in which exchanges end."""
    batch = pivots.shape[:-1]
    flat = numpy.asarray(pivots).reshape(math.prod(batch), pivots.shape[-1])
    order = numpy.tile(numpy.arange(rows), (len(flat), 1))
    for which, exchanges in enumerate(flat):
        for step, other in enumerate(exchanges):
            order[which, [step, other - 1]] = order[which, [other - 1, step]]
    return order.reshape(*batch, rows)


def packed_factors(name: str, A: Any) -> tuple[Any, Any]:
    """The factors of `A` in one matrix, with their gradients, and the exchanges."""
    if A.ndim < 2:
        raise ShapeError(f"{name}: {show_shape(A.shape)} is no matrix")
    packed, pivots = eliminated(A.detach().numpy())
    found, exchanges = _made(A, packed), _made(A, pivots)
    if not A.requires_grad or not packed.size:
        return found, exchanges
    order = _made(A, order_from(pivots, A.shape[-2])).long()
    change = A - A.detach()
    index = order.unsqueeze(-1).expand(*change.shape)
    return found + lu_changes(found, change.gather(-2, index)), exchanges


def lu_changes(packed: Any, change: Any) -> Any:
    """How the packed factors change with the matrix whose rows are exchanged."""
    rows, columns = packed.shape[-2:]
    size = min(rows, columns)
    core = packed[..., :size, :size]
    unit = core.tril(-1)
    lower = unit + core.new_ones(size).diag()
    lower_inverse, upper_inverse = lower.inv(), core.triu().inv()
    inner = lower_inverse @ change[..., :size, :size] @ upper_inverse
    change_of_lower, change_of_upper = lower @ inner.tril(-1), inner.triu() @ core.triu()
    found = change_of_lower + change_of_upper
    if columns > rows:
        rest = change[..., size:] - change_of_lower @ packed[..., size:]
        found = found.cat(lower_inverse @ rest, dim=-1)
    if rows > columns:
        rest = change[..., size:, :] - packed[..., size:, :] @ change_of_upper
        found = found.cat(rest @ upper_inverse, dim=-2)
    return found


def _made(A: Any, array: Any) -> Any:
    """A tensor of an array of numbers, or of integers, beside `A`."""
    if array.dtype.kind != "i":
        return A.detach().new_tensor(array)
    beside = A.pair if hasattr(A, "pair") else A
    return beside.detach().new_tensor(array, dtype=dtypes.int32)


def factors_of(name: str, A: Any) -> tuple[Any, Any]:
    """A lower and an upper triangular matrix in one, and with which row each was exchanged, counted
    from 1: of real square matrices in a kernel, of others by NumPy.
    """
    is_real = not hasattr(A, "pair")
    if is_real and A.ndim > 1 and A.shape[-1] == A.shape[-2]:
        packed, order = A.lu_factor()
        return packed, packed._adopt(pivots_of(order))
    return packed_factors(name, A)


def unpacked(packed: Any, pivots: Any) -> tuple[Any, Any, Any]:
    """A permutation, a lower and an upper triangular matrix: A = P L U."""
    rows, columns = packed.shape[-2:]
    size = min(rows, columns)
    unit = packed.new_ones(size).diag()
    if rows > size:
        unit = unit.cat(packed.new_zeros(rows - size, size), dim=0)
    lower = packed[..., :size].tril(-1) + unit
    order = order_from(pivots.detach().numpy(), rows)
    spots = (order[..., None, :] == numpy.arange(rows)[:, None]).astype(numpy.float32)
    return packed.detach().new_tensor(spots), lower, packed[..., :size, :].triu()
