"""Writing a file whole or not at all.

The bytes go to a new file beside the wanted one, reach the disk, and take its name in one step. So
there is always either the old file or the new one, and an error removes what was half written.
Files that a killed process has left are removed by the next writer in the folder, an hour later.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tilegrad.base.errors import DataError

__all__ = ["atomic_write", "not_written"]

_UNFINISHED = re.compile(r"\.part-[0-9]+-[0-9a-f]{8}")
# Age of an unfinished file, in seconds, from which on its writer is taken to be gone.
_LEFT_OVER_SECONDS = 3600


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which becomes `path` when the block ends without an exception.

    A symbolic link at `path` is kept, and what it points to is replaced. An OSError of the file
    system comes through as it is.
    """
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private to the user, and these shall have ordinary permissions.
    partial = target.with_name(f".part-{os.getpid()}-{secrets.token_hex(4)}")
    _remove_left_over(target.parent)
    file = partial.open("xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        # No part of a file is left, whatever interrupts the writer.
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
        remedy="free space on the disk, or write to a folder that exists and that you may write to",
    )


def _remove_left_over(folder: Path) -> None:
    """Remove the unfinished files of writers that were killed."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _UNFINISHED.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and now - found.st_mtime > _LEFT_OVER_SECONDS:
                    os.unlink(entry.path)


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
