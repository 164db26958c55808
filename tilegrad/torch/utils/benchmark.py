"""`torch.utils.benchmark`: how long a statement takes. The statement's results are waited for."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.configuration import get_num_threads, set_num_threads
from tilegrad.torch.tensor import Tensor

__all__ = ["Compare", "Measurement", "Timer"]

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 0.0))


def _shown(seconds: float) -> str:
    unit, size = next(each for each in _UNITS if seconds >= each[1])
    return f"{seconds / (size or 1e-9):.2f} {unit}"


@dataclass
class Measurement:
    """The times of several runs of a statement, of `number_per_run` calls each."""

    number_per_run: int
    raw_times: list[float]
    title: str
    num_threads: int = 1
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None

    @property
    def times(self) -> list[float]:
        """Seconds of one call, by run."""
        return [each / self.number_per_run for each in self.raw_times]

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return statistics.mean(self.times)

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """How far the middle half of the times reaches."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def __repr__(self) -> str:
        count = len(self.raw_times)
        runs = (
            f"{count} measurement{'s' * (count != 1)}, {self.number_per_run} runs per measurement"
        )
        middle = f"Median: {_shown(self.median)}" if count > 1 else _shown(self.mean)
        threads = f"{self.num_threads} thread{'s' * (self.num_threads != 1)}"
        return f"{type(self).__name__}\n{self.title}\n  {middle}\n  {runs}, {threads}"


class Timer:
    """Times a statement, a text that sees `globals` and what `setup` has made.

    >>> from tilegrad.torch.utils.benchmark import Timer
    >>> made = Timer("x + x", globals={"x": 2.0}).timeit(10)
    >>> made.number_per_run, len(made.times), made.mean > 0
    (10, 1, True)
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = time.perf_counter,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = None,
    ):
        self._space = dict(globals or {})
        self._space["_compute"] = self._compute
        lines = stmt.strip().splitlines()
        try:
            compile(lines[-1].strip(), "<stmt>", "eval")
            lines[-1] = f"_compute({lines[-1].strip()})"
        except SyntaxError:
            pass
        self._timer = timeit.Timer("\n".join(lines), setup, timer, self._space)
        self._title = label or stmt.strip()
        self._threads = num_threads
        self._named = {"label": label, "sub_label": sub_label, "description": description}

    def _compute(self, value: Any) -> None:
        """Compute what a call gave."""
        if isinstance(value, Tensor):
            value.detach().realize()

    def _run(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._threads)
        try:
            return self._timer.timeit(number)
        finally:
            set_num_threads(before)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._title, self._threads, **self._named)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One run of `number` calls, after a short one that compiles."""
        self._run(max(number // 100, 2))
        return self._measured(number, [self._run(number)])

    def blocked_autorange(
        self, callback: Callable[[int, float], None] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs for at least `min_run_time` seconds, of calls for a hundredth of that."""
        self._run(2)
        number, taken = 1, self._run(1)
        while taken < min_run_time / 100 and number < 1 << 24:
            number *= 2
            taken = self._run(number)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return self._measured(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        **_: Any,
    ) -> Measurement:
        """As `blocked_autorange`."""
        return self.blocked_autorange(min_run_time=min_run_time)


class Compare:
    """A table of measurements: a row for each `sub_label`, a column for each `description`."""

    def __init__(self, results: Iterable[Measurement]):
        self._results = list(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """More of them."""
        self._results += results

    def trim_significant_figures(self) -> None:
        """Nothing: times have two places."""

    def colorize(self, rowwise: bool = False) -> None:
        """Nothing: the table is plain."""

    def __str__(self) -> str:
        rows = list(dict.fromkeys(each.sub_label or each.title for each in self._results))
        columns = list(dict.fromkeys(each.description or "" for each in self._results))
        by_name = {
            (each.sub_label or each.title, each.description or ""): _shown(each.median)
            for each in self._results
        }
        table = [["", *columns]]
        table += [[row, *(by_name.get((row, column), "") for column in columns)] for row in rows]
        widths = [max(len(line[at]) for line in table) for at in range(len(columns) + 1)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in table
        ]
        return "\n".join([*dict.fromkeys(each.label or "" for each in self._results), *lines])

    def print(self) -> None:
        """Print the table."""
        print(self)


refuse_others(__name__)
