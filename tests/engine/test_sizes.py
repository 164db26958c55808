"""A size that changes from step to step is a variable of the plan: however many lengths come, few
graphs are planned, and every length is computed as written.
"""

from __future__ import annotations

import gc
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Device, GlobalCounters, Tensor, dtypes, jit, nn
from tilegrad.base.trace import counters

Array = np.ndarray

_GROWING = list(range(2, 32))
_MIXED = [5, 7, 12, 11, 30, 23, 13, 64, 17, 100, 29, 50, 97, 8, 128, 31, 4, 6, 9, 10]
_W = numbers(12, 6, seed=40)


@pytest.fixture(autouse=True)
def _nothing_on_disk(nothing_known: None) -> Iterator[None]:
    """No graph has come before, so that plans can be counted."""
    with Context(DISABLE_COMPILER_CACHE=1):
        yield


def _plans(step: Callable[[int], None], lengths: Iterable[int]) -> int:
    before = counters.schedules
    for length in lengths:
        step(length)
    return counters.schedules - before


def _softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _scattered(values: Array, size: int) -> Array:
    found = np.zeros(size)
    for number, value in enumerate(values):
        found[number % size] = value
    return found


OF_ROWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "elementwise": (lambda x: x * 2 + 1, lambda a: a * 2 + 1),
    "sum": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "sum of all": (lambda x: x.sum(), lambda a: a.sum()),
    "mean": (lambda x: x.mean(0), lambda a: a.mean(0)),
    "mean of all": (lambda x: x.mean(), lambda a: a.mean()),
    "max": (lambda x: x.max(0), lambda a: a.max(0)),
    "var": (lambda x: x.var(0), lambda a: a.var(0, ddof=1)),
    "softmax along": (lambda x: x.softmax(0), lambda a: _softmax(a, 0)),
    "softmax across": (lambda x: x.softmax(1), _softmax),
    "product": (lambda x: x @ Tensor(_W), lambda a: a @ _W),
    "gram": (lambda x: x.T @ x, lambda a: a.T @ a),
    "pairs": (lambda x: x @ x.T, lambda a: a @ a.T),
    "transposed": (lambda x: x.T.contiguous(), lambda a: a.T),
    "flat": (lambda x: x.reshape(-1) * 2, lambda a: a.reshape(-1) * 2),
    "halves": (lambda x: x.reshape(-1, 6).sum(1), lambda a: a.reshape(-1, 6).sum(1)),
    "flip": (lambda x: x.flip(0) - x, lambda a: a[::-1] - a),
    "rows": (lambda x: x[1:] - x[:-1], lambda a: a[1:] - a[:-1]),
    "last": (lambda x: x[-1] * 2, lambda a: a[-1] * 2),
    "padded": (lambda x: x.pad(((1, 2), (0, 0))) + 1, lambda a: np.pad(a, ((1, 2), (0, 0))) + 1),
    "doubled": (lambda x: x.cat(x * 2, dim=0), lambda a: np.concatenate([a, a * 2])),
    "beside": (lambda x: x.cat(x, dim=1), lambda a: np.concatenate([a, a], 1)),
    "stacked": (lambda x: Tensor.stack(x, x + 1, dim=1), lambda a: np.stack([a, a + 1], 1)),
    "argmax": (lambda x: x.argmax(0), lambda a: a.argmax(0)),
    "normalised": (
        lambda x: (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt(),
        lambda a: (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5),
    ),
    "masked": (
        lambda x: (Tensor.arange(x.shape[0]).reshape(-1, 1) < 3).where(x, 0.0),
        lambda a: np.where(np.arange(len(a))[:, None] < 3, a, 0),
    ),
    "causal": (
        lambda x: x.scaled_dot_product_attention(x, x, is_causal=True),
        lambda a: (
            _softmax(
                np.where(np.tri(len(a), dtype=bool), a @ a.T / np.sqrt(np.float32(12)), -np.inf)
            )
            @ a
        ),
    ),
    "prefixes": (lambda x: (x * 2).cumsum(0) + 1, lambda a: (a * 2).cumsum(0) + 1),
    "prefixes from the end": (
        lambda x: x.flip(0).cumsum(0).flip(0),
        lambda a: a[::-1].cumsum(0)[::-1],
    ),
    "largest so far": (lambda x: x.cummax(0)[0], lambda a: np.maximum.accumulate(a)),
    "picked": (
        lambda x: Tensor(_W)[(x[:, 0] > 0).cast(dtypes.int32)],
        lambda a: _W[(a[:, 0] > 0).astype(int)],
    ),
    # Kernels written by hand, for any sizes.
    "cholesky": (
        lambda x: (x @ x.T + Tensor.eye(x.shape[0]) * 20).cholesky(),
        lambda a: np.linalg.cholesky(a @ a.T + np.eye(len(a)) * 20),
    ),
    "solved": (
        lambda x: (x @ x.T + Tensor.eye(x.shape[0]) * 20).solve(x),
        lambda a: np.linalg.solve(a @ a.T + np.eye(len(a)) * 20, a),
    ),
    "solved triangle": (
        lambda x: (x @ x.T + Tensor.eye(x.shape[0]) * 20).solve_triangular(x, upper=False),
        lambda a: np.linalg.solve(np.tril(a @ a.T + np.eye(len(a)) * 20), a),
    ),
    "sought": (
        lambda x: Tensor(np.linspace(-2, 2, 40, dtype=np.float32)).searchsorted(x[:, 0]),
        lambda a: np.searchsorted(np.linspace(-2, 2, 40, dtype=np.float32), a[:, 0]),
    ),
    "scattered": (
        lambda x: Tensor.zeros(40).scatter(0, Tensor.arange(x.shape[0]) % 40, x[:, 0]),
        lambda a: _scattered(a[:, 0], 40),
    ),
    "least of each": (
        lambda x: (x * 2).topk(3, 1, largest=False)[0],
        lambda a: np.sort(a * 2, 1)[:, :3],
    ),
}


