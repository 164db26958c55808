"""docs/nightly.md: what `make nightly` ran, from the reports that pytest writes.

python -m tests.nightly build/nightly.xml --again build/nightly-segments.xml \
    --guarded build/nightly-after.xml build/nightly-before.xml

There may be several reports, of a folder each, and those of tests that were run once more behind
the first ones: the last result of a test counts. `--again` has those of the tests of eager code
with TILEGRAD_SEGMENTS=2, `--guarded` those whose memory lay beside guard pages. Folders and ways
without a report keep what the page says of their last run, at an earlier commit; folders that never
ran are named.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests"
PAGE = ROOT / "docs" / "nightly.md"
_SLOWEST = 12
_BAD = ("failure", "error")


def folder_of(case: ElementTree.Element) -> str:
    """tests.nn.test_layers is of the folder nn."""
    return case.get("classname", "").split(".")[1]


def has_tests(folder: Path) -> set[str]:
    """The name of a folder that has tests; nothing of another."""
    return {folder.name} if any(folder.rglob("test_*.py")) else set()


def outcome_of(case: ElementTree.Element) -> str:
    for kind in (*_BAD, "skipped"):
        if case.find(kind) is not None:
            return kind
    return "passed"


def seconds_of(case: ElementTree.Element) -> float:
    return float(case.get("time", 0))


def cases_of(paths: Sequence[str]) -> tuple[list[ElementTree.Element], float, str]:
    """The last result of each test, the seconds of all reports, and the day of the first."""
    suites = [
        suite for path in paths for suite in ElementTree.parse(path).getroot().iter("testsuite")
    ]
    cases = {
        (case.get("classname"), case.get("name")): case
        for suite in suites
        for case in suite.iter("testcase")
    }
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    return list(cases.values()), seconds, min(suite.get("timestamp", "")[:10] for suite in suites)


def render(
    cases: list[ElementTree.Element],
    seconds: float,
    where: str,
    commit: str,
    before: str = "",
    once_more: Sequence[ElementTree.Element] = (),
) -> str:
    """The page of a run at `commit`; `before` is the page so far, `once_more` are tests of other
    folders that had failed and ran again.
    """
    met = {folder_of(case) for case in cases}
    rows = {folder: row for folder, row in rows_of(before).items() if folder not in met}
    mended = {_name(case) for case in once_more if outcome_of(case) == "passed"}
    failed = [name for name in failed_of(before) if name.split(".")[1] in rows]
    failed = [name for name in failed if name not in mended]
    return "\n".join(
        [
            *_summary(cases, seconds, where, {*met, *rows}, failed),
            *_folders(cases, commit, rows),
            *_slowest(cases, [row for row in slowest_of(before) if row[1] not in met]),
            "",
        ]
    )


def rows_of(page: str) -> dict[str, str]:
    """What a page says of each folder, by its name."""
    found = re.findall(r"^(\| (\w+) \| [0-9a-f]{7,40} \| .*)$", page, re.M)
    return {folder: row for row, folder in found}


def failed_of(page: str) -> list[str]:
    """The tests that a page says failed in the first run."""
    first = page.partition("\n| folder")[0]
    return re.findall(r"^\* failed: `(.*)`$", first, re.M)


def slowest_of(page: str) -> list[tuple[str, str, int]]:
    """The slowest tests of a page: name, folder, seconds."""
    found = re.findall(r"^\| `(tests\.(\w+)\..*)` \| (\d+) \|$", page, re.M)
    return [(name, folder, int(seconds)) for name, folder, seconds in found]


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _summary(
    cases: list[ElementTree.Element],
    seconds: float,
    where: str,
    known: set[str],
    failed: Sequence[str],
) -> list[str]:
    outcomes = Counter(outcome_of(case) for case in cases)
    bad = [case for case in cases if outcome_of(case) in _BAD]
    lines = [
        "# Nightly",
        "",
        "Every test, the slow ones too, with new random cases from hypothesis, and many more than",
        "in `make test`. Made by `make nightly`; do not edit.",
        "",
        f"{where}: {outcomes['passed']:,} tests passed, {len(bad)} failed, "
        f"{outcomes['skipped']} were skipped, in {seconds / 60:.0f} minutes.",
    ]
    missing = sorted(each.name for each in FOLDER.iterdir() if has_tests(each) - known)
    lines += [f"* not run: {', '.join(missing)}"] if missing else []
    return lines + [f"* failed: `{name}`" for name in [*map(_name, bad), *failed]]


def _folders(
    cases: list[ElementTree.Element], commit: str, rows: Mapping[str, str]
) -> Iterator[str]:
    """A row for each folder, of this run or the last one that it was part of."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for case in cases:
        found[folder_of(case)].append(seconds_of(case))
    made = {
        folder: f"| {folder} | {commit} | {len(seconds):,} | {sum(seconds):.0f} |"
        for folder, seconds in found.items()
    }
    yield from [
        "", "| folder of tests/ | commit | tests | seconds |", "| --- | --- | ---: | ---: |",
    ]  # fmt: skip
    yield from (row for _, row in sorted({**rows, **made}.items()))


