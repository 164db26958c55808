"""The METAL device on objects that check the order, types and lifetimes of calls, and whose kernels
run as C++. No Apple machine is needed, and none is touched.
"""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.device.fake_metal import IS_KNOWN, FakeMetal
from tests.device.helpers import check_a_row_softmax, registered
from tests.device.shim.device import SHIMS
from tests.engine.test_rows import rows_of
from tilegrad import Context, Device, Tensor, jit
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.device import metal
from tilegrad.device.metal import MetalRuntime

pytestmark = pytest.mark.skipif(not IS_KNOWN, reason="the jump of this processor is not known")
runs = pytest.mark.skipif(not SHIMS["METAL"].is_here, reason="no C++ compiler is here")

KERNEL = b"""// add: 0 2 | <i | 4 1 1
#include <metal_stdlib>
using namespace metal;
kernel void add(device int* data0, device int* data2, constant int& n, \
uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  *(data0+(gid.x*4+lid.x)) = (*(data2+(gid.x*4+lid.x))+n);
}
"""


@pytest.fixture
def fake() -> Iterator[FakeMetal]:
    found = FakeMetal()
    yield found
    assert not found.wrong


@pytest.fixture
def runtime(fake: FakeMetal) -> MetalRuntime:
    found = metal.opened("METAL", fake.objc).runtime
    assert isinstance(found, MetalRuntime)
    fake.calls.clear()
    return found


@pytest.fixture
def device(fake: FakeMetal) -> Iterator[str]:
    """A name under which the fake is a device, which is the default meanwhile."""
    opened = metal.opened("FAKEMETAL", fake.objc)
    with registered("FAKEMETAL", lambda _: opened) as name:
        yield name


# whole programs


@runs
def test_products_and_rows_are_those_of_numpy(device: str, fake: FakeMetal) -> None:
    check_a_row_softmax()
    assert ("ComputeCommandEncoder", "endEncoding") in fake.calls


@runs
def test_a_training_step_and_its_capture(device: str) -> None:
    rng = np.random.default_rng(2)
    x = Tensor(rng.standard_normal((16, 8)).astype(np.float32)).realize()
    weight = Tensor(np.zeros((8, 1), np.float32), requires_grad=True).realize()
    wanted = x.numpy() @ np.arange(8, dtype=np.float32)[:, None]
    goal = Tensor(wanted).realize()

    @jit
    def step() -> Tensor:
        loss = ((x @ weight - goal) ** 2).mean()
        loss.backward()
        assert weight.grad is not None
        weight.assign(weight.detach() - weight.grad * 0.05).realize()
        weight.grad = None
        return loss.realize()

    expected, seen = np.zeros((8, 1)), []
    for _ in range(5):
        difference = x.numpy() @ expected - wanted
        expected = expected - 0.05 * 2 * x.numpy().T @ difference / 16
        seen.append((step().item(), float((difference**2).mean())))
    np.testing.assert_allclose(*zip(*seen), rtol=1e-4)


# the calls of a launch