def _step(name: str) -> Callable[[int], None]:
    ours, theirs = OF_ROWS[name]

    def step(length: int) -> None:
        data = numbers(length, 12, seed=length)
        close(ours(Tensor(data).realize()), theirs(data.astype(np.float64)), 1e-4, 1e-4)

    return step


# The copy of what the host gives is a plan of one length, then of all.
_COPIES = 2


@pytest.mark.parametrize("name", OF_ROWS)
def test_at_most_three_plans_serve_all_lengths(name: str) -> None:
    close(Tensor(_W), _W)
    assert _plans(_step(name), _MIXED) <= 3 + _COPIES


@pytest.mark.parametrize("name", ["sum", "softmax along", "product", "doubled", "causal"])
@pytest.mark.parametrize("lengths", [_GROWING, _GROWING[::-1]], ids=["growing", "shrinking"])
def test_at_most_three_plans_serve_lengths_in_order(name: str, lengths: list[int]) -> None:
    assert _plans(_step(name), lengths) <= 3 + _COPIES


@pytest.mark.parametrize("name", ["elementwise", "sum", "mean", "product", "beside", "rows"])
def test_lengths_of_none_and_one_among_others(name: str) -> None:
    ours, theirs = OF_ROWS[name]
    for length in (4, 6, 1, 3, 0, 5, 1, 0, 9, 2, 1):
        data = numbers(length, 12, seed=length)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            expected = theirs(data)
        close(ours(Tensor(data)), expected, 1e-4, 1e-4)


def test_a_length_beyond_the_range_of_a_plan() -> None:
    step = _step("sum")
    before = counters.schedules
    for length in (3, 4, 5, 1000, 1024, 1025, 4097, 60000, 9, 3000):
        step(length)
    assert counters.schedules - before <= 4 + 2 * _COPIES


def test_two_sizes_that_change_by_themselves() -> None:
    def step(number: int) -> None:
        rows, columns = _MIXED[number], _MIXED[-1 - number]
        a, b = numbers(rows, 5, seed=1), numbers(5, columns, seed=2)
        close(Tensor(a) @ Tensor(b) + 1, a @ b + 1, 1e-4, 1e-4)

    assert _plans(step, range(len(_MIXED))) <= 3