def _slowest(
    cases: list[ElementTree.Element], kept: Sequence[tuple[str, str, int]]
) -> Iterator[str]:
    """The slowest tests of this run and, of folders that were not in it, of `kept`."""
    yield from ["", "| the slowest | seconds |", "| --- | ---: |"]
    found = [(seconds_of(case), _name(case).replace("|", "\\|")) for case in cases]
    found += [(seconds, name) for name, _, seconds in kept]
    for seconds, name in sorted(found, key=lambda each: each[0], reverse=True)[:_SLOWEST]:
        yield f"| `{name}` | {seconds:.0f} |"


def section_of(page: str, what: str) -> str:
    """What a page says of the tests that ran a second time in a way; nothing if it says nothing."""
    found = re.search(rf"^{re.escape(what)}.*?(?=^\n|\Z)", page, re.M | re.S)
    return f"\n{found[0]}" if found else ""


def _more(what: str, cases: list[ElementTree.Element], commit: str) -> list[str]:
    """What became of tests that ran a second time, in another way."""
    bad = [case for case in cases if outcome_of(case) in _BAD]
    passed = sum(outcome_of(case) == "passed" for case in cases)
    folders = ", ".join(sorted({folder_of(case) for case in cases}))
    return [
        "",
        f"{what}, commit {commit}: {passed:,} tests passed, {len(bad)} failed",
        f"({folders}).",
        *[f"* failed: `{_name(case)}`" for case in bad],
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--again", nargs="*", default=[], help="reports with TILEGRAD_SEGMENTS=2")
    parser.add_argument("--guarded", nargs="*", default=[], help="reports with GUARD_PAGES")
    parser.add_argument(
        "--once-more", nargs="*", default=[], help="reports of tests that had failed before"
    )
    parser.add_argument("--commit", default="", help="what ran, if it is not this commit")
    given = parser.parse_args()
    cases, seconds, day = cases_of(given.reports)
    commit = (
        given.commit
        or subprocess.run(
            ["git", "rev-parse", "--short=9", "HEAD"], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip()
    )
    where = f"{day}, commit {commit}, {platform.system()}, {platform.machine()}"
    before = PAGE.read_text() if PAGE.exists() else ""
    once_more = cases_of(given.once_more)[0] if given.once_more else []
    where = f"{where}, {os.cpu_count()} cores"
    page = render(cases, seconds, where, commit.split()[0], before, once_more)
    for what, paths in (
        ("With `TILEGRAD_SEGMENTS=2`", given.again),
        ("With memory beside guard pages", given.guarded),
    ):
        if paths:
            more, _, _ = cases_of(paths)
            page += "\n".join([*_more(what, more, commit.split()[0]), ""])
            cases += more
        else:
            page += section_of(before, what)
    PAGE.write_text(page)
    return int(any(outcome_of(case) in _BAD for case in cases))


if __name__ == "__main__":
    sys.exit(main())
