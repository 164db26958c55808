"""Captured functions of functions."""

from __future__ import annotations

import threading

import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit


@pytest.mark.row("M4.8")
def test_nested_capture_inlines() -> None:
    counter = []

    @jit
    def inner(x: Tensor) -> Tensor:
        counter.append(1)
        return (x + 1).realize()

    @jit
    def outer(x: Tensor) -> Tensor:
        return inner(x) * 2

    for n in range(5):
        assert outer(full(n, 2)).tolist() == [2 * n + 2] * 2
    assert len(counter) == 2
    assert (outer.captures, inner.captures) == (1, 0)


def test_methods_capture_per_instance() -> None:
    """U3: two instances of a class have weights of their own."""

    class Scale:
        def __init__(self, factor: float):
            self.weight = full(factor, 2)

        @jit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

        @jit
        def twice(self, x: Tensor) -> Tensor:
            return x * self.weight * 2

    one, other = Scale(10), Scale(15)
    for n in range(4):
        assert one(full(n, 2)).tolist() == [10 * n] * 2
        assert other(full(n, 2)).tolist() == [15 * n] * 2
        assert other.twice(full(n, 2)).tolist() == [30 * n] * 2


def test_a_copied_instance_does_not_share() -> None:
    import copy

    class Scale:
        def __init__(self) -> None:
            self.weight = full(3, 2)

        @jit
        def run(self, x: Tensor) -> Tensor:
            return x * self.weight

    one = Scale()
    for n in range(3):
        one.run(full(n, 2))
    other = copy.deepcopy(one)
    other.weight.assign(other.weight + 1).realize()
    for n in range(4):
        assert one.run(full(n, 2)).tolist() == [3 * n] * 2
        assert other.run(full(n, 2)).tolist() == [4 * n] * 2


def test_instances_are_freed() -> None:
    import gc
    import weakref

    class Scale:
        @jit
        def run(self, x: Tensor) -> Tensor:
            return x * 2

    one = Scale()
    for n in range(3):
        one.run(full(n, 2))
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


def test_reset_and_explain() -> None:
    function = jit(lambda x: x + 1)
    assert "nothing captured" in function.explain()
    for n in range(3):
        function(full(n, 2))
    shown = function.explain()
    assert "kernels: 1 on CPU" in shown and "x: (2,) float32 on CPU, argument" in shown
    function.reset()
    assert function.captures == 0
    for n in range(3):
        assert function(full(n, 2)).tolist() == [n + 1] * 2


def test_threads_share_a_function() -> None:
    function = jit(lambda x: ((x * 2).contiguous() + 1).sum())
    wrong: list[object] = []

    def work(start: int) -> None:
        try:
            for n in range(start, start + 20):
                found = function(full(n, 3)).item()
                if found != 3 * (2 * n + 1):
                    wrong.append((n, found))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
