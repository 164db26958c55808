"""Damaged files: what a disk, a network or somebody with bad intentions makes of a good one."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from tilegrad import Tensor
from tilegrad.base.errors import DataError

_TELLING = st.sampled_from([0, 1, 2, 0x2E, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """`good` with a few bytes changed, taken out, put in, or cut off."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(
            st.sampled_from(["set", "set", "set", "word", "insert", "delete", "copy", "cut"])
        )
        if kind == "set":
            data[at : at + 1] = bytes([draw(_TELLING)])
        elif kind == "word":
            word = draw(st.sampled_from([0, 1, -1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]))
            data[at : at + 8] = word.to_bytes(8, "little", signed=True)
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "copy":
            begin = draw(st.integers(0, max(len(data) - 1, 0)))
            data[at:at] = data[begin : begin + draw(st.integers(1, 64))]
        else:
            del data[at:]
    return bytes(data)


@contextmanager
def memory_for(nbytes: int) -> Iterator[None]:
    """A block in which the process may take `nbytes` more of address space, no more."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refused_or_whole(load: Callable[[], Any]) -> None:
    """`load` raises DataError, or gives tensors that can be read; in little memory either way."""
    with memory_for(256 << 20), contextlib.suppress(DataError):
        found = load()
        for part in found if isinstance(found, tuple) else (found,):
            for value in part.values():
                if isinstance(value, Tensor):
                    assert value.numpy().shape == value.shape
