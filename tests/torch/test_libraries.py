"""Libraries written for PyTorch, unchanged: programs that use them print with tilegrad what they
print with PyTorch. The extra `libraries` installs them.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch.running import differences

FOLDER = Path(__file__).parent / "libraries"
PATHS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "shown")
ROOT = Path(__file__).parents[2]


def imported(path: Path) -> set[str]:
    """The packages that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - {"shown"}


def printed(path: Path, *launcher: str) -> str:
    """What a program prints in a process of its own."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_there_are_programs() -> None:
    assert len(PATHS) >= 9
    assert "transformers" in set().union(*map(imported, PATHS))


@pytest.mark.nightly
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_with_pytorch(path: Path) -> None:
    missing = [name for name in sorted(imported(path)) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    ours = printed(path, "-m", "tilegrad.compat.torch")
    theirs = printed(path)
    assert len(theirs.splitlines()) > 3
    assert not differences(ours, theirs)
