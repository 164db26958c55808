"""Complex numbers: what is known of them without computing, their values, and conversions."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy

from tilegrad.base.dtype import DType
from tilegrad.nn.tree import Paired
from tilegrad.torch.complex_dtypes import ComplexDType, complex_dtype_of
from tilegrad.torch.device_names import device
from tilegrad.torch.size import Size
from tilegrad.torch.storage import InMemory, Storage
from tilegrad.torch.tensor import Tensor, as_ours
from tilegrad.torch.tensor_printing import complex_text

__all__ = ["ComplexValues"]

# The memory layout is the compiler's choice.
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


class ComplexValues(InMemory, Paired):
    """Complex numbers as a pair of tensors; complex.py has their arithmetic."""

    __array_priority__ = 2000
    _is_its_pair = True

    def __init__(self, pair: Any):
        self.pair: Tensor = as_ours(pair)

    # what is known without computing

    @property
    def shape(self) -> Size:
        """The sizes."""
        return Size(self.pair.shape[:-1])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.pair.ndim - 1

    @property
    def dtype(self) -> ComplexDType:
        """`torch.complex64`, or `torch.complex128` of float64 parts."""
        return complex_dtype_of(self.pair.dtype)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through it."""
        return self.pair.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.pair.requires_grad = wanted

    @property
    def grad(self) -> Any:
        """The gradient: its real part is that of the real parts, and so of the imaginary ones."""
        found = self.pair.grad
        return None if found is None else type(self)(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self.pair.grad = None if value is None else value.pair

    def stride(self, dim: int | None = None) -> Any:
        """How many elements of memory lie between neighbours along each axis, or along `dim`; as in
        row-major order where the two parts are apart.
        """
        *steps, last = self.pair.stride()
        strides = tuple([step // 2 for step in steps]) if last == 1 else self._in_order()
        return strides if dim is None else strides[dim]

    def _in_order(self) -> tuple[int, ...]:
        sizes = self.shape
        return tuple([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))])

    @property
    def uop(self) -> Any:
        """The graph of the pairs, for errors to describe."""
        return self.pair.uop

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the values are in row-major order in memory."""
        found: bool = self.stride() == self._in_order()
        return found

    def storage_offset(self) -> Any:
        """The position of the first element in the memory that the tensor views."""
        return self.pair.storage_offset() // 2

    def untyped_storage(self) -> Storage:
        """The memory, as something to compare."""
        return self.pair.untyped_storage()

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU of CUDA's."""
        return bool(self.pair.is_cuda)

    def retain_grad(self) -> None:
        """Let `backward` add up a gradient here, too."""
        self.pair.retain_grad()

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    nelement, ndimension = numel, dim

    def is_complex(self) -> bool:
        """True."""
        return True

    def is_floating_point(self) -> bool:
        """False: the numbers are complex."""
        return False

    def element_size(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        return bool(self.item())

    def __complex__(self) -> complex:
        return self.item()

    # parts

    @property  # type: ignore[override]
    def real(self) -> Tensor:
        """The real parts, a view."""
        found: Tensor = self.pair[..., 0]
        return found

    @real.setter
    def real(self, value: Any) -> None:
        self.pair[..., 0] = value

    @property  # type: ignore[override]
    def imag(self) -> Tensor:
        """The imaginary parts, a view."""
        found: Tensor = self.pair[..., 1]
        return found

    @imag.setter
    def imag(self, value: Any) -> None:
        self.pair[..., 1] = value

    def abs(self) -> Tensor:
        """The distance from 0."""
        return self.real.hypot(self.imag)

    __abs__ = absolute = abs

    def angle(self) -> Tensor:
        """The angle to the real axis, in -pi..pi."""
        return self.imag.atan2(self.real)

    def conj(self) -> Self:
        """With the sign of the imaginary parts changed."""
        return self._with(self.real, -self.imag)

    def _with(self, real: Any, imag: Any) -> Self:
        return type(self)(real.stack(imag, dim=-1))

    # values

    def numpy(self) -> Any:
        """The values as a NumPy array."""
        pair = self.pair.detach().numpy()
        return numpy.ascontiguousarray(pair).view(f"complex{16 * pair.dtype.itemsize}")[..., 0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def tolist(self) -> Any:
        """The values as nested lists of Python's complex numbers."""
        return self.numpy().tolist()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"complex numbers have no {name!r}; z.real, z.imag, z.abs() and z.angle() are real",
            name=name,
            obj=self,
        )

    def item(self) -> complex:
        """The value of the only element."""
        return complex(self.numpy().item())

    def __repr__(self) -> str:
        note = "requires_grad=True" if self.requires_grad and self.is_leaf else ""
        text = complex_text(self.numpy(), self.dtype.name, note)
        is_parameter = self.pair.__dict__.get("_is_parameter", False)
        return f"Parameter containing:\n{text}" if is_parameter else text

    def __format__(self, spec: str) -> str:
        return str(self) if self.ndim else format(self.item(), spec)

    def detach(self) -> Self:
        """The same values without gradients."""
        return type(self)(self.pair.detach())

    def detach_(self) -> Self:
        """Cut off from what it was computed of; gives this tensor."""
        self.pair = self.pair.detach()
        return self

    def clone(self, *, memory_format: Any = None) -> Self:
        """A copy."""
        return type(self)(self.pair.clone())

    def to(self, *args: Any, **options: Any) -> Any:
        """The same values on another device, or in another dtype; of a real one the real parts."""
        given = [*args, *options.values()]
        kinds = [getattr(each, "dtype", each) for each in given]
        kind = next((each for each in kinds if isinstance(each, ComplexDType)), None)
        real = next((each for each in kinds if isinstance(each, DType)), None)
        devices = [getattr(each, "device", each) for each in given]
        devices = [
            each
            for each in devices
            if isinstance(each, (str, device)) and each not in MEMORY_FORMATS
        ]
        pair = self.pair.to(devices[0]) if devices else self.pair
        if real is not None:
            return pair[..., 0].to(real)
        return (
            self
            if pair is self.pair and kind in (None, self.dtype)
            else type(self)(pair if kind is None else pair.to(kind.component))
        )

    def type(self, dtype: Any = None) -> Any:
        """As `to`; without a dtype the name of this one's class."""
        names = {"complex64": "torch.ComplexFloatTensor", "complex128": "torch.ComplexDoubleTensor"}
        return names[self.dtype.name] if dtype is None else self.to(dtype)

    def type_as(self, other: Any) -> Any:
        """In the dtype of another tensor."""
        return self.to(other.dtype)

    def cfloat(self, memory_format: Any = None) -> Self:
        """In complex64."""
        return type(self)(self.pair.float())

    def cdouble(self, memory_format: Any = None) -> Self:
        """In complex128."""
        return type(self)(self.pair.double())

    def contiguous(self, memory_format: Any = None) -> Self:
        """The same values in row-major order: this tensor where they are."""
        pair = self.pair.contiguous()
        return self if pair is self.pair else type(self)(pair)

    def cpu(self, memory_format: Any = None) -> Self:
        """The same values on the CPU."""
        return type(self)(self.pair.cpu())

    def cuda(self, *args: Any, **options: Any) -> Self:
        """The same values on a GPU of CUDA's."""
        return type(self)(self.pair.cuda(*args, **options))
