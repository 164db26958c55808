"""`torch.profiler`: where a program spends its time, by named regions and by kernels.

    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("step"):
            step()
    print(prof.key_averages().table(sort_by="cpu_time_total"))

Tensors are lazy: a kernel counts in the region that computes it, where a value is read or an
optimizer steps. While it profiles, each kernel is waited for.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.profiler.events import EventList
from tilegrad.torch.profiler.recorder import Recorder, record_function

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """Activities that a program asks to be profiled; all that there are always are."""

    CPU = 0
    CUDA = 1
    XPU = 2


class ProfilerAction(enum.Enum):
    """A profiler's action in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The CPU."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """The action of each step: nothing in the `skip_first` first ones, then cycles of `wait` steps
    without, `warmup` and `active` with recording, where the last one hands the trace over; `repeat`
    cycles, or as long as there are steps with 0.

    >>> import tilegrad.torch as torch
    >>> plan = torch.profiler.schedule(wait=1, warmup=0, active=2, repeat=1)
    >>> [plan(step).name for step in range(4)]
    ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    cycle = wait + warmup + active
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            f"schedule: wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
            f"skip_first={skip_first}: active must be at least 1, the others 0"
        )

    def action_of(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0 or (repeat and step // cycle >= repeat):
            return ProfilerAction.NONE
        position = step % cycle
        if position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        is_last = position == cycle - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    return action_of


class profile:
    """Records regions and kernels in a `with` block, or between `start()` and `stop()`.

    Args:
        activities: taken; all activities are recorded.
        schedule: what to do in each step, by its number; everything without.
        on_trace_ready: called with this profiler at the end of each cycle of the schedule, or of
            the block.
        options: what else PyTorch takes (`record_shapes`, `with_stack`, ...) and has no effect.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        **options: Any,
    ):
        self.step_num = 0
        self._schedule, self._on_trace_ready = schedule, on_trace_ready
        self._action = ProfilerAction.NONE
        self._recorder: Recorder | None = None
        self._found = EventList()

    def _action_now(self) -> ProfilerAction:
        return self._schedule(self.step_num) if self._schedule else ProfilerAction.RECORD

    def start(self) -> None:
        """Begin to record, or to follow the schedule."""
        self._action = self._action_now()
        self._record_if_wanted()

    def _record_if_wanted(self) -> None:
        if self._action in _RECORDING and self._recorder is None:
            self._recorder = Recorder()
            self._recorder.start()
        if self._recorder is not None and self._schedule is not None:
            self._recorder.enter(f"ProfilerStep#{self.step_num}", "ProfilerStep*")

    def stop(self) -> None:
        """Record no longer; hands the trace over if there is one."""
        self._take()

    def _take(self) -> None:
        if self._recorder is None:
            return
        self._found = self._recorder.stop()
        self._recorder = None
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def step(self) -> None:
        """Say that a step of the program ends here."""
        if self._recorder is not None and self._schedule is not None:
            self._recorder.leave()
        before = self._action
        self.step_num += 1
        self._action = self._action_now()
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._take()
        if self._schedule is not None:
            self._record_if_wanted()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # what was found

    def events(self) -> EventList:
        """Every region and every launch of a kernel, in order."""
        return self._found

    def key_averages(self, *args: Any, **options: Any) -> EventList:
        """Regions of one name, and launches of one kernel, taken together."""
        return self._found.key_averages()

    @property
    def self_cpu_time_total(self) -> float:
        """The microseconds of everything recorded."""
        return self._found.self_cpu_time_total

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a file for chrome://tracing. Kernels stand one behind the other from
        the begin of their region: what lies between them is not known.
        """
        Path(path).write_text(json.dumps({"traceEvents": self._found.as_trace()}))


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None) -> Any:
    """Function that writes each trace to a folder, as `on_trace_ready` takes it."""

    def write(prof: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{worker_name or 'worker'}.{prof.step_num}.pt.trace.json"
        prof.export_chrome_trace(str(folder / name))

    return write


also_known(__name__, ("profiler",))

refuse_others(__name__)