def test_sizes_that_are_equal_by_chance_are_two() -> None:
    def step(number: int) -> None:
        rows, columns = [(4, 4), (7, 7), (6, 6), (5, 9), (9, 5), (8, 8), (3, 11)][number]
        a, b = numbers(rows, 3, seed=1), numbers(columns, 3, seed=2)
        found = (Tensor(a).sum(0) * Tensor(b).max(0)).sum()
        close(found, (a.sum(0) * b.max(0)).sum(), 1e-4, 1e-4)

    assert _plans(step, range(7)) <= 3


def test_a_size_that_is_a_multiple_by_chance_is_another() -> None:
    for rows, columns in [(4, 8), (6, 12), (5, 10), (5, 7), (7, 9), (3, 6), (10, 4)]:
        a, b = numbers(rows, 3, seed=1), numbers(columns, 3, seed=2)
        found = (Tensor(a).sum(0) * Tensor(b).max(0)).sum()
        close(found, (a.sum(0) * b.max(0)).sum(), 1e-4, 1e-4)


def test_views_of_one_memory_of_every_length() -> None:
    data = numbers(40, 12)
    x = Tensor(data).realize()

    def step(length: int) -> None:
        close(x[:length].exp().sum(0), np.exp(data[:length]).sum(0), 1e-4)

    assert _plans(step, range(2, 40)) <= 3


def test_a_view_is_never_longer_than_its_memory() -> None:
    data = numbers(40, 3)
    x = Tensor(data).realize()
    for length in (3, 5, 39, 40):
        close(x[:length] * 2, data[:length] * 2)


def test_windows_that_move_and_grow() -> None:
    data = numbers(60, 4)
    x = Tensor(data).realize()
    for start, length in [(0, 5), (5, 7), (12, 9), (21, 3), (40, 20), (2, 2), (59, 1), (0, 60)]:
        window = data[start : start + length]
        close((x[start : start + length] * 2).sum(0), (window * 2).sum(0), 1e-4)


@pytest.mark.parametrize("waits", [False, True])
def test_slices_that_begin_and_end_anywhere(waits: bool) -> None:
    """No bounds of where one begins and ends say that it is inside."""
    data = numbers(60, 4)
    x = Tensor(data).realize()
    slices = [(3, 17), (20, 31), (40, 52), (7, 58), (30, 60), (2, 9), (57, 59), (1, 60), (29, 31)]

    def step(number: int) -> None:
        start, stop = slices[number]
        whole = x * 3 if waits else x
        scale = 3 if waits else 1
        close((whole[start:stop] * 2).sum(0), (scale * data[start:stop] * 2).sum(0), 1e-4)

    assert _plans(step, range(len(slices))) <= 5
    slices += [(0, 60), (59, 60), (0, 1), (0, 59), (1, 2)]
    for number in range(len(slices)):
        step(number)


def test_differences_of_running_sums_over_a_width_that_changes() -> None:
    data = numbers(60, seed=3)
    x = Tensor(data).realize()

    def step(number: int) -> None:
        length, width = 8 + number * 17 % 50, 2 + number % 3
        wanted = data[:length].cumsum()
        sums = x[:length].cumsum(0)
        close((sums[width:] - sums[:-width]).max(), (wanted[width:] - wanted[:-width]).max(), 1e-4)

    assert _plans(step, range(20)) <= 8


def test_batches_cut_out_of_memory_of_which_the_last_is_short() -> None:
    data = numbers(70, 4)
    x = Tensor(data).realize()

    def epoch(_: int) -> None:
        for start in range(0, 70, 16):
            close(x[start : start + 16].exp().mean(0), np.exp(data[start : start + 16]).mean(0))

    # SEGMENTS=2 plans the nodes of a segment for the size at hand.
    with Context(SEGMENTS=1):
        epoch(0)
        epoch(1)
        assert _plans(epoch, range(3)) == 0


