"""Captured functions that give views of their arguments: each is a view of the argument at hand,
whichever slice of other memory that is, and of which it was when the function was captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, jit

VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "row": lambda x: x[1],
    "flat": lambda x: x.reshape(-1),
    "twice transposed": lambda x: x.T.T,
    "reshaped and transposed": lambda x: x.reshape(-1).reshape(4, 2).T,
    "slice of a slice": lambda x: x[1:][:, 1:3],
    "backwards": lambda x: x[::-1],
}
# Of memory of shape (6, 4), at each step, with tensors and with NumPy.
ARGUMENTS: dict[str, Callable[[Any, int], Any]] = {
    "a slice": lambda s, k: s[1:3],
    "slices at other positions": lambda s, k: s[k % 4 : k % 4 + 2],
    "slices and others": lambda s, k: s[1:3] if k % 3 else s[:2] * k,
    "slices with gaps": lambda s, k: s.reshape(2, 12)[:, :4] if k % 3 == 2 else s[2:4],
    "slices with gaps first": lambda s, k: s.reshape(2, 12)[:, :4] if k % 3 else s[2:4],
    "transposed slices": lambda s, k: s[:4, 1:3].T if k % 2 else s[:2],
}


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_an_argument(view: str, argument: str) -> None:
    looked, given = VIEWS[view], ARGUMENTS[argument]
    numbers = np.arange(24.0).reshape(6, 4)
    memory = Tensor(numbers.astype(np.float32)).realize()
    captured = jit(lambda x: (looked(x), x * 2))
    for step in range(9):
        x, exact = given(memory, step), given(numbers, step)
        seen, wanted = captured(x)[0], looked(exact)
        np.testing.assert_array_equal(seen.numpy(), wanted)
        # What is written to the memory is seen, or not, as NumPy says: some reshapes copy.
        memory[2] = step
        numbers[2] = step
        np.testing.assert_array_equal(seen.numpy(), wanted)
        seen.add_(1)
        wanted += 1
        np.testing.assert_array_equal(x.numpy(), exact)
        np.testing.assert_array_equal(memory.numpy(), numbers)
    assert captured.captures <= 3


def _halved(x: Any) -> Any:
    x *= 0.5
    return x.sum(0)


def _filled(x: Any) -> Any:
    x.T[0] = 3.0
    return x * 1


def _row_filled(x: Any) -> Any:
    x[0] = 7.0
    return x[1:]


def _flat(x: Any) -> Any:
    x += 1
    return x.reshape(-1)


WRITES = {"halved": _halved, "filled": _filled, "row filled": _row_filled, "flat": _flat}


@pytest.mark.parametrize("argument", [*ARGUMENTS, "slices and new tensors"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_an_argument(write: str, argument: str) -> None:
    """The memory has it, also where the argument is a slice that was computed by itself, as the
    memory had waited for a value.
    """
    wrote = WRITES[write]
    numbers = np.arange(24.0).reshape(6, 4)
    memory = Tensor(numbers.astype(np.float32)).realize()
    captured = jit(wrote)
    for step in range(10):
        if argument in ARGUMENTS:
            x, exact = ARGUMENTS[argument](memory, step), ARGUMENTS[argument](numbers, step)
        elif step % 3:
            x, exact = memory[1:3], numbers[1:3]
        else:
            exact = np.full((2, 4), float(step))
            x = Tensor(exact.astype(np.float32))
        found, wanted = captured(x), wrote(exact)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
        np.testing.assert_allclose(x.numpy(), exact, rtol=1e-6)
        np.testing.assert_allclose(memory.numpy(), numbers, rtol=1e-6)
        # Nobody looks at the memory now: it takes the row by the next run.
        del x, found
        memory[1] = step
        numbers[1] = step


# Two arguments; one may be a slice of the other's memory.
PAIRS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "apart": lambda s, fresh: (s[1:3], fresh),
    "overlapping": lambda s, fresh: (s[1:3], s[1]),
    "of one memory": lambda s, fresh: (s[1:3], s[4]),
    "all and a row": lambda s, fresh: (s, s[2]),
}


def _first_written(x: Any, y: Any) -> Any:
    x *= 0.5
    return x.sum(0) + y


def _second_written(x: Any, y: Any) -> Any:
    y *= 0.5
    return x.sum(0) + y


@pytest.mark.parametrize("second", PAIRS)
@pytest.mark.parametrize("first", PAIRS)
@pytest.mark.parametrize("wrote", [_first_written, _second_written])
@pytest.mark.parametrize("is_part", [False, True])
def test_arguments_that_share_memory(
    is_part: bool, wrote: Callable[[Any, Any], Any], first: str, second: str
) -> None:
    """What is written to one of them is seen through the other, also where they had nothing in
    common when the function was captured; and by the tensor that they are slices of, which may be
    a part of another one.
    """
    numbers = np.arange(24.0).reshape(6, 4)
    given = numbers.astype(np.float32)
    memory = Tensor(np.stack([given, given]))[1] if is_part else Tensor(given).realize()
    captured = jit(wrote)
    for step in range(8):
        pair = PAIRS[first if step < 3 or step == 6 else second]
        fresh = np.full(4, float(step))
        found = captured(*pair(memory, Tensor(fresh.astype(np.float32))))
        wanted = wrote(*pair(numbers, fresh))
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
        np.testing.assert_allclose(memory.numpy(), numbers, rtol=1e-6)


def test_a_result_is_the_value_from_before_an_argument_took_other_memory() -> None:
    """The argument is a slice of memory, and the result looks at all of that."""

    def advance(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x.repeat(1)
        x[...] = before
        return before, x

    captured = jit(advance)
    for step in range(6):
        numbers = np.arange(8, dtype=np.float32).reshape(2, 4) + 10 * step
        for found in captured(Tensor(numbers)[1]):
            np.testing.assert_array_equal(found.numpy(), numbers[1])


def test_two_arguments_exchange_their_memory() -> None:
    def exchange(x: Tensor, y: Tensor) -> Tensor:
        first, second = x.repeat(1), y.repeat(1)
        x.replace(second)
        y.replace(first)
        return first * 2

    captured = jit(exchange)
    for step in range(6):
        x, y = Tensor([1.0 + step, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
        assert captured(x, y).tolist() == [2.0 + 2 * step, 4.0]
        assert (x.tolist(), y.tolist()) == ([3.0, 4.0], [1.0 + step, 2.0])
