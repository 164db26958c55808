"""Calls and segments of one size after the other: right at every size, whatever was seen before,
and no node is made for a size that comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine.test_price import calls_of
from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.errors import ShapeError
from tilegrad.base.trace import counters
from tilegrad.ir.sized_templates import fitted, fitted_share, made
from tilegrad.tensor.calls import sized, templates
from tilegrad.tensor.calls.same_steps import same_around
from tilegrad.tensor.ordering.sort import Sorting

# Small and large, odd and even, equal to other sizes of the programs, once and again.
SIZES = [5, 9, 33, 2, 64, 1, 8, 4, 65, 31, 100, 3, 257, 16, 1000, 8, 24, 7, 32, 5000, 12, 1, 6, 48]


def softmax(x: Any) -> Any:
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


W, B = numbers(8, 4, seed=1), numbers(4, seed=2)
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "mean": (lambda x: x.mean(), lambda x: x.mean()),
    "mean of rows": (lambda x: x.mean(0), lambda x: x.mean(0)),
    "spread": (lambda x: (x - x.mean(0)).square().mean(0).sqrt(), lambda x: x.std(0)),
    "product": (lambda x: (x @ Tensor(W) + Tensor(B)).relu(), lambda x: np.maximum(x @ W + B, 0)),
    "attention": (
        lambda x: ((x @ x.T) * 0.3).softmax(-1) @ x,
        lambda x: softmax(x @ x.T * 0.3) @ x,
    ),
    "joined": (
        lambda x: Tensor.cat(x, x[:1] * 2, x, dim=0).sum(1),
        lambda x: np.concatenate([x, x[:1] * 2, x]).sum(1),
    ),
    "turned": (lambda x: x.T.flip(1).contiguous() + 1, lambda x: x.T[:, ::-1] + 1),
    "reshaped": (
        lambda x: x.reshape(x.shape[0], 2, 4).sum(1).reshape(-1),
        lambda x: x.reshape(-1, 2, 4).sum(1).reshape(-1),
    ),
    "flattened": (lambda x: x.reshape(x.shape[0] * 8).exp(), lambda x: np.exp(x.reshape(-1))),
    "stretched": (
        lambda x: x.reshape(x.shape[0], 1, 8).expand(x.shape[0], 3, 8) * 2,
        lambda x: np.broadcast_to(x[:, None], (len(x), 3, 8)) * 2,
    ),
    "largest": (lambda x: x.max(0) + x.argmax(1).sum(), lambda x: x.max(0) + x.argmax(1).sum()),
    "running": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "padded": (lambda x: x.pad((1, 2, 0, 3)).sum(1), lambda x: np.pad(x, ((0, 3), (1, 2))).sum(1)),
    "last": (lambda x: x[-1] * 2 + x[0], lambda x: x[-1] * 2 + x[0]),
    "chosen": (
        lambda x: (x > x.mean()).where(x, x * 0.1).sum(0),
        lambda x: np.where(x > x.mean(), x, x * 0.1).sum(0),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_has_its_values(name: str) -> None:
    ours, theirs = PROGRAMS[name]
    for turn, size in enumerate(SIZES * 2):
        # Attention is the square of a size.
        array = numbers(min(size, 300) if name == "attention" else size, 8, seed=turn)
        x = Tensor(array) if turn % 2 else Tensor(array).realize()
        close(ours(x), theirs(array.astype(np.float64)), 2e-4, 2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_templates_of_all_sizes_say_what_the_method_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every node is that of the method itself."""
    ours, _ = PROGRAMS[name]
    compared = []
    compare = templates.compare

    def see(*made: Any) -> None:
        compared.append(made)
        compare(*made)

    monkeypatch.setattr(templates, "compare", see)
    sizes = [*SIZES, *range(2, 70)]
    with Context(TEMPLATES=2):
        for size in sizes:
            ours(Tensor(numbers(size, 8, seed=size)))
    assert len(compared) > len(sizes) // 2


@pytest.mark.parametrize("name", ["mean", "product", "attention", "joined", "chosen"])
def test_segments_of_all_sizes_have_the_values_of_their_nodes(name: str) -> None:
    ours, theirs = PROGRAMS[name]
    with Context(SEGMENTS=2):
        for turn, size in enumerate(SIZES):
            array = numbers(min(size, 300), 8, seed=turn)
            close(ours(Tensor(array)), theirs(array.astype(np.float64)), 2e-4, 2e-5)


