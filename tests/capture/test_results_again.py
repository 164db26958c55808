"""A result that nobody has any more is given again by a later call: nobody can tell."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Context, Tensor, jit, no_grad

# What a user may do with a result, before it is dropped or not.
_USES: list[Callable[[Tensor], Any]] = [
    lambda y: y,
    lambda y: y[1],
    lambda y: y.T,
    lambda y: y.reshape(6),
    lambda y: y.reshape(6).reshape(2, 3),
    lambda y: y.permute(1, 0).permute(1, 0),
    lambda y: y.detach(),
    lambda y: y + 0,
    lambda y: (y + 0).realize(),
    lambda y: y.numpy(),
    lambda y: [y, y[0]],
    lambda y: y.clone(),
    lambda y: y.flip(0),
]


def _shown(used: Any) -> Any:
    if isinstance(used, list):
        return [_shown(each) for each in used]
    return used.tolist()


def _meant(use: Callable[[Any], Any], value: np.ndarray[Any, Any]) -> Any:
    """The same of an array, which knows no `detach`, `permute` and so on."""
    number = _USES.index(use)
    of_array: dict[int, Callable[[], Any]] = {
        1: lambda: value[1],
        2: lambda: value.T,
        3: lambda: value.reshape(6),
        10: lambda: [value, value[0]],
        12: lambda: value[::-1],
    }
    return _shown(of_array[number]() if number in of_array else value)


@pytest.mark.row("M4.9")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_left_of_results_stays_as_it_was(seed: int) -> None:
    """Views, graphs and arrays of earlier results, in any mixture, against NumPy."""
    draw = random.Random(seed)
    step = jit(lambda x: (x * 2, (x + 1).T))
    held: list[tuple[Any, Any]] = []
    for call in range(60):
        array = np.full((2, 3), float(call), np.float32) + np.arange(3, dtype=np.float32)
        results = step(Tensor(array).realize())
        for result, value in zip(results, (array * 2, array.T + 1), strict=True):
            assert result.tolist() == value.tolist()
        use = draw.choice(_USES)
        held.append((use(results[0]), _meant(use, array * 2)))
        if draw.random() < 0.3:
            held.append((results[1], (array.T + 1).tolist()))
        del result, results
        while len(held) > draw.choice([0, 1, 3, 6]):
            used, meant = held.pop(draw.randrange(len(held)))
            assert _shown(used) == meant
            del used
    for used, meant in held:
        assert _shown(used) == meant


def test_what_a_user_changed_is_not_given_again() -> None:
    add = jit(lambda x: x + 1)
    x = full(1, 4)
    for _ in range(3):
        add(x)
    y = add(x)
    y += 5
    assert y.tolist() == [7.0] * 4
    del y
    assert add(x).tolist() == [2.0] * 4
    y = add(x)
    y.requires_grad_()
    (y * 3).sum().backward()
    assert y.grad is not None
    del y
    y = add(x)
    assert y.grad is None
    assert not y.requires_grad
    with no_grad():
        y[0] = 100
    del y
    assert add(x).tolist() == [2.0] * 4


def test_who_refers_to_a_result_weakly_sees_one_call() -> None:
    add = jit(lambda x: x + 1)
    x = full(1, 4)
    for _ in range(3):
        add(x)
    reference = weakref.ref(add(x))
    after = add(x)
    assert reference() is not after


def test_a_result_that_is_the_next_argument() -> None:
    """The memory that a call reads is not the one that it writes."""
    step = jit(lambda x: (x[::-1] + 1).contiguous())
    array = np.arange(4, dtype=np.float32)
    y = Tensor(array).realize()
    for _ in range(9):
        y, array = step(y), array[::-1] + 1
    assert y.tolist() == array.tolist()


def test_attributes_of_a_tensor_of_tilegrad_torch() -> None:
    from tilegrad import torch

    add = jit(lambda x: x + 1)
    x = torch.ones(4)
    for _ in range(3):
        add(x)
    y: Any = add(x)
    y.remark = "mine"
    del y
    assert not hasattr(add(x), "remark")


def test_modes_take_turns() -> None:
    """Each mode has a capture of its own, and none serves another."""
    x = full(2, 4)
    step = jit(lambda x: x * 2 if Tensor.training else x * 3)
    found = []
    for call in range(8):
        with Tensor.train(call % 2 == 0):
            found.append(step(x).tolist()[0])
    assert found == [4.0, 6.0] * 4
    assert step.captures == 2
    with Context(JIT=0):
        assert step(x).tolist()[0] == (4.0 if Tensor.training else 6.0)
    with Context(JIT=2):
        assert step(x).tolist()[0] == (4.0 if Tensor.training else 6.0)


def test_threads_are_given_results_of_their_own() -> None:
    step = jit(lambda x: x * 2)
    for _ in range(3):
        step(full(1, 8))
    wrong: list[float] = []

    def work(number: int) -> None:
        x = full(number, 8)
        last = step(x)
        for _ in range(300):
            now = step(x)
            if last.tolist() != [2.0 * number] * 8:
                wrong.append(number)
            last = now

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
