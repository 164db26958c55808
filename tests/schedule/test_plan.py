"""A schedule is the same list of steps for the same graph, and each step has one device."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.schedule.plans import kernels, plan, plan_nodes
from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError, DTypeError, InternalError, ShapeError
from tilegrad.device.registry import Device
from tilegrad.engine.run import run
from tilegrad.engine.run.run import Launch, recording
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule import kernel_items
from tilegrad.schedule.items import Schedule

ROOT = Path(__file__).parents[2]


def mixed() -> list[Tensor]:
    """Some of everything: folds that fuse and that do not, draws, rows, an update, a copy."""
    x, w = Tensor.empty(8, 16, requires_grad=True), Tensor.empty(16, 16, requires_grad=True)
    table = Tensor.empty(50, 16, requires_grad=True)
    rows = Tensor.empty(8, dtype=dtypes.int)
    hidden = ((x @ w).gelu() + table[rows]).layernorm() * (Tensor.rand(8, 16) > 0.1)
    loss = hidden.log_softmax(1).sum() + hidden.var(0).sum()
    loss.backward()
    moment = Tensor.empty(16, 16)
    assert w.grad is not None
    assert table.grad is not None
    moment.assign(moment * 0.9 + w.grad)
    updated = w.assign(w.detach() - moment * 0.1)
    return [loss, updated, moment, table.grad, (hidden.argmax(1) + 1).to("CPU:1")]


def text(schedule: Schedule) -> str:
    """All of a schedule, as text."""
    lines = [f"{item.device} {item.buffers} {item.nodes}\n{item.ast}" for item in schedule.items]
    tail = [str(schedule.buffers), str(schedule.outputs), str(schedule.edges)]
    return "\n".join([*lines, *tail])


SCRIPT = """
import hashlib
from tests.schedule.test_plan import mixed, text
from tests.schedule.plans import plan
for plain in (True, False):
    print(hashlib.sha256(text(plan(*mixed(), plain=plain)).encode()).hexdigest())
"""


def test_one_graph_has_one_schedule() -> None:
    """Made twice, and from a graph that was built twice."""
    values = mixed()
    first = text(plan(*values))
    assert text(plan(*values)) == first
    assert text(plan(*mixed())) == first
    assert text(plan(*mixed(), plain=True)) != first


def test_processes_agree_whatever_their_hash_seed() -> None:
    """Sets and dicts of strings are ordered anew in each process; no order of steps comes from
    them.
    """
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.append(
            subprocess.run(
                [sys.executable, "-c", SCRIPT],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert len(found[0].split()) == 2
    assert found[0] == found[1]


# items and their buffers


def launches(record: list[Launch]) -> list[Launch]:
    return [launch for launch in record if launch.kernel is not None]


@pytest.mark.row("F2.8")
def test_a_step_reads_the_buffer_that_an_earlier_one_wrote() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    with Context(NOOPT=1), recording() as record:
        assert x.var().item() == pytest.approx(5 / 3)
    copy, mean, variance = record
    assert copy.kernel is None
    assert mean.buffers[1] is copy.buffers[0]
    assert copy.buffers[0] in variance.buffers[1:]
    assert mean.buffers[0] in variance.buffers[1:]
    assert variance.buffers[0] not in (*mean.buffers, *copy.buffers)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("F2.8")
def test_results_are_allocated_just_before_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each step, one allocation more."""
    x = Tensor(numbers(100)).realize()
    y = (x + 1).contiguous()
    z = y * 2
    taken: list[tuple[bool, int]] = []
    run_step = run.run_step

    def watched(launch: Launch, *rest: Any, **named: Any) -> None:
        taken.append((launch.buffers[0].is_allocated, GlobalCounters.mem_used))
        run_step(launch, *rest, **named)
        assert launch.buffers[0].is_allocated

    # One step after the other, not all in one call.
    monkeypatch.setattr(run, "ready_plan", lambda plan: None)
    monkeypatch.setattr(run, "run_step", watched)
    gc.collect()
    before = GlobalCounters.mem_used
    Tensor.realize(y, z, z.sum())
    assert [was_allocated for was_allocated, _ in taken] == [False] * 3
    assert [used - before for _, used in taken] == [0, 400, 800]


