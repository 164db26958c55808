"""Assignments that are undone together: what tensors were before, for a block that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tilegrad.base.errors import TilegradError
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.aliases import Alias
from tilegrad.tensor.handle.size_arguments import Variables
from tilegrad.tensor.handle.waiting import Call, expand
from tilegrad.tensor.storage import memory

__all__ = ["all_or_nothing", "is_noting", "note", "nothing_noted"]


class _State(NamedTuple):
    """A tensor as it was: its node, or the call whose result it had."""

    tensor: Any
    node: UOp | Call
    variables: Variables
    previous: Any
    is_shared: bool
    alias: Alias | None


class _Log(threading.local):
    """Values of this thread's tensors from before they were assigned to, while somebody asks for
    them.
    """

    entries: list[_State] | None = None


_log = _Log()


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """For a block that assigns and then realizes, once: if it raises, as there was no memory, no
    assignment waits any more.
    """
    if _log.entries is not None:
        yield
        return
    entries: list[_State] = []
    _log.entries = entries
    try:
        yield
    except TilegradError:
        for was in reversed(entries):
            tensor = was.tensor
            node = expand(was.node) if isinstance(was.node, Call) else was.node
            tensor.uop, tensor._variables, tensor._alias = node, was.variables, was.alias
            tensor._previous, tensor._is_shared = was.previous, was.is_shared
            memory.supersede(memory.version_of(node), is_so=False)
        raise
    finally:
        _log.entries = None


@contextmanager
def nothing_noted() -> Iterator[None]:
    """A block whose assignments are to tensors of its own, which exist neither before nor after
    it.
    """
    before, _log.entries = _log.entries, None
    try:
        yield
    finally:
        _log.entries = before


def is_noting() -> bool:
    """Whether assignments of this thread are remembered."""
    return _log.entries is not None


def note(tensor: Any) -> None:
    """Remember a tensor as it is before it is assigned to."""
    if _log.entries is not None:
        state = (
            tensor._call or tensor.uop,
            tensor._variables,
            tensor._previous,
            tensor._is_shared,
            tensor._alias,
        )
        _log.entries.append(_State(tensor, *state))
