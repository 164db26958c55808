"""Sparse tensors: the positions and values of the elements that are present.

Sparse tensors are two dense ones, `indices` (an axis for each sparse axis) and `values`. Products
with dense matrices pick rows, multiply, and add up rows by `index_add`: the work is in proportion
to what is present, and gradients flow to the values and to the dense operand. Methods that change
which positions are present (`coalesce`, `to_sparse`) compute them at once. Rows in compressed form
(CSR) are such a tensor with another layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import IndexBoundsError, KindError, ShapeError, UnsupportedError, article
from tilegrad.nn.tree import Paired
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import Tensor, as_ours
from tilegrad.torch.tensor_printing import behind, member

__all__ = ["COO", "CSR", "Sparse", "sparse_of"]

COO, CSR = "torch.sparse_coo", "torch.sparse_csr"

_REFLECTED = ("__radd__", "__rsub__", "__rmul__", "__rtruediv__")
# Functions of each number that give 0 of 0.
_ZERO_TO_ZERO = (
    "abs", "asin", "asinh", "atan", "ceil", "deg2rad", "erf", "expm1", "floor", "log1p", "neg",
    "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
    "trunc",
)  # fmt: skip


class Sparse(Paired):
    """A tensor with `values` at `indices` and zeros elsewhere.

    >>> import tilegrad.torch as torch
    >>> s = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> s.indices().tolist(), s.values().tolist(), (s @ torch.ones(2)).tolist()
    ([[0, 1], [1, 0]], [2.0, 3.0], [2.0, 3.0])
    """

    is_sparse_csc = is_sparse_bsr = is_quantized = is_nested = is_cuda = is_meta = False
    __array_priority__ = 2000

    def __init__(
        self,
        indices: Tensor,
        values: Tensor,
        shape: Sequence[int],
        *,
        is_coalesced: bool = False,
        layout: str = COO,
    ):
        self._positions, self.pair = indices, values
        self.shape = Size(shape)
        self._is_coalesced = is_coalesced
        self.layout = layout

    # what is known without computing

    @property
    def is_sparse(self) -> bool:
        """Whether positions are present one by one, not by compressed rows."""
        return self.layout == COO

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the rows are compressed."""
        return self.layout == CSR

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        found: DType = self.pair.dtype
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to the values."""
        return self.pair.requires_grad  # type: ignore[no-any-return]

    @property
    def grad(self) -> Any:
        """The gradient, at the positions that are present."""
        found = self.pair.grad
        return None if found is None else self._with(found)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements, zeros among them."""
        return self.shape.numel()

    def sparse_dim(self) -> int:
        """The number of axes that `indices` has rows for."""
        return int(self._positions.shape[0])

    def dense_dim(self) -> int:
        """The number of axes of each value."""
        return self.ndim - self.sparse_dim()

    def is_coalesced(self) -> bool:
        """Whether positions are in order and none is present twice."""
        return self._is_coalesced

    def is_floating_point(self) -> bool:
        """Whether the values are floats."""
        return self.dtype.is_float

    def is_complex(self) -> bool:
        """False: the values are real."""
        return False

    def __len__(self) -> int:
        return int(self.shape[0])

    # positions and values

    def _nnz(self) -> int:
        return int(self._positions.shape[1])

    def _indices(self) -> Tensor:
        return self._positions

    def _values(self) -> Tensor:
        return self.pair  # type: ignore[no-any-return]

    def indices(self) -> Tensor:
        """The positions, (axes, number).

        Raises RuntimeError unless the tensor is coalesced.
        """
        self._check_coalesced("indices")
        return self._positions

    def values(self) -> Tensor:
        """The values in the order of `indices`.

        Raises RuntimeError unless the tensor is coalesced.
        """
        self._check_coalesced("values")
        return self.pair  # type: ignore[no-any-return]

    def crow_indices(self) -> Tensor:
        """Where each row begins among the values, and where the last one ends."""
        self._check_layout("crow_indices")
        rows, count = self._positions[0], self.shape[0]
        ends = tensor(numpy.arange(count + 1), dtype=dtypes.int64)
        found: Tensor = (rows.unsqueeze(0) < ends.unsqueeze(1)).sum(1)
        return found

    def col_indices(self) -> Tensor:
        """The column of each value."""
        self._check_layout("col_indices")
        found: Tensor = self._positions[1]
        return found

    def _check_coalesced(self, name: str) -> None:
        if not self._is_coalesced:
            raise UnsupportedError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
            )

    def _check_layout(self, name: str) -> None:
        if self.layout != CSR:
            raise UnsupportedError(f"{name}: the layout is {self.layout}", remedy="to_sparse_csr()")

    def _with(self, values: Tensor) -> Self:
        """Other values at the same positions."""
        return type(self)(
            self._positions, values, self.shape,
            is_coalesced=self._is_coalesced, layout=self.layout,
        )  # fmt: skip

    def _flat(self) -> Tensor:
        """The position of each value among the elements of the sparse axes."""
        sizes = self.shape[: self.sparse_dim()]
        total: Any = 0
        for axis, row in enumerate(self._positions.unbind(0)):
            total = total + row * math.prod(sizes[axis + 1 :])
        return total if isinstance(total, OurTensor) else self._positions.new_zeros(self._nnz())  # type: ignore[return-value]

    def coalesce(self) -> Self:
        """With the positions in order, and the values of equal ones added."""
        if self._is_coalesced:
            return self
        order, inverse = numpy.unique(self._flat().numpy(), return_inverse=True)
        sizes = self.shape[: self.sparse_dim()]
        positions = numpy.stack(numpy.unravel_index(order, sizes)) if sizes else order[:0]
        values = self.pair.new_zeros((len(order), *self.pair.shape[1:]))
        added = values.index_add(0, tensor(inverse.reshape(-1), dtype=dtypes.int64), self.pair)
        indices = tensor(positions.astype(numpy.int64).reshape(len(sizes), -1))
        return type(self)(indices, added, self.shape, is_coalesced=True)

    # other layouts

    def to_dense(self, dtype: DType | None = None) -> Tensor:
        """With all zeros."""
        sizes = self.shape[: self.sparse_dim()]
        inner = self.shape[self.sparse_dim() :]
        rows = self.pair.new_zeros((math.prod(sizes), *inner))
        made = rows.index_add(0, self._flat(), self.pair).reshape(self.shape)
        return made if dtype is None else made.to(dtype)  # type: ignore[no-any-return]

    def to_sparse(self, *arguments: Any, layout: str | None = None) -> Self:
        """This tensor, in a layout."""
        return self.to_sparse_csr() if layout == CSR else self.to_sparse_coo()

    def to_sparse_coo(self) -> Self:
        """With positions one by one."""
        return type(self)(self._positions, self.pair, self.shape, is_coalesced=self._is_coalesced)

    def to_sparse_csr(self) -> Self:
        """With compressed rows.

        Raises ShapeError for other than matrices.
        """
        if self.ndim != 2 or self.sparse_dim() != 2:
            raise ShapeError(f"to_sparse_csr: {show_shape(self.shape)} is no matrix")
        whole = self.coalesce()
        return type(self)(whole._positions, whole.pair, self.shape, is_coalesced=True, layout=CSR)

    def numpy(self) -> Any:
        """Raises TypeError: an array has zeros."""
        raise KindError("can't convert a sparse tensor to numpy", remedy="x.to_dense().numpy()")

    __array__ = tolist = numpy

    def detach(self) -> Self:
        """The same without gradients."""
        return self._with(self.pair.detach())

    def clone(self) -> Self:
        """A copy."""
        return self._with(self.pair.clone())

    def to(self, *args: Any, **options: Any) -> Self:
        """The same values on another device, or in another dtype."""
        return self._with(self.pair.to(*args, **options))

    def type_as(self, other: Any) -> Self:
        """In the dtype of another tensor."""
        return self._with(self.pair.to(other.dtype))

    def cuda(self, device: Any = None) -> Self:
        """The same on a GPU.

        Raises DeviceError where there is none.
        """
        return self._with(self.pair.cuda(device))

    # arithmetic

    def transpose(self, dim0: int, dim1: int) -> Self:
        """With two sparse axes exchanged."""
        axes = list(range(self.sparse_dim()))
        first, second = self._axis("transpose", dim0), self._axis("transpose", dim1)
        if max(first, second) >= len(axes):
            raise ShapeError("transpose: only sparse axes are exchanged")
        axes[first], axes[second] = axes[second], axes[first]
        sizes = list(self.shape)
        sizes[first], sizes[second] = sizes[second], sizes[first]
        positions = self._positions.index_select(0, tensor(axes))
        return type(self)(positions, self.pair, sizes)

    def _axis(self, name: str, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise IndexBoundsError(
                f"{name}: axis {dim} is out of range for a tensor with {self.ndim} axes"
            )
        return dim % self.ndim

    def t(self) -> Self:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    T = mT = property(t)

    def __neg__(self) -> Self:
        return self._with(-self.pair)

    def __mul__(self, other: Any) -> Self:
        if isinstance(other, Sparse):
            other = other.to_dense()
        if isinstance(other, OurTensor) and other.ndim:
            wide = as_ours(other).expand(self.shape)
            return self._with(self.pair * wide[tuple(self._positions.unbind(0))])
        return self._with(self.pair * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        if isinstance(other, Sparse) or (isinstance(other, OurTensor) and other.ndim):
            raise UnsupportedError(
                "division of a sparse tensor is by a number", remedy="x.to_dense() / y"
            )
        return self._with(self.pair / other)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sparse):
            return self.to_dense() + _dense("add", other)
        if other.shape != self.shape or other.sparse_dim() != self.sparse_dim():
            raise ShapeError(
                f"add: sparse tensors of shapes {show_shape(self.shape)} and "
                f"{show_shape(other.shape)}"
            )
        both = [each.unbind(0) for each in (self._positions, other._positions)]
        rows = [first.cat(second) for first, second in zip(*both)]
        values = self.pair.cat(other.pair)
        return type(self)(rows[0].stack(*rows[1:]), values, self.shape).coalesce()

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __pow__(self, exponent: Any) -> Self:
        whole = self.coalesce()
        return whole._with(whole.pair**exponent)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Sparse):
            return sparse_of(self @ other.to_dense())
        right = _dense("matmul", other)
        if self.ndim != 2 or self.sparse_dim() != 2 or right.ndim not in (1, 2):
            raise ShapeError(
                f"matmul: a sparse {show_shape(self.shape)} and {show_shape(right.shape)}",
                rule="a matrix times a matrix or a vector",
            )
        if self.shape[1] != right.shape[0]:
            raise ShapeError(f"matmul: inner sizes differ: {self.shape[1]} and {right.shape[0]}")
        rows, columns = self._positions.unbind(0)
        values = self.pair if right.ndim == 1 else self.pair.unsqueeze(1)
        terms = values * right.index_select(0, columns)
        return terms.new_zeros((self.shape[0], *right.shape[1:])).index_add(0, rows, terms)

    def __rmatmul__(self, other: Any) -> Any:
        left = _dense("matmul", other)
        return self.t() @ left if left.ndim == 1 else (self.t() @ left.t()).t()

    def _meets(self, name: str, left: Any) -> Any:
        """The result of the method `name` of a dense tensor for this one."""
        kind = name.strip("_").removeprefix("r" if name in _REFLECTED else "")
        if kind in ("matmul", "mm"):
            return self @ left if name in _REFLECTED else self.__rmatmul__(left)
        if kind == "add":
            return self + left
        if kind == "sub":
            return self - left if name in _REFLECTED else left - self.to_dense()
        if kind == "mul":
            return self * left
        raise UnsupportedError(f"{kind}: a dense tensor and a sparse one", remedy="x.to_dense()")

    def mv(self, vec: Any) -> Tensor:
        """The product with a vector."""
        found: Tensor = self @ vec
        return found

    def sum(self, dim: Any = None, dtype: DType | None = None) -> Any:
        """The sum of all, or over axes; over some sparse ones it is sparse."""
        whole = self if dtype is None else self.to(dtype)
        if dim is None:
            return whole.pair.sum()
        listed = dim if isinstance(dim, (tuple, list)) else (dim,)
        axes = sorted({self._axis("sum", axis) for axis in listed})
        count = self.sparse_dim()
        inner = [axis - count + 1 for axis in axes if axis >= count]
        values = whole.pair.sum(tuple(inner)) if inner else whole.pair
        rows = [axis for axis in range(count) if axis not in axes]
        sizes = [size for axis, size in enumerate(self.shape) if axis not in axes]
        if not rows:
            return values.sum(0)
        positions = self._positions.index_select(0, tensor(rows))
        made = Sparse(positions, values, sizes, is_coalesced=self._is_coalesced)
        return made if len(rows) == count else type(made)(positions, values, sizes).coalesce()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"sparse tensors have no {name!r}: x.to_dense() has, and x.values() of x.coalesce()",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        is_rows = self.layout == CSR
        arrays = {"indices": self._positions}
        if is_rows:
            arrays = {"crow_indices": self.crow_indices(), "col_indices": self.col_indices()}
        arrays["values"] = self.pair.detach()
        text = ",\n       ".join(member(name, array.numpy()) for name, array in arrays.items())
        name = getattr(self.dtype, "name", None) or str(self.dtype).removeprefix("torch.")
        ends = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        ends += [f"dtype=torch.{name}"] * (name not in ("float32", "int64", "complex64", "bool"))
        ends += [f"layout={self.layout}"]
        ends += ["requires_grad=True"] * bool(self.requires_grad and self.is_leaf)
        return behind(f"tensor({text}", ends, starts_line=not is_rows) + ")"

    add, sub, mul, div, matmul, mm = (
        __add__, __sub__, __mul__, __truediv__, __matmul__, __matmul__,
    )  # fmt: skip
    multiply, subtract, pow = mul, sub, __pow__