@pytest.mark.row("M7.7", "P.8")
def test_the_order_of_calls() -> None:
    """Device, library, function, pipeline; then queue, command buffer, encoder, arguments,
    dispatch, end, commit, wait. Of a GPU before the M3.
    """
    fake = FakeMetal(family=1008)
    runtime = metal.opened("METAL", fake.objc).runtime
    fake.calls.clear()
    program = runtime.load("add", KERNEL)
    first, second = runtime.allocate(64), runtime.allocate(64)
    fake.calls = [call for call in fake.calls if "String" not in call[0] + call[1]]
    loaded = [
        ("class b'MTLCompileOptions'", "new"),
        ("MTLCompileOptions", "setFastMathEnabled:"),
        ("Device", "newLibraryWithSource:options:error:"),
        ("MTLCompileOptions", "release"),
        ("Library", "newFunctionWithName:"),
        ("Library", "release"),
        ("Device", "newComputePipelineStateWithFunction:error:"),
        ("Function", "release"),
        ("ComputePipelineState", "maxTotalThreadsPerThreadgroup"),
    ]
    memory = [("Device", "newBufferWithLength:options:"), ("Buffer", "contents")]
    assert fake.calls == [*loaded, *memory, *memory]
    fake.calls.clear()
    if SHIMS["METAL"].is_here:
        handles = [first, first, second]
        runtime.launch(program, handles, [5], (4, 1, 1), (4, 1, 1), wait=True)
        encoder = "ComputeCommandEncoder"
        assert fake.calls == [
            ("CommandQueue", "commandBuffer"),
            ("CommandBuffer", "computeCommandEncoder"),
            (encoder, "setComputePipelineState:"),
            (encoder, "setBuffer:offset:atIndex:"),
            (encoder, "setBuffer:offset:atIndex:"),
            (encoder, "setBytes:length:atIndex:"),
            (encoder, "dispatchThreadgroups:threadsPerThreadgroup:"),
            (encoder, "endEncoding"),
            ("CommandBuffer", "retain"),
            ("CommandBuffer", "commit"),
            ("CommandBuffer", "waitUntilCompleted"),
            ("CommandBuffer", "status"),
            ("CommandBuffer", "GPUStartTime"),
            ("CommandBuffer", "GPUEndTime"),
            ("CommandBuffer", "release"),
        ]
    assert not fake.wrong


@runs
@pytest.mark.row("M7.7")
def test_launches_of_a_sequence_share_command_buffers(
    runtime: MetalRuntime, fake: FakeMetal
) -> None:
    """Forty launches; each adds to the result of the one before."""
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    numbers = np.arange(8, dtype=np.int32)
    runtime.copy_in(memory, memoryview(numbers).cast("B"))
    run = runtime.sequence([(program, 4, (2, 1, 1))] * 40, True)
    fake.calls.clear()
    run([memory, memory, memory, 1] * 40)
    assert fake.calls.count(("CommandQueue", "commandBuffer")) == 2
    assert sum(name.startswith("dispatchThreadgroups") for _, name in fake.calls) == 40
    found = bytearray(64)
    runtime.copy_out(memoryview(found), memory)
    assert np.frombuffer(found, np.int32)[:8].tolist() == [*range(40, 48)]
    assert "CommandBuffer" not in fake.alive()


@runs
@pytest.mark.row("M4.2", "M4.16")
def test_a_captured_function_is_one_command_buffer(
    device: str, fake: FakeMetal, capsys: pytest.CaptureFixture[str]
) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        rows = (x * 2).softmax(1).contiguous()
        return (rows.sum(0).contiguous() + 1).realize()

    values = np.random.default_rng(4).standard_normal((40, 24)).astype(np.float32)
    powers = np.exp(2 * values.astype(np.float64))
    wanted = (powers / powers.sum(1, keepdims=True)).sum(0) + 1
    with Context(DEBUG=1):
        for _ in range(4):
            x = Tensor(values).realize()
            fake.calls.clear()
            found = step(x)
            count = fake.calls.count(("CommandQueue", "commandBuffer"))
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    launches = sum(name.startswith("dispatchThreadgroups") for _, name in fake.calls)
    assert count == 1 and launches > 1
    assert f"JIT GRAPHing batch with {launches} kernels on device" in capsys.readouterr().out


def test_a_sequence_that_fails_names_its_kernels(runtime: MetalRuntime, fake: FakeMetal) -> None:
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    fake.fails = ("Caused GPU Timeout Error", 2)
    runtime.sequence([(program, 4, (1, 1, 1))] * 3, True)([memory, memory, memory, 1] * 3)
    with pytest.raises(DeviceError, match="add: Caused GPU Timeout Error"):
        runtime.synchronize()
    fake.lanes = 2
    small = runtime.load("add", KERNEL)
    with pytest.raises(DeviceError, match="4 lanes in a block"):
        runtime.sequence([(small, 4, (1, 1, 1))], True)([memory, memory, memory, 1])
    assert "CommandBuffer" not in fake.alive()


