"""Calls that came before are recognised by a short signature: it tells calls apart that differ in
anything that matters. Each test makes the calls often enough to be known, and mixes those that
might be taken for each other; NumPy has what is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import numbers
from tilegrad import Context, Tensor, dtypes, no_grad

ROUNDS = 6
Pair = tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]

# Calls that a signature by `==` alone, or without the kinds of arguments, would take for one.
ALIKE: dict[str, list[Pair]] = {
    "numbers of other kinds": [
        (lambda x: x * 1, lambda a: a * np.float32(1)),
        (lambda x: x * 1.0, lambda a: a),
        (lambda x: x * True, lambda a: a),
        (lambda x: x * 2, lambda a: a + a),
        (lambda x: x * 2.5, lambda a: a * np.float32(2.5)),
    ],
    "zeros": [
        (lambda x: 1 / (x * 0.0), lambda a: 1 / (a * np.float32(0.0))),
        (lambda x: 1 / (x * -0.0), lambda a: 1 / (a * np.float32(-0.0))),
        (lambda x: 1 / (x * 0), lambda a: 1 / (a * np.float32(0))),
    ],
    "axes": [
        (lambda x: x.sum(0), lambda a: a.sum(0)),
        (lambda x: x.sum(1), lambda a: a.sum(1)),
        (lambda x: x.sum(-1), lambda a: a.sum(-1)),
        (lambda x: x.sum((0, 1)), lambda a: a.sum()),
        (lambda x: x.sum((0,)), lambda a: a.sum(0)),
        (lambda x: x.sum(axis=1), lambda a: a.sum(1)),
        (lambda x: x.sum(axis=1, keepdim=True), lambda a: a.sum(1, keepdims=True)),
        (lambda x: x.sum(axis=1, keepdim=False), lambda a: a.sum(1)),
        (lambda x: x.sum(1, True), lambda a: a.sum(1, keepdims=True)),
        (lambda x: x.sum(0, True), lambda a: a.sum(0, keepdims=True)),
    ],
    "slices": [
        (lambda x: x[1], lambda a: a[1]),
        (lambda x: x[1:], lambda a: a[1:]),
        (lambda x: x[:1], lambda a: a[:1]),
        (lambda x: x[::2], lambda a: a[::2]),
        (lambda x: x[:, 1], lambda a: a[:, 1]),
        (lambda x: x[1, 1], lambda a: a[1, 1]),
        (lambda x: x[1:2, 1:3], lambda a: a[1:2, 1:3]),
        (lambda x: x[None, 1], lambda a: a[None, 1]),
        (lambda x: x[..., 1], lambda a: a[..., 1]),
    ],
    "shapes": [
        (lambda x: x.reshape(4, 6), lambda a: a.reshape(4, 6)),
        (lambda x: x.reshape(6, 4), lambda a: a.reshape(6, 4)),
        (lambda x: x.reshape((24,)), lambda a: a.reshape(24)),
        (lambda x: x.reshape(24), lambda a: a.reshape(24)),
        (lambda x: x.transpose(0, 1), lambda a: a.T),
        (lambda x: x.permute(0, 1), lambda a: a),
        (lambda x: x.permute(1, 0), lambda a: a.T),
    ],
    "operands": [
        (lambda x: (x > 0).where(x, 1.5), lambda a: np.where(a > 0, a, np.float32(1.5))),
        (lambda x: (x > 0).where(1.5, x), lambda a: np.where(a > 0, np.float32(1.5), a)),
        (lambda x: (x > 0).where(x, x), lambda a: a),
        (lambda x: (x > 0).where(x, x + 1), lambda a: np.where(a > 0, a, a + 1)),
        (lambda x: (x > 0).where(x + 1, x), lambda a: np.where(a > 0, a + 1, a)),
        (lambda x: x - x, lambda a: a - a),
        (lambda x: x - (x + 1), lambda a: a - (a + 1)),
        (lambda x: x.clip(-0.5, 0.25), lambda a: a.clip(-0.5, 0.25)),
        (lambda x: x.clip(-0.25, 0.5), lambda a: a.clip(-0.25, 0.5)),
        (lambda x: x.clip(-1, 1), lambda a: a.clip(-1, 1)),
        (lambda x: x.clip(None, 0.25), lambda a: a.clip(None, 0.25)),
        (lambda x: x.clip(0.25), lambda a: a.clip(0.25, None)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("stands", ["in memory", "on a call"])
def test_calls_that_look_alike_are_told_apart(name: str, stands: str) -> None:
    values = numbers(4, 6)
    x = Tensor(values).realize()
    for turn in range(ROUNDS):
        given = x if stands == "in memory" else x + float(turn)
        expected = values if stands == "in memory" else values + np.float32(turn)
        for ours, theirs in ALIKE[name]:
            with np.errstate(divide="ignore", invalid="ignore"):
                wanted = np.asarray(theirs(expected))
            np.testing.assert_allclose(ours(given).numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_dtypes_of_operands_and_numbers_are_told_apart() -> None:
    """The same numbers next to tensors of other dtypes, and one that does not change any more."""
    kinds = {dtypes.float32: np.float32, dtypes.int32: np.int32, dtypes.float64: np.float64}
    for turn in range(ROUNDS):
        for dtype, kind in kinds.items():
            x = Tensor(np.arange(6).astype(kind)) + turn
            for number in (3, turn + 2, 3 if kind is np.int32 else 0.5 + turn):
                found = x * number
                assert found.dtype is dtype
                wanted = (np.arange(6) + turn) * number
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_numbers_that_change_beside_one_that_stays() -> None:
    x = Tensor(numbers(5)).realize()
    velocity, wanted = Tensor(np.zeros(5, np.float32)), np.zeros(5)
    for turn in range(20):
        rate = 0.1 / (turn + 1)
        velocity = 0.9 * velocity + rate * x - 2 * (x * rate)
        wanted = 0.9 * wanted - rate * numbers(5).astype(np.float64)
        if turn % 3 == 0:
            np.testing.assert_allclose(velocity.numpy(), wanted, rtol=1e-5, atol=1e-6)
    # Infinity, NaN and zeros shape the code, and are no inputs.
    for number in (0.0, float("inf"), -0.0, float("nan"), 1e30, 0.0):
        with np.errstate(invalid="ignore"):
            expected = numbers(5) * np.float32(number)
        found = (x * number).numpy()
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_lengths_that_change_and_arguments_that_are_lengths() -> None:
    """A length and an integer argument that is equal to it, or no longer is."""
    rows = numbers(40, 4)
    for length in (2, 3, 5, 6, 7, 9, 12, 11, 6, 9, 4, 8, 10, 20, 33):
        a = rows[:length]
        x = Tensor(a.copy()) * 2
        doubled = a * np.float32(2)
        np.testing.assert_array_equal(x.reshape(length * 4).numpy(), doubled.reshape(-1))
        np.testing.assert_array_equal(x.reshape(4, length).numpy(), doubled.reshape(4, length))
        np.testing.assert_array_equal(
            x.reshape(length, 1, 4).expand(length, 3, 4).numpy(),
            np.broadcast_to(doubled[:, None], (length, 3, 4)),
        )
        np.testing.assert_allclose((x.T @ x).numpy(), doubled.T @ doubled, rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(x.mean(0).numpy(), doubled.mean(0), rtol=1e-5, atol=1e-6)
        found = (x @ x.T).softmax(-1).sum(0)
        scores = (doubled @ doubled.T).astype(np.float64)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        np.testing.assert_allclose(found.numpy(), weights.sum(0), rtol=1e-4)


def test_a_length_that_an_argument_does_not_follow_is_an_error_as_before() -> None:
    for length in (3, 5, 6, 7, 9, 12):
        x = Tensor(numbers(length, 4)) + 1
        assert x.reshape(length, 2, 2).shape == (length, 2, 2)
    x = Tensor(numbers(13, 4)) + 1
    with pytest.raises(Exception, match="reshape"):
        x.reshape(12, 2, 2)


def test_a_reshape_of_two_views_of_one_shape_is_a_view_of_one_and_a_copy_of_the_other() -> None:
    """Both operands are results of the same shape, and the signature of `reshape` is the same."""
    for turn in range(ROUNDS):
        base = Tensor(numbers(6, 4)).realize() + float(turn)
        other = Tensor(numbers(4, 6)).realize() + float(turn)
        values, others = numbers(6, 4) + np.float32(turn), numbers(4, 6) + np.float32(turn)
        # The rows of one are the columns of the other.
        for tensor, array, is_copy in (
            (base.permute(1, 0), values.T, True),
            (other.permute(0, 1), others, False),
        ):
            flat = tensor.reshape(24)
            wanted = array.reshape(24)
            assert np.shares_memory(wanted, array) is not is_copy
            flat += 100
            wanted += 100
            np.testing.assert_array_equal(flat.numpy(), wanted)
            np.testing.assert_array_equal(tensor.numpy(), array)
        np.testing.assert_array_equal(base.numpy(), values)
        np.testing.assert_array_equal(other.numpy(), others)


def test_views_of_views_of_one_shape_share_what_numpys_share() -> None:
    """Chains of views with the same shapes, which reach their storage in other ways."""
    chains: list[Callable[[Any], Any]] = [
        lambda a: a.reshape(2, 3, 4).reshape(6, 4),
        lambda a: a.reshape(3, 2, 4).reshape(6, 4),
        lambda a: _swapped(a.reshape(2, 3, 4), 0, 1).reshape(6, 4),
        lambda a: _swapped(_swapped(a.reshape(2, 3, 4), 0, 1), 0, 1).reshape(6, 4),
        lambda a: _swapped(a.reshape(4, 6), 0, 1).reshape(6, 4),
        lambda a: _swapped(_swapped(a.reshape(2, 12), 0, 1), 1, 0).reshape(6, 4),
        lambda a: a[:, :, ::-1].reshape(6, 4),
        lambda a: a.reshape(6, 4)[::-1].reshape(6, 4),
        lambda a: a[0].reshape(1, 3, 4)[0].reshape(12)[:8].reshape(2, 4),
    ]
    for turn in range(ROUNDS):
        for number, chain in enumerate(chains):
            values = numbers(2, 3, 4) + np.float32(turn)
            x = Tensor(numbers(2, 3, 4)).realize() + float(turn)
            ours, theirs = chain(x), chain(values)
            ours -= 50
            theirs -= 50
            assert np.array_equal(ours.numpy(), theirs), number
            assert np.array_equal(x.numpy(), values), number


def _swapped(a: Any, first: int, second: int) -> Any:
    return a.swapaxes(first, second) if isinstance(a, np.ndarray) else a.transpose(first, second)


def test_chains_of_views_whose_base_changes_its_length() -> None:
    """A slice of three rows is flattened: a view of rows, a copy of columns, at any length."""
    for length in (5, 7, 11, 6, 9, 12, 13, 8, 10, 4):
        values = numbers(length, 4) * np.float32(2)
        x = Tensor(numbers(length, 4)) * 2
        ours, theirs = x[1:4].reshape(12), values[1:4].reshape(12)
        ours += 7
        theirs += 7
        columns, wanted = x[:, 1:3].reshape(length * 2), values[:, 1:3].reshape(length * 2)
        columns += 9
        np.testing.assert_array_equal(ours.numpy(), theirs)
        np.testing.assert_array_equal(columns.numpy(), wanted + 9)
        np.testing.assert_array_equal(x.numpy(), values)


def test_gradients_are_recorded_where_they_were_not_before() -> None:
    w = Tensor(numbers(4, 4), requires_grad=True)
    x = Tensor(numbers(3, 4)).realize()
    for turn in range(ROUNDS):
        with no_grad():
            assert not (x @ w).requires_grad
        frozen = x @ w.detach()
        assert not frozen.requires_grad
        w.grad = None
        ((x @ w).relu() * float(turn + 1)).sum().backward()
        mask = (numbers(3, 4) @ numbers(4, 4) > 0) * float(turn + 1)
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), numbers(3, 4).T @ mask, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("switches", "size"), [({"SEGMENTS": 0}, 7), ({"TEMPLATES": 2}, 11), ({"NOOPT": 1}, 13)]
)
def test_no_call_waits_where_none_may(switches: dict[str, Any], size: int) -> None:
    with Context(**switches):
        # Templates that are recorded here: the size is no other test's.
        x = Tensor(numbers(5, size)).realize()
        for turn in range(ROUNDS):
            for made in (x + x, (x * 2.5).sum(1), x.reshape(size, 5), x * float(turn), x[:turn].T):
                assert made._call is None


def test_a_subclass_makes_its_own_results() -> None:
    class Mine(Tensor):
        pass

    for _ in range(ROUNDS):
        for kind in (Tensor, Mine):
            x, y = kind(numbers(3)) + 1, Tensor(numbers(3)) + 1
            assert type(x * 2) is kind
            assert type(x * y) is kind
            np.testing.assert_allclose((x * y).numpy(), (numbers(3) + 1) ** 2, rtol=1e-6)


def test_positions_in_memory_beside_lengths_that_change() -> None:
    """Rows at other positions of one tensor meet others of each length: neither is frozen."""
    random = np.random.default_rng(3)
    table = random.normal(size=(40, 4)).astype(np.float32)
    memory = Tensor(table).realize()
    for _ in range(40):
        rows = random.normal(size=(int(random.integers(3, 30)), 4)).astype(np.float32)
        at, begin = (int(each) for each in random.integers(0, 36, 2))
        found = (Tensor(rows) * memory[at]).sum(1)
        np.testing.assert_allclose(found.numpy(), (rows * table[at]).sum(1), rtol=1e-4, atol=1e-5)
        several = (Tensor(rows) @ memory[begin : begin + 4] + memory[at]).sum(0)
        wanted = (rows.astype(np.float64) @ table[begin : begin + 4] + table[at]).sum(0)
        np.testing.assert_allclose(several.numpy(), wanted, rtol=1e-4, atol=1e-4)
