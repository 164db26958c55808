"""The array of the standard: one tensor, under the standard's names.

`Tensor` keeps PyTorch's methods (`size()` is one), the standard wants properties of the same names.
So an `Array` holds a tensor and adds nothing to it: what is computed is a tensor's graph, lazy
until its values are asked for.

One thing is computed at once: an index of integers alone names one element. It is read from
memory, not by a kernel of its own, and is memory without axes, so that kernels made of
elements at different positions are one kernel.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import Any

from tilegrad.array_api.operators import Operators
from tilegrad.base.dtype import DType
from tilegrad.base.errors import DTypeError, IndexBoundsError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.indexing.keys import index_outside
from tilegrad.tensor.storage.host_memory import flatten

__all__ = ["Array", "as_array"]


class DLDeviceType(enum.IntEnum):
    """The kinds of devices that DLPack knows, those that tensors give memory of."""

    CPU = 1


class Array(Operators):
    """An array of the array API standard, around the tensor `tensor`; made by
    `tilegrad.array_api.asarray` and its kin.

    Nothing is copied, so an index that writes (`x[0] = 1`) writes to the tensor. An in-place
    operator (`x += 1`) gives the array another tensor.

    >>> from tilegrad import Tensor, array_api as xp
    >>> xp.asarray(Tensor([1, 2])).tensor.tolist()
    [1, 2]
    """

    __slots__ = ("__weakref__", "tensor")
    # NumPy's operators leave it to ours.
    __array_ufunc__ = None
    tensor: Tensor
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Tensor):
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"Array: a {type(tensor).__name__} is no tensor",
                remedy="use array_api.asarray(values)",
            )
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"Array({self.tensor!r})"

    # attributes

    @property
    def dtype(self) -> DType:
        """The dtype of the elements.

        >>> from tilegrad import array_api as xp
        >>> xp.asarray([1.0]).dtype == xp.float32
        True
        """
        return self.tensor.dtype

    @property
    def device(self) -> str:
        """The device that computes the array.

        >>> from tilegrad import array_api as xp
        >>> xp.ones(2, device="CPU").device
        'CPU'
        """
        return self.tensor.device

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> from tilegrad import array_api as xp
        >>> xp.ones((2, 3)).ndim
        2
        """
        return self.tensor.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis.

        >>> from tilegrad import array_api as xp
        >>> xp.ones((2, 3)).shape
        (2, 3)
        """
        return self.tensor._sizes

    @property
    def size(self) -> int:
        """The number of elements.

        >>> from tilegrad import array_api as xp
        >>> xp.ones((2, 3)).size
        6
        """
        return math.prod(self.tensor._sizes)

    @property
    def T(self) -> Array:
        """A matrix with its axes exchanged.

        Raises ShapeError for another number of axes than two.

        >>> from tilegrad import array_api as xp
        >>> xp.ones((2, 3)).T.shape
        (3, 2)
        """
        if self.ndim != 2:
            raise IndexBoundsError(
                f"T: an array of two axes is needed, not of {self.ndim}",
                remedy="mT exchanges the last two, permute_dims puts all in an order",
            )
        return Array(self.tensor.permute(1, 0))

    @property
    def mT(self) -> Array:
        """The array with its last two axes exchanged.

        >>> from tilegrad import array_api as xp
        >>> xp.ones((2, 3, 4)).mT.shape
        (2, 4, 3)
        """
        if self.ndim < 2:
            raise IndexBoundsError(
                f"mT: an array of two axes or more is needed, not of {self.ndim}"
            )
        return Array(self.tensor.transpose(-2, -1))

    # elements

    def __getitem__(self, key: Any, /) -> Array:
        indices = key if isinstance(key, tuple) else (key,)
        if len(indices) == self.ndim and all(type(index) is int for index in indices):
            found = self._element(indices)
            if found is not None:
                return found
        return Array(_picked(self.tensor, key))

    def _element(self, at: tuple[int, ...]) -> Array | None:
        """The element `at` these indices, read from memory; None where the graph is to stay one."""
        tensor = self.tensor
        shape = tensor._sizes
        if not shape or tensor.requires_grad or is_transforming():
            return None
        flat = 0
        for axis, (index, size) in enumerate(zip(at, shape)):
            if not -size <= index < size:
                raise index_outside(tensor, index, axis)
            flat = flat * size + index % size
        tensor.realize()
        width = tensor.dtype.itemsize
        data = tensor._bytes()[flat * width : (flat + 1) * width]
        return Array(Tensor.from_blob(bytes(data), (), dtype=tensor.dtype, device=tensor.device))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self.tensor = _own(self.tensor)
        given = value.tensor if isinstance(value, Array) else value
        index = _unwrapped(key)
        if isinstance(index, Tensor) and not index.ndim and index.dtype.kind == "bool":
            # The result has a first axis more, of no or one element.
            if not bool(index):
                return
            index = ...
            if isinstance(given, Tensor) and given.ndim > self.ndim:
                given = given.squeeze(0)
        self.tensor[index] = given

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise DTypeError("iter: an array without axes has no parts")
        return iter([self[number] for number in range(self.shape[0])])

    def __len__(self) -> int:
        return len(self.tensor)

    # one number

    def _number(self, name: str) -> Any:
        if self.ndim:
            raise DTypeError(
                f"{name}: an array without axes is needed, the shape is {self.shape}",
                remedy="index it, or reshape(x, ()) an array of one element",
            )
        return self.tensor.item()

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise DTypeError(f"index: an integer is needed, not {self.dtype.name}")
        return int(self._number("index"))

    # other libraries

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module `tilegrad.array_api`.

        Raises ValueError for a version that it does not follow.
        """
        from tilegrad import array_api

        if api_version not in (None, *array_api.VERSIONS):
            raise ValueError(
                f"array_api: version {api_version!r} of the standard is not followed; these "
                f"are: {', '.join(array_api.VERSIONS)}"
            )
        return array_api

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.tensor.__array__(dtype, copy)

    def __dlpack_device__(self) -> tuple[DLDeviceType, int]:
        kind, number = self.tensor.__dlpack_device__()
        return DLDeviceType(kind), number

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self.tensor.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """The same values on another device.

        Raises DeviceError for an unknown one, ValueError for a `stream`.

        >>> from tilegrad import array_api as xp
        >>> xp.ones(2).to_device("CPU").device
        'CPU'
        """
        if stream is not None:
            raise ValueError("to_device: a stream is taken nowhere")
        return Array(self.tensor.to(device))


