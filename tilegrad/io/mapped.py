"""A file as memory, and tensors over it.

Every loader maps its file: nothing is read before it is used, and a weight that no kernel needs is
never read at all. The mapping is read-only and lives as long as anything that looks at it. A file
that is shortened in place while it is mapped takes the process down, as the system cannot give the
bytes any more; the writers of this package replace files and never do that.
"""

from __future__ import annotations

import math
import mmap
import os

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, DTypeError, article
from tilegrad.base.files import open_file
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.storage import memory
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "MAX_AXES", "Source", "damaged", "dtype_called", "is_sizes", "map_file", "source_of",
    "tensor_over",
]  # fmt: skip

Source = str | os.PathLike[str] | Tensor | bytes | bytearray | memoryview
"""Sources that loaders read: a path, a uint8 tensor with a file's bytes (as `Tensor(path)`), or
bytes.
"""

# NumPy 1's limit for the number of axes, and for each product of sizes what 64 bits hold.
MAX_AXES = 32
_MAX_BYTES = 1 << 62
_SHOWN = 200

_OTHER_NAMES = {
    "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2",
    "float8_e4m3fnuz": "fp8e4m3fnuz", "float8_e5m2fnuz": "fp8e5m2fnuz",
}  # fmt: skip


def map_file(reader: str, path: str | os.PathLike[str]) -> memoryview:
    """The bytes of a file, read-only and not yet read.

    Raises DataError, in the name of `reader`, if the file cannot be opened.
    """
    file = os.fspath(path)
    try:
        with open_file(file) as opened:
            if not os.fstat(opened.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{reader}: cannot open the file: {why}", file=file) from error


def source_of(reader: str, source: Source) -> tuple[str, memoryview]:
    """Name of a source in messages, and its bytes: a file's, or those that a tensor holds.

    Raises DataError if the file cannot be opened.
    """
    if isinstance(source, Tensor):
        return f"{describe(source.uop)} tensor", source.data().cast("B")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return f"{len(source)} bytes", memoryview(source).cast("B").toreadonly()
    if not isinstance(source, (str, os.PathLike)):
        raise DTypeError(
            f"{reader}: cannot read {article(type(source).__name__)}",
            rule="the path of a file, its bytes, or a tensor of them",
        )
    return os.fspath(source), map_file(reader, source)


def damaged(
    reader: str, file: str | os.PathLike[str], what: str, expected: object, got: object, **more: str
) -> DataError:
    """The error for a file that is not what its format demands."""
    shown = str(got)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    return DataError(
        f"{reader}: {what}", file=os.fspath(file), **more, expected=expected, got=shown
    )


def dtype_called(name: str) -> DType | None:
    """The dtype of tensors with this name, or PyTorch's name for it; None if there is none."""
    wanted = _OTHER_NAMES.get(name, name)
    return next((dtype for dtype in dtypes.all if dtype.name == wanted), None)


def is_sizes(values: object) -> bool:
    """Whether `values` is a tuple or list of sizes that a tensor can have."""
    return (
        isinstance(values, (list, tuple))
        and len(values) <= MAX_AXES
        and all(type(size) is int and size >= 0 for size in values)
        and math.prod(filter(None, values)) < _MAX_BYTES
    )


def tensor_over(
    data: memoryview, dtype: DType, shape: tuple[int, ...], device: str | None
) -> Tensor:
    """The tensor whose bytes are `data`, on `device`: in place where that device reaches the host's
    memory, else copied when it is first needed. It never writes to `data`.
    """
    if 0 in shape:
        return Tensor.full(shape, 0, device=device, dtype=dtype)
    name = canonical(device)
    return Tensor._of(memory.over(name, dtype, data, shape), name)._wanting(None)
