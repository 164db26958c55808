"""Writing a file whole or not at all.

The bytes go to a new file beside the wanted one, reach the disk, and take its name in one step. So
there is always either the old file or the new one, and an error removes what was half written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tilegrad.base.errors import DataError

__all__ = ["atomic_write", "not_written"]


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which becomes `path` when the block ends without an exception.

    A symbolic link at `path` is kept, and what it points to is replaced. An OSError of the file
    system comes through as it is.
    """
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private to the user, and these shall have ordinary permissions.
    partial = target.with_name(f".part-{os.getpid()}-{secrets.token_hex(4)}")
    file = partial.open("xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _sync_folder(target.parent)


def not_written(writer: str, file: str, error: OSError, size: int) -> DataError:
    """The error for a file of `size` bytes that `writer` could not write."""
    folder = Path(os.path.realpath(file)).parent
    try:
        free = f"{shutil.disk_usage(folder).free} bytes"
    except OSError:
        free = "unknown"
    return DataError(
        f"{writer}: cannot write the file: {error.strerror or error}",
        file=file,
        needed=f"{size} bytes",
        free=free,
        left="nothing new; a file that was there before is as it was",
        fix="free space on the disk, or write to a folder that exists and that you may write to",
    )


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
