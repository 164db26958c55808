"""Launches of METAL that come again, as indirect commands: they are encoded once, and what the GPU
still executes never changes. `tests.device.fake_metal` runs them, as late and in as bad an order
as Apple's documents allow.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from tests.device.fake_metal import IS_KNOWN, FakeMetal
from tests.device.helpers import registered
from tests.device.shim.device import SHIMS
from tilegrad import Tensor, jit
from tilegrad.base.errors import DeviceError
from tilegrad.device import metal
from tilegrad.device.metal import MetalRuntime
from tilegrad.device.metal_handles import MetalMemory

pytestmark = [
    pytest.mark.skipif(not IS_KNOWN, reason="the jump of this processor is not known"),
    pytest.mark.skipif(not SHIMS["METAL"].is_here, reason="no C++ compiler is here"),
]

KERNEL = b"""// add: 0 1 | <i | 4 1 1
#include <metal_stdlib>
using namespace metal;
kernel void add(device int* data0, device int* data1, constant int& n, \
uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  *(data0+(gid.x*4+lid.x)) = (*(data1+(gid.x*4+lid.x))+n);
}
"""
EXECUTE, DISPATCH = "executeCommandsInBuffer:withRange:", "dispatchThreadgroups"


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


def filled(runtime: MetalRuntime, values: list[int]) -> MetalMemory:
    memory = runtime.allocate(4 * len(values))
    runtime.copy_in(memory, memoryview(np.array(values, np.int32)).cast("B"))
    return memory


def held(runtime: MetalRuntime, memory: MetalMemory, count: int = 4) -> list[int]:
    found = bytearray(4 * count)
    runtime.copy_out(memoryview(found), memory)
    return np.frombuffer(found, np.int32).tolist()


def sent(fake: FakeMetal, selector: str) -> int:
    return sum(name.startswith(selector) for _, name in fake.calls)


@pytest.mark.row("M7.7", "M4.2")
def test_the_third_call_encodes_and_later_ones_only_execute(
    runtime: MetalRuntime, fake: FakeMetal
) -> None:
    """A plan with 40 launches, each adding to the result of the one before."""
    program, memory = runtime.load("add", KERNEL), filled(runtime, [0, 1, 2, 3])
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 40, True)
    given = [memory, memory, 1] * 40
    for call, (dispatched, encoded) in enumerate([(40, 0), (40, 0), (0, 40), (0, 0), (0, 0)], 1):
        fake.calls.clear()
        sequence(given)
        assert sent(fake, DISPATCH) == dispatched
        assert sent(fake, "concurrentDispatch") == encoded
        assert sent(fake, EXECUTE) == (0 if dispatched else 2), "32 launches, and 8"
        assert held(runtime, memory) == [0 + 40 * call, 1 + 40 * call, 2 + 40 * call, 3 + 40 * call]
    fake.calls.clear()
    sequence(given)
    assert len(fake.calls) < 20, "a message for each 32 launches, not six for each launch"


def test_commands_wait_for_those_before_them(runtime: MetalRuntime, fake: FakeMetal) -> None:
    """The stand-in runs what no barrier separates in the opposite order."""
    program = runtime.load("add", KERNEL)
    a, b, c = (filled(runtime, [0] * 4) for _ in range(3))
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 3, True)
    for _ in range(4):
        sequence([b, a, 1, c, b, 10, a, c, 100])
    assert held(runtime, a) == [444] * 4
    assert held(runtime, c) == [3 * 111 + 11] * 4


def test_arguments_change_while_the_gpu_is_busy(runtime: MetalRuntime, fake: FakeMetal) -> None:
    """Nine calls with other memory and integers each; nobody waits for one."""
    program = runtime.load("add", KERNEL)
    sources = [filled(runtime, [position] * 4) for position in range(9)]
    results = [runtime.allocate(16) for _ in range(9)]
    middle = runtime.allocate(16)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 2, True)
    for position in range(9):
        sequence([middle, sources[position], position, results[position], middle, 100 * position])
    found = [held(runtime, result)[0] for result in results]
    assert found == [102 * position for position in range(9)]
    assert fake.alive()["IndirectCommandBuffer"] == 2


def test_only_what_changed_is_encoded_again(runtime: MetalRuntime, fake: FakeMetal) -> None:
    program = runtime.load("add", KERNEL)
    a, b = filled(runtime, [1] * 4), runtime.allocate(16)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 4, True)
    for _ in range(3):
        sequence([a, a, 1] * 4)
    assert held(runtime, a) == [13] * 4
    fake.calls.clear()
    sequence([*[a, a, 1] * 3, b, a, 1])
    assert held(runtime, b) == [17] * 4
    assert sent(fake, "concurrentDispatch") == 1
    fake.calls.clear()
    sequence([*[a, a, 5] * 3, b, a, 1])
    assert held(runtime, b) == [32] * 4
    assert sent(fake, "concurrentDispatch") == 0, "integers are in memory"


def test_memory_and_programs_outlive_the_commands_that_use_them(
    runtime: MetalRuntime, fake: FakeMetal
) -> None:
    """A command buffer does not keep what indirect commands use."""
    program = runtime.load("add", KERNEL)
    a, b = filled(runtime, [1] * 4), runtime.allocate(16)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 2, True)
    for _ in range(3):
        sequence([b, a, 1, b, b, 1])
    runtime.free(a, 16)
    del program, sequence
    gc.collect()
    assert fake.alive()["Buffer"] == 3 and fake.alive()["IndirectCommandBuffer"] == 1
    assert held(runtime, b) == [3] * 4
    assert fake.alive() == {"Device": 1, "CommandQueue": 1, "Buffer": 1}


def test_memory_that_waits_for_commands_makes_room(runtime: MetalRuntime, fake: FakeMetal) -> None:
    program = runtime.load("add", KERNEL)
    a, b = filled(runtime, [1] * 4), runtime.allocate(16)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 2, True)
    for _ in range(3):
        sequence([b, a, 1, b, b, 1])
    fake.room = 16 + 16 + 2 * 256
    runtime.free(a, 16)
    again = runtime.allocate(16)
    assert held(runtime, b) == [3] * 4
    runtime.free(again, 16)


@pytest.mark.parametrize(
    "facts",
    [{"family": 0}, {"family": 1008}, {"indirect": 0}, {"indirect": 1}],
    ids=["old system", "M2", "no such pipelines", "no room"],
)
def test_launches_are_encoded_where_there_are_no_such_commands(facts: dict[str, int]) -> None:
    fake = FakeMetal(**facts)  # type: ignore[arg-type]
    runtime = metal.opened("METAL", fake.objc).runtime
    assert isinstance(runtime, MetalRuntime)
    program, memory = runtime.load("add", KERNEL), filled(runtime, [0] * 4)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 2, True)
    for _ in range(5):
        sequence([memory, memory, 1] * 2)
    assert held(runtime, memory) == [10] * 4
    assert sent(fake, EXECUTE) == 0 and sent(fake, DISPATCH) == 10
    runtime.free(memory, 16)
    del program, sequence
    gc.collect()
    assert fake.alive() == {"Device": 1, "CommandQueue": 1}
    assert not fake.wrong


def test_a_failure_names_the_kernels_and_the_next_call_goes_on(
    runtime: MetalRuntime, fake: FakeMetal
) -> None:
    program, memory = runtime.load("add", KERNEL), filled(runtime, [0] * 4)
    sequence = runtime.sequence([(program, 3, (1, 1, 1))] * 2, True)
    for _ in range(3):
        sequence([memory, memory, 1] * 2)
    assert held(runtime, memory) == [6] * 4
    fake.fails = ("Caused GPU Timeout Error", 2)
    sequence([memory, memory, 1] * 2)
    with pytest.raises(DeviceError, match="add: Caused GPU Timeout Error"):
        runtime.synchronize()
    fake.fails = None
    sequence([memory, memory, 1] * 2)
    assert held(runtime, memory) == [8] * 4
    assert "CommandBuffer" not in fake.alive()


@pytest.mark.row("M4.2")
def test_a_captured_step_learns_what_numpy_learns(fake: FakeMetal) -> None:
    """Ten steps of gradient descent with a new batch each, the last eight as indirect commands;
    nothing is read before the last.
    """
    opened = metal.opened("FAKEMETAL", fake.objc)
    rng = np.random.default_rng(3)
    batches = rng.standard_normal((10, 16, 8)).astype(np.float32)
    slope = np.arange(8, dtype=np.float32)[:, None]
    with registered("FAKEMETAL", lambda _: opened):
        weight = Tensor(np.zeros((8, 1), np.float32), requires_grad=True).realize()

        @jit
        def step(x: Tensor, goal: Tensor) -> Tensor:
            loss = ((x @ weight - goal) ** 2).mean()
            loss.backward()
            assert weight.grad is not None
            weight.assign(weight.detach() - weight.grad * 0.05).realize()
            weight.grad = None
            return loss.realize()

        losses = [step(Tensor(x).realize(), Tensor(x @ slope).realize()) for x in batches]
        found = [loss.item() for loss in losses]
        learnt = weight.numpy()
    expected, wanted = np.zeros((8, 1)), []
    for x in batches.astype(np.float64):
        difference = x @ expected - x @ slope
        wanted.append(float((difference**2).mean()))
        expected = expected - 0.05 * 2 * x.T @ difference / 16
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_allclose(learnt, expected, rtol=1e-4, atol=1e-5)
    assert sent(fake, EXECUTE) >= 4
