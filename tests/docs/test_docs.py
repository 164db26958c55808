"""README and docs: their code runs, prints what they say, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, renew, results, same_text

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNING = [page for page in PAGES if any(b.kind == "python" for b in blocks(page.read_text()))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("page", RUNNING, ids=name)
def test_code_prints_what_stands_below_it(page: Path) -> None:
    renewal = f"python tests/docs/pages.py {name(page)}"
    for block, expected, printed in results(page):
        if expected is not None:
            where = f"{name(page)}:{block.line + 1} prints something else; to renew: {renewal}"
            assert same_text(printed) == same_text(expected.text), where


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    assert {block.kind for block in blocks(page.read_text())} <= {"python", "text", "console"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """Paths of the project in backticks, from its root or from the package."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    named = re.findall(r"`((?:tilegrad|docs|tests|bench|examples)/[\w./*-]+)`", prose)
    folders = ("docs", "tests", "bench", "examples", "tilegrad")
    inside = re.findall(r"`([a-z]+/[a-z_]+\.py)`", prose)
    named += [f"tilegrad/{path}" for path in inside if path.split("/")[0] not in folders]
    missing = [path for path in named if not list(ROOT.glob(path.rstrip("/")))]
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "README.md"], ids=name)
def test_targets_of_make_that_are_named_are_there(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"demo", "test"} <= set(re.findall(r"make (\w+)", page.read_text())) <= targets


# the helper itself


PAGE = """
```python
x = 2
print(x)
```

```text
3
```

```python
print("apart")
```
words
```text
kept
```

```console
$ python -c "print(1)"
```
"""


def test_a_page_is_renewed(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    found = [(expected.text if expected else None, out) for _, expected, out in results(path)]
    assert found == [("3\n", "2\n"), (None, "apart\n"), (None, "1\n")]
    renew(path)
    assert path.read_text() == PAGE.replace("\n3\n", "\n2\n")


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("words\n```python\nx = 1\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        list(results(path))
    assert caught.traceback[-1].lineno == 3


def test_a_command_must_succeed(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text('```console\n$ python -c "import sys; sys.exit(1)"\n```\n')
    with pytest.raises(AssertionError, match=r"sys\.exit"):
        list(results(path))
