"""`torch.save` and `torch.load`: PyTorch's own zip files, which both libraries read.

A file of plain data holds tensors, numbers, texts, and dicts, lists and tuples of them. It is
written as PyTorch writes it, a pickle in which each tensor names a storage, and is read by
`tilegrad.io.torch_load`, which runs nothing. Other objects that a program saves, such as a whole
module, are a pickle of their own kind (`whole_objects.py`).
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, article
from tilegrad.io import torch_load
from tilegrad.io.mapped import tensor_over
from tilegrad.io.torch_values import DeviceName, Location, Marks
from tilegrad.ir.sizes import row_major
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex
from tilegrad.torch.device_names import device, name_of
from tilegrad.torch.shared_storages import Layout, Storages, laid_out
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import Tensor, as_ours
from tilegrad.torch.whole_objects import LAYOUTS, MEMBER, pickled, unpickled

__all__ = ["load", "save"]

_STORAGES = {
    dtypes.float32: "FloatStorage", dtypes.float64: "DoubleStorage", dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage", dtypes.uint8: "ByteStorage", dtypes.int8: "CharStorage",
    dtypes.int16: "ShortStorage", dtypes.int32: "IntStorage", dtypes.int64: "LongStorage",
    dtypes.bool: "BoolStorage",
}  # fmt: skip


_PAIRS = {dtypes.float32: "ComplexFloatStorage", dtypes.float64: "ComplexDoubleStorage"}


class _NoPlainDataError(Exception):
    """An object is none of plain data."""


class _Code(NamedTuple):
    """An item that is written by a function."""

    write: Callable[[], None]


class _Writer:
    """The pickle of a value, and the tensors that it names; `apart` are the positions of those that
    are pairs. With `layouts` it says where each of them is, without, that each has a storage.
    """

    def __init__(self, layouts: Sequence[Layout] | None = None) -> None:
        self.out = bytearray(b"\x80\x02")
        self.tensors: list[Any] = []
        self.apart: set[int] = set()
        self._layouts = layouts
        # Objects that the reader remembers, by `id`: the number there, and the object, which stays
        # alive.
        self._known: dict[int, tuple[int, Any]] = {}

    def name(self, module: str, name: str) -> None:
        """A class or a function by its name, which the reader looks up."""
        self.out += f"c{module}\n{name}\n".encode()

    def call(self, module: str, name: str, *arguments: Any) -> None:
        """The result of a named function."""
        self.name(module, name)
        self.many(b"(", arguments, b"tR")

    def many(self, start: bytes, items: Any, end: bytes) -> None:
        """Items between two codes."""
        self.out += start
        for item in items:
            item.write() if isinstance(item, _Code) else self.value(item)
        self.out += end

    def value(self, value: Any) -> None:
        """Any value.

        Raises _NoPlainDataError for what is no plain data.
        """
        if self.is_recalled(value):
            return
        if isinstance(value, OurTensor):
            self.tensor(as_ours(value))
            self.remember(value)
        elif isinstance(value, Complex):
            self.tensor(value.pair, _PAIRS[value.pair.dtype])
            self.remember(value)
        elif isinstance(value, (numpy.generic, bool, int, float, str, type(None))):
            self.scalar(value.item() if isinstance(value, numpy.generic) else value)
        elif isinstance(value, Size):
            self.call("torch", "Size", tuple(value))
        elif isinstance(value, DType):
            self.name("torch", value.name)
        elif isinstance(value, Mapping):
            self.mapping(value)
        elif isinstance(value, list):
            self.out += b"]"
            self.remember(value)
            self.many(b"(", value, b"e")
        elif isinstance(value, tuple):
            self.many(b"(", value, b"t")
        elif isinstance(value, numpy.ndarray):
            self.tensor(Tensor(value, device="cpu"))
            self.remember(value)
        else:
            raise _NoPlainDataError

    def remember(self, value: Any) -> None:
        """Let the reader remember what was written last, under a number."""
        number = len(self._known)
        self._known[id(value)] = number, value
        self.out += b"r" + struct.pack("<I", number)

    def is_recalled(self, value: Any) -> bool:
        """Whether the reader remembers a value; then it is asked for it."""
        known = self._known.get(id(value))
        if known is not None:
            self.out += b"j" + struct.pack("<I", known[0])
        return known is not None

    def scalar(self, value: Any) -> None:
        """A number, a text or None."""
        if value is None or isinstance(value, bool):
            self.out += b"N" if value is None else b"\x88" if value else b"\x89"
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            if isinstance(value, device):
                self.call("torch", "device", str(value))
                return
            raw = value.encode("utf-8", "surrogatepass")
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
        elif -(2**31) <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(raw)]) + raw

    def mapping(self, value: Mapping[Any, Any]) -> None:
        """A dict, or one with an order."""
        if isinstance(value, OrderedDict):
            self.name("collections", "OrderedDict")
            self.out += b")R"
        else:
            self.out += b"}"
        self.remember(value)
        self.many(b"(", [each for pair in value.items() for each in pair], b"u")

    def tensor(self, tensor: Any, kind: str | None = None) -> None:
        """A tensor by its layout in a storage; pairs as complex numbers of a `kind`."""
        is_pairs, kind = kind is not None, kind or _STORAGES.get(tensor.dtype)
        if kind is None:
            raise DataError(f"torch.save: {article(tensor.dtype.name)} tensor has no storage")
        position = len(self.tensors)
        self.tensors.append(tensor)
        if is_pairs:
            self.apart.add(position)
        sizes = tuple(int(size) for size in tensor.shape[: -1 if is_pairs else None])
        if self._layouts is None or is_pairs:
            number = position if self._layouts is None else self._layouts[position].storage
            layout = Layout(number, math.prod(sizes), 0, row_major(sizes))
        else:
            layout = self._layouts[position]

        def storage() -> None:
            self.out += b"("
            self.value("storage")
            self.name("torch", kind)
            for field in (str(layout.storage), "cpu", layout.length):
                self.value(field)
            self.out += b"tQ"

        is_parameter = tensor.__dict__.get("_is_parameter", False)
        wanted = bool(tensor.requires_grad) and tensor.is_leaf
        rest: tuple[Any, ...] = (layout.offset, sizes, layout.strides, wanted, OrderedDict())
        data: tuple[Any, ...] = (_Code(storage), *rest)
        if not is_parameter:
            self.call("torch._utils", "_rebuild_tensor_v2", *data)
            return
        whole = _Code(lambda: self.call("torch._utils", "_rebuild_tensor_v2", *data))
        self.call("torch._utils", "_rebuild_parameter", whole, wanted, OrderedDict())


class _Target(Protocol):
    def write(self, data: bytes, /) -> Any: ...


def save(obj: Any, f: str | os.PathLike[str] | _Target, *args: Any, **options: Any) -> None:
    """Write an object with its tensors to a file, or to what has `write`: plain data as PyTorch
    does, so that it reads the file; others, such as a whole module, for `load` of this library.

    Raises DataError for what cannot be pickled.
    """
    member, writer = "archive/data.pkl", _Writer()
    try:
        writer.value(obj)
        storages, layouts = laid_out(writer.tensors, writer.apart)
        if len(storages) < len(layouts):
            writer = _Writer(layouts)
            writer.value(obj)
        raw = bytes(writer.out) + b"."
    except _NoPlainDataError:
        member = MEMBER
        raw, tensors = pickled(obj)
        storages, layouts = laid_out(tensors)
    if storages:
        Tensor.realize(*storages)
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, raw)
        archive.writestr("archive/byteorder", "little")
        if member == MEMBER:
            archive.writestr(LAYOUTS, json.dumps(layouts))
        for key, storage in enumerate(storages):
            archive.writestr(f"archive/data/{key}", _raw(storage))
        archive.writestr("archive/version", "3\n")
    if isinstance(f, (str, os.PathLike)):
        beside = f"{os.fspath(f)}.{os.getpid()}.part"
        with open(beside, "wb") as file:
            file.write(archived.getvalue())
        os.replace(beside, f)
    else:
        f.write(archived.getvalue())


def _raw(tensor: Any) -> bytes:
    return bytes(tensor.detach().contiguous()._bytes())


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **options: Any,
) -> Any:
    """The object that `save`, or PyTorch, wrote to a file: plain data with its tensors. A whole
    module, or another object, is read with `weights_only=False`: its file says which code runs.

    Raises DataError for a file that wants a class, or that is damaged, FileNotFoundError where
    there is none.
    """
    if isinstance(f, (str, os.PathLike)) and not os.path.exists(f):
        raise FileNotFoundError(errno.ENOENT, "torch.load: no such file", os.fspath(f))
    source = f.read() if hasattr(f, "read") else f
    target = name_of(map_location) if isinstance(map_location, (str, int)) else None
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if isinstance(file, (io.BytesIO, str, os.PathLike)) and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if MEMBER in archive.namelist():
                return unpickled(archive, target, weights_only is False)
    marks = Marks()
    value = torch_load(source, target, marks=marks)
    return _Owner(marks, target).finished(value)


class _Owner:
    """Makes what was read a program's own: tensors have memory of their own, as the file may be
    written anew while they live; those that shared a storage share it.
    """

    def __init__(self, marks: Marks, device: str | None):
        self._marks, self._device = marks, device
        self._storages = Storages(_storage_of(location) for location in marks.locations.values())
        self._made: dict[int, Any] = {}
        self._computed: list[Any] = []

    def finished(self, value: Any) -> Any:
        """The value, with tensors that are computed."""
        found = self._own(value)
        if self._computed:
            Tensor.realize(*self._computed)
        return found

    def _own(self, value: Any) -> Any:
        if isinstance(value, DeviceName):
            return device(value)
        if not isinstance(value, (OurTensor, dict, list, tuple)):
            return value
        found = self._made.get(id(value))
        if found is not None:
            return found
        if isinstance(value, OurTensor):
            found = self._made[id(value)] = self._own_tensor(value)
        elif isinstance(value, dict):
            found = self._made[id(value)] = type(value)()
            found.update((key, self._own(each)) for key, each in value.items())
        elif isinstance(value, list):
            found = self._made[id(value)] = []
            found.extend(self._own(each) for each in value)
        else:
            found = self._made[id(value)] = type(value)([self._own(each) for each in value])
        return found

    def _own_tensor(self, value: Any) -> Any:
        marks = self._marks
        is_pair = id(value) in marks.pairs
        at = None if is_pair else marks.locations.get(id(value))
        storage = None if at is None else _storage_of(at)
        if at is not None and self._storages.is_shared(storage) and value._has_elements():
            read = partial(self._whole, at)
            made = self._storages.view(storage, read, value._sizes, at.strides, at.offset)
        else:
            made = as_ours(value).clone()
            if made._has_elements():
                self._computed.append(made)
        made._is_leaf = True
        if is_pair:
            return Complex(made)
        is_parameter = marks.trained.get(id(value))
        if is_parameter is not None:
            made.requires_grad = made.dtype.is_float
            made._is_parameter = is_parameter
        return made

    def _whole(self, location: Location) -> Any:
        """A storage as a vector, in memory of its own."""
        data, dtype = location.storage.data, location.dtype
        assert data is not None
        count = data.nbytes // dtype.itemsize
        over = tensor_over(data[: count * dtype.itemsize], dtype, (count,), self._device)
        made = as_ours(over).clone()
        self._computed.append(made)
        return made


def _storage_of(location: Location) -> tuple[int, DType]:
    return id(location.storage), location.dtype
