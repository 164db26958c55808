"""Facts that a tensor tells of its memory: strides, offset, address, layout, and flags that are
False here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy

from tilegrad.tensor.handle.aliases import shared, steps

__all__ = ["InMemory", "Storage", "TypedStorage"]


class Storage:
    """The memory behind a tensor and its views. Two tensors share memory where `data_ptr` is
    equal; it is a number that names the memory, not an address that could be read.
    """

    def __init__(self, tensor: Any):
        self._tensor = tensor
        self._token = shared(tensor)[0]

    def data_ptr(self) -> int:
        """A number that names the memory. Numbers of other memory are far away, so that none of
        them is that of an element of this one.
        """
        return id(self._token) << 40

    def _memory(self) -> Any:
        """The elements of the memory as a vector that shares it."""
        return self._tensor.detach()._all_memory()

    def nbytes(self) -> int:
        """The bytes of the memory."""
        return int(self._memory().numel() * self._tensor.element_size())

    def size(self) -> int:
        """The number of elements: bytes."""
        return self.nbytes()

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """The bytes of one element."""
        return 1

    def tolist(self) -> list[Any]:
        """The elements: bytes as numbers."""
        return list(self._memory().numpy().tobytes())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def clone(self) -> Self:
        """A copy."""
        return type(self)(self._memory().clone())

    def copy_(self, source: Storage, non_blocking: bool = False) -> Self:
        """Write what another storage of this size holds."""
        self._memory().copy_(source._memory())
        return self

    def cpu(self) -> Self:
        """This memory, or a copy of it on the CPU."""
        return type(self)(self._tensor.cpu())

    def untyped(self) -> Storage:
        """The memory as bytes."""
        return Storage(self._tensor)

    @property
    def device(self) -> Any:
        """The device that holds it."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Whether a GPU of CUDA's holds it."""
        return bool(self._tensor.is_cuda)

    def get_device(self) -> int:
        """The number of the GPU that holds it, or -1."""
        return int(self._tensor.get_device())

    def is_pinned(self) -> bool:
        """False: host memory is not pinned."""
        return False

    def is_shared(self) -> bool:
        """False: one process computes."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._token is other._token

    def __hash__(self) -> int:
        return id(self._token)


class TypedStorage(Storage):
    """The memory behind a tensor and its views, as elements of its dtype."""

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self._tensor.dtype

    def size(self) -> int:
        """The number of elements."""
        return int(self._memory().numel())

    def element_size(self) -> int:
        """The bytes of one element."""
        return int(self._tensor.element_size())

    def tolist(self) -> list[Any]:
        """The elements."""
        return list(self._memory().tolist())

    def __setitem__(self, index: Any, value: Any) -> None:
        self._memory()[index] = value

    def fill_(self, value: Any) -> Self:
        """Write a number everywhere."""
        self._memory().fill_(value)
        return self


def _sparse() -> Any:
    return importlib.import_module("tilegrad.torch.sparse_tensor")


def _complex() -> Any:
    return importlib.import_module("tilegrad.torch.complex")


def _is_not(name: str) -> Any:
    return property(lambda self: False, doc=f"False: no tensor is {name}.")


class InMemory:
    """Memory facts of a `torch.Tensor`."""

    layout = "torch.strided"
    is_sparse = _is_not("sparse")
    is_sparse_csr = _is_not("sparse")
    is_quantized = _is_not("quantized")
    is_nested = _is_not("nested")
    is_mkldnn = _is_not("in MKL's layout")
    is_mps = _is_not("on a Metal device")
    is_xpu = _is_not("on an XPU")
    is_xla = _is_not("of XLA")
    is_ipu = _is_not("on an IPU")
    is_mtia = _is_not("on such a device")
    is_vulkan = _is_not("of Vulkan")
    is_maia = _is_not("on such a device")

    def to_sparse(self: Any, sparse_dim: int | None = None, *, layout: Any = None) -> Any:
        """The elements that are not 0, with their positions along the first `sparse_dim` axes."""
        found = _sparse().sparse_of(self, sparse_dim)
        return found.to_sparse(layout=layout)

    def to_sparse_coo(self: Any) -> Any:
        """As `to_sparse`."""
        return self.to_sparse()

    def to_sparse_csr(self: Any, dense_dim: int | None = None) -> Any:
        """The elements of a matrix that are not 0, by rows."""
        return self.to_sparse().to_sparse_csr()

    def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """This tensor, in a dtype: it is dense."""
        return self if dtype is None else self.to(dtype)

    def sparse_mask(self: Any, mask: Any) -> Any:
        """The elements at the positions that a sparse tensor holds."""
        return mask._with(self[tuple(mask._indices().unbind(0))])

    def is_coalesced(self) -> bool:
        """Raises RuntimeError: the tensor is dense."""
        raise RuntimeError("is_coalesced expected sparse coordinate tensor layout but got Strided")

    @property
    def is_meta(self: Any) -> bool:
        """Whether it is on the device `meta`: with a shape and a dtype, and without values."""
        return bool(self.device.type == "meta")

    def stride(self, dim: int | None = None) -> Any:
        """How many elements of memory lie between neighbours along each axis, or along `dim`."""
        strides = steps(self)[0]
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> Any:
        """The position of the first element in the memory that the tensor views."""
        return steps(self)[1]

    def untyped_storage(self) -> Storage:
        """The memory, as something to compare."""
        return Storage(self)

    def storage(self) -> TypedStorage:
        """The memory, as elements of this tensor's dtype."""
        return TypedStorage(self)

    def data_ptr(self: Any) -> int:
        """A number that names the first element's memory: equal where two tensors begin at the same
        one. It is no address that could be read.
        """
        offset = self.storage_offset()
        return int(self.untyped_storage().data_ptr() + offset * self.element_size())

    @property
    def nbytes(self: Any) -> int:
        """The bytes of the elements."""
        return int(self.numel() * self.element_size())

    def get_device(self: Any) -> int:
        """The number of the GPU that holds it, or -1."""
        device = self.device
        return -1 if device.type == "cpu" else device.index or 0

    def is_pinned(self) -> bool:
        """False: host memory is not pinned."""
        return False

    def pin_memory(self, device: Any = None) -> Self:
        """This tensor: host memory is not pinned."""
        return self

    def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
        """A copy of a slice of a length along an axis."""
        return self.narrow(dim, start, length).clone()

    def prelu(self: Any, weight: Any) -> Any:
        """Itself where it is above 0, else times a slope, or that of its channel."""
        return importlib.import_module("tilegrad.torch.nn.functional").prelu(self, weight)

    def share_memory_(self) -> Self:
        """This tensor: one process computes."""
        return self

    def is_shared(self) -> bool:
        """False: one process computes."""
        return False

    def is_inference(self) -> bool:
        """False: tensors made under `inference_mode` are like others."""
        return False

    # real numbers as complex ones

    @property
    def real(self) -> Self:
        """This tensor: its numbers are real."""
        return self

    @property
    def imag(self) -> Self:
        """Raises RuntimeError: its numbers are real."""
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")

    def conj(self) -> Self:
        """This tensor: its numbers are real."""
        return self

    conj_physical = resolve_conj = resolve_neg = conj

    def is_conj(self) -> bool:
        """False: conjugates are computed."""
        return False

    is_neg = is_conj

    def angle(self: Any) -> Any:
        """0, or pi of negative numbers; NaN of NaN."""
        if not self.dtype.is_float:
            return self.float().angle()
        angles = (self < 0).where(self.full_like(numpy.pi), self.zeros_like())
        return self.isnan().where(self, angles)

    def as_subclass(self: Any, cls: type) -> Any:
        """The same tensor as one of a class that derives from `torch.Tensor`."""
        found = self.view_as(self)
        found.__class__ = cls
        return found

    @staticmethod
    def _make_subclass(cls: type, data: Any, require_grad: bool = False) -> Any:
        found = data.detach().as_subclass(cls)
        return found.requires_grad_() if require_grad else found

    def cfloat(self: Any) -> Any:
        """As complex numbers, complex64."""
        return _complex().as_complex(self).cfloat()

    def cdouble(self: Any) -> Any:
        """As complex numbers, complex128."""
        return _complex().as_complex(self).cdouble()

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """The tensor of an array that NumPy's functions give for a tensor; PyTorch has bytes for
        its bools.
        """
        made = numpy.asarray(array)
        made = made.astype(numpy.uint8) if made.dtype == numpy.bool_ else made
        return importlib.import_module("tilegrad.torch").from_numpy(made)

    # one number after the other, in Python

    def apply_(self: Any, function: Callable[[Any], Any]) -> Any:
        """Each element as a Python function gives it."""
        values = self.detach().numpy()
        made = [function(value) for value in values.ravel().tolist()]
        return self.copy_(type(self)(numpy.array(made, values.dtype).reshape(values.shape)))

    def map_(self: Any, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Each element as a Python function gives it, from it and that of another tensor."""
        values = self.detach().numpy()
        others = numpy.broadcast_to(other.detach().numpy(), values.shape)
        pairs = zip(values.ravel().tolist(), others.ravel().tolist())
        made = numpy.array([function(*pair) for pair in pairs], values.dtype)
        return self.copy_(type(self)(made.reshape(values.shape)))

    def new(self: Any, *data: Any) -> Any:
        """A tensor of this one's dtype: of a list, or memory of a shape."""
        if len(data) == 1 and not isinstance(data[0], int):
            return self.new_tensor(data[0])
        return self.new_empty(data or (0,))
