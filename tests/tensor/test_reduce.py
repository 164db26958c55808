"""Sums, products, extremes, moments, positions and running folds, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor, dtypes

X = numbers(3, 4, 5)
AXES = [None, 0, 1, -1, (0, 2), (1, 2)]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reduction(name: str, axis: Any, keepdim: bool) -> None:
    extra = {"ddof": 1} if name in ("var", "std") else {}
    expected = getattr(np, name)(X, axis=axis, keepdims=keepdim, **extra)
    close(getattr(Tensor(X), name)(axis, keepdim), expected, rtol=2e-5)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_any_and_all(name: str, axis: Any) -> None:
    values = np.array([[True, False], [True, True]])
    close(getattr(Tensor(values), name)(axis), getattr(np, name)(values, axis))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", "int64"),
        ("int8", "int64"),
        ("uint8", "int64"),
        ("int32", "int64"),
        ("uint64", "int64"),
        ("float16", "float16"),
    ],
)
def test_dtype_of_a_sum(dtype: str, expected: str) -> None:
    assert Tensor(np.ones(3, dtype)).sum().dtype.name == expected


def test_half_is_summed_in_float32() -> None:
    assert Tensor(np.full(4096, 1.0, np.float16)).sum().item() == 4096
    assert Tensor(np.full(3000, 0.1, np.float16)).mean().item() == pytest.approx(0.1, rel=1e-3)


def test_sum_in_a_dtype_of_choice() -> None:
    total = Tensor(np.full(300, 250, np.uint8)).sum(dtype="uint8")
    assert total.dtype is dtypes.uint8
    assert total.item() == 300 * 250 % 256


def test_variance_corrections() -> None:
    close(Tensor(X).var(0, correction=0), X.var(0), rtol=2e-5)
    variance, mean = Tensor(X).var_mean(1)
    close(variance, X.var(1, ddof=1), rtol=2e-5)
    close(mean, X.mean(1))
    deviation, mean = Tensor(X).std_mean(-1)
    close(deviation, X.std(-1, ddof=1), rtol=2e-5)
    assert np.isnan(Tensor([1.0]).var().item())


def test_extremes_keep_nan_and_infinity() -> None:
    values = np.float32([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf]])
    close(Tensor(values).max(1), values.max(1))
    close(Tensor(values).min(1), values.min(1))
    edges = np.int32([-(2**31), 5])
    close(Tensor(edges).min(), edges.min())


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str, axis: Any) -> None:
    for values in (
        X,
        np.int32([[3, 9, 9], [1, 0, 0], [7, 7, 7]]),
        np.float32([[1, np.nan, 2], [np.nan, 0, np.nan]]),
    ):
        close(getattr(Tensor(values), name)(axis), getattr(np, name)(values, axis).astype(np.int32))


def test_positions_can_keep_the_axis() -> None:
    assert Tensor(X).argmax(1, keepdim=True).shape == (3, 1, 5)
    assert Tensor(X).argmax(keepdim=True).shape == (1, 1, 1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_its_kin(axis: int) -> None:
    check(lambda x: x.softmax(axis), lambda x: scipy.special.softmax(x, axis), X)
    check(lambda x: x.log_softmax(axis), lambda x: scipy.special.log_softmax(x, axis), X)
    check(lambda x: x.logsumexp(axis), lambda x: scipy.special.logsumexp(x, axis), X)


def test_softmax_does_not_overflow() -> None:
    values = np.float32([[1e4, 1e4], [-1e4, 0], [-np.inf, 0]])
    check(lambda x: x.softmax(1), lambda x: scipy.special.softmax(x, 1), values)
    check(lambda x: x.logsumexp(1), lambda x: scipy.special.logsumexp(x, 1), values)
    assert Tensor([-np.inf, -np.inf]).logsumexp().item() == -np.inf


@pytest.mark.parametrize("p", [1, 2, 3, np.inf])
def test_norm(p: float) -> None:
    check(lambda x: x.norm(p, 1), lambda x: np.linalg.norm(x, p, 1), numbers(3, 5))


def test_layernorm_and_batchnorm() -> None:
    mean, variance = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    close(Tensor(X).layernorm(), (X - mean) / np.sqrt(variance + 1e-5), rtol=2e-5)
    weight, bias = numbers(4, seed=3), numbers(4, seed=4)
    mean, variance = X.mean((0, 2)), X.var((0, 2))
    ours = Tensor(X).batchnorm(
        Tensor(weight), Tensor(bias), Tensor(mean), (Tensor(variance) + 1e-5).rsqrt()
    )

    def column(v: np.ndarray) -> np.ndarray:
        return v.reshape(1, 4, 1)

    expected = (X - column(mean)) / np.sqrt(column(variance) + 1e-5) * column(weight) + column(bias)
    close(ours, expected.astype(np.float32), rtol=2e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_folds(axis: int) -> None:
    check(lambda x: x.cumsum(axis), lambda x: np.cumsum(x, axis), X)
    check(lambda x: x.cumprod(axis), lambda x: np.cumprod(x, axis), X)
    check(lambda x: x.cummax(axis).values, lambda x: np.maximum.accumulate(x, axis), X)
    check(lambda x: x.cummin(axis).values, lambda x: np.minimum.accumulate(x, axis), X)
    check(lambda x: x.logcumsumexp(axis), lambda x: np.logaddexp.accumulate(x, axis), X)


def test_long_running_folds_work_in_blocks() -> None:
    values = np.random.default_rng(0).integers(-9, 9, 700).astype(np.int32)
    check(lambda x: x.cumsum(), lambda x: np.cumsum(x).astype(np.int32), values)
    check(lambda x: x.cummax().values, np.maximum.accumulate, values)
    rows = values[:600].reshape(2, 300)
    check(lambda x: x.cumsum(1), lambda x: np.cumsum(x, 1).astype(np.int32), rows)
    check(lambda x: x.cumsum(0), lambda x: np.cumsum(x, 0).astype(np.int32), rows.T.copy())


def test_folds_of_nothing_are_the_identity() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.sum().item() == 0
    assert empty.sum(0).tolist() == [0, 0, 0]
    assert empty.prod().item() == 1
    assert empty.all().item() is True
    assert empty.sum(1).shape == (0,)
    assert np.isnan(empty.mean().item())


def test_reducing_no_axis_changes_nothing() -> None:
    check(lambda x: x.sum(()), lambda x: x.sum(()), X)
    assert Tensor(3.0).sum().item() == 3


def test_folds_of_what_repeats() -> None:
    """A fold over axes that are expanded and then flattened with others counts every copy."""
    row = Tensor([2.0, 1.0, 3.0]).realize()
    assert row.expand(4, 3).flatten().sum().item() == 24
    assert row.expand(5, 3).flatten().prod().item() == 6**5
    assert row.expand(4, 3).flatten().max().item() == 3
    assert (row > 1).expand(200, 3).flatten().sum().item() == 400


@pytest.mark.parametrize("size", [5, 700])
def test_logcumsumexp_and_its_gradient(size: int) -> None:
    array = np.random.default_rng(0).normal(size=(2, size)) * 30
    array[0, :3] = -np.inf
    x = Tensor(array)
    made = x.logcumsumexp(1)
    (gradient,) = made[:, 3:].sum().gradient(x)
    expected = np.logaddexp.accumulate(array, axis=1)
    close(made, expected, rtol=1e-12)
    with np.errstate(invalid="ignore"):
        share = np.exp(array[:, :, None] - expected[:, None, :])
    reached = np.arange(size)[:, None] <= np.arange(size)
    slope = np.where(reached, share, 0)[:, :, 3:].sum(2)
    close(gradient, slope, rtol=1e-9, atol=1e-12)
