"""`torch.sparse`: new sparse tensors, and functions of them (sparse_tensor.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import IndexBoundsError, KindError, ShapeError, UnsupportedError
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.sparse_tensor import CSR, Sparse
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "Sparse", "addmm", "log_softmax", "mm", "softmax", "sparse_coo_tensor", "sparse_csr_tensor",
    "sum",
]  # fmt: skip


def _indices_of(name: str, indices: Any) -> Tensor:
    found = as_ours(indices) if isinstance(indices, OurTensor) else tensor(indices)
    if found.dtype.is_float:
        raise KindError(f"{name}: indices are integers, not {found.dtype.name}")
    return found.long()


def _values_of(values: Any, dtype: DType | None, device: Any) -> Tensor:
    found = as_ours(values) if isinstance(values, OurTensor) else tensor(values)
    return found if dtype is None and device is None else found.to(device, dtype)


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Sparse:
    """A sparse tensor with `values` at `indices`, (axes, number); what stands twice is added. With
    a `size` alone it is empty, and so it is if that is given for `indices`.

    Raises ShapeError for shapes that do not fit, IndexBoundsError for an index outside of `size`.
    """
    if values is None and (size is not None or isinstance(indices, tuple)):
        size = indices if size is None else size
        indices, values = numpy.empty((len(size), 0), numpy.int64), numpy.empty(0, numpy.float32)
    positions = _indices_of("sparse_coo_tensor", indices)
    present = _values_of(values, dtype, device)
    if positions.ndim != 2 or positions.shape[1] != (present.shape[0] if present.ndim else 1):
        raise ShapeError(
            f"sparse_coo_tensor: indices {show_shape(positions.shape)} for values "
            f"{show_shape(present.shape)}",
            rule="(axes, number) and (number, ...)",
        )
    present = present if present.ndim else present.reshape(1)
    axes = positions.shape[0]
    array = positions.numpy()
    largest = array.max(1, initial=-1)
    shape = (*(int(most) + 1 for most in largest), *present.shape[1:]) if size is None else size
    if len(shape) != axes + present.ndim - 1 or tuple(shape[axes:]) != tuple(present.shape[1:]):
        raise ShapeError(
            f"sparse_coo_tensor: size {tuple(shape)} for {axes} sparse axes and values "
            f"{show_shape(present.shape)}"
        )
    if array.size and (array.min() < 0 or (largest >= numpy.array(shape[:axes])).any()):
        raise IndexBoundsError(f"sparse_coo_tensor: an index outside of {tuple(shape)}")
    made = Sparse(positions, present, shape, is_coalesced=bool(is_coalesced))
    return made.requires_grad_() if requires_grad else made


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Sparse:
    """A sparse matrix by rows: row i has the values from `crow_indices[i]` to the next one, in the
    columns of `col_indices`.

    Raises ShapeError where the ends of rows do not fit the values.
    """
    ends = _indices_of("sparse_csr_tensor", crow_indices).numpy()
    columns = _indices_of("sparse_csr_tensor", col_indices)
    counts = numpy.diff(ends)
    if ends.ndim != 1 or not len(ends) or (counts < 0).any() or ends[-1] != columns.shape[0]:
        raise ShapeError(
            f"sparse_csr_tensor: rows end at {ends.tolist()}, there are {columns.shape[0]} columns"
        )
    rows = tensor(numpy.repeat(numpy.arange(len(counts)), counts), dtype=dtypes.int64)
    shape = (len(counts), int(columns.max().item()) + 1 if len(columns) else 0)
    made = sparse_coo_tensor(
        rows.stack(columns), values, shape if size is None else size, dtype=dtype, device=device
    )
    made.layout, made._is_coalesced = CSR, True
    return made.requires_grad_() if requires_grad else made


def mm(sparse: Any, dense: Any, reduce: str = "sum") -> Any:
    """The product of a sparse matrix with a dense one, or with a sparse one."""
    if reduce != "sum":
        raise UnsupportedError(
            f"sparse.mm: reduce={reduce!r}", known="'sum'",
            remedy="x.index_reduce of the picked rows"
        )  # fmt: skip
    return sparse @ dense


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """beta * mat + alpha * mat1 @ mat2, with a sparse `mat1`."""
    return (mat1 @ mat2) * alpha + mat * beta


def sum(input: Sparse, dim: Any = None, dtype: DType | None = None) -> Any:
    """The sum of all, or over axes: dense over all sparse ones, else sparse."""
    return input.sum(dim, dtype)


def _normalised(name: str, input: Sparse, dim: int, dtype: DType | None) -> Sparse:
    whole = (input if dtype is None else input.to(dtype)).coalesce()
    axis = input._axis(name, dim)
    if axis >= whole.sparse_dim():
        values: Any = getattr(whole.pair, name)(axis - whole.sparse_dim() + 1)
        return whole._with(values)
    # One row for each position of the other sparse axes.
    others = [row for at, row in enumerate(whole._positions.unbind(0)) if at != axis]
    sizes = [size for at, size in enumerate(whole.shape[: whole.sparse_dim()]) if at != axis]
    index: Any = whole._positions[0] * 0
    for at, row in enumerate(others):
        index = index + row * math.prod(sizes[at + 1 :])
    count, values = math.prod(sizes), whole.pair
    wide = index.reshape(-1, *[1] * (values.ndim - 1)).expand(values.shape)
    top = values.new_full((count, *values.shape[1:]), -math.inf)
    shift = top.scatter_reduce(0, wide, values.detach(), "amax").index_select(0, index)
    shifted = values - shift
    powers = shifted.exp()
    total = powers.new_zeros((count, *values.shape[1:])).index_add(0, index, powers)
    rows = total.index_select(0, index)
    return whole._with(powers / rows if name == "softmax" else shifted - rows.log())


def softmax(input: Sparse, dim: int, *, dtype: DType | None = None) -> Sparse:
    """The softmax along an axis of the present elements: the others count as minus infinity."""
    return _normalised("softmax", input, dim, dtype)


def log_softmax(input: Sparse, dim: int, *, dtype: DType | None = None) -> Sparse:
    """The logarithm of `softmax`."""
    return _normalised("log_softmax", input, dim, dtype)


refuse_others(__name__)
