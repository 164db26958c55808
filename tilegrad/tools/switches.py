"""docs/switches.md: every switch, from the text that each has in `base.config`.

python -m tilegrad.tools.switches            write the page
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilegrad.base.config import switches

__all__ = ["main", "page"]

_PAGE = Path("docs/switches.md")
_HEAD = """# Switches

A switch is set by an environment variable, or for a block of one thread by `Context(DEBUG=2)`;
`@Context(NOOPT=1)` sets it for each call of a function. An unknown value is refused, and so is an
unknown name that begins with `TILEGRAD_`. A variable whose name looks like a switch but is not read
(`DEVICE=EMU`, `DEUBG=2`) draws a warning that says what to write.

| in the environment | default | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """The page as text."""
    rows = []
    for switch in switches():
        names = " or ".join(f"`{name}`" for name in switch.variables)
        rows.append(f"| {names} | {switch.default} | {switch.meaning.replace('|', '/')} |")
    return _HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write the page; the exit status."""
    _PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
