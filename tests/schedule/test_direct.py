"""Copies from the host land where they are assigned to, if nobody else asks for them."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.engine.run.run import recording


def steps_of(*tensors: Tensor) -> list[str]:
    with recording() as steps:
        Tensor.realize(*tensors)
    return ["copy" if step.kernel is None else step.kernel.name for step in steps]


@Context(SEGMENTS=0)
@pytest.mark.usefixtures("nothing_known")
def test_a_copy_into_memory_is_one_step() -> None:
    """Where no call waits, so that an array is memory no sooner than a run copies it."""
    array = np.arange(24_000, dtype=np.float32).reshape(40, 600)
    x = Tensor.zeros(40, 600).contiguous().realize()
    used = GlobalCounters.mem_used
    assert steps_of(x.assign(Tensor(array))) == ["copy"]
    assert GlobalCounters.mem_used == used
    np.testing.assert_array_equal(x.numpy(), array)


@Context(SEGMENTS=0)
def test_a_copy_that_others_ask_for_is_made_once() -> None:
    array = np.arange(24_000, dtype=np.float32)
    x, y = Tensor.zeros(24_000).contiguous().realize(), Tensor(array)
    assert steps_of(x.assign(y), y + 1).count("copy") == 1
    x += 1
    assert x.tolist() == (array + 1).tolist() and y.tolist() == array.tolist()


@Context(TEMPLATES=1)
@pytest.mark.parametrize("shape", [(4, 6), (40, 600)])
def test_an_array_is_memory_from_the_start(shape: tuple[int, int]) -> None:
    """Where calls wait: none does while templates are compared."""
    array = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    x, y = Tensor.zeros(*shape).contiguous().realize(), Tensor(array)
    before = array.tolist()
    array[:] = -1
    assert steps_of(y) == []
    assert "copy" not in steps_of(x.assign(y))
    assert x.tolist() == y.tolist() == before


def test_a_copy_into_a_part_or_in_another_dtype() -> None:
    array = np.arange(6, dtype=np.float32)
    x = Tensor.zeros(2, 6).contiguous().realize()
    x[1] = Tensor(array)
    assert x.tolist() == [[0.0] * 6, array.tolist()]
    whole = Tensor.zeros(6, dtype="int32").contiguous().realize()
    whole.assign(Tensor(array).cast("int32"))
    assert whole.tolist() == list(range(6))


def test_who_reads_the_old_value_does_so_first() -> None:
    x = Tensor.full((6,), 3.0).contiguous().realize()
    old = x * 2
    x.assign(Tensor(np.arange(6, dtype=np.float32)))
    after = x * 2
    Tensor.realize(x, old, after)
    assert old.tolist() == [6.0] * 6
    assert after.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_two_in_a_row() -> None:
    x = Tensor.zeros(6).contiguous().realize()
    x.assign(Tensor(np.full(6, 1, np.float32)))
    middle = x + 1
    x.assign(Tensor(np.full(6, 5, np.float32)))
    Tensor.realize(x, middle)
    assert (x.tolist(), middle.tolist()) == ([5.0] * 6, [2.0] * 6)
