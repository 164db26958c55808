"""docs/status.md is up to date, and the marks behind it are read rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegrad.base.errors import DataError
from tilegrad.tools.status import find_marks, main, read_rows

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.row("A.1")]
CASES = [pytest.param(1, marks=pytest.mark.row("A.2"))]

@pytest.mark.row("A.1", "A.3")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.row("B.1")), 2])
def test_one(x): ...

@pytest.mark.row("A.3")
class TestTwo:
    @pytest.mark.row("B.2")
    @pytest.mark.row("B.2")
    def test_three(self): ...

def test_four(): row("A.9"); table.row("A.9")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "x").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "x" / "test_a.py").write_text(TESTS)
    (tmp_path / "tests" / "helper.py").write_text("mark.row(3)")
    rows = "A first\nA.1 one\nA.2 two\n\n# note\nA.3 three\nB second\nB.1 one\nB.2 two\nB.3 three\n"
    (tmp_path / "docs" / "feature_rows.txt").write_text(rows)
    (tmp_path / "docs" / "not_yet.txt").write_text("B too early\n")
    return tmp_path


def test_status_page_is_up_to_date() -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0, "run: python -m tilegrad.tools.status"


def test_every_row_of_the_map_has_a_title() -> None:
    rows = read_rows(ROOT / "docs" / "feature_rows.txt")
    assert len([row for row in rows if not row.is_head]) == 212
    assert all(row.title for row in rows)
    heads = [row.id for row in rows if row.is_head]
    assert list(dict.fromkeys(row.section for row in rows)) == heads


def test_marks_are_found_where_they_stand(project: Path) -> None:
    file = "tests/x/test_a.py"
    assert find_marks(project / "tests", project) == {
        "A.1": [file, f"{file}::test_one"],
        "A.2": [file],
        "A.3": [f"{file}::test_one", f"{file}::TestTwo"],
        "B.1": [f"{file}::test_one"],
        "B.2": [f"{file}::TestTwo::test_three"],
    }


def test_the_page(project: Path) -> None:
    assert main(["--check", "--root", str(project)]) == 1
    assert main(["--root", str(project)]) == 0
    page = (project / "docs" / "status.md").read_text()
    assert "5 of 6 rows have a test." in page
    assert "## B: second" in page
    assert "| A.1 | one | `tests/x/test_a.py`<br>`tests/x/test_a.py::test_one` |" in page
    assert "| B.3 | three | not yet: too early |" in page
    assert main(["--check", "--root", str(project)]) == 0


@pytest.mark.parametrize(
    ("file", "text", "parts"),
    [
        ("docs/not_yet.txt", "", ["| B.3 | three | not yet |"]),
        ("docs/not_yet.txt", "B.3 hard", ["| B.3 | three | not yet: hard |"]),
        ("docs/not_yet.txt", "A.1 hard", ["A.1 has a reason", "hard", "remove its line"]),
        ("docs/not_yet.txt", "A hard", ["A has a reason"]),
        ("docs/not_yet.txt", "C.1 hard", ["docs/not_yet.txt names C.1", "lacks"]),
        ("docs/not_yet.txt", "B.3", ["B.3 has no text", "line: 1"]),
        ("docs/feature_rows.txt", "A x\nA y", ["A stands twice", "line: 2"]),
        ("tests/test_b.py", "@pytest.mark.row('C.7')\ndef test(): 0", ["marked with C.7", "lacks"]),
        ("tests/test_b.py", "@pytest.mark.row('A')\ndef test(): 0", ["marked with A,", "lacks"]),
        (
            "tests/test_b.py",
            "x = 1\npytest.mark.row(x)",
            ["not a literal", "test_b.py:2", "row(x)"],
        ),
    ],
)
def test_what_the_texts_may_say(
    project: Path, file: str, text: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / file).write_text(text)
    status = main(["--root", str(project)])
    page = project / "docs" / "status.md"
    said = capsys.readouterr().err if status else page.read_text()
    assert status == (0 if parts[0].startswith("|") else 2)
    assert page.is_file() == (status == 0)
    for part in parts:
        assert " ".join(part.split()) in " ".join(said.split())


def test_a_missing_file_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "not_yet.txt").unlink()
    assert main(["--root", str(project)]) == 2
    assert "not_yet.txt" in capsys.readouterr().err


def test_a_text_that_is_no_table_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("A\n")
    with pytest.raises(DataError, match="A has no text"):
        read_rows(tmp_path / "rows")
