"""Windows whose bounds are Variables: right wherever the bound value fits, whatever other values
the variable may have; what does not fit raises when it is bound. Against NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor, Variable, jit
from tilegrad.base.errors import ShapeError
from tilegrad.base.trace import counters

X = numbers(5, 10)
# Of more values than any axis here has places.
WIDE = Variable("n", 1, 20)


def wide(value: int) -> Any:
    return WIDE.bind(value)


@pytest.mark.row("B1.5")
@pytest.mark.parametrize("value", [1, 3, 8, 10])
def test_a_prefix_of_a_variable_that_may_be_longer_than_the_axis(value: int) -> None:
    x, rows = Tensor(X).realize(), X[:, :value]
    part = x[:, : wide(value)]
    close(part, rows)
    close(part * 2 + 1, rows * 2 + 1)
    close(part.sum(1), rows.sum(1))
    close(part.sum(0), rows.sum(0))
    close(part @ part.T, rows @ rows.T, rtol=1e-4)
    close(part + Tensor.arange(wide(value)), rows + np.arange(value, dtype=np.float32))
    close(part.softmax(1).sum(1), np.ones(5, np.float32))


@pytest.mark.parametrize("value", [1, 2, 3])
def test_a_window_that_slides(value: int) -> None:
    x = Tensor(X).realize()
    start = wide(value)
    close(x[start : start + 2], X[value : value + 2])
    close((x[start : start + 2] * 2).sum(0), X[value : value + 2].sum(0) * 2)
    close(x[:, start : start * 2], X[:, value : 2 * value])
    close(x[start] + 1, X[value] + 1)
    close(x[:, -start:] + 1, X[:, -value:] + 1)
    close(x[-start] + 1, X[-value] + 1)
    close(x.narrow(1, start, 3), X[:, value : value + 3])


@pytest.mark.parametrize("value", [3, 5, 9])
def test_a_window_of_a_symbolic_tensor(value: int) -> None:
    rows = X[:, :value]
    for part in (Tensor(X)[:, : wide(value)], (Tensor(X)[:, : wide(value)] * 1).realize()):
        close(part[:, :3], rows[:, :3])
        close(part[:, :3] + 1, rows[:, :3] + 1)
        close(part[:, 1:-1], rows[:, 1:-1])
        close(part[:, -2], rows[:, -2])
        close(part.cumsum(1)[:, :3], rows.cumsum(1)[:, :3])


@pytest.mark.parametrize("value", [1, 4, 5])
@pytest.mark.parametrize("step", [2, 3, -1, -2])
def test_steps_through_a_symbolic_axis(value: int, step: int) -> None:
    close(Tensor(X)[:, : wide(value)][:, ::step] + 1, X[:, :value][:, ::step] + 1)


def test_a_window_that_slides_is_written() -> None:
    x, wanted = Tensor(X).contiguous().realize(), X.copy()
    for value in (2, 7):
        start = wide(value)
        x[:, start : start + 2] = float(value)
        wanted[:, value : value + 2] = value
        close(x, wanted)


@pytest.mark.parametrize(
    ("window", "value", "text"),
    [
        (lambda x, n: x[:, :n], 11, r"\(0, n\) of axis 1 is not inside its size 10 where n = 11"),
        (lambda x, n: x[n : n + 2], 4, r"\(n, \(n \+ 2\)\) of axis 0 .* size 5 where n = 4"),
        (lambda x, n: x[n], 5, r"\(n, \(n \+ 1\)\) of axis 0 .* size 5 where n = 5"),
        (lambda x, n: x[:, :n][:, :3], 2, r"\(0, 3\) of axis 1 .* size n where n = 2"),
        (lambda x, n: x.__setitem__((slice(None), slice(n, n + 2)), 0.0), 9, r"where n = 9"),
    ],
)
def test_what_does_not_fit_raises_when_it_is_bound(
    window: Callable[[Tensor, Any], Any], value: int, text: str
) -> None:
    x = Tensor(X).contiguous().realize()
    window(x, wide(3))
    with pytest.raises(ShapeError, match=f"shrink: slice {text}" if "\\(" in text else text):
        window(x, wide(value))


def test_a_replay_with_a_value_that_does_not_fit_raises() -> None:
    x = Tensor(X).realize()

    @jit
    def prefix(x: Tensor, n: Any) -> Tensor:
        return (x[:, :n] * 2).realize()

    @jit
    def slid(x: Tensor, n: Any) -> Tensor:
        return (x[n : n + 2] * 2).sum(0).realize()

    for value in (2, 3, 5, 7, 10):
        close(prefix(x, wide(value)), X[:, :value] * 2)
    for value in (1, 2, 3, 1):
        close(slid(x, wide(value)), X[value : value + 2].sum(0) * 2)
    before = counters.compiles
    with pytest.raises(ShapeError, match=r"of axis 1 is not inside its size 10 where n = 11"):
        prefix(x, wide(11))
    with pytest.raises(ShapeError, match=r"of axis 0 is not inside its size 5 where n = 4"):
        slid(x, wide(4))
    close(prefix(x, wide(4)), X[:, :4] * 2)
    close(slid(x, wide(3)), X[3:5].sum(0) * 2)
    assert counters.compiles == before


PIECES: dict[str, tuple[Callable[[Tensor, Any], Any], Callable[[Any, int], Any]]] = {
    "split": (
        lambda x, n: x[:, :n].split(2, 1),
        lambda x, n: np.split(x[:, :n], range(2, n, 2), 1),
    ),
    "split by a variable": (
        lambda x, n: x.split(n, 1),
        lambda x, n: np.split(x, range(n, 10, n), 1),
    ),
    "split in variables": (
        lambda x, n: x.split([n, 2, 8 - n], 1),
        lambda x, n: np.split(x, [n, n + 2], 1),
    ),
    "chunk": (
        lambda x, n: x[:, :n].chunk(2, 1),
        lambda x, n: np.split(x[:, :n], range(-(-n // 2), n, -(-n // 2)), 1),
    ),
    "chunk by a variable": (
        lambda x, n: x.chunk(n, 1),
        lambda x, n: np.split(x, range(-(-10 // n), 10, -(-10 // n)), 1),
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces(name: str) -> None:
    ours, theirs = PIECES[name]
    for value in (3, 4, 6, 7):
        found, wanted = ours(Tensor(X), wide(value)), theirs(X, value)
        assert len(found) == len(wanted)
        for mine, other in zip(found, wanted):
            close(mine, other)
            close(mine * 2, other * 2)


@pytest.mark.parametrize("method", ["split", "chunk"])
def test_a_replay_with_another_number_of_pieces_is_right(method: str) -> None:
    @jit
    def weighted(x: Tensor, n: Any) -> Tensor:
        pieces = getattr(x, method)(n, 1)
        return Tensor.stack(*[piece.sum() * at for at, piece in enumerate(pieces)]).realize()

    for value in (2, 2, 2, 3, 5, 4, 1, 7, 2, 3):
        step = value if method == "split" else -(-10 // value)
        wanted = [
            piece.sum() * at for at, piece in enumerate(np.split(X, range(step, 10, step), 1))
        ]
        close(weighted(Tensor(X).realize(), wide(value)), np.array(wanted))


MOVED: dict[str, tuple[Callable[[Tensor, Any], Tensor], Callable[[Any, int], Any]]] = {
    "arange": (lambda x, n: Tensor.arange(n), lambda x, n: np.arange(n, dtype=np.int32)),
    "arange of both": (
        lambda x, n: Tensor.arange(n, 2 * n + 1, 2),
        lambda x, n: np.arange(n, 2 * n + 1, 2, dtype=np.int32),
    ),
    "tril": (lambda x, n: x[:, :n].tril(), lambda x, n: np.tril(x[:, :n])),
    "triu of a variable": (lambda x, n: x.triu(n - 3), lambda x, n: np.triu(x, n - 3)),
    "roll": (lambda x, n: x[:, :n].roll(2, 1), lambda x, n: np.roll(x[:, :n], 2, 1)),
    "roll back": (lambda x, n: x[:, :n].roll(-1, 1), lambda x, n: np.roll(x[:, :n], -1, 1)),
    "roll by a variable": (lambda x, n: x.roll(n, 1), lambda x, n: np.roll(x, n, 1)),
    "roll rows": (lambda x, n: x.roll((n, 1), (0, 1)), lambda x, n: np.roll(x, (n, 1), (0, 1))),
    "cat": (
        lambda x, n: x[:, :n].cat(x[:, :2], dim=1),
        lambda x, n: np.concatenate([x[:, :n], x[:, :2]], 1),
    ),
    "cat of both": (lambda x, n: x[:, n:].cat(x[:, :n], dim=1), lambda x, n: np.roll(x, -n, 1)),
    "pad by a variable": (lambda x, n: x.pad((0, n)), lambda x, n: np.pad(x, ((0, 0), (0, n)))),
    "pad": (
        lambda x, n: x[:, :n].pad((1, 2)),
        lambda x, n: np.pad(x[:, :n], ((0, 0), (1, 2))),
    ),
    "pad to": (
        lambda x, n: x[:, :n].pad((0, 10 - n)),
        lambda x, n: np.pad(x[:, :n], ((0, 0), (0, 10 - n))),
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_movement_takes_variables(name: str) -> None:
    ours, theirs = MOVED[name]
    for value in (3, 5, 7):
        close(ours(Tensor(X), wide(value)), theirs(X, value))


READ: dict[str, Callable[[Tensor, Any], Any]] = {
    "a window of memory": lambda x, n: x[:, :n].numpy(),
    "computed": lambda x, n: (x[:, :n] * 3).tolist(),
    "transposed": lambda x, n: (x[:, :n] + 1).T.numpy(),
    "rows": lambda x, n: (x[:n] * 3).realize().numpy(),
    "reduced": lambda x, n: x[:, :n].sum(0).tolist(),
    "joined": lambda x, n: x[:, :n].cat(x, dim=1).numpy(),
    "one number": lambda x, n: x[:, :n].sum().item(),
    "printed": lambda x, n: str((x[:, :n] + 1).realize()),
    "bytes": lambda x, n: bytes((x[:, :n] + 1).data()),
}


@pytest.mark.parametrize("name", READ)
def test_reading_compiles_nothing_per_size(name: str) -> None:
    x = Tensor(X).realize()
    with Context(DISABLE_COMPILER_CACHE=1):
        READ[name](x, wide(2))
        before = counters.schedules, counters.compiles
        for value in (1, 3, 4, 5):
            READ[name](x, wide(value))
        assert (counters.schedules, counters.compiles) == before


@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_a_window_between_two_variables_is_written_and_computed_with(device: str) -> None:
    """On EMU each element of a window has a lane: no two of them write to one place."""
    start, end = Variable("start", 0, 3).bind(2), Variable("end", 4, 6).bind(5)
    expected = numbers(6, 4)
    x = Tensor(expected, device=device).realize()
    x[start:end] = 2.0
    expected[2:5] = 2
    close(x * 2 + 1, expected * 2 + 1)
    part = x[start:end]
    part += 1
    close(part * 3, np.full((3, 4), 9, np.float32))
    close(part.reshape(-1).contiguous() * 3, np.full(12, 9, np.float32))