@runs
def test_arguments_arrive(runtime: MetalRuntime) -> None:
    """Memory of the slots in use, from their offsets on, and integers behind them."""
    program = runtime.load("add", KERNEL)
    out, source = runtime.allocate(128), runtime.allocate(96)
    runtime.copy_in(source, memoryview(np.arange(24, dtype=np.int32)))
    unused = runtime.allocate(16)
    shifted = runtime.view(runtime.view(source, 16, 80), 16, 64)
    runtime.copy_in(out, memoryview(np.zeros(32, np.int32)))
    handles = [runtime.view(out, 32, 64), unused, shifted]
    seconds = runtime.launch(program, handles, [-7], (4, 1, 1), (4, 1, 1), wait=True)
    assert seconds == 0.25
    found = np.zeros(32, np.int32)
    runtime.copy_out(memoryview(found), out)
    want = np.zeros(32, np.int32)
    want[8:24] = np.arange(8, 24) - 7
    np.testing.assert_array_equal(found, want)


@runs
def test_a_copy_waits_for_what_was_launched(runtime: MetalRuntime) -> None:
    """The fake runs a launch when somebody waits for it, and not before."""
    program = runtime.load("add", KERNEL)
    memory = runtime.allocate(64)
    runtime.copy_in(memory, memoryview(np.arange(16, dtype=np.int32)))
    for _ in range(3):
        runtime.launch(program, [memory, None, memory], [1], (4, 1, 1), (4, 1, 1))  # type: ignore[list-item]
    found = np.zeros(16, np.int32)
    runtime.copy_out(memoryview(found), memory)
    np.testing.assert_array_equal(found, np.arange(16) + 3)


