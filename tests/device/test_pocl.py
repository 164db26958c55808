"""PoCL where it cannot compile: the error says so before a kernel is built."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilegrad.base.errors import DeviceError
from tilegrad.device import opencl

PLATFORM = SimpleNamespace(name="Portable Computing Language", version="OpenCL 3.0 PoCL 3.0")


def driver(version: str) -> SimpleNamespace:
    """What `pyopencl` says of a processor under PoCL."""
    device = SimpleNamespace(name="pthread-new", version=version, platform=PLATFORM, type=2)
    return SimpleNamespace(
        Error=RuntimeError,
        device_type=SimpleNamespace(GPU=4),
        get_platforms=lambda: [SimpleNamespace(get_devices=lambda: [device])],
    )


def test_a_processor_that_its_llvm_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opencl.shutil, "which", lambda name: f"/usr/bin/{name}")
    known = driver("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3")
    assert opencl._find(known, "CL").name == "pthread-new"
    # There, "generic" is a processor that the compiler knows.
    arm = driver("OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic")
    assert opencl._find(arm, "CL").name == "pthread-new"
    new = driver("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic")
    with pytest.raises(DeviceError, match="its LLVM is older than pthread-new") as caught:
        opencl._find(new, "CL")
    assert "DEVICE=CPU" in str(caught.value)


def test_a_linker_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="needs the linker ld"):
        opencl._find(driver("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"), "CL")
