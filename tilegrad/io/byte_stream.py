"""A tensor's bytes as a file, for libraries that read files."""

from __future__ import annotations

import io
from typing import Any

from tilegrad.base.errors import DTypeError
from tilegrad.tensor.tensor import Tensor

__all__ = ["TensorIO"]


class TensorIO(io.RawIOBase):
    """Binary file to read, whose content is a tensor of bytes. `io.BufferedReader` around it makes
    many small reads cheap.

    Args:
        tensor: uint8, of shape (bytes,).

    Raises DTypeError for another dtype or number of axes, ValueError for a position before the
    start or once it is closed.

    >>> TensorIO(Tensor(b"hello")).read(4)
    b'hell'
    """

    def __init__(self, tensor: Tensor):
        super().__init__()
        if tensor.ndim != 1 or tensor.dtype.name != "uint8":
            raise DTypeError(
                "TensorIO: one axis of uint8 is needed",
                got=f"{tensor.shape} of {tensor.dtype.name}",
            )
        self._data = tensor.data()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        read = self._data[self._at : self._at + target.nbytes]
        target[: read.nbytes] = read
        self._at += read.nbytes
        return read.nbytes

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._data.nbytes}.get(whence)
        if start is None or start + offset < 0:
            raise ValueError(f"seek: no place {offset} from {whence}")
        self._at = start + offset
        return self._at
