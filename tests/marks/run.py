"""docs/marks.md: whether the tests of each row of docs/status.md notice that its feature breaks.

python -m tests.marks.run               every row whose mutant or tests changed since its last run
python -m tests.marks.run F2.4 R3.4     some rows
python -m tests.marks.run --again       every row, for an hour
python -m tests.marks.run --page        the page alone, from what is known

A mutant (mutants/) is the package with one text replaced by another. It is made in a copy of the
repository; the tests marked with its row run there, up to the first that fails, for a limited time:
those of every run, then, where they pass, those of the night.
A row whose tests all pass is not guarded by them. A mutant must break its feature and not the
package: the mutated package still adds two numbers. The tests that failed are run once more in a
copy without mutants, where they must pass.

Results are kept in results.json, so that runs of some rows keep those of the others. Each knows
the texts that it is the result of: the mutant, the file that it changes and the files of the tests.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.util
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.marks.mutants import MUTANTS, Mutant
from tilegrad.tools.status import find_marks, read_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "marks.md"
RESULTS = Path(__file__).with_name("results.json")
# Seconds for the tests of one row.
LIMIT = 300
OUTCOMES = {
    "killed": "a test fails",
    "passes": "no test notices",
    "timeout": "the tests did not end in time",
    "stale": "the text to replace does not stand once in its file",
    "crippled": "the mutated package cannot add two numbers",
    "broken": "the tests could not be run",
    "red anyway": "the test that failed fails without the mutant, too",
}
# Statuses of pytest: all passed; none was chosen.
_GREEN = {0, 5}
_WORKS = "from tilegrad import Tensor; assert (Tensor([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]"


def copy_of_repository(place: Path) -> None:
    """The files that git knows, with their present contents."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)


