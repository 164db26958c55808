"""The NV device: on a recorded driver that checks the order, arguments and lifetimes of calls, and
whose launches run on the PTX interpreter. No GPU is needed, and none is touched.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import driver_of, simulated
from tests.device.ptx.driver import CUresult, FakeDriver
from tests.engine.test_rows import rows_of
from tilegrad import Context, Device, Tensor, Variable, jit
from tilegrad.__main__ import devices
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.device import nv, nv_driver
from tilegrad.device.nv_runtime import NVRuntime, heading
from tilegrad.runtime import watchdog
from tilegrad.runtime.allocator import size_class

DEVICE = "NVSIM80"

KERNEL = (
    heading("add", (0, 2), 1, (4, 1, 1))
    + """
.version 7.0
.target sm_80
.address_size 64

.visible .entry add(
  .param .u64 add_data0,
  .param .u64 add_data2,
  .param .s32 add_var0
)
.maxntid 4, 1, 1
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [add_data0];
  ld.param.u64 %rd1, [add_data2];
  ld.param.s32 %r0, [add_var0];
  mov.u32 %r1, %tid.x;
  mad.wide.s32 %rd2, %r1, 4, %rd1;
  ld.global.s32 %r2, [%rd2];
  add.s32 %r3, %r2, %r0;
  mad.wide.s32 %rd3, %r1, 4, %rd0;
  st.global.s32 [%rd3], %r3;
  ret;
}
"""
).encode()


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    simulated(DEVICE)


@pytest.fixture
def fake() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def runtime(fake: FakeDriver) -> NVRuntime:
    found = nv.opened("NV", fake, assembles=False).runtime
    assert isinstance(found, NVRuntime)
    fake.calls.clear()
    return found


@pytest.fixture
def no_devices() -> Iterator[None]:
    """The devices NV and CUDA are opened anew."""
    before = {kind: Device._open.pop(kind, None) for kind in ("NV", "CUDA")}
    yield
    for kind, opened in before.items():
        Device._open.pop(kind, None)
        if opened is not None:
            Device._open[kind] = opened


# whole programs


def test_products_and_rows_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 33)), rng.standard_normal((33, 50))
    x, y = (Tensor(each.astype(np.float32), device=DEVICE) for each in (a, b))
    found = (x @ y).softmax(1)
    powers = np.exp(a @ b - (a @ b).max(1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), powers / powers.sum(1, keepdims=True), atol=1e-5)
    assert "cuLaunchKernel" in driver_of(DEVICE).names()


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("device", ["NVSIM75", "NVSIM80"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_on_the_matrix_unit_is_exact_for_small_integers(
    device: str, transposed: bool
) -> None:
    """The interpreter places elements by the manual's tables, the compiler by the target's."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (48, 64)).astype(np.float16) for _ in range(2))
    right = b if transposed else np.ascontiguousarray(b.T)
    x, y = Tensor(a, device=simulated(device)), Tensor(right, device=device)
    found = x.dot(y.T if transposed else y, dtype="float").numpy()
    np.testing.assert_array_equal(found, a.astype(np.float64) @ b.T.astype(np.float64))
    entries = [entry for _, entry in driver_of(device).functions.values()]
    assert any(each.parts[0] == "mma" for entry in entries for each in entry.instructions)


def test_a_training_step_lowers_the_loss() -> None:
    rng = np.random.default_rng(2)
    x = Tensor(rng.standard_normal((16, 8)).astype(np.float32), device=DEVICE)
    wanted = Tensor(rng.standard_normal((16, 4)).astype(np.float32), device=DEVICE)
    weight = Tensor(rng.standard_normal((8, 4)).astype(np.float32), device=DEVICE)
    weight.requires_grad = True
    losses = []
    for _ in range(3):
        loss = ((x @ weight - wanted) ** 2).mean()
        loss.backward()
        assert weight.grad is not None
        weight.assign(weight.detach() - weight.grad * 0.1).realize()
        weight.grad = None
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_a_bound_variable_is_passed() -> None:
    x = Tensor(np.arange(10, dtype=np.int32), device=DEVICE).realize()
    rows = Variable("rows", 1, 10)
    for count in (3, 7):
        assert x[: rows.bind(count)].sum().item() == count * (count - 1) // 2


def test_a_captured_function_replays() -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return (x.sum(1) * 2 + 1).realize()

    for number in range(5):
        x = Tensor(np.full((4, 8), number, np.float32), device=DEVICE)
        assert step(x).tolist() == [16.0 * number + 1] * 4


