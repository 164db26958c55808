"""The CL device on what OpenCL driver there is, in the tests PoCL."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.device.helpers import (
    OPENCL_BLOCKS,
    check_threads_share_a_kernel,
    needs,
    with_opencl_blocks,
)
from tests.engine.test_rows import is_named, rows_of, script
from tests.optimize.kernels import program
from tests.schedule.plans import plan
from tilegrad import Context, Device, GlobalCounters, Tensor, Variable, jit
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.device.opencl import OpenCLRuntime
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

pytestmark = needs("CL")


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def runtime() -> OpenCLRuntime:
    found = Device["CL"].runtime
    assert isinstance(found, OpenCLRuntime)
    return found


def test_products_and_rows_are_those_of_numpy() -> None:
    """With temporaries, which are views into one buffer, at offsets that the device allows."""
    a, b = array(100, 70), array(70, 90, seed=1)
    found = (Tensor(a, device="CL") @ Tensor(b, device="CL")).softmax(1)
    assert found.device == "CL"
    scores = a.astype(np.float64) @ b
    powers = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), powers / powers.sum(1, keepdims=True), atol=1e-5)


def test_a_processor_has_loops_and_a_chunk_for_each_thread(runtime: OpenCLRuntime) -> None:
    """Lanes that meet at a barrier are a loop for each stretch between two of them there."""
    if not runtime.device.type & runtime._cl.device_type.CPU:
        pytest.skip("the device is no processor")
    target = Device["CL"].target
    assert not target.has_locals and target.threads == 4 * runtime.device.max_compute_units
    x = Tensor.empty(512, 1024)
    (item,) = plan(x.sum(1), target=target).items
    ops = {node.op for node in program(item.ast, None, target)}
    assert Ops.BARRIER not in ops and Ops.DEFINE_LOCAL not in ops
    found = Tensor(array(512, 1024), device="CL").sum(1)
    np.testing.assert_allclose(found.numpy(), array(512, 1024).sum(1), atol=1e-3)


@pytest.mark.row("S0.4")
@pytest.mark.parametrize(
    "name",
    # Attention is two products and a softmax.
    [
        "attention", "sum", "cumsum",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("product", "softmax")),
    ],
)  # fmt: skip
def test_kernels_with_blocks_are_right_on_a_real_driver(name: str) -> None:
    """As a GPU gets them: shared memory, barriers, lanes that share a sum."""
    with with_opencl_blocks():
        target = Device[OPENCL_BLOCKS].target
        assert target.has_locals and target.shared_bytes
        x, y = array(96, 160), array(160, 64, seed=1)
        a, b = (Tensor(each, device=OPENCL_BLOCKS) for each in (x, y))
        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(1, keepdims=True))
        scores = np.exp(wide @ wide.T / np.sqrt(160))
        made, wanted = {
            "product": lambda: (a @ b, wide @ y),
            "softmax": lambda: (a.softmax(1), powers / powers.sum(1, keepdims=True)),
            "attention": lambda: (
                a.scaled_dot_product_attention(a, a),
                scores / scores.sum(1, keepdims=True) @ wide,
            ),
            "sum": lambda: (a.sum(), wide.sum()),
            "cumsum": lambda: (a.cumsum(1), wide.cumsum(1)),
        }[name]()
        np.testing.assert_allclose(made.numpy(), wanted, atol=1e-3)


def test_views_begin_where_the_device_allows(runtime: OpenCLRuntime) -> None:
    backend = Device["CL"]
    assert backend.target.view_bytes % (runtime.device.mem_base_addr_align // 8) == 0
    whole = backend.buffer(1024, dtypes.uint8).copy_in(bytes(range(256)) * 4)
    step = backend.target.view_bytes
    view = whole.view(step, 4)
    assert bytes(view.copy_out()) == bytes(range(256))[step % 256 :][:4]
    view.copy_in(b"abcd")
    assert bytes(whole.copy_out())[step : step + 4] == b"abcd"


def test_half_double_and_bfloat16_are_there_or_emulated() -> None:
    """A third is rounded to each, whether the device has the dtype or float32 stands for it."""
    thirds = {"half": 0.333251953125, "bfloat16": 0.333984375}
    if Device["CL"].target.supports(dtypes.float64):
        thirds["double"] = 1 / 3
    for dtype, value in thirds.items():
        x = Tensor([1.0, 2.0, 4.0], device="CL").cast(dtype)
        assert (x / 3).cast("float").tolist() == pytest.approx(
            [value, 2 * value, 4 * value], rel=1e-7
        )


def test_a_device_without_doubles_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Device["CL"]
    without = replace(
        backend.target, missing_dtypes=backend.target.missing_dtypes | {dtypes.float64}
    )
    monkeypatch.setitem(vars(backend), "target", without)
    with pytest.raises(CompileError, match="CL: no values of float64"):
        (Tensor([1.5, 2.5], device="CL", dtype="double") * 3).realize()


def test_a_bound_variable_is_passed() -> None:
    x = Tensor(np.arange(10, dtype=np.int32), device="CL").realize()
    rows = Variable("rows", 1, 10)
    for count in (3, 7):
        assert x[: rows.bind(count)].sum().item() == count * (count - 1) // 2


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "int8",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("int64", "float64")),
    ],
)
def test_rows_that_meet_are_added(dtype: str) -> None:
    """Of dtypes with and without atomics."""
    if not Device["CL"].target.supports(dtypes.from_name(dtype)):
        pytest.skip("the device has no such dtype")
    values = np.random.default_rng(1).integers(-3, 4, (40, 8)).astype(dtype)
    rows = np.random.default_rng(2).integers(0, 5, 40)
    table = Tensor(np.ones((5, 8), dtype), device="CL")
    found = table.index_add(0, Tensor(rows, device="CL"), Tensor(values, device="CL"))
    wanted = np.ones((5, 8), dtype)
    np.add.at(wanted, rows, values)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_elements_that_meet_are_multiplied() -> None:
    values = np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0], np.float32)
    places = np.array([1, 0, 1, 2, 0, 1])
    table = Tensor(np.ones(4, np.float32), device="CL")
    found = table.scatter_reduce(
        0, Tensor(places, device="CL"), Tensor(values, device="CL"), "prod"
    )
    assert found.tolist() == [33.0, 130.0, 7.0, 1.0]


def test_a_float_that_no_integer_holds_saturates_and_nan_is_zero() -> None:
    x = Tensor([np.nan, np.inf, -np.inf, -1.5, 1e30, 300.7], device="CL")
    assert x.cast("uint32").tolist() == [0, 2**32 - 1, 0, 0, 2**32 - 1, 300]
    assert x.cast("int32").tolist() == [0, 2**31 - 1, -(2**31), -1, 2**31 - 1, 300]
    assert x.cast("int8").tolist() == [0, 127, -128, -1, 127, 127]


def test_a_kernel_may_have_no_use_for_some_of_its_memory(runtime: OpenCLRuntime) -> None:
    source = "// f: 0 2 | | 1 1 1\n__kernel void f(__global float* data0, __global float* data2) "
    source += "{ data0[0] = data2[0] * 2; }\n"
    program = runtime.load("f", runtime.compile(source))
    backend = Device["CL"]
    handles = [
        backend.buffer(1, dtypes.float32).copy_in(np.float32(value).tobytes())
        for value in (0, 5, 7, 9)
    ]
    runtime.launch(program, [each.handle for each in handles], [], (1, 1, 1), (1, 1, 1))
    assert np.frombuffer(handles[0].copy_out(), np.float32).tolist() == [14.0]


def test_a_captured_function_replays() -> None:
    step = jit(lambda x: (x * 2 + 1).realize())
    for value in range(4):
        x = Tensor([float(value)] * 3, device="CL").realize()
        assert step(x).tolist() == [2.0 * value + 1] * 3


def test_a_copy_within_the_device_does_not_pass_the_host(
    runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Device["CL"]
    source = backend.buffer(4, dtypes.uint8).copy_in(b"abcd")
    target = backend.buffer(4, dtypes.uint8)
    assert runtime.transfer(target.handle, source.handle, runtime, 4)
    assert bytes(target.copy_out()) == b"abcd"
    assert not runtime.transfer(target.handle, source.handle, Device["CPU"].runtime, 4)


def test_tensors_move_between_devices() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize().to("CL")
    assert (x + 1).to("CPU").mul(2).tolist() == [4.0, 6.0, 8.0]


def test_launches_are_timed_by_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor.ones(1 << 20, device="CL").contiguous().realize()
    GlobalCounters.reset()
    with Context(DEBUG=2):
        (x * 3 + 1).realize()
    assert GlobalCounters.time_sum_s > 0
    assert "*** CL" in capsys.readouterr().out


@pytest.mark.row("M3.2")
def test_the_rows_of_a_dot_product_have_the_waits_for_the_queue(tmp_path: Path) -> None:
    """The first copy waits, as the queue may be busy, the second does not; the last
    one waits for the kernel's queue.
    """
    code = "print(Tensor([1, 2]).dot(Tensor([3, 4])).tolist())\n"
    shown = script(tmp_path, code, DEBUG=2, TILEGRAD_DEVICE="CL", SIZES=0)
    rows = rows_of(shown)
    kinds = [row.name.split()[0] for row in rows]
    assert kinds == ["sync", "copy", "copy", kinds[3], "sync", "copy"]
    assert is_named(rows[3], "r_2")
    assert [row.device for row in rows] == ["CL"] * 5 + ["HOST"]
    assert "\n11\n" in shown


@pytest.mark.row("M3.2")
def test_each_row_of_a_wait_is_a_wait(
    runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the driver's calls: an event behind the queue, and then the row, as it has passed. Where
    nothing was launched, a copy asks for no event.
    """
    x = Tensor([1.0, 2.0, 3.0], device="CL").realize()
    runtime.synchronize()
    happened: list[str] = []
    mark = runtime._watchdog._mark

    def note_rows() -> None:
        rows = rows_of(capsys.readouterr().out)
        happened.extend(row.name.split("_")[0].split()[0] for row in rows)

    def marked() -> object:
        note_rows()
        happened.append("event")
        return mark()

    monkeypatch.setattr(runtime._watchdog, "_mark", marked)
    with Context(DEBUG=2, SIZES=0):
        a = Tensor([1.0, 2.0, 3.0], device="CL").realize()
        b = Tensor([4.0, 5.0, 6.0], device="CL").realize()
        c = (a * b).realize()
        d = (c + x).realize()
        assert d.numpy().tolist() == [5.0, 12.0, 21.0]
        assert c.numpy().tolist() == [4.0, 10.0, 18.0]
        runtime.synchronize()
    note_rows()
    assert happened == [
        "copy", "copy", "E", "E", "event", "sync", "copy", "copy", "event", "sync"
    ]  # fmt: skip