def test_a_cache_that_grows_by_cat() -> None:
    cache, expected = Tensor(numbers(1, 4)).realize(), numbers(1, 4)

    def step(number: int) -> None:
        nonlocal cache, expected
        row = numbers(1, 4, seed=number)
        cache = cache.cat(Tensor(row) * 2, dim=0)
        expected = np.concatenate([expected, row * 2])
        close(cache.sum(0), expected.sum(0), 1e-4, 1e-5)

    assert _plans(step, range(40)) <= 4
    close(cache, expected)


def test_a_decoder_that_keeps_keys_and_values() -> None:
    wq, wk, wv = (numbers(8, 8, seed=seed) * 0.3 for seed in range(3))
    weights = [Tensor(each).realize() for each in (wq, wk, wv)]
    x, ours = numbers(1, 8, seed=5), Tensor(numbers(1, 8, seed=5)).realize()
    keys = values = None
    k, v = np.zeros((0, 8), np.float32), np.zeros((0, 8), np.float32)

    def step(_: int) -> None:
        nonlocal x, ours, keys, values, k, v
        q = ours @ weights[0]
        one, two = ours @ weights[1], ours @ weights[2]
        keys = one if keys is None else keys.cat(one, dim=0)
        values = two if values is None else values.cat(two, dim=0)
        ours = (((q @ keys.T) * 0.3).softmax(-1) @ values + ours).tanh()
        k, v = np.concatenate([k, x @ wk]), np.concatenate([v, x @ wv])
        x = np.tanh(_softmax(x @ wq @ k.T * 0.3) @ v + x)
        assert ours.sum().item() == pytest.approx(float(x.sum()), rel=1e-3, abs=1e-4)

    # The first steps have no keys, and then one, which is no concatenation yet.
    assert _plans(step, range(40)) <= 4
    close(keys, k, 1e-3, 1e-4)


def test_a_cache_that_is_written_row_by_row() -> None:
    cache, expected = Tensor.zeros(40, 4).contiguous().realize(), np.zeros((40, 4), np.float32)

    def step(place: int) -> None:
        row = numbers(4, seed=place)
        cache[place] = Tensor(row)
        expected[place] = row
        close(cache[: place + 1].exp().sum(0), np.exp(expected[: place + 1]).sum(0), 1e-4)

    assert _plans(step, range(1, 40)) <= 5
    close(cache, expected)


def test_in_place_work_on_memory_of_every_length() -> None:
    def step(length: int) -> None:
        data = numbers(length, 3, seed=length)
        x = Tensor(data).realize()
        kept = x * 3
        x += 1
        x *= x.mean()
        expected = (data + 1) * (data + 1).mean()
        close(x, expected, 1e-4, 1e-5)
        close(kept, data * 3)

    step(4)
    assert _plans(step, _MIXED) <= 9


def test_gradients_at_every_length() -> None:
    w = Tensor(_W, requires_grad=True)

    def step(length: int) -> None:
        data = numbers(length, 12, seed=length)
        w.grad = None
        ((Tensor(data) @ w).tanh() ** 2).mean().backward()
        inner = np.tanh(data @ _W)
        flow = 2 * inner * (1 - inner * inner) / inner.size
        assert w.grad is not None
        close(w.grad, data.T @ flow, 1e-3, 1e-5)

    assert _plans(step, _MIXED) <= 3


def test_training_whose_last_batch_is_short() -> None:
    data, goal = numbers(70, 12), numbers(70, 6, seed=3)
    weight = _W.copy()
    w = Tensor(weight.copy(), requires_grad=True)

    def epoch(_: int) -> None:
        nonlocal weight
        for start in range(0, 70, 16):
            a, b = data[start : start + 16], goal[start : start + 16]
            w.grad = None
            (((Tensor(a) @ w) - Tensor(b)) ** 2).mean().backward()
            assert w.grad is not None
            w.assign((w - 0.1 * w.grad).detach())
            weight = weight - 0.1 * (2 / b.size) * a.T @ (a @ weight - b)
            close(w, weight, 1e-3, 1e-5)

    epoch(0)
    epoch(1)
    assert _plans(epoch, range(3)) == 0


