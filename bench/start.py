"""What it costs to begin: the import, the first result, the first training step.

    python bench/start.py

Every sample is a process of its own. Cold is an empty cache folder, warm one that an earlier
process has filled; Python's own compiled files and the system's file cache are warm in both. The
training step is the demo's, on the digits. Each figure is a median in milliseconds, with the least
one beside it; `bench/results/start.json` keeps the last run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
_TIMED = """
import json, sys, time
start = time.perf_counter()
{first}
between = time.perf_counter()
{then}
end = time.perf_counter()
from tilegrad.base.trace import counters
print(json.dumps({{
    "first": between - start, "then": end - between, "numpy": "numpy" in sys.modules,
    "llvmlite": "llvmlite" in sys.modules,
    "rewrites": counters.rewrites, "schedules": counters.schedules,
    "renders": counters.renders, "compiles": counters.compiles,
}}))
"""
_RESULT = ("from tilegrad import Tensor", "assert (Tensor([1.0, 2.0]) + 1).tolist() == [2, 3]")
_STEP = (
    """
sys.path.insert(0, {examples!r})
from training import Training
from tilegrad import Tensor
from tilegrad.nn.datasets import digits
Tensor.manual_seed(0)
training = Training(digits(), 128)
""".format(examples=str(ROOT.parent / "examples")),
    "assert training.step()[0].item() > 0",
)

Figures = dict[str, dict[str, Any]]


# Where Python keeps what it compiled, whatever the caller's settings are.
_PYTHON_FILES = tempfile.TemporaryDirectory()


def child(first: str, then: str, cache: str) -> dict[str, Any]:
    """The figures of one process."""
    environment = {
        **os.environ,
        "TILEGRAD_CACHE": cache,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": _PYTHON_FILES.name,
    }
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(first=first, then=then)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def milliseconds(samples: Sequence[dict[str, Any]], part: str) -> dict[str, float]:
    values = [sample[part] * 1e3 for sample in samples]
    return {"median_ms": round(statistics.median(values), 1), "least_ms": round(min(values), 1)}


def cold_and_warm(first: str, then: str, count: int) -> tuple[list[Any], list[Any]]:
    """Processes with an empty cache, and then with the last one's."""
    cold = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(child(first, then, cache))
    with tempfile.TemporaryDirectory() as cache:
        child(first, then, cache)
        warm = [child(first, then, cache) for _ in range(count)]
    return cold, warm


def work(sample: dict[str, Any]) -> dict[str, int]:
    return {name: sample[name] for name in ("rewrites", "schedules", "renders", "compiles")}


def measure(count: int) -> Figures:
    figures: Figures = {}
    for first, then in (_RESULT, _STEP):
        with tempfile.TemporaryDirectory() as cache:
            child(first, then, cache)
    with tempfile.TemporaryDirectory() as cache:
        imports = [child("import tilegrad", "", cache) for _ in range(count)]
        figures["import tilegrad"] = milliseconds(imports, "first")
        imports = [child(_RESULT[0], "", cache) for _ in range(count)]
        figures["from tilegrad import Tensor"] = milliseconds(imports, "first")
    cold, warm = cold_and_warm(*_RESULT, count)
    for name, samples in (("cold", cold), ("warm", warm)):
        figures[f"first (Tensor([1., 2.]) + 1).tolist(), {name}"] = {
            **milliseconds(samples, "then"),
            **work(samples[0]),
            "numpy": samples[0]["numpy"],
            "llvmlite": samples[0]["llvmlite"],
        }
    cold, warm = cold_and_warm(*_STEP, max(count // 5, 1))
    for name, samples in (("cold", cold), ("warm", warm)):
        figures[f"first training step of the demo, {name}"] = {
            **milliseconds(samples, "then"),
            **work(samples[0]),
            "llvmlite": samples[0]["llvmlite"],
        }
    return figures


def processor() -> str:
    from tilegrad.compile.llvm import host_target

    return f"{host_target()[1]}, {os.cpu_count()} cores, {platform.machine()}, {platform.system()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=15, help="processes for each figure")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    options = parser.parse_args()
    figures = measure(options.count)
    for name, figure in figures.items():
        rest = {key: value for key, value in figure.items() if not key.endswith("_ms")}
        print(
            f"{name:45} {figure['median_ms']:8.1f} ms, least {figure['least_ms']:8.1f}",
            *(f"{key} {value}" for key, value in rest.items()),
        )
    if options.print:
        return
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "machine": processor(),
        "python": platform.python_version(),
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "figures": figures,
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "start.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
