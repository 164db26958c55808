"""What was computed once, on disk: one file per entry, in a folder per table.

An entry carries a checksum: a damaged one is a miss and is removed. Writes go to a temporary file
and are renamed, so that concurrent writers and a kill leave either the old entry or the new one. A
folder that cannot be written, or a full disk, costs speed only: one warning, and the run goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import warnings
from pathlib import Path

from tilegrad.base.config import config

__all__ = ["digest", "folder", "get", "put"]

_VERSION = "1"
_CHECK_BYTES = 16
_warned = False


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


def digest(*parts: str | bytes) -> str:
    """A key made of `parts`: any change of any part gives another."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        state.update(len(raw).to_bytes(8, "little"))
        state.update(raw)
    return state.hexdigest()


def _check(table: str, key: str, payload: bytes) -> bytes:
    """The checksum of an entry. It covers the name, so that another entry's file is damage too."""
    state = hashlib.blake2b(f"{table}/{key}\n".encode(), digest_size=_CHECK_BYTES)
    state.update(payload)
    return state.digest()


def _path(table: str, key: str) -> Path:
    return folder() / f"v{_VERSION}" / table / key[:2] / key[2:]


def get(table: str, key: str) -> bytes | None:
    """The entry under `key`, or None."""
    if config.DISABLE_COMPILER_CACHE:
        return None
    path = _path(table, key)
    try:
        raw = path.read_bytes()
    except OSError:
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
    if config.DISABLE_COMPILER_CACHE:
        return
    path = _path(table, key)
    temporary = None
    try:
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        with os.fdopen(handle, "wb") as file:
            file.write(_check(table, key, payload) + payload)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if not _warned:
            _warned = True
            text = f"the cache folder {folder()} cannot be written ({error.strerror}); "
            text += "compiled code is not kept"
            warnings.warn(
                f"{text}: set TILEGRAD_CACHE to a writable folder", RuntimeWarning, stacklevel=2
            )