def test_all_plans_of_epochs_with_a_short_last_batch_are_made_in_the_first() -> None:
    """Also those of the step behind that batch, whose graph holds the short one and its own."""
    data, goal = numbers(45, 12), numbers(45, 6, seed=3)
    w, weight = Tensor(np.zeros((12, 6), np.float32)), np.zeros((12, 6))

    def batch(start: int) -> None:
        nonlocal w, weight
        a, b = data[start : start + 13], goal[start : start + 13]
        x, y = Tensor(a), Tensor(b)
        error = x @ w - y
        w = w - (0.1 / len(x)) * (x.T @ error)
        expected = a @ weight - b
        weight = weight - 0.1 / len(a) * (a.T @ expected)
        close((error * error).mean(), (expected * expected).mean(), 1e-3, 1e-5)

    starts = range(0, 45, 13)
    with Context(SEGMENTS=1):
        for start in (*starts, *starts[:2]):
            batch(start)
        assert _plans(batch, [*starts[2:], *[*starts] * 20]) == 0


def test_a_third_size_behind_one_that_stayed_begins_a_range() -> None:
    with Context(SEGMENTS=1):
        assert _plans(_step("product"), [21, 21, 21, 8]) <= 2 + _COPIES
        assert _plans(_step("product"), [17, 22, 25, 33, 60, 9]) <= 1


def test_images_in_batches_of_every_size() -> None:
    from scipy.signal import correlate2d

    kernel = numbers(2, 3, 3, seed=4)
    weight = Tensor(kernel.reshape(2, 1, 3, 3)).realize()

    def step(count: int) -> None:
        images = numbers(count, 6, 6, seed=count)
        expected = np.array([[correlate2d(i, k, "valid") for k in kernel] for i in images])
        found = Tensor(images.reshape(count, 1, 6, 6)).conv2d(weight).relu().max_pool2d(2)
        pooled = np.maximum(expected, 0).reshape(count, 2, 2, 2, 2, 2).max((3, 5))
        close(found, pooled, 1e-4, 1e-5)

    assert _plans(step, _MIXED[:10]) <= 3


def test_random_numbers_are_those_of_their_size() -> None:
    expected = []
    Tensor.manual_seed(11)
    with Context(SIZES=0):
        for length in _MIXED:
            expected.append((Tensor.rand(length, 3) * 2).numpy())
    Tensor.manual_seed(11)
    before = counters.schedules
    for length, data in zip(_MIXED, expected):
        np.testing.assert_array_equal((Tensor.rand(length, 3) * 2).numpy(), data)
    assert counters.schedules - before <= 3


def test_results_are_tensors_of_numbers() -> None:
    """Nothing of a size that is a variable shows: shapes are integers, memory is of that size."""
    for length in (4, 6, 9):
        x = Tensor(numbers(length, 5)) * 2
        x.realize()
        assert x.shape == (length, 5) and all(type(size) is int for size in x.shape)
        close(
            x.reshape(-1)[: length + 1] + x.T.reshape(-1)[0],
            (numbers(length, 5) * 2).reshape(-1)[: length + 1] + numbers(length, 5)[0, 0] * 2,
        )
        assert memoryview(x.numpy()).nbytes == length * 5 * 4


def test_a_size_that_keeps_coming_has_a_plan_of_its_own() -> None:
    step = _step("product")
    # Sizes that no other test has. SEGMENTS=2 makes a plan of the nodes, too.
    with Context(SIZES=1, SEGMENTS=1):
        for length in (70, 71, 72, 73):
            step(length)
        assert _plans(step, [75] * 7) == 0
        # Runs without nodes are counted first, then those with nodes.
        assert 1 <= _plans(step, [75] * 30) <= 1 + _COPIES
        assert _plans(step, [75] * 20) == 0


def test_many_sizes_that_come_again_do_not_have_a_plan_each() -> None:
    step = _step("sum")
    assert _plans(step, list(range(3, 33)) * 10) <= 3 + 3 * _COPIES


def test_memory_and_tables_are_flat_over_lengths() -> None:
    step = _step("softmax across")
    for length in (3, 4, 5):
        step(length)
    gc.collect()
    before = GlobalCounters.mem_used
    for length in range(3, 400, 7):
        step(length)
    gc.collect()
    assert GlobalCounters.mem_used <= before


