"""Functions of `tinygrad.helpers` that scripts use: on lists, text and time."""

from __future__ import annotations

import contextlib
import cProfile
import functools
import gzip
import hashlib
import itertools
import operator
import os
import pstats
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.errors import DataError
from tilegrad.io.atomic import atomic_write

__all__ = [
    "CI", "OSX", "WIN", "Profiling", "Timing", "all_int", "all_same", "ansilen", "ansistrip",
    "argfix", "argsort", "ceildiv", "colored", "dedup", "fetch", "flatten", "fully_flatten",
    "get_child", "make_tuple", "merge_dicts", "partition", "prod", "round_down", "round_up",
    "strip_parens", "temp", "time_to_str", "unwrap",
]  # fmt: skip

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

OSX, WIN, CI = sys.platform == "darwin", sys.platform == "win32", os.environ.get("CI", "") != ""


# lists and numbers


def prod(x: Iterable[Any]) -> Any:
    """The product; 1 of nothing."""
    return functools.reduce(operator.mul, x, 1)


def dedup(x: Iterable[T]) -> list[T]:
    """Each item once, where it first stands."""
    return list(dict.fromkeys(x))


def flatten(x: Iterable[Iterable[T]]) -> list[T]:
    """The items of the items."""
    return list(itertools.chain.from_iterable(x))


def fully_flatten(x: Any) -> list[Any]:
    """The items at the bottom of nested lists and tuples."""
    if isinstance(x, (list, tuple)):
        return [item for each in x for item in fully_flatten(each)]
    return [x]


def argfix(*x: Any) -> tuple[Any, ...]:
    """Arguments that were given one by one or as one sequence."""
    if len(x) == 1 and isinstance(x[0], (tuple, list)):
        return tuple(x[0])
    return x


def argsort(x: Sequence[Any]) -> Any:
    """The positions of the items in ascending order of the items, as a tuple or a list like `x`."""
    in_order = sorted(enumerate(x), key=operator.itemgetter(1))
    positions = [position for position, _ in in_order]
    return tuple(positions) if isinstance(x, tuple) else positions


def all_same(items: Sequence[Any]) -> bool:
    return not items or items.count(items[0]) == len(items)


def all_int(t: Iterable[Any]) -> bool:
    return all(isinstance(item, int) for item in t)


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
    """A number `cnt` times, or the sequence itself."""
    is_number = isinstance(x, int)
    return tuple(itertools.repeat(x, cnt) if is_number else x)  # type: ignore[arg-type]


