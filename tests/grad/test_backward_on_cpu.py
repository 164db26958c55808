"""Backward passes compiled and run: values against NumPy's of the same graph; kernels counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from tests.grad.numeric import evaluate
from tilegrad import GlobalCounters, Tensor, nn


def draw(*shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


CASES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "conv2d": (lambda x, w: x.conv2d(w, padding=1), [(2, 3, 7, 6), (4, 3, 3, 3)]),
    "conv2d stride 2": (lambda x, w: x.conv2d(w, stride=2), [(2, 3, 7, 6), (4, 3, 3, 3)]),
    "conv2d groups": (lambda x, w: x.conv2d(w, groups=2), [(2, 4, 5, 5), (4, 2, 2, 2)]),
    "max_pool2d": (lambda x: x.max_pool2d(), [(2, 3, 6, 6)]),
    "max_pool2d overlapping": (lambda x: x.max_pool2d(3, stride=1), [(2, 3, 6, 6)]),
    "avg_pool2d": (lambda x: x.avg_pool2d(3, stride=2, padding=1), [(2, 3, 6, 6)]),
    "softmax": (lambda x: x.softmax(), [(5, 9)]),
    "layernorm": (lambda x: x.layernorm(), [(5, 9)]),
    "attention": (lambda q, k, v: q.scaled_dot_product_attention(k, v), [(2, 5, 4)] * 3),
    "matmul": (lambda x, y: x @ y, [(5, 7), (7, 3)]),
    "prod": (lambda x: x.prod(1), [(3, 20)]),
    "max": (lambda x: x.max(1), [(3, 20)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(3, 20)]),
    "cumsum": (lambda x: x.cumsum(1), [(3, 20)]),
    "slices": (lambda x: x[1:, ::2].pad(((1, 2), (0, 1))).flip(0), [(3, 8)]),
    "cat": (lambda x, y: x.cat(y, dim=1), [(3, 4), (3, 2)]),
    "gelu": (lambda x: x.gelu(), [(17,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """First and second derivatives."""
    function, shapes = CASES[name]
    arrays = [draw(*shape, seed=place) for place, shape in enumerate(shapes)]
    inputs = [Tensor.empty(*array.shape, dtype="float64") for array in arrays]
    values = {tensor.uop: array for tensor, array in zip(inputs, arrays, strict=True)}
    first = function(*inputs).sin().sum().gradient(*inputs)
    again = [part for part in first[0].square().sum().gradient(*inputs) if part is not None]
    wanted = [evaluate(part.uop, values) for part in (*first, *again)]
    for tensor, array in zip(inputs, arrays, strict=True):
        tensor.assign(Tensor(array)).realize()
    tensors = [Tensor(array) for array in arrays]
    first = function(*tensors).sin().sum().gradient(*tensors)
    again = [part for part in first[0].square().sum().gradient(*tensors) if part is not None]
    for part, expected in zip((*first, *again), wanted, strict=True):
        np.testing.assert_allclose(part.numpy(), expected, rtol=1e-9, atol=1e-9)


def test_embedding() -> None:
    table = Tensor(draw(50, 4, dtype="float32"), requires_grad=True)
    index = np.random.default_rng(0).integers(0, 50, (3, 7)).astype(np.int32)
    weights = draw(3, 7, 4, seed=1, dtype="float32")
    (table[Tensor(index)] * Tensor(weights)).sum().backward()
    expected = np.zeros((50, 4), np.float32)
    np.add.at(expected, index, weights)
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), expected, rtol=1e-5)


def test_maximum_of_70000_equal_halves() -> None:
    x = Tensor(np.ones(70_000, np.float16), requires_grad=True)
    x.max().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1 / 70_000, rtol=2e-3)


def kernels_of(function: Callable[[], object]) -> int:
    before = GlobalCounters.kernel_count
    function()
    return GlobalCounters.kernel_count - before


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 2}, {"groups": 2}], ids=str)
def test_each_gradient_of_a_convolution_is_one_kernel(options: dict[str, Any]) -> None:
    x = Tensor(draw(2, 4, 8, 8, dtype="float32")).realize()
    w = Tensor(draw(4, 4 // options.get("groups", 1), 3, 3, dtype="float32")).realize()
    y = x.conv2d(w, **options)
    g = Tensor(draw(*map(int, y.shape), dtype="float32")).realize()
    for gradient in y.gradient(x, w, gradient=g):
        assert kernels_of(gradient.realize) == 1


def test_gradient_of_a_pooling_is_one_kernel() -> None:
    x = Tensor(draw(2, 4, 8, 8, dtype="float32")).realize()
    y = x.avg_pool2d(3, stride=1)
    g = Tensor(draw(*map(int, y.shape), dtype="float32")).realize()
    (gradient,) = y.gradient(x, gradient=g)
    assert kernels_of(gradient.realize) == 1


def test_a_gradient_of_a_table_costs_what_its_rows_cost() -> None:
    """A table 100 times as large: the same work."""
    work = []
    for rows in (1000, 100_000):
        layer = nn.Embedding(rows, 8)
        layer.weight.realize()
        layer(Tensor([1, 2, 3])).sum().backward()
        assert layer.weight.grad is not None
        before = GlobalCounters.global_ops
        layer.weight.grad.realize()
        work.append(GlobalCounters.global_ops - before)
    assert work[0] == work[1]


def test_a_chain_of_20000_ops() -> None:
    x = Tensor([0.5], dtype="float64", requires_grad=True)
    y = x
    for _ in range(10_000):
        y = y * 1.0001 + x * 1e-6
    y.sum().backward()
    slope = 1.0
    for _ in range(10_000):
        slope = slope * 1.0001 + 1e-6
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [slope], rtol=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_a_kernel_keeps_for_two_places(axis: int) -> None:
    """Of a softmax, whose logarithms and lengths along another axis both want rows of it."""
    x, step = draw(16, 5, 8), draw(16, 5, 8, seed=1)

    def half_square(x: Any) -> Any:
        soft = scipy.special.softmax(x, 2)
        length = np.sqrt((soft**2).sum(axis, keepdims=True))
        return 0.5 * ((scipy.special.log_softmax(soft, axis) / (length + 1)) ** 2).sum()

    ours = Tensor(x.astype(np.float32))
    soft = ours.softmax(2)
    y = soft.log_softmax(axis) / (soft.square().sum(axis, keepdim=True).sqrt() + 1)
    (found,) = (y * y.detach()).sum().gradient(ours)
    expected = (half_square(x + 1e-5 * step) - half_square(x - 1e-5 * step)) / 2e-5
    assert (found.numpy() * step).sum() == pytest.approx(expected, rel=1e-3)


def test_rows_that_a_kernel_would_keep_are_moved_along_the_axis_around_them() -> None:
    x, step = draw(8, 7, 5), draw(8, 7, 5, seed=1)

    def half_square(x: Any) -> Any:
        a = x / (np.sqrt((x**2).sum(0, keepdims=True)) + 1)
        y = np.flip(a, 1) + np.roll(a, 1, 1) + scipy.special.softmax(x, 0)
        return 0.5 * (y**2).sum()

    ours = Tensor(x.astype(np.float32))
    a = ours / (ours.square().sum(0, keepdim=True).sqrt() + 1)
    y = a.flip(1) + a.roll(1, 1) + ours.softmax(0)
    (found,) = (y * y.detach()).sum().gradient(ours)
    expected = (half_square(x + 1e-5 * step) - half_square(x - 1e-5 * step)) / 2e-5
    assert (found.numpy() * step).sum() == pytest.approx(expected, rel=1e-3)
