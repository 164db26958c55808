"""tilegrad beside its peers: the same work, in turns, on the same machine.

    make bench                      everything; goes on where an earlier run was stopped
    make bench ROWS=softmax         the rows whose name or part matches
    make bench-diff                 the last two results

or, in an environment of one's own, `pip install -e ".[peers]"` and `python bench/peers.py`.

Each library has a process of its own with the same number of threads. Results are first compared
with NumPy's in float64, those of a training step by the losses of a few steps. Then they take
turns, round by round, so that all feel the same disturbance. A figure is the median over rounds of
a round's median, a ratio the median of the rounds' ratios to tilegrad, above one where tilegrad is
faster. A round in which something else ran on the machine is taken again, if a quiet one comes soon
enough; `others` is the most that ran beside the rounds that count, as a share of the machine.

tilegrad runs captured. PyTorch runs as it is written in a process as it starts; in one whose malloc
keeps memory, as large results otherwise come from the system anew at each call; there also into a
given buffer, with images channels last, and compiled by itself, where a row says so. The other
libraries have such a malloc too, and onnxruntime has its results bound once.

A peer that takes more than three times as long as the best one is measured once per machine and
version, and kept in `bench/results/slow-<machine>.json`. `bench/results/<machine>-<commit>.json`,
with a table and a chart beside it, is written row by row. The limit of a row is what its
multiply-adds, or the bytes it cannot do without, take at what the machine was measured to reach.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Others, Spread, Taker, environment, in_turns, machine_name, record_of
from models.inputs import inputs
from models.reference import Reference, Result
from report import OWN, best_peer, write
from rows import TORCH, Row, rows

# Between two samples: the threads of the one before may wait busily for more work so long.
_PAUSE_S = 0.05
# What else may run in a round, as a share of the machine.
_OTHERS = 0.03
# A peer so many times slower than the best one is measured once.
_SLOW = 3.0
# How often the limits are measured at first; then once for each row.
_LIMITS = 3
# A library has so long to make a row, compilation included.
_PATIENCE_S = 900.0
PACKAGES = ("numpy", "llvmlite", "torch", "jax", "onnxruntime", "tinygrad")
# Nothing by mmap, nothing back to the system.
_KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
_KEPT = ROOT / ".kept"
TREE = ROOT.parent


class Gone(Exception):
    """A process that ended, or took too long and was ended."""


class Worker:
    """A process with one library; tilegrad is that of a `tree`, by default of this one."""

    def __init__(
        self, library: str, threads: int, *, keeping: bool, busy: bool = False, tree: Path = TREE
    ):
        names = ("TILEGRAD_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        given = environment(**dict.fromkeys(names, str(threads)))
        if keeping:
            given |= _KEEPING
        if tree != TREE:
            given["PYTHONPATH"] = str(tree)
        command = [
            sys.executable,
            str(tree / "bench" / "worker.py"),
            library,
            "--threads",
            str(threads),
        ]
        command += ["--busy"] * busy
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given
        )
        self._rest = b""

    @property
    def process_id(self) -> int:
        return self._process.pid

    def ask(self, patience: float = _PATIENCE_S, **command: Any) -> Any:
        """Raises Gone where no answer comes; the process is then no more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._end("the process ended")
        end = time.monotonic() + patience
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self._end(f"no answer within {patience:.0f} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                self._end("the process ended")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _end(self, reason: str) -> None:
        self.stop()
        raise Gone(reason)

    def taker(self, engine: str) -> Taker:
        return lambda: float(self.ask(take=engine))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Workers:
    """The processes, started when they are first needed."""

    def __init__(self, *, busy: bool = False) -> None:
        self._busy = busy
        self._running: dict[tuple[str, int, bool], Worker] = {}

    def of(self, engine: str, threads: int) -> Worker:
        library = engine.partition(",")[0]
        keeping = engine not in (OWN, TORCH)
        key = library, threads, keeping
        if key not in self._running:
            self._running[key] = Worker(library, threads, keeping=keeping, busy=self._busy)
        return self._running[key]

    def gone(self, worker: Worker) -> None:
        self._running = {key: each for key, each in self._running.items() if each is not worker}

    def only(self, wanted: list[Worker]) -> None:
        """End the others, whose work takes memory."""
        for worker in self._running.values():
            if worker not in wanted:
                worker.stop()
        self._running = {key: each for key, each in self._running.items() if each in wanted}

    @property
    def process_ids(self) -> list[int]:
        return [each.process_id for each in self._running.values()]


class Quiet:
    """Takes rounds in which little else runs, as long as its patience lasts."""

    def __init__(self, patience: float):
        self._patience = patience

    def rounds(
        self, takers: dict[str, Taker], count: int, processes: list[int]
    ) -> tuple[dict[str, list[float]], float]:
        """Samples of the rounds in which least else ran, and the most that ran in one of these."""
        others = Others(processes)
        found: list[tuple[float, dict[str, list[float]]]] = []
        quiet = 0
        while len(found) < count or (quiet < count and self._patience > 0):
            start = time.monotonic()
            others.wait(_OTHERS, min(self._patience, 60.0))
            begun = time.monotonic()
            taken = in_turns(takers, 1, pause=_PAUSE_S)
            found.append((others.share(), taken))
            is_quiet = found[-1][0] < _OTHERS
            quiet += is_quiet
            self._patience -= (begun if is_quiet else time.monotonic()) - start
        found.sort(key=lambda each: each[0])
        best = found[:count]
        return {name: [taken[name][0] for _, taken in best] for name in takers}, best[-1][0]


def difference(reference: list[float], values: list[float]) -> float:
    """The largest, as a share of the largest value."""
    expected, found = np.array(reference), np.array(values)
    if expected.shape != found.shape:
        return float("inf")
    error = np.abs(expected - found).max() / np.abs(expected).max()
    return float(error) if np.isfinite(error) else float("inf")


def reference_of(row: Row) -> Result:
    """Kept where it took long."""
    sources = "".join(path.read_text() for path in sorted((ROOT / "models").glob("[nir]*.py")))
    named = json.dumps([row.kind, row.sizes], sort_keys=True) + sources
    path = _KEPT / f"{hashlib.sha256(named.encode()).hexdigest()[:24]}.json"
    if path.exists():
        return Result(**json.loads(path.read_text()))
    start = time.perf_counter()
    found = Reference().make(row.kind, inputs(row.kind, row.sizes), row.sizes)
    if time.perf_counter() - start > 1:
        _save(path, {"values": found.values, "flops": found.flops})
    return found


def _save(path: Path, record: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(record, indent=1) + "\n")
    beside.replace(path)


class Slow:
    """Peers whose figure for a row is kept."""

    def __init__(self, path: Path | None):
        """Without a path nothing is kept."""
        self._path = path
        self._kept: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._kept = json.loads(path.read_text())

    def of(self, row: Row, engine: str) -> dict[str, Any] | None:
        found = self._kept.get(row.name, {}).get(engine)
        if found is None or found["of"] != self._key(row, engine):
            return None
        figure: dict[str, Any] = found["figure"]
        return {**figure, "kept": True}

    def keep(self, row: Row, engine: str, figure: dict[str, Any]) -> None:
        if self._path is None:
            return
        record = {"of": self._key(row, engine), "figure": figure}
        self._kept.setdefault(row.name, {})[engine] = record
        _save(self._path, self._kept)

    def _key(self, row: Row, engine: str) -> Any:
        library = engine.partition(",")[0]
        return json.loads(json.dumps([version(library), row.definition]))


@dataclass
class Suite:
    """What all rows are measured with.

    Attributes:
        chosen: patterns of peers, all if empty.
        limits: the best that was seen of the machine, by threads.
    """

    workers: Workers
    quiet: Quiet
    slow: Slow
    rounds: int
    installed: list[str]
    chosen: str = ""
    patience: float = _PATIENCE_S
    limits: dict[int, dict[str, Any]] = field(default_factory=dict)

    def engines_of(self, row: Row) -> list[str]:
        return [
            engine
            for engine in row.peers
            if engine.partition(",")[0] in self.installed and re.search(self.chosen, engine)
        ]

    def measure(self, row: Row) -> dict[str, Any]:
        reference = reference_of(row)
        engines: dict[str, dict[str, Any]] = {}
        asked = [OWN]
        for engine in self.engines_of(row):
            kept = self.slow.of(row, engine)
            if kept is None:
                asked.append(engine)
            else:
                engines[engine] = kept
        takers = self._made(row, reference, asked, engines)
        samples, others = self._samples(takers, engines)
        flops = reference.flops or row.flops
        for engine, taken in samples.items():
            engines[engine] |= Spread(taken).record("ms", 4)
            if engine != OWN and OWN in samples:
                ratio = Spread([theirs / own for own, theirs in zip(samples[OWN], taken)])
                engines[engine]["ratio"] = round(ratio.median, 3)
                engines[engine]["quartiles_ratio"] = [round(ratio.lower, 3), round(ratio.upper, 3)]
        found = {
            "part": row.part, "work": row.name, "definition": row.definition,
            "goal": row.goal, "also": row.also,
            "flops": flops, "bytes": row.nbytes, "limit_ms": self._limit(row, flops),
            "others": round(others, 3),
            "engines": {name: engines[name] for name in (OWN, *row.peers) if name in engines},
        }  # fmt: skip
        self._keep_slow(row, engines)
        return found

    def _made(
        self, row: Row, reference: Result, asked: list[str], engines: dict[str, dict[str, Any]]
    ) -> dict[str, Taker]:
        """Has the work made, by each process for all of its engines; those whose results are right
        are to be timed.
        """
        by_worker: dict[Worker, list[str]] = {}
        for engine in asked:
            by_worker.setdefault(self.workers.of(engine, row.threads), []).append(engine)
        self.workers.only(list(by_worker))
        takers: dict[str, Taker] = {}
        for worker, names in by_worker.items():
            wanted = {"kind": row.kind, "sizes": row.sizes, "engines": names}
            try:
                answers = worker.ask(self.patience, make=wanted)
            except Gone as gone:
                self.workers.gone(worker)
                answers = {name: {"error": str(gone)} for name in names}
            for engine, answer in answers.items():
                engines[engine] = answer
                values = answer.pop("values", None)
                if values is None:
                    continue
                error = difference(reference.values, values)
                answer["difference"] = float(f"{error:.1e}")
                if error <= row.tolerance:
                    takers[engine] = worker.taker(engine)
                else:
                    answer["error"] = f"differs from the reference by {error:.1e}"
        return takers

    def _samples(
        self, takers: dict[str, Taker], engines: dict[str, dict[str, Any]]
    ) -> tuple[dict[str, list[float]], float]:
        """A process that ends meanwhile leaves the row without any figure of this run."""
        if not takers:
            return {}, 0.0
        try:
            return self.quiet.rounds(takers, self.rounds, self.workers.process_ids)
        except Gone as gone:
            for engine in takers:
                engines[engine]["error"] = f"while samples were taken: {gone}"
            self.workers.only([])
            return {}, 0.0

    def _limit(self, row: Row, flops: float) -> float | None:
        """Milliseconds that the work would take if nothing but arithmetic or bytes bound it."""
        worker = self.workers.of(OWN, row.threads)
        for _ in range(1 if row.threads in self.limits else _LIMITS):
            try:
                found = worker.ask(limits=True)
            except Gone:
                return None
            best = self.limits.setdefault(row.threads, found)
            for unit, rate in found["flops"].items():
                best["flops"][unit] = max(best["flops"][unit], rate)
            pairs = zip(best["copies"], found["copies"])
            best["copies"] = [(size, max(old, new)) for (size, old), (_, new) in pairs]
        if row.unit not in best["flops"]:
            return None
        copies = best["copies"]
        speed = next((rate for size, rate in copies if row.nbytes <= size), copies[-1][1])
        return round(max(flops / best["flops"][row.unit], row.nbytes / speed) * 1e3, 4)

    def _keep_slow(self, row: Row, engines: dict[str, dict[str, Any]]) -> None:
        theirs = {
            name: found["median_ms"]
            for name, found in engines.items()
            if name != OWN and "median_ms" in found
        }
        best = min(theirs.values(), default=0.0)
        for name, median in theirs.items():
            if median > _SLOW * best and not engines[name].get("kept"):
                ratios = ("ratio", "quartiles_ratio")
                figure = {key: each for key, each in engines[name].items() if key not in ratios}
                self.slow.keep(row, name, figure)


def show(row: dict[str, Any]) -> None:
    name, limit = row["work"], row["limit_ms"]
    disturbed = f" (others {row['others']:.0%})" if row["others"] >= _OTHERS else ""
    best = best_peer(row)
    for engine, found in row["engines"].items():
        if "median_ms" not in found:
            text = found["error"].splitlines()[0][:90]
        else:
            lower, upper = found["quartiles_ms"]
            text = f"{found['median_ms']:10.3f} ms {lower:10.3f} to {upper:10.3f}"
            if limit:
                text += f" {limit / found['median_ms']:5.0%} of the limit"
            if "ratio" in found:
                text += f" ratio {found['ratio']:5.2f}"
            text += " kept" if found.get("kept") else disturbed
            if "kernels" in found:
                text += f"  {found['kernels']} kernels"
        print(f"{name:46} {engine:22} {text}{'  <- best' if engine == best else ''}")
        name = ""
    sys.stdout.flush()


def result_name() -> str:
    """Of the machine and the commit; with a digest of what is changed since."""

    def git(*command: str) -> str:
        done = subprocess.run(
            ["git", *command], cwd=ROOT.parent, capture_output=True, text=True, check=False
        )
        return done.stdout

    name = f"{machine_name()}-{git('rev-parse', '--short=9', 'HEAD').strip()}"
    watched = ("--", "tilegrad", "examples", "bench/*.py", "bench/models")
    if git("status", "--porcelain", *watched):
        text = git("diff", "HEAD", *watched)
        name += f"-changed-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="?", default="", help="pattern of rows by name or part")
    parser.add_argument("--rounds", type=int, default=7, help="samples for each figure")
    parser.add_argument(
        "--patience", type=float, default=600,
        help="seconds for waiting until nothing else runs, and for rounds in which something did",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=float, default=_PATIENCE_S, help="seconds that a library has to make a row"
    )
    parser.add_argument("--peers", default="", help="with --print: pattern of peers")
    parser.add_argument("--scale", type=int, default=1, help="with --print: so many times smaller")
    parser.add_argument(
        "--busy", action="store_true",
        help="with --print: one thread, and the time that it ran, for a machine that others use",
    )  # fmt: skip
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--print", action="store_true", help="only print, keep nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (options.peers or options.scale > 1 or options.busy) and not options.print:
        parser.error("--peers, --scale and --busy need --print: theirs is not the table")
    every = rows(options.scale)
    if options.busy:
        every = [replace(row, threads=1) for row in every]
    chosen = [row for row in every if re.search(options.rows, f"{row.part}: {row.name}")]
    if not chosen:
        raise SystemExit(f"no row matches {options.rows!r}; there are:\n" + "\n".join(
            f"  {row.part}: {row.name}" for row in every))  # fmt: skip
    installed = [name for name in PACKAGES if find_spec(name) is not None]
    missing = [name for name in PACKAGES if name not in installed]
    if missing:
        print(f"not installed, so not beside tilegrad: {', '.join(missing)}")
    is_kept = not options.print
    path: Path = options.results / f"{result_name()}.json"
    record: dict[str, Any] = {}
    if is_kept and path.exists() and not options.again:
        record = json.loads(path.read_text())
    figures: dict[str, dict[str, Any]] = {row["work"]: row for row in record.get("figures", [])}
    slow = options.results / f"slow-{machine_name()}.json" if is_kept else None
    suite = Suite(
        Workers(busy=options.busy), Quiet(options.patience), Slow(slow), options.rounds, installed,
        options.peers, options.wait,
    )  # fmt: skip
    order = {row.name: place for place, row in enumerate(every)}
    is_wrong = False
    for row in chosen:
        if row.name in figures:
            continue
        found = suite.measure(row)
        is_wrong |= "median_ms" not in found["engines"][OWN]
        show(found)
        figures[row.name] = found
        if is_kept:
            done = sorted(figures.values(), key=lambda each: order.get(each["work"], 0))
            record = record_of(done, PACKAGES) | {"rounds": options.rounds}
            _save(path, record)
    suite.workers.only([])
    if is_kept:
        write(path)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
