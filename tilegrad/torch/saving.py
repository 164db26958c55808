"""`torch.save` and `torch.load`: PyTorch's own zip files, which both libraries read.

A file of plain data holds tensors, numbers, texts, and dicts, lists and tuples of them. It is
written as PyTorch writes it, a pickle in which each tensor names a storage, and is read by
`tilegrad.io.torch_load`, which runs nothing. What else a program saves, such as a whole module, is
a pickle of its own kind (`objects.py`).
"""

from __future__ import annotations

import errno
import io
import math
import os
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, article
from tilegrad.io import torch_load
from tilegrad.io.torch_values import Marks
from tilegrad.tensor.handle.sizes import here
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex
from tilegrad.torch.devices import device, name_of
from tilegrad.torch.objects import MEMBER, pickled, unpickled
from tilegrad.torch.sizes import Size
from tilegrad.torch.tensor import Tensor, as_ours

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
    """The pickle of a value, and the tensors that it names."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.tensors: list[Any] = []
        self._keys: dict[int, int] = {}

    def name(self, module: str, name: str) -> None:
        """A class or a function by its name, which the reader looks up."""
        self.out += f"c{module}\n{name}\n".encode()

    def call(self, module: str, name: str, *arguments: Any) -> None:
        """What a named function gives."""
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
        if isinstance(value, OurTensor):
            self.tensor(as_ours(value))
        elif isinstance(value, Complex):
            self.tensor(value.pair, _PAIRS[value.pair.dtype])
        elif isinstance(value, (numpy.generic, bool, int, float, str, type(None))):
            self.scalar(value.item() if isinstance(value, numpy.generic) else value)
        elif isinstance(value, Size):
            self.call("torch", "Size", tuple(value))
        elif isinstance(value, DType):
            self.name("torch", value.name)
        elif isinstance(value, Mapping):
            self.mapping(value)
        elif isinstance(value, list):
            self.many(b"](", value, b"e")
        elif isinstance(value, tuple):
            self.many(b"(", value, b"t")
        elif isinstance(value, numpy.ndarray):
            self.tensor(Tensor(value, device="cpu"))
        else:
            raise _NoPlainDataError

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
        self.many(b"(", [each for pair in value.items() for each in pair], b"u")

    def tensor(self, tensor: Any, kind: str | None = None) -> None:
        """A tensor as a storage of its own, in row-major order; pairs as complex numbers of a
        `kind`.
        """
        is_pairs, kind = kind is not None, kind or _STORAGES.get(tensor.dtype)
        if kind is None:
            raise DataError(
                f"torch.save: {article(tensor.dtype.name)} tensor has no storage", line=here()
            )
        key = self._keys.setdefault(id(tensor), len(self._keys))
        if key == len(self.tensors):
            self.tensors.append(tensor)
        sizes = tuple(int(size) for size in tensor.shape[: -1 if is_pairs else None])
        strides, step = [], 1
        for size in reversed(sizes):
            strides.append(step)
            step *= size

        def storage() -> None:
            self.out += b"("
            self.value("storage")
            self.name("torch", kind)
            for field in (str(key), "cpu", math.prod(sizes)):
                self.value(field)
            self.out += b"tQ"

        is_parameter = tensor.__dict__.get("_is_parameter", False)
        wanted = bool(tensor.requires_grad) and tensor.is_leaf
        data: tuple[Any, ...] = (
            _Code(storage),
            0,
            sizes,
            tuple(reversed(strides)),
            wanted,
            OrderedDict(),
        )
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
        raw, tensors = bytes(writer.out) + b".", writer.tensors
    except _NoPlainDataError:
        member = MEMBER
        raw, tensors = pickled(obj)
    if tensors:
        Tensor.realize(*[each.detach() for each in tensors])
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, raw)
        archive.writestr("archive/byteorder", "little")
        for key, tensor in enumerate(tensors):
            archive.writestr(f"archive/data/{key}", _raw(tensor))
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
    """What `save`, or PyTorch, wrote to a file: plain data with its tensors. A whole module, or
    another object, is read with `weights_only=False`: its file says which code runs.

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
    found: list[Any] = []
    marks = Marks()
    value = _own(torch_load(source, target, marks=marks), found, marks)
    if found:
        # The file may be written anew while the tensors live.
        Tensor.realize(*found)
    return value


def _own(value: Any, found: list[Any], marks: Marks) -> Any:
    if isinstance(value, OurTensor):
        made = as_ours(value).clone()
        made._is_leaf = True
        if made._has_elements():
            found.append(made)
        if id(value) in marks.pairs:
            return Complex(made)
        is_parameter = marks.trained.get(id(value))
        if is_parameter is not None:
            made.requires_grad = made.dtype.is_float
            made._is_parameter = is_parameter
        return made
    if isinstance(value, dict):
        return type(value)((key, _own(each, found, marks)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)([_own(each, found, marks) for each in value])
    return value
