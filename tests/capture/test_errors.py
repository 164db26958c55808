"""What cannot be captured says so, with the line and the remedy, and leaves nothing behind."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit
from tilegrad.base.errors import CaptureError, ShapeError

switch = False


def fails(function: Any, match: str, *args: Any) -> CaptureError:
    """The first call runs; the second is refused."""
    function(full(1, 2), *args)
    with pytest.raises(CaptureError, match=match) as caught:
        function(full(1, 2), *args)
    return caught.value


@pytest.mark.parametrize(
    ("method", "read"),
    [
        ("item", lambda x: x.sum().item()),
        ("numpy", lambda x: x.numpy()),
        ("tolist", lambda x: x.tolist()),
        ("__float__", lambda x: float(x.sum())),
        ("__int__", lambda x: int(x.sum())),
        ("__bool__", lambda x: bool(x.sum() > 0)),
        ("__array__", lambda x: np.asarray(x)),
        ("data", lambda x: x.data()),
    ],
)
def test_reading_a_value(method: str, read: Callable[[Tensor], Any]) -> None:
    @jit
    def function(x: Tensor) -> Tensor:
        y = x + 1
        read(y)
        return y * 2

    error = fails(function, f"{method} needs a value while function is captured")
    assert "test_errors.py" in str(error) and "remedy" in str(error)


@pytest.mark.row("M4.13")
def test_nothing_to_capture() -> None:
    fails(jit(lambda x: x), "didn't JIT anything")
    fails(jit(lambda x: None), "didn't JIT anything")


def test_manual_seed() -> None:
    def function(x: Tensor) -> Tensor:
        Tensor.manual_seed(3)
        return x + Tensor.rand(2)

    fails(jit(function), "calls manual_seed")


def test_random_numbers_of_python_and_numpy() -> None:
    fails(jit(lambda x: x * random.random()), "generator of Python or NumPy")
    fails(jit(lambda x: x * float(np.random.rand())), "generator of Python or NumPy")


def test_an_array_as_an_argument() -> None:
    """#10850: it is refused, not dropped."""
    error = fails(jit(lambda x, a: x + Tensor(a)), "a is a ndarray", np.ones(2, np.float32))
    assert "pass Tensor(a)" in str(error)


def test_a_large_array_that_is_read() -> None:
    array = np.ones(100_000, np.float32)
    fails(jit(lambda x: x + Tensor(array[:2])), "array is a ndarray of 400000 bytes")
    assert jit(lambda x: x + array.shape[0])(full(1, 2)).tolist() == [100001] * 2


def test_iterators() -> None:
    batches = iter([1, 2, 3, 4])
    fails(jit(lambda x: x + next(batches)), "batches is an iterator")
    fails(jit(lambda x, i: x + next(i)), "i is an iterator", iter([1, 2, 3]))


def test_results_of_other_kinds() -> None:
    class Answer:
        pass

    fails(jit(lambda x: (x + 1, Answer())), "gives a Answer")


def test_a_changed_argument() -> None:
    def function(x: Tensor, parts: list[Any]) -> Tensor:
        parts[0] = x + 1
        return x * 2

    fails(jit(function), r"changes its argument parts", [full(0, 2)])


def test_a_replaced_object() -> None:
    holder = types.SimpleNamespace(part=types.SimpleNamespace(rate=1.0))

    def function(x: Tensor) -> Tensor:
        y = x * holder.part.rate
        holder.part = types.SimpleNamespace(rate=2.0)
        return y

    fails(jit(function), r"replaces holder\.part")


def test_not_a_function() -> None:
    with pytest.raises(CaptureError, match="an int cannot be called"):
        jit(3)  # type: ignore[arg-type]


def test_an_error_leaves_nothing_half_captured() -> None:
    global switch
    state = full(0, 2)

    @jit
    def function(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        if switch:
            raise ValueError("stop")
        return x + state

    function(full(1, 2))
    switch = True
    view = full(5, 4)[1:3]
    for _ in range(2):
        with pytest.raises(ValueError, match="stop"):
            function(view)
    assert view.tolist() == [5, 5] and function.captures == 0
    switch = False
    for n in range(3):
        assert function(full(1, 2)).tolist() == [13 + n] * 2
    assert function.captures == 1
    assert state.tolist() == [14, 14]


def test_errors_of_the_graph_keep_their_class() -> None:
    function = jit(lambda x, y: x + y)
    for _ in range(3):
        function(full(1, 2), full(1, 2))
    with pytest.raises(ShapeError):
        function(full(1, 2), full(1, 3))
    assert function(full(1, 2), full(1, 2)).tolist() == [2, 2]


def test_reading_outside_is_fine() -> None:
    function = jit(lambda x: x + 1)
    for n in range(4):
        assert function(full(n, 2)).numpy().tolist() == [n + 1] * 2


def in_itself(kind: type) -> Any:
    held: Any = [full(3, 1)] if kind is list else {0: full(3, 1)}
    if kind is list:
        held.append(held)
    else:
        held[1] = held
    return held


@pytest.mark.parametrize("kind", [list, dict])
def test_an_argument_that_contains_itself(kind: type) -> None:
    function = jit(lambda x, held: x * held[0])
    fails(function, rf"held\[1\] is a {kind.__name__} that contains itself", in_itself(kind))


@pytest.mark.parametrize("kind", [list, dict])
def test_a_result_that_contains_itself(kind: type) -> None:
    function = jit(lambda x: in_itself(kind))
    fails(function, f"gives a {kind.__name__} that contains itself")


@pytest.mark.parametrize("kind", [list, dict])
def test_what_a_function_reads_may_contain_itself(kind: type) -> None:
    held = in_itself(kind)

    def read(x: Tensor) -> Tensor:
        return sum([part for part in held if isinstance(part, Tensor)], x * len(list(held)))

    function = jit(read if kind is list else lambda x: x * len(list(held.values())) + held[0])
    wanted = [5.0]
    for _ in range(3):
        assert function(full(1, 1)).tolist() == wanted
    # Another one where it stood in itself.
    held[1] = [1, 2, 3]
    assert function(full(1, 1)).tolist() == wanted
    assert function.captures >= 1