def _mapped(name: str) -> Callable[[Sparse], Sparse]:
    def method(self: Sparse) -> Sparse:
        # Equal positions are added up first, as the function is of the sum.
        whole = self if name in ("neg", "deg2rad", "rad2deg") else self.coalesce()
        return whole._with(getattr(whole.pair, name)())

    method.__doc__ = getattr(Tensor, name).__doc__
    return called(method, name)


for _name in _ZERO_TO_ZERO:
    setattr(Sparse, _name, _mapped(_name))
for _name in ("float", "double", "half", "bfloat16", "int", "long", "cpu"):

    def _cast(self: Sparse, name: str = _name) -> Sparse:
        return self._with(getattr(self.pair, name)())

    setattr(Sparse, _name, _cast)


def _dense(name: str, value: Any) -> Tensor:
    if not isinstance(value, OurTensor):
        raise KindError(f"{name}: a tensor is needed, not {article(type(value).__name__)}")
    return as_ours(value)  # type: ignore[no-any-return]


def sparse_of(dense: Tensor, axes: int | None = None) -> Sparse:
    """The elements that are not 0, with the first axes sparse."""
    count = dense.ndim if axes is None else axes
    array = dense.detach().numpy()
    present = array != 0
    if count < dense.ndim:
        present = present.any(tuple(range(count, dense.ndim)))
    positions = numpy.stack(numpy.nonzero(present)).astype(numpy.int64)
    indices = tensor(positions)
    flat = dense.reshape(-1, *dense.shape[count:])
    rows = tensor(numpy.flatnonzero(present), dtype=dtypes.int64)
    return Sparse(indices, flat.index_select(0, rows), dense.shape, is_coalesced=True)
