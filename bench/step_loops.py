"""Timing of programs that are loops of steps, tilegrad and PyTorch in turns: each program runs in a
process of its own with an empty cache, and the results are printed and kept.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
from common import environment, keep, record_of

__all__ = ["Log", "arguments", "main", "mean", "measured", "run_inside"]

# What a step logs.
Log = Sequence[float]
# Processes of each program, in turns. The time of a library's first calls may double from one
# process to the next, so each figure is the median.
_ROUNDS = 3


def measured(name: str, loops: Sequence[Iterator[Log]], steps: int) -> dict[str, float]:
    """The figures of a program's `loops`, tilegrad's and PyTorch's, which log the same.

    Raises AssertionError where they do not.
    """
    from tilegrad.base.trace import counters

    times: list[list[float]] = [[], []]
    late = (0, 0)
    for step in range(steps):
        if step == steps - steps // 3:
            late = counters.schedules, counters.compiles
        logs = []
        for loop, taken in zip(loops, times, strict=True):
            start = time.perf_counter()
            logs.append(next(loop))
            taken.append(time.perf_counter() - start)
        np.testing.assert_allclose(
            logs[0], logs[1], rtol=2e-3, atol=1e-4, err_msg=f"{name}: step {step}"
        )
    ours, theirs = (float(np.median(each[-(steps // 3) :])) for each in times)
    return {
        "ours_ms": ours * 1e3,
        "theirs_ms": theirs * 1e3,
        "steady": theirs / ours,
        "whole": sum(times[1]) / sum(times[0]),
        "ours_whole_ms": sum(times[0]) * 1e3,
        "theirs_whole_ms": sum(times[1]) * 1e3,
        "plans": counters.schedules,
        "kernels": counters.compiles,
        "late_plans": counters.schedules - late[0],
        "late_kernels": counters.compiles - late[1],
    }


def mean(values: Collection[float]) -> float:
    """The geometric mean; 0 of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def run_inside(
    file: str, name: str, steps: int, patience_s: float, **variables: str
) -> dict[str, float] | str:
    """The figures of a program of the script `file`, which has environment `variables` beside the
    usual ones and `patience_s` seconds; or the last line of what went wrong.
    """
    command = [sys.executable, file, name, "--inside", "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = subprocess.run(
                command,
                env={**environment(**variables), "TILEGRAD_CACHE": cache},
                capture_output=True,
                text=True,
                timeout=patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"more than {patience_s:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    row: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def arguments(doc: str | None, steps: int) -> argparse.Namespace:
    """The arguments of a script whose programs are loops of `steps` steps, unless others are asked
    for. With `inside` a program runs in this process.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="processes of each program")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main(
    file: str,
    doc: str | None,
    programs: Iterable[str],
    run: Callable[[str, int], dict[str, float]],
    steps: int,
    patience_s: float,
) -> int:
    """The command line of the script `file`: `run` runs one of its programs in this process. The
    results of all of them are kept under its name.
    """
    given = arguments(doc, steps)
    if given.inside:
        print(json.dumps(run(given.programs[0], given.steps)))
        return 0
    names = given.programs or [*programs]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as files:
        # An installed library has Python's compiled files: the first program makes them.
        variables = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": files}
        run_inside(file, names[0], 6, patience_s, **variables)
        for _ in range(given.rounds):
            for name in names:
                row = run_inside(file, name, given.steps, patience_s, **variables)
                if isinstance(row, str):
                    print(f"{name:14} failed: {row}", flush=True)
                else:
                    found[name].append(row)
    rows = {
        name: {key: float(np.median([each[key] for each in several])) for key in several[0]}
        for name, several in found.items()
        if several
    }
    print(
        f"{'program':14} {'ours ms':>9} {'torch ms':>9} {'steady':>8} {'whole':>8}"
        "  plans kernels (late)"
    )
    for name, row in rows.items():
        print(
            f"{name:14} {row['ours_ms']:9.3f} {row['theirs_ms']:9.3f} {row['steady']:8.4f} "
            f"{row['whole']:8.4f}  {row['plans']:5.0f} {row['kernels']:5.0f} "
            f"({row['late_plans']:.0f}, {row['late_kernels']:.0f})"
        )
    steady, whole = (mean([row[key] for row in rows.values()]) for key in ("steady", "whole"))
    print(f"geometric mean {steady:.4f} steady, {whole:.4f} whole, of {len(rows)} programs")
    has_all = all(len(several) == given.rounds for several in found.values())
    if has_all and not given.programs:
        figures = {"steady": steady, "whole": whole, "steps": given.steps, "programs": rows}
        script = file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
        keep(script, record_of(figures, ("numpy", "llvmlite", "torch")))
    return 0 if has_all else 1