@pytest.mark.row("M3.2")
@runs
def test_a_wait_for_launches_has_a_row_and_an_empty_queue_has_none(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Tensor([1.0, 2.0], device=device).realize()
    y = (x * 3).realize()
    with Context(DEBUG=2):
        Device[device].runtime.synchronize()
        Device[device].runtime.synchronize()
        assert y.tolist() == [3.0, 6.0]
    rows = rows_of(capsys.readouterr().out)
    assert [row.name.split()[0] for row in rows] == ["sync", "copy"]


@runs
def test_everything_is_given_back(runtime: MetalRuntime, fake: FakeMetal) -> None:
    program = runtime.load("add", KERNEL)
    memory = runtime.allocate(64)
    counts = set()
    for _ in range(100):
        runtime.launch(program, [memory, memory, memory], [1], (1, 1, 1), (4, 1, 1))
        counts.add(fake.alive()["CommandBuffer"])
    # What is under way stays far below the 64 that a queue holds.
    assert max(counts) <= 32
    runtime.synchronize()
    runtime.free(memory, 64)
    del program
    gc.collect()
    assert fake.alive() == {"Device": 1, "CommandQueue": 1}


# what goes wrong


def test_what_the_compiler_says_is_told(fake: FakeMetal, runtime: MetalRuntime) -> None:
    fake.refuses = (
        "Compilation failed:\nprogram_source:3:5: error: unknown type name 'flot'\n flot x"
    )
    with pytest.raises(CompileError, match="metal: unknown type name 'flot'") as caught:
        runtime.load("add", KERNEL)
    assert caught.value.details["kernel"] == "add"
    assert str(caught.value.details["source"]).endswith("failed.metal")
    assert fake.alive() == {"Device": 1, "CommandQueue": 1}


def test_a_refused_text_names_the_lines_of_its_ops(device: str, fake: FakeMetal) -> None:
    """Not only the line that asked for the values."""
    fake.refuses = "Compilation failed:\nprogram_source:3:5: error: unknown type name 'flot'"
    x = Tensor(np.ones(4, np.float32)).realize()
    y = (x * 3 + 1).exp()
    with pytest.raises(CompileError, match="metal: unknown type name 'flot'") as caught:
        y.realize()
    assert caught.value.details["call"] == "__mul__, __add__, exp"


def test_integers_that_do_not_fit_leave_the_device_usable(
    fake: FakeMetal, runtime: MetalRuntime
) -> None:
    """The framework ends a process that gives back an encoder without ending it."""
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    before = fake.alive()
    with pytest.raises(struct.error):
        runtime.launch(program, [memory, memory, memory], [1 << 40], (1, 1, 1), (4, 1, 1))
    runtime.synchronize()
    assert fake.alive() == before


def test_a_text_without_the_kernel(runtime: MetalRuntime, fake: FakeMetal) -> None:
    with pytest.raises(CompileError, match="no kernel other"):
        runtime.load("other", KERNEL)
    assert fake.alive() == {"Device": 1, "CommandQueue": 1}


@pytest.mark.parametrize(
    ("code", "kind"), [(2, DeviceError), (8, OutOfMemoryError)], ids=["timeout", "no room"]
)
def test_a_launch_that_fails(
    fake: FakeMetal, runtime: MetalRuntime, code: int, kind: type[Exception]
) -> None:
    """It is told where somebody waits for it, and the device goes on."""
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    fake.fails = ("Caused GPU Timeout Error", code)
    runtime.launch(program, [memory, memory, memory], [1], (1, 1, 1), (4, 1, 1))
    with pytest.raises(kind, match="Caused GPU Timeout Error"):
        runtime.synchronize()
    runtime.synchronize()
    assert "CommandBuffer" not in fake.alive()


@pytest.mark.parametrize("code", [4, 11], ids=["access revoked", "removed"])
def test_a_lost_gpu_says_what_to_do(fake: FakeMetal, runtime: MetalRuntime, code: int) -> None:
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    fake.fails = ("Device removed", code)
    runtime.launch(program, [memory, memory, memory], [1], (1, 1, 1), (4, 1, 1))
    with pytest.raises(DeviceError, match="Apple M9: the device is lost: Device removed") as caught:
        runtime.synchronize()
    assert caught.value.details["kernel"] == "add"
    assert "start the process anew" in caught.value.details["remedy"]
    assert "CommandBuffer" not in fake.alive()


def test_too_many_lanes(fake: FakeMetal, runtime: MetalRuntime) -> None:
    fake.lanes = 64
    program, memory = runtime.load("add", KERNEL), runtime.allocate(64)
    with pytest.raises(DeviceError, match=r"add: 128 lanes in a block, local size \(32, 4, 1\)"):
        runtime.launch(program, [memory, memory, memory], [1], (1, 1, 1), (32, 4, 1))


def test_no_room(fake: FakeMetal, runtime: MetalRuntime) -> None:
    with pytest.raises(OutOfMemoryError, match="too large for Apple M9"):
        runtime.allocate(1 << 28)
    fake.room = 100
    memory = runtime.allocate(100)
    with pytest.raises(MemoryError):
        runtime.allocate(1)
    runtime.free(memory, 100)
    assert runtime.allocate(1).offset == 0


def test_no_gpu_and_no_second_one() -> None:
    with pytest.raises(DeviceError, match="no GPU that runs kernels"):
        metal.opened("METAL", FakeMetal(has_gpu=False).objc)
    with pytest.raises(DeviceError, match="there is no device 1"):
        metal.opened("METAL:1", FakeMetal().objc)


@pytest.mark.skipif(sys.platform == "darwin", reason="here it has one")
def test_on_another_system_it_says_so() -> None:
    with pytest.raises(DeviceError, match="only Apple's systems have it"):
        _ = Tensor([1.0], device="METAL").realize()
