"""NumPy's files: `.npy`, one array, and `.npz`, a zip archive of them.

The header of an array is Python text; it is taken apart here, never evaluated, and arrays of Python
objects, which are pickles, are refused. Arrays that are stored as they are stay in the mapped file
until they are used; compressed ones are inflated within a limit.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, DTypeError, article
from tilegrad.io.archive import Archive
from tilegrad.io.atomic import atomic_write, not_written
from tilegrad.io.mapped import Source, damaged, is_sizes, source_of, tensor_over
from tilegrad.tensor.tensor import Tensor

__all__ = ["npy_load", "npy_save", "npz_load", "npz_save"]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 16
_ALIGNMENT = 64
_ZIP64 = 1 << 31
_ITEM = {
    "descr": re.compile(r"""['"]descr['"] *: *['"]([^'"]*)['"]"""),
    "fortran_order": re.compile(r"""['"]fortran_order['"] *: *(True|False)"""),
    "shape": re.compile(r"""['"]shape['"] *: *\(([0-9L, ]*)\)"""),
}
_CODES = {
    "b1": dtypes.bool, "i1": dtypes.int8, "u1": dtypes.uint8, "i2": dtypes.int16,
    "u2": dtypes.uint16, "i4": dtypes.int32, "u4": dtypes.uint32, "i8": dtypes.int64,
    "u8": dtypes.uint64, "f2": dtypes.float16, "f4": dtypes.float32, "f8": dtypes.float64,
}  # fmt: skip
_NAMES = {dtype: code for code, dtype in _CODES.items()}


def npy_load(path: Source, device: str | None = None) -> Tensor:
    """Array of a `.npy` file, read when it is used.

    Args:
        path: a path, a file, bytes, or a uint8 tensor.
        device: name of the device, by default `Device.DEFAULT`.

    Returns a tensor of the shape and dtype of the array.

    Raises DataError if the file is absent or damaged, or the array is not of a tensor's dtype.

    >>> npy_save(Tensor([1, 2]), "weights.npy")
    >>> npy_load("weights.npy").tolist()
    [1, 2]
    """
    file, data = source_of("npy_load", path)
    return _array(file, "npy_load", data, device, None)


def npy_save(tensor: Tensor, path: str | os.PathLike[str]) -> None:
    """Write a tensor to a `.npy` file, which appears whole or not at all.

    Args:
        tensor: a tensor of any shape.
        path: the file.

    Returns None.

    Raises DTypeError for a dtype that NumPy lacks, DataError if the file cannot be written.

    >>> npy_save(Tensor([1, 2]), "weights.npy")
    """
    file = os.fspath(path)
    head, raw = _written("npy_save", file, "", tensor)
    try:
        with atomic_write(Path(file)) as opened:
            opened.write(head)
            opened.write(raw)
    except OSError as error:
        raise not_written("npy_save", file, error, len(head) + raw.nbytes) from error


def npz_load(
    path: Source, device: str | None = None, limit: int | None = None
) -> dict[str, Tensor]:
    """Arrays of a `.npz` file by name, read when they are used. Compressed arrays are inflated now.

    Args:
        path: a path, a file, bytes, or a uint8 tensor.
        device: name of the device, by default `Device.DEFAULT`.
        limit: most bytes of all inflated arrays, by default 100 times the file and 64 MiB.

    Returns a dict of tensors of the shapes and dtypes of the arrays.

    Raises DataError if the file is absent or damaged, or an array is not of a tensor's dtype.

    >>> npz_save({"weight": Tensor([1, 2])}, "weights.npz")
    >>> npz_load("weights.npz")["weight"].tolist()
    [1, 2]
    """
    file, data = source_of("npz_load", path)
    archive = Archive("npz_load", file, data, limit)
    return {
        name.removesuffix(".npy"): _array(file, "npz_load", archive.bytes_of(name), device, name)
        for name in archive.members
        if not name.endswith("/")
    }


def npz_save(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], compressed: bool = False
) -> None:
    """Write tensors to a `.npz` file, which appears whole or not at all.

    Args:
        tensors: tensors by name, of any shapes.
        path: the file.
        compressed: whether arrays are deflated; else they are aligned, so that they can be used in
            the mapped file.

    Returns None.

    Raises DTypeError for a dtype that NumPy lacks (save bfloat16 with `safe_save`), DataError if
    the file cannot be written.

    >>> npz_save({"weight": Tensor([1, 2])}, "weights.npz", compressed=True)
    """
    file = os.fspath(path)
    contents = {name: _written("npz_save", file, name, tensor) for name, tensor in tensors.items()}
    try:
        with atomic_write(Path(file)) as opened, zipfile.ZipFile(opened, "w") as archive:
            for name, (head, raw) in contents.items():
                _add(archive, opened, f"{name}.npy", head, raw, compressed)
    except OSError as error:
        size = sum(len(head) + raw.nbytes for head, raw in contents.values())
        raise not_written("npz_save", file, error, size) from error


