"""PyTorch programs in processes of their own, one after the other with one cache: the later ones
take kernels and plans from it, and touch no memory that is not theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guarded import guard_pages
from tests.torch.running import PROGRAMS

# One of four: each takes half a minute.
PATHS = sorted(PROGRAMS.glob("*.py"))[::4]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="pages are guarded by mprotect"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.nightly
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_program_touches_no_memory_that_is_not_its_own(path: Path, folder: Path) -> None:
    printed = []
    for kind in ("after", "after", "before"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.torch.running", str(path)],
            env={**os.environ, **guard_pages.environment(kind), "TILEGRAD_CACHE": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        printed.append(done.stdout)
    assert all(printed)
