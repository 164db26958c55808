"""Files that are read: such as hold bytes, and no pipes or devices, which wait or never end."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

__all__ = ["open_file"]


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading. Raises OSError, also for a path that is no file of bytes."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(0, "it is a pipe, a socket or a device", os.fspath(path))
    return open(path, "rb")
