"""Tensors and the arrays of other libraries: memory given and taken.

Memory given away, by `numpy`, `data` or DLPack, is the tensor's own where the
host reaches it. It is read-only and keeps its values: a tensor that is written to while somebody
looks goes on in other memory. Memory taken, by `from_dlpack` and `from_blob`, is read in place as
long as a tensor needs it, and never written to. It must not change meanwhile, as results that were
computed from it are remembered.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, DTypeError, ShapeError, article
from tilegrad.device.disk import is_file
from tilegrad.engine.realize import realize as engine
from tilegrad.runtime.buffer import address_of
from tilegrad.tensor.exchange import dlpack_capsules
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import as_sizes
from tilegrad.tensor.storage import host_memory, memory
from tilegrad.tensor.writing.watching import Watching

__all__ = ["Interchange", "strided"]


class Interchange(Watching):
    """Memory of others, and memory for others.

    A tensor has no `__buffer__`, which Python knows from 3.12 on: NumPy asks for it before
    `__array__`, and cannot say there that `copy=False` was asked for.
    """

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The array for `numpy.asarray(tensor)`: as `numpy()`, in `dtype` if one is asked for.

        `copy=True` gives an array of its own, which can be written to; `copy=False` raises
        ValueError where the values cannot be looked at in place.
        """
        if copy is not False:
            array = self.numpy()
            if dtype is not None and array.dtype != dtype:
                return array.astype(dtype)
            return array.copy() if copy else array
        if self.dtype in (dtypes.bfloat16, *dtypes.fp8s):
            raise ValueError(f"array: NumPy has no {self.dtype.name}, so its values are converted")
        shape = self._host_shape("array")
        array = host_memory.array_from(self._shared("array"), self.dtype, shape)
        if dtype is not None and array.dtype != dtype:
            raise ValueError(f"array: {array.dtype} cannot become {dtype} without a copy")
        return array

    def _shared(self, name: str) -> memoryview:
        """The tensor's memory itself, read-only; ValueError where the host does not reach it."""
        found = self._bytes(engine.share) if self._has_elements() else memoryview(b"")
        if not self._has_elements() or memory.is_shared(self.uop, found):
            return found
        raise ValueError(f"{name}: the values of this tensor cannot be looked at without a copy")

    def __reduce__(self) -> tuple[Any, ...]:
        """To be pickled, for another process say: the values, and where they were. A graph that
        has not been computed is computed now; gradients stay here.
        """
        device = None if is_file(self.device) else self.device
        state = (bytes(self._bytes()), self.dtype.name, self._bound_shape(), device)
        return _restored, (type(self), *state, self._requires_grad)

    # DLPack

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where `__dlpack__` gives memory: on the host."""
        return dlpack_capsules.CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule with the tensor's memory, for `torch.from_dlpack`, `numpy.from_dlpack` and
        others: not copied where the host reaches it, and valid as long as its taker needs it.

        The memory is read-only, as the capsule says to those who ask for a version of 1.0 or more;
        the others must not write to it. `copy=True` gives memory of the taker's own.

        Raises BufferError for another device than the host, a `stream`, or `copy=False` where a
        copy is needed; DTypeError for a dtype that DLPack lacks, ShapeError for more than 64 axes.

        >>> import numpy; numpy.from_dlpack(Tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        if stream is not None:
            raise BufferError("dlpack: memory of the host has no streams")
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != dlpack_capsules.CPU:
            raise BufferError(
                f"dlpack: the host's memory is {dlpack_capsules.CPU}, not {dl_device}"
            )
        shape = self._host_shape("dlpack")
        if copy:
            data = memoryview(bytearray(self._bytes()))
        elif copy is False:
            try:
                data = self._shared("dlpack")
            except ValueError as error:
                raise BufferError(str(error)) from error
        else:
            data = self._bytes(engine.share)
        if not copy and memory.is_stored(self.uop):
            # Takers of old capsules cannot even be told that the memory is read-only.
            memory.expose(self.uop)
        is_versioned = max_version is not None and max_version[0] >= 1
        return dlpack_capsules.give(
            data,
            address_of(data) if data.nbytes else 0,
            self.dtype,
            shape,
            is_versioned=is_versioned,
            is_copied=bool(copy),
        )

    @classmethod
    def from_dlpack(cls, x: Any, device: str | None = None, copy: bool | None = None) -> Self:
        """Tensor over the memory of an array of another library (DLPack 1.0).

        A device that reaches the host's memory reads it in place: nothing is copied, in any layout
        of `x`. It is never written to (an assignment to the tensor gives it memory of its own),
        must not change as long as the tensor lives, and goes back to its library with the last
        tensor that needs it.

        Args:
            x: an array with `__dlpack__`, or a capsule.
            device: name of the device, by default `Device.DEFAULT`.
            copy: True copies at once, after which `x` may change; False raises where a copy would
                be needed.

        Returns a tensor of the shape and dtype of `x`.

        Raises DataError for memory that is not on the host, DTypeError for a dtype that tensors do
        not have, BufferError where `copy=False` cannot be.

        >>> import numpy; Tensor.from_dlpack(numpy.arange(3)).tolist()
        [0, 1, 2]
        """
        if isinstance(x, cls):
            found = x if device is None else x.to(device)
            return found.clone() if copy else found
        given = dlpack_capsules.take(_capsule(x), "from_dlpack")
        data = memoryview(bytes(given.memory)) if copy else given.memory
        name = canonical(device)
        if 0 in given.shape:
            return cls.full(given.shape, 0, device=name, dtype=given.dtype)

        def leaf(shape: tuple[int, ...]) -> Any:
            return cls._of(memory.over(name, given.dtype, data, shape), name)

        flipped = [step < 0 for step in given.strides]
        steps = tuple(abs(step) for step in given.strides)
        made = strided(leaf, given.shape, steps, data.nbytes // given.dtype.itemsize)
        axes = [axis for axis, is_flipped in enumerate(flipped) if is_flipped]
        tensor: Self = (made.flip(axes) if axes else made)._wanting(None)
        return tensor

    @classmethod
    def from_blob(
        cls,
        source: Any,
        shape: Any,
        dtype: DType | str | None = None,
        device: str | None = None,
        owner: Any = None,
        release: Callable[[], object] | None = None,
    ) -> Self:
        """Tensor over memory that somebody else owns: an object with a contiguous buffer, or an
        address.

        The memory is read in place where the device reaches the host's memory, and never written
        to. It must stay as it is as long as the tensor lives.

        Args:
            source: an object with a buffer, which is kept alive, or an address in bytes.
            shape: the sizes.
            dtype: dtype of the memory, by default float32.
            device: name of the device, by default `Device.DEFAULT`.
            owner: kept alive with an address.
            release: called when the last tensor or array over the memory has gone.

        Returns a tensor of `shape` and `dtype`.

        Raises ShapeError if a buffer is shorter, DataError if it is not contiguous or the address
        is none.

        >>> Tensor.from_blob(bytearray(8), (2,)).tolist()
        [0.0, 0.0]
        """
        kind = as_dtype(dtype or dtypes.float32)
        wanted, _ = as_sizes("from_blob", shape if isinstance(shape, (tuple, list)) else (shape,))
        sizes = tuple(int(size) for size in wanted)
        nbytes = math.prod(sizes) * kind.itemsize
        data = _memory_at(source, nbytes, owner, release)
        name = canonical(device)
        if not nbytes:
            return cls.full(sizes, 0, device=name, dtype=kind)
        return cls._of(memory.over(name, kind, data, sizes), name)._wanting(None)


def _restored(
    kind: Any,
    raw: bytes,
    dtype: str,
    shape: tuple[int, ...],
    device: str | None,
    requires_grad: bool | None,
) -> Any:
    """The tensor that was pickled."""
    flat = kind(raw, device=device, dtype=dtype)
    return kind._of(flat.reshape(shape).uop, flat.device)._wanting(requires_grad)


def _capsule(x: Any) -> Any:
    """The capsule of an array; `x` itself if it has none to give."""
    if not hasattr(x, "__dlpack__"):
        return x
    if hasattr(x, "__dlpack_device__"):
        kind, number = x.__dlpack_device__()
        if (int(kind), int(number)) != dlpack_capsules.CPU and int(kind) not in (3, 11):
            raise DataError(
                "from_dlpack: the memory is on a device that the host does not reach",
                got=f"DLPack device {int(kind)}, {number}",
                remedy="move it to the CPU in its own library first",
            )
    try:
        return x.__dlpack__(max_version=dlpack_capsules.MAX_VERSION)
    except TypeError:
        # A library of before 2024.
        return x.__dlpack__()


def _memory_at(
    source: Any, nbytes: int, owner: Any, release: Callable[[], object] | None
) -> memoryview:
    """`nbytes` of `source`, with what keeps them."""
    if isinstance(source, bool) or (isinstance(source, int) and source <= 0 < nbytes):
        raise DataError(f"from_blob: {source!r} is no address")
    view = None
    if isinstance(source, int):
        address = source
    else:
        try:
            view = memoryview(source)
        except TypeError as error:
            raise DTypeError(
                f"from_blob: {article(type(source).__name__)} is no memory",
                rule="an address, or an object with a buffer",
            ) from error
        if not view.c_contiguous:
            raise DataError("from_blob: the buffer is not contiguous")
        if view.nbytes < nbytes:
            raise ShapeError(f"from_blob: {nbytes} bytes are needed, the buffer has {view.nbytes}")
        address = address_of(view)
    if not nbytes:
        return memoryview(b"")
    holder = (ctypes.c_char * nbytes).from_address(address)
    holder._owner = (view, owner)  # type: ignore[attr-defined]
    if release is not None:
        weakref.finalize(holder, release)
    return memoryview(holder).cast("B").toreadonly()


def strided(
    leaf: Callable[[tuple[int, ...]], Any], size: Sequence[int], stride: Sequence[int], span: int
) -> Any:
    """The tensor of `size` with `stride`, without negative numbers, over a row of `span` elements,
    which `leaf` gives in any shape.

    Dense elements in any order of axes, stretched or not, are movements. The others, windows of
    larger tensors and overlaps, are indexed reads.
    """
    strided_axes = [axis for axis in range(len(size)) if size[axis] != 1 and stride[axis] != 0]
    order = sorted(strided_axes, key=lambda axis: -stride[axis])
    dense = tuple(size[axis] for axis in order)
    expected, is_dense = 1, True
    for axis in reversed(order):
        is_dense = is_dense and stride[axis] == expected
        expected *= size[axis]
    if not is_dense:
        return _indexed(leaf((span,)), size, stride, strided_axes)
    found = leaf(dense)
    if order != strided_axes:
        found = found.permute([order.index(axis) for axis in strided_axes])
    placed = tuple(size[axis] if axis in strided_axes else 1 for axis in range(len(size)))
    if found.shape != placed:
        found = found.reshape(placed)
    return found if placed == tuple(size) else found.expand(tuple(size))


def _indexed(
    flat: Any, size: Sequence[int], stride: Sequence[int], strided_axes: Sequence[int]
) -> Any:
    axes = len(size)
    index: Any = None
    for axis in strided_axes:
        row = type(flat).arange(size[axis], dtype=dtypes.int64, device=flat.device) * stride[axis]
        row = row.reshape([-1 if at == axis else 1 for at in range(axes)])
        index = row if index is None else index + row
    return flat[index.expand(tuple(size))]
