"""Processes whose memory is guarded end where they touch what is not theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guarded import guard_pages

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="pages are guarded by mprotect"
)

PROGRAM = """
import ctypes, sys
from tilegrad import Tensor
from tilegrad.device.registry import Device

assert (Tensor([1.0, 2.0, 3.0]) * 2).tolist() == [2.0, 4.0, 6.0]
allocator = Device["CPU"].allocator
block = allocator.allocate(12)
content = (ctypes.c_ubyte * 12).from_address(block)
assert bytes(content) == bytes([255]) * 12
content[0] = content[11] = 1
assert allocator.allocate(12) != block
where = sys.argv[1]
if where == "freed":
    allocator.take_back((12, block))
    allocator.allocate(12)
at = {"first": 0, "last": 11, "behind": 12, "before": -1, "freed": 0}[where]
print(ctypes.c_ubyte.from_address(block + at).value)
"""


@pytest.mark.parametrize(
    ("kind", "where", "is_theirs"),
    [
        ("after", "first", True),
        ("after", "last", True),
        ("after", "behind", False),
        ("after", "freed", False),
        ("before", "first", True),
        ("before", "last", True),
        ("before", "before", False),
        ("before", "freed", False),
    ],
)
def test_who_touches_what_is_not_theirs_ends(
    tmp_path: Path, kind: str, where: str, is_theirs: bool
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, where],
        env={**os.environ, **guard_pages.environment(kind), "TILEGRAD_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = (0, "1\n") if is_theirs else (-signal.SIGSEGV, "")
    assert (found.returncode, found.stdout) == wanted, found.stderr[-2000:]


def test_an_unknown_kind_is_refused() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import guard_pages; guard_pages.from_environment()"],
        env={**os.environ, **guard_pages.environment("around")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "GUARD_PAGES=around: one of after, before" in found.stderr
