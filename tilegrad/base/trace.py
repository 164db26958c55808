"""What happened: counters that always run, and a record of rewrites for those who ask.

The counters are how a warm start proves that it compiled nothing. The record (`recording()`) keeps
every rewrite with its rule, the node before and the node after; it is off unless asked for.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.forks import held_at_fork

__all__ = ["Counters", "GlobalCounters", "PassRecord", "Rewrite", "counters", "recording", "trace"]


@dataclass
class Counters:
    """Work of the compiler in this process: graphs rewritten, kernels rendered and compiled, nodes
    that walks and rewrites went through, kernels searched, and candidates that were timed for them.
    """

    rewrites: int = 0
    schedules: int = 0
    renders: int = 0
    compiles: int = 0
    visits: int = 0
    searches: int = 0
    timings: int = 0

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def add(self, work: Mapping[str, int]) -> None:
        """Count what another process did for this one."""
        for name, count in work.items():
            setattr(self, name, getattr(self, name) + count)


counters = Counters()


class _Work:
    """Work of the kernels in this process: launches, operations, bytes, seconds, and the memory in
    use now.

    >>> GlobalCounters.reset()
    >>> Tensor([1, 2]).add(1).realize().tolist()
    [2, 3]
    >>> GlobalCounters.kernel_count
    1
    """

    # Changes of the memory in use that are not added up yet, at most.
    _MOST_CHANGES = 1 << 12

    def __init__(self) -> None:
        self._mem_used = 0
        self._changes: list[int] = []
        # Of memory that goes back; who takes some has `take_memory` add them up now and then.
        self.note_change = self._changes.append
        self._lock = held_at_fork(threading.RLock(), 76)
        self.reset()

    @property
    def mem_used(self) -> int:
        """The bytes that buffers hold now."""
        with self._lock:
            changes = self._changes
            while changes:
                # No call between reading and writing: a garbage collection may come by here.
                change = changes.pop()
                self._mem_used += change
            return self._mem_used

    def take_memory(self, nbytes: int) -> None:
        """Add to the memory in use; less than 0 of what goes back. Safe at any moment and from any
        thread: to note a change is one step of the interpreter.
        """
        changes = self._changes
        changes.append(nbytes)
        if len(changes) > self._MOST_CHANGES:
            _ = self.mem_used

    @property
    def counts(self) -> dict[str, float]:
        """What `reset` sets to zero."""
        names = ("kernel_count", "global_ops", "global_mem", "time_sum_s")
        return {name: getattr(self, name) for name in names}

    def reset(self) -> None:
        """Back to zero, but for `mem_used`, which is a fact and no count."""
        self.kernel_count = self.global_ops = self.global_mem = 0
        self.time_sum_s = 0.0


# An object, as to write an attribute of a class takes several times as long.
GlobalCounters = _Work()


@dataclass(frozen=True)
class Rewrite:
    """One step: `rule` replaced `before` by `after`."""

    rule: str
    before: Any
    after: Any


@dataclass
class PassRecord:
    """One pass over one graph. `device` is the one that it was for, where the pass asks for it."""

    name: str
    before: Any
    after: Any = None
    steps: list[Rewrite] = field(default_factory=list)
    device: str = ""


trace: contextvars.ContextVar[list[PassRecord] | None] = contextvars.ContextVar(
    "tilegrad_trace", default=None
)


@contextmanager
def recording() -> Iterator[list[PassRecord]]:
    """The passes and rewrites of the block, in this thread."""
    record: list[PassRecord] = []
    token = trace.set(record)
    try:
        yield record
    finally:
        trace.reset(token)
