"""Functions in Python that are written for one case and run many times.

The text has no loop and no test whose result is known before; objects that a text cannot spell
have names in it. Rules of one op, a call of a captured function, a run of a
plan and a segment of waiting calls are such functions.

    code = FlatCode(clock=time.perf_counter)
    code.unless(f"x is not {code.name(memory)}")        # if x is not k1: return None
    code.lines.append("return clock()")
    function = code.function("run(x)", "run")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

__all__ = ["FlatCode", "row_of"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class FlatCode:
    """Lines of the body of a function, and the objects that these name."""

    def __init__(self, **names: Any) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = names
        # By id, the name of each object that has one: `names` has the objects.
        self._known: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """The name of an object."""
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = f"k{len(self.names)}"
            self.names[found] = value
        return found

    def unless(self, *conditions: str) -> None:
        """The function gives None if one of `conditions` holds."""
        if conditions:
            self.lines.append(f"if {' or '.join(conditions)}: return None")

    def function(self, head: str, file: str) -> Any:
        """The function with these lines: `head` is its name and parameters, tracebacks name
        `file`. It counts as one of tilegrad's: a capture would watch it otherwise.
        """
        text = "\n    ".join([f"def {head}:", *self.lines])
        exec(_compiled(text, file), self.names)
        # Taken out, lest the function and its names hold each other, and with them the memory.
        return self.names.pop(head[: head.index("(")])


@lru_cache(maxsize=512)
def _compiled(text: str, file: str) -> CodeType:
    """The code of a text. Many texts differ in the objects that they name alone: what is computed
    at one size after the other has one.
    """
    return compile(text, os.path.join(_PACKAGE, f"<{file}>"), "exec")


def row_of(names: Sequence[str]) -> str:
    """The text of a tuple, which may be assigned to."""
    return f"({', '.join(names)},)" if names else "()"
