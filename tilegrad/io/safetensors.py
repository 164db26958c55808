"""Reading and writing safetensors files.

A file is the length of a header (8 bytes, little-endian), the header (a JSON object: for each
tensor its dtype, its shape and where its bytes lie), and the bytes of all tensors, one after
another, without a gap. This module knows the file and NumPy, not `Tensor`.

Nothing in a header is believed before it is checked: names are unique, the bytes of a tensor are as
many as its shape and dtype need, and all tensors together fill the file exactly. So no number in a
file makes this module allocate: arrays are views of the mapped file, read when they are used.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegrad.base.errors import DataError, DTypeError
from tilegrad.base.files import open_file
from tilegrad.io.atomic import atomic_write, not_written

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Entry", "read_metadata", "read_safetensors", "storage_of", "write_safetensors"]

# The format's own limit for a header; and NumPy 1's for the number of axes.
_MAX_HEADER_BYTES = 100_000_000
_MAX_AXES = 32
_METADATA = "__metadata__"
_FIELDS = ("dtype", "shape", "data_offsets")


@dataclass(frozen=True)
class _Format:
    """A dtype: its name in a file, its name here, and the NumPy type of the array that holds it."""

    code: str
    name: str
    storage: str
    itemsize: int


# NumPy has no bfloat16 and no 8-bit floats: their arrays hold the bits.
_FORMATS = (
    _Format("BOOL", "bool", "?", 1),
    _Format("U8", "uint8", "<u1", 1),
    _Format("I8", "int8", "<i1", 1),
    _Format("F8_E4M3", "fp8e4m3", "<u1", 1),
    _Format("F8_E5M2", "fp8e5m2", "<u1", 1),
    _Format("F8_E4M3FNUZ", "fp8e4m3fnuz", "<u1", 1),
    _Format("F8_E5M2FNUZ", "fp8e5m2fnuz", "<u1", 1),
    _Format("F8_E8M0", "float8_e8m0fnu", "<u1", 1),
    _Format("U16", "uint16", "<u2", 2),
    _Format("I16", "int16", "<i2", 2),
    _Format("F16", "float16", "<f2", 2),
    _Format("BF16", "bfloat16", "<u2", 2),
    _Format("U32", "uint32", "<u4", 4),
    _Format("I32", "int32", "<i4", 4),
    _Format("F32", "float32", "<f4", 4),
    _Format("U64", "uint64", "<u8", 8),
    _Format("I64", "int64", "<i8", 8),
    _Format("F64", "float64", "<f8", 8),
)
_BY_CODE = {format.code: format for format in _FORMATS}
_BY_NAME = {format.name: format for format in _FORMATS}


Source = str | os.PathLike[str] | memoryview


@dataclass(frozen=True, eq=False)
class Entry:
    """One tensor of a file. Where NumPy lacks the dtype, `data` holds its bits, unsigned."""

    dtype_name: str
    shape: tuple[int, ...]
    data: npt.NDArray[Any]


@dataclass(frozen=True)
class _Extent:
    """The checked entry of a tensor in a header: its bytes are `begin` to `end` of the file."""

    format: _Format
    shape: tuple[int, ...]
    begin: int
    end: int


def storage_of(name: str) -> str | None:
    """The NumPy type of the arrays that hold the dtype `name`; None if the format lacks it."""
    format = _BY_NAME.get(name)
    return None if format is None else format.storage


def read_safetensors(path: Source) -> dict[str, Entry]:
    """All tensors of the file (or of its bytes), by name, in the order of their bytes.

    The arrays are read-only views of the mapped file. They need not be aligned for their dtype, and
    must not be used after the file was changed in place; `write_safetensors` replaces a file and
    does them no harm.
    """
    import numpy as np

    mapped, _, extents = _open(path)
    entries = {}
    for name, extent in extents.items():
        data: npt.NDArray[Any]
        if extent.begin == extent.end:
            data = np.zeros(extent.shape, extent.format.storage)
            data.flags.writeable = False
        else:
            count = math.prod(extent.shape)
            flat = np.frombuffer(mapped, extent.format.storage, count, extent.begin)
            data = flat.reshape(extent.shape)
        entries[name] = Entry(extent.format.name, extent.shape, data)
    return entries


def read_metadata(path: Source) -> dict[str, str]:
    """The texts that the writer of the file added to it."""
    return _open(path)[1]


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Entry | npt.NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `tensors` to a file that appears whole or not at all; an older one stays until then.

    Large items come first and the bytes start at a multiple of 8, so that every array of the file
    is aligned. The same tensors give the same file, byte for byte.
    """
    target = os.fspath(path)
    entries = {name: _as_entry(target, name, tensors[name]) for name in tensors}
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DataError(
                "write_safetensors: metadata is not text",
                file=target,
                got=f"{key!r}: {value!r}",
                expected="a str for each str",
            )
    order = sorted(entries, key=lambda name: (-_BY_NAME[entries[name].dtype_name].itemsize, name))
    header: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        entry = entries[name]
        begin, end = end, end + entry.data.nbytes
        code = _BY_NAME[entry.dtype_name].code
        header[name] = dict(zip(_FIELDS, (code, list(entry.shape), [begin, end]), strict=True))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER_BYTES:
        raise DataError(
            "write_safetensors: the header is longer than the format allows",
            file=target,
            expected=f"at most {_MAX_HEADER_BYTES} bytes",
            got=f"{len(text)} bytes for {len(entries)} tensors",
        )
    try:
        with atomic_write(Path(target)) as file:
            file.write(struct.pack("<Q", len(text)))
            file.write(text)
            for name in order:
                file.write(entries[name].data.reshape(-1).view("u1").data)
    except OSError as error:
        raise not_written("write_safetensors", target, error, 8 + len(text) + end) from error


