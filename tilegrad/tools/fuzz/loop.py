"""Many cases in child processes: a crash or a hang is a failure like another."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import tilegrad
from tilegrad.tools.fuzz.case import Case, drawn_case
from tilegrad.tools.fuzz.modes import MODES
from tilegrad.tools.fuzz.script import MOST_LINES
from tilegrad.tools.fuzz.shrink import shrink

__all__ = ["Child", "Found", "fuzz"]

_PATIENCE_S = 60.0
# The folder of a run: behind this its process.
_PREFIX = "tilegrad-fuzz-"
# A child is started anew after this number of cases, so that its memory does not grow.
_MOST_CASES = 1000


class Child:
    """A process of one mode that runs cases; a new one is started when it ends or hangs.

    `environment` is added to the process's own: a test runs another copy of the package with it.
    """

    def __init__(
        self, mode: str, environment: Mapping[str, str] | None = None, patience: float = _PATIENCE_S
    ):
        self._mode, self._patience = mode, patience
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0
        self.lock = threading.Lock()

    def failure(self, question: Sequence[str] | int) -> str | None:
        """The fault of a script, or of the case of a seed, in a line; None if there is none."""
        if self._asked >= _MOST_CASES:
            self.close()
        process = self._process or self._start()
        self._asked += 1
        assert process.stdin is not None and process.stdout is not None
        asked = question if isinstance(question, int) else list(question)
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self._patience)
            answer = process.stdout.readline() if ready else None
        except OSError:
            answer = ""
        if not answer:
            if answer is not None:
                process.wait()
            what = "hangs" if answer is None else f"crashes with status {process.returncode}"
            self.close()
            return f"the process {what}"
        found: str | None = json.loads(answer)
        return found

    def _start(self) -> subprocess.Popen[str]:
        self._asked = 0
        # The package of this process, or the one that the environment names; not what stands in the
        # current folder. Other entries in the path of this process stay.
        more = filter(None, [os.environ.get("PYTHONPATH")])
        paths = {"PYTHONPATH": os.pathsep.join([str(Path(tilegrad.__file__).parents[1]), *more])}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilegrad.tools.fuzz.run", self._mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **paths, **MODES[self._mode].switches, **self._environment},
        )
        return self._process

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@dataclass
class Found:
    """A failure: its file, its mode, what goes wrong, and how many cases had run by then.

    `is_alone`: whether the file fails by itself, not only after other programs of the process.
    """

    path: Path
    mode: str
    failure: str
    cases: int
    is_alone: bool


@dataclass
class _Run:
    """State that the threads of a run share."""

    folder: Path
    say: Callable[[str], None]
    is_known: Callable[[Sequence[str], str], bool] | None
    count: int = 0
    found: list[Found] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


def fuzz(
    minutes: float,
    seed: int,
    folder: Path,
    *,
    modes: Sequence[str] = tuple(MODES),
    environment: Mapping[str, str] | None = None,
    first_only: bool = False,
    is_known: Callable[[Sequence[str], str], bool] | None = None,
    jobs: int | None = None,
    programs: int | None = None,
    say: Callable[[str], None] = print,
) -> list[Found]:
    """Run cases from `seed` on for `minutes`; those that fail, with their files.

    Args:
        minutes: how long.
        seed: of the first case.
        folder: where the files of failures go; it is made for the first one.
        modes: names of `MODES`, taken in rotation.
        environment: variables of the child processes.
        first_only: whether to end with the first failure.
        is_known: whether the failure of a script in a mode is of no interest.
        jobs: how many cases run at once, by default one per core.
        programs: after how many cases it ends, even if time is left.
        say: gets a line for each failure and one at the end.
    """
    end = time.monotonic() + minutes * 60
    run = _Run(folder, say, is_known)

    def work(children: Mapping[str, Child]) -> None:
        while time.monotonic() < end and not (run.found and first_only):
            with run.lock:
                if run.count == programs:
                    return
                number = run.count
                run.count += 1
            mode = modes[number % len(modes)]
            with children[mode].lock:
                _try_seed(run, children[mode], mode, seed + number)

    _remove_left_over()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as cache:
        given = {"TILEGRAD_CACHE": cache, **(environment or {})}
        children = {mode: Child(mode, given) for mode in modes}
        try:
            with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
                for each in [pool.submit(work, children) for _ in range(pool._max_workers)]:
                    each.result()
        finally:
            for child in children.values():
                child.close()
    say(f"{run.count} programs from seed {seed} on, {len(run.found)} failures")
    return run.found


def _remove_left_over() -> None:
    """Remove the folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        # There a signal of 0 is not a question.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _try_seed(run: _Run, child: Child, mode: str, seed: int) -> None:
    """Run one case; if it fails, make it small and write its file."""
    failure = child.failure(seed)
    if failure is None:
        return
    case = drawn_case(seed, mode)
    if run.is_known is not None and run.is_known(case.lines(mode), mode):
        return
    word = failure.split(":")[0]

    def fails(smaller: Case) -> bool:
        said = child.failure(smaller.lines(mode))
        return said is not None and said.split(":")[0] == word

    small = shrink(case, mode, fails)
    lines = small.lines(mode)
    assert len(lines) <= MOST_LINES
    child.close()
    alone = child.failure(lines)
    with run.lock:
        if (kind := small.kind()) in run.kinds:
            return
        run.kinds.add(kind)
        run.folder.mkdir(parents=True, exist_ok=True)
        path = run.folder / f"fuzz_{seed}_{mode.replace(' ', '_')}.py"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        run.found.append(Found(path, mode, failure, run.count, alone is not None))
    run.say(f"{path}: {alone or 'only after other programs: ' + failure}")
