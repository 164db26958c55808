"""Graphs that come again are found by code that was written for them, not by a walk: the values are
NumPy's, whatever is the same and whatever is another than when it was written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.fresh import forget_others
from tilegrad import Context, Tensor
from tilegrad.base.errors import InternalError, TilegradError
from tilegrad.base.trace import counters
from tilegrad.engine.realize import known_graphs
from tilegrad.ir.op import Ops
from tilegrad.tensor.storage import short_reads
from tilegrad.tensor.storage.past import pasts

STEPS = 14
_random = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def by_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Both ways are taken and compared.
    forget_others(monkeypatch)
    known_graphs._known.clear()
    with Context(TEMPLATES=2, SEGMENTS=0, SIZES=1):
        yield


def array(*shape: int) -> Any:
    return _random.normal(size=shape).astype(np.float32)


def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that has the number of nodes of each graph that code finds from now on."""
    sizes: list[int] = []
    plain = known_graphs.KnownGraph.find

    def find(*args: Any) -> Any:
        made = plain(*args)
        if made is not None:
            sizes.append(len(made.found[0]))
        return made

    monkeypatch.setattr(known_graphs.KnownGraph, "find", find)
    return sizes


def test_a_graph_over_other_memory_takes_no_walk() -> None:
    data = array(3, 4)
    with Context(TEMPLATES=1):
        for step in range(STEPS):
            x = Tensor(data + step).realize()
            y = x * x
            for _ in range(20):
                y = y + x
            before = counters.visits
            y.realize()
            visits = counters.visits - before
            np.testing.assert_allclose(y.numpy(), (data + step) ** 2 + 20 * (data + step), 1e-4)
    assert visits < 5


def test_graphs_that_look_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = found(monkeypatch)
    programs: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x * y + y * x,
        lambda x, y: x * y + x * x,
        lambda x, y: x * x + x * x * 1.0,
        lambda x, y: (x + 3.0) * (y + 3.0),
        lambda x, y: (x + 3.0) * (x + 3.0),
        lambda x, y: (x + 3.0) * (y - 3.0),
        lambda x, y: (x + 3.0) * (y + 4.0),
    ]
    a, b = array(4, 4), array(4, 4)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    for _ in range(STEPS):
        for program in programs:
            np.testing.assert_allclose(program(x, y).numpy(), program(a, b), 1e-5, 1e-5)
            # Of two leaves that are one memory the graph is another one.
            np.testing.assert_allclose(program(x, x).numpy(), program(a, a), 1e-5, 1e-5)
            np.testing.assert_allclose(program(y, x).numpy(), program(b, a), 1e-5, 1e-5)
    assert len(sizes) > len(programs)


def test_numbers_that_change_are_equal_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = found(monkeypatch)
    data = array(5)
    x = Tensor(data).realize()
    numbers = [0.1, 0.2, 0.3, 0.1, 1.0, 0.7, 0.0, 0.4, 2.0, float("inf"), 0.9]
    for step in range(5 * len(numbers)):
        first, second = numbers[step % 11], numbers[step * 7 % 11]
        y = (x * first).exp() + (x * second).exp() + 0.25
        with np.errstate(all="ignore"):
            wanted = np.exp(data * np.float32(first)) + np.exp(data * np.float32(second)) + 0.25
        np.testing.assert_allclose(y.numpy(), wanted, 1e-5)
    assert sizes


def test_slices_whose_offsets_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = found(monkeypatch)
    data = array(60, 6)
    x = Tensor(data).realize()
    for step in range(2 * STEPS):
        rows, others = x[step : step + 5], x[50 - step : 55 - step]
        np.testing.assert_allclose(
            (rows * others + rows).numpy(),
            data[step : step + 5] * data[50 - step : 55 - step] + data[step : step + 5],
            1e-5, 1e-6,
        )  # fmt: skip
        part = x[step : step + 5, step % 3 : step % 3 + 2]
        np.testing.assert_allclose(
            (part * part).numpy(), data[step : step + 5, step % 3 : step % 3 + 2] ** 2, 1e-5
        )
    assert sizes


def test_what_is_held_on_the_way_is_stored_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = found(monkeypatch)
    data = array(8, 8)
    x, expected = Tensor(data).realize(), data.astype(np.float64)
    older = []
    for step in range(2 * STEPS):
        norm = (x * x).sum().sqrt()
        x = (x / norm + 0.5) * 1.25
        middle = x.sin()
        result = middle.sum(0)
        expected = (expected / np.sqrt((expected**2).sum()) + 0.5) * 1.25
        np.testing.assert_allclose(result.numpy(), np.sin(expected).sum(0), 1e-4, 1e-4)
        if step % 3 == 0:
            older.append((x, expected.copy(), middle))
    for value, wanted, middle in older:
        np.testing.assert_allclose(value.numpy(), wanted, 1e-4, 1e-4)
        np.testing.assert_allclose(middle.numpy(), np.sin(wanted), 1e-4, 1e-4)
    assert sizes


