"""The code of a page, and what it prints.

A page's python blocks run one after another in one namespace; a text block that follows one is what
it prints. A console block holds commands, each behind `$ `; they run in the
project's folder and must succeed.

    python tests/docs/pages.py docs/tour.md        write what is printed now into the page
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass
class Block:
    """One fenced block: its kind, its text, and where the text stands in the page."""

    kind: str
    text: str
    start: int
    end: int
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page's text, in order."""
    return [
        Block(found[1], found[2], found.start(2), found.end(2), page.count("\n", 0, found.start(2)))
        for found in _FENCE.finditer(page)
    ]


def results(path: Path) -> Iterator[tuple[Block, Block | None, str]]:
    """Run a page: each block that runs, the text block behind it if there is one, and what it
    printed.
    """
    page = path.read_text(encoding="utf-8")
    found = blocks(page)
    names: dict[str, object] = {"__name__": path.stem}
    for block, following in zip(found, [*found[1:], None]):
        adjoins = (
            following is not None
            and not page[block.end + 3 : following.start].split("```")[0].strip()
        )
        expected = following if adjoins and following and following.kind == "text" else None
        if block.kind == "python":
            # Errors and provenance name the page's own lines.
            code = compile("\n" * block.line + block.text, str(path), "exec")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, names)
            yield block, expected, out.getvalue()
        elif block.kind == "console":
            yield block, expected, "".join(map(_shell, _commands(block.text)))


def _commands(text: str) -> list[str]:
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def _shell(command: str) -> str:
    command = re.sub(r"^python\b", sys.executable, command)
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def same_text(text: str) -> str:
    """`text` without blanks at ends of lines, and empty lines at its end."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def renew(path: Path) -> None:
    """Write into the page what its code prints."""
    page = path.read_text(encoding="utf-8")
    for _, expected, printed in reversed(list(results(path))):
        if expected is not None:
            page = page[: expected.start] + same_text(printed) + "\n" + page[expected.end :]
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        renew(Path(argument))
