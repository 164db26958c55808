"""The bounds of docs/accuracy.md, against NumPy in float64: errors grow with log n."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, nn

# One rounding in float32.
UNIT = 2.0**-24
LENGTHS = [
    10**3, 10**5, 10**6,
    *(pytest.param(10**power, marks=pytest.mark.nightly) for power in (4, 7, 8)),
]  # fmt: skip
AXES = ["first", "middle", "last"]


def equal_numbers(length: int, axis: str) -> tuple[Any, int]:
    """0.1 along an axis: all additions round to the same side."""
    shape = {"first": (length, 2), "middle": (2, length, 1), "last": (2, length)}[axis]
    return np.full(shape, 0.1, np.float32), 0 if axis == "first" else 1


def roundings(found: Any, expected: Any) -> float:
    exact = np.asarray(expected, np.float64)
    return float(np.max(np.abs(np.asarray(found, np.float64) - exact) / np.abs(exact))) / UNIT


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
def test_sum_and_mean(length: int, axis: str) -> None:
    x, along = equal_numbers(length, axis)
    value = np.float64(x.flat[0])
    assert roundings(Tensor(x).sum(along).numpy(), value * length) < 64
    assert roundings(Tensor(x).mean(along).numpy(), value) < 64


def rows_of(x: Tensor, along: int) -> Tensor:
    """What is added up at one place: `along` first."""
    return x.transpose(0, along).reshape(x.shape[along], -1)


def gradient_of_a_bias(x: Tensor, along: int) -> Tensor:
    shape = tuple(1 if axis == along else size for axis, size in enumerate(x.shape))
    bias = Tensor.zeros(*shape, requires_grad=True)
    ((x + bias) * x).sum().backward()
    assert bias.grad is not None
    return bias.grad


def gradient_of_a_convolution(x: Tensor, along: int) -> Tensor:
    """By its weight: a sum over the batch, or over the positions."""
    length = x.shape[along]
    signal = x.reshape(length, 2, 1) if along == 0 else x.reshape(1, 2, length)
    weight = Tensor.zeros(1, 2, 1, requires_grad=True)
    nn.functional.conv1d(signal, weight).sum().backward()
    assert weight.grad is not None
    return weight.grad


def product_with_itself(x: Tensor, along: int) -> Tensor:
    rows = x.reshape(x.shape[0], x.shape[1])
    return rows.T @ rows if along == 0 else rows @ rows.T


def added_by_index(x: Tensor, along: int) -> Tensor:
    rows = rows_of(x, along)
    index = Tensor(np.ones(rows.shape[0], np.int32))
    return Tensor.zeros(3, rows.shape[1]).index_add(0, index, rows)[1]


def gradient_of_an_embedding(x: Tensor, along: int) -> Tensor:
    rows = rows_of(x, along)
    table = Tensor.zeros(3, rows.shape[1], requires_grad=True)
    (table[Tensor(np.ones(rows.shape[0], np.int32))] * rows).sum().backward()
    assert table.grad is not None
    return table.grad[1]


def added_by_scatter(x: Tensor, along: int) -> Tensor:
    rows = rows_of(x, along)
    index = Tensor(np.ones(rows.shape, np.int32))
    return Tensor.zeros(3, rows.shape[1]).scatter_add(0, index, rows)[1]


def added_by_bincount(x: Tensor, along: int) -> Tensor:
    index = Tensor(np.ones(x.shape[along], np.int32))
    return index.bincount(weights=rows_of(x, along)[:, 0], minlength=3)[1]


TERM = float(np.float32(0.1))
# Of equal terms: the op, its exact result, and its bound in units.
LONG: dict[str, tuple[Any, Any, float]] = {
    "norm": (lambda x, a: x.norm(2, a), lambda n: TERM * n**0.5, 64),
    "logsumexp": (lambda x, a: x.logsumexp(a), lambda n: TERM + math.log(n), 8),
    "softmax": (lambda x, a: x.softmax(a), lambda n: 1 / n, 64),
    "log_softmax": (lambda x, a: x.log_softmax(a), lambda n: -math.log(n), 8),
    "bias": (gradient_of_a_bias, lambda n: TERM * n, 64),
    "convolution": (gradient_of_a_convolution, lambda n: TERM * n, 64),
    "product": (product_with_itself, lambda n: TERM**2 * n, 64),
    "index_add": (added_by_index, lambda n: TERM * n, 1.1),
    "embedding": (gradient_of_an_embedding, lambda n: TERM * n, 1.1),
    "scatter_add": (added_by_scatter, lambda n: TERM * n, 1.1),
    "bincount": (added_by_bincount, lambda n: TERM * n, 1.1),
}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", LONG)
def test_long_axes(name: str, length: int, axis: str) -> None:
    function, exact, bound = LONG[name]
    x, along = equal_numbers(length, axis)
    assert roundings(function(Tensor(x), along).numpy(), exact(length)) < bound


@pytest.mark.parametrize("axis", ["first", "last"])
@pytest.mark.parametrize("name", LONG)
def test_long_axes_without_opts(name: str, axis: str) -> None:
    function, exact, bound = LONG[name]
    x, along = equal_numbers(100_000, axis)
    with Context(NOOPT=1):
        found = function(Tensor(x), along).numpy()
    assert roundings(found, exact(100_000)) < bound


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
def test_prefixes_of_logarithms_and_factors(length: int, axis: str) -> None:
    x, along = equal_numbers(length, axis)
    counts = np.arange(1, length + 1, dtype=np.float64)
    counts = counts.reshape([-1 if at == along else 1 for at in range(x.ndim)])
    expected = TERM + np.log(counts)
    found = Tensor(x).logcumsumexp(along).numpy()
    # Of the first results, about 0.1, one rounding of 1.
    assert np.max(np.abs(found - expected) / np.maximum(expected, 1)) < 8 * UNIT
    factor = 1 + 2.0**-23
    found = Tensor(np.full(x.shape, factor, np.float32)).cumprod(along).numpy()
    assert roundings(found, np.broadcast_to(np.exp(counts * math.log(factor)), x.shape)) < 1.1


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["batch", "layer"])
def test_statistics_of_long_axes(name: str, length: int) -> None:
    """A block of random numbers that repeats: its statistics are those of the block."""
    block = (10 + np.random.default_rng(6).standard_normal(1000)).astype(np.float32)
    exact = block.astype(np.float64)
    expected = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    x = Tensor(np.resize(block, length))
    if name == "layer":
        found = nn.functional.layer_norm(x.reshape(1, length), length).numpy()
    else:
        found = nn.functional.batch_norm(x.reshape(length, 1), training=True).numpy()
    assert np.max(np.abs(found.reshape(-1, 1000) - expected)) < 64 * UNIT


def test_forty_million_ones() -> None:
    ones = Tensor.ones(40_000_000, 2).sum(0)
    assert ones.tolist() == [40_000_000.0] * 2


@pytest.mark.nightly
def test_forty_million_ones_in_memory() -> None:
    assert Tensor.ones(40_000_000, 2).contiguous().sum(0).tolist() == [40_000_000.0] * 2


def test_twenty_million_ones_in_memory() -> None:
    assert Tensor.ones(20_000_000, 1).contiguous().sum(0).tolist() == [20_000_000.0]


@pytest.mark.parametrize("length", LENGTHS[:3])
def test_products_with_a_long_contraction(length: int) -> None:
    x, _ = equal_numbers(length, "first")
    expected = np.float64(x.flat[0]) ** 2 * length
    a = Tensor(x)
    assert roundings((a.T @ a).numpy(), expected) < 64
    assert roundings(Tensor.einsum("ki,kj->ij", a, a).numpy(), expected) < 64
    weight = Tensor.ones(2, 2, requires_grad=True)
    (a @ weight).sum().backward()
    assert weight.grad is not None
    assert roundings(weight.grad.numpy(), np.float64(x.flat[0]) * length) < 64


def test_the_gradient_of_an_expanded_value() -> None:
    bias = Tensor([0.0], requires_grad=True)
    (bias.expand(1_000_000) * Tensor(np.full(1_000_000, 0.1, np.float32))).sum().backward()
    assert bias.grad is not None
    assert roundings(bias.grad.numpy(), np.float64(np.float32(0.1)) * 1_000_000) < 64


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
def test_running_sums(length: int, axis: str) -> None:
    x, along = equal_numbers(length, axis)
    found = np.moveaxis(Tensor(x).cumsum(along).numpy(), along, 0).reshape(length, -1)
    # In slices: float64 copies of the longest would be 3 GB.
    for start in range(0, length, 10**7):
        rows = found[start : start + 10**7]
        assert roundings(rows, TERM * np.arange(start + 1, start + len(rows) + 1)[:, None]) < 64


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
def test_long_products_round_once(length: int, axis: str) -> None:
    x, along = equal_numbers(length, axis)
    x[...] = factor = 1 + 2.0**-23
    expected = math.exp(length * math.log(factor))
    assert roundings(Tensor(x).prod(along).numpy(), expected) < 1.1


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("length", LENGTHS)
def test_variances_of_long_axes(length: int, axis: str) -> None:
    """Of a block of random numbers that repeats."""
    x, along = equal_numbers(length, axis)
    block = (10 + np.random.default_rng(6).standard_normal(1000)).astype(np.float32)
    shape = [-1 if at == along else 1 for at in range(x.ndim)]
    x[...] = np.resize(block, length).reshape(shape)
    expected = block.astype(np.float64).var() * length / (length - 1)
    assert roundings(Tensor(x).var(along).numpy(), expected) < 64


@pytest.mark.parametrize("length", LENGTHS[:3])
def test_products_round_once(length: int) -> None:
    x = 1 + np.random.default_rng(3).uniform(-1e-3, 1e-3, length).astype(np.float32)
    exact = x.astype(np.float64)
    assert roundings(Tensor(x).prod().numpy(), exact.prod()) < 1.1
    assert roundings(Tensor(x).cumprod(0).numpy(), exact.cumprod()) < 1.1


def test_many_rows_added_at_few_places() -> None:
    x = np.full(500_000, 0.1, np.float32)
    place = Tensor(np.ones(500_000, np.int32))
    found = Tensor.zeros(3).index_add(0, place, Tensor(x)).numpy()
    assert roundings(found[1], x.astype(np.float64).sum()) < 1.1


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_row_that_is_named_often_in_a_large_table(width: int, is_gradient: bool) -> None:
    """One token of a large vocabulary is in every second place of a batch."""
    many, table = 9_000, 9_000
    place = np.random.default_rng(4).integers(-1, table, many).astype(np.int32)
    place[::2] = 7
    # The index of a pick counts from the end below 0, that of an addition drops it.
    place = np.abs(place) if is_gradient else place
    rows = np.full((many, width), 0.1, np.float32)
    expected = np.zeros((table, width))
    np.add.at(expected, place[place >= 0], rows[place >= 0].astype(np.float64))
    if is_gradient:
        weight = Tensor.zeros(table, width, requires_grad=True)
        (weight[Tensor(place)] * Tensor(rows)).sum().backward()
        assert weight.grad is not None
        found = weight.grad.numpy()
    else:
        index = Tensor(np.where(place < 0, table, place))
        sums = Tensor.zeros(table + 1, width).index_add(0, index, Tensor(rows))
        found = sums.numpy()[:table]
    is_named = expected > 0
    assert roundings(found[is_named], expected[is_named]) < 8
    assert not found[~is_named].any()


def test_a_table_that_is_added_to_again_keeps_its_value() -> None:
    place = np.random.default_rng(5).integers(0, 20_000, 9_000).astype(np.int32)
    place[::2] = 7
    rows = Tensor.ones(9_000, 8)
    once = Tensor.zeros(20_000, 8).index_add(0, Tensor(place), rows)
    twice = once.index_add(0, Tensor(place), rows).realize()
    counts = np.bincount(place, minlength=20_000)
    assert (twice.numpy() == 2 * counts[:, None]).all()
    assert (once.numpy() == counts[:, None]).all()


def test_few_rows_are_added_without_a_second_table() -> None:
    """So many meet at most that the order costs few digits; see docs/accuracy.md."""
    x = Tensor(np.full((4096, 8), 0.1, np.float32)).realize()
    place = Tensor(np.full(4096, 7, np.int32)).realize()
    before = GlobalCounters.kernel_count
    found = Tensor.zeros(100_000, 8).index_add(0, place, x).realize()
    assert GlobalCounters.kernel_count - before == 2
    assert roundings(found.numpy()[7], np.float64(np.float32(0.1)) * 4096) < 1024


def test_many_factors_multiplied_at_one_place() -> None:
    x = np.full(100_000, 1 + 1e-5, np.float32)
    place = Tensor(np.zeros(100_000, np.int32))
    found = Tensor.ones(100_000).scatter_reduce(0, place, Tensor(x), "prod").numpy()
    assert roundings(found[0], x[:1].astype(np.float64) ** 100_000) < 1.1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_of_more_rows_than_a_half_counts(dtype: str) -> None:
    """A half counts to 2048 and holds 65504: the mean was 0."""
    x = Tensor(np.full(100_000, 3.0, np.float32)).cast(dtype)
    place = Tensor(np.zeros(100_000, np.int32))
    found = Tensor.zeros(2, dtype=dtype).scatter_reduce(0, place, x, "mean", include_self=False)
    assert found.dtype.name == dtype
    assert found.tolist() == [3.0, 0.0]


@pytest.mark.parametrize("plain", [0, 1])
def test_variance_of_small_deviations_from_a_large_mean(plain: int) -> None:
    near = np.random.default_rng(0).uniform(-1e-2, 1e-2, 32)
    x = (1e4 + near).astype(np.float32)
    exact = x.astype(np.float64)
    with Context(NOOPT=plain):
        assert Tensor(x).var().item() == pytest.approx(exact.var(ddof=1), rel=1e-6)
        assert Tensor(x).std().item() == pytest.approx(exact.std(ddof=1), rel=1e-6)
        rows = Tensor(np.stack([x, x])).cov().numpy()
    np.testing.assert_allclose(rows, np.full((2, 2), exact.var(ddof=1)), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_variance_of_many_values(axis: Any) -> None:
    x = np.random.default_rng(1).random((512, 400), np.float32)
    expected = x.astype(np.float64).var(axis=axis, ddof=1)
    assert roundings(Tensor(x).var(axis).numpy(), expected) < 64


@pytest.mark.parametrize(("value", "size"), [(0.1, 3136), (10.1, 768), (100.1, 50_176)])
@pytest.mark.parametrize("name", ["layer", "group", "instance", "batch"])
def test_equal_values_are_normalised_to_zero(name: str, value: float, size: int) -> None:
    x = Tensor.full((2, 4, size), value).contiguous()
    functions = nn.functional
    found = {
        "layer": lambda: functions.layer_norm(x, size),
        "group": lambda: functions.group_norm(x, 2),
        "instance": lambda: functions.instance_norm(x),
        "batch": lambda: functions.batch_norm(x, training=True),
    }[name]()
    assert found.abs().max().item() <= 1e-6


def test_the_gradient_of_a_variance_is_that_of_its_formula() -> None:
    x = np.random.default_rng(2).standard_normal((3, 50)).astype(np.float32) + 100
    given = Tensor(x, requires_grad=True)
    given.var(1).sum().backward()
    assert given.grad is not None
    exact = x.astype(np.float64)
    expected = 2 * (exact - exact.mean(1, keepdims=True)) / 49
    np.testing.assert_allclose(given.grad.numpy(), expected, atol=1e-6)


def test_counted_steps_round_once() -> None:
    assert roundings(Tensor.arange(0, 10_000, 0.1).numpy()[1:], np.arange(100_000)[1:] * 0.1) < 1.1
    assert roundings(Tensor.linspace(-3, 7, 99_999).numpy(), np.linspace(-3, 7, 99_999)) < 1.1
    assert roundings(Tensor.logspace(-3, 7, 9_999).numpy(), np.logspace(-3, 7, 9_999)) < 1.1


@pytest.mark.parametrize("name", ["sum", "cumsum", "prod", "cumprod", "trace", "count_nonzero"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_whole_numbers_add_up_in_int64(name: str, dtype: str) -> None:
    x = Tensor(np.ones((3, 3), dtype))
    arguments = (0,) if name.startswith("cum") else ()
    assert getattr(x, name)(*arguments).dtype.name == "int64"


def test_whole_numbers_do_not_wrap_at_32_bits() -> None:
    assert Tensor.arange(100_000).sum().item() == math.comb(100_000, 2)
    assert Tensor.arange(100_000).cumsum()[-1].item() == math.comb(100_000, 2)
    assert Tensor.arange(1, 16).prod().item() == math.factorial(15)
    assert Tensor.arange(1, 16).cumprod(0)[-1].item() == math.factorial(15)
    assert Tensor([200] * 3, dtype="uint8").sum(dtype="uint8").item() == 600 % 256
    assert Tensor([1, 2]).dot(Tensor([3, 4])).dtype.name == "int32"
