"""Writing a file whole or not at all.

The bytes go to a new file beside the wanted one, reach the disk, and take its name in one step. So
there is always either the old file or the new one, and an error removes what was half written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_write"]


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


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
