"""Programs in the manner of PyTorch's tutorials, run by PyTorch and by tilegrad: they print the
same losses, gradients and shapes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.torch.running import PROGRAMS, differences, run
from tilegrad import Context

PATHS = sorted(PROGRAMS.glob("*.py"))
LIMIT = sys.getrecursionlimit()


def test_there_are_sixty_programs() -> None:
    assert len(PATHS) >= 60


@pytest.mark.nightly
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_a_program_prints_what_it_prints_with_pytorch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    # torch.compile in an earlier program turns this off in the whole process.
    torch.distributions.Distribution.set_default_validate_args(True)
    theirs = run(path, substitute=False)
    # torch.compile raises the limit of recursion.
    sys.setrecursionlimit(LIMIT)
    # A program may set switches for all that follows.
    with Context():
        ours = run(path, substitute=True)
    assert not differences(ours, theirs)
