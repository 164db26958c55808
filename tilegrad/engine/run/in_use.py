"""Who holds the memory of a device: the largest buffers and the user's lines that made them.

Only an allocation that finds no room asks, so nothing is counted before: the buffers alive are
looked for among Python's objects. Most know the user's calls behind their value; a module that
knows those of others adds a function to `lines_of_others`.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from tilegrad.base.origin import Entry, user_lines
from tilegrad.runtime.allocator import LRUAllocator
from tilegrad.runtime.buffer import Buffer

__all__ = ["largest", "lines_of_others", "size_text"]

# The most lines that an error names.
_MOST = 5
_UNITS = ("bytes", "KB", "MB", "GB", "TB")

lines_of_others: list[Callable[[], Iterable[tuple[Buffer, tuple[Entry, ...]]]]] = []


def size_text(nbytes: int) -> str:
    """A number of bytes for a reader, in powers of a thousand: "20 bytes", "1.25 GB"."""
    unit = min((len(str(nbytes)) - 1) // 3, len(_UNITS) - 1)
    return f"{nbytes / 1000**unit:.{2 if unit else 0}f} {_UNITS[unit]}"


def largest(allocator: LRUAllocator) -> str:
    """The lines whose buffers hold most of the allocator's memory, as in "1.20 GB in 3 buffers
    made at train.py:7"; plans and captures hold memory without a line. Empty if there is none.
    """
    others = {id(buffer): origin for lines in lines_of_others for buffer, origin in lines()}
    sizes_of: defaultdict[str, list[int]] = defaultdict(list)
    for buffer in _alive(allocator):
        made_at = ", ".join(user_lines(others.get(id(buffer), buffer.origin))[:2])
        sizes_of[made_at].append(buffer.nbytes)
    ranked = sorted(sizes_of.items(), key=lambda each: -sum(each[1]))[:_MOST]
    return "; ".join(_row(made_at, sizes) for made_at, sizes in ranked)


def _row(made_at: str, sizes: list[int]) -> str:
    count = "" if len(sizes) == 1 else f" in {len(sizes)} buffers"
    where = f" made at {made_at}" if made_at else " without a known line"
    return f"{size_text(sum(sizes))}{count}{where}"


def _alive(allocator: LRUAllocator) -> Iterator[Buffer]:
    """The buffers that hold memory of their own from `allocator`."""
    for each in gc.get_objects():
        if type(each) is Buffer and each.allocator is allocator and each._block is not None:
            yield each
