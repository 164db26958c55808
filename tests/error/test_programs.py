"""Wrong programs, and what each is told: the whole text, in which the user's own line is named.

A table is a file per area beside this one, in the manner of a session: a program after `>>> `, and
below it the error. The line at fault is the program's last one, or the one marked `# here`. Texts
were written from what a reader needs: the op, both values, what is asked for, and the line.
"""

from __future__ import annotations

import linecache
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad
from tilegrad import nn

TABLES = sorted(pathlib.Path(__file__).parent.glob("*.txt"))
NAMES: dict[str, Any] = {name: getattr(tilegrad, name) for name in tilegrad.__all__}


class Wrong(NamedTuple):
    """A program and the text that it ends with."""

    name: str
    lines: list[str]
    says: str


def programs(table: pathlib.Path) -> list[Wrong]:
    """The programs of a table; an empty line is between two."""
    found = []
    for block in table.read_text().strip().split("\n\n"):
        rows = [row for row in block.splitlines() if not row.startswith("#")]
        lines = [row[4:] for row in rows if row.startswith((">>> ", "... "))]
        says = "\n".join(rows[len(lines) :])
        found.append(Wrong(f"{table.stem}: {lines[-1]}", lines, says))
    return found


def told(lines: list[str], folder: pathlib.Path) -> str:
    """The last words of a program: the error's class and text."""
    source = "".join(line + "\n" for line in lines)
    # Errors quote the program, whose lines are found as those of a file are.
    linecache.cache["program.py"] = len(source), None, source.splitlines(True), "program.py"
    code = compile(source, "program.py", "exec")
    names = NAMES | {"nn": nn, "np": np, "pathlib": pathlib, "folder": str(folder)}
    try:
        exec(code, names)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".replace(str(folder), "FOLDER")
        return re.sub(r"(?<!\w)/[\w./-]+/(?=[\w.-]+$)", "", text, flags=re.MULTILINE)
    return "no error"


WRONG = [wrong for table in TABLES for wrong in programs(table)]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_program_is_told_why(wrong: Wrong, tmp_path: pathlib.Path) -> None:
    marked = [number for number, line in enumerate(wrong.lines, 1) if line.endswith("# here")]
    text = told(wrong.lines, tmp_path)
    assert text == wrong.says
    assert re.search(rf"^  line: +program\.py:{(marked or [len(wrong.lines)])[0]}$", text, re.M)


def test_the_tables_hold_enough() -> None:
    assert len({tuple(wrong.lines) for wrong in WRONG}) == len(WRONG) >= 150
