"""Graphs of thousands of nodes are ordinary: they are built, planned and run without recursion, in
work and memory in proportion to their size, and nothing of them stays.

Work is counted, not timed: nodes that walks and rewrites went through.
"""

from __future__ import annotations

import gc
import inspect
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.trace import counters
from tilegrad.engine.build import pipeline
from tilegrad.engine.plans import plans
from tilegrad.engine.realize import bindings
from tilegrad.engine.run import leaf_memory, run
from tilegrad.grad import derivative_templates as grad_templates
from tilegrad.ir import uop
from tilegrad.runtime.buffer import Buffer
from tilegrad.schedule import kernel_items
from tilegrad.tensor.calls import template_table
from tilegrad.tensor.storage import block_runs, segments

Graph = Callable[[Tensor, int], Tensor]
START = np.linspace(-1, 1, 16)
# Ten times the nodes may cost this many times the work.
MOST = 13


def chain(x: Tensor, nodes: int) -> Tensor:
    for _ in range(nodes // 2):
        x = x * 0.5 + 1
    return x


def chain_value(x: np.ndarray, nodes: int) -> np.ndarray:
    """x / 2^n + 1 + 1/2 + ... + 1 / 2^(n-1)"""
    return x * 0.5 ** (nodes // 2) + 2 * (1 - 0.5 ** (nodes // 2))


def fan_in(x: Tensor, nodes: int) -> Tensor:
    """The sum of many values of one tensor, by pairs."""
    parts = [x + number for number in range(nodes // 2)]
    while len(parts) > 1:
        rest = parts[len(parts) // 2 * 2 :]
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + rest
    return parts[0]


def fan_in_value(x: np.ndarray, nodes: int) -> np.ndarray:
    count = nodes // 2
    return x * count + count * (count - 1) / 2


def diamonds(x: Tensor, nodes: int) -> Tensor:
    """Two values, each made of both: as many paths as 2 to the number of steps. A step is a
    rotation by a third of a right angle.
    """
    a, b = x, x * 2
    c, s = float(np.cos(np.pi / 6)), float(np.sin(np.pi / 6))
    for _ in range(nodes // 7):
        a, b = a * c + b * s, b * c - a * s
    return a


def diamonds_value(x: np.ndarray, nodes: int) -> np.ndarray:
    angle = np.pi / 6 * (nodes // 7)
    return x * np.cos(angle) + 2 * x * np.sin(angle)


def reductions(x: Tensor, nodes: int) -> Tensor:
    """The sum of many sums, each a kernel of its own."""
    total = x
    for number in range(nodes // 6):
        total = total + (x * number).sum().contiguous()
    return total


def reductions_value(x: np.ndarray, nodes: int) -> np.ndarray:
    count = nodes // 6
    return x + x.sum() * (count * (count - 1) / 2)


GRAPHS: list[tuple[Graph, Callable[[np.ndarray, int], np.ndarray], float]] = [
    (chain, chain_value, 1e-5),
    (fan_in, fan_in_value, 1e-5),
    # 1,400 rotations in float32, each of which may round once or twice.
    (diamonds, diamonds_value, 1e-3),
    (reductions, reductions_value, 1e-3),
]
each_graph = pytest.mark.parametrize(
    ("make", "value", "near"), GRAPHS, ids=[make.__name__ for make, _, _ in GRAPHS]
)


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Call it to forget every plan and kernel, so that loops are planned as a whole; the disk has
    none.
    """
    folders = iter(range(100))
    contexts: list[Context] = []

    def forget() -> None:
        bindings._bindings.clear()
        segments._known.clear()
        block_runs._lengths.clear()
        plans._plans.clear()
        pipeline._kernels.clear()
        kernel_items._built.clear()
        run._programs.clear()
        contexts.append(Context(CACHE=str(tmp_path / str(next(folders)))))
        contexts[-1].__enter__()

    yield forget
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def start() -> Tensor:
    return Tensor(START.tolist()).realize()


@contextmanager
def shallow(frames: int = 90) -> Iterator[None]:
    """Python may go only that much deeper."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def held() -> tuple[int, int]:
    """Live nodes and bytes in use, but for the constants of templates and the graphs of kernels
    that others may have as well: a limited number (tests/base/test_recent.py).
    """
    kernel_items._built.clear()
    for kept in (template_table, grad_templates):
        kept._known.clear()
        kept._came.clear()
    gc.collect()
    return len(uop._table), GlobalCounters.mem_used


def newer(than: list[Buffer]) -> list[Buffer]:
    """Live buffers that were not alive when that list of them was made, and is still held: earlier
    tests' memory, which may go at any time, neither counts nor hides a leak.
    """
    known = {id(buffer) for buffer in than}
    return [buffer for buffer in leaf_memory.buffers() if id(buffer) not in known]


# values, work, memory


@pytest.mark.usefixtures("nothing_known")
@each_graph
def test_thousands_of_nodes(
    make: Graph,
    value: Callable[[np.ndarray, int], np.ndarray],
    near: float,
    cold: Callable[[], None],
) -> None:
    """Right values with little stack; ten times the nodes are at most 13 times the work; then
    nothing is left.
    """
    x = start()
    cold()
    make(x, 200).numpy()
    work: list[tuple[int, int, int]] = []
    for nodes in (300, 3000):
        cold()
        before, earlier = held(), leaf_memory.buffers()
        then = counters.visits, counters.rewrites, counters.compiles
        with shallow():
            result = make(x, nodes)
            size = len(result.uop.toposort())
            found = result.numpy()
            repr(result)
        assert 0.7 * nodes < size < 1.6 * nodes
        np.testing.assert_allclose(found, value(START, nodes), rtol=near, atol=near)
        now = counters.visits, counters.rewrites, counters.compiles
        work.append((now[0] - then[0], now[1] - then[1], now[2] - then[2]))
        assert work[-1][0] > nodes
        del result, found
        with shallow():
            gc.collect()
        # Interned constants may outlive the graph, in the kernels' keys.
        after = held()
        assert newer(earlier) == []
        assert after[1] <= before[1]
        assert after[0] - before[0] < 50
    for small, large in zip(*work):
        # Fewer than a hundred steps at so few nodes say nothing of growth.
        assert large <= MOST * max(small, 100)


@each_graph
def test_a_plan_that_is_known_costs_a_few_walks(
    make: Graph,
    value: Callable[[np.ndarray, int], np.ndarray],
    near: float,
    cold: Callable[[], None],
) -> None:
    x, other = start(), start()
    cold()
    make(x, 1000).realize()
    then = counters.visits, counters.rewrites
    result = make(other, 1000)
    size = len(result.uop.toposort())
    with shallow():
        found = result.numpy()
    assert counters.rewrites == then[1]
    assert counters.visits - then[0] < 25 * size
    np.testing.assert_allclose(found, value(START, 1000), rtol=near, atol=near)


@pytest.mark.parametrize(
    ("make", "few"),
    [
        (chain, 100), (fan_in, 100), (diamonds, 100),
        pytest.param(chain, 250, marks=pytest.mark.nightly),
        pytest.param(fan_in, 250, marks=pytest.mark.nightly),
        pytest.param(diamonds, 250, marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_memory_is_in_proportion(make: Graph, few: int, cold: Callable[[], None]) -> None:
    """Of Python's objects, at the highest, while a graph is built, planned and run. Each is traced,
    for several times the time. The lowest of some runs counts, as objects of other threads, which
    an earlier test may have left at work, are traced as well.
    """
    x = start()
    cold()
    make(x, 200).realize()

    def peak(nodes: int) -> int:
        cold()
        gc.collect()
        tracemalloc.start()
        try:
            make(x, nodes).realize()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small = peak(few)
    assert any(peak(10 * few) <= MOST * small for _ in range(3))


@pytest.mark.usefixtures("nothing_known")
def test_nodes_in_proportion_and_gone() -> None:
    """A graph that is never run: so many nodes while it lives, none after."""
    x = start()
    # What is known of the calls of a step has its two constants from now on.
    assert chain(x, 10).uop.src
    before = held()[0]
    counts = []
    for nodes in (1000, 10_000):
        graph = chain(x, nodes)
        # Who asks for the graph has the nodes of calls that wait.
        assert graph.uop.src
        counts.append(held()[0] - before)
        with shallow():
            del graph
        assert held()[0] == before
    assert counts == [1000, 10_000]


# gradients


@pytest.mark.usefixtures("nothing_known")
def test_backward_of_ten_thousand_nodes(cold: Callable[[], None]) -> None:
    """The derivative of each step is a half; of the sum of all steps as well."""
    x = start().requires_grad_()
    cold()
    work = []
    for nodes in (600, 6000):
        before = held()
        then = counters.visits
        with shallow():
            y = chain(x, nodes).sum() + fan_in(x, nodes).sum()
            y.backward()
            assert x.grad is not None
            found = x.grad.numpy()
        work.append(counters.visits - then)
        np.testing.assert_allclose(found, np.full(16, nodes / 2 + 0.5 ** (nodes // 2)), rtol=1e-5)
        x.grad = None
        del y, found
        assert held()[0] - before[0] < 50
    assert work[1] <= MOST * work[0]


# larger, by night


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("make", "value", "near"), GRAPHS[:3], ids=[make.__name__ for make, _, _ in GRAPHS[:3]]
)
def test_a_hundred_thousand_nodes(
    make: Graph,
    value: Callable[[np.ndarray, int], np.ndarray],
    near: float,
    cold: Callable[[], None],
) -> None:
    x = start()
    cold()
    make(x, 200).numpy()
    work = []
    for nodes in (10_000, 100_000):
        cold()
        then = counters.visits
        before, earlier = held(), leaf_memory.buffers()
        with shallow():
            result = make(x, nodes)
            found = result.numpy()
        work.append(counters.visits - then)
        np.testing.assert_allclose(found, value(START, nodes), rtol=10 * near, atol=10 * near)
        with shallow():
            del result, found
        after = held()
        assert newer(earlier) == []
        assert after[1] <= before[1] and after[0] - before[0] < 50
    assert work[1] <= MOST * work[0]