def _as_entry(file: str, name: str, tensor: Entry | npt.NDArray[Any]) -> Entry:
    """`tensor` with contiguous little-endian data, its name and dtype checked."""
    import numpy as np

    if isinstance(tensor, Entry):
        given, dtype_name = tensor.data, tensor.dtype_name
    else:
        given, dtype_name = tensor, tensor.dtype.name
    if not isinstance(name, str) or name == _METADATA:
        raise DataError(
            f"write_safetensors: a tensor cannot be called {name!r}",
            file=file,
            expected=f"any text but {_METADATA!r}, which the format keeps for itself",
        )
    format = _BY_NAME.get(dtype_name)
    if format is None or np.dtype(format.storage) != given.dtype.newbyteorder("<"):
        raise DTypeError(
            f"write_safetensors: {name!r} has a dtype that the format lacks",
            file=file,
            got=f"{dtype_name} in an array of {given.dtype.name}",
            known=", ".join(_BY_NAME),
        )
    if isinstance(tensor, Entry) and tensor.shape != given.shape:
        raise DataError(
            f"write_safetensors: {name!r} does not have the shape that it states",
            file=file,
            expected=tensor.shape,
            got=given.shape,
        )
    data = np.ascontiguousarray(given, format.storage).reshape(given.shape)
    return Entry(format.name, given.shape, data)


