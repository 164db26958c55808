"""Devices that other packages bring, and what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilegrad import Context, Device, Tensor
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.device.registry import Devices

ROOT = Path(__file__).parents[2]
GOOD = "from tilegrad.device.null import backend\n"


def listed(*paths: Path) -> Context:
    return Context(DEVICES=os.pathsep.join(map(str, paths)))


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_listed_file_is_a_device_of_its_name(tmp_path: Path) -> None:
    devices = Devices()
    with listed(written(tmp_path, "boards.py", GOOD)):
        assert "BOARDS" in devices and "BOARDS" in list(devices)
        assert devices["boards:1"].name == "BOARDS:1"
    assert "OTHER" not in devices


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent.py", None, "device: ABSENT has no file"),
        ("wrong.py", "1 / 0\n", "device: WRONG cannot be imported: ZeroDivisionError"),
        ("empty.py", "", "device: EMPTY has no function backend"),
        (
            "plugged.py",
            "def backend(name):\n    raise ValueError('no board')\n",
            "device: PLUGGED cannot be opened: ValueError: no board",
        ),
        ("other.py", "backend = lambda name: 3\n", "device: OTHER: backend gives int"),
        ("CPU.py", GOOD, "device: CPU is known already, and a file of TILEGRAD_DEVICES"),
    ],
)
def test_a_listed_file_that_is_no_device_is_an_error_that_names_it(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    path = tmp_path / name if text is None else written(tmp_path, name, text)
    with listed(path), pytest.raises(DeviceError, match=said):
        Devices()[path.stem.upper()]


def test_a_device_that_cannot_be_opened_hides_no_other(tmp_path: Path) -> None:
    """As `python -m tilegrad devices` goes through all of them."""
    bad = written(tmp_path, "plugged.py", "def backend(name):\n    raise ValueError('no board')\n")
    found = Devices()
    with listed(bad, written(tmp_path, "boards.py", GOOD)):
        assert found.why_not("PLUGGED") == "device: PLUGGED cannot be opened: ValueError: no board"
        assert found.why_not("BOARDS") is None


def test_an_unknown_device_is_looked_for_outside_and_listed_with_what_is_there(
    tmp_path: Path,
) -> None:
    with (
        listed(written(tmp_path, "boards.py", GOOD)),
        pytest.raises(DeviceError, match="'XPU' is unknown") as caught,
    ):
        Devices()["XPU"]
    assert str(caught.value.details["known"]).endswith("BOARDS")


def test_edited_sources_of_a_device_are_another_compiler(tmp_path: Path) -> None:
    """Or what was compiled before would run."""
    found = []
    for text in (GOOD, GOOD + "# edited\n"):
        with listed(written(tmp_path, "boards.py", text.replace("null", "null", 1))):
            found.append(Devices()["BOARDS"].compiler)
    assert found[0] != found[1]


def test_known_devices_do_not_look_through_installed_packages() -> None:
    """It would take longer than an addition."""
    code = (
        "import sys\n"
        "from tilegrad import Tensor\n"
        "assert (Tensor([1.0]) + Tensor([2.0], device='CPU')).tolist() == [3.0]\n"
        "assert 'importlib.metadata' not in sys.modules or "
        "not __import__('tilegrad.device.outside', fromlist=['x'])._installed.cache_info().misses\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


DEVICE_WITHOUT_ROOTS = """
from dataclasses import replace
from tilegrad.device.emulator import backend as emulated
from tilegrad.ir import Ops

def backend(name, runtime=None):
    found = emulated("EMU", runtime)
    lacks = replace(found.target, name=name, missing=found.target.missing | {Ops.SQRT})
    return replace(found, name=name, target=lacks)
"""


@pytest.mark.row("M7.5")
def test_an_op_that_is_missing_and_not_replaced_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = written(tmp_path, "rootless.py", DEVICE_WITHOUT_ROOTS)
    try:
        with listed(path), Context(DEVICE="ROOTLESS"):
            assert (Tensor([2.0]) * 2).tolist() == [4.0]
            with pytest.raises(CompileError, match="ROOTLESS: there is no SQRT") as caught:
                Tensor([2.0]).sqrt().tolist()
            assert "Target.missing" in str(caught.value)
    finally:
        Device.unregister("ROOTLESS")
