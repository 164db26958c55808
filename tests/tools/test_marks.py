"""The mutants of `make marks` fit the package, and its page what is known of them."""

from pathlib import Path

import pytest

from tests.marks.mutants import MUTANTS, Mutant
from tests.marks.run import ROOT, key_of, page, try_mutant
from tilegrad.tools.status import find_marks


@pytest.mark.parametrize("row", MUTANTS)
def test_a_mutant_changes_one_text_of_the_package(row: str) -> None:
    mutant = MUTANTS[row]
    # P.9 is an encoder among the tests: no device of the package reaches it.
    assert Path(mutant.file).parts[0] == ("tests" if row == "P.9" else "tilegrad")
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.before) == 1
    assert mutant.before != mutant.after


def test_each_row_with_tests_has_a_mutant() -> None:
    assert set(MUTANTS) == set(find_marks(ROOT / "tests", ROOT))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package of one module, and its tests."""
    (tmp_path / "tilegrad").mkdir()
    (tmp_path / "tilegrad" / "__init__.py").write_text(
        "class Tensor(list):\n"
        "    def __add__(self, other): return Tensor(x + other for x in self)\n"
        "    def tolist(self): return list(self)\n"
        "def double(x): return 2 * x\n"
    )
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('marks')\n"
    )
    (tmp_path / "test_one.py").write_text(
        "from tilegrad import double\n"
        "def test_two(): assert double(1) == 2\n"
        "def test_none(): assert double(0) == 0\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after", "test", "outcome"),
    [
        ("2 * x", "3 * x", "test_one.py", ("killed", "test_one.py::test_two")),
        ("2 * x", "3 * x", "test_one.py::test_none", ("passes", "")),
        ("x + other", "x", "test_one.py", ("crippled", "")),
        ("4 * x", "3 * x", "test_one.py", ("stale", "0 times in the file")),
    ],
)
def test_what_becomes_of_a_mutant(
    project: Path, before: str, after: str, test: str, outcome: tuple[str, str]
) -> None:
    file = project / "tilegrad" / "__init__.py"
    text = file.read_text()
    mutant = Mutant("it is bent", "tilegrad/__init__.py", before, after)
    found = try_mutant(project, mutant, [test], 60)
    assert found["outcome"] == outcome[0]
    assert outcome[1] in found["test"]
    assert file.read_text() == text


def test_a_result_is_of_the_texts_that_it_was_found_with(project: Path) -> None:
    mutant = Mutant("it is bent", "tilegrad/__init__.py", "2 * x", "3 * x")
    key = key_of(mutant, ["test_one.py::test_two"], project)
    assert key_of(mutant, ["test_one.py::test_two"], project) == key
    assert key_of(mutant._replace(after="4 * x"), ["test_one.py::test_two"], project) != key
    assert key_of(mutant, ["test_one.py::test_none"], project) != key
    (project / "test_one.py").write_text("def test_two(): pass\n")
    assert key_of(mutant, ["test_one.py::test_two"], project) != key


def test_the_page_says_what_became_of_each_row() -> None:
    result = {"outcome": "killed", "test": "a.py::b", "date": "2000-01-02", "commit": "abc"}
    text = page({"M1.7": ["c.py"], "M1.8": ["c.py"]}, {"M1.7": result})
    assert "2 rows have tests, 2 of them a mutant; 1 mutants were killed." in text
    assert "| killed by `a.py::b` | 2000-01-02, abc |" in text
    assert "not run yet" in text
