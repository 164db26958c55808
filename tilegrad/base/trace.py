"""Trace: counters that always run, and a record of rewrites for those who ask.

The counters are how a warm start proves that it compiled nothing. The record keeps every rewrite
with its rule, the node before and the node after. It is off unless asked for: by `recording()` for
a block, by VIZ=1 for the whole process.
"""

from __future__ import annotations

import atexit
import contextvars
import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.forks import held_at_fork

__all__ = [
    "Counters", "GlobalCounters", "PassRecord", "Rewrite", "caller_outside", "counters",
    "recording", "section", "trace", "unrecorded",
]  # fmt: skip


@dataclass
class Counters:
    """Work of the compiler in this process: graphs rewritten, kernels rendered and compiled, nodes
    that walks and rewrites went through, kernels searched, candidates that were timed for them, and
    blocks of loops whose gradients were asked for.
    """

    rewrites: int = 0
    schedules: int = 0
    renders: int = 0
    compiles: int = 0
    visits: int = 0
    searches: int = 0
    timings: int = 0
    blocks: int = 0

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def add(self, work: Mapping[str, int]) -> None:
        """Count the work of another process for this one."""
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
        # Changes by memory that is released; a request for memory has `take_memory` add them up now
        # and then.
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
        """Add to the memory in use; `nbytes` is negative where memory goes back. Safe at any moment
        and from any thread: to note a change is one step of the interpreter.
        """
        changes = self._changes
        changes.append(nbytes)
        if len(changes) > self._MOST_CHANGES:
            _ = self.mem_used

    @property
    def counts(self) -> dict[str, float]:
        """The counters that `reset` sets to zero."""
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
    """One step: `rule` replaced `before` by `after`. `written_at` is the file and the line of the
    rule.
    """

    rule: str
    before: Any
    after: Any
    written_at: tuple[str, int] = ("", 0)


@dataclass
class PassRecord:
    """One pass over one graph, or a section of passes.

    Attributes:
        name: the pass; of a section `plan`, `compile` (a kernel of a plan) or `kernel`.
        before, after: the state that it was given, and the one that it made.
        steps: its rewrites in their order; none of a pass that has no rules.
        device: the device that it was for, where the pass asks for it.
        called_at: the file and the line that called it, where it is rules.
        remake: the function that made the nodes that the rules saw, where they saw others than
            `before` has.
        origin: of a section, the user's calls behind it (`base.origin`).
        end: of a section, how many records there were when it ended; -1 of a pass.
        thread: which thread ran it.
    """

    name: str
    before: Any
    after: Any = None
    steps: list[Rewrite] = field(default_factory=list)
    device: str = ""
    called_at: tuple[str, int] = ("", 0)
    remake: Any = None
    origin: tuple[Any, ...] = ()
    end: int = -1
    thread: int = field(default_factory=threading.get_ident)


class _Bounded(list[PassRecord]):
    """The record of a process. Passes that come when it is full are left out, and counted."""

    _MOST = 1 << 19

    def __init__(self) -> None:
        super().__init__()
        self.left_out = 0

    def append(self, entry: PassRecord) -> None:
        if len(self) < self._MOST:
            super().append(entry)
        else:
            self.left_out += 1


trace: contextvars.ContextVar[list[PassRecord] | None]


def _record_process() -> list[PassRecord]:
    """A record of all threads, which is shown when the program has ended. A process that this one
    starts or forks shows nothing.
    """
    record, process = _Bounded(), os.getpid()
    port = 8000 if config.VIZ == 1 else config.VIZ

    def show() -> None:
        # A child has it in the environment as well.
        children = sys.modules.get("multiprocessing.process")
        is_child = children is not None and children.parent_process() is not None
        if os.getpid() == process and not is_child:
            # Far above this layer, and asked for by the environment alone.
            importlib.import_module("tilegrad.viz").serve(record, port)

    atexit.register(show)
    return record


trace = contextvars.ContextVar("tilegrad_trace", default=_record_process() if config.VIZ else None)


@contextmanager
def recording() -> Iterator[list[PassRecord]]:
    """The passes and rewrites of the block, in this thread."""
    record: list[PassRecord] = []
    token = trace.set(record)
    try:
        yield record
    finally:
        trace.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    """A block whose rewrites are not recorded: for attempts."""
    token = trace.set(None)
    try:
        yield
    finally:
        trace.reset(token)


@contextmanager
def section(name: str, before: Any) -> Iterator[PassRecord | None]:
    """A record of the passes in the block, if anybody records: one of its own before theirs."""
    record = trace.get()
    if record is None:
        yield None
        return
    entry = PassRecord(name, before)
    record.append(entry)
    try:
        yield entry
    finally:
        entry.end = len(record)


def caller_outside(files: tuple[str, ...]) -> tuple[str, int]:
    """The file and the line of the innermost call that none of `files` made."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in files and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
