"""docs/nightly.md: what `make nightly` ran, from the report that pytest writes.

python -m tests.nightly build/nightly.xml build/nightly-segments.xml

The second report is of the tests of eager code with TILEGRAD_SEGMENTS=2; it may be left out.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "nightly.md"
_SLOWEST = 12
_BAD = ("failure", "error")


def folder_of(case: ElementTree.Element) -> str:
    """tests.nn.test_layers is of the folder nn."""
    return case.get("classname", "").split(".")[1]


def outcome_of(case: ElementTree.Element) -> str:
    for kind in (*_BAD, "skipped"):
        if case.find(kind) is not None:
            return kind
    return "passed"


def seconds_of(case: ElementTree.Element) -> float:
    return float(case.get("time", 0))


def render(suite: ElementTree.Element, where: str) -> str:
    cases = list(suite.iter("testcase"))
    return "\n".join([*_summary(suite, cases, where), *_folders(cases), *_slowest(cases), ""])


def _summary(suite: ElementTree.Element, cases: list[ElementTree.Element], where: str) -> list[str]:
    outcomes = Counter(outcome_of(case) for case in cases)
    bad = [case for case in cases if outcome_of(case) in _BAD]
    lines = [
        "# Nightly",
        "",
        "Every test, the slow ones too, with new random cases from hypothesis, and many more than",
        "in `make test`. Made by `make nightly`; do not edit.",
        "",
        f"{where}: {outcomes['passed']:,} tests passed, {len(bad)} failed, "
        f"{outcomes['skipped']} were skipped, in {float(suite.get('time', 0)) / 60:.0f} minutes.",
    ]
    lines += [f"* failed: `{case.get('classname')}::{case.get('name')}`" for case in bad]
    return lines


def _folders(cases: list[ElementTree.Element]) -> Iterator[str]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for case in cases:
        found[folder_of(case)].append(seconds_of(case))
    yield from ["", "| folder of tests/ | tests | seconds |", "| --- | ---: | ---: |"]
    for folder, seconds in sorted(found.items()):
        yield f"| {folder} | {len(seconds):,} | {sum(seconds):.0f} |"


def _slowest(cases: list[ElementTree.Element]) -> Iterator[str]:
    yield from ["", "| the slowest | seconds |", "| --- | ---: |"]
    for case in sorted(cases, key=seconds_of, reverse=True)[:_SLOWEST]:
        name = case.get("name", "").replace("|", "\\|")
        yield f"| `{case.get('classname')}::{name}` | {seconds_of(case):.0f} |"


def _again(suite: ElementTree.Element) -> list[str]:
    """What became of the tests that ran a second time, with segments compared with nodes."""
    cases = list(suite.iter("testcase"))
    bad = [case for case in cases if outcome_of(case) in _BAD]
    passed = sum(outcome_of(case) == "passed" for case in cases)
    return [
        "",
        f"With `TILEGRAD_SEGMENTS=2`: {passed:,} tests of eager code passed, {len(bad)} failed.",
        *[f"* failed: `{case.get('classname')}::{case.get('name')}`" for case in bad],
    ]


def main(path: str, again: str | None = None) -> int:
    suite, *more = [
        next(ElementTree.parse(each).getroot().iter("testsuite"))
        for each in (path, again)
        if each is not None
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=9", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    day = suite.get("timestamp", "")[:10]
    where = f"{day}, commit {commit}, {platform.system()}, {platform.machine()}"
    page = render(suite, f"{where}, {os.cpu_count()} cores")
    for each in more:
        page += "\n".join([*_again(each), ""])
    PAGE.write_text(page)
    cases = [case for each in (suite, *more) for case in each.iter("testcase")]
    return int(any(outcome_of(case) in _BAD for case in cases))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