def as_array(name: str, value: Any) -> Array:
    """`value`, which must be an array.

    Raises DTypeError if it is none.
    """
    if not isinstance(value, Array):
        raise DTypeError(
            f"{name}: an array is needed, not a {type(value).__name__}",
            remedy="make one: array_api.asarray(value)",
        )
    return value


def _own(tensor: Tensor) -> Tensor:
    """`tensor`, which an index may write to: a constant without memory gets some."""
    return tensor.clone() if tensor.uop.is_constant else tensor


def _unwrapped(key: Any) -> Any:
    """An index with tensors for its arrays."""
    if isinstance(key, tuple):
        return tuple([index.tensor if isinstance(index, Array) else index for index in key])
    return key.tensor if isinstance(key, Array) else key


def _picked(tensor: Tensor, key: Any) -> Tensor:
    """The elements that `key` picks; a mask without axes picks all or nothing, along a new first
    axis.
    """
    index = _unwrapped(key)
    if isinstance(index, tuple) and len(index) == 1:
        (index,) = index
    if isinstance(index, bool):
        index = Tensor(index)
    if isinstance(index, Tensor) and not index.ndim and index.dtype.kind == "bool":
        return tensor.unsqueeze(0)[index.reshape(1)]
    if isinstance(index, list):
        values, _ = flatten(index)
        index = Tensor(index) if values else index
    return tensor[index]
