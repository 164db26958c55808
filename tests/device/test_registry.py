"""Devices by name."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.cpu import installed_version
from tilegrad.device.host import HostMemory
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device, Devices
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime, launch_dims
from tilegrad.target import Target


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    """A table of its own, where no environment variable chooses a device."""
    for kind in ("CPU", "EMU", "NULL", "MYDEV"):
        monkeypatch.delenv(kind, raising=False)
    return Devices()


def my_device(name: str, runtime: Runtime | None = None) -> Backend:
    print("made", (name,))
    return Backend(
        name, Target("mydev"), lambda name, uops: name, str.encode, runtime or HostMemory()
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CPU", "CPU"),
        ("cpu:0", "CPU"),
        ("Cuda:01", "CUDA:1"),
        ("NULL:CUDA", "NULL:CUDA"),
        ("null:cuda:0", "NULL:CUDA"),
        ("null:OpenCL", "NULL:CL"),
        ("amd:1", "AMD:1"),
    ],
)
def test_a_device_has_one_spelling(name: str, expected: str) -> None:
    assert Device.canonical(name) == expected


@pytest.mark.parametrize("name", ["", "CPU:", ":1", "a b", "CPU::1"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="is no device name"):
        Device.canonical(name)


@pytest.mark.parametrize(
    "name", ["CPU:X", "CPU:AVX2", "CPU:-1", "CPU:1:2", "NULL:CPU:X", "EMU:CPU:X", "NULL:CLANG:X"]
)
def test_a_processor_has_a_number_and_no_architecture(devices: Devices, name: str) -> None:
    """A misspelt name would be other memory, or another architecture than the one asked for."""
    with pytest.raises(DeviceError, match="is no architecture") as caught:
        devices[name]
    assert ":number, as in" in str(caught.value.details["rule"])


def test_a_device_opens_once(devices: Devices, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=1):
        assert devices["emu:0"] is devices["EMU"]
        assert devices["EMU:1"] is not devices["EMU"]
    pid = os.getpid()
    assert capsys.readouterr().out.splitlines() == [
        f"opened device EMU from pid {pid}",
        f"opened device EMU:1 from pid {pid}",
    ]
    assert list(devices.opened()) == ["EMU", "EMU:1"]


@pytest.mark.row("M7.1")
def test_a_device_from_outside(
    devices: Devices, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.register("MYDEV", my_device)
    monkeypatch.setenv("MYDEV", "1")
    assert devices.DEFAULT == "MYDEV"
    with Context(DEBUG=1):
        assert devices[devices.DEFAULT].target.name == "mydev"
    assert (
        capsys.readouterr().out == f"made ('MYDEV',)\nopened device MYDEV from pid {os.getpid()}\n"
    )
    assert devices["mydev:1"].name == "MYDEV:1"
    with pytest.raises(DeviceError, match="MYDEV is known already"):
        devices.register("mydev", my_device)
    with pytest.raises(DeviceError, match="CPU is known already"):
        devices.register("CPU", my_device)
    devices.unregister("MYDEV")
    with pytest.raises(DeviceError, match="'MYDEV' is unknown"):
        devices["MYDEV"]


def test_a_factory_gives_the_device_that_was_asked_for(devices: Devices) -> None:
    """Else tensors of MYDEV:1 would be in the memory of MYDEV."""
    devices.register("MYDEV", lambda name: my_device("MYDEV"))
    assert devices["MYDEV"].name == "MYDEV"
    with pytest.raises(DeviceError, match="MYDEV:1 was asked for, and what opens it gave 'MYDEV'"):
        devices["MYDEV:1"]
    assert list(devices.opened()) == ["MYDEV"]


def test_an_unknown_device_lists_the_known_and_opens_none(devices: Devices) -> None:
    def absent(name: str) -> Backend:
        raise DeviceError("mydev: no board is plugged in", remedy="plug one in")

    devices.register("MYDEV", absent)
    with pytest.raises(DeviceError) as caught:
        devices["XPU:3"]
    assert caught.value.headline == "device: 'XPU:3' is unknown"
    assert caught.value.details["known"] == ", ".join(devices)
    assert list(devices.opened()) == []
    assert devices.why_not("EMU") is None
    assert devices.refusal("MYDEV") == ("mydev: no board is plugged in", "plug one in")


@pytest.mark.parametrize(
    ("name", "meant"), [("MPS", "METAL"), ("rocm:1", "AMD"), ("GPU", "CL"), ("Vulkan", "WEBGPU")]
)
def test_a_name_from_elsewhere_is_answered(devices: Devices, name: str, meant: str) -> None:
    with pytest.raises(DeviceError, match=f"is unknown; did you mean '{meant}'"):
        devices[name]


@pytest.mark.row("X.4")
def test_the_default_device(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.DEFAULT == "CPU"
    monkeypatch.setenv("EMU", "1")
    assert devices.DEFAULT == "EMU"
    monkeypatch.setenv("EMU", "0")
    assert devices.DEFAULT == "CPU"
    with Context(DEVICE="emu:1"):
        assert devices.DEFAULT == "EMU:1"
    devices.DEFAULT = "null"
    assert devices.DEFAULT == "NULL"
    with Context(DEVICE="EMU"):
        assert devices.DEFAULT == "EMU"
    assert devices.DEFAULT == "NULL"
    with pytest.raises(DeviceError, match="'XPU' is unknown"):
        devices.DEFAULT = "XPU"


def test_the_host_has_memory_and_no_programs(devices: Devices) -> None:
    host = devices["HOST"]
    assert bytes(host.buffer(2, dtypes.uint8).copy_in(b"ab").copy_out()) == b"ab"
    assert host.allocator is host.allocator
    for attempt in (
        lambda: host.render("E_4", []),
        lambda: host.compile(""),
        lambda: host.runtime.load("E_4", b""),
        lambda: host.runtime.launch("E_4", [], [], (1, 1, 1), (1, 1, 1)),
    ):
        with pytest.raises(DeviceError, match="cannot run in plain host memory"):
            attempt()


def test_null_compiles_and_reads_as_zeros(devices: Devices) -> None:
    null = devices["NULL"]
    data = UOp.const(dtypes.int32, 3)
    source = null.render("E_1", [data])
    program = null.runtime.load("E_1", null.compile(source))
    assert "# E_1" in source
    buffer = null.buffer(1 << 50, dtypes.float32)
    dims = launch_dims([data])
    assert (
        null.runtime.launch(program, [buffer.handle], [], dims.global_size, dims.local_size) is None
    )
    small = null.buffer(4, dtypes.uint8).copy_in(b"abcd")
    assert bytes(small.copy_out()) == bytes(4)
    assert bytes(small.view(2, 1).copy_out()) == bytes(1)
    assert null.target.has_locals


def test_null_and_the_emulator_take_the_target_of_another_device(devices: Devices) -> None:
    Device.register("MYDEV", my_device)
    try:
        null = Device["NULL:MYDEV"]
        assert (null.name, null.target.name, null.render("E", [])) == ("NULL:MYDEV", "mydev", "E")
        assert isinstance(null.runtime, NullRuntime)
        assert Device["EMU:MYDEV"].target.name == "EMU mydev"
        assert devices["NULL:1"].target.name == "EMU"
    finally:
        for kind in ("MYDEV", "NULL", "EMU"):
            Device.unregister(kind)


def test_what_a_runtime_need_not_offer() -> None:
    """The defaults of the protocol: no view for the host, no peer copies, no pointers inside a
    buffer.
    """
    runtime = NullRuntime()
    assert runtime.host_view(1, 4) is None
    assert runtime.wrap(memoryview(b"")) is None
    assert not runtime.transfer(1, 2, runtime, 4)
    with pytest.raises(DeviceError, match="no handle can point inside a buffer"):
        Runtime.view(runtime, 1, 0, 4)


def test_the_compilers_version_is_known_without_loading_what_describes_packages() -> None:
    assert installed_version("llvmlite") == version("llvmlite")
    assert installed_version("no_such_package") == "none"
    code = "import sys, tilegrad; assert (tilegrad.Tensor([1.0]) + 1).tolist() == [2.0]; "
    code += "print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