def test_a_capture_and_the_plain_plan_have_their_sizes() -> None:
    @jit
    def doubled(x: Tensor) -> Tensor:
        return (x * 2).realize()

    for length in (3, 4, 5, 4):
        data = numbers(length, 2, seed=length)
        close(doubled(Tensor(data).realize()), data * 2)
    with Context(NOOPT=1):
        assert _plans(_step("sum"), [3, 4, 5, 6]) >= 4


def test_a_switch_turns_it_off_and_another_value_compares() -> None:
    with Context(SIZES=0):
        assert _plans(_step("sum"), [3, 4, 5, 6]) >= 4
    with Context(SIZES=2):
        for name in ("sum", "product", "doubled"):
            for length in (3, 4, 5, 6):
                _step(name)(length)


def test_debug_names_the_line_and_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [Tensor(numbers(length, 7)).realize() for length in (3, 4, *[5] * 9)]
    capsys.readouterr()
    # Equal segments count their runs as well, and from which run on depends on what ran before.
    with Context(DEBUG=1, SIZES=1, SEGMENTS=0):
        for x in inputs:
            # No other test has this graph.
            (x * 3 - 0.171875).abs().realize()
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if line.startswith("SIZES")]
    assert len(shown) == 2
    assert re.fullmatch(
        r"SIZES change, test_sizes.py:\d+: one plan for 1 to 1024, here \[4\]", shown[0]
    )
    assert re.fullmatch(r"SIZES stay, test_sizes.py:\d+: a plan for \[5\]", shown[1])


@Context(SEGMENTS=1, SIZES=1)
def test_operations_and_bytes_are_those_of_the_size() -> None:
    """What runs a second time to be compared would be counted as well."""
    w = Tensor(numbers(32, 8)).realize()
    for length in (5, 7, 9, 100):
        x = Tensor(numbers(length, 32)).realize()
        before = GlobalCounters.global_ops, GlobalCounters.global_mem
        (x @ w).realize()
        assert GlobalCounters.global_ops - before[0] == length * 32 * 8 * 2
        assert GlobalCounters.global_mem - before[1] == 4 * (length * 32 + 32 * 8 + length * 8)


@pytest.mark.parametrize("name", ["arange", "one_hot", "gradient of one_hot"])
def test_counting_takes_no_loop_at_any_length(name: str) -> None:
    """Positions of n elements take n steps, and picking rows by a one-hot reads these rows alone,
    in a plan with n as a variable too: sums over n for each element take n * n.
    """

    def work(length: int) -> int:
        table = numbers(length, 4, seed=length)
        picked = np.arange(0, length, 7, dtype=np.int32)
        x, rows = Tensor(table, requires_grad=True), Tensor(picked).realize()
        x.realize()
        before = GlobalCounters.global_ops
        if name == "arange":
            close(x[:, 0] * Tensor.arange(length), table[:, 0] * np.arange(length))
        elif name == "one_hot":
            close(rows.one_hot(length).float() @ x, table[picked])
        else:
            factor = Tensor(np.full((len(picked), 4), 0.5, np.float32)).realize()
            ((rows.one_hot(length).float() @ x) * factor).sum().backward()
            expected = np.zeros_like(table)
            expected[picked] = 0.5
            assert x.grad is not None
            close(x.grad, expected)
        return GlobalCounters.global_ops - before

    assert all(work(length) <= 20 * length for length in (100, 1000, 3000, 2000, 2500))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_counting_takes_no_loop_along_an_axis_of_a_flat_result(axis: int) -> None:
    """One loop runs over all elements; the position along an axis is its quotient or remainder."""

    def work(*sizes: int) -> int:
        table = numbers(*sizes, seed=sizes[0])
        x = Tensor(table).realize()
        before = GlobalCounters.global_ops
        shape = [-1 if each == axis else 1 for each in range(3)]
        positions = Tensor.arange(sizes[axis]).reshape(shape).expand(sizes)
        expected = np.arange(sizes[axis]).reshape(shape) * table
        close((x * positions).reshape(-1) + 1, expected.reshape(-1) + 1)
        return GlobalCounters.global_ops - before

    sizes = ((20, 30, 4), (30, 20, 5), (11, 17, 7), (13, 10, 23), (9, 40, 3))
    assert all(work(*each) <= 20 * math.prod(each) for each in sizes)


