"""What it costs to begin: the import, the first result, the first training step.

    python bench/start.py

Every sample is a process of its own; cold and warm ones take turns. Cold is an empty cache folder,
warm one that an earlier process has filled; Python's own compiled files and the system's file cache
are warm in both. `import tilegrad` loads nothing of what the first result needs, so that belongs to
the first result. The training step is the demo's, on the digits: a warm one is to rewrite, render
and compile nothing in the whole process. Last, for each plan of a step, the memory that it says it
needs beyond its inputs, and the blocks that it took, which are up to a sixteenth larger.
`bench/results/start.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from common import ROOT, Spread, Taker, environment, in_turns, keep, record_of

WORK = ("rewrites", "schedules", "renders", "compiles")
_TIMED = """
import json, sys, time
start = time.perf_counter()
{first}
between = time.perf_counter()
{then}
end = time.perf_counter()
from tilegrad.base.trace import counters
print(json.dumps({{
    "first": between - start, "then": end - between,
    "numpy": "numpy" in sys.modules, "llvmlite": "llvmlite" in sys.modules,
    "rewrites": counters.rewrites, "schedules": counters.schedules,
    "renders": counters.renders, "compiles": counters.compiles,
}}))
"""
_RESULT = (
    "import tilegrad",
    "assert (tilegrad.Tensor([1.0, 2.0]) + 1).tolist() == [2, 3]",
)
_TRAINING = f"""
sys.path.insert(0, {str(ROOT.parent / "examples")!r})
from training import Training
from tilegrad import Tensor
from tilegrad.nn.datasets import digits
Tensor.manual_seed(0)
training = Training(digits(), 128)
"""
_STEP = (_TRAINING, "assert training.step()[0].item() > 0")
_MEMORY = f"""
import gc, json, sys
{_TRAINING}
from tilegrad import GlobalCounters
from tilegrad.engine.realize import realize
from tilegrad.engine.run import run
from tilegrad.runtime.allocator import LRUAllocator
run_plan, run_step, allocate_all = run.run_plan, run.run_step, LRUAllocator.allocate_all
plans, before = [], 0
def counted(*given, **rest):
    run_step(*given, **rest)
    plans[-1]["counted"] = max(plans[-1]["counted"], GlobalCounters.mem_used - before)
def allocated(allocator, sizes):
    # A plan that runs as one call takes all of its memory at once, in size classes.
    if plans:
        plans[-1]["counted"] += sum(sizes)
    return allocate_all(allocator, sizes)
def watched(plan, *rest):
    global before
    before = GlobalCounters.mem_used
    plans.append({{"predicted": plan.peak_bytes, "counted": 0, "kernels": len(plan.steps)}})
    return run_plan(plan, *rest)
run.run_step, realize.run_plan, LRUAllocator.allocate_all = counted, watched, allocated
for _ in range(2):
    gc.collect()
    gc.disable()
    plans.clear()
    training.plain_step()
    gc.enable()
print(json.dumps(plans))
"""
IMPORT = "import tilegrad"
FIRST = "first (tilegrad.Tensor([1., 2.]) + 1).tolist()"
STEP = "first training step of the demo"
# Milliseconds.
BUDGETS = {IMPORT: 150.0, f"{FIRST}, cold": 250.0, f"{FIRST}, warm": 150.0}

# Where Python keeps what it compiled, whatever the caller's settings are.
_PYTHON_FILES = tempfile.TemporaryDirectory()


def child(code: str, cache: str) -> Any:
    """What a process prints, with the switches' defaults."""
    given = environment(
        TILEGRAD_CACHE=cache, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=_PYTHON_FILES.name
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=given)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


class Process:
    """Takes the milliseconds of one part of a process; without a cache each has an empty one."""

    def __init__(self, first: str, then: str, part: str, cache: str | None):
        self._code, self._part, self._cache = _TIMED.format(first=first, then=then), part, cache
        self.samples: list[dict[str, Any]] = []
        self._seconds: list[float] = []

    def __call__(self) -> float:
        with tempfile.TemporaryDirectory() as empty:
            start = time.perf_counter()
            self.samples.append(child(self._code, self._cache or empty))
            self._seconds.append(time.perf_counter() - start)
        return float(self.samples[-1][self._part]) * 1e3

    def facts(self) -> dict[str, Any]:
        """The most work of any sample, modules that any imported, and a process as a whole."""
        found: dict[str, Any] = {
            name: max(sample[name] for sample in self.samples)
            for name in (*WORK, "numpy", "llvmlite")
        }
        return {**found, "process_ms": round(Spread(self._seconds).median * 1e3, 1)}


def measure(count: int, steps: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        # One that fills the cache and Python's files for each.
        for first, then in (_RESULT, _STEP)[: 2 if steps else 1]:
            child(_TIMED.format(first=first, then=then), cache)
        quick = {
            IMPORT: Process(*_RESULT, "first", cache),
            f"{FIRST}, cold": Process(*_RESULT, "then", None),
            f"{FIRST}, warm": Process(*_RESULT, "then", cache),
        }
        slow = {
            f"{STEP}, cold": Process(*_STEP, "then", None),
            f"{STEP}, warm": Process(*_STEP, "then", cache),
        }
        for processes, rounds in ((quick, count), (slow, steps))[: 2 if steps else 1]:
            takers: dict[str, Taker] = dict(processes)
            for name, samples in in_turns(takers, rounds).items():
                figures[name] = {**Spread(samples).record("ms"), **processes[name].facts()}
                show(name, samples, figures[name])
        plans = child(_MEMORY, cache) if steps else []
        figures["memory of the demo's step, by plan"] = plans
    for plan in plans:
        print(
            f"plan of {plan['kernels']:3} kernels: {plan['predicted']:11,} bytes predicted,"
            f" {plan['counted']:11,} counted"
        )
    return figures


def show(name: str, samples: Sequence[float], figure: dict[str, Any]) -> None:
    print(f"{name:52} {Spread(samples).text('ms')}")
    print(" " * 52, *(f"{key} {figure[key]}" for key in (*WORK, "numpy", "llvmlite")))
    if name.endswith("warm") and any(figure[key] for key in WORK):
        print(" " * 52, "NOT WARM: is the source being edited?")
    if name in BUDGETS:
        figure["budget_ms"] = BUDGETS[name]
        word = "within" if figure["median_ms"] < BUDGETS[name] else "OVER"
        print(" " * 52, f"{word} the budget of {BUDGETS[name]:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=15, help="processes for each figure")
    parser.add_argument("--steps", type=int, default=5, help="the same for training steps")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    figures = measure(options.count, options.steps)
    if not options.print:
        keep("start", record_of(figures))


if __name__ == "__main__":
    main()
