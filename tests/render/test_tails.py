"""The last elements of an axis, fewer than a vector holds, are stored without what is behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guarded import guard_pages

PROGRAM = """
import numpy as np
from tilegrad import Tensor

wide = {"int64": ("int32", "int16", "int8"), "int32": ("int16", "int8"), "int16": ("int8",),
        "float32": ("int16", "uint8", "float16"), "float64": ("float32", "int32")}
for given, narrow in wide.items():
    for to in narrow:
        for length in (9, 17, 33, 34, 65):
            x = np.arange(length).astype(given)
            np.testing.assert_array_equal(Tensor(x).cast(to).numpy(), x.astype(to))
print("right")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are guarded by mprotect")
@pytest.mark.parametrize("limit", ["", "sse", "avx2"])
def test_narrowed_numbers_are_stored_up_to_the_last_one(tmp_path: Path, limit: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            **guard_pages.environment("after"),
            "TILEGRAD_CACHE": str(tmp_path),
            "TILEGRAD_CPU_TARGET": limit,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "right\n"), found.stderr[-2000:]
