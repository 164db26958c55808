"""docs/marks.md: whether the tests of each row of docs/status.md notice that its feature breaks.

python -m tests.marks.run               every row that has a mutant, for hours
python -m tests.marks.run F2.4 R3.4     some rows
python -m tests.marks.run --page        the page alone, from what is known

A mutant (mutants.py) is the package with one text replaced by another. It is made in a copy of the
repository; the tests marked with its row run there, up to the first that fails, for a limited time.
A row whose tests all pass is not guarded by them. Results are kept in results.json, so that runs of
some rows keep those of the others.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.marks.mutants import MUTANTS, Mutant
from tilegrad.tools.status import find_marks, read_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "marks.md"
RESULTS = Path(__file__).with_name("results.json")
# Seconds for the tests of one row.
LIMIT = 300


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


def verdict(place: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """What the tests say of the copy at `place`: a word, and the test that failed."""
    environment = {key: value for key, value in os.environ.items() if key != "TILEGRAD_CACHE"}
    options = ["-x", "-q", "--no-header", "-rfE", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-m", "nightly or not nightly", *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env={**environment, "PYTHONPATH": str(place)},
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout", ""
    if done.returncode == 0:
        return "passes", ""
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 1 and not failed:
        return "broken", (lines or ["no output"])[-1][:200]
    name = failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""
    return "killed", name


def try_mutant(place: Path, mutant: Mutant, tests: list[str], limit: float) -> dict[str, str]:
    """The outcome for one mutant; the copy is as before afterwards."""
    file = place / mutant.file
    before = file.read_text(encoding="utf-8")
    if before.count(mutant.before) != 1:
        return {"outcome": "stale", "test": f"{before.count(mutant.before)} times in the file"}
    file.write_text(before.replace(mutant.before, mutant.after), encoding="utf-8")
    try:
        outcome, test = verdict(place, tests, limit)
    finally:
        file.write_text(before, encoding="utf-8")
    return {"outcome": outcome, "test": test}


def run(rows: list[str], limit: float) -> None:
    marks = find_marks(ROOT / "tests", ROOT)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="marks-") as folder:
        place = Path(folder)
        copy_of_repository(place)
        for row in rows:
            if row not in marks:
                print(f"{row}: no test is marked with it", flush=True)
                continue
            found = try_mutant(place, MUTANTS[row], marks[row], limit)
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            # Written at once, so that a run that is stopped keeps what it found.
            known = read_results()
            known[row] = {**found, "date": today, "commit": commit}
            RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            print(f"{row}: {found['outcome']} {found['test']}", flush=True)
    write_page()


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
    parser.add_argument("rows", nargs="*", help="ids of rows; all that have a mutant by default")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each row")
    options = parser.parse_args()
    unknown = [row for row in options.rows if row not in MUTANTS]
    if unknown:
        parser.error(f"no mutant for {', '.join(unknown)}")
    if options.page:
        write_page()
    else:
        run(options.rows or list(MUTANTS), options.limit)
    return 0 if all(each["outcome"] == "killed" for each in read_results().values()) else 1


if __name__ == "__main__":
    sys.exit(main())
