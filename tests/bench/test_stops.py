"""The count of functions that a first call passes, of code lines and of functions that hand on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from stops import code_lines, forwarders  # noqa: E402

TEXT = '''"""A module.

Two lines of prose.
"""

import math  # a comment


def root(x: float) -> float:
    """The root."""
    return math.sqrt(x)


class Shape:
    """Two methods."""

    def area(self, a: float, b: float) -> float:
        return product(a, b)

    def turned(self, a: float, b: float) -> float:
        return product(b, a)


TABLE = """
text
"""
'''


def test_prose_and_blanks_are_no_code() -> None:
    # The import, two lines of the function, the class, two of each method, three of the string.
    assert code_lines(TEXT) == 1 + 2 + 1 + 2 + 2 + 3


def test_a_function_that_only_hands_on() -> None:
    assert list(forwarders(TEXT)) == [
        (9, "root -> math.sqrt(x)"),
        (17, "area -> product(a, b)"),
    ]


@pytest.mark.nightly
def test_the_way_of_a_first_call_is_counted() -> None:
    command = [sys.executable, str(ROOT / "bench/stops.py"), "--files"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = re.match(r"(\d+) functions in (\d+) files", shown)
    assert counts is not None
    files = re.findall(r"^ +(\d+) ([\w/]+\.py)$", shown, re.M)
    assert sum(int(count) for count, _ in files) == int(counts[1])
    assert len(files) == int(counts[2])
    assert {"lower/lower.py", "schedule/fuse.py", "engine/plans/plans.py"} <= {f for _, f in files}