@pytest.mark.row("M4.16")
def test_a_captured_function_becomes_a_graph() -> None:
    """Its results are those of the launches one by one, also with other memory and values."""
    rows = Variable("rows", 1, 8)

    @jit
    def step(x: Tensor, count: Variable) -> Tensor:
        return (x[:count].sum(0).contiguous().softmax() @ x.T).realize()

    rng = np.random.default_rng(3)
    driver = driver_of(DEVICE)
    for number in range(8):
        given = rng.standard_normal((8, 8)).astype(np.float32)
        count = 2 + number % 3
        driver.calls.clear()
        found = step(Tensor(given, device=DEVICE).realize(), rows.bind(count)).numpy()
        powers = np.exp(given[:count].sum(0, dtype=np.float64))
        np.testing.assert_allclose(found, powers / powers.sum() @ given.T, atol=1e-5)
    names = driver.names()
    assert "cuGraphLaunch" in names and "cuLaunchKernel" not in names


def test_a_graph_is_shown_as_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return (x.sum(1).contiguous().softmax() + 1).realize()

    x = Tensor(np.ones((4, 8), np.float32), device=DEVICE).realize()
    for _ in range(3):
        step(x)
    with Context(DEBUG=2):
        step(x)
    assert re.search(r"<batched \d+>", capsys.readouterr().out)


@pytest.mark.row("M3.2")
def test_a_read_shows_the_wait_for_what_was_launched(capsys: pytest.CaptureFixture[str]) -> None:
    """An event lies between the kernel and the copy; without rows, the copy's own is enough."""
    driver = driver_of(DEVICE)
    left, right = ([1, 2], [3, 4])

    def calls() -> list[str]:
        names = driver.names()
        start = len(names) - names[::-1].index("cuLaunchKernel")
        kept = ("cuEventRecord", "cuMemcpyDtoHAsync")
        return [name for name in names[start:] if name in kept]

    with Context(SIZES=0):
        assert Tensor(left, device=DEVICE).dot(Tensor(right, device=DEVICE)).tolist() == 11
        assert calls() == ["cuMemcpyDtoHAsync", "cuEventRecord"]
        with Context(DEBUG=2):
            found = Tensor(left, device=DEVICE).dot(Tensor(right, device=DEVICE))
            assert found.tolist() == 11
            # The first one is that of the kernel's time.
            record = "cuEventRecord"
            assert calls() == [record, record, "cuMemcpyDtoHAsync", record]
            assert found.tolist() == 11
    kinds = [row.name.split("_")[0].split()[0] for row in rows_of(capsys.readouterr().out)]
    assert kinds == ["copy", "copy", "r", "sync", "copy", "copy"]


# what is told of the device


@pytest.mark.row("S1.11")
@pytest.mark.parametrize(("capability", "arch"), [((8, 0), "sm_80"), ((9, 0), "sm_90a")])
def test_the_architecture_is_asked_of_the_device(capability: tuple[int, int], arch: str) -> None:
    found = nv.opened("NV", FakeDriver(capability), assembles=False)
    assert found.target.isa == arch and found.hardware == "Imaginary GPU"


@pytest.mark.usefixtures("no_devices")
def test_the_list_of_devices_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    row = next(line for line in devices().splitlines() if line[2:].startswith("NV "))
    assert "not here" in row and "cuda-bindings cannot be imported" in row
    assert "pip install 'tilegrad[nvidia]'" in devices()


@pytest.mark.usefixtures("no_devices")
def test_the_list_of_devices_names_the_one_there_is(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nv_driver, "bindings", lambda kind="NV": fake)
    row = next(line for line in devices().splitlines() if line[2:].startswith("NV "))
    assert "usable" in row and "NV sm_80" in row and "Imaginary GPU" in row


def test_a_library_of_the_driver_that_is_missing_is_told() -> None:
    class Missing:
        def cuInit(self, flags: int) -> Any:
            raise RuntimeError("Failed to dlopen libcuda.so.1")

    with pytest.raises(DeviceError, match="no NVIDIA driver is here: Failed to dlopen") as caught:
        nv.opened("NV", Missing())
    assert "display driver" in str(caught.value)