@pytest.mark.usefixtures("nothing_known")
def test_a_size_that_comes_first_makes_no_nodes() -> None:
    """Calls of Python functions a step, of a decoder whose keys grow: it took 2,300."""
    weights = [Tensor(numbers(16, 16, seed=seed)).realize() for seed in range(3)]
    state: dict[str, Any] = {"x": Tensor(numbers(1, 16)).realize(), "keys": None}

    def step() -> None:
        x, keys = state["x"], state["keys"]
        q, k = x @ weights[0], x @ weights[1]
        keys = state["keys"] = k if keys is None else Tensor.cat(keys, k, dim=0)
        state["x"] = (((q @ keys.T) * 0.25).softmax(-1) @ keys @ weights[2] + x).tanh()
        state["x"].sum().item()

    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, VERIFY=1):
        for _ in range(20):
            step()
        done = counters.schedules
        # The median: a size beyond what a template is for has it recorded anew.
        assert sorted(calls_of(step) for _ in range(9))[4] <= 700
        assert counters.schedules == done


def _patterns_of(calls: Callable[[], None]) -> int:
    """How many methods get a template of all sizes while `calls` runs."""
    before = sized.patterns_made()
    with Context(TEMPLATES=1):
        calls()
    return sized.patterns_made() - before


@pytest.mark.usefixtures("nothing_known")
def test_layers_of_several_sizes_are_not_taken_for_sizes_that_change() -> None:
    """A recording at a few sizes takes several times as long as the call itself: it waits until a
    run lies between two sizes, or very many came.
    """
    xs = [Tensor(numbers(size, 8)).realize() for size in range(5, 65)]

    def network() -> None:
        _kept = [x.tanh() for x in xs[:8]]

    def lengths() -> None:
        for x in xs[20:24]:
            x.tanh().tolist()

    def without_a_run() -> None:
        _kept = [x.sigmoid() for x in xs]

    assert _patterns_of(network) == 0
    assert _patterns_of(lengths) > 0
    assert _patterns_of(without_a_run) > 0


@pytest.mark.usefixtures("nothing_known")
def test_no_pattern_is_made_inside_of_a_recording() -> None:
    """The sizes there are those of the recording."""
    found = _patterns_of(lambda: [Tensor(numbers(n, 8)).softmax(-1).tolist() for n in (5, 9)][:0])
    made = sized.patterns_made()
    x = Tensor(numbers(12, 8)).realize()
    with Context(TEMPLATES=1):
        x.softmax(-1).tolist()
    assert found > 0 and sized.patterns_made() == made


def test_two_sizes_that_change_apart() -> None:
    for turn, (rows, columns) in enumerate(zip(SIZES, reversed(SIZES))):
        rows, columns = min(rows, 300), min(columns, 300)
        a, b = numbers(rows, 6, seed=turn), numbers(6, columns, seed=turn + 99)
        out = (Tensor(a) @ Tensor(b)).sum(0) + Tensor(b).mean(0)
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        close(out, (wide_a @ wide_b).sum(0) + wide_b.mean(0), 1e-3, 1e-3)


def test_sizes_that_were_equal_part() -> None:
    """A program of two lengths that were one so far."""
    for turn, (rows, others) in enumerate([(5, 5), (7, 7), (9, 9), (11, 11), (9, 12), (12, 9)]):
        a, b = numbers(rows, 6, seed=turn), numbers(others, 6, seed=turn + 50)
        close((Tensor(a) @ Tensor(b).T).sum(1), (a.astype(np.float64) @ b.T).sum(1), 1e-3, 1e-4)


def test_what_does_not_fit_is_refused_at_every_size() -> None:
    for size in (5, 9, 12, 7, 30):
        x, y = Tensor(numbers(size, 4)), Tensor(numbers(size + 1, 4))
        assert (x + 1).shape == (size, 4)
        with pytest.raises(ShapeError, match="test_sized_calls"):
            x + y
        with pytest.raises(ShapeError):
            x.reshape(size, 3)
        with pytest.raises(ShapeError):
            x.reshape(size + 1, 4)
        with pytest.raises(IndexError):
            x[size]


def test_a_result_of_a_size_can_still_be_differentiated() -> None:
    for turn, size in enumerate(SIZES[:14]):
        array = numbers(size, 8, seed=turn)
        w = Tensor(W, requires_grad=True)
        out = (Tensor(array) @ w).tanh()
        assert out.shape == (size, 4)
        total = out.mean()
        total.item()
        total.backward()
        slope = (1 - np.tanh(array.astype(np.float64) @ W) ** 2) / (size * 4)
        assert w.grad is not None
        close(w.grad, array.T @ slope, 1e-3, 1e-5)


