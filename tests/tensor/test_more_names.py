"""Methods under PyTorch's names: the edges, errors and in-place forms that no table states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError


def test_parts_of_the_smallest_numbers() -> None:
    """Every subnormal keeps its value through its parts, and its neighbour is one unit on."""
    x = np.arange(1, 400, dtype=np.uint32).view(np.float32)
    made = Tensor(x).frexp()
    mantissa, exponent = np.frexp(x)
    np.testing.assert_array_equal(made.mantissa.numpy(), mantissa)
    np.testing.assert_array_equal(made.exponent.numpy(), exponent)
    np.testing.assert_array_equal(Tensor(x).nextafter(math.inf).numpy(), np.nextafter(x, np.inf))


def test_the_way_to_the_neighbour() -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, math.inf, math.nan, 2.0], np.float32)
    y = np.array([-1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 2.0], np.float32)
    np.testing.assert_array_equal(Tensor(x).nextafter(Tensor(y)).numpy(), np.nextafter(x, y))


def test_an_exponent_flows_to_what_it_scales() -> None:
    x = Tensor([3.0, -0.75])
    (found,) = x.ldexp(Tensor([4, -1])).sum().gradient(x)
    assert found.tolist() == [16.0, 0.5]
    (found,) = x.frexp().mantissa.sum().gradient(x)
    assert found.tolist() == [0.25, 1.0]


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint64"])
def test_common_divisors_over_a_whole_range(dtype: str) -> None:
    """Fibonacci's numbers take most steps."""
    limits, numbers = np.iinfo(dtype), [1, 1]
    while sum(numbers[-2:]) <= limits.max:
        numbers.append(sum(numbers[-2:]))
    wild = np.random.default_rng(3).integers(limits.min + 1, limits.max, 30, dtype=dtype)
    left = np.array([*numbers[1:], 0, 0, 12, limits.max, *wild[:15]], dtype)
    right = np.array([*numbers[:-1], 0, 7, 0, limits.max, *wild[15:]], dtype)
    found = Tensor(left).gcd(Tensor(right)).numpy()
    np.testing.assert_array_equal(found, np.gcd(left, right))


def test_common_divisors_of_int64_are_one_kernel_of_few_instructions() -> None:
    pair = [Tensor(np.arange(8, dtype=np.int64)).realize() for _ in range(2)]
    kernel = kernel_of(pair[0].gcd(pair[1]))
    assert len(kernel.toposort()) < 400


def test_divisors_need_integers() -> None:
    assert Tensor([0, -9], dtype="int8").gcd(0).tolist() == [0, 9]
    with pytest.raises(DTypeError, match="gcd: integers are needed, not float32 and int32"):
        Tensor([1.0]).gcd(2)
    with pytest.raises(DTypeError, match=r"frexp: float64, .* have parts, int32 does not"):
        Tensor([1]).frexp()


def test_what_is_outside_is_said() -> None:
    x = Tensor.zeros(2, 3)
    with pytest.raises(IndexBoundsError, match="as_strided: places 1 to 6 of 6 elements"):
        x.as_strided((2, 3), (3, 1), 1)
    with pytest.raises(ShapeError, match=r"diagonal_scatter: a source of \(3,\), a diagonal of"):
        x.diagonal_scatter(Tensor.zeros(3))
    with pytest.raises(ShapeError, match=r"movedim: axes \(0, 1\) to positions \(0, 0\)"):
        x.movedim((0, 1), (0, 0))
    with pytest.raises(ShapeError, match="broadcast_shapes: sizes 2 and 3 of axis 0 differ"):
        Tensor.broadcast_shapes((2,), (3,))
    with pytest.raises(ShapeError, match="mode: there is no element"):
        Tensor.zeros(2, 0).mode()
    with pytest.raises(ShapeError, match="rfftn: 1 sizes for 2 axes"):
        x.rfftn((3,), (0, 1))


def test_runs_with_their_numbers() -> None:
    x = np.array([[1, 1, 2], [1, 1, 2], [0, 1, 2], [0, 1, 2]], np.int32)
    found, numbers, counts = Tensor(x).unique_consecutive(True, True, dim=0)
    assert found.tolist() == [[1, 1, 2], [0, 1, 2]]
    assert (numbers.tolist(), counts.tolist()) == ([0, 0, 1, 1], [2, 2])
    same = np.array([[5, 5, 1], [6, 6, 2]], np.int32)
    assert Tensor(same).unique_consecutive(dim=1).tolist() == [[5, 1], [6, 2]]