def _add(
    archive: zipfile.ZipFile, file: BinaryIO, name: str, head: bytes, raw: memoryview, packed: bool
) -> None:
    """A member of the archive whose data begin at a multiple of the alignment."""
    # A fixed date: the same tensors give the same file.
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    is_large = len(head) + raw.nbytes >= _ZIP64
    if not packed:
        begin = file.tell() + 30 + len(name.encode()) + (20 if is_large else 0)
        pad = (-begin - 4) % _ALIGNMENT
        member.extra = struct.pack("<HH", 0x4754, pad) + bytes(pad)
    with archive.open(member, "w", force_zip64=is_large) as opened:
        opened.write(head)
        opened.write(raw)


def _written(writer: str, file: str, name: str, tensor: Any) -> tuple[bytes, memoryview]:
    """The header and the bytes of a tensor's array."""
    if not isinstance(tensor, Tensor):
        raise DTypeError(f"{writer}: {name!r} is {article(type(tensor).__name__)}, not a Tensor")
    code = _NAMES.get(tensor.dtype)
    if code is None:
        raise DTypeError(
            f"{writer}: NumPy has no {tensor.dtype.name}",
            file=file,
            tensor=repr(name),
            remedy="cast it to float32, or write a safetensors file",
        )
    raw = tensor.data().cast("B")
    shape = tensor._bound_shape()
    order = "|" if tensor.dtype.itemsize == 1 else "<"
    text = f"{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % _ALIGNMENT) + "\n"
    return _MAGIC + b"\1\0" + struct.pack("<H", len(text)) + text.encode(), raw


def _array(
    file: str, reader: str, data: memoryview, device: str | None, member: str | None
) -> Tensor:
    """The tensor of an array whose header stands at the beginning of `data`."""

    def wrong(what: str, expected: object, got: object) -> DataError:
        more = {} if member is None else {"member": repr(member)}
        return damaged(reader, file, what, expected, got, **more)

    if bytes(data[:6]) != _MAGIC or data.nbytes < 12:
        raise wrong("not an array of NumPy", _MAGIC, bytes(data[:6]))
    major = data[6]
    if major not in (1, 2, 3):
        raise wrong("unknown version", "1, 2 or 3", major)
    code, begin = ("<H", 10) if major == 1 else ("<I", 12)
    (length,) = struct.unpack(code, data[8:begin])
    if length > _MAX_HEADER or begin + length > data.nbytes:
        raise wrong("the header is too long, or truncated", f"{data.nbytes - begin} bytes", length)
    descr, is_fortran, shape = _header(bytes(data[begin : begin + length]), wrong)
    dtype = _CODES.get(descr[1:])
    if dtype is None or descr[0] not in "<>|=":
        what = "an array of what tensors do not hold"
        raise wrong(what, ", ".join(_CODES), repr(descr))
    raw = data[begin + length :]
    needed = math.prod(shape) * dtype.itemsize
    if raw.nbytes < needed:
        raise wrong("the file is truncated", f"{needed} bytes for {shape}", f"{raw.nbytes} bytes")
    raw = raw[:needed]
    if descr[0] == ">" and dtype.itemsize > 1 and needed:
        raw = _swapped(raw, dtype)
    if not is_fortran:
        return tensor_over(raw, dtype, shape, device)
    return tensor_over(raw, dtype, shape[::-1], device).permute(*reversed(range(len(shape))))


def _header(raw: bytes, wrong: Any) -> tuple[str, bool, tuple[int, ...]]:
    """The dtype's code, whether columns are neighbours, and the shape."""
    text = raw.decode("latin-1")
    found = {}
    for key, pattern in _ITEM.items():
        matches = pattern.findall(text)
        if len(matches) != 1:
            # An array of records has a list for its dtype.
            raise wrong(f"no plain {key} in the header", "one", f"{text:.80}")
        found[key] = matches[0]
    sizes = [size.strip().removesuffix("L") for size in found["shape"].split(",")]
    if any(not size.isdecimal() for size in sizes[:-1]) or len(text) > _MAX_HEADER:
        raise wrong("the shape is not a tuple of sizes", "sizes", found["shape"][:80])
    if any(len(size) > 20 for size in sizes) or (sizes[-1] and not sizes[-1].isdecimal()):
        raise wrong("the shape is not a tuple of sizes", "sizes", found["shape"][:80])
    shape = tuple(int(size) for size in sizes if size)
    if not is_sizes(shape) or not found["descr"]:
        raise wrong("the shape is not a tuple of sizes", "sizes that fit memory", str(shape)[:80])
    return found["descr"], found["fortran_order"] == "True", shape


def _swapped(raw: memoryview, dtype: DType) -> memoryview:
    """The items with their bytes in this machine's order."""
    import numpy

    return memoryview(numpy.frombuffer(raw, f"u{dtype.itemsize}").byteswap().tobytes())
