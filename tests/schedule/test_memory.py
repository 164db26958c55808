"""Temporary buffers share memory where their lives allow it, and the peak is known beforehand."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guarded import guard_pages
from tests.schedule.plans import plan
from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.dtype import dtypes
from tilegrad.engine.plans.plan import Plan
from tilegrad.engine.realize import realize
from tilegrad.engine.run import run
from tilegrad.schedule.items import BufferSpec, Item, Schedule
from tilegrad.schedule.memory_plan import plan_memory

ALIGNMENT = 64
shares_memory = pytest.mark.skipif(
    guard_pages.is_installed(), reason="beside guard pages temporaries have blocks of their own"
)


@st.composite
def schedules(draw: st.DrawFn, same_size: bool = False) -> Schedule:
    """Random graphs of steps: each writes one buffer and reads earlier ones, on one of two devices;
    now and then a step writes a buffer again.
    """
    count = draw(st.integers(1, 14))
    inputs = draw(st.integers(0, 2))
    specs = [BufferSpec("CPU", dtypes.float, 100, number) for number in range(inputs)]
    items: list[Item] = []
    for _ in range(count):
        made = range(len(specs))
        reads = tuple(draw(st.sets(st.sampled_from(made), max_size=3))) if specs else ()
        again = [number for number in made if specs[number].source is None and number not in reads]
        if again and draw(st.integers(0, 5)) == 0:
            target = draw(st.sampled_from(again))
        else:
            size = 16 if same_size else draw(st.integers(1, 300))
            device = "CPU" if same_size else draw(st.sampled_from(["CPU", "CPU:1"]))
            target = len(specs)
            specs.append(BufferSpec(device, dtypes.float, size))
        items.append(Item(specs[target].device, (target, *reads)))
    outputs = draw(st.sets(st.sampled_from(range(len(specs))), min_size=1, max_size=2))
    return Schedule(items, specs, sorted(outputs))


def lives(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """The first and the last step of every temporary buffer."""
    found: dict[int, tuple[int, int]] = {}
    for step, item in enumerate(schedule.items):
        for number in item.buffers:
            if schedule.buffers[number].source is None and number not in schedule.outputs:
                found[number] = (found.get(number, (step, step))[0], step)
    return found


def padded(spec: BufferSpec) -> int:
    return -(-spec.nbytes // ALIGNMENT) * ALIGNMENT


def most_alive(schedule: Schedule, device: str) -> int:
    """The bytes of all temporaries that some one step needs at once: no plan takes less."""
    spans = lives(schedule)
    return max(
        (
            sum(
                padded(schedule.buffers[number])
                for number, (first, last) in spans.items()
                if first <= step <= last and schedule.buffers[number].device == device
            )
            for step in range(len(schedule.items))
        ),
        default=0,
    )


@given(schedules())
def test_what_lives_at_one_time_shares_no_byte(schedule: Schedule) -> None:
    found = plan_memory(schedule, schedule.outputs)
    spans = lives(schedule)
    # Every temporary has its place; results and inputs never share.
    assert set(found.offsets) == set(spans)
    for number, offset in found.offsets.items():
        spec = schedule.buffers[number]
        assert offset % ALIGNMENT == 0
        assert 0 <= offset
        assert offset + spec.nbytes <= found.blocks[spec.device]
    for one, (first, last) in spans.items():
        for other, (start, end) in spans.items():
            specs = schedule.buffers[one], schedule.buffers[other]
            if one >= other or specs[0].device != specs[1].device or last < start or end < first:
                continue
            a, b = found.offsets[one], found.offsets[other]
            assert a + specs[0].nbytes <= b or b + specs[1].nbytes <= a
    for device, size in found.blocks.items():
        total = sum(
            padded(schedule.buffers[number])
            for number in spans
            if schedule.buffers[number].device == device
        )
        assert most_alive(schedule, device) <= size <= total


@given(schedules(same_size=True))
def test_equal_buffers_take_no_more_than_live_at_once(schedule: Schedule) -> None:
    """Whatever does not live at the same time shares: nothing is left over."""
    found = plan_memory(schedule, schedule.outputs)
    assert found.blocks.get("CPU", 0) == most_alive(schedule, "CPU")


def test_a_chain_needs_two_neighbours() -> None:
    value = Tensor.empty(1024)
    for _ in range(6):
        value = (value + 1).contiguous()
    schedule = plan(value.sum())
    found = plan_memory(schedule, schedule.outputs)
    assert len(found.offsets) == 6
    assert found.blocks == {"CPU": 2 * 4096}
    assert set(found.offsets.values()) == {0, 4096}


def test_what_is_kept_has_memory_of_its_own() -> None:
    first = (Tensor.empty(1024) + 1).contiguous()
    schedule = plan((first * 2).sum())
    (made,) = plan_memory(schedule, schedule.outputs).offsets
    found = plan_memory(schedule, [*schedule.outputs, made])
    assert (found.offsets, found.blocks) == ({}, {})


# what runs


@dataclass
class Watch:
    """The plans that were run, and the most memory each took beyond what was in use before it."""

    plans: list[Plan] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The allocator's own count after every step. Garbage is gone before, and nothing is collected
    meanwhile.
    """
    seen = Watch()
    run_plan, run_step = run.run_plan, run.run_step
    base = 0

    def counted(launch: Any, variables: Any, **rest: Any) -> None:
        run_step(launch, variables, **rest)
        seen.peaks[-1] = max(seen.peaks[-1], GlobalCounters.mem_used - base)

    def watched(plan: Plan, *rest: Any) -> Any:
        nonlocal base
        base = GlobalCounters.mem_used
        seen.plans.append(plan)
        seen.peaks.append(0)
        return run_plan(plan, *rest)

    # One step after the other, not all in one call.
    monkeypatch.setattr(run, "ready_plan", lambda plan: None)
    monkeypatch.setattr(run, "run_step", counted)
    monkeypatch.setattr(realize, "run_plan", watched)
    gc.collect()
    gc.disable()
    # A plan for a range of sizes that a test before has made takes as much as its largest size.
    with Context(SIZES=0):
        yield seen
    gc.enable()


