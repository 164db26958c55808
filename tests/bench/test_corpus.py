"""Programs with random sizes: what they are, and what is said of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import constants  # noqa: E402
from corpus import correlation  # noqa: E402
from families import FAMILIES, cases  # noqa: E402


def test_a_seed_draws_the_same_programs_whatever_families_are_asked_for() -> None:
    every = [case.name for case in cases(44, 7) if case.family == "rowwise"]
    assert every == [case.name for case in cases(44, 7, ["rowwise"])]
    assert every != [case.name for case in cases(44, 8, ["rowwise"])]


def test_each_family_has_its_share() -> None:
    found = [case.family for case in cases(110, 1)]
    assert {family: found.count(family) for family in FAMILIES} == dict.fromkeys(FAMILIES, 10)


def test_ranks_count_ties_as_their_mean() -> None:
    """Spearman's coefficient of (1, 2, 2, 4) and (10, 30, 20, 40), by hand: ranks 1 2.5 2.5 4 and
    1 3 2 4 have deviations -1.5 0 0 1.5 and -1.5 .5 -.5 1.5, so 4.5 / sqrt(4.5 * 5).
    """
    assert correlation([1, 2, 2, 4], [10, 30, 20, 40]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_times_that_hardly_differ_are_ties() -> None:
    assert correlation([1, 2, 3], [10.0, 10.1, 20]) == pytest.approx(
        correlation([1, 2, 3], [1, 1, 2])
    )


def test_a_constant_moves_by_a_quarter_and_is_put_back() -> None:
    (few,) = constants.constants("facts.FEW_ROWS")
    assert (few.value, few.moved(0.75), few.moved(1.25)) == (4, 3, 5)
    assert constants.with_value(few, 3, [], None) == []
    assert few.value == 4
    (spread,) = constants.constants("reuse._SPREAD")
    assert spread.moved(0.75) == 0.75 * 0.8


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_estimates_stand_beside_times() -> None:
    command = [sys.executable, str(ROOT / "bench" / "corpus.py"), "--print", "--count", "11"]
    text = subprocess.run(
        [*command, "--candidates", "3", "--family", "elementwise"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).stdout
    assert "elementwise                 1  mean of kernels" in text