def test_steps_run_in_the_order_of_the_list() -> None:
    x = Tensor.empty(4, 4)
    schedule = plan(*[(x + place).contiguous().sum(0) for place in range(3)], plain=True)
    written: set[int] = set()
    for item in schedule.items:
        for number in item.buffers[1:]:
            assert schedule.buffers[number].source is not None or number in written
        written.add(item.buffers[0])
    assert set(schedule.outputs) <= written


# several devices


@pytest.mark.row("F2.10")
def test_operands_on_two_devices_are_refused() -> None:
    x, y = Tensor.empty(3), Tensor.empty(3, device="CPU:1")
    with pytest.raises(DeviceError, match=r"add: .*two devices: CPU and CPU:1"):
        x + y
    assert (x.to("CPU:1") + y).device == "CPU:1"


@pytest.mark.row("F2.10")
def test_a_graph_over_two_devices_is_refused() -> None:
    """Whoever builds the graph by hand hears of both devices, too."""
    x, y = [
        UOp(Ops.BUFFER, dtypes.float, (), BufferArg(place, name, 4))
        for place, name in enumerate(("CPU", "CPU:1"))
    ]
    with pytest.raises(DeviceError, match="add: operands on two devices: CPU and CPU:1"):
        plan_nodes(x + y)
    moved = UOp(Ops.COPY, dtypes.float, (y,), "CPU")
    schedule = plan_nodes(x + moved)
    assert [item.device for item in schedule.items] == ["CPU", "CPU"]


@pytest.mark.row("F2.10")
def test_all_buffers_of_a_kernel_are_on_its_device() -> None:
    x = Tensor.empty(8, 16)
    there = (x.sum(1) + 1).to("CPU:1")
    back = (there * 2 + Tensor.empty(8, device="CPU:1")).to("CPU")
    schedule = plan(back + x.max(1), there)
    assert {item.device for item in kernels(schedule)} == {"CPU", "CPU:1"}
    for item in schedule.items:
        devices = [schedule.buffers[number].device for number in item.buffers]
        if item.is_copy:
            assert devices[0] == item.device
            assert len(set(devices)) == 2
        else:
            assert set(devices) == {item.device}


def test_two_devices_compute_together() -> None:
    array = numbers(8, 16)
    x = Tensor(array).realize()
    there = (x.sum(1) + 1).to("CPU:1") * 2
    close(there, (array.sum(1) + 1) * 2)
    close(x.max(1) + there.to("CPU"), array.max(1) + (array.sum(1) + 1) * 2)


# copies and their rows


def rows(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("***")]


@pytest.mark.row("F2.9")
def test_rows_name_the_kind_the_bytes_and_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Between two of a kind the back end moves the bytes itself; else they go through the host."""
    here = Tensor.zeros(500_000).contiguous().realize()
    small = Tensor.zeros(2).contiguous().realize()
    other = Tensor.zeros(2, device="EMU").contiguous().realize()
    with Context(DEBUG=2, NO_COLOR=1):
        here.to("CPU:1").realize()
        small.to("CPU:1").realize()
        other.to("CPU").realize()
    found = [row for row in rows(capsys.readouterr().out) if "<-" in row]
    expected = [
        r"CPU:1 +\d+ xfer +2\.00M, +CPU:1 <- CPU ",
        r"CPU:1 +\d+ xfer +8, +CPU:1 <- CPU ",
        r"CPU +\d+ copy +8, +CPU <- EMU ",
    ]
    assert len(found) == len(expected)
    for row, pattern in zip(found, expected, strict=True):
        assert re.search(pattern, row), row


@pytest.mark.row("F2.9")
def test_a_copy_of_another_size_or_dtype_is_refused() -> None:
    with pytest.raises(InternalError, match="4 bytes into a buffer of 12"):
        Device["CPU"].buffer(3, dtypes.float).copy_in(b"1234")
    with pytest.raises(InternalError, match="a buffer of 12 bytes into 4"):
        Device["CPU"].buffer(3, dtypes.float).copy_out(memoryview(bytearray(4)))
    x = Tensor([1.0, 2.0, 3.0]).realize()
    with pytest.raises(ShapeError, match=r"assign: shapes differ: \(3,\) and \(4,\)"):
        x.assign(Tensor([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(DTypeError, match=r"assign: .*float32 and int32"):
        x.assign(Tensor([1, 2, 3]))


@pytest.mark.row("M3.1")
def test_the_rows_of_a_dot_product(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes, not elements: 8 and 8 in, 4 out."""
    with Context(DEBUG=2, NO_COLOR=1):
        assert Tensor([1, 2]).dot(Tensor([3, 4])).item() == 11
    found = [row for row in rows(capsys.readouterr().out) if "<-" in row]
    sizes = [re.search(r"copy +(\S+), +(\S+) <- (\S+)", row) for row in found]
    assert [match.groups() for match in sizes if match is not None] == [
        ("8", "CPU", "HOST"),
        ("8", "CPU", "HOST"),
        ("4", "HOST", "CPU"),
    ]


