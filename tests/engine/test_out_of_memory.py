"""A device without room: what is refused, what is given back, and what is as before."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

from tests.engine.test_errors import N, filled, line_of, room_for, state
from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.errors import OutOfMemoryError


def test_out_of_memory_says_what_was_computed_where() -> None:
    x = filled(2)
    y = x.sin() + 1.25  # too large
    with pytest.raises(OutOfMemoryError) as caught, room_for(100):
        y.realize()
    lines = str(caught.value).splitlines()
    assert lines[0] == "allocate: 20000 bytes do not fit on CPU"
    assert lines[1].startswith("  in_use:  ") and lines[1].endswith(" bytes")
    assert lines[2].startswith("  largest: ")
    assert lines[3] == "  call:    sin, __add__"
    assert lines[4] == f"  line:    {line_of('# too large', __file__)}"
    assert lines[5].startswith("  remedy:  free tensors")
    assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("segments", [0, 1])
def test_out_of_memory_names_the_lines_that_hold_most(segments: int) -> None:
    gc.collect()
    with Context(SEGMENTS=segments):
        kept = []
        for number in range(3):
            kept.append((Tensor.ones(1 << 22) * number).realize())  # three of them
        kept.append(Tensor(np.ones(1 << 23, np.float32)).realize() + 0)
        kept[-1].realize()  # a read of what the line above made
        weight = Tensor.rand(1 << 21).realize()  # random
        more = Tensor.ones(N) + weight.sum()
        with pytest.raises(OutOfMemoryError) as caught, room_for(0):
            more.realize()
    held = str(caught.value.details["largest"]).split("; ")
    assert held[0] == f"50.33 MB in 3 buffers made at {line_of('# three of them', __file__)}"
    assert held[1].startswith("33.55 MB made at ")
    assert f"8.39 MB made at {line_of('# random', __file__)}" in held


def test_out_of_memory_in_a_loop_of_equal_steps_names_the_lines_too() -> None:
    gc.collect()
    kept = []
    x = Tensor(np.ones(1 << 20, np.float32)).realize()
    for _ in range(12):
        kept.append(x * 3)  # of equal steps
        float(kept[-1].sum().item())
    with pytest.raises(OutOfMemoryError) as caught, room_for(0):
        (Tensor.ones(N) + x.sum() * 2).realize()
    held = str(caught.value.details["largest"])
    # The first steps may add up without storing.
    found = re.match(
        rf"\S+ MB in (\d+) buffers made at {line_of('# of equal steps', __file__)};", held
    )
    assert found is not None and int(found[1]) > 8, held


@pytest.mark.usefixtures("nothing_known")
def test_after_out_of_memory_everything_is_as_before() -> None:
    """Of three kernels the last finds no room: none runs, and what was taken for the others goes
    back at once, though the error is still at hand.
    """
    x = filled(2)

    def computed() -> Tensor:
        first = (x + x.sum()).contiguous()
        return (first + first.max()).contiguous() + first.sum()

    with Context(NOOPT=1):
        expected = computed().tolist()
        y = computed()
        before, kernels = state(), GlobalCounters.kernel_count
        failed: list[BaseException] = []
        with room_for(45_000):
            try:
                y.realize()
            except OutOfMemoryError as error:
                failed.append(error)
        assert failed and GlobalCounters.kernel_count == kernels
        assert state() == before
        assert x.tolist() == [2] * N
        assert y.tolist() == expected
        assert expected[0] == pytest.approx(2 * (2 + 2 * N) + N * (2 + 2 * N), rel=1e-3)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("kind", ["copy", "empty", "kernel", "two devices"])
def test_out_of_memory_of_each_kind(kind: str) -> None:
    value = {
        "copy": lambda: Tensor(bytes(N)),
        "empty": lambda: Tensor.empty(N) + 1,
        "kernel": lambda: Tensor.full((N,), 3.0) * 2,
        "two devices": lambda: Tensor(bytes(N), device="CPU:1").to("CPU"),
    }[kind]()
    before = state()
    for debug in (0, 2):
        refused = pytest.raises(OutOfMemoryError, match="do not fit on CPU")
        with Context(DEBUG=debug), refused, room_for(0):
            value.realize()
        gc.collect()
        assert GlobalCounters.mem_used <= before[0]
    assert value.contiguous().realize().shape == (N,)


def test_an_assignment_without_room_writes_nothing() -> None:
    """What is read after the write finds no room: then nothing was written, and done again it is
    done once.
    """
    a = filled(1)
    a.assign(a + 1)
    after = (a * 10).contiguous()
    for _ in range(2):
        with room_for(0), pytest.raises(OutOfMemoryError):
            a.realize(after)
    a.realize(after)
    assert (a[0].item(), after[0].item()) == (2, 20)


def test_a_part_that_is_not_written() -> None:
    x = filled(1)
    places = Tensor([3, 5]).realize()
    window = filled(7, N - 1).reshape(1, N - 1)
    for key, value in ((places, 2.0), (slice(1, N), window.sum(0).contiguous())):
        x[key] = value
        with room_for(0), pytest.raises(OutOfMemoryError):
            x.realize()
    # Both wait for room, in their order.
    assert x.tolist() == [1] + [7] * (N - 1)
    x[places] = 2.0
    assert x.tolist()[:7] == [1, 7, 7, 2, 7, 2, 7]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_step_without_room_can_be_done_again(kind: str, is_first: bool) -> None:
    """Parameters and the optimizer's state are as if the step had not been tried."""

    def step(weight: Tensor, optimizer: Any) -> None:
        with Tensor.train():
            optimizer.zero_grad()
            ((weight * weight).contiguous() * weight.sum()).sum().backward()
            optimizer.step()

    found = []
    for is_short in (False, True):
        weight = (Tensor.full((N,), 3.0).contiguous() * 1).realize().requires_grad_()
        optimizer: Any = (
            nn.optim.SGD([weight], lr=1e-9) if kind == "SGD" else nn.optim.Adam([weight], lr=1e-3)
        )
        if not is_first:
            step(weight, optimizer)
        if is_short:
            with room_for(0), pytest.raises(OutOfMemoryError, match=r"line: .*test_out_of_memory"):
                step(weight, optimizer)
            assert weight.tolist() == ([3.0] * N if is_first else weight.tolist())
        step(weight, optimizer)
        found.append(weight[0].item())
    assert found[0] == found[1] < 3