def run_in(place: Path, arguments: Sequence[str], limit: float) -> tuple[int, list[str]]:
    """The exit status and the lines of Python with `arguments`, in the copy at `place`."""
    environment = {key: value for key, value in os.environ.items() if key != "TILEGRAD_CACHE"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**environment, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def pytest_of(tests: Sequence[str], chosen: str, *options: str) -> list[str]:
    """The arguments that run those of `tests` with the marks `chosen`, and list what failed."""
    quiet = ["-q", "--no-header", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=marks"]
    return ["-m", "pytest", "-m", chosen, *quiet, *options, *tests]


def failed_of(lines: Sequence[str]) -> list[str]:
    """The tests that pytest's output says have failed."""
    found = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return [line.split(" - ")[0].split(" ", 1)[1] for line in found]


def verdict(place: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """What the tests say of the copy at `place`: a word of OUTCOMES, and the test that failed."""
    try:
        cache = place / "build" / "cache"
        works = f"import os; os.environ['TILEGRAD_CACHE'] = {str(cache)!r}; {_WORKS}"
        if run_in(place, ["-c", works], limit)[0]:
            return "crippled", ""
        for chosen in ("not nightly", "nightly"):
            status, lines = run_in(place, pytest_of(tests, chosen, "-x"), limit)
            if status not in _GREEN:
                break
    except subprocess.TimeoutExpired:
        return "timeout", ""
    if status in _GREEN:
        return "passes", ""
    failed = failed_of(lines)
    if not failed:
        return "broken", (lines or ["no output"])[-1][:200]
    return "killed", failed[0]


def write(file: Path, text: str) -> None:
    """Change a module; what Python compiled of it before may look as if it were younger."""
    file.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def try_mutant(place: Path, mutant: Mutant, tests: list[str], limit: float) -> dict[str, str]:
    """The outcome for one mutant; the copy is as before afterwards."""
    file = place / mutant.file
    before = file.read_text(encoding="utf-8")
    if before.count(mutant.before) != 1:
        return {"outcome": "stale", "test": f"{before.count(mutant.before)} times in the file"}
    write(file, before.replace(mutant.before, mutant.after))
    try:
        outcome, test = verdict(place, tests, limit)
    finally:
        write(file, before)
    return {"outcome": outcome, "test": test}


def key_of(mutant: Mutant, tests: Sequence[str], root: Path = ROOT) -> str:
    """A digest of what a result depends on, as far as it is known: the mutant, the file that it
    changes, and the files of the tests.
    """
    state = hashlib.blake2b(repr(mutant).encode(), digest_size=8)
    files = sorted({mutant.file, *(test.split("::")[0] for test in tests)})
    for name in (*files, *sorted(tests)):
        state.update(name.encode())
    for name in files:
        state.update((root / name).read_bytes())
    return state.hexdigest()


class Runner:
    """Runs mutants side by side, each worker in a copy of its own, and keeps each result at once,
    so that a run that is stopped keeps what it found.
    """

    def __init__(self, rows: Sequence[str], limit: float):
        self.marks = find_marks(ROOT / "tests", ROOT)
        self.limit = limit
        self.lock = threading.Lock()
        self.rows: queue.SimpleQueue[str] = queue.SimpleQueue()
        for row in rows:
            self.rows.put(row)
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        self.commit = done.stdout.strip()
        self.killers: dict[str, str] = {}

    def work(self) -> None:
        with tempfile.TemporaryDirectory(prefix="marks-") as folder:
            place = Path(folder)
            copy_of_repository(place)
            while not self.rows.empty():
                try:
                    row = self.rows.get_nowait()
                except queue.Empty:
                    break
                # What noticed it before is asked first.
                noticed = read_results().get(row, {}).get("test", "").partition("[")[0]
                tests = sorted(self.marks[row], key=lambda test: test != noticed)
                found = try_mutant(place, MUTANTS[row], tests, self.limit)
                self.keep(row, found, key_of(MUTANTS[row], self.marks[row], place))

    def keep(self, row: str, found: dict[str, str], key: str) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        with self.lock:
            known = read_results()
            known[row] = {**found, "date": today, "commit": self.commit, "key": key}
            RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            print(f"{row}: {found['outcome']} {found['test']}", flush=True)
            if found["outcome"] == "killed":
                self.killers[row] = found["test"]

    def check_killers(self) -> None:
        """Those that killed a mutant pass without one, or their results do not count."""
        with tempfile.TemporaryDirectory(prefix="marks-") as folder:
            place = Path(folder)
            copy_of_repository(place)
            tests = sorted(set(self.killers.values()))
            try:
                every = pytest_of(tests, "nightly or not nightly")
                _, lines = run_in(place, every, 10 * self.limit)
            except subprocess.TimeoutExpired:
                print("what killed mutants did not end without them", flush=True)
                return
        red = set(failed_of(lines))
        for row, test in self.killers.items():
            if test in red:
                self.keep(row, {"outcome": "red anyway", "test": test}, "")


def run(rows: Sequence[str], limit: float, jobs: int) -> None:
    """Try the mutants of `rows`, and write what came of them."""
    runner = Runner(rows, limit)
    workers = [threading.Thread(target=runner.work) for _ in range(min(jobs, len(rows)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if runner.killers:
        runner.check_killers()
    write_page()


def changed_rows() -> list[str]:
    """The rows with a mutant and tests for which no result of these is known; those last whose
    mutant was killed before.
    """
    marks, known = find_marks(ROOT / "tests", ROOT), read_results()
    found = [
        row
        for row, mutant in MUTANTS.items()
        if row in marks and known.get(row, {}).get("key") != key_of(mutant, marks[row])
    ]
    return sorted(found, key=lambda row: known.get(row, {}).get("outcome") == "killed")


def read_results() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def page(marks: Mapping[str, Any], results: Mapping[str, Mapping[str, str]]) -> str:
    """The page, a line a marked row."""
    rows = [row for row in read_rows(ROOT / "docs" / "feature_rows.txt") if row.id in marks]
    killed = sum(results.get(row.id, {}).get("outcome") == "killed" for row in rows)
    lines = [
        "# Marks",
        "",
        "Whether the tests of a row of [status](status.md) notice that its feature breaks. For",
        "each row the package is changed in one place, a mutant; at least one of the row's tests",
        "must fail. Made by `make marks`; do not edit.",
        "",
        f"{len(rows)} rows have tests, {sum(row.id in MUTANTS for row in rows)} of them a mutant; "
        f"{killed} mutants were killed.",
        "",
        "| row | what | mutant | outcome | last run |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        mutant, found = MUTANTS.get(row.id), results.get(row.id)
        if mutant is None:
            lines.append(f"| {row.id} | {row.title} | none yet | | |")
            continue
        what = f"{mutant.what} (`{mutant.file}`)"
        if found is None:
            lines.append(f"| {row.id} | {row.title} | {what} | not run yet | |")
            continue
        outcome = found["outcome"] + (f" by `{found['test']}`" if found["test"] else "")
        when = f"{found['date']}, {found['commit']}"
        lines.append(f"| {row.id} | {row.title} | {what} | {outcome} | {when} |")
    return "\n".join([*lines, ""])


def write_page() -> None:
    PAGE.write_text(page(find_marks(ROOT / "tests", ROOT), read_results()), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", help="ids of rows; those that changed by default")
    parser.add_argument("--again", action="store_true", help="all rows, changed or not")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each row")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants run at once")
    options = parser.parse_args()
    marks = find_marks(ROOT / "tests", ROOT)
    unknown = [row for row in options.rows if row not in MUTANTS or row not in marks]
    if unknown:
        parser.error(f"no mutant, or no test, for {', '.join(unknown)}")
    if options.page:
        write_page()
    else:
        every = [row for row in MUTANTS if row in marks]
        run(
            options.rows or (every if options.again else changed_rows()),
            options.limit,
            options.jobs,
        )
    known = read_results()
    missing = [row for row in marks if known.get(row, {}).get("outcome") != "killed"]
    if missing:
        print(f"not killed: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
