"""Sources that failed to compile, in files of the cache folder that the message names."""

from __future__ import annotations

from tilegrad.base import cache
from tilegrad.base.errors import CompileError
from tilegrad.base.trust import make_private

__all__ = ["refused", "write_failed"]


def write_failed(name: str, text: str) -> str:
    """The path of the file `name`, written with this text; only `name` where there is no cache
    folder. An earlier file of this name is overwritten.
    """
    path = cache.folder() / name
    try:
        if not make_private(path.parent, path.parent):
            return name
        path.write_text(text, encoding="utf-8")
    except (OSError, KeyError):
        return name
    return str(path)


def refused(kind: str, log: str, source: str, suffix: str, **details: object) -> CompileError:
    """The error for a compiler's `log` about `source`, by its first line with an error; a file with
    the ending `suffix` holds the source.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no message"]
    first = next((line for line in lines if "error:" in line), lines[0])
    said = first.rpartition("error:")[2].strip()
    return CompileError(
        f"{kind}: {said}", **details, source=write_failed(f"failed.{suffix}", source)
    )