def test_an_image_of_every_size_is_sampled_with_gradients() -> None:
    """The fourth size had a plan whose accumulators were larger than the stack."""
    for height, width in ((28, 28), (5, 6), (7, 3), (13, 16), (20, 9)):
        image = numbers(1, 1, height, width, seed=height)
        weights = numbers(1, 1, height, width, seed=width)
        theta = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], requires_grad=True)
        grid = nn.functional.affine_grid(theta, (1, 1, height, width), align_corners=True)
        # Half an element to the left and up, so that no position is an element's.
        off = grid - Tensor([1 / (width - 1), 1 / (height - 1)])
        made = Tensor(image).grid_sample(off, "bilinear", "zeros", True)
        (made * Tensor(weights)).sum().backward()
        padded = np.pad(image[0, 0], ((1, 0), (1, 0)))
        right = (padded[:, 1:] - padded[:, :-1]) * (width - 1) / 2
        slope = (right[1:] + right[:-1]) / 2 * weights[0, 0]
        x, y = np.linspace(-1, 1, width), np.linspace(-1, 1, height)
        expected = [(slope * x).sum(), (slope * y[:, None]).sum(), slope.sum()]
        assert theta.grad is not None
        close(theta.grad[0, 0], np.array(expected), 1e-3, 1e-3)


def test_layers_over_sentences_of_every_length() -> None:
    Tensor.manual_seed(3)
    embedding, norm, head = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 20)
    table, matrix, bias = embedding.weight.numpy(), head.weight.numpy(), head.bias.numpy()

    def step(length: int) -> None:
        words = np.random.default_rng(length).integers(0, 20, length).astype(np.int32)
        found = head(norm(embedding(Tensor(words)))).log_softmax(-1)
        rows = table[words]
        centred = rows - rows.mean(1, keepdims=True)
        rows = centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)
        close(found, np.log(_softmax(rows @ matrix.T + bias)), 1e-3, 1e-4)

    assert _plans(step, _MIXED) <= 4


@pytest.mark.parametrize("device", ["EMU:CL", "EMU"])
def test_a_device_with_blocks_has_one_plan_for_a_range(device: str) -> None:
    """A launch has the blocks of its size, not those of the largest."""
    launched: list[int] = []
    runtime = Device[device].runtime
    plain = runtime.launch

    def launch(program: Any, handles: Any, variables: Any, blocks: Any, lanes: Any, **rest: Any):
        launched.append(math.prod(blocks) * math.prod(lanes))
        return plain(program, handles, variables, blocks, lanes, **rest)

    def step(size: int) -> None:
        values = np.arange(size * 18.0, dtype=np.float32).reshape(size, 2, 3, 3)
        made = Tensor(values, device=device) * 2 + 1
        np.testing.assert_array_equal(made.numpy(), values * 2 + 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "launch", launch)
        assert _plans(step, (3, 4, 5, 6, 3, 6, 40, 41, 43)) <= 3
    # At most a block of 256 lanes for a lane's share of each size.
    assert max(launched) <= 43 * 18 * 32


@pytest.mark.parametrize("function", ["softmax", "sum of rows", "sum of columns", "all", "product"])
def test_reductions_on_a_device_with_blocks_for_a_range(function: str) -> None:
    rng = np.random.default_rng(0)

    def step(size: int) -> None:
        x = rng.standard_normal((size, size + 3)).astype(np.float32)
        t, wide = Tensor(x, device="EMU"), x.astype(np.float64)
        if function == "softmax":
            power = np.exp(wide - wide.max(1, keepdims=True))
            found, wanted = t.softmax(1), power / power.sum(1, keepdims=True)
        elif function == "sum of rows":
            found, wanted = t.sum(1), wide.sum(1)
        elif function == "sum of columns":
            found, wanted = t.sum(0), wide.sum(0)
        elif function == "all":
            found, wanted = t.sum(), wide.sum()
        else:
            found, wanted = t @ t.T, wide @ wide.T
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)

    assert _plans(step, (5, 6, 9, 7, 13, 33)) <= 3