def _open(source: Source) -> tuple[memoryview, dict[str, str], dict[str, _Extent]]:
    """The bytes of the file, its metadata and its tensors, all checked."""
    file, mapped = _mapped(source)
    size = mapped.nbytes
    if size < 8:
        raise _damaged(file, "the file is truncated", "8 bytes or more", f"{size} bytes")
    (length,) = struct.unpack("<Q", mapped[:8])
    if length > _MAX_HEADER_BYTES:
        what = "the header is too long, or this is no safetensors file"
        raise _damaged(file, what, f"at most {_MAX_HEADER_BYTES} bytes", f"{length} bytes")
    if length > size - 8:
        raise _damaged(
            file,
            "the file is truncated in its header",
            f"{8 + length} bytes or more",
            f"{size} bytes",
        )
    header = _parse_header(file, bytes(mapped[8 : 8 + length]))
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or any(type(text) is not str for text in metadata.values()):
        raise _damaged(file, f"{_METADATA} is not a table of texts", "a str for each str", metadata)
    extents = {name: _checked(file, name, header[name], 8 + length, size) for name in header}
    extents = dict(sorted(extents.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_filled(file, extents, 8 + length, size)
    return mapped, metadata, extents


def _mapped(source: Source) -> tuple[str, memoryview]:
    if isinstance(source, memoryview):
        return f"{source.nbytes} bytes", source.cast("B")
    file = os.fspath(source)
    try:
        with open_file(file) as opened:
            if not os.fstat(opened.fileno()).st_size:
                return file, memoryview(b"")
            return file, memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise DataError(
            f"read_safetensors: cannot open the file: {error.strerror or error}", file=file
        ) from error


def _parse_header(file: str, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = [name for name in counts if counts[name] > 1]
            raise _damaged(file, "a name stands twice in the header", "each name once", twice)
        return table

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise _damaged(file, "the header is not JSON", "a JSON object in UTF-8", error) from error
    if not isinstance(header, dict):
        got = type(header).__name__
        raise _damaged(file, "the header is not a JSON object", "an entry for each tensor", got)
    return header


def _checked(file: str, name: str, entry: Any, data_start: int, size: int) -> _Extent:
    """Where the tensor `name` lies, by its `entry` in the header; data begin at `data_start`."""
    if not isinstance(entry, dict) or set(entry) != set(_FIELDS):
        got = ", ".join(entry) if isinstance(entry, dict) else type(entry).__name__
        raise _damaged(file, "an entry has other fields", ", ".join(_FIELDS), got, name)
    format = _BY_CODE.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if format is None:
        raise _damaged(file, "unknown dtype", ", ".join(_BY_CODE), repr(entry["dtype"]), name)
    shape = entry["shape"]
    if not _is_sizes(shape) or len(shape) > _MAX_AXES or math.prod(filter(None, shape)) >= 1 << 62:
        expected = f"at most {_MAX_AXES} sizes, none negative"
        raise _damaged(file, "the shape is not a list of sizes", expected, shape, name)
    offsets = entry["data_offsets"]
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        expected = "a begin and an end, neither negative"
        raise _damaged(file, "the offsets are not a pair in order", expected, offsets, name)
    needed, found = math.prod(shape) * format.itemsize, offsets[1] - offsets[0]
    if needed != found:
        expected = f"{needed} bytes for {tuple(shape)} of {format.name}"
        raise _damaged(file, "size and shape differ", expected, f"{found} bytes", name)
    if offsets[1] > size - data_start:
        expected = f"{data_start + offsets[1]} bytes or more"
        raise _damaged(file, "the file is truncated in its data", expected, f"{size} bytes", name)
    return _Extent(format, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _check_filled(file: str, extents: dict[str, _Extent], data_start: int, size: int) -> None:
    """Each tensor of `extents`, sorted by where they begin, begins where the one before it ends."""
    end = data_start
    for name, extent in extents.items():
        if extent.begin != end:
            what = "tensors overlap" if extent.begin < end else "a gap before a tensor"
            got = f"byte {extent.begin - data_start}"
            raise _damaged(file, what, f"begin at byte {end - data_start}", got, name)
        end = extent.end
    if end != size:
        what = "bytes after the last tensor"
        raise _damaged(file, what, f"{end} bytes in the file", f"{size} bytes")


def _is_sizes(values: object) -> bool:
    """Whether `values` is a list of integers that are no bools and not negative."""
    return isinstance(values, list) and all(type(item) is int and item >= 0 for item in values)


def _damaged(
    file: str, what: str, expected: object, got: object, tensor: str | None = None
) -> DataError:
    shown = str(got)
    details: dict[str, object] = {"file": file}
    if tensor is not None:
        details["tensor"] = repr(tensor)
    details["expected"] = expected
    details["got"] = shown if len(shown) <= 200 else shown[:200] + " ..."
    return DataError(f"read_safetensors: {what}", **details)
