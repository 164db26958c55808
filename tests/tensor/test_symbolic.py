"""Sizes that are Variables: shapes, moments, movement and products, at each bound value as NumPy
has them.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor, Variable
from tilegrad.base.errors import ShapeError
from tilegrad.base.trace import counters
from tilegrad.tensor.handle.size_arguments import show_shape

X = numbers(8, 3)


def cut(length: int) -> Tensor:
    """The first rows of X, as many as a Variable says."""
    return Tensor(X).shrink(((0, Variable("length", 4, 8).bind(length)), None))


@pytest.mark.row("B1.5", "B1.2")
@pytest.mark.parametrize("length", [4, 6, 8])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "var", "std"])
def test_reductions_over_a_symbolic_axis(name: str, length: int) -> None:
    extra = {"ddof": 1} if name in ("var", "std") else {}
    close(getattr(cut(length), name)(0), getattr(np, name)(X[:length], axis=0, **extra), rtol=2e-5)
    close(getattr(cut(length), name)(), getattr(np, name)(X[:length], **extra), rtol=2e-5)


@pytest.mark.row("B1.5")
@pytest.mark.parametrize("length", [4, 8])
def test_a_symbolic_length_divides(length: int) -> None:
    variable = Variable("length", 4, 8).bind(length)
    close(cut(length).sum(0) / variable, X[:length].sum(0) / np.float32(length))


@pytest.mark.parametrize("length", [5, 8])
def test_values_have_the_bound_shape(length: int) -> None:
    x = cut(length)
    assert len(x) == length
    close(x, X[:length])
    close(x * 2 + 1, X[:length] * 2 + 1)
    assert x.tolist() == X[:length].tolist()
    close(x.T, X[:length].T)
    close(x[1:], X[1:length])
    close(x[:, 1], X[:length, 1])
    close(x.softmax(0), np.exp(X[:length]) / np.exp(X[:length]).sum(0), rtol=2e-5)


@pytest.mark.parametrize("length", [4, 7])
def test_products_over_symbolic_sizes(length: int) -> None:
    x = cut(length)
    close(x @ Tensor(numbers(3, 2, seed=1)), X[:length] @ numbers(3, 2, seed=1))
    close(x.T @ x, X[:length].T @ X[:length], rtol=2e-5, atol=1e-5)
    close(x.reshape(-1), X[:length].reshape(-1))
    close(x.argmax(0), X[:length].argmax(0).astype(np.int32))
    close(Tensor.arange(Variable("length", 4, 8).bind(length)), np.arange(length, dtype=np.int32))


@pytest.mark.parametrize("length", [4, 7])
def test_attention_over_a_symbolic_length(length: int) -> None:
    """The decode step: one query against the keys so far, whose number is a Variable."""
    keys = (
        Tensor(X).reshape(1, 8, 3).shrink((None, (0, Variable("length", 4, 8).bind(length)), None))
    )
    query = Tensor(numbers(1, 1, 3, seed=5))
    scores = numbers(1, 1, 3, seed=5) @ X[None, :length].swapaxes(1, 2) / np.sqrt(np.float32(3))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    close(query.scaled_dot_product_attention(keys, keys), weights @ X[None, :length], rtol=2e-5)


def test_symbolic_positions_pick_and_write() -> None:
    place = Variable("place", 0, 7)
    for at in (0, 3, 7):
        close(Tensor(X)[place.bind(at)], X[at])
        cache = Tensor(X).realize()
        cache[place.bind(at)] = Tensor([1.0, 2.0, 3.0])
        expected = X.copy()
        expected[at] = [1, 2, 3]
        close(cache, expected)


def test_shapes_print_by_the_names_of_their_variables() -> None:
    assert show_shape(cut(5).shape) == "(length, 3)"
    assert show_shape(cut(5)[1:].shape) == "((length + -1), 3)"
    assert "(length, 3) float" in repr(cut(5))


@pytest.mark.row("B1.2", "B1.5", "B1.6")
@pytest.mark.parametrize("name", ["sum", "mean", "var"])
def test_another_bound_value_compiles_nothing(name: str) -> None:
    """By the variable, not by a plan for a range of sizes."""
    with Context(SIZES=0):
        getattr(cut(4), name)(0).realize()
        before = counters.compiles, counters.schedules
        close(
            getattr(cut(7), name)(0),
            getattr(np, name)(X[:7], axis=0, **({"ddof": 1} if name == "var" else {})),
            2e-5,
        )
        assert (counters.compiles, counters.schedules) == before


def test_sizes_that_cannot_be_told_raise() -> None:
    with pytest.raises(ShapeError, match="add: shapes do not broadcast"):
        cut(5) + Tensor(X)
    with pytest.raises(ShapeError, match="rand: sizes must be numbers"):
        Tensor.rand(Variable("length", 4, 8).bind(5))


def test_a_size_that_may_be_zero() -> None:
    """A loop over at most one element still runs no time for none."""
    n = Variable("n", 0, 1)
    x = Tensor([5.0])
    for size in (0, 1):
        part = x.shrink(((0, n.bind(size)),))
        assert part.sum().item() == 5.0 * size


BESIDE = {
    "chunk": (lambda x: x.chunk(3, -1)[1], lambda x: x[:, 1:2]),
    "split": (lambda x: x.split([1, 2], 1)[1], lambda x: x[:, 1:]),
    "unbind": (lambda x: x.unbind(1)[2], lambda x: x[:, 2]),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), lambda x: x.repeat(2, 1)),
    "reshape": (
        lambda x: x.repeat(1, 2).reshape(x.shape[0], 2, -1),
        lambda x: np.tile(x, (1, 2)).reshape(len(x), 2, 3),
    ),
    "conv2d": (
        lambda x: x.reshape(x.shape[0], 3, 1).conv2d(Tensor.ones(2, 3, 1)),
        lambda x: np.repeat(x.sum(1).reshape(-1, 1, 1), 2, 1),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_only_the_axis_that_is_counted_needs_a_number(name: str) -> None:
    ours, theirs = BESIDE[name]
    for length in (4, 7):
        close(ours(cut(length)), theirs(X[:length]), rtol=1e-5)


def test_what_needs_numbers_says_of_which_axis() -> None:
    with pytest.raises(ShapeError, match=r"axis 0 of \(length, 3\) must have a size that is a num"):
        cut(5).diff(dim=0)
    with pytest.raises(ShapeError, match=r"\(length, 3\) has \(length \* 3\) elements"):
        cut(5).reshape(4, 2)


def test_a_variable_of_one_value_is_that_size() -> None:
    count = Variable("n", 1, 1).bind(1)
    x = Tensor([[1.0, 2.0]])[:count]
    assert x.sum(1).tolist() == [3.0]
    assert x.prod(1).shape == (1,)


def test_tensors_of_one_graph_and_other_bound_values_are_two_values() -> None:
    count, x = Variable("n", 1, 4), Tensor([5.0, 1.0, 1.0, 1.0])
    first, second = [(x[: count.bind(size)] * 2).sum() for size in (1, 3)]
    assert first.item() == 10.0
    assert second.item() == 14.0


def test_a_value_kept_on_the_way_is_not_that_of_other_bound_values() -> None:
    count, x = Variable("n", 1, 4), Tensor([5.0, 1.0, 1.0, 1.0])
    kept = []
    for size in (1, 3):
        middle = (x[: count.bind(size)] * 2).exp()
        kept.append(middle)
        (middle.sum() + middle.max()).realize()
    close(kept[1], np.exp([10.0, 2.0, 2.0]))


def test_rows_that_are_padded_and_kept_in_the_kernel() -> None:
    data = numbers(1024, 6)
    for length in (1, 39, 1024):
        x = Tensor(data).realize()[: Variable("length", 1, 1024).bind(length)]
        padded = np.pad(data[:length], ((2, 1), (0, 0)))
        expected = np.exp(padded) / np.exp(padded).sum(1, keepdims=True)
        close(x.pad(((2, 1), (0, 0))).softmax(1).contiguous(), expected, rtol=2e-5)


def test_rows_that_are_repeated_at_another_size() -> None:
    data = numbers(64, 5)
    for length in (1, 13, 64):
        x = Tensor(data).realize()[: Variable("length", 1, 64).bind(length)]
        close(x.repeat(2, 1) * 2, np.tile(data[:length], (2, 1)) * 2)


def test_two_long_sums_over_one_symbolic_axis() -> None:
    """Each is added up in blocks, whose number and lengths follow from the one size."""
    data = numbers(1500, 3, seed=7)
    for length in (1, 100, 777, 1500):
        x = Tensor(data)[: Variable("length", 1, 1500).bind(length)]
        centred = data[:length] - data[:length].mean(0)
        close(x.var(0, correction=0), (centred * centred).mean(0), rtol=1e-4, atol=1e-6)
