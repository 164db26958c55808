"""docs/status.md: which rows of the feature map have a test.

    python -m tilegrad.tools.status            write the page
    python -m tilegrad.tools.status --check    fail if it is out of date

A test says which rows it checks: `@pytest.mark.row("M1.7", "M1.8")`, on a function, a class, one
case of a table (`pytest.param(..., marks=...)`) or a module (`pytestmark = ...`). The marks are
read from the source of the tests, so nothing is imported or run; the ids must therefore be
literals. The rows are in docs/feature_rows.txt, and docs/not_yet.txt says why some have no test.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilegrad.base.errors import DataError

__all__ = ["Row", "find_marks", "main", "read_rows", "render"]

_ROWS = Path("docs/feature_rows.txt")
_REASONS = Path("docs/not_yet.txt")
_PAGE = Path("docs/status.md")
_TESTS = Path("tests")


@dataclass(frozen=True)
class Row:
    """A line of the feature map. `id` is as `M1.7`, or as `M1` for the head of a section."""

    id: str
    title: str

    @property
    def section(self) -> str:
        return self.id.partition(".")[0]

    @property
    def is_head(self) -> bool:
        return self.id == self.section


def read_rows(path: Path) -> list[Row]:
    """The rows of `path`: an id and a text a line; empty lines and those after `#` are left out."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, title = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        if not title or name in rows:
            what = "stands twice" if title else "has no text"
            raise DataError(f"status: {name} {what}", file=path, line=number)
        rows[name] = Row(name, title.strip())
    return list(rows.values())


def find_marks(tests: Path, root: Path) -> dict[str, list[str]]:
    """For each row id, the tests below `tests` that are marked with it, named as pytest does."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.row" not in text:
            continue
        tree = ast.parse(text, str(path))
        for owner, call in _marks(tree, path.relative_to(root).as_posix()):
            for argument in call.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise DataError(
                        "status: a row mark whose id is not a literal",
                        line=f"{path}:{call.lineno}",
                        got=ast.unparse(call),
                        remedy='write the id out: @pytest.mark.row("M1.7")',
                    )
                names = found.setdefault(argument.value, [])
                if owner not in names:
                    names.append(owner)
    return found


def _marks(tree: ast.Module, file: str) -> Iterator[tuple[str, ast.Call]]:
    """Each `...mark.row(...)` with the test, class or module that it marks."""
    stack: list[tuple[str, ast.AST]] = [(file, tree)]
    while stack:
        owner, node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            owner = f"{owner}::{node.name}"
        elif isinstance(node, ast.Call) and _is_row_mark(node.func):
            yield owner, node
        children = [(owner, child) for child in ast.iter_child_nodes(node)]
        stack.extend(reversed(children))


def _is_row_mark(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "row"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )


def render(rows: list[Row], reasons: list[Row], marks: dict[str, list[str]]) -> str:
    """The page. A mark or a reason that names no row, or a stale reason, raises DataError."""
    checks = [row.id for row in rows if not row.is_head]
    _refuse_unknown("a test is marked with", marks, checks)
    _refuse_unknown("docs/not_yet.txt names", (item.id for item in reasons), [r.id for r in rows])
    why = {item.id: item.title for item in reasons}
    for name in why:
        if all(row in marks for row in checks if row == name or row.startswith(f"{name}.")):
            raise DataError(
                f"status: {name} has a reason for having no test, and has one",
                reason=why[name],
                remedy="remove its line from docs/not_yet.txt",
            )
    lines = [
        "# Status",
        "",
        "What the feature map asks for, and the tests that check it. Made from the marks of the",
        "tests by `python -m tilegrad.tools.status`; do not edit.",
        "",
        f"{sum(row in marks for row in checks)} of {len(checks)} rows have a test.",
    ]
    for row in rows:
        if row.is_head:
            lines += [
                "",
                f"## {row.id}: {row.title}",
                "",
                "| row | what | tests |",
                "|---|---|---|",
            ]
            continue
        cell = "<br>".join(f"`{test}`" for test in marks.get(row.id, ()))
        if not cell:
            reason = why.get(row.id, why.get(row.section))
            cell = f"not yet: {reason}" if reason else "not yet"
        lines.append(f"| {row.id} | {row.title} | {cell} |")
    return "\n".join([*lines, ""])


def _refuse_unknown(what: str, names: Iterable[str], known: list[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise DataError(
            f"status: {what} {', '.join(unknown)}, which the feature map lacks",
            known=f"the rows of {_ROWS}",
        )


def _page(root: Path) -> str:
    marks = find_marks(root / _TESTS, root)
    return render(read_rows(root / _ROWS), read_rows(root / _REASONS), marks)


def main(arguments: list[str] | None = None) -> int:
    """Write docs/status.md below the root, or with `--check` compare it; gives the exit status."""
    parser = argparse.ArgumentParser("python -m tilegrad.tools.status", description=main.__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    options = parser.parse_args(arguments)
    page = options.root / _PAGE
    try:
        text = _page(options.root)
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if not options.check:
        page.write_text(text, encoding="utf-8")
    elif not page.is_file() or page.read_text(encoding="utf-8") != text:
        print(f"{page} is out of date: run `python -m tilegrad.tools.status`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
