"""What is a pair of values and indices in PyTorch, and the values alone here, is not unpacked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor
from tilegrad.base.errors import DTypeError

ROWS = [[1, 5, 3], [7, 2, 9]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x.max(dim=1), "max"),
        (lambda x: x.max(1), "max"),
        (lambda x: x.min(dim=1), "min"),
        (lambda x: x.max(dim=1, keepdim=True), "max"),
    ],
)
def test_values_alone_are_not_unpacked_as_a_pair(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(DTypeError, match=rf"{name}\(1\): these are the values alone"):
        _values, _indices = call(Tensor(ROWS))


def test_the_error_says_how_to_ask_for_the_indices() -> None:
    with pytest.raises(DTypeError, match=r"values = x\.max\(1\); indices = x\.argmax\(1\)"):
        _values, _indices = Tensor(ROWS).max(dim=1)


def test_values_alone_are_iterated() -> None:
    assert [value.item() for value in Tensor(ROWS).max(dim=1)] == [5, 9]
    first, second = list(Tensor(ROWS).max(dim=1))
    assert (first.item(), second.item()) == (5, 9)


def test_what_was_computed_from_them_is_a_tensor_like_any_other() -> None:
    first, second = Tensor(ROWS).max(dim=1) * 2
    assert (first.item(), second.item()) == (10, 18)
    left, right = Tensor([[1, 2], [3, 4]]).max()[None].expand(2)
    assert left.item() == right.item() == 4


def test_pairs_are_unpacked() -> None:
    for found in (Tensor(ROWS).median(dim=1), Tensor(ROWS).mode(1), Tensor(ROWS).sort(1)):
        values, indices = found
        assert values.shape == indices.shape


@pytest.mark.parametrize(
    ("name", "extreme", "place"), [("max", np.max, np.argmax), ("min", np.min, np.argmin)]
)
def test_extremes_over_an_axis_have_values_and_indices(name: str, extreme: Any, place: Any) -> None:
    for axis in (0, 1, -1):
        for keepdim in (False, True):
            found = getattr(Tensor(ROWS), name)(dim=axis, keepdim=keepdim)
            wanted = extreme(ROWS, axis, keepdims=keepdim)
            np.testing.assert_array_equal(found.values.numpy(), wanted)
            np.testing.assert_array_equal(
                found.indices.numpy(), place(ROWS, axis, keepdims=keepdim)
            )


def test_indices_of_values_that_were_computed_first() -> None:
    x = Tensor(ROWS).realize()
    found = x.max(dim=1).realize()
    assert found.indices.tolist() == [1, 2]


def test_indices_of_what_is_gone_are_refused_with_what_to_do() -> None:
    found = Tensor(ROWS).realize().max(dim=1).realize()
    with pytest.raises(AttributeError, match=r"is gone: keep it, or ask for x\.argmax\(1\)"):
        _ = found.indices


@pytest.mark.usefixtures("nothing_known")
def test_what_values_were_chosen_from_is_not_kept_for_indices_that_nobody_asks_for() -> None:
    before = GlobalCounters.mem_used
    found = Tensor.ones(1 << 20, 4).contiguous().realize().max(dim=0).realize()
    assert GlobalCounters.mem_used - before < 1 << 20
    assert found.tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["values", "indices"])
def test_other_tensors_have_neither(name: str) -> None:
    for other in (Tensor(ROWS), Tensor(ROWS).max(), Tensor(ROWS).max(dim=1) * 2):
        assert not hasattr(other, name)
        with pytest.raises(AttributeError, match=rf"'{name}'; what max\(dim=...\) and min"):
            getattr(other, name)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sort(1),
        lambda x: x.topk(2, 1),
        lambda x: x.kthvalue(2, 1),
        lambda x: x.median(1),
        lambda x: x.nanmedian(1),
        lambda x: x.mode(1),
        lambda x: x.cummax(1),
        lambda x: x.cummin(1),
    ],
)
def test_pairs_are_named(call: Callable[[Any], Any]) -> None:
    found = call(Tensor(ROWS))
    values, indices = found
    assert found.values is values and found.indices is indices
    # Each value is the one that its index names.
    picked = np.take_along_axis(np.array(ROWS), indices.numpy().reshape(2, -1), 1)
    np.testing.assert_array_equal(picked, values.numpy().reshape(2, -1))


def test_the_smallest_and_the_largest_are_named() -> None:
    found = Tensor(ROWS).aminmax(dim=1)
    assert found.min.tolist() == [1, 2] and found.max.tolist() == [5, 9]


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_say_where_they_stood_last(name: str) -> None:
    generator = np.random.default_rng(7)
    for dtype in (np.int32, np.float32):
        x = generator.integers(0, 4, (5, 40)).astype(dtype)
        found = getattr(Tensor(x), name)(1)
        running = (np.maximum if name == "cummax" else np.minimum).accumulate(x, 1)
        last = np.maximum.accumulate(np.where(x == running, np.arange(40), 0), 1)
        np.testing.assert_array_equal(found.values.numpy(), running)
        np.testing.assert_array_equal(found.indices.numpy(), last)


def test_running_extremes_stay_at_nan() -> None:
    values, indices = Tensor([1.0, 3.0, float("nan"), 5.0, float("nan")]).cummax(0)
    assert np.isnan(values.numpy()).tolist() == [False, False, True, True, True]
    assert indices.tolist() == [0, 1, 2, 2, 4]


# One number counts as a row of one where an axis is reduced, scanned or sorted.
OF_ONE: dict[str, tuple[Callable[[Any, int], Any], Any]] = {
    "sum": (lambda z, axis: z.sum(axis), 3.0),
    "mean": (lambda z, axis: z.mean(axis), 3.0),
    "prod": (lambda z, axis: z.prod(axis), 3.0),
    "max": (lambda z, axis: z.max(axis), 3.0),
    "max tuple": (lambda z, axis: z.max((axis,)), 3.0),
    "max indices": (lambda z, axis: z.max(axis).indices, 0),
    "min": (lambda z, axis: z.min(axis), 3.0),
    "amax": (lambda z, axis: z.amax(axis), 3.0),
    "amin": (lambda z, axis: z.amin(axis), 3.0),
    "aminmax": (lambda z, axis: z.aminmax(axis).max, 3.0),
    "argmax": (lambda z, axis: z.argmax(axis), 0),
    "argmin": (lambda z, axis: z.argmin(axis), 0),
    "any": (lambda z, axis: z.any(axis), True),
    "all": (lambda z, axis: z.all(axis), True),
    "var": (lambda z, axis: z.var(axis, correction=0), 0.0),
    "std": (lambda z, axis: z.std(axis, correction=0), 0.0),
    "std_mean": (lambda z, axis: z.std_mean(axis)[1], 3.0),
    "norm": (lambda z, axis: z.norm(2, axis), 3.0),
    "logsumexp": (lambda z, axis: z.logsumexp(axis), 3.0),
    "softmax": (lambda z, axis: z.softmax(axis), 1.0),
    "softmin": (lambda z, axis: z.softmin(axis), 1.0),
    "log_softmax": (lambda z, axis: z.log_softmax(axis), 0.0),
    "normalize": (lambda z, axis: z.normalize(dim=axis), 1.0),
    "cumsum": (lambda z, axis: z.cumsum(axis), 3.0),
    "cumprod": (lambda z, axis: z.cumprod(axis), 3.0),
    "cummax": (lambda z, axis: z.cummax(axis).values, 3.0),
    "cummin indices": (lambda z, axis: z.cummin(axis).indices, 0),
    "logcumsumexp": (lambda z, axis: z.logcumsumexp(axis), 3.0),
    "sort": (lambda z, axis: z.sort(axis).values, 3.0),
    "argsort": (lambda z, axis: z.argsort(axis), 0),
    "topk": (lambda z, axis: z.topk(1, axis).values, 3.0),
    "kthvalue": (lambda z, axis: z.kthvalue(1, axis).indices, 0),
    "median": (lambda z, axis: z.median(axis).values, 3.0),
    "nanmedian": (lambda z, axis: z.nanmedian(axis).values, 3.0),
    "mode": (lambda z, axis: z.mode(axis).values, 3.0),
    "quantile": (lambda z, axis: z.quantile(0.5, axis), 3.0),
    "nanquantile": (lambda z, axis: z.nanquantile(0.5, axis), 3.0),
    "nansum": (lambda z, axis: z.nansum(axis), 3.0),
    "nanmean": (lambda z, axis: z.nanmean(axis), 3.0),
    "count_nonzero": (lambda z, axis: z.count_nonzero(axis), 1),
    "flip": (lambda z, axis: z.flip(axis), 3.0),
    "squeeze": (lambda z, axis: z.squeeze(axis), 3.0),
    "transpose": (lambda z, axis: z.transpose(axis, -1), 3.0),
    "movedim": (lambda z, axis: z.movedim(axis, 0), 3.0),
    "gather": (lambda z, axis: z.gather(axis, Tensor(0)), 3.0),
    "index_select": (lambda z, axis: z.index_select(axis, Tensor([0])), 3.0),
    "scatter": (lambda z, axis: z.scatter(axis, Tensor(0), Tensor(5.0)), 5.0),
    "scatter_add": (lambda z, axis: z.scatter_add(axis, Tensor(0), z), 6.0),
    "scatter_reduce": (lambda z, axis: z.scatter_reduce(axis, Tensor(0), z, "prod"), 9.0),
}


@pytest.mark.parametrize("name", OF_ONE)
def test_one_number_has_axis_0_and_minus_1(name: str) -> None:
    call, wanted = OF_ONE[name]
    for axis in (0, -1):
        found = call(Tensor(3.0), axis)
        assert found.shape == () and found.item() == wanted
    with pytest.raises(IndexError):
        call(Tensor(3.0), 1)