def merge_dicts(ds: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """One dict of several, which must agree where they meet.

    Raises ValueError where they do not.
    """
    merged: dict[K, V] = {}
    for each in ds:
        for key, value in each.items():
            if merged.setdefault(key, value) != value:
                raise ValueError(f"merge_dicts: {key!r} is {merged[key]!r} and {value!r}")
    return merged


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The items for which `fxn` holds, and the others."""
    asked = [(item, bool(fxn(item))) for item in itr]
    return [item for item, holds in asked if holds], [item for item, holds in asked if not holds]


def ceildiv(num: Any, amt: Any) -> Any:
    """The quotient rounded up."""
    return -(-num // amt)


def round_up(num: Any, amt: Any) -> Any:
    """The least multiple of `amt` that is at least `num`."""
    return ceildiv(num, amt) * amt


def round_down(num: Any, amt: Any) -> Any:
    """The largest multiple of `amt` that is at most `num`."""
    return num // amt * amt


def unwrap(x: T | None) -> T:
    """`x`, which is not None."""
    assert x is not None
    return x


def get_child(obj: Any, key: str) -> Any:
    """The object reached by a dotted name through attributes, lists and dicts."""
    for name in key.split("."):
        if name.isdecimal() and not isinstance(obj, Mapping):
            obj = obj[int(name)]
        else:
            obj = obj[name] if isinstance(obj, Mapping) else getattr(obj, name)
    return obj


# text

_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def colored(st: str, color: str | None, background: bool = False) -> str:
    """`st` in a colour of the terminal, bright where its name is in capitals."""
    if color is None or config.NO_COLOR:
        return st
    code = _COLORS.index(color.lower()) + (60 if color.isupper() else 0)
    return f"\x1b[{code + (40 if background else 30)}m{st}\x1b[0m"


def ansistrip(s: str) -> str:
    """`s` without colours."""
    return _ESCAPE.sub("", s)


def ansilen(s: str) -> int:
    """The length of `s` on a terminal."""
    return len(ansistrip(s))


def strip_parens(fst: str) -> str:
    """`fst` without its outermost parentheses, if they belong together."""
    depth = 0
    for candidate, letter in enumerate(fst):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and candidate < len(fst) - 1:
            return fst
    return fst[1:-1] if fst[:1] == "(" and fst[-1:] == ")" else fst


def time_to_str(t: float, w: int = 8) -> str:
    """Seconds in a fitting unit."""
    # From ten of a unit on: below, the next smaller one has more digits to show.
    if t >= 10:
        return f"{t:{w}.2f}s "
    milliseconds = t * 1e3
    return f"{milliseconds:{w}.2f}ms" if milliseconds >= 10 else f"{milliseconds * 1e3:{w}.2f}us"


def temp(x: str, append_user: bool = False) -> str:
    """A path in the folder for temporary files."""
    name = f"{x}.{os.environ.get('USER', 'user')}" if append_user else x
    return str(Path(tempfile.gettempdir()) / name)


class Timing(contextlib.ContextDecorator):
    """Print how long a block took, `et` nanoseconds; `on_exit(et)` gives more text."""

    def __init__(
        self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True
    ):
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
        self.st = self.et = 0

    def __enter__(self) -> Self:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            more = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{more}")


class Profiling(contextlib.ContextDecorator):
    """Print where Python's time went in a block: the `frac` of functions that took the most, by
    `sort`; with `fn` into that file, for tools that read profiles.
    """

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ):
        self.enabled, self.sort, self.frac, self.fn, self.ts = enabled, sort, frac, fn, ts
        self.pr = cProfile.Profile()

    def __enter__(self) -> Self:
        if self.enabled:
            self.pr.enable()
        return self

    def __exit__(self, *error: object) -> None:
        if not self.enabled:
            return
        self.pr.disable()
        if self.fn:
            self.pr.dump_stats(self.fn)
        pstats.Stats(self.pr, stream=sys.stdout).sort_stats(self.sort).print_stats(self.frac)


# files


def fetch(
    url: str,
    name: Path | str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """The local file of a `file:` address or of a path; for any other address the file that lies in
    a cache: tilegrad's, under `downloads`, or the one that tinygrad filled.

    Raises DataError where there is none: nothing is downloaded.
    """
    if url.startswith(("/", "./", "../", "file:")):
        address = urllib.parse.urlparse(url)
        is_address = address.scheme == "file"
        found = Path(urllib.request.url2pathname(address.path) if is_address else url)
        if not found.is_file():
            raise DataError("fetch: there is no such file", file=found)
        return _unpacked(found) if gunzip else found
    # tinygrad's way to name a download; what is kept unpacked has an ending of its own.
    file = str(name) if name is not None else hashlib.md5(url.encode()).hexdigest()
    candidates = [folder / (subdir or "") / file for folder in _downloads()]
    if name is not None and (isinstance(name, Path) or "/" in name):
        candidates = [Path(name)]
    for candidate in candidates:
        packed = candidate.with_name(candidate.name + ".gunzip") if gunzip else candidate
        if packed.is_file():
            return packed
        if gunzip and candidate.is_file():
            return _unpacked(candidate)
    raise DataError(
        "fetch: the file is not on this machine, and tilegrad opens no connection",
        url=url,
        looked_for=" ".join(str(candidate) for candidate in candidates),
        remedy=f"curl -L --create-dirs -o '{candidates[0]}' '{url}'",
    )


def _downloads() -> Iterator[Path]:
    yield cache.folder() / "downloads"
    base = os.environ.get("XDG_CACHE_HOME") or (
        Path.home() / ("Library/Caches" if OSX else ".cache")
    )
    yield Path(base) / "tinygrad" / "downloads"


def _unpacked(packed: Path) -> Path:
    """The content of a gzip file, as a file in the cache folder."""
    raw = packed.read_bytes()
    unpacked = cache.folder() / "downloads" / f"{hashlib.sha256(raw).hexdigest()}.gunzip"
    if not unpacked.is_file():
        try:
            content = gzip.decompress(raw)
        except (OSError, EOFError) as error:
            raise DataError(f"fetch: not a gzip file: {error}", file=packed) from error
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(unpacked) as file:
            file.write(content)
    return unpacked
