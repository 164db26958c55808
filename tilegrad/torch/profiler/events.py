"""Records of a profiler: regions and launches, their averages, and both as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilegrad.base.errors import ConfigError

__all__ = ["Average", "Event", "EventList"]

_ORDERS = (
    "count", "cpu_time", "cpu_time_total", "cuda_time", "cuda_time_total", "device_time",
    "device_time_total", "self_cpu_time_total", "self_cuda_time_total", "self_device_time_total",
)  # fmt: skip
_COLUMNS = (
    "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls",
)  # fmt: skip
_WIDTH = 13
_WIDEST_NAME = 55


@dataclass
class Event:
    """One region, or one launch of a kernel.

    Attributes:
        name: the region's or the kernel's.
        key: the name under which it is averaged.
        start: when it began, in microseconds since the profiler did.
        cpu_time_total: its microseconds.
        self_cpu_time_total: those in no region inside it, and in no kernel.
        is_kernel: whether it is a launch.
    """

    name: str
    key: str
    start: float
    cpu_time_total: float
    self_cpu_time_total: float
    is_kernel: bool = False
    count = 1

    @property
    def cpu_time(self) -> float:
        """Its microseconds."""
        return self.cpu_time_total


class _NoDevice:
    """Times of a GPU: none."""

    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_time = device_time_total = self_device_time_total = 0.0


@dataclass
class Average(_NoDevice):
    """Events of one key taken together; times in microseconds."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        """The mean of one event."""
        return self.cpu_time_total / max(self.count, 1)


class EventList(list[Any]):
    """Events, or averages of them."""

    def __init__(self, events: Iterable[Any] = ()):
        super().__init__(events)

    @property
    def self_cpu_time_total(self) -> float:
        """The microseconds of all together."""
        return float(sum(each.self_cpu_time_total for each in self))

    def key_averages(self) -> EventList:
        """The events of each key taken together."""
        found: dict[str, Average] = {}
        for event in self:
            average = found.setdefault(event.key, Average(event.key))
            average.count += event.count
            average.cpu_time_total += event.cpu_time_total
            average.self_cpu_time_total += event.self_cpu_time_total
        return EventList(found.values())

    def total_average(self) -> Average:
        """All events as one."""
        made = Average("Total")
        for event in self:
            made.count += event.count
            made.self_cpu_time_total += event.self_cpu_time_total
        made.cpu_time_total = made.self_cpu_time_total
        return made

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = _WIDEST_NAME,
        **options: Any,
    ) -> str:
        """The rows as text, the largest first by `sort_by`.

        Raises ConfigError for an order that there is none of.
        """
        if sort_by is not None and sort_by not in _ORDERS:
            raise ConfigError(f"table: no order {sort_by!r}", known=", ".join(_ORDERS))
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=lambda row: -getattr(row, sort_by))
        shown = rows if row_limit < 0 else rows[:row_limit]
        longest = max([len("Name"), *[len(row.key) for row in shown]])
        width = min(longest, max_name_column_width)
        line = "  ".join(["-" * width, *["-" * _WIDTH] * len(_COLUMNS)])
        total = self.self_cpu_time_total
        cells = [("Name", *_COLUMNS), *[_cells(row, total, width) for row in shown]]
        texts = ["  ".join([head.rjust(width), *[each.rjust(_WIDTH) for each in rest]])
                 for head, *rest in cells]  # fmt: skip
        end = f"Self CPU time total: {_time(total)}"
        return "\n".join([line, texts[0], line, *texts[1:], line, end, ""])

    def as_trace(self) -> list[dict[str, Any]]:
        """The events as chrome://tracing reads them."""
        return [
            {"ph": "X", "name": each.name, "cat": "kernel" if each.is_kernel else "user_annotation",
             "ts": each.start, "dur": each.cpu_time_total, "pid": 0, "tid": int(each.is_kernel)}
            for each in self
        ]  # fmt: skip


def _cells(row: Any, total: float, width: int) -> tuple[str, ...]:
    name = row.key if len(row.key) <= width else row.key[: width - 3] + "..."
    whole = total or 1.0
    return (
        name,
        f"{row.self_cpu_time_total / whole:.2%}",
        _time(row.self_cpu_time_total),
        f"{row.cpu_time_total / whole:.2%}",
        _time(row.cpu_time_total),
        _time(row.cpu_time),
        str(row.count),
    )


def _time(microseconds: float) -> str:
    for least, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= least:
            return f"{microseconds / least:.3f}{unit}"
    return f"{microseconds:.3f}us"