def test_writes_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = found(monkeypatch)
    data = array(6)
    x, expected = Tensor(data.copy()).realize(), data.copy()
    for step in range(2 * STEPS):
        before = x[1:4] * 2.0
        x += 1.0
        x[2] = 7.0
        wanted = expected[1:4] * 2.0
        expected += 1.0
        expected[2] = 7.0
        # Whichever is read first.
        if step % 2:
            np.testing.assert_allclose(before.numpy(), wanted, 1e-6)
        np.testing.assert_allclose(x.numpy(), expected, 1e-6)
        np.testing.assert_allclose(before.numpy(), wanted, 1e-6)
    assert sizes


def test_gradients_through_what_was_read_are_refused_each_time() -> None:
    with Context(TEMPLATES=1):
        for _ in range(STEPS):
            x = Tensor(array(4)).realize()
            view = x[1:3]
            y = (x * x).exp().realize()
            z = (view * view).exp().realize()
            with pytest.raises(TilegradError, match="requires_grad=True"):
                y.sum().gradient(x)
            with pytest.raises(TilegradError, match="requires_grad=True"):
                z.sum().gradient(view)
            assert len(pasts[y.uop.src[0].arg.slot].links if y.uop.src else []) < 5


def test_a_value_whose_memory_was_overwritten_is_an_error_each_time() -> None:
    for _ in range(STEPS):
        x = Tensor(array(4), requires_grad=True)
        y = x.exp().realize()
        ((y * 2.0) + 1.0).realize()
        np.testing.assert_allclose(y.numpy(), np.exp(x.numpy()), 1e-5)


_STEPS: list[Callable[[Any, Any, float], Any]] = [
    lambda a, b, by: a + b,
    lambda a, b, by: a * b,
    lambda a, b, by: a - 0.5 * b,
    lambda a, b, by: a.T + b,
    lambda a, b, by: a * 0.3 + by,
    lambda a, b, by: b[:2].sum(0) + a,
]


@pytest.mark.parametrize("programs", [4, pytest.param(12, marks=pytest.mark.nightly)])
def test_random_programs(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of some operations, each some times over other memory and with other numbers."""
    sizes = found(monkeypatch)
    for number in range(programs):
        choices = np.random.default_rng(number).integers(0, 6, 14)
        for step in range(STEPS):
            arrays = [array(4, 4) for _ in range(3)]
            values = [Tensor(each).realize() for each in arrays]
            held = []
            for position, choice in enumerate(choices):
                for each in (values, arrays):
                    a, b = each[position * 5 % 3], each[(position + choice) % 3]
                    each[position % 3] = _STEPS[choice](a, b, 0.01 * step)
                if step % 4 == 3 and position % 5 == step % 5:
                    held.append((values[position % 3], arrays[position % 3]))
            # The others are released: code is written for graphs with one result.
            result = values[0]
            values.clear()
            np.testing.assert_allclose(result.numpy(), arrays[0], 2e-3, 2e-3)
            for value, wanted in held:
                np.testing.assert_allclose(value.numpy(), wanted, 2e-3, 2e-3)
    assert len(sizes) > 2.5 * programs


def test_code_that_finds_another_graph_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tensors with gradients or variables that other tests hold ask for the long way.
    monkeypatch.setattr(short_reads, "_is_special", lambda: False)
    x, y = Tensor(array(3)).realize(), Tensor(array(3)).realize()
    for _ in range(STEPS):
        (x * 2.5 - y).realize()
    (graphs,) = known_graphs._known.values()
    match = graphs[0]._match

    def swapped(*args: Any) -> Any:
        found, members = match(*args)  # type: ignore[misc]
        nodes = [*found]
        one, two = [number for number, node in enumerate(nodes) if node.op is Ops.BUFFER]
        nodes[one], nodes[two] = nodes[two], nodes[one]
        return nodes, members

    graphs[0]._match = swapped
    with pytest.raises(InternalError, match="is not its long way"):
        (x * 2.5 - y).realize()


def test_threads_find_their_own_graphs() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        with Context(TEMPLATES=1, SEGMENTS=0):
            data = np.full(4, number, np.float32)
            x = Tensor(data).realize()
            for step in range(60):
                if (x * 3.0 + float(step + 5)).tolist() != (data * 3 + step + 5).tolist():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
