"""Writing by index, against loops over NumPy arrays, and gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close
from tilegrad import Context, Tensor, dtypes
from tilegrad.base.errors import DTypeError, ShapeError

FOLDS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min,
}  # fmt: skip


def scattered(
    base: Any, dim: int, index: Any, source: Any, fold: str, *, include_self: bool = True
) -> Any:
    """The same by loops, in float64."""
    sent: dict[tuple[int, ...], list[Any]] = {}
    for at in np.ndindex(index.shape):
        place = list(at)
        place[dim] = int(index[at])
        sent.setdefault(tuple(place), []).append(source[at])
    result = np.array(base, np.float64)
    for where, values in sent.items():
        result[where] = FOLDS[fold](([base[where]] if include_self else []) + values)
    return result


def drawn() -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(0)
    base, source = generator.normal(size=(4, 5)), generator.normal(size=(3, 6))
    return base, generator.integers(0, 4, (3, 4)), source


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("fold", list(FOLDS))
def test_folds_and_their_gradients(fold: str, include_self: bool) -> None:
    base, index, source = drawn()
    if fold == "prod":
        base[0, 0] = source[0, 0] = source[1, 1] = 0
    weights = np.random.default_rng(1).normal(size=base.shape)
    x, y = Tensor(base), Tensor(source)
    made = x.scatter_reduce(0, Tensor(index), y, fold, include_self)
    expected = scattered(base, 0, index, source, fold, include_self=include_self)
    gradients = (made * Tensor(weights)).sum().gradient(x, y)
    close(made, expected, rtol=1e-12)
    step = 1e-6
    for array, found in zip((base, source), gradients):
        assert found is not None
        numeric = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            kept, sides = array[at], []
            for change in (step, -step):
                array[at] = kept + change
                again = scattered(base, 0, index, source, fold, include_self=include_self)
                sides.append((again * weights).sum())
            array[at] = kept
            numeric[at] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(found.numpy(), numeric, rtol=1e-5, atol=1e-7)


def test_the_last_write_counts_and_has_the_gradient() -> None:
    base, index, source = drawn()
    expected, owner = base.copy(), np.full(base.shape, -1)
    for at in np.ndindex(index.shape):
        expected[index[at], at[1]] = source[at]
        owner[index[at], at[1]] = at[0] * source.shape[1] + at[1]
    x, y = Tensor(base), Tensor(source)
    made = x.scatter(0, Tensor(index), y)
    first, second = made.sum().gradient(x, y)
    close(made, expected)
    np.testing.assert_array_equal(first.numpy(), owner < 0)
    hit = np.zeros(source.size)
    hit[owner[owner >= 0]] = 1
    np.testing.assert_array_equal(second.numpy().ravel(), hit)


def test_extremes_share_their_gradient_and_keep_nan() -> None:
    x, index = Tensor([2.0, 5.0, 1.0]), Tensor([0, 0, 2, 2])
    y = Tensor([2.0, 1.0, float("nan"), 7.0])
    made = x.scatter_reduce(0, index, y, "amax")
    first, second = made[:2].sum().gradient(x, y)
    assert made[:2].tolist() == [2.0, 5.0]
    assert np.isnan(made.numpy()[2])
    assert (first.tolist(), second.tolist()) == ([0.5, 1.0, 0.0], [0.5, 0.0, 0.0, 0.0])
    low = Tensor([float("inf")]).scatter_reduce(0, Tensor([0]), Tensor([float("inf")]), "amin")
    assert low.tolist() == [float("inf")]


def test_other_dtypes() -> None:
    index, source = Tensor([0, 0, 1]), Tensor([3, -7, 2])
    x = Tensor([5, 5, 5])
    found = {fold: x.scatter_reduce(0, index, source, fold).tolist() for fold in FOLDS}
    assert found == {
        "sum": [1, 7, 5], "prod": [-105, 10, 5], "mean": [0, 3, 5], "amax": [5, 5, 5],
        "amin": [-7, 2, 5],
    }  # fmt: skip
    half = Tensor([1.0, 2.0], dtype=dtypes.half).scatter_reduce(
        0, Tensor([0] * 6), Tensor([3.0] * 6, dtype=dtypes.half), "prod"
    )
    assert (half.dtype, half.tolist()) == (dtypes.half, [729.0, 2.0])
    truth = Tensor([True, False])
    both = Tensor([False, True])
    assert truth.scatter_reduce(0, Tensor([0, 1]), both, "prod").tolist() == [False, False]
    assert truth.scatter_reduce(0, Tensor([0, 1]), both, "sum").tolist() == [True, True]


def test_scatter_of_numbers_and_little() -> None:
    x, index = Tensor([1.0, 2.0, 3.0]), Tensor([-1, 0, 9]) * 1
    assert x.scatter(0, index, 7.0).tolist() == [7.0, 2.0, 7.0]
    assert x.scatter(0, index, 2.0, reduce="multiply").tolist() == [2.0, 2.0, 6.0]
    assert x.scatter(0, index, 2.0, reduce="add").tolist() == [3.0, 2.0, 5.0]
    nothing = Tensor([], dtype=dtypes.int32)
    assert x.scatter(0, nothing, Tensor([])).tolist() == [1.0, 2.0, 3.0]
    assert x.scatter_reduce(0, nothing, Tensor([]), "amax").tolist() == [1.0, 2.0, 3.0]
    assert Tensor.zeros(0).scatter(0, index, 1.0).shape == (0,)
    assert Tensor.zeros(2, 3).scatter(1, Tensor([[2], [0]]), 5).tolist() == [[0, 0, 5], [5, 0, 0]]


def test_an_index_for_whole_rows() -> None:
    """Of an index that was expanded, rows go together; those beside the table are left out."""
    base, source = np.arange(20.0).reshape(5, 4), np.arange(24.0).reshape(6, 4) + 1
    rows = np.array([1, -1, 0, 1, 7, -6])
    inside = (rows >= -5) & (rows < 5)
    expected = base.copy()
    np.add.at(expected, rows[inside], source[inside])
    x = Tensor(base)

    # Computed each time, so that they are not known where the call is made.
    def vector() -> Tensor:
        return Tensor(rows - 1) + 1

    def index() -> Tensor:
        return vector().reshape(6, 1).expand(6, 4)

    close(x.scatter_add(0, index(), Tensor(source)), expected)
    close(x.index_add(0, vector(), Tensor(source)), expected)
    close(x.T.index_add(1, vector(), Tensor(source).T), expected.T)
    close(x.scatter_reduce(0, index(), Tensor(source), "sum"), expected)
    picked = np.where(inside[:, None], base[np.where(inside, rows, 0)], 0)
    close(x.gather(0, index()), picked)


def test_what_does_not_fit_raises() -> None:
    x, index = Tensor.zeros(3, 2), Tensor([[0, 1]])
    with pytest.raises(DTypeError, match="scatter_reduce: unknown reduce 'max'"):
        x.scatter_reduce(0, index, x, "max")
    with pytest.raises(DTypeError, match="scatter: unknown reduce 'amax'"):
        x.scatter(0, index, x, "amax")
    with pytest.raises(
        ShapeError, match=r"scatter: source \(1, 1\) is smaller than index \(1, 2\)"
    ):
        x.scatter(0, index, Tensor([[1.0]]))
    with pytest.raises(DTypeError, match="scatter: an index must be an integer, not float32"):
        x.scatter(0, Tensor([[0.0, 1.0]]), x)
    with pytest.raises(ShapeError, match=r"scatter: index \(1, 3\) does not fit \(3, 2\)"):
        x.scatter(0, Tensor([[0, 0, 0]]), x)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        # What is added depends on a part of the loop's number, or on none.
        (lambda: Tensor.arange(2).unsqueeze(1).expand(2, 2).reshape(-1), [2, 2, 0]),
        (lambda: Tensor.arange(4) // 2, [2, 2, 0]),
        (lambda: Tensor.arange(4) % 2, [2, 2, 0]),
        (lambda: Tensor.zeros(4, dtype="int32"), [4, 0, 0]),
        (lambda: Tensor.arange(4) * 0 + 5, [0, 0, 0]),
    ],
)
def test_computed_indices_count_every_turn(
    index: Callable[[], Tensor], expected: list[float]
) -> None:
    found = Tensor.zeros(3).scatter_add(0, index(), Tensor.ones(4))
    assert found.tolist() == expected
    with Context(NOOPT=1):
        assert Tensor.zeros(3).scatter_add(0, index(), Tensor.ones(4)).tolist() == expected
    table = Tensor.zeros(3, requires_grad=True)
    table[index().clip(0, 2)].sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == np.bincount(index().clip(0, 2).numpy(), minlength=3).tolist()


def test_what_rows_add_to_constants_is_reduced_from_memory() -> None:
    """Nothing here is memory before the run, but the sum of rows is a kernel of its own."""
    rows = Tensor.zeros(4, 3).index_add(0, Tensor.arange(3), Tensor.ones(3, 3))
    assert rows.sum().item() == 9.0
    assert rows.sum(0).tolist() == [3.0, 3.0, 3.0]
