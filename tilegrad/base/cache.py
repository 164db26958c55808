"""Cache on disk for values that are computed once: one file per entry, in a folder per table.

An entry carries a checksum: a damaged one is a miss and is removed. Writes go to a temporary file
and are renamed, so that concurrent writers and a kill leave either the old entry or the new one. A
folder that cannot be written, or a full disk, costs speed only: one warning, and the run goes on.

Binaries are run as they are read, so the files must be the user's own: a folder or file of another
user, or that others can write, is left alone with one warning (`base.trust`). An entry is data:
JSON, text, or the object code of a kernel. Nothing that Python would run is in it.

All entries together take at most CACHE_MEGABYTES. `_USAGE` is a sparse file as many bytes long as
there are blocks in use: a writer appends to it, and the one that takes it past the limit counts
anew and removes the entries used longest ago.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tilegrad.base.config import config
from tilegrad.base.trust import make_private, read_private

__all__ = ["Usage", "clear", "digest", "folder", "get", "has_entries", "put", "usage"]

_VERSION = "2"
_CHECK_BYTES = 16
_USAGE, _UNFINISHED = ".usage", ".part-"
_BLOCK = 4096
# Writing an entry takes milliseconds: older files were left by a writer that is gone.
_LEFT_OVER_SECONDS = 600
# The time of the last use is written down at most so often.
_USE_SECONDS = 600
_warned = False
# Whether this process has looked for files that others left, by cache folder.
_looked: set[Path] = set()


def folder() -> Path:
    """The cache folder (not made by this call): `TILEGRAD_CACHE`, or the platform's user cache
    folder.
    """
    if config.CACHE:
        return Path(config.CACHE)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tilegrad"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "tilegrad" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilegrad"


def digest(*texts: str | bytes) -> str:
    """A key made of `texts`: any change of any part gives another."""
    state = hashlib.blake2b(digest_size=20)
    for text in texts:
        raw = text.encode() if isinstance(text, str) else text
        state.update(len(raw).to_bytes(8, "little"))
        state.update(raw)
    return state.hexdigest()


def _check(table: str, key: str, payload: bytes) -> bytes:
    """The checksum of an entry. It covers the name, so that another entry's file is damage too."""
    state = hashlib.blake2b(f"{table}/{key}\n".encode(), digest_size=_CHECK_BYTES)
    state.update(payload)
    return state.digest()


def _base() -> Path:
    return folder() / f"v{_VERSION}"


def _path(table: str, key: str) -> Path | None:
    """The path of an entry; None for a key that is none, as a damaged plan may name."""
    if not (key.isascii() and key.isalnum()):
        return None
    return _base() / table / key[:1] / key[1:]


def has_entries() -> bool:
    """Whether anything was kept here before, and may be read."""
    return not config.DISABLE_COMPILER_CACHE and _base().exists()


def get(table: str, key: str) -> bytes | None:
    """The entry under `key`, or None."""
    if config.DISABLE_COMPILER_CACHE:
        return None
    path = _path(table, key)
    if path is None:
        return None
    raw = read_private(path, folder(), now_used=_USE_SECONDS)
    if raw is None:
        return None
    payload = raw[_CHECK_BYTES:]
    if raw[:_CHECK_BYTES] != _check(table, key, payload):
        # In a folder that cannot be written it stays, and stays a miss.
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return payload


def put(table: str, key: str, payload: bytes) -> None:
    """Keep `payload` under `key`."""
    global _warned
    path = _path(table, key)
    if config.DISABLE_COMPILER_CACHE or path is None:
        return
    try:
        if not make_private(path.parent, folder()):
            return
        _write(path, _check(table, key, payload) + payload)
        _account(len(payload))
    except OSError as error:
        if not _warned:
            _warned = True
            text = f"the cache folder {folder()} cannot be written ({error.strerror}); "
            text += "compiled code is not kept"
            warnings.warn(
                f"{text}: set TILEGRAD_CACHE to a writable folder", RuntimeWarning, stacklevel=2
            )


def _write(path: Path, raw: bytes) -> None:
    """A file of mode 0600, which appears whole or not at all."""
    unfinished = _base() / f"{_UNFINISHED}{os.getpid()}-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        flags |= getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
            file.write(raw)
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _blocks(size: int) -> int:
    return -(-(size + _CHECK_BYTES) // _BLOCK)


def _account(size: int) -> None:
    """An entry of `size` bytes has been written: remove others if that is too much."""
    base = _base()
    if base not in _looked:
        _looked.add(base)
        _remove_left_over(base)
    limit = config.CACHE_MEGABYTES * (1 << 20) // _BLOCK
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(base / _USAGE, flags, 0o600)
    try:
        os.write(handle, bytes(_blocks(size)))
        if limit and os.fstat(handle).st_size > limit:
            _remove_left_over(base)
            os.ftruncate(handle, _shrink(base, limit))
    finally:
        os.close(handle)


def _entries(base: Path) -> Iterator[tuple[float, int, str]]:
    """The last use, the blocks and the path of each entry."""
    for root, _, names in os.walk(base):
        if root == str(base):
            continue
        for name in names:
            path = f"{root}/{name}"
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                yield found.st_mtime, -(-found.st_size // _BLOCK), path


def _shrink(base: Path, limit: int) -> int:
    """Remove the entries used longest ago, until an eighth of the limit is free; the blocks
    left.
    """
    found = sorted(_entries(base))
    total = sum(blocks for _, blocks, _ in found)
    for _, blocks, path in found:
        if total <= limit - limit // 8:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= blocks
    return total


def _remove_left_over(base: Path) -> None:
    """Remove unfinished files of writers that were killed."""
    now = time.time()
    with os.scandir(base) as entries:
        for entry in entries:
            if not entry.name.startswith(_UNFINISHED):
                continue
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and now - found.st_mtime > _LEFT_OVER_SECONDS:
                    os.unlink(entry.path)


class Usage(NamedTuple):
    """Contents of the cache folder: entries by table, the bytes on disk, and the limit in bytes (0:
    no limit).
    """

    entries: dict[str, int]
    size: int
    limit: int


def usage() -> Usage:
    """The present contents of the cache folder."""
    base = _base()
    entries: dict[str, int] = {}
    total = 0
    for _, blocks, path in _entries(base):
        table = str(Path(path).relative_to(base)).partition(os.sep)[0]
        entries[table] = entries.get(table, 0) + 1
        total += blocks
    return Usage(entries, total * _BLOCK, config.CACHE_MEGABYTES << 20)


def clear() -> Usage:
    """Remove every entry; gives the usage before. Processes that run meanwhile compile again the
    kernels that they look for.
    """
    before = usage()
    for _, _, path in list(_entries(_base())):
        with contextlib.suppress(OSError):
            os.unlink(path)
    with contextlib.suppress(OSError):
        os.truncate(_base() / _USAGE, 0)
    return before
