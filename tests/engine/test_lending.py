"""Values are read where they are: an array of a tensor on a host's device is the tensor's memory,
keeps its values for ever, and is in nobody's way.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, dtypes, jit
from tilegrad.base.errors import OutOfMemoryError
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.storage import memory

# More than 1 MiB: smaller tensors take new memory when they are assigned to.
N = (1 << 18) + 8


def filled(value: float, n: int = N) -> Tensor:
    return (Tensor.full((n,), float(value)).contiguous() * 1).realize()


def buffer(tensor: Tensor) -> Buffer:
    return buffer_of(memory.base_of(tensor.uop))


def address(tensor: Tensor) -> int:
    handle = buffer(tensor).handle
    assert isinstance(handle, int)
    return handle


@pytest.mark.row("R8.2", "S0.5")
def test_an_array_is_the_memory_of_the_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    x = filled(3)
    GlobalCounters.reset()
    with Context(DEBUG=2):
        array = x.numpy()
        data = x.data()
    assert capsys.readouterr().out == ""
    assert GlobalCounters.global_mem == 0
    assert array.ctypes.data == address(x)
    assert np.shares_memory(array, x.numpy())
    assert np.shares_memory(array, np.asarray(data))
    assert array.shape == (N,) and (array == 3).all()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert data.readonly


@pytest.mark.row("R8.2", "S0.5")
def test_what_lies_apart_is_copied() -> None:
    x = Tensor([float(number) for number in range(N)], device="EMU").realize()
    one, other = x.numpy(), x.numpy()
    assert not np.shares_memory(one, other)
    assert (one == np.arange(N)).all()


def test_a_window_or_a_transpose_is_copied_in_order() -> None:
    x = Tensor.arange(N * 2).reshape(2, N).contiguous().realize()
    assert (x.T.numpy() == np.arange(N * 2).reshape(2, N).T).all()
    assert (x[1].numpy() == np.arange(N, N * 2)).all()
    assert x.reshape(N, 2).numpy().ctypes.data == address(x)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "bfloat16"])
def test_every_dtype(dtype: str) -> None:
    x = (Tensor.arange(9000) % 2).cast(dtype).contiguous().realize()
    array = x.numpy()
    assert array.dtype.name == ("float32" if dtype == "bfloat16" else dtype)
    assert (array == np.arange(9000) % 2).all()


@pytest.mark.usefixtures("nothing_known")
def test_the_array_outlives_the_tensor() -> None:
    gc.collect()
    used = GlobalCounters.mem_used
    array = filled(7).numpy()
    assert GlobalCounters.mem_used == used + 4 * N
    others = [filled(1) for _ in range(4)]
    assert (array == 7).all()
    del others, array
    assert GlobalCounters.mem_used == used


def whole(x: Tensor) -> None:
    x.assign(x + 1).realize()


def in_part(x: Tensor) -> None:
    x[10:20] = 5


def window(x: Tensor) -> None:
    x[10:20].assign(Tensor.full((10,), 5.0)).realize()


def in_place(x: Tensor) -> None:
    x += 2
    x.realize()


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("write", [whole, in_part, window, in_place])
def test_an_assignment_leaves_arrays_as_they_were(write: Any) -> None:
    gc.collect()
    x = filled(3)
    expected = filled(3)
    write(expected)
    used, before = GlobalCounters.mem_used, buffer(x)
    first, second = x.numpy(), x.data()
    write(x)
    assert (first == 3).all() and (np.asarray(second) == 3).all()
    assert x.tolist() == expected.tolist() != [3] * N
    assert buffer(x) is before
    assert GlobalCounters.mem_used == used + 4 * N
    third = x.numpy()
    assert not np.shares_memory(first, third)
    del first, second
    assert GlobalCounters.mem_used == used
    write(x)
    assert third.tolist() == expected.tolist()


def test_nobody_looks_any_more() -> None:
    """Then the tensor is written where it is."""
    x = filled(3)
    place = address(x)
    for _ in range(3):
        x.numpy().sum()
        x.assign(x + 1).realize()
    assert address(x) == place
    assert x.numpy()[0] == 6


@pytest.mark.parametrize("mode", [1, 2])
def test_replays_leave_arrays_as_they_were(mode: int) -> None:
    """State that is written, and what is given back."""
    state = filled(0)

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        return (state * 10).contiguous()

    with Context(JIT=mode):
        arrays = []
        for number in range(8):
            result = step(filled(1))
            assert result[0].item() == 10 * (number + 1)
            arrays.append((state.numpy(), result.numpy()))
            del result
    for number, (held, given) in enumerate(arrays):
        assert (held == number + 1).all()
        assert (given == 10 * (number + 1)).all()


def test_two_captures_over_one_state() -> None:
    """The second goes on in other memory; the first reads it there."""
    state = filled(0)

    @jit
    def read(x: Tensor) -> Tensor:
        return x + state.sum()

    @jit
    def write(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        return state.sum()

    one = Tensor([1.0]).realize()
    for _ in range(3):
        read(one)
        write(one)
    arrays = []
    for number in range(3, 8):
        arrays.append(state.numpy())
        assert write(one).item() == N * (number + 1)
        assert read(one).tolist() == [1 + N * (number + 1)]
    for number, array in enumerate(arrays, 3):
        assert (array == number).all()


def test_results_of_a_function_that_writes_them_again() -> None:
    function = jit(lambda x: (x * 2).contiguous(), reuse_outputs=True)
    arrays = [function(filled(number)).numpy() for number in range(6)]
    for number, array in enumerate(arrays):
        assert (array == 2 * number).all()


def test_what_the_captured_call_gave() -> None:
    """Its memory serves later replays, unless somebody still looks."""
    kept = []

    @jit
    def function(x: Tensor) -> Tensor:
        inner = (x * 2).contiguous().realize()
        kept.append(inner.data)
        return (inner + 1).contiguous().sum()

    for number in range(2):
        function(filled(number))
    array = np.asarray(kept[-1]())
    kept.clear()
    gc.collect()
    for number in range(5, 8):
        assert function(filled(number)).item() == N * (2 * number + 1)
    assert (array == 2).all()


def test_no_room_for_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignment fails and nothing has changed."""
    x = filled(3)
    array = x.numpy()
    runtime = buffer(x).allocator.runtime
    y = x + 1

    def refuse(nbytes: int) -> int:
        raise MemoryError(nbytes)

    buffer(x).allocator.flush()
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "allocate", refuse)
        x.assign(y)
        with pytest.raises(OutOfMemoryError, match=f"{4 * N} bytes do not fit on CPU"):
            x.realize()
    assert (array == 3).all()
    assert (x.numpy() == 4).all()
    assert x.dtype is dtypes.float32


def test_a_result_that_is_looked_at_is_not_written_again() -> None:
    """The next replay takes other memory, and nothing is copied."""
    function = jit(lambda x: (x * 2).contiguous())
    x = filled(1)
    for _ in range(3):
        function(x)
    moves = Buffer.moves
    array = function(x).numpy()
    other = function(x)
    assert address(other) != array.ctypes.data
    assert Buffer.moves == moves
