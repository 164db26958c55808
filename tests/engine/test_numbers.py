"""A Python number that changes from step to step is a variable of the launch: however many values
it takes, few graphs are planned, and every value is computed as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, dtypes, jit
from tilegrad.base.trace import counters
from tilegrad.engine.realize.bindings import _bindings

_ARRAY = numbers(5, 7)


def _plans(step: Callable[[int], None], steps: int = 12) -> int:
    before = counters.schedules
    for number in range(steps):
        step(number)
    return counters.schedules - before


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x, c: x * c, lambda a, c: a * c),
        (lambda x, c: x / c, lambda a, c: a / c),
        (lambda x, c: c - x, lambda a, c: c - a),
        (lambda x, c: x.clip(-c, c + 1), lambda a, c: a.clip(-c, c + 1)),
        (lambda x, c: (x > c).where(x, c), lambda a, c: np.where(a > c, a, c)),
        (lambda x, c: (x + c).sum(1), lambda a, c: (a + c).sum(1)),
        (lambda x, c: Tensor.full((7,), c) * x, lambda a, c: np.full(7, c, np.float32) * a),
    ],
    ids=["times", "divided", "from", "clip", "where", "sum", "full"],
)
def test_at_most_three_plans_serve_all_values(
    ours: Callable[[Tensor, float], Tensor], theirs: Callable[[np.ndarray, np.float32], np.ndarray]
) -> None:
    x = Tensor(_ARRAY).realize()

    def step(number: int) -> None:
        value = 0.13 + 0.37 * number
        close(ours(x, value), theirs(_ARRAY, np.float32(value)))

    assert _plans(step) <= 3


def test_a_learning_rate_and_powers_change_together() -> None:
    x = Tensor(_ARRAY).realize()

    def step(number: int) -> None:
        first, second = 1 - 0.9 ** (number + 1), 1 - 0.99 ** (number + 1)
        rate = 0.013 / (1 + number)
        expected = _ARRAY - rate * (_ARRAY / first) / (np.sqrt(_ARRAY**2 / second) + 1e-3)
        close(x - rate * (x / first) / ((x * x / second).sqrt() + 1e-3), expected, 1e-4)

    assert _plans(step) <= 3


def test_a_number_that_was_read_changes() -> None:
    x = Tensor(_ARRAY).realize()
    scale, expected = 0.7, np.float32(0.7)

    def step(number: int) -> None:
        nonlocal scale, expected
        scale = float((x * scale).abs().mean().item()) + 0.3
        expected = np.float32(np.abs(_ARRAY * expected).mean() + np.float32(0.3))
        assert scale == pytest.approx(float(expected), rel=1e-4)

    assert _plans(step) <= 3


def test_numbers_that_do_not_change_stay_in_the_kernel() -> None:
    x = Tensor(_ARRAY).realize()
    for _ in range(3):
        close(x * 0.3 + 0.7, _ARRAY * np.float32(0.3) + np.float32(0.7))
    before = counters.schedules
    close(x * 0.3 + 0.7, _ARRAY * np.float32(0.3) + np.float32(0.7))
    assert counters.schedules == before


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan, 1e-42])
def test_numbers_that_rules_ask_for_mean_themselves_after_others(value: float) -> None:
    x = Tensor(_ARRAY).realize()
    for before in (0.3, 0.7, 1.1):
        (x * before).realize()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((x * value).numpy(), _ARRAY * np.float32(value))


def test_two_numbers_that_meet_are_two_again() -> None:
    x = Tensor(_ARRAY).realize()
    for first, second in ((0.3, 0.7), (0.4, 0.9), (0.6, 0.6), (0.9, 0.4), (0.7, 0.7), (0.3, 0.7)):
        close(x * first + second, _ARRAY * np.float32(first) + np.float32(second))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int32])
def test_numbers_of_other_dtypes_keep_their_value(dtype: object) -> None:
    x = Tensor([1.0, 2.0, 3.0]).cast(dtype).realize()  # type: ignore[arg-type]
    for number in (3, 5, 7, 11):
        assert (x * number).tolist() == [number, 2 * number, 3 * number]


def test_a_gradient_has_the_number_of_its_step() -> None:
    w = Tensor(_ARRAY, requires_grad=True)
    for number in range(5):
        value = 0.2 + number
        w.grad = None
        ((w * value) ** 2).sum().backward()
        assert w.grad is not None
        close(w.grad, 2 * np.float32(value) ** 2 * _ARRAY, 1e-4)


def test_the_plain_plan_has_its_numbers() -> None:
    x = Tensor(_ARRAY).realize()
    with Context(NOOPT=1):
        for number in range(4):
            close(x * (0.3 + number), _ARRAY * np.float32(0.3 + number))


def test_a_capture_has_the_numbers_that_it_saw() -> None:
    x = Tensor(_ARRAY).realize()
    for number in range(4):
        (x * (0.21 + number)).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        return (x * 0.91).realize()

    for shift in range(4):
        close(step(x + shift), (_ARRAY + shift) * np.float32(0.91))


def test_numbers_that_are_equal_now_and_then_cost_no_plans() -> None:
    x, data = Tensor(numbers(7)).realize(), numbers(7).astype(np.float64)
    before = counters.schedules
    for step in range(1, 25):
        rate, small = (0.01 if step % 3 else 0.3), (0.01 if step % 2 else 0.7)
        decay = 1 - 0.99**step
        found = (((x * rate + small).exp() + rate) * decay + 0.9).sum().item()
        expected = (np.exp(data * rate + small) + rate) * decay + 0.9
        assert found == pytest.approx(expected.sum(), rel=1e-4)
    assert counters.schedules - before <= 3


def test_numbers_that_part_after_they_were_variables_are_right() -> None:
    x, data = Tensor(numbers(5)).realize(), numbers(5).astype(np.float64)
    # One number at first, one variable then, two in the end.
    for first, second in [(0.3, 0.3), (0.4, 0.4), (0.6, 0.7), (0.8, 0.8), (0.3, 0.9)]:
        found = (((x * first).exp() + second) * 1.5).sum().item()
        assert found == pytest.approx(((np.exp(data * first) + second) * 1.5).sum(), rel=1e-4)


_INTEGERS = np.arange(-40, 37, dtype=np.int32).reshape(7, 11) * 3


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x, c: (x <= c).where(x, c), lambda a, c: np.where(a <= c, a, c)),
        (lambda x, c: x * c + c, lambda a, c: a * c + c),
        (lambda x, c: x // c, lambda a, c: a // c),
        (lambda x, c: x % c, lambda a, c: a % c),
        (lambda x, c: c - x, lambda a, c: c - a),
        (lambda x, c: x & c, lambda a, c: a & c),
        (lambda x, c: (x ^ c) | c, lambda a, c: (a ^ c) | c),
        (lambda x, c: x << c % 7, lambda a, c: a << c % 7),
        (lambda x, c: x >> c % 7, lambda a, c: a >> c % 7),
        (lambda x, c: (x == c).sum(0) + x.maximum(c).sum(0), lambda a, c: (
            (a == c).sum(0) + np.maximum(a, c).sum(0)
        )),
        (lambda x, c: x.clip(-c, c), lambda a, c: a.clip(-c, c)),
        (lambda x, c: x.reshape(77)[(x[0].abs() + c) % 77], lambda a, c: (
            a.reshape(77)[(abs(a[0]) + c) % 77]
        )),
        (lambda x, c: x + Tensor.arange(c, c + 11, dtype=dtypes.int32), lambda a, c: (
            a + np.arange(c, c + 11, dtype=np.int32)
        )),
    ],
    ids=[
        "where", "scaled", "floor", "rest", "from", "and", "or", "left", "right", "count", "clip",
        "index", "arange",
    ],
)  # fmt: skip
def test_an_integer_that_counts_up_has_few_plans(
    ours: Callable[[Tensor, int], Tensor], theirs: Callable[[np.ndarray, int], np.ndarray]
) -> None:
    x = Tensor(_INTEGERS).realize()

    def step(number: int) -> None:
        value = 3 + 2 * number
        assert ours(x, value).tolist() == theirs(_INTEGERS, value).tolist()

    # What shapes code has a plan of its own: shifts by 0 and 1, remainders of 1.
    assert _plans(step, 16) <= 6


def test_integers_of_every_kind_are_as_written() -> None:
    x = Tensor(_INTEGERS).realize()
    for value in (7, -7, 2**31 - 1, -(2**31), 12345678, -2, 5, 2**30, -(2**30)):
        assert (x + value).tolist() == (_INTEGERS + np.int32(value)).tolist()
        assert (x < value).tolist() == (value > _INTEGERS).tolist()
        # A float of the same value is another number.
        close((x.float() * float(value)) + x * value, _both(value), 1e-3)


def _both(value: int) -> np.ndarray:
    wrapped = (_INTEGERS.astype(np.int64) * value).astype(np.int32)
    return _INTEGERS.astype(np.float32) * np.float32(value) + wrapped.astype(np.float32)


def test_adam_written_by_hand_is_planned_in_its_first_steps() -> None:
    """The first step is another graph than the rest; what changes in it is known in the next."""
    x, goal = Tensor(_ARRAY).realize(), Tensor(_ARRAY[:, :2].copy()).realize()
    weight = Tensor(numbers(7, 2), requires_grad=True)
    moments = Tensor(np.zeros((7, 2), np.float32)), Tensor(np.zeros((7, 2), np.float32))
    expected, first, second = numbers(7, 2).astype(np.float64), 0.0, 0.0
    plans = [counters.schedules]
    for step in range(1, 41):
        loss = ((x @ weight - goal) ** 2).mean()
        loss.backward()
        gradient = weight.grad.detach()
        m, v = moments
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient * gradient
        moments = m, v
        root = (v / (1 - 0.99**step)).sqrt() + 1e-8
        weight.assign(weight - 0.01 * (m / (1 - 0.9**step)) / root)
        weight.grad = None
        error = _ARRAY @ expected - _ARRAY[:, :2]
        close(loss, np.float32((error**2).mean()), 1e-3)
        slope = _ARRAY.T @ error * 2 / error.size
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        step_size = 0.01 * first / (1 - 0.9**step)
        expected = expected - step_size / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        plans.append(counters.schedules)
    assert plans[-1] - plans[0] <= 8
    assert plans[-1] == plans[24]
    close(weight, expected.astype(np.float32), 1e-3)


def test_calls_whose_numbers_stay_keep_them_in_their_kernels() -> None:
    """One call with other numbers at each place of a graph has the same ones in the next graph."""

    def scaled(y: Tensor, by: float) -> Tensor:
        return y * by

    x = Tensor(_ARRAY).realize()
    for rows in (3, 4):
        y = x[:rows]
        for by in (0.3, 0.7):
            y = scaled(y, by) + 0.25
        y.realize()
    bindings = next(reversed([*_bindings.values()]))
    assert not bindings.changing


@Context(SEGMENTS=1)
def test_an_update_whose_numbers_change_is_one_kernel() -> None:
    """Adam by hand: the moments and the parameter, with a rate and corrections of their own at each
    step.
    """
    rng = np.random.default_rng(0)
    w = Tensor(rng.normal(size=7).astype(np.float32)).realize()
    m, v = (Tensor.zeros(7).contiguous().realize() for _ in range(2))
    W, M, V = w.numpy().astype(np.float64), np.zeros(7), np.zeros(7)
    kernels = []
    for t in range(1, 9):
        g = Tensor(rng.normal(size=7).astype(np.float32)).realize()
        G = g.numpy().astype(np.float64)
        rate, first, second = 0.1 / t, 1 - 0.9**t, 1 - 0.99**t
        before = GlobalCounters.kernel_count
        m.assign(m * 0.9 + g * (0.1 + 0.001 * t))
        v.assign(v * 0.99 + g * g * 0.01)
        w.assign(w - rate * (m / first) / ((v / second).sqrt() + 1e-3 * t))
        w.realize(m, v)
        kernels.append(GlobalCounters.kernel_count - before)
        M, V = M * 0.9 + G * (0.1 + 0.001 * t), V * 0.99 + G * G * 0.01
        W = W - rate * (M / first) / (np.sqrt(V / second) + 1e-3 * t)
        np.testing.assert_allclose(w.numpy(), W, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(v.numpy(), V, rtol=1e-5, atol=1e-6)
    assert kernels == [1] * 8