@pytest.mark.parametrize("hidden", [None, "", "7"])
def test_a_driver_without_a_gpu_is_told(
    fake: FakeDriver, hidden: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that was given none, or a variable that hides them; the driver is there."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    fake.fail["cuInit"] = CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DeviceError, match="CUDA_ERROR_NO_DEVICE") as caught:
        nv.opened("NV", fake)
    assert "--gpus all" in str(caught.value.details["remedy"])
    shown = caught.value.details.get("CUDA_VISIBLE_DEVICES")
    assert shown == (None if hidden is None else repr(hidden))


def test_a_driver_whose_halves_differ_is_told(fake: FakeDriver) -> None:
    fake.fail["cuInit"] = CUresult.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    with pytest.raises(DeviceError, match="SYSTEM_DRIVER_MISMATCH") as caught:
        nv.opened("NV", fake)
    assert "restart the machine" in str(caught.value.details["remedy"])


@pytest.mark.parametrize(
    ("capability", "version"), [((9, 0), 11080), ((10, 0), 12040), ((12, 0), 12060)]
)
def test_a_driver_that_is_too_old_for_the_device_is_told(
    capability: tuple[int, int], version: int
) -> None:
    with pytest.raises(DeviceError, match="the driver of Imaginary GPU is too old"):
        nv.opened("NV", FakeDriver(capability, version))


def test_a_device_that_is_too_old_is_told() -> None:
    with pytest.raises(DeviceError, match="nv: 'foo' is no architecture") as caught:
        nv.nv_target("foo")
    assert str(caught.value.details["known"]).startswith("sm_75, ")
    with pytest.raises(DeviceError, match="nv: sm_70 is too old"):
        nv.opened("NV", FakeDriver((7, 0)))


def test_a_number_beyond_the_devices_is_told(fake: FakeDriver) -> None:
    with pytest.raises(DeviceError, match="there is no device 3") as caught:
        nv.opened("NV:3", fake)
    assert caught.value.details["found"] == "NV"


@pytest.mark.usefixtures("no_devices")
def test_a_device_has_a_number_and_no_architecture() -> None:
    with pytest.raises(DeviceError, match="'sm_90' is no number of a device") as caught:
        nv.backend("NV:SM_90")
    assert "NULL:NV:sm_90 compiles" in str(caught.value)
    with pytest.raises(DeviceError, match="'first' is no number of a device") as caught:
        nv.backend("NV:FIRST")
    assert "NULL" not in str(caught.value)


# calls, in their order


def test_opening_makes_the_context_current_before_anything_else(fake: FakeDriver) -> None:
    nv.opened("NV", fake, assembles=False)
    names = [name for name in fake.names() if "Attribute" not in name]
    assert names == [
        "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate",
    ]  # fmt: skip


def test_copies_go_through_pinned_memory_in_halves(fake: FakeDriver, runtime: NVRuntime) -> None:
    data = np.random.default_rng(0).integers(0, 256, 9 << 20, dtype=np.uint8)
    place = runtime.allocate(data.nbytes)
    runtime.copy_in(place, memoryview(data))
    sizes = [call[3] for call in fake.calls if call[0] == "cuMemcpyHtoDAsync"]
    assert sizes == [4 << 20, 4 << 20, 1 << 20]
    assert fake.names().count("cuMemHostAlloc") == 1
    found = np.zeros_like(data)
    runtime.copy_out(memoryview(found), place)
    np.testing.assert_array_equal(found, data)
    copies = [call for call in fake.calls if call[0].startswith("cuMemcpy")]
    assert {call[-1] for call in copies} == {runtime.stream}


def test_a_half_is_filled_again_only_when_it_has_travelled(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    place = runtime.allocate(12 << 20)
    fake.calls.clear()
    runtime.copy_in(place, memoryview(bytearray(12 << 20)))
    waits = [call[1] for call in fake.calls if call[0] == "cuEventQuery"]
    records = [call[1] for call in fake.calls if call[0] == "cuEventRecord"]
    assert len(waits) == 3 and waits == records and waits[0] == waits[2] != waits[1]
    names = [name for name in fake.names() if name.startswith(("cuEvent", "cuMemcpy"))]
    assert names[-3:] == ["cuEventQuery", "cuMemcpyHtoDAsync", "cuEventRecord"]


def test_a_launch_passes_the_memory_that_the_kernel_takes(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    program = runtime.load("add", KERNEL)
    places = [runtime.allocate(16) for _ in range(3)]
    runtime.copy_in(places[2], memoryview(np.arange(4, dtype=np.int32)).cast("B"))
    runtime.launch(program, places, [-5], (1, 1, 1), (4, 1, 1))
    found = np.zeros(4, np.int32)
    runtime.copy_out(memoryview(found).cast("B"), places[0])
    assert found.tolist() == [-5, -4, -3, -2]


def test_a_launch_is_timed_by_events_that_are_destroyed(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    program = runtime.load("add", KERNEL)
    places = [runtime.allocate(16) for _ in range(3)]
    fake.calls.clear()
    assert runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1), wait=True) == 0.25e-3
    assert fake.names() == [
        "cuEventCreate", "cuEventCreate", "cuEventRecord", "cuLaunchKernel", "cuEventRecord",
        "cuEventQuery", "cuEventElapsedTime", "cuEventDestroy", "cuEventDestroy",
    ]  # fmt: skip


def test_a_program_is_unloaded_with_its_last_reference(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    program = runtime.load("add", KERNEL)
    assert len(fake.modules) == 1
    del program
    gc.collect()
    assert not fake.modules


def test_memory_goes_back_to_the_driver(fake: FakeDriver, runtime: NVRuntime) -> None:
    place = runtime.allocate(100)
    runtime.free(place, 100)
    assert not fake.memory.live
    assert [name for name in fake.names() if name.startswith("cuMem")] == [
        "cuMemAlloc",
        "cuMemFree",
    ]


# graphs


def launches(runtime: NVRuntime) -> tuple[Any, list[int]]:
    program = runtime.load("add", KERNEL)
    places = [runtime.allocate(16) for _ in range(3)]
    return program, places


def test_launches_that_come_again_become_a_graph(fake: FakeDriver, runtime: NVRuntime) -> None:
    """Two launches, the second on what the first made; each call with other numbers."""
    program, (a, b, c) = launches(runtime)
    call = runtime.sequence([(program, 4, (1, 1, 1)), (program, 4, (1, 1, 1))], True)
    assert call is not None
    runtime.copy_in(c, memoryview(np.arange(4, dtype=np.int32)).cast("B"))
    for number in range(5):
        fake.calls.clear()
        call([b, 0, c, number, a, 0, b, 10])
        names = fake.names()
        assert ("cuLaunchKernel" in names) == (number < 2)
        assert ("cuGraphInstantiate" in names) == (number == 2)
        assert ("cuGraphLaunch" in names) == (number >= 2)
        # Only the node whose arguments have changed is told.
        assert names.count("cuGraphExecKernelNodeSetParams") == (number > 2)
        found = np.zeros(4, np.int32)
        runtime.copy_out(memoryview(found).cast("B"), a)
        assert found.tolist() == [10 + number + each for each in range(4)]
    assert not fake.graphs and len(fake.executables) == 1
    del call
    gc.collect()
    assert not fake.executables


def test_a_single_launch_needs_no_graph(fake: FakeDriver, runtime: NVRuntime) -> None:
    program, (a, b, c) = launches(runtime)
    call = runtime.sequence([(program, 4, (1, 1, 1))], True)
    assert call is not None
    for _ in range(5):
        call([a, b, c, 1])
    assert not any(name.startswith("cuGraph") for name in fake.names())


# errors


def test_memory_that_runs_out_is_asked_for_again_after_what_is_kept_went_back() -> None:
    driver = FakeDriver(room=3 << 20)
    backend = nv.opened("NV", driver, assembles=False)
    first = backend.allocator.allocate(2 << 20)
    backend.allocator.take_back((size_class(2 << 20), first))
    backend.allocator.allocate(3 << 20)
    names = [name for name in driver.names() if name in ("cuMemAlloc", "cuMemFree")]
    assert names == ["cuMemAlloc", "cuMemAlloc", "cuMemFree", "cuMemAlloc"]
    with pytest.raises(OutOfMemoryError):
        backend.allocator.allocate(1 << 20)


def test_ptx_that_the_driver_refuses_is_told_with_its_source(runtime: NVRuntime) -> None:
    wrong = KERNEL.replace(b"add.s32 %r3, %r2, %r0;", b"add.s32 %r3 %r2")
    with pytest.raises(CompileError, match="no semicolon") as caught:
        runtime.load("add", wrong)
    assert caught.value.details["kernel"] == "add"
    with open(str(caught.value.details["source"]), encoding="utf-8") as file:
        assert "add.s32 %r3 %r2" in file.read()


def test_a_launch_that_the_driver_refuses_is_told_with_its_sizes(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    program, places = launches(runtime)
    fake.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError, match="add: cuLaunchKernel: CUDA_ERROR_INVALID_VALUE") as error:
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    assert error.value.details["blocks"] == (1, 1, 1)


def test_a_launch_without_room_is_made_again_when_what_is_kept_has_gone_back() -> None:
    """The driver takes memory for the registers that lanes spill, at a launch."""
    driver = FakeDriver()
    backend = nv.opened("NV", driver, assembles=False)
    runtime, allocator = backend.runtime, backend.allocator
    assert isinstance(runtime, NVRuntime)
    program, places = launches(runtime)
    allocator.take_back((size_class(1 << 20), allocator.allocate(1 << 20)))
    driver.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    free = driver.cuMemFree

    def freed(place: int) -> Any:
        driver.fail.pop("cuLaunchKernel", None)
        return free(place)

    driver.cuMemFree = freed  # type: ignore[method-assign]
    runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    driver.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfMemoryError, match="cuLaunchKernel: the device has no room") as caught:
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    assert caught.value.details["in_use"] == "0 bytes"


def test_a_lost_device_says_what_to_do(fake: FakeDriver, runtime: NVRuntime) -> None:
    fake.fail["cuEventQuery"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    program, places = launches(runtime)
    runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        runtime.synchronize()
    assert caught.value.details["launched"] == program.name
    assert "start the process anew" in str(caught.value)


def test_a_launch_on_a_lost_device_names_what_was_launched_before(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    """The driver tells of a kernel's access at whatever call comes later; a launch that it refuses
    for its own sake has no such suspects.
    """
    program, places = launches(runtime)
    runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    fake.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE") as caught:
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    assert "launched" not in caught.value.details
    fake.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    assert caught.value.details["launched"] == program.name
    assert "start the process anew" in str(caught.value)


def test_a_graph_that_the_driver_refuses_is_told_with_its_kernels(
    fake: FakeDriver, runtime: NVRuntime
) -> None:
    program, (a, b, c) = launches(runtime)
    call = runtime.sequence([(program, 4, (1, 1, 1))] * 2, True)
    assert call is not None
    for _ in range(4):
        call([a, b, c, 1] * 2)
    fake.fail["cuGraphLaunch"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match=r"^add: cuGraphLaunch: CUDA_ERROR"):
        call([a, b, c, 1] * 2)


def test_a_kernel_that_does_not_end_is_named(fake: FakeDriver, runtime: NVRuntime) -> None:
    program, places = launches(runtime)
    runtime.synchronize()
    fake.stuck = len(fake.calls)
    runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    found = memoryview(bytearray(16))
    began = time.monotonic()
    with Context(HANG_SECONDS=1), pytest.raises(DeviceError, match="not ended for 1 s") as caught:
        runtime.copy_out(found, places[0])
    assert caught.value.details["kernel"] == program.name
    assert "start the process anew" in str(caught.value)
    # Nobody waits again, and memory that the kernel may write to is not given to others.
    for again in (runtime.synchronize, lambda: runtime.copy_out(found, places[0])):
        with pytest.raises(DeviceError, match="has not ended"):
            again()
    runtime.free(places[0], 16)
    assert fake.names().count("cuMemFree") == 0
    assert time.monotonic() - began < 30
    # It ends after all: the device is used as before.
    fake.stuck = None
    runtime.synchronize()
    runtime.copy_out(found, places[0])
    runtime.free(places[0], 16)
    assert fake.names().count("cuMemFree") == 1


def test_a_long_queue_that_goes_on_is_no_hung_kernel(
    fake: FakeDriver, runtime: NVRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query finds the stream a little further: 400 launches take longer than the limit for
    one.
    """
    clock = [0.0]

    def monotonic() -> float:
        clock[0] += 1e-3
        return clock[0]

    monkeypatch.setattr(watchdog.time, "monotonic", monotonic)

    def sleep(seconds: float) -> None:
        clock[0] += 0.2
        assert fake.stuck is not None
        fake.stuck += 8

    monkeypatch.setattr(watchdog.time, "sleep", sleep)
    program, places = launches(runtime)
    runtime.synchronize()
    fake.stuck = len(fake.calls)
    for _ in range(400):
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    with Context(HANG_SECONDS=5):
        runtime.synchronize()
    assert clock[0] > 10


def test_events_of_a_long_queue_are_used_again(fake: FakeDriver, runtime: NVRuntime) -> None:
    program, places = launches(runtime)
    for _ in range(3000):
        runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1))
    assert fake.names().count("cuEventCreate") < 100


def test_a_forked_process_is_told(runtime: NVRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_process", os.getpid() + 1)
    with pytest.raises(DeviceError, match="opened before this process was forked"):
        runtime.allocate(4)


def test_the_real_bindings_have_every_function_that_is_called() -> None:
    """Where they are installed: names, and the numbers of arguments that the fake takes."""
    driver = pytest.importorskip("cuda.bindings.driver", reason="pip install cuda-bindings")
    for name in vars(FakeDriver):
        if name.startswith("cu"):
            assert callable(getattr(driver, name)), name
    for title in ("CUjit_option", "CUdevice_attribute"):
        for name, value in vars(getattr(FakeDriver, title)).items():
            assert int(getattr(getattr(driver, title), name)) == value
    for name, value in CUresult.__members__.items():
        assert int(getattr(driver.CUresult, name)) == value


def test_the_real_bindings_take_the_arguments_that_the_runtime_gives() -> None:
    """They convert arguments before they look for the driver's library: where there is none, a call
    with the right arguments fails for that reason alone.
    """
    real = pytest.importorskip("cuda.bindings.driver", reason="pip install cuda-bindings")
    try:
        real.cuInit(0)
    except Exception as error:
        absent = type(error)
    else:
        pytest.skip("there is a driver here, and the handles are imaginary")
    kinds = {
        "CUdevice": real.CUdevice, "CUcontext": real.CUcontext, "CUstream": real.CUstream,
        "CUevent": real.CUevent, "CUmodule": real.CUmodule, "CUfunction": real.CUfunction,
        "CUgraph": real.CUgraph, "CUgraphNode": real.CUgraphNode, "CUgraphExec": real.CUgraphExec,
    }  # fmt: skip
    made = {
        "cuDeviceGet": "CUdevice", "cuDevicePrimaryCtxRetain": "CUcontext",
        "cuStreamCreate": "CUstream", "cuEventCreate": "CUevent",
        "cuModuleLoadDataEx": "CUmodule", "cuModuleGetFunction": "CUfunction",
        "cuGraphCreate": "CUgraph", "cuGraphAddKernelNode": "CUgraphNode",
        "cuGraphInstantiate": "CUgraphExec",
    }  # fmt: skip
    fake = FakeDriver()
    handles: dict[int, Any] = {}

    class Both:
        """Each call goes to the real functions with real types, then to the fake ones."""

        CUjit_option, CUdevice_attribute = real.CUjit_option, real.CUdevice_attribute

        class CUDA_KERNEL_NODE_PARAMS:
            pass

        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> Any:
                with pytest.raises(absent):
                    getattr(real, name)(*[typed(each) for each in arguments])
                found = getattr(fake, name)(*arguments)
                if name in made:
                    handles[found[1]] = kinds[made[name]](found[1])
                return found

            return call

    def typed(argument: Any) -> Any:
        if isinstance(argument, Both.CUDA_KERNEL_NODE_PARAMS):
            parameters = real.CUDA_KERNEL_NODE_PARAMS()
            for name, value in vars(argument).items():
                setattr(parameters, name, typed(value))
            return parameters
        if isinstance(argument, list):
            return [typed(each) for each in argument]
        if isinstance(argument, int) and not hasattr(argument, "name"):
            return handles.get(argument, argument)
        return argument

    runtime = nv.opened("NV", Both(), assembles=False).runtime
    program = runtime.load("add", KERNEL)
    places = [runtime.allocate(16) for _ in range(3)]
    data = memoryview(bytearray(16))
    runtime.copy_in(places[2], data)
    runtime.launch(program, places, [1], (1, 1, 1), (4, 1, 1), wait=True)
    call = runtime.sequence([(program, 4, (1, 1, 1))] * 2, False)
    assert call is not None
    for number in range(4):
        call([*places, number, *places, number])
    runtime.transfer(places[1], places[0], runtime, 16)
    runtime.copy_out(data, places[0])
    runtime.free(places[0], 16)
    runtime.synchronize()
    assert {"cuGraphExecKernelNodeSetParams", "cuMemcpyDtoDAsync"} <= {*fake.names()}


@pytest.mark.row("P.5")
def test_nothing_of_nvidia_is_imported_to_compile() -> None:
    before = {name for name in sys.modules if name.split(".")[0] == "cuda"}
    with Context(DISABLE_COMPILER_CACHE=1):
        (Tensor.empty(8, device="NULL:NV") + 1).realize()
    assert {name for name in sys.modules if name.split(".")[0] == "cuda"} == before
