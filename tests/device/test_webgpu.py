"""The WEBGPU device on what adapter there is, in the tests Mesa's lavapipe."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.helpers import (
    LEAST,
    SMALL,
    check_threads_share_a_kernel,
    needs,
    with_least_adapter,
    with_small_bindings,
)
from tilegrad import Context, Device, GlobalCounters, Tensor, Variable, jit
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.device.webgpu import WebGPURuntime
from tilegrad.ir.uop import UOp

pytestmark = needs("WEBGPU")


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def on(values: Any, device: str = "WEBGPU") -> Tensor:
    return Tensor(values, device=device).realize()


@pytest.fixture
def runtime() -> WebGPURuntime:
    found = Device["WEBGPU"].runtime
    assert isinstance(found, WebGPURuntime)
    return found


def test_products_and_rows_are_those_of_numpy() -> None:
    """With temporaries, which are views into one buffer, and bound as such."""
    a, b = array(100, 70), array(70, 90, seed=1)
    found = (on(a) @ on(b)).softmax(1)
    assert found.device == "WEBGPU"
    scores = a.astype(np.float64) @ b
    powers = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), powers / powers.sum(1, keepdims=True), atol=1e-5)


# memory


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1021])
def test_any_number_of_bytes_is_copied(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    np.testing.assert_array_equal(on(values).numpy(), values)
    np.testing.assert_array_equal((on(values) ^ 255).numpy(), values ^ 255)


def test_what_is_written_into_a_view_leaves_the_bytes_behind_it_alone() -> None:
    backend = Device["WEBGPU"]
    whole = backend.buffer(1024, dtypes.uint8).copy_in(bytes(range(256)) * 4)
    step = backend.target.view_bytes
    assert step % 256 == 0
    view = whole.view(step, 5)
    assert bytes(view.copy_out()) == bytes(range(256))[step % 256 :][:5]
    view.copy_in(b"abcde")
    assert bytes(whole.copy_out())[step : step + 8] == b"abcde" + bytes([5, 6, 7])


def test_a_copy_within_the_device_does_not_pass_the_host(runtime: WebGPURuntime) -> None:
    backend = Device["WEBGPU"]
    source = backend.buffer(5, dtypes.uint8).copy_in(b"abcde")
    target = backend.buffer(5, dtypes.uint8)
    assert runtime.transfer(target.handle, source.handle, runtime, 5)
    assert bytes(target.copy_out()) == b"abcde"
    assert not runtime.transfer(target.handle, source.handle, Device["CPU"].runtime, 5)
    whole = backend.buffer(16, dtypes.uint8).copy_in(bytes(16))
    assert not runtime.transfer(whole.view(0, 5).handle, source.handle, runtime, 5)


def test_tensors_move_between_devices() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize().to("WEBGPU")
    assert (x + 1).to("CPU").mul(2).tolist() == [4.0, 6.0, 8.0]


def test_memory_of_a_buffer_that_dies_in_a_cycle_is_used_again() -> None:
    """The garbage collector released it, and it was handed on all the same."""
    values = array(999)
    cycle: list[Any] = [Device["WEBGPU"].buffer(999, dtypes.float32).copy_in(values.tobytes())]
    cycle.append(cycle)
    del cycle
    gc.collect()
    np.testing.assert_array_equal((on(values) + 1).numpy(), values + 1)


# dtypes


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "float16"])
def test_lanes_that_share_a_word_keep_each_other_s_elements(dtype: str) -> None:
    """Every third element is written, by lanes of one block and of several."""
    values = np.random.default_rng(3).integers(-100, 100, 3001).astype(dtype)
    x = on(values)
    x[::3] = on(np.zeros(1001, dtype))
    values[::3] = 0
    np.testing.assert_array_equal(x.numpy(), values)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_of_64_bits_are_those_of_python(dtype: str) -> None:
    kind = dtypes.from_name(dtype)
    low, high = int(kind.min), int(kind.max)
    edges = [low, low + 1, 0, 1, 2, 7, (1 << 32) - 1, 1 << 32, (1 << 32) + 5, high]
    pairs = [(a, b) for a in edges for b in edges]
    x, y = (on(np.array(column, dtype)) for column in zip(*pairs))

    def wrapped(value: int) -> int:
        return (value - low) % (1 << 64) + low

    assert (x + y).tolist() == [wrapped(a + b) for a, b in pairs]
    assert (x - y).tolist() == [wrapped(a - b) for a, b in pairs]
    assert (x * y).tolist() == [wrapped(a * b) for a, b in pairs]
    assert (x < y).tolist() == [a < b for a, b in pairs]
    assert (x == y).tolist() == [a == b for a, b in pairs]
    divided = [(a, b) for a, b in pairs if b]
    x, y = (on(np.array(column, dtype)) for column in zip(*divided))
    assert (x // y).tolist() == [wrapped(a // b) for a, b in divided]
    assert (x % y).tolist() == [a % b for a, b in divided]
    for count in (1, 32, 63):
        shifted = on(np.array(edges, dtype))
        assert (shifted << count).tolist() == [wrapped(a << count) for a in edges]
        assert (shifted >> count).tolist() == [a >> count for a in edges]


def test_integers_of_64_bits_become_floats_rounded_once() -> None:
    values = [0, 1, -1, (1 << 24) + 1, (1 << 53) + 1, (1 << 62) + (1 << 38) + 1, -(1 << 63)]
    values += [(1 << 40) + (1 << 16), (1 << 40) + (1 << 16) + 1, (1 << 40) + 3 * (1 << 16)]
    found = on(np.array(values, np.int64)).cast("float32").tolist()
    assert found == [float(np.float32(np.int64(value))) for value in values]


def test_a_float_that_no_integer_holds_saturates_and_nan_is_zero() -> None:
    x = on(np.array([np.nan, np.inf, -np.inf, -1.5, 1e30, 300.7], np.float32))
    assert x.cast("uint32").tolist() == [0, 2**32 - 1, 0, 0, 2**32 - 1, 300]
    assert x.cast("int32").tolist() == [0, 2**31 - 1, -(2**31), -1, 2**31 - 1, 300]
    assert x.cast("int8").tolist() == [0, 127, -128, -1, 127, 127]
    assert x.cast("int64").tolist() == [0, 2**63 - 1, -(2**63), -1, 2**63 - 1, 300]
    assert x.cast("uint64").tolist() == [0, 2**64 - 1, 0, 0, 2**64 - 1, 300]


def test_nan_infinities_and_signed_zeros_are_those_of_numpy() -> None:
    """Which drivers may think away where a constant stands beside them."""
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    x = on(values)
    with np.errstate(all="ignore"):
        wanted = {
            "times zero": (x * 0.0, values * np.float32(0)),
            "plus zero": (x + 0.0, values + np.float32(0)),
            "from zero": (0.0 - x, np.float32(0) - values),
            "less itself": (x - x, values - values),
        }
    for name, (found, exact) in wanted.items():
        np.testing.assert_array_equal(found.numpy(), exact, err_msg=name)
        is_number = ~np.isnan(exact)
        assert (np.signbit(found.numpy()) == np.signbit(exact))[is_number].all(), name
    assert (x != x).tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize("device", ["WEBGPU", LEAST])
def test_half_and_bfloat16_are_there_or_emulated(device: str) -> None:
    """A third is rounded to each, whether the adapter has the dtype or float32 stands for it."""
    with with_least_adapter():
        for dtype, value in {"half": 0.333251953125, "bfloat16": 0.333984375}.items():
            x = Tensor([1.0, 2.0, 4.0], device=device).cast(dtype)
            assert (x / 3).cast("float").tolist() == [value, 2 * value, 4 * value]


def test_an_adapter_without_doubles_says_so() -> None:
    with with_least_adapter(), pytest.raises(CompileError, match="WEBGPU: no values of float64"):
        (Tensor([1.5, 2.5], device=LEAST, dtype="double") * 3).realize()


@pytest.mark.parametrize("name", ["sin", "cos", "log2", "exp2"])
def test_functions_need_neither_doubles_nor_fused_multiply_adds(name: str) -> None:
    """Within the bounds of docs/accuracy.md, against NumPy in float64."""
    generator = np.random.default_rng(5)
    bits = generator.integers(0, 1 << 32, 20000, np.uint32).view(np.float32)
    usual = generator.uniform(-30, 30, 20000).astype(np.float32)
    values = np.concatenate([bits[np.isfinite(bits)], usual, usual * np.float32(1e-3)])
    if name == "log2":
        values = np.abs(values[values != 0])
    if name == "exp2":
        values = values[np.abs(values) < 120]
    exact = getattr(np, name)(values.astype(np.float64))
    with with_least_adapter():
        found = getattr(on(values, LEAST), name)().numpy().astype(np.float64)
    unit = np.spacing(np.maximum(np.abs(exact), 2.0**-126).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - exact) / unit).max() <= {"log2": 1.5, "exp2": 1.5}.get(name, 2.0)


# launches


def test_a_bound_variable_is_passed() -> None:
    x = on(np.arange(10, dtype=np.int32))
    rows = Variable("rows", 1, 10)
    for count in (3, 7):
        assert x[: rows.bind(count)].sum().item() == count * (count - 1) // 2


def test_each_of_many_launches_that_wait_has_its_own_numbers() -> None:
    """More than one command buffer holds."""
    x = on(np.arange(300, dtype=np.int32))
    rows = Variable("rows", 1, 300)
    found = [(x[: rows.bind(count)].sum() + 0).realize() for count in range(1, 300)]
    assert [each.item() for each in found] == [n * (n - 1) // 2 for n in range(1, 300)]


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "int64"])
def test_rows_that_meet_are_added(dtype: str) -> None:
    """Of dtypes with and without atomics."""
    values = np.random.default_rng(1).integers(-3, 4, (40, 8)).astype(dtype)
    rows = np.random.default_rng(2).integers(0, 5, 40)
    found = on(np.ones((5, 8), dtype)).index_add(0, on(rows), on(values))
    wanted = np.ones((5, 8), dtype)
    np.add.at(wanted, rows, values)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_more_blocks_than_an_axis_holds_are_counted_in_rows(runtime: WebGPURuntime) -> None:
    """70001 blocks of one lane each: the axis ends at 65535."""
    count = 70001
    x = on(np.arange(count, dtype=np.int32))
    with Context(NOOPT=1):
        found = (x * 2 + 1).realize()
    np.testing.assert_array_equal(found.numpy(), np.arange(count) * 2 + 1)


def test_a_lane_of_many_iterations_is_not_left_behind_some_of_them() -> None:
    """lavapipe leaves all loops of a lane behind 65,535 iterations, without an error. So had sums,
    products with few results, what is added to few elements, and gradients of weights.
    """
    with Context(NOOPT=1):
        assert on(np.ones((2, 140_001), np.float32)).sum(1).tolist() == [140_001.0] * 2
        assert on(np.arange(140_001, dtype=np.int32)).max().item() == 140_000
    left, right = array(3, 300_000), array(300_000, 2, seed=1)
    wanted = left.astype(np.float64) @ right
    np.testing.assert_allclose((on(left) @ on(right)).numpy(), wanted, atol=2e-3)
    index = np.random.default_rng(2).integers(0, 10, 100_000)
    added = Tensor.zeros(10, device="WEBGPU").scatter_add(0, on(index), on(np.ones(100_000, "f4")))
    assert added.tolist() == np.bincount(index, minlength=10).tolist()
    image, slope = array(32, 2, 96, 96), array(32, 3, 96, 96, seed=3)
    weight = Tensor(array(3, 2, 1, 1, seed=4), device="WEBGPU", requires_grad=True)
    on(image).conv2d(weight).backward(on(slope))
    assert weight.grad is not None
    found = weight.grad.numpy()[:, :, 0, 0]
    wanted = np.einsum("nohw,nchw->oc", slope.astype(np.float64), image)
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())


def test_a_kernel_with_more_operands_than_an_adapter_binds_is_split() -> None:
    values = [array(64, seed=seed) for seed in range(20)]
    with with_least_adapter():
        assert Device[LEAST].target.most_buffers == 8
        parts = [on(each, LEAST) for each in values]
        GlobalCounters.reset()
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        found = total.numpy()
        assert GlobalCounters.kernel_count == 4
    np.testing.assert_allclose(found, np.sum(values, axis=0, dtype=np.float64), atol=1e-5)


def test_a_captured_function_replays() -> None:
    step = jit(lambda x: (x * 2 + 1).realize())
    for value in range(4):
        assert step(on([float(value)] * 3)).tolist() == [2.0 * value + 1] * 3


def test_launches_are_timed_by_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor.ones(1 << 16, device="WEBGPU").contiguous().realize()
    GlobalCounters.reset()
    with Context(DEBUG=2):
        (x * 3 + 1).realize()
    assert GlobalCounters.time_sum_s > 0
    assert "*** WEBGPU" in capsys.readouterr().out


def test_threads_share_a_kernel_and_the_queue() -> None:
    check_threads_share_a_kernel([on([float(n)] * 1000) for n in range(4)], times=10)


# what goes wrong


def test_a_device_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(DeviceError, match="WEBGPU: there is no device 99") as caught:
        Device["WEBGPU:99"]
    assert "WEBGPU:0 " in str(caught.value.details["found"])


def test_a_machine_without_a_driver_is_told_what_to_install() -> None:
    missing = {"VK_ICD_FILENAMES": "/none", "VK_DRIVER_FILES": "/none"}
    if sys.platform != "linux":
        pytest.skip("drivers are found by these variables on Linux")
    code = "from tilegrad import Device; print(Device.refusal('WEBGPU'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **missing}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "WEBGPU: no driver has an adapter" in done.stdout
    assert "apt-get install mesa-vulkan-drivers" in done.stdout


def test_a_buffer_over_the_limit_is_refused_with_the_limit(runtime: WebGPURuntime) -> None:
    most = int(runtime.limits["max-buffer-size"])
    with pytest.raises(OutOfMemoryError, match="too large") as caught:
        Tensor.empty(most + (1 << 20), dtype="uint8", device="WEBGPU").realize().numpy()
    assert str(most) in str(caught.value)
    assert on([1.0, 2.0]).add(1).tolist() == [2.0, 3.0]


def test_more_bytes_than_a_kernel_may_bind_are_refused_with_the_limit(
    runtime: WebGPURuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is named, and the device goes on."""
    x = on(np.ones(4096, np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(
            runtime, "limits", {**runtime.limits, "max-storage-buffer-binding-size": 4096}
        )
        with pytest.raises(DeviceError, match="16384 bytes in one buffer of a kernel") as caught:
            (x * 5 + 2).numpy()
        assert "4096 on" in str(caught.value)
    assert (x * 5 + 3).sum().item() == 8 * 4096


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "int32", "float32", "int64"])
def test_a_buffer_of_more_bytes_than_a_binding_holds_is_bound_in_slices(dtype: str) -> None:
    """Elements of each width, one at a time and as vectors, loaded and stored on both sides of
    where a slice ends.
    """
    with with_small_bindings():
        for size in (1024, 2051):
            values = np.arange(size) % 100
            x = on(values.astype(dtype), SMALL)
            assert (x + 3).tolist() == (values + 3).tolist()
            assert x[1:].tolist() == values[1:].tolist()
            assert x.flip(0).pad(((3, 2),)).tolist() == [0] * 3 + values[::-1].tolist() + [0] * 2


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_rows_of_a_buffer_in_slices_that_meet_are_added(dtype: str) -> None:
    """Of dtypes with and without atomics."""
    values = np.random.default_rng(1).integers(0, 4, (200, 8)).astype(dtype)
    rows = np.random.default_rng(2).integers(0, 190, 200)
    wanted = np.ones((190, 8), dtype)
    np.add.at(wanted, rows, values)
    with with_small_bindings():
        start = on(np.ones((190, 8), dtype), SMALL)
        found = start.index_add(0, on(rows, SMALL), on(values, SMALL))
        np.testing.assert_array_equal(found.numpy(), wanted)


