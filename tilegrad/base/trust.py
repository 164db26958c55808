"""Trust in files: code that is run as it is read must be the user's own, and no other's to write.

On POSIX that is the owner and the mode of the file and of each folder from the cache folder down.
Windows keeps who may write in access lists, which the standard library does not read: there the
cache lies in the user's own profile, and a folder named otherwise is trusted as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import warnings
from pathlib import Path

__all__ = ["make_private", "problem_of", "read_private"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | _NO_FOLLOW
# More than any entry has; a file is read whole.
_MOST_BYTES = 1 << 30
_warned = False


def problem_of(found: os.stat_result) -> str | None:
    """The fault of a file or folder that is to be the user's own, or None."""
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to you (user {os.geteuid()})"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def _chain(path: Path, root: Path) -> list[Path]:
    """The folders from `root` down to `path`."""
    inner = [*path.relative_to(root).parents][:-1] if path != root else []
    return [root, *(root / each for each in reversed(inner)), path] if path != root else [root]


def _is_private(path: Path, root: Path) -> bool:
    """Whether `root`, and each folder on the way down to `path`, is the user's own; warns once of
    one that is not. The root may be a link, as a user may keep the cache elsewhere.

    Raises NotADirectoryError for a file where a folder is expected.
    """
    for each in _chain(path, root):
        found = os.stat(each) if each == root else os.lstat(each)
        problem = "is a link" if stat.S_ISLNK(found.st_mode) else problem_of(found)
        if problem is None and not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(each))
        if problem is not None:
            _warn(each, problem)
            return False
    return True


def _warn(path: Path, problem: str) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"the cache is not used: {path} {problem}; compiled code is only taken from what is yours "
        f"alone: chmod go-w it, remove it, or set TILEGRAD_CACHE to another folder",
        RuntimeWarning,
        stacklevel=5,
    )


def read_private(path: Path, root: Path, now_used: int | None) -> bytes | None:
    """The bytes of a file under the folder `root`; None if there is none, or it is not the user's
    own. If it was used more than `now_used` seconds ago, the time of this use is written down.
    """
    try:
        handle = os.open(path, _READ)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        if (problem := problem_of(found)) is not None:
            _warn(path, problem)
            return None
        if not _is_private(path.parent, root):
            return None
        if now_used is not None and time.time() - found.st_mtime > now_used:
            with contextlib.suppress(OSError):
                os.utime(handle if os.utime in os.supports_fd else path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            # A limit above the size would be allocated as it stands.
            return file.read(found.st_size)
    except OSError:
        return None
    finally:
        os.close(handle)


def make_private(path: Path, root: Path) -> bool:
    """Make the folder `path` and those above it, for the user alone; False if one that is there
    from `root` down is not the user's own.
    """
    missing = []
    above = path
    while not os.path.lexists(above):
        missing.append(above)
        above = above.parent
    if root not in missing and not _is_private(above, root):
        return False
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)
    return not missing or _is_private(path, root)