@pytest.mark.row("M3.2")
def test_a_row_of_a_wait_comes_when_the_queue_has_gone_on(
    runtime: OpenCLRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    """The queue stops at an event that another thread sets; only then is there a row."""
    cl = runtime._cl
    gate = cl.UserEvent(runtime._context)
    x = Tensor([1.0, 2.0], device="CL").realize()
    y = (x * 3).realize()
    cl.enqueue_barrier(runtime._queue, wait_for=[gate])
    shown: list[str] = []

    def read() -> None:
        with Context(DEBUG=2):
            shown.append(str(y.tolist()))

    reader = threading.Thread(target=read)
    try:
        reader.start()
        reader.join(0.2)
        assert not shown and "***" not in capsys.readouterr().out
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    reader.join()
    assert shown == ["[3.0, 6.0]"]
    kinds = [row.name.split()[0] for row in rows_of(capsys.readouterr().out)]
    assert kinds == ["sync", "copy"]


@pytest.mark.row("M3.2")
def test_rows_add_up_to_the_time_that_is_counted(tmp_path: Path) -> None:
    """A wait within a copy is counted once."""
    code = """
x = Tensor([1.0] * 1000).realize()
for scale in (2, 3, 4):
    (x * scale + 1).tolist()
"""
    rows = rows_of(script(tmp_path, code, DEBUG=2, TILEGRAD_DEVICE="CL"))
    assert [row.name for row in rows].count("sync") == 4
    totals = [row.total_ms for row in rows]
    assert totals == sorted(totals)
    assert sum(row.own_us for row in rows) / 1000 == pytest.approx(totals[-1], abs=0.02)


def test_threads_share_a_kernel() -> None:
    """Each launch has its own arguments, though the kernel keeps them."""
    check_threads_share_a_kernel(
        [Tensor([float(n)] * 1000, device="CL").realize() for n in range(8)], times=20
    )


# what goes wrong


def test_a_device_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(DeviceError, match="CL: there is no device 99") as caught:
        Device["CL:99"]
    assert "CL:0 " in str(caught.value.details["found"])


def test_a_buffer_over_the_limit_is_refused_with_the_limit(runtime: OpenCLRuntime) -> None:
    most = int(runtime.device.max_mem_alloc_size)
    with pytest.raises(OutOfMemoryError, match="too large") as caught:
        Tensor.empty(most + (1 << 20), dtype="uint8", device="CL").realize().numpy()
    assert str(most) in str(caught.value)
    assert "line:" in str(caught.value)
    assert Tensor([1.0, 2.0], device="CL").add(1).tolist() == [2.0, 3.0]


@pytest.mark.row("M7.3")
def test_a_full_device_gets_back_what_is_kept_and_is_asked_again(
    runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    cl = runtime._cl
    make, refusals = cl.Buffer, 1

    def full_at_first(*arguments: object) -> object:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise cl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return make(*arguments)

    backend = Device["CL"]
    _ = backend.buffer(1 << 20, dtypes.uint8).handle
    monkeypatch.setattr(cl, "Buffer", full_at_first)
    second = backend.buffer(3 << 20, dtypes.uint8)
    assert second.handle is not None and backend.allocator.cached_bytes == 0
    refusals = 2
    with pytest.raises(OutOfMemoryError, match="5242880 bytes do not fit on CL"):
        _ = backend.buffer(5 << 20, dtypes.uint8).handle


def test_a_launch_without_room_is_made_again_when_what_is_kept_has_gone_back(
    runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a driver that takes the memory of a buffer when a kernel uses it."""
    cl, backend = runtime._cl, Device["CL"]
    x = Tensor([1.0, 2.0], device="CL").realize()
    enqueue, refusals = cl.enqueue_nd_range_kernel, 1

    def full_at_first(*arguments: object) -> object:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise cl.MemoryError("clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return enqueue(*arguments)

    _ = backend.buffer(1 << 20, dtypes.uint8).handle
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", full_at_first)
    assert (x * 5).tolist() == [5.0, 10.0] and backend.allocator.cached_bytes < 1 << 20
    refusals = 2
    _ = backend.buffer(1 << 20, dtypes.uint8).handle
    with pytest.raises(OutOfMemoryError, match="has no room"):
        (x * 7).realize()
    assert (x * 9).tolist() == [9.0, 18.0]


def test_a_source_that_is_refused_names_kernel_lines_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = Device["CL"]
    render = backend.render

    def broken(name: str, program: Sequence[UOp]) -> str:
        return render(name, program).replace("sqrt(", "no_such_function(")

    monkeypatch.setitem(vars(backend), "render", broken)
    with Context(DISABLE_COMPILER_CACHE=1), pytest.raises(CompileError) as caught:
        (Tensor([2.0] * 77, device="CL") * 5).sqrt().realize()
    text = str(caught.value)
    assert "no_such_function" in caught.value.headline
    assert "kernel:" in text and "E_" in str(caught.value.details["kernel"])
    assert Path(__file__).name in text
    assert "no_such_function" in Path(str(caught.value.details["source"])).read_text()
    monkeypatch.undo()
    assert Tensor([4.0] * 77, device="CL").sqrt().tolist() == [2.0] * 77


def test_a_block_over_the_limit_is_refused(runtime: OpenCLRuntime) -> None:
    source = "// f: 0 | | 1 1 1\n__kernel void f(__global float* data0) { data0[0] = 1.0f; }\n"
    program = runtime.load("f", runtime.compile(source))
    memory = Device["CL"].buffer(1, dtypes.float32)
    too_many = int(runtime.device.max_work_group_size) * 2
    with pytest.raises(DeviceError, match=f"f: {too_many} lanes in a block"):
        runtime.launch(program, [memory.handle], [], (1, 1, 1), (too_many, 1, 1))
    assert runtime.launch(program, [memory.handle], [], (1, 1, 1), (1, 1, 1), wait=True) is not None


def test_a_kernel_that_does_not_end_is_named_and_the_device_goes_on_when_it_ends(
    runtime: OpenCLRuntime,
) -> None:
    """The queue stops at an event that the test sets: what comes behind it does not end."""
    cl, x = runtime._cl, Tensor([1.0, 2.0], device="CL").realize()
    runtime.synchronize()
    gate = cl.UserEvent(runtime._context)
    try:
        cl.enqueue_barrier(runtime._queue, wait_for=[gate])
        y = (x * 3).realize()
        stopped = pytest.raises(DeviceError, match="a kernel has not ended for 1 s")
        with Context(HANG_SECONDS=1), stopped as caught:
            y.tolist()
        assert str(caught.value.details["kernel"]).startswith("E_")
        with pytest.raises(DeviceError, match="has not ended"):
            y.tolist()
        assert Tensor([1.0], device="CPU").add(1).tolist() == [2.0]
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    while runtime._watchdog.is_hung:
        time.sleep(0.01)
    assert y.tolist() == [3.0, 6.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_and_the_parent_goes_on() -> None:
    """A call of the driver would wait there for threads that are not there."""
    x = Tensor([1.0, 2.0], device="CL").realize()
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
    tx = Tensor(x, device="CL")
    tw, tv = (Tensor(each, device="CL", requires_grad=True) for each in (w, v))
    loss = ((tx @ tw).relu() @ tv).cross_entropy(Tensor(labels, device="CL"))
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