def test_a_number_that_follows_from_a_size_may_be_one_that_stays() -> None:
    """1 stays a constant of its kernel and 4 may change: these are graphs of two signatures. With
    SIZES=2 an error of the plan for all sizes is raised.
    """
    with Context(SIZES=2):
        for size in (4, 6, 1, 5, 1, 7):
            a = numbers(2, size, 3, seed=size)
            places = np.array([0, size - 1, -1], np.int32)
            x = Tensor(a)
            close(x[:, Tensor(places)].sum(0), a[:, places].sum(0))


@pytest.mark.parametrize("start", [0, 1])
def test_every_second_element_of_a_size_that_changes_is_written(start: int) -> None:
    with Context(SIZES=2):
        for length in (4, 5, 6, 7, 9, 12, 15):
            wanted = numbers(length, 2)
            x = Tensor(wanted)
            x[start::2] = -4
            wanted[start::2] = -4
            np.testing.assert_array_equal(x.numpy(), wanted)


@pytest.mark.parametrize("number", [2, -1])
def test_an_element_of_a_size_that_changes_is_picked_on_the_reference_device(number: int) -> None:
    """A kernel that picks at a number takes no length, and its memory is shorter than the longest
    that the plan is for.
    """
    for length in (4, 5, 6, 7, 9, 4):
        a = numbers(length)
        assert Tensor(a, device="EMU").realize()[number].item() == a[number]
        written = Tensor(a, device="EMU").realize()
        written[number] = 3.0
        a[number] = 3.0
        np.testing.assert_array_equal(written.numpy(), a)


def test_a_scan_along_the_first_axis_of_planes_that_grow() -> None:
    """The values that it carries for the largest plane would be 8 MiB of the stack."""
    for size in (2, 3, 4, 7):
        a = numbers(3, size, size, seed=size)
        close(Tensor(a).cumsum(0), a.cumsum(0))


def test_a_wide_integer_that_changes_beside_a_size() -> None:
    """An int64 is no variable of a launch: what no size explains has a plan of its own."""
    random = np.random.default_rng(4)
    for count in (3, 4, 5, 6, 3, 7, 9, 11, 4, 8):
        counts = random.integers(2, 9, count)
        total = int(counts.sum())
        given = Tensor(counts.astype(np.int64))
        assert [(given.sum(0) == total + more).item() for more in (0, 1, -1)] == [
            True,
            False,
            False,
        ]


def test_gradients_through_factors_of_every_size() -> None:
    """The gradient of log det A is the inverse of a symmetric A: by a factor whose kernel, and the
    kernels of its gradient, are those of all sizes.
    """

    def step(length: int) -> None:
        root = numbers(length, 12, seed=length)
        matrix = root @ root.T + np.eye(length, dtype=np.float32) * 20
        a = Tensor(matrix, requires_grad=True)
        found = a.cholesky()
        ((found * Tensor.eye(length)).sum(1).log().sum() * 2).backward()
        assert a.grad is not None
        close(a.grad, np.linalg.inv(matrix.astype(np.float64)), 1e-4, 1e-4)

    assert _plans(step, _MIXED) <= 6 + _COPIES


def test_a_kernel_of_any_size_beside_sizes_that_do_not_fit_it() -> None:
    """Two sizes that were equal by chance, one of a factor's rows and one beside them, part."""
    for rows, columns in ((5, 7), (8, 10), (11, 13), (9, 4), (6, 17), (3, 3), (12, 5)):
        data, right = numbers(rows, 12, seed=rows), numbers(rows, columns, seed=columns)
        matrix = data @ data.T + np.eye(rows, dtype=np.float32) * 20
        found = Tensor(matrix).solve(Tensor(right) * 2) + 1
        close(found, np.linalg.solve(matrix.astype(np.float64), right * 2) + 1, 1e-4, 1e-4)
