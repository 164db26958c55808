"""The device of docs/adding-a-device.md passes the check that the page names: test folders run with
the switch DEVICE naming it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-device.md"
# Of the folders that the page names, the files whose kernels Python runs in minutes.
TESTS = (
    "tests/tensor/test_elementwise.py", "tests/tensor/test_movement.py",
    "tests/tensor/test_reduce.py", "tests/tensor/test_assign.py", "tests/nn/test_first_step.py",
)  # fmt: skip


def device_of_the_page() -> str:
    """The page's code up to where its device is known by name."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks)
    end = 'Device.register("MINE", backend)\n'
    assert end in code
    return code[: code.index(end) + len(end)]


@pytest.mark.nightly
def test_the_device_of_the_page_passes_its_check(tmp_path: Path) -> None:
    (tmp_path / "page_device.py").write_text(device_of_the_page())
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "TILEGRAD_CACHE": str(tmp_path / "cache"),
    }
    # The page's own lines compute on the default device; then the device is the default.
    environment.pop("TILEGRAD_DEVICE", None)
    (tmp_path / "default_device.py").write_text(
        'import page_device\nfrom tilegrad import Device\nDevice.DEFAULT = "MINE"\n'
    )
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "default_device", "-p", "no:cacheprovider",
            *TESTS,
        ],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = done.stdout + done.stderr
    assert done.returncode == 0 and " passed" in found, found[-4000:]
