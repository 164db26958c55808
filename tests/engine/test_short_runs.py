"""The short way of a known graph: taken where nobody else has to do with the run, and right also
where somebody has.
"""

from __future__ import annotations

import gc
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.engine.test_errors import filled, line_of, room_for
from tests.fresh import forget_others
from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.errors import InternalError, OutOfMemoryError, TilegradError
from tilegrad.engine.realize import bindings, known_graphs
from tilegrad.engine.realize.known_graphs import KnownGraph
from tilegrad.engine.run.leaf_memory import OverwrittenError
from tilegrad.engine.run.run import recording
from tilegrad.tensor.storage import short_reads

STEPS = 20
_random = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def by_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Runs of a graph are counted: no test is to find those of another.
    known_graphs._known.clear()
    bindings._bindings.clear()
    forget_others(monkeypatch)
    with Context(TEMPLATES=1, SEGMENTS=0, SIZES=1):
        yield


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each short way that is tried from now on, whether it gave the value."""
    results: list[bool] = []
    plain = KnownGraph.launch

    def launch(*args: Any) -> Any:
        memory = plain(*args)
        results.append(memory is not None)
        return memory

    monkeypatch.setattr(KnownGraph, "launch", launch)
    return results


def array(*shape: int) -> Any:
    return _random.normal(size=shape).astype(np.float32)


PROGRAMS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, int], Any]]] = {
    "numbers": (lambda x, i: x * (0.3 + i) + 1.25, lambda a, i: a * np.float32(0.3 + i) + 1.25),
    "slices": (lambda x, i: x[i : i + 3] * x[1:4], lambda a, i: a[i : i + 3] * a[1:4]),
    "sum": (lambda x, i: (x * x).sum(0), lambda a, i: (a * a).sum(0)),
    "truth": (lambda x, i: x > 0.25, lambda a, i: a > 0.25),
    "reshape": (lambda x, i: (x + 0.75).reshape(-1), lambda a, i: (a + 0.75).reshape(-1)),
    "gathered": (lambda x, i: (x.T * 0.7).contiguous(), lambda a, i: a.T * np.float32(0.7)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("templates", [1, 2])
def test_values_are_those_of_numpy(name: str, templates: int, taken: list[bool]) -> None:
    ours, theirs = PROGRAMS[name]
    data = array(40, 6)
    x = Tensor(data).realize()
    with Context(TEMPLATES=templates):
        for step in range(STEPS):
            made = ours(x, step).realize()
            np.testing.assert_allclose(made.numpy(), theirs(data, step), 1e-5, 1e-6)
    assert taken[-1] and sum(taken) > 5


def test_draws_are_others_each_time_and_the_same_again(taken: list[bool]) -> None:
    def drawn(segments: int) -> list[Any]:
        Tensor.manual_seed(3)
        x = Tensor(np.zeros(64, np.float32)).realize()
        with Context(SEGMENTS=segments):
            return [(x + x.rand_like() * 2.5).numpy() for _ in range(STEPS)]

    first = drawn(0)
    assert taken[-1]
    assert all((a != b).any() for a, b in pairwise(first))
    for a, b in zip(first, drawn(0), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_that_stands_on_the_one_before(taken: list[bool]) -> None:
    x, expected = Tensor(np.zeros(5, np.float32)).realize(), np.zeros(5)
    for step in range(STEPS):
        x = (x * 0.5 + float(step)).realize()
        expected = expected * 0.5 + step
    np.testing.assert_allclose(x.numpy(), expected, 1e-6)
    assert sum(taken) > 5


def test_what_somebody_holds_on_the_way_is_stored_as_ever(taken: list[bool]) -> None:
    data = array(6)
    x = Tensor(data).realize()
    for step in range(2 * STEPS):
        middle = x.exp()
        result = middle * middle.sum() + 0.75
        if step % 4:
            del middle
        np.testing.assert_allclose(result.numpy(), np.exp(data) * np.exp(data).sum() + 0.75, 1e-5)
        if not step % 4:
            before = GlobalCounters.kernel_count
            np.testing.assert_allclose(middle.numpy(), np.exp(data), 1e-6)
            assert GlobalCounters.kernel_count == before
    assert any(taken)


def test_what_another_graph_needs_is_stored_as_ever(taken: list[bool]) -> None:
    """`middle` itself is gone, and what is made of it is not."""
    data = array(300)
    x = Tensor(data).realize()
    for step in range(2 * STEPS):
        middle = x.exp().sum()
        other = (middle * 3.5).sqrt().log() if step % 3 == 0 else None
        result = x * middle
        del middle
        np.testing.assert_allclose(result.numpy(), data * np.exp(data).sum(), 1e-4)
        if other is not None:
            before = GlobalCounters.global_ops
            wanted = np.log(np.sqrt(3.5 * np.exp(data).sum()))
            np.testing.assert_allclose(other.numpy(), wanted, 1e-5)
            # The sum over 300 elements is not computed again.
            assert GlobalCounters.global_ops - before < 100
    assert any(taken)


def test_memory_that_was_overwritten_is_an_error(taken: list[bool]) -> None:
    data = array(4)
    x = Tensor(data).realize()
    for _ in range(STEPS):
        (x * 2.5 + 0.25).realize()
    y = x * 2.5 + 0.25
    # No tensor has it when its memory is written to.
    node = y.uop
    del y
    x += 1.0
    x.realize()
    del taken[:]
    with pytest.raises(OverwrittenError, match="was overwritten in place after its use"):
        Tensor._of(node).realize()
    assert taken == [False]
    z = x * 2.5 + 0.25
    np.testing.assert_allclose(z.numpy(), (data + 1) * 2.5 + 0.25, 1e-6)
    assert taken == [False, True]


def test_gradients_that_come_too_late_are_refused(taken: list[bool]) -> None:
    for _ in range(STEPS):
        x = Tensor(array(4)).realize()
        y = (x * x).exp().realize()
        with pytest.raises(TilegradError, match="requires_grad=True"):
            y.sum().gradient(x)
    assert taken[-1]


def test_parameters_and_their_graphs_are_left_to_the_long_way(taken: list[bool]) -> None:
    data = array(4)
    for _ in range(STEPS):
        w = Tensor(data, requires_grad=True)
        y = (w * w + 0.5).realize()
        y.sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), 2 * data, 1e-5)


def test_who_watches_sees_each_step() -> None:
    x = Tensor(array(4)).realize()
    for _ in range(STEPS):
        (x * 2.5 + 0.25).realize()
    with recording() as launches:
        (x * 2.5 + 0.25).realize()
    assert len(launches) == 1 and launches[0].calls == ("__mul__", "__add__")
    told = io.StringIO()
    with redirect_stdout(told), Context(DEBUG=2):
        (x * 2.5 + 0.25).realize()
    assert told.getvalue().count("['__mul__', '__add__']") == 1


def test_memory_is_counted_and_comes_back(taken: list[bool]) -> None:
    x = Tensor(array(1000)).realize()
    for _ in range(STEPS):
        (x * 2.5 + 0.25).realize()
    gc.collect()
    before = GlobalCounters.mem_used
    held = [(x * (3.5 + step) + 0.25).realize() for step in range(10)]
    assert GlobalCounters.mem_used - before == 40_000
    del held
    assert GlobalCounters.mem_used == before
    assert taken[-1]


def test_no_room_names_the_users_line() -> None:
    x = filled(2)
    for _ in range(STEPS):
        (x.sin() + 1.25).realize()
    y = x.sin() + 1.25  # no room for this
    with pytest.raises(OutOfMemoryError) as caught, room_for(100):
        y.realize()
    assert f"line:    {line_of('# no room for this', __file__)}" in str(caught.value)
    np.testing.assert_allclose(y.numpy(), np.sin(x.numpy()) + np.float32(1.25), 1e-5)


def test_calls_of_python_functions(taken: list[bool]) -> None:
    """What a run of a known graph costs in Python: 149 calls the long way."""
    x = Tensor(array(8, 16)).realize()
    for _ in range(2 * STEPS):
        (x * 2.0 + 1.0).realize()
    y = x * 2.0 + 1.0
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    y.realize()
    sys.setprofile(None)
    assert calls < 70 and taken[-1]


def test_a_short_way_that_would_leave_somebody_out_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`TEMPLATES=2` asks the long way too."""
    x = Tensor(array(50, 6)).realize()
    for _ in range(STEPS):
        (x.exp().sum(1) * 2.5).exp().realize()
    monkeypatch.setattr(short_reads, "_is_alone", lambda match: True)
    with Context(TEMPLATES=2):
        for _ in range(STEPS):
            (x.exp().sum(1) * 2.5).exp().realize()
        middle = x.exp().sum(1)
        with pytest.raises(InternalError, match="is not its long way"):
            (middle * 2.5).exp().realize()


def test_threads(taken: list[bool]) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        with Context(TEMPLATES=1, SEGMENTS=0):
            data = np.full(4, number, np.float32)
            x = Tensor(data).realize()
            for step in range(80):
                x = (x * 0.5 + float(step + 5)).realize()
                data = data * np.float32(0.5) + np.float32(step + 5)
                if x.tolist() != data.tolist():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and any(taken)
