"""The array itself: attributes, indices, operators, single numbers; what other libraries ask."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, dtypes
from tilegrad import array_api as xp
from tilegrad.base.errors import DTypeError, ShapeError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ours(key: Any) -> Any:
    """An index with arrays of the namespace."""
    if isinstance(key, tuple):
        return tuple([ours(part) for part in key])
    return xp.asarray(key) if isinstance(key, np.ndarray) else key


KEYS: list[Any] = [
    0, -1, (1, 2, 3), (-1, -1, -1), slice(None), (slice(None), 1), (..., 0), (None, 0), (),
    (slice(1, None, 2), slice(None, None, -1)), (0, slice(5, 1)), (..., None, slice(0, 2)),
    X > 5, np.zeros(X.shape, bool), np.array([True, False]), (X[0] > 5)[None].repeat(2, 0),
    (np.array([0, 1]), np.array([2, 0]), np.array([1, 1])), (np.array([0, 1]), 2, 0),
    (1, np.array([[0], [2]]), np.array([3, 1])), (np.array(1), 0, np.array([0, 3])), ...,
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(key).replace("\n", "")[:40])
def test_indices_pick_and_write_as_numpys_do(key: Any) -> None:
    x = xp.asarray(X)
    np.testing.assert_array_equal(np.asarray(x[ours(key)]), X[key])
    expected = X.copy()
    expected[key] = -1
    x[ours(key)] = -1
    np.testing.assert_array_equal(np.asarray(x), expected)


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("value", [2.0, np.array([1.0, 2.0], np.float32)], ids=["0d", "1d"])
def test_a_mask_without_axes_picks_all_or_nothing(value: Any, is_wanted: bool) -> None:
    values, mask = np.asarray(value, np.float32), np.array(is_wanted)
    x = xp.asarray(values)
    np.testing.assert_array_equal(np.asarray(x[xp.asarray(mask)]), values[mask])
    x[xp.asarray(mask)] = xp.asarray(values[mask]) * 2
    np.testing.assert_array_equal(np.asarray(x), values * 2 if is_wanted else values)


def test_an_index_outside_raises_and_ends_a_loop() -> None:
    x = xp.asarray([1, 2])
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(IndexError):
        x[-3]
    assert [int(each) for each in x] == [1, 2] and len(x) == 2


def test_an_array_of_one_value_can_be_written_to_alone() -> None:
    first, second = xp.zeros(2), xp.zeros(2)
    first[0] = 5
    assert first.tensor.tolist() == [5.0, 0.0] and second.tensor.tolist() == [0.0, 0.0]


def test_a_copy_does_not_follow_its_array() -> None:
    x = xp.asarray([1, 2])
    copies = [xp.asarray(x, copy=True), xp.astype(x, xp.int32), copy.deepcopy(x)]
    again = xp.asarray(x, copy=False)
    x[0] = 9
    assert [each.tensor.tolist() for each in copies] == [[1, 2]] * 3
    assert again.tensor.tolist() == [9, 2]


def test_attributes() -> None:
    x = xp.asarray(X)
    assert (x.ndim, x.shape, x.size, x.dtype) == (3, (2, 3, 4), 24, xp.float32)
    assert x.mT.shape == (2, 4, 3) and x[0, ...].T.shape == (4, 3)
    assert xp.asarray(5).shape == () and xp.asarray(5).size == 1
    assert x.to_device(x.device).device == x.device


def test_a_tensor_goes_in_and_out_uncopied() -> None:
    tensor = Tensor([1.0, 2.0]).requires_grad_()
    x = xp.asarray(tensor)
    assert x.tensor is tensor
    assert xp.sum(x * x).tensor.gradient(tensor)[0].tolist() == [2.0, 4.0]
    assert x[0].tensor.gradient(tensor)[0].tolist() == [1.0, 0.0]


def test_operators_take_numbers_on_both_sides() -> None:
    x = xp.asarray([1.0, 4.0])
    results = [x + 1, 1 + x, 8 - x, 8 / x, 2**x, x % 3, 9 // x, -x, abs(-x), np.float64(2) * x]
    expected = [[2, 5], [2, 5], [7, 4], [8, 2], [2, 16], [1, 1], [9, 2], [-1, -4], [1, 4], [2, 8]]
    assert [each.tensor.tolist() for each in results] == expected
    assert all(each.dtype == xp.float32 for each in results)
    bits = xp.asarray([6, 3], dtype=xp.uint8)
    found = [bits & 2, 1 | bits, bits ^ 1, ~bits, bits << 1, bits >> 1, 1 << bits]
    assert [each.tensor.tolist() for each in found] == [
        [2, 2], [7, 3], [7, 2], [249, 252], [12, 6], [3, 1], [64, 8],
    ]  # fmt: skip
    assert (x == 4).tensor.tolist() == [False, True] and (5 > x).tensor.tolist() == [True, True]


def test_in_place_operators_keep_dtype_and_shape() -> None:
    x = same = xp.asarray([1, 2])
    x += 1
    x *= xp.asarray([2, 3], dtype=xp.int8)
    assert x is same and x.tensor.tolist() == [4, 9]
    with pytest.raises(DTypeError, match="in place"):
        x += xp.asarray([1.0, 1.0])
    with pytest.raises(ShapeError, match="in place"):
        x += xp.ones((2, 2), dtype=xp.int32)


def test_one_number_of_an_array_without_axes() -> None:
    assert (bool(xp.asarray(True)), int(xp.asarray(3.5)), float(xp.asarray(2))) == (True, 3, 2.0)
    assert complex(xp.asarray(1.5)) == 1.5 and [7, 8][xp.asarray(1)] == 8
    with pytest.raises(TypeError):
        float(xp.asarray([1.0]))
    with pytest.raises(TypeError):
        range(xp.asarray(1.0))


def test_dlpack_and_numpy() -> None:
    x = xp.asarray([1.0, 2.0])
    assert np.from_dlpack(x).tolist() == [1.0, 2.0] == np.asarray(x).tolist()
    back = xp.from_dlpack(np.arange(3, dtype=np.int64))
    assert back.dtype == xp.int64 and back.tensor.tolist() == [0, 1, 2]
    assert xp.from_dlpack(x).tensor.tolist() == [1.0, 2.0]
    assert pickle.loads(pickle.dumps(x)).tensor.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError):
        np.sin(x)


def test_the_namespace_of_an_array() -> None:
    x = xp.asarray(1)
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.01")


def test_what_the_namespace_says_of_itself() -> None:
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert all(xp.zeros(1, device=device).device == device for device in info.devices())
    defaults = info.default_dtypes()
    assert defaults["real floating"] == xp.asarray(1.0).dtype
    assert defaults["integral"] == xp.asarray(1).dtype == xp.arange(2).dtype
    assert defaults["indexing"] == xp.argmax(xp.ones(2)).dtype
    assert xp.argmax(xp.asarray([1])).dtype == defaults["indexing"]
    assert info.dtypes(kind="complex floating") == {} and "float64" in info.dtypes()
    assert info.dtypes(kind=("bool", "unsigned integer")).keys() == {
        "bool", "uint8", "uint16", "uint32", "uint64",
    }  # fmt: skip


def test_where_dtypes_meet() -> None:
    assert xp.result_type(xp.int8, xp.uint8) == xp.int16
    assert xp.result_type(xp.asarray([1.0]), xp.float64, 1) == xp.float64
    assert xp.add(xp.ones(1, dtype=xp.int8), xp.ones(1, dtype=xp.int64)).dtype == xp.int64
    with pytest.raises(DTypeError, match="uint64"):
        xp.add(xp.ones(1, dtype=xp.uint64), xp.ones(1, dtype=xp.int8))
    pairs = [(xp.int8, xp.int16), (xp.int16, xp.int8), (xp.int64, xp.float64), (xp.bool, xp.int8)]
    assert [xp.can_cast(*pair) for pair in pairs] == [True, False, False, False]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_limits_of_floats(name: str) -> None:
    ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
    for each in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(ours, each) == float(getattr(theirs, each)), each
    assert xp.iinfo(xp.uint64).max == 2**64 - 1 and xp.iinfo(xp.asarray([1])).min == -(2**63)


def test_values_that_default_dtypes_do_not_hold() -> None:
    assert xp.asarray([1, 2**40]).dtype == xp.int64 and xp.asarray(2**63).dtype == xp.uint64
    assert int(xp.arange(2**40, 2**40 + 2)[1]) == 2**40 + 1
    most = 2**64 - 1
    assert int(xp.arange(most - 2, most, dtype=xp.uint64)[1]) == most - 1
    assert int(xp.full((), most, dtype=xp.uint64)) == most


def test_complex_numbers_are_refused() -> None:
    for make in (xp.asarray, lambda value: xp.full(2, value), lambda value: xp.asarray([value])):
        with pytest.raises(TypeError, match="complex"):
            make(1j)
    assert not hasattr(xp, "complex64") and not hasattr(xp, "fft")


def test_nested_arrays_become_one() -> None:
    x = xp.asarray([[xp.asarray(1), xp.asarray(2)], [xp.asarray(3), 4]])
    assert x.tensor.tolist() == [[1, 2], [3, 4]] and x.dtype == dtypes.int64


def test_an_element_is_read_without_a_kernel_of_its_own() -> None:
    """And kernels of elements at different positions are one."""
    from tilegrad import GlobalCounters

    x = xp.asarray(X) + 1
    before = GlobalCounters.kernel_count
    found = [float(x[0, 0, at]) for at in range(4)]
    assert found == [1.0, 2.0, 3.0, 4.0]
    assert GlobalCounters.kernel_count <= before + 1


def test_the_variance_of_too_few_is_nan() -> None:
    assert np.isnan(float(xp.var(xp.asarray([1.0, 3.0]), correction=2)))
    assert np.isnan(float(xp.std(xp.asarray([1.0]), correction=1)))
