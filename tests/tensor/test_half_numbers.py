"""A number beside a tensor of less than 32 bits is not rounded: the result is, once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conformance.values import quantize, sample, tensor
from tilegrad import Context, Tensor, dtypes, nn
from tilegrad.base.dtype import DType

SHORT = (dtypes.float16, dtypes.bfloat16)
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "from": lambda x, y: y - x, "into": lambda x, y: y / x,
}  # fmt: skip


def values(dtype: DType, seed: str) -> tuple[Tensor, np.ndarray]:
    array = sample((400,), dtype, seed)
    return tensor(array, dtype), array.astype(np.float32)


def same(found: Tensor, expected: Any, dtype: DType) -> None:
    assert found.dtype is dtype
    rounded = quantize(np.asarray(expected, np.float32), dtype).astype(np.float32)
    np.testing.assert_array_equal(found.float().numpy(), rounded)


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_number_is_not_rounded(name: str, dtype: DType) -> None:
    """As float32 has it: 0.1, and 100,000, which half does not hold."""
    ours, x = values(dtype, name)
    with np.errstate(all="ignore"):
        for number in (0.1, -3.3, 1e5, 100_000, 7):
            expected = OPERATIONS[name](x, np.float32(number))
            same(OPERATIONS[name](ours, number), expected, dtype)


@pytest.mark.parametrize("device", ["CPU", "EMU"])
@pytest.mark.parametrize("dtype", SHORT)
def test_as_a_constant_and_as_memory(dtype: DType, device: str) -> None:
    with Context(DEVICE=device):
        for number in (0.1, 1e5):
            expected = quantize(np.float32(quantize(1e-3, dtype)) * np.float32(number), dtype)
            folded = (Tensor(1e-3, dtype=dtype) * number).item()
            computed = (Tensor([1e-3], dtype=dtype).realize() * number).item()
            assert folded == computed == float(expected)


@pytest.mark.parametrize("dtype", SHORT)
def test_products_are_not_biased(dtype: DType) -> None:
    """0.1 as bfloat16 is 0.1001: a factor that was rounded makes every product larger."""
    x = Tensor(np.linspace(1, 2, 4001, dtype=np.float32)).cast(dtype).realize()
    ratio = (x * 0.1).float() / x.float()
    assert abs(ratio.mean().item() - 0.1) < 2e-5


@pytest.mark.parametrize("dtype", SHORT)
def test_sums_of_products_round_once(dtype: DType) -> None:
    x, a = values(dtype, "x")
    y, b = values(dtype, "y")
    z, c = values(dtype, "z")
    third = np.float32(0.3)
    with np.errstate(all="ignore"):
        same(x.add(y, alpha=0.3), a + b * third, dtype)
        same(x.sub(y, alpha=0.3), a - b * third, dtype)
        same(x.addcmul(y, z), a + b * c, dtype)
        same(x.addcmul(y, z, value=0.3), a + b * c * third, dtype)
        same(x.addcdiv(y, z), a + b / c, dtype)
        same(x.lerp(y, 0.3), a + (b - a) * third, dtype)


@pytest.mark.parametrize("dtype", SHORT)
def test_products_of_matrices_with_an_addend_round_once(dtype: DType) -> None:
    """Few terms, so that the order of their sum is of no weight."""
    m, a = values(dtype, "m")
    n, b = values(dtype, "n")
    t, c = values(dtype, "t")
    left, right, addend = a[:8].reshape(4, 2), b[:6].reshape(2, 3), c[:12].reshape(4, 3)
    exact = 0.25 * addend.astype(np.float64) + 0.5 * (left.astype(np.float64) @ right)
    found = (
        t[:12].reshape(4, 3).addmm(m[:8].reshape(4, 2), n[:6].reshape(2, 3), beta=0.25, alpha=0.5)
    )
    same(found, exact, dtype)
    batch = (
        t[:12]
        .reshape(1, 4, 3)
        .baddbmm(m[:8].reshape(1, 4, 2), n[:6].reshape(1, 2, 3), beta=0.25, alpha=0.5)
    )
    same(batch, exact[None], dtype)


@pytest.mark.parametrize("dtype", SHORT)
def test_powers_round_once(dtype: DType) -> None:
    x, a = values(dtype, "power")
    size = np.abs(a).astype(np.float64)
    for exponent in (3, 5, 1.5, -2):
        found = x.abs() ** exponent
        assert found.dtype is dtype
        expected = quantize(size**exponent, dtype).astype(np.float32)
        off = (found.float().numpy() != expected) & np.isfinite(expected)
        # Ties of float32's own rounding.
        assert off.mean() < 0.005


@pytest.mark.parametrize("dtype", SHORT)
def test_a_number_to_compare_with_is_rounded(dtype: DType) -> None:
    """So that what was made of a number is equal to it, as in PyTorch."""
    x = Tensor([0.1], dtype=dtype)
    assert x.eq(0.1).item()
    assert not (x < 0.1).item()
    assert not (x > 0.1).item()


def test_the_gradient_is_of_the_same_dtype() -> None:
    x = Tensor([1.0, 2.0], dtype=dtypes.half, requires_grad=True)
    (x * 0.1).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is dtypes.half
    assert x.grad.tolist() == [float(np.float16(0.1))] * 2


@pytest.mark.parametrize("dtype", SHORT)
def test_functions_with_numbers_round_once(dtype: DType) -> None:
    """Not after each of their steps: a third to a half of the results were off by a unit."""
    functional = nn.functional
    (x, a), (y, b) = values(dtype, "prediction"), values(dtype, "target")
    wide, distance = a.astype(np.float64), np.abs(a.astype(np.float64) - b)
    inner = np.minimum(distance, 0.3)
    with np.errstate(all="ignore"):
        shrunk = wide - np.clip(wide, -0.3, 0.3)
        smooth = inner * (distance - inner / 2)
    kept = np.isfinite(wide) & np.isfinite(distance) & (distance < 100)
    cases = (
        (functional.softshrink(x, 0.3), shrunk),
        (functional.huber_loss(x, y, "none", 0.3), smooth),
        (functional.smooth_l1_loss(x, y, "none", 0.3), smooth / 0.3),
    )
    for found, expected in cases:
        assert found.dtype is dtype
        rounded = quantize(np.where(kept, expected, 0), dtype).astype(np.float32)
        np.testing.assert_array_equal(np.where(kept, found.float().numpy(), 0), rounded)


@pytest.mark.parametrize("dtype", SHORT)
def test_a_bias_is_added_before_the_sum_is_rounded(dtype: DType) -> None:
    """Sums of eighths are exact in float32, so the one rounding is the last."""
    random = np.random.default_rng(5)
    x, weight = (random.integers(-64, 64, (7, 48)) / 8 for _ in range(2))
    bias = random.integers(-64, 64, 7) / 8
    ours = [Tensor(each.astype(np.float32)).cast(dtype) for each in (x, weight, bias)]
    same(nn.functional.linear(*ours), x @ weight.T + bias, dtype)
    lines = [ours[0].reshape(7, 4, 12), ours[1].reshape(7, 4, 12), ours[2]]
    expected = np.einsum("bik,oik->bo", x.reshape(7, 4, 12), weight.reshape(7, 4, 12)) + bias
    same(nn.functional.conv1d(*lines).reshape(7, 7), expected, dtype)