@pytest.mark.usefixtures("nothing_known")
@shares_memory
def test_the_peak_of_a_chain(watch: Watch) -> None:
    value = start = Tensor(numbers(1024)).realize()
    watch.plans.clear()
    watch.peaks.clear()
    for _ in range(5):
        value = (value * 2).contiguous()
    total = value.sum()
    # What somebody holds would be kept.
    del value
    total.realize()
    (made,) = watch.plans
    assert made.peak_bytes == 2 * 4096 + 4
    assert watch.peaks == [made.peak_bytes]
    close(total, (start.numpy().astype(np.float64) * 32).sum().astype(np.float32), rtol=1e-4)


@pytest.mark.usefixtures("nothing_known")
def test_the_peak_of_a_diamond(watch: Watch) -> None:
    start = Tensor(numbers(1024)).realize()
    watch.plans.clear()
    watch.peaks.clear()
    top = (start + 1).contiguous()
    left, right = (top * 2).contiguous(), (top * 3).contiguous()
    before = GlobalCounters.mem_used
    result = left + right
    # What somebody holds would be kept.
    del top, left, right
    result.realize()
    (made,) = watch.plans
    # top, left and right at once; and the result, which stays.
    assert made.peak_bytes == 3 * 4096 + 4096
    assert watch.peaks == [made.peak_bytes]
    assert GlobalCounters.mem_used - before == 4096
    close(result, (start.numpy() + 1) * 5)


@pytest.mark.usefixtures("nothing_known")
@shares_memory
def test_the_peak_of_a_training_step(watch: Watch) -> None:
    """Forward, backward and update of a small convolutional net, in one plan."""
    layers: list[Any] = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        Tensor.relu,
        nn.Conv2d(4, 4, 3, padding=1),
        Tensor.relu,
        Tensor.max_pool2d,
        lambda x: x.flatten(1),
        nn.Linear(64, 10),
    ]
    x, y = Tensor(numbers(16, 1, 8, 8)).realize(), Tensor([3, 1] * 8).realize()
    optimizer = nn.optim.SGD(nn.state.get_parameters(layers), lr=0.1, momentum=0.9)
    with Tensor.train():
        for _ in range(2):
            gc.collect()
            watch.plans.clear()
            watch.peaks.clear()
            optimizer.zero_grad()
            loss = x.sequential(layers).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
            loss.realize()
    assert watch.peaks == [made.peak_bytes for made in watch.plans]
    made = max(watch.plans, key=lambda each: each.peak_bytes)
    specs = [BufferSpec(each.device, each.dtype, each.size, each.source) for each in made.buffers]
    steps = [Item(step.device, step.buffers) for step in made.steps]
    schedule = Schedule(steps, specs, list(made.outputs))
    needed = most_alive(schedule, "CPU")
    # Activations that are no longer needed make room for gradients; little is lost to gaps.
    apart = sum(padded(specs[number]) for number in lives(schedule))
    assert needed <= made.blocks["CPU"] <= needed * 1.05
    assert made.blocks["CPU"] < apart


@pytest.mark.usefixtures("nothing_known")
def test_memory_in_use_is_what_lives() -> None:
    gc.collect()
    before = GlobalCounters.mem_used
    x = Tensor(numbers(1000)).realize()
    assert GlobalCounters.mem_used - before == 4000
    y = (x * 2).realize()
    assert GlobalCounters.mem_used - before == 8000
    # A window is no memory of its own.
    window = y[10:20].realize()
    assert GlobalCounters.mem_used - before == 8000
    del y
    assert GlobalCounters.mem_used - before == 8000
    del window
    gc.collect()
    assert GlobalCounters.mem_used - before == 4000
    assert x.shape == (1000,)


@settings(max_examples=12)
@given(st.data())
def test_shared_memory_holds_the_right_values(data: st.DataObject) -> None:
    """Random graphs whose every value is in memory: nobody overwrites what is still needed."""
    arrays = [numbers(256, seed=seed).astype(np.float64) for seed in (0, 1)]
    tensors = [Tensor(array.astype(np.float32)).realize() for array in arrays]
    for _ in range(data.draw(st.integers(2, 8))):
        a, b = (data.draw(st.integers(0, len(tensors) - 1)) for _ in range(2))
        factor = data.draw(st.sampled_from([0.5, -0.25]))
        tensors.append((tensors[a] + tensors[b] * factor).contiguous())
        arrays.append(arrays[a] + arrays[b] * factor)
    with Context(NOOPT=data.draw(st.sampled_from([0, 1]))):
        result = (tensors[-1] + tensors[len(tensors) // 2]).realize()
    close(result, (arrays[-1] + arrays[len(arrays) // 2]).astype(np.float32), rtol=1e-5, atol=1e-5)