@pytest.mark.row("M3.3")
def test_rows_show_the_memory_in_use_and_the_time_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twenty megabytes more with each result that is kept, and twenty less where one is not."""
    gc.collect()
    base = GlobalCounters.mem_used
    count = 5_000_000
    with Context(DEBUG=2, NO_COLOR=1):
        first = Tensor.zeros(count).contiguous().realize()
        second = (first + 1).realize()
        del first
        gc.collect()
        third = (second * 2).reshape(4, -1).sum(1).realize()
    assert third.tolist() == [count / 2] * 4
    pattern = re.compile(r"mem +(\S+) GB tm +\S+us/ *(\S+)ms")
    found = [match for row in rows(capsys.readouterr().out) if (match := pattern.search(row))]
    assert len(found) == 3
    expected = [base + 4 * count, base + 8 * count, base + 4 * count]
    assert [match[1] for match in found] == [f"{used / 1e9:.2f}" for used in expected]
    times = [float(match[2]) for match in found]
    assert times == sorted(times)


@pytest.mark.row("M3.4")
def test_the_last_line_sums_up() -> None:
    """Kernels, operations and bytes over the whole run; averages are the totals over the time."""
    script = (
        "from tilegrad import Tensor\n"
        "x = Tensor.zeros(1000000).contiguous().realize()\n"
        "for step in range(9): x = (x + 1).realize()\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "DEBUG": "2", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert len(rows(out)) == 10
    found = re.fullmatch(
        r"avg: +(\S+) GFLOPS +(\S+) GB/s +total: +10 kernels +(\S+) GOPS +(\S+) GB +(\S+) ms",
        out.splitlines()[-1],
    )
    assert found is not None
    gflops, rate, gops, gigabytes, milliseconds = map(float, found.groups())
    assert (gops, gigabytes) == (0.01, 0.08)  # nine times a million; 4 MB, and nine times 8 MB
    assert gflops == pytest.approx(9e-3 / (milliseconds / 1e3), rel=0.01, abs=0.006)
    assert rate == pytest.approx(76e-3 / (milliseconds / 1e3), rel=0.01, abs=0.006)


def test_kernels_of_one_form_are_finished_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six layers over other buffers: one kernel graph, and the passes of one."""
    finish, calls = kernel_items.finish, []

    def counted(raw: UOp, *given: Any, plain: bool) -> tuple[UOp, list[int]]:
        calls.append(raw)
        return finish(raw, *given, plain=plain)

    monkeypatch.setattr(kernel_items, "finish", counted)
    kernel_items._built.clear()
    x = Tensor.empty(8, 8)
    for _ in range(6):
        x = (x @ Tensor.empty(8, 8)).relu().contiguous()
    found = kernels(plan(x))
    assert len(found) == 6
    assert len({item.ast for item in found}) == 1
    assert len(calls) == 1
    # The same, but that both parameters are one.
    y = Tensor.empty(8, 8)
    plan((x @ y).relu().contiguous(), (y @ y).relu().contiguous())
    assert len(calls) == 2