def test_polynomials_through_examples() -> None:
    examples = [(3,), (5,), (16,), (31,)]
    for function in (lambda n: 4, lambda n: 3 * n + 2, lambda n: n * n - n, lambda n: ((0, n), n)):
        formula = fitted([function(*each) for each in examples], examples)
        assert made(formula, (77,)) == function(77)
    assert fitted([n // 2 for (n,) in examples], examples) is None
    assert fitted([max(n, 10) for (n,) in examples], examples) is None
    share = fitted_share([1 / (8 * n) for (n,) in examples], examples)
    assert made(share, (10,)) == 1 / 80
    assert fitted_share([n**0.5 for (n,) in examples], examples) is None
    both = [(3, 7), (5, 11), (16, 2), (31, 5), (2, 64)]
    formula = fitted([(n * m, n + m + 1) for n, m in both], both)
    assert made(formula, (10, 20)) == (200, 31)


@pytest.mark.parametrize("bound", [slice(4), slice(-4, None), slice(0, 7), slice(None, None, 4)])
def test_a_slice_that_is_whole_at_one_size_has_the_nodes_of_that_size(bound: slice) -> None:
    """Beside sizes 2 and 3 a template is recorded at 5 and more, where no bound of 4 is an end."""
    with Context(TEMPLATES=2):
        for size in (16, 11, 4, 9, 7, 4, 5, 6, 8, 7, 4):
            x = numbers(2, 3, size, seed=size)
            close(Tensor(x)[0, 1, bound] * 1, x[0, 1, bound])


@pytest.mark.parametrize("sizes", [(8, 12, 16, 20, 24), (16, 3, 32, 5, 2, 9, 11)])
def test_the_number_of_results_may_change_with_the_size(sizes: tuple[int, ...]) -> None:
    """A chunk of an axis that is too short for all has fewer: what was recorded of one size is no
    pattern for another then. The gates of an LSTM are chunks.
    """
    for size in sizes:
        for _ in range(2):
            x = numbers(2, size)
            found = [part.numpy() for part in (Tensor(x) * 1).chunk(4, -1)]
            width = -(-size // 4)
            expected = [x[:, start : start + width] for start in range(0, size, width)]
            assert len(found) == len(expected)
            for mine, theirs in zip(found, expected):
                np.testing.assert_array_equal(mine, theirs)


def test_a_method_that_calls_itself_is_recorded_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wide matrix is decomposed as the transposed one, by the same method at exchanged sizes."""
    recording: list[Any] = []
    nested: list[Any] = []
    pattern = sized._pattern

    def see(family: Any, *rest: Any) -> Any:
        nested.extend(each for each in recording if each is family)
        recording.append(family)
        try:
            return pattern(family, *rest)
        finally:
            recording.pop()

    monkeypatch.setattr(sized, "_pattern", see)
    with Context(TEMPLATES=1):
        for seed, shape in enumerate([(11, 6), (6, 11), (8, 5), (5, 8), (9, 4)]):
            x = np.random.default_rng(seed).normal(size=shape)
            found = Tensor(x).svd(full_matrices=False)[1].numpy()
            np.testing.assert_allclose(found, np.linalg.svd(x, compute_uv=False), atol=1e-10)
    assert not nested


@pytest.mark.parametrize(("size", "expected"), [(9, (2, 27)), (27, (2, 27)), (28, (28, 64))])
def test_a_range_in_which_the_same_is_made(size: int, expected: tuple[int, int]) -> None:
    found = same_around(
        size,
        [2, 3, 16, 31, 64],
        frozenset(),
        lambda each: each < 28,
        lambda one, other: one == other,
    )
    assert found is not None
    assert (found.low, found.high) == expected
    assert all(low_or_high in found.made for low_or_high in expected)


def test_sizes_that_are_left_out_end_a_range() -> None:
    found = same_around(
        4, [2, 16, 64], frozenset({10}), lambda each: each < 12, lambda one, other: one == other
    )
    assert found is not None
    assert (found.low, found.high) == (2, 4)


def test_a_method_that_chooses_by_a_size_is_called_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of few rows are found by comparing all pairs, and those of many by blocks: one
    template for each.
    """
    count = [0]
    method = Sorting._first_of_rows

    def counted(self: Any, number: int) -> Any:
        count[0] += 1
        return method(self, number)

    monkeypatch.setattr(Sorting, "_first_of_rows", counted)
    rows = [5, 40, 6, 41, 7, 42, 8, 43, 9, 44, 10, 45, 19, 52, 11, 27, 30, 59]
    for number, length in enumerate(rows):
        if number == 10:
            count[0] = 0
        data = numbers(length, 200, seed=length)
        values, positions = Tensor(data).topk(5)
        order = np.argsort(-data, 1, kind="stable")[:, :5]
        np.testing.assert_array_equal(positions.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(data, order, 1))
    assert not count[0]


def test_a_limit_that_changes_is_an_input() -> None:
    """Whether the other limit is absent is part of the call, as its value is not."""
    data = numbers(4, 6)
    for value in (0.3, 0.4, 0.7, 0.9):
        below, above = Tensor(data).clip(None, value), Tensor(data).clip(-value)
        waits = below._call is not None and above._call is not None
        np.testing.assert_array_equal(below.numpy(), np.minimum(data, np.float32(value)))
        np.testing.assert_array_equal(above.numpy(), np.maximum(data, np.float32(-value)))
    assert waits
