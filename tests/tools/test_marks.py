"""The mutants of `make marks` fit the package, and its page what is known of them."""

from pathlib import Path

import pytest

from tests.marks.mutants import MUTANTS
from tests.marks.run import ROOT
from tilegrad.tools.status import find_marks


@pytest.mark.parametrize("row", MUTANTS)
def test_a_mutant_changes_one_text_of_the_package(row: str) -> None:
    mutant = MUTANTS[row]
    assert Path(mutant.file).parts[0] == "tilegrad"
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.before) == 1
    assert mutant.before != mutant.after


def test_a_mutant_is_for_a_row_with_tests() -> None:
    assert set(MUTANTS) <= set(find_marks(ROOT / "tests", ROOT))
