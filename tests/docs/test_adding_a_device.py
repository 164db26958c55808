"""The devices of docs/adding-a-device.md pass the checks that the page names: test folders run with
the switch DEVICE naming the first, and the conformance cases run on the second, which is made a
package outside and installed.
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


def package_of_the_page() -> str:
    """The file that the page ends with."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if block.startswith('"""LOCKSTEP')]
    return str(found)


def installed(folder: Path) -> dict[str, str]:
    """Install the page's package in `folder`; the environment in which it is found."""
    (folder / "lockstep.py").write_text(package_of_the_page())
    facts = folder / "lockstep-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: lockstep\nVersion: 1.0\n")
    points = "[tilegrad.devices]\nLOCKSTEP = lockstep:backend\n"
    assert points.splitlines()[1] in PAGE.read_text(encoding="utf-8").replace('"', "")
    (facts / "entry_points.txt").write_text(points)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "TILEGRAD_CACHE": str(folder / "cache"),
        "TILEGRAD_DEVICE": "LOCKSTEP",
    }
    environment.pop("TILEGRAD_DEVICES", None)
    return environment


def python(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.row("P.11")
def test_the_package_of_the_page_has_at_most_a_hundred_lines() -> None:
    lines = package_of_the_page().splitlines()
    assert len([line for line in lines if line.strip()]) <= 100
    assert max(map(len, lines)) <= 100


@pytest.mark.row("M7.1", "M7.2", "P.11")
def test_an_installed_package_brings_a_device_that_computes(tmp_path: Path) -> None:
    """A part of the sample here; all of it at night."""
    environment = installed(tmp_path)
    assert "LOCKSTEP usable" in python(environment, "-m", "tilegrad", "devices")
    code = (
        "import sys\n"
        "from tests.conformance.cases import SAMPLE\n"
        "from tilegrad import Device\n"
        "assert Device.DEFAULT == 'LOCKSTEP' and 'lockstep' not in sys.modules\n"
        "for case in SAMPLE[::17]: case.check()\n"
        "assert 'lockstep' in sys.modules\n"
        "print(len(SAMPLE[::17]), 'agree')\n"
    )
    assert int(python(environment, "-c", code).split()[0]) >= 30


@pytest.mark.nightly
@pytest.mark.row("M7.1", "M7.2")
def test_the_installed_device_passes_the_conformance_suite(tmp_path: Path) -> None:
    """The sample has every op."""
    assert python(installed(tmp_path), "-m", "tests.conformance.cases").split()[-1] == "agree"


@pytest.mark.nightly
@pytest.mark.row("M7.1", "M7.2")
def test_the_installed_device_passes_every_small_case(tmp_path: Path) -> None:
    found = python(installed(tmp_path), "-m", "tests.conformance.cases", "all").split()
    assert int(found[-4]) > 10_000 and found[-4] == found[-2] and found[-1] == "agree"