def test_products_of_buffers_in_slices_are_those_of_numpy() -> None:
    a, b = array(40, 48), array(48, 50, seed=1)
    with with_small_bindings():
        found = (on(a, SMALL) @ on(b, SMALL)).softmax(1).numpy()
    powers = np.exp(a.astype(np.float64) @ b)
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-4)


def test_a_plan_for_a_range_of_sizes_runs_where_memory_ends_before_a_slice() -> None:
    with with_small_bindings(), Context(SIZES=1):
        for size in (600, 300, 100, 5, 599):
            x = on(np.arange(size, dtype=np.float32), SMALL)
            assert (x * 2 + 1).tolist() == (np.arange(size) * 2 + 1).tolist()


@pytest.mark.row("M7.3")
def test_a_full_device_gets_back_what_is_kept_and_is_asked_again(
    runtime: WebGPURuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, refusals = runtime.device.create_buffer, 1

    def full_at_first(**options: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise runtime._wgpu.GPUOutOfMemoryError("not enough memory left")
        return make(**options)

    backend = Device["WEBGPU"]
    _ = backend.buffer(1 << 20, dtypes.uint8).handle
    monkeypatch.setattr(runtime.device, "create_buffer", full_at_first)
    second = backend.buffer(3 << 20, dtypes.uint8)
    assert second.handle is not None and backend.allocator.cached_bytes == 0
    refusals = 2
    with pytest.raises(OutOfMemoryError, match="5242880 bytes do not fit on WEBGPU"):
        _ = backend.buffer(5 << 20, dtypes.uint8).handle


def test_a_source_that_is_refused_names_kernel_lines_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = Device["WEBGPU"]
    render = backend.render

    def broken(name: str, program: Sequence[UOp]) -> str:
        return render(name, program).replace("sqrt(", "no_such_function(")

    monkeypatch.setitem(vars(backend), "render", broken)
    with Context(DISABLE_COMPILER_CACHE=1), pytest.raises(CompileError) as caught:
        (on([2.0] * 77) * 5).sqrt().realize()
    text = str(caught.value)
    assert "no_such_function" in caught.value.headline
    assert "kernel:" in text and "E_" in str(caught.value.details["kernel"])
    assert Path(__file__).name in text
    assert "no_such_function" in Path(str(caught.value.details["source"])).read_text()
    monkeypatch.undo()
    assert on([4.0] * 77).sqrt().tolist() == [2.0] * 77


def test_a_block_over_the_limit_is_refused(runtime: WebGPURuntime) -> None:
    source = "// f: 0 | -1\n@group(0) @binding(0) var<storage, read_write> data0: array<f32>;\n"
    source += "@compute @workgroup_size(1) fn f() { data0[0] = 1.0f; }\n"
    program = runtime.load("f", runtime.compile(source))
    memory = Device["WEBGPU"].buffer(1, dtypes.float32)
    too_many = int(runtime.limits["max-compute-invocations-per-workgroup"]) * 2
    with pytest.raises(DeviceError, match=f"f: {too_many} lanes in a block"):
        runtime.launch(program, [memory.handle], [], (1, 1, 1), (too_many, 1, 1))
    assert runtime.launch(program, [memory.handle], [], (1, 1, 1), (1, 1, 1), wait=True) is not None


def test_a_lost_device_is_said_and_what_waited_is_dropped(
    runtime: WebGPURuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = on([1.0, 2.0])

    def lost(*arguments: Any) -> None:
        raise runtime._wgpu.GPUError("Validation Error\n\nParent device is lost")

    queue = runtime.device.queue
    monkeypatch.setattr(queue, "submit", lost)
    with pytest.raises(DeviceError, match="the device is lost") as caught:
        (x + 5).tolist()
    assert "start the process anew" in str(caught.value)
    monkeypatch.undo()
    assert (x + 6).tolist() == [7.0, 8.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_and_the_parent_goes_on() -> None:
    """A call of the driver would wait there for threads that are not there."""
    x = on([1.0, 2.0])
    child = os.fork()
    if child == 0:
        try:
            x.tolist()
        except DeviceError as error:
            os._exit(17 if "before this process was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert x.tolist() == [1.0, 2.0]


# training


def test_a_training_step_is_that_of_numpy() -> None:
    """Two layers, cross entropy, one step of gradient descent, by hand in float64."""
    x, w, v = array(32, 20), array(20, 16, seed=1) * 0.2, array(16, 5, seed=2) * 0.2
    labels = np.random.default_rng(3).integers(0, 5, 32)
    rate = 0.5
    tw, tv = (Tensor(each, device="WEBGPU", requires_grad=True) for each in (w, v))
    loss = ((on(x) @ tw).relu() @ tv).cross_entropy(on(labels))
    loss.backward()
    assert tw.grad is not None and tv.grad is not None
    stepped = [(each - rate * each.grad).numpy() for each in (tw, tv)]

    hidden = x.astype(np.float64) @ w
    active = np.maximum(hidden, 0)
    scores = active @ v
    powers = np.exp(scores - scores.max(1, keepdims=True))
    chances = powers / powers.sum(1, keepdims=True)
    wanted_loss = -np.log(chances[np.arange(32), labels]).mean()
    slope = chances.copy()
    slope[np.arange(32), labels] -= 1
    slope /= 32
    dv = active.T @ slope
    dw = x.T.astype(np.float64) @ ((slope @ v.T) * (hidden > 0))
    assert loss.item() == pytest.approx(wanted_loss, rel=1e-5)
    np.testing.assert_allclose(stepped[0], w - rate * dw, atol=1e-5)
    np.testing.assert_allclose(stepped[1], v - rate * dv, atol=1e-5)


@pytest.mark.nightly
def test_the_demo_s_captured_step_agrees_with_the_processor_s() -> None:
    """Its convolutions, batch normalisation, Adam and random batches, step by step."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from training import Training

    from tilegrad.nn import datasets

    found: dict[str, list[float]] = {}
    for device in ("CPU", "WEBGPU"):
        with Context(DEVICE=device):
            Tensor.manual_seed(3)
            training = Training(datasets.digits(), batch=32)
            found[device] = [training.step()[0].item() for _ in range(4)]
    assert found["WEBGPU"] == pytest.approx(found["CPU"], rel=1e-3)
