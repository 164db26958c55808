"""Recording of regions, and of the kernels that run in each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Self

from tilegrad.engine.run.report import plain
from tilegrad.engine.run.run import timed
from tilegrad.torch.profiler.events import Event, EventList

__all__ = ["Recorder", "record_function"]


class _Region:
    """A region that is entered: the time, and the number of kernels that had run then."""

    def __init__(self, name: str, key: str, begin: float, kernels: int):
        self.name, self.key, self.begin = name, key, begin
        # The first kernel that is in no region inside this one.
        self.next_kernel = kernels
        self.inside = 0.0
        self.event: Event | None = None


class Recorder:
    """Regions and kernels of the thread that started it."""

    def __init__(self) -> None:
        self._events = EventList()
        self._open: list[_Region] = []
        self._kernels: list[Any] = []
        self._timing: AbstractContextManager[Any] | None = None
        self._loose = 0
        self._begin = 0.0

    def start(self) -> None:
        """Begin to record."""
        self._timing = timed()
        self._kernels = self._timing.__enter__()
        self._begin = time.perf_counter()
        _active.set(self)

    def stop(self) -> EventList:
        """The events, all regions left."""
        while self._open:
            self.leave()
        self._note_kernels(None)
        assert self._timing is not None
        self._timing.__exit__(None, None, None)
        _active.set(None)
        return self._events

    def enter(self, name: str, key: str | None = None) -> None:
        """Enter a region."""
        self._note_kernels(self._open[-1] if self._open else None)
        region = _Region(name, key or name, self._now(), len(self._kernels))
        region.event = Event(name, region.key, region.begin, 0.0, 0.0)
        self._events.append(region.event)
        self._open.append(region)

    def leave(self) -> None:
        """Leave the region that was entered last."""
        region = self._open.pop()
        self._note_kernels(region)
        taken = self._now() - region.begin
        assert region.event is not None
        region.event.cpu_time_total = taken
        region.event.self_cpu_time_total = max(taken - region.inside, 0.0)
        if self._open:
            self._open[-1].inside += taken
            self._open[-1].next_kernel = len(self._kernels)
        else:
            self._loose = len(self._kernels)

    def _now(self) -> float:
        return (time.perf_counter() - self._begin) * 1e6

    def _note_kernels(self, region: _Region | None) -> None:
        """Make events of the kernels that ran since the last were noted."""
        first = self._loose if region is None else region.next_kernel
        start = 0.0 if region is None else region.begin + region.inside
        for launch, seconds in self._kernels[first:]:
            taken = seconds * 1e6
            name = plain(launch.kernel.display)
            self._events.append(Event(name, name, start, taken, taken, is_kernel=True))
            start += taken
            if region is not None:
                region.inside += taken
        if region is None:
            self._loose = len(self._kernels)
        else:
            region.next_kernel = len(self._kernels)


_active: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


class record_function:
    """Names what a `with` block, or a function that it decorates, does; without a profiler nothing.

    >>> import tilegrad.torch as torch
    >>> with torch.profiler.profile() as prof:
    ...     with torch.profiler.record_function("sum"):
    ...         total = torch.ones(3).sum().item()
    >>> [each.count for each in prof.key_averages() if each.key == "sum"]
    [1]
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._recorder: Recorder | None = None

    def __enter__(self) -> Self:
        self._recorder = _active.get()
        if self._recorder is not None:
            self._recorder.enter(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        # A region that was open as its profiler stopped was left then.
        if self._recorder is not None and self._recorder is _active.get():
            self._recorder.leave()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with type(self)(self.name, self.args):
                return function(*args, **options)

        return call
