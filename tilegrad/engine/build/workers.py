"""Kernels made in several processes at once: Python runs on one core, and llvmlite serialises its
calls, so the kernels of a plan would leave the other cores idle.

A helper is a child process (`engine.child`) that is sent kernel graphs and gives back binaries. It
takes a quarter of a second to load the compiler, is kept for the next plan, and ends when it has
waited for a while. This process makes kernels as well, and in the end all that no helper gave: one
that dies, or that cannot know a device, costs time and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import os
import pickle
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tilegrad.base.config import config
from tilegrad.base.forks import held_at_fork
from tilegrad.base.trace import counters
from tilegrad.engine.build.pipeline import CompiledKernel, Job, kernel_from
from tilegrad.engine.child import (
    Message,
    end_children,
    read_message,
    start_child,
    write_message,
)

if TYPE_CHECKING:
    from tilegrad.ir.uop import UOp

__all__ = ["Helper", "Helpers", "begin", "behind", "end", "look_ahead", "taken"]

# When this process has nothing left to do, a helper that gives nothing for so long is given up.
_PATIENCE_S = 60.0
# The same for one that is behind, which may get little of a busy machine.
_PATIENCE_BEHIND_S = 600.0
# The most that is waited for a helper to be given its first job.
_HANDOVER_S = 2e-3
# Kernels from which on a plan is shared with helpers that are not loaded yet, and that are.
_WORTH_STARTING, _WORTH_SHARING = 8, 2


class _SharedJobs:
    """The jobs of one plan: those not taken yet, the number of each helper, and the results."""

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        # The longest first, so that the last ones end at nearly the same time: jobs by their size,
        # and by the order in which they came.
        self._queue: list[tuple[int, int, Job]] = []
        self._keys: set[str] = set()
        # Keys of kernels that a helper has made ahead, and the jobs of these: it is asked for them
        # first, and this process makes them last.
        self._ahead: dict[str, Helper] = {}
        self._reserved: dict[str, Job] = {}
        self._outstanding: Counter[Helper] = Counter()
        self._changed = threading.Condition()
        self.switches = asdict(config.current())
        # Whether all jobs of the plan are known: before, they come from its schedule.
        self.is_complete = False
        self.done: dict[str, CompiledKernel] = {}
        self.add(jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """Jobs are there to be taken, each once."""
        with self._changed:
            for job in jobs:
                if job.key not in self._keys:
                    if job.key in self._ahead:
                        self._reserved[job.key] = job
                    else:
                        size = len(job.ast.toposort())
                        heapq.heappush(self._queue, (-size, len(self._keys), job))
                    self._keys.add(job.key)

    def reserve(self, keys: Collection[str], helper: Helper) -> None:
        """The kernels of `keys` are made: `helper` has them."""
        with self._changed:
            self._ahead.update(dict.fromkeys(keys, helper))
            self._reserved.update({job.key: job for _, _, job in self._queue if job.key in keys})
            self._queue = [each for each in self._queue if each[2].key not in keys]
            heapq.heapify(self._queue)

    def take(self, helper: Helper | None = None) -> Job | None:
        """The next job, for a helper or for this thread. A helper takes a second one, to have it
        when it gives the first, unless it is the last.
        """
        with self._changed:
            own = next((key for key in self._reserved if self._ahead[key] is helper), None)
            if own is None and not self._queue:
                if helper is not None or not self._reserved:
                    return None
                own = next(iter(self._reserved))
            if helper is not None:
                if self._outstanding[helper] > (len(self._queue) > 1):
                    return None
                self._outstanding[helper] += 1
                self._changed.notify()
            return heapq.heappop(self._queue)[2] if own is None else self._reserved.pop(own)

    def hand_over(self, helpers: Collection[Helper]) -> None:
        """Wait until each of the `helpers`, which have nothing to do, has a job. The thread that
        gives it needs Python's lock, which a thread with work of its own keeps for milliseconds.
        """

        def has_begun() -> bool:
            return not self._queue or all(self._outstanding[each] for each in helpers)

        with self._changed:
            self._changed.wait_for(has_begun, _HANDOVER_S)

    def give(self, key: str, kernel: CompiledKernel | None, helper: Helper | None = None) -> None:
        """Store the kernel of the job with that key; `helper`, if given, has one job less."""
        with self._changed:
            if kernel is not None:
                self.done[key] = kernel
            if helper is not None:
                self._outstanding[helper] -= 1
                self._changed.notify()

    def leave(self, helper: Helper) -> None:
        """A helper gives nothing more."""
        with self._changed:
            self._outstanding[helper] = 0
            self._changed.notify()

    def close(self) -> None:
        """Drop the jobs that no process has taken."""
        with self._changed:
            self._queue.clear()
            self._reserved.clear()

    def wait(self, helpers: Sequence[Helper]) -> None:
        """Wait until all is made, no helper is left to make it, or patience is."""

        def is_over() -> bool:
            is_made = not self._queue and not self._reserved and not any(self._outstanding.values())
            return is_made or all(helper.has_ended for helper in helpers)

        with self._changed:
            self._changed.wait_for(is_over, _PATIENCE_BEHIND_S)

    def late(self, patience_s: float = _PATIENCE_S) -> list[Helper]:
        """The helpers that have not given their results after some patience."""

        def left() -> list[Helper]:
            return [helper for helper, count in self._outstanding.items() if count]

        with self._changed:
            self._changed.wait_for(lambda: not left(), patience_s)
            return left()


class Helper:
    """A process that makes kernels, and the thread that gives it jobs and takes the results. It
    rehearses if there is time before the first job (engine.build.rehearsal). One that `is_behind`
    works in the background, and leaves the cores to others.

    Raises OSError where no process can be started.
    """

    def __init__(self, rehearses: bool, *, is_behind: bool = False) -> None:
        self.process: subprocess.Popen[bytes] = start_child(
            "tilegrad.engine.build.worker", is_behind=is_behind
        )
        assert self.process.stdin is not None
        write_message(self.process.stdin, {"rehearses": rehearses, "is_behind": is_behind})
        # Whether it makes kernels ahead of a plan that has not begun, and the keys of those made.
        self.is_loaded = self.has_ended = self.is_ahead = False
        self._made_ahead: set[str] = set()
        # Jobs of plans, and graphs whose kernels are made ahead.
        self._waiting: SimpleQueue[_SharedJobs | Message] = SimpleQueue()
        threading.Thread(target=self._serve, name="tilegrad worker", daemon=True).start()

    def serve(self, shared: _SharedJobs) -> None:
        """Take jobs of `shared` from now on, or once the process is loaded, until none is left."""
        self.is_ahead = False
        self._waiting.put(shared)

    def look_ahead(self, graph: UOp, device: str) -> None:
        """Make kernels of `graph` until a plan asks for its own, which may be the same."""
        self.is_ahead = True
        fields = {"ahead": True, "device": device, "switches": asdict(config.current())}
        self._waiting.put((fields, pickle.dumps(graph)))

    def _serve(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        shared: _SharedJobs | None = None
        try:
            if read_message(self.process.stdout) is not None:
                self.is_loaded = True
                while True:
                    given = self._waiting.get()
                    if isinstance(given, _SharedJobs):
                        shared = given
                        self._work(shared)
                    else:
                        write_message(self.process.stdin, *given)
        except (OSError, ValueError, EOFError):
            pass
        finally:
            self.has_ended = True
            if shared is not None:
                shared.leave(self)
            while not self._waiting.empty():
                given = self._waiting.get()
                if isinstance(given, _SharedJobs):
                    given.leave(self)
            end_children(self.process)

    def _work(self, shared: _SharedJobs) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        sent: deque[str] = deque()
        if self._made_ahead:
            shared.reserve(self._made_ahead, self)
        while True:
            while (job := shared.take(self)) is not None:
                sent.append(job.key)
                fields = {
                    "key": job.key,
                    "device": job.device,
                    "is_short": job.is_short,
                    "is_complete": shared.is_complete,
                    "switches": shared.switches,
                }
                write_message(self.process.stdin, fields, pickle.dumps(job.ast))
            if not sent:
                return
            answer = read_message(self.process.stdout)
            if answer is None:
                raise EOFError
            found, binary = answer
            if "ahead" in found:
                self._made_ahead.update(found["ahead"])
                shared.reserve(found["ahead"], self)
                continue
            key = sent.popleft()
            self._made_ahead.discard(key)
            if found:
                counters.add(found["work"])
            made = kernel_from(key, found["kernel"], binary) if found else None
            shared.give(key, made, self)


class Helpers:
    """The helpers that one plan has."""

    def __init__(self, helpers: Sequence[Helper]):
        self._helpers = [helper for helper in helpers if not helper.has_ended]
        self._shared: _SharedJobs | None = None
        self._first: Job | None = None

    def begin(self, job: Job) -> None:
        """Let those that are loaded make a kernel of this plan beside the schedule, if it is not
        the only one.
        """
        if not any(helper.is_loaded for helper in self._helpers):
            return
        if self._first is None:
            self._first = job
            return
        if self._shared is None:
            self._shared = _SharedJobs()
        self._shared.add([self._first, job])
        self._serve(self._shared)

    def close(self) -> None:
        """Nothing more is made."""
        if self._shared is not None:
            self._shared.close()

    def _serve(self, shared: _SharedJobs) -> None:
        idle = [each for each in self._helpers if each.is_loaded and not each.is_ahead]
        for helper in self._helpers:
            helper.serve(shared)
        shared.hand_over(idle)

    def __len__(self) -> int:
        return len(self._helpers)

    def are_worth(self, kernels: int) -> bool:
        """Whether a plan with that number of kernels to make is shared with them. A small one
        interrupts no helper that works ahead.
        """
        if any(helper.is_loaded and not helper.is_ahead for helper in self._helpers):
            return kernels >= _WORTH_SHARING
        return len(self) > 0 and kernels >= _WORTH_STARTING

    def make(
        self,
        jobs: Sequence[Job],
        here: Callable[[Job], CompiledKernel],
        tell: Callable[[int], None] = lambda done: None,
    ) -> dict[str, CompiledKernel]:
        """Results by key, of the helpers, of jobs begun before, and of `here` for the jobs
        meanwhile, under the present switches; jobs that are missing were lost with a helper. `tell`
        is told how many are done.

        Raises what `here` raises.
        """
        shared = self._shared or _SharedJobs()
        shared.is_complete = True
        shared.add(jobs)
        self._serve(shared)
        try:
            while (job := shared.take()) is not None:
                shared.give(job.key, here(job))
                tell(len(shared.done))
        finally:
            shared.close()
        for helper in shared.late():
            end_children(helper.process)
        return dict(shared.done)

    def make_beside(self, jobs: Sequence[Job]) -> dict[str, CompiledKernel]:
        """As `make`, by the helpers alone: this thread only waits."""
        shared = _SharedJobs(jobs)
        self._serve(shared)
        shared.wait(self._helpers)
        shared.close()
        for helper in shared.late(0.0):
            end_children(helper.process)
        return dict(shared.done)


_helpers: list[Helper] = []
# The one that is behind, if there is one.
_behind: list[Helper] = []
_changes = held_at_fork(threading.Lock(), 45)
_in_use = threading.Lock()


def begin(count: int, *, rehearses: bool = False) -> None:
    """Start processes until there are `count`; none is waited for. They rehearse if there is time
    before the first job (engine.build.rehearsal).
    """
    with _changes:
        _helpers[:] = [helper for helper in _helpers if not helper.has_ended]
        with contextlib.suppress(OSError):
            while len(_helpers) < count:
                _helpers.append(Helper(rehearses))


@contextmanager
def taken(count: int) -> Iterator[Helpers | None]:
    """The helpers of this process, at least `count` of them where they can be started, for one
    plan; None while another thread has them.
    """
    in_use = _in_use
    if not in_use.acquire(blocking=False):
        yield None
        return
    try:
        begin(count)
        helpers = Helpers(_helpers)
        try:
            yield helpers
        finally:
            helpers.close()
    finally:
        in_use.release()


def look_ahead(graph: UOp, device: str) -> None:
    """Let a helper make kernels of `graph`, if there is one: a plan that has them is about to be
    made.
    """
    with _changes:
        helpers = [helper for helper in _helpers if not helper.has_ended]
    if helpers:
        helpers[0].look_ahead(graph, device)


def behind() -> Helpers:
    """A background process for kernels; none where none can be started."""
    with _changes:
        _behind[:] = [helper for helper in _behind if not helper.has_ended]
        with contextlib.suppress(OSError):
            if not _behind:
                _behind.append(Helper(rehearses=False, is_behind=True))
        return Helpers(_behind)


def end() -> None:
    """End the helpers, whatever they do."""
    with _changes:
        end_children(*(helper.process for helper in (*_helpers, *_behind)))
        _helpers.clear()
        _behind.clear()


# Helpers of the parent, which a fork copies and does not own.
_parents: list[Helper] = []


def _forget() -> None:
    global _in_use
    for helpers in (_helpers, _behind):
        for helper in helpers:
            helper.process.returncode = 0
        _parents.extend(helpers)
        helpers.clear()
    _in_use = threading.Lock()


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
