"""Running one PyTorch program by its text: with PyTorch, or with tilegrad in its place.

python -m tests.torch.running tests/torch/programs/vae.py
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from pathlib import Path

__all__ = ["PROGRAMS", "differences", "numbers_of", "run", "substituted"]

PROGRAMS = Path(__file__).parent / "programs"
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|inf|nan)(?![\w])")


def substituted(text: str) -> str:
    """The program with its import lines changed, and nothing else."""
    text = re.sub(r"^(\s*)from torch\b", r"\1from tilegrad.torch", text, flags=re.M)
    return re.sub(r"^(\s*import )(.*\btorch\b.*)$", _imports, text, flags=re.M)


def _imports(line: re.Match[str]) -> str:
    """A line such as `import numpy as np, torch, torch.nn as nn`."""
    names = [each.strip() for each in line[2].split(",")]
    named = ["torch as torch" if each == "torch" else each for each in names]
    return line[1] + ", ".join(re.sub(r"^torch\b", "tilegrad.torch", each) for each in named)


def run(path: Path, *, substitute: bool) -> str:
    """What the program prints."""
    text = path.read_text()
    code = compile(substituted(text) if substitute else text, str(path), "exec")
    module = types.ModuleType("__main__")
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, module.__dict__)
    finally:
        sys.modules["__main__"] = before
    return printed.getvalue()


def numbers_of(text: str) -> list[float]:
    """The numbers in a text, in order."""
    return [float(each) for each in _NUMBER.findall(text)]


def _words(line: str) -> str:
    return "".join(_NUMBER.sub("#", line).split())


def differences(ours: str, theirs: str, relative: float = 1e-3, least: float = 2e-5) -> list[str]:
    """Where two printed texts differ: in their words, or in a number by more than a share of it."""
    first, second = ours.splitlines(), theirs.splitlines()
    found = []
    if len(first) != len(second):
        found.append(f"{len(first)} lines and {len(second)}")
    for number, (mine, other) in enumerate(zip(first, second), 1):
        a, b = numbers_of(mine), numbers_of(other)
        # Without spaces: columns are wider where a number, or a zero, has a sign.
        words = _words(mine) == _words(other)
        close = len(a) == len(b) and all(
            x == y or (x != x and y != y) or abs(x - y) <= least + relative * max(abs(x), abs(y))
            for x, y in zip(a, b)
        )
        if not (words and close):
            found.append(f"line {number}: {mine!r} for {other!r}")
    return found


if __name__ == "__main__":
    print(run(Path(sys.argv[1]), substitute=True), end="")