def test_the_last_of_the_most_frequent() -> None:
    found = Tensor([[2, 1, 2, 1], [3, 3, 3, 0]]).mode(keepdim=True)
    assert found.values.tolist() == [[1], [3]]
    assert found.indices.tolist() == [[3], [2]]


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett"])
def test_windows(name: str) -> None:
    """With both ends as NumPy's are; a period is one longer without its end."""
    theirs: Any = getattr(np, name if name not in ("hann",) else "hanning")
    ours: Any = getattr(Tensor, f"{name}_window")
    for size in (1, 2, 7, 8):
        np.testing.assert_allclose(ours(size, False).numpy(), theirs(size), atol=1e-6)
    np.testing.assert_allclose(ours(7).numpy(), theirs(8)[:7], atol=1e-6)


def test_the_window_of_kaiser() -> None:
    for beta in (0.0, 6.0, 100.0):
        found = Tensor.kaiser_window(9, False, beta).numpy()
        np.testing.assert_allclose(found, np.kaiser(9, beta), rtol=1e-5, atol=1e-7)


def test_missing_numbers() -> None:
    x = np.array([[1.0, math.nan, 3.0, 2.0], [math.nan] * 4], np.float32)
    assert Tensor(x).nanmedian(1).values[0].item() == 2.0
    assert math.isnan(Tensor(x).nanmedian(1).values[1].item())
    assert Tensor(x).nanquantile([0.5, 1.0], 1)[:, 0].tolist() == [2.0, 3.0]
    assert math.isnan(Tensor(x).nanquantile(0.5, 1)[1].item())


def test_in_place() -> None:
    x = Tensor([[1.0, -2.0], [3.0, 4.0]]).realize()
    before = x + 0
    assert x.gt_(0).tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert before.tolist() == [[1.0, -2.0], [3.0, 4.0]]
    assert x.unsqueeze_(0).transpose_(1, 2).shape == (1, 2, 2)
    assert x.squeeze_().tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert x.index_put_((Tensor([0]),), 7.0).tolist() == [[7.0, 7.0], [0.0, 1.0]]
    assert (x.gt_.__name__, x.greater_.__name__) == ("gt_", "gt_")


def test_random_fillings() -> None:
    Tensor.manual_seed(3)
    made = Tensor.empty(4000).geometric_(0.25).numpy()
    assert made.min() == 1
    assert abs(made.mean() - 4) < 0.25
    assert abs(np.log(Tensor.empty(4000).log_normal_(2.0, 0.5).numpy()).mean() - 2) < 0.05
    assert abs(np.median(Tensor.empty(4000).cauchy_(5.0).numpy()) - 5) < 0.15
    whole = Tensor.empty(4000, dtype=dtypes.int8).random_().numpy()
    assert (whole.min() >= 0, whole.max() > 100) == (True, True)
    assert set(Tensor.empty(200).random_(3, 5).numpy()) == {3.0, 4.0}


def test_arguments_as_pytorch_has_them() -> None:
    """Keywords that choose nothing here, and offsets, factors and orders that do."""
    array = np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3)
    x = Tensor(array)
    np.testing.assert_array_equal(x.add(x, alpha=2).numpy(), array * 3)
    np.testing.assert_array_equal(x.sub(1, alpha=3).numpy(), array - 3)
    np.testing.assert_array_equal(x.clone().add_(x, alpha=-0.5).numpy(), array / 2)
    for offset in range(-2, 3):
        np.testing.assert_array_equal(x.diag(offset).numpy(), np.diag(array, offset))
        np.testing.assert_array_equal(x[0].diag(offset).numpy(), np.diag(array[0], offset))
    assert x.argsort(0, stable=True)[:, 0].tolist() == [0, 1, 2]
    assert x.topk(1, sorted=False)[0].flatten().tolist() == [3.0, 6.0, 9.0]
    assert x.cumsum(0, dtype=dtypes.float64).dtype is dtypes.float64
    assert x.cumprod(1, dtype="int32").tolist() == np.cumprod(array, 1).tolist()
    assert [each.tolist() for each in (x > 7).nonzero(as_tuple=True)] == [[2, 2], [1, 2]]
    assert [each.tolist() for each in Tensor(3).nonzero(as_tuple=True)] == [[0]]
    assert x.quantile(Tensor([0.25, 0.5])).tolist() == [3.0, 5.0]
    orders = {"fro": 2, 0: 0, -math.inf: -math.inf, 3: 3}
    for name, order in orders.items():
        expected = np.linalg.norm(array.ravel(), order)
        assert x.norm(name).item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(DTypeError, match="norm: unknown p 'nuc'"):
        x.norm("nuc")
