"""Nothing runs before it is asked for; what runs is counted; the examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import threading

import numpy as np
import pytest

import tilegrad.tensor
from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, dtypes
from tilegrad.engine.run.run import recording
from tilegrad.ir import Ops


def kernels() -> int:
    return GlobalCounters.kernel_count


@pytest.mark.row("S1.1")
def test_only_reading_runs() -> None:
    a, b = Tensor(numbers(4, 4)).realize(), Tensor(numbers(4, 4, seed=1)).realize()
    before = kernels()
    c = (a + b).exp().reshape(16)[::2]
    assert kernels() == before
    c.realize()
    assert kernels() == before + 1


@pytest.mark.row("S1.12")
@pytest.mark.parametrize("noopt", [0, 1])
def test_the_readers_exercises(noopt: int) -> None:
    a, b = numbers(4, 4), numbers(4, 4, seed=1)
    ours, theirs = Tensor(a).realize(), Tensor(b).realize()
    with Context(NOOPT=noopt), recording() as record:
        before = kernels()
        close(ours * theirs, a * b)
        assert kernels() == before + 1
        close(ours.sum(0), a.sum(0))
        assert kernels() == before + 2
    names = [launch.kernel.name for launch in record if launch.kernel is not None]
    assert [name[0] for name in names] == ["E", "r"]


@pytest.mark.row("F1.1", "R5.1")
def test_a_product_is_one_kernel() -> None:
    a, b = Tensor([1, 2]).realize(), Tensor([3, 4]).realize()
    before = kernels()
    assert a.dot(b).numpy() == 11
    assert kernels() == before + 1


@pytest.mark.row("F2.3", "F2.2")
def test_a_reduced_value_that_is_expanded_is_stored_in_the_plain_plan() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    with Context(NOOPT=1):
        before = kernels()
        assert abs((x - x.mean()).sum().item()) < 1e-6
        assert kernels() == before + 2
        assert (x.sum() * 2 + 1).item() == 21
        assert kernels() == before + 3
        assert x.var().item() == pytest.approx(1.6666667)
        assert kernels() == before + 5


@pytest.mark.row("M1.3", "R3.2")
def test_movement_of_memory_runs_no_kernel() -> None:
    x = Tensor(numbers(4, 6)).realize()
    before = kernels()
    for moved in (
        x.T.T,
        x.reshape(2, 12),
        x[1:3, ::2],
        x.flip(0),
        x._patches("pool", (2, 2), (1, 1), (1, 1)),
    ):
        moved.realize()
    assert kernels() == before
    x.T.contiguous().realize()
    assert kernels() == before + 1


@pytest.mark.row("R3.3")
def test_a_convolution_is_one_kernel() -> None:
    x, w = Tensor(numbers(1, 3, 6, 6)).realize(), Tensor(numbers(4, 3, 3, 3)).realize()
    before = kernels()
    x.conv2d(w, padding=1).relu().realize()
    assert kernels() == before + 1


@pytest.mark.row("R9.2", "R9.3")
def test_realize_and_contiguous_cut_kernels() -> None:
    a = Tensor(numbers(4, 4)).realize()
    before = kernels()
    ((a + 4).realize() + 3).realize()
    assert kernels() == before + 2
    cut = (a + 5).contiguous() + 3
    assert kernels() == before + 2
    assert [node.op for node in cut.uop.toposort()].count(Ops.CONTIGUOUS) == 1
    cut.realize()
    assert kernels() == before + 4


@pytest.mark.row("F2.7")
def test_equal_graphs_are_one_graph() -> None:
    x = Tensor(numbers(5))
    assert ((x * 2) + 1).uop is ((x * 2) + 1).uop
    squared = [node for node in x.var().uop.toposort() if node.op is Ops.REDUCE_AXIS]
    # The mean, the squares of what is left, and what the mean was rounded by.
    assert len(squared) == 3


@pytest.mark.row("X.1")
def test_constants_read_no_memory() -> None:
    before = kernels()
    assert (Tensor(3.0) + 1).item() == 4.0
    assert kernels() <= before + 1
    assert Tensor(7).item() == 7
    assert kernels() <= before + 1


def test_several_tensors_realize_together() -> None:
    x = Tensor(numbers(3))
    a, b = x + 1, x * 2
    assert a.realize(b) is a
    assert {a.uop.op, b.uop.op} == {Ops.BUFFER}


def test_copies_between_devices() -> None:
    x = Tensor(numbers(3)).realize()
    other = (x + 1).to("CPU:1")
    assert other.device == "CPU:1"
    close(other * 2, (numbers(3) + 1) * 2)
    assert Tensor.ones(2, device="CPU:1").contiguous().realize().tolist() == [1, 1]
    assert (Tensor.ones(2, device="CPU:1") * 3).realize().to("CPU").tolist() == [3, 3]
    assert x.to("cpu:0") is x


def test_read_arrays_are_read_only() -> None:
    array = Tensor(numbers(3)).numpy()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_threads_build_and_run_at_once() -> None:
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        x = Tensor(numbers(8, 8, seed=number))
        for _ in range(3):
            x = (x @ x).tanh() + number
        found[number] = x.sum(0).tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        x = numbers(8, 8, seed=number)
        for _ in range(3):
            x = np.tanh(x @ x) + np.float32(number)
        np.testing.assert_allclose(found[number], x.sum(0), rtol=1e-3)


def test_deep_graphs_need_no_recursion() -> None:
    x = Tensor([1.0], dtype=dtypes.float32)
    for _ in range(3000):
        x = x + 1
    assert x.shape == (1,)
    assert len(x.uop.toposort()) >= 3000
    np.testing.assert_equal(len(repr(x).splitlines()), 1)


MODULES = [item.name for item in pkgutil.iter_modules(tilegrad.tensor.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"tilegrad.tensor.{name}")
    globs = {"Tensor": Tensor, "dtypes": dtypes}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for kind in [item for item in vars(module).values() if inspect.isclass(item)]:
        if kind.__module__ != module.__name__:
            continue
        for member in [kind, *vars(kind).values()]:
            function = inspect.unwrap(getattr(member, "__func__", member))
            for example in (
                finder.find(function, name, module=False, globs=globs) if function.__doc__ else []
            ):
                runner.run(example)
    assert runner.failures == 0
