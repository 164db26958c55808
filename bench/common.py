"""What the benchmarks share: samples taken in turns, their spread, and the record of a run."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "Others",
    "Spread",
    "Taker",
    "environment",
    "in_turns",
    "keep",
    "machine_name",
    "measure_and_keep",
    "nanoseconds",
    "record_of",
    "tree_of",
]

ROOT = Path(__file__).parent
# Takes one sample.
Taker = Callable[[], float]


def in_turns(
    takers: Mapping[str, Taker], rounds: int, *, pause: float = 0
) -> dict[str, list[float]]:
    """One sample of each, round after round, so that all feel the same disturbance; `pause` is
    seconds before each sample.
    """
    found: dict[str, list[float]] = {name: [] for name in takers}
    for _ in range(rounds):
        for name, take in takers.items():
            if pause:
                time.sleep(pause)
            found[name].append(take())
    return found


def nanoseconds(run: Callable[[], object], *, calls: int = 1, per: int = 1) -> Taker:
    """Takes the time of one of the `per` things that each of `calls` calls of `run` does."""

    def take() -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            run()
        return (time.perf_counter_ns() - start) / (calls * per)

    return take


def environment(**more: str) -> dict[str, str]:
    """For a process of its own: all switches but the cache folder are as they are by default."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "TILEGRAD_CACHE" or not name.startswith("TILEGRAD_")
    }
    return {**kept, **more}


@contextlib.contextmanager
def tree_of(revision: str) -> Iterator[Path]:
    """A folder with the files of a revision, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT.parent), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


class Others:
    """The share of the machine that other processes take, as far as Linux tells; else zero."""

    def __init__(self, processes: Sequence[int]):
        self._processes = [os.getpid(), *processes]
        self._last = self._read()

    def share(self) -> float:
        """Since the last call, or since this began."""
        total, others = (now - then for now, then in zip(self._read(), self._last))
        self._last = self._read()
        return max(others / total, 0.0) if total else 0.0

    def wait(self, most: float, seconds: float) -> None:
        """Wait until they take less than `most`, but not longer than `seconds`."""
        end = time.monotonic() + seconds
        self.share()
        while time.monotonic() < end:
            time.sleep(0.2)
            if self.share() < most:
                break

    def _read(self) -> tuple[float, float]:
        """Ticks of all processors, and those in which something else ran on them."""
        try:
            total = [int(field) for field in Path("/proc/stat").read_text().split()[1:9]]
            own = 0
            for process in self._processes:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                own += int(fields[11]) + int(fields[12])
        except OSError:
            return 0.0, 0.0
        _, _, _, idle, waiting, *_ = total
        return float(sum(total)), float(sum(total) - idle - waiting - own)


class Spread:
    """The median of samples, with the quartiles and the least one as a measure of the noise."""

    def __init__(self, samples: Sequence[float]):
        self.median = statistics.median(samples)
        self.least = min(samples)
        self.lower, self.upper = self.median, self.median
        if len(samples) > 1:
            self.lower, _, self.upper = statistics.quantiles(samples, n=4, method="inclusive")

    def record(self, unit: str, digits: int = 1) -> dict[str, Any]:
        return {
            f"median_{unit}": round(self.median, digits),
            f"quartiles_{unit}": [round(self.lower, digits), round(self.upper, digits)],
            f"least_{unit}": round(self.least, digits),
        }

    def text(self, unit: str, digits: int = 1) -> str:
        def number(value: float) -> str:
            return f"{value:,.{digits}f}"

        middle = f"{number(self.lower)} to {number(self.upper)}"
        return f"{number(self.median):>12} {unit}   {middle:>24}   least {number(self.least):>12}"


def record_of(figures: Any, packages: Sequence[str] = ("numpy", "llvmlite")) -> dict[str, Any]:
    """Figures with what they were measured on: machine, versions, commit and day."""
    commit = _git("rev-parse", "HEAD")
    if _git("status", "--porcelain", "--", "tilegrad", "examples", "bench/*.py"):
        commit += ", changed"
    return {
        "machine": _machine(),
        "versions": {"python": platform.python_version(), **_versions(packages)},
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "figures": figures,
    }


def keep(name: str, record: Mapping[str, Any]) -> None:
    """Write `bench/results/<name>.json` in place of an earlier run."""
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def measure_and_keep(
    name: str, doc: str | None, measure: Callable[[int], Mapping[str, Sequence[float]]], count: int
) -> None:
    """The command line of a benchmark that measures nanoseconds, `count` samples for each figure
    unless it is told otherwise.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=count, help="samples for each figure")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    figures = {}
    for label, samples in measure(options.count).items():
        spread = Spread(samples)
        print(f"{label:44} {spread.text('ns')}")
        figures[label] = spread.record("ns")
    if not options.print:
        keep(name, record_of(figures))


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git(*command: str) -> str:
    done = subprocess.run(
        ["git", *command], cwd=ROOT.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _cores() -> int:
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return found or 1


def machine_name() -> str:
    """For names of files: what results may be compared across."""
    from tilegrad.compile.llvm import host_target

    return f"{platform.system()}-{host_target()[1]}-{_cores()}-cores".lower()


def _machine() -> str:
    from tilegrad.compile.llvm import host_target

    parts = [host_target()[1], f"{_cores()} cores", platform.machine(), platform.system()]
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    models = {line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line}
    return ", ".join([*sorted(models), *parts])
