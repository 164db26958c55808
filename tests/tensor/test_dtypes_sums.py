"""Sums of short floats are kept in float32: each here would stop where one more is no longer seen,
at 2048 for half, 256 for bfloat16 and 8 for fp8e5m2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

COUNTS = {dtypes.half: 4096, dtypes.bfloat16: 4096, dtypes.fp8e5m2: 256}


def zeros(x: Tensor) -> Tensor:
    return Tensor.zeros(*x.shape, dtype="int32")


def gradient(x: Tensor, use: Callable[[Tensor], Tensor]) -> Tensor:
    weight = Tensor.ones(1, dtype=x.dtype, requires_grad=True)
    use(weight).sum().backward()
    assert weight.grad is not None
    return weight.grad


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean() * len(x),
    "product": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "dot": lambda x: x.dot(x),
    "einsum": lambda x: Tensor.einsum("i,i->", x, x),
    "convolution": lambda x: x.reshape(1, -1, 4, 4).conv2d(x.reshape(1, -1, 4, 4)),
    "pooling": lambda x: x.reshape(1, 1, -1, 4).avg_pool2d((len(x) // 4, 4)) * len(x),
    "cumsum": lambda x: x.cumsum()[-1],
    "scatter_add": lambda x: Tensor.zeros(1, dtype=x.dtype).scatter_add(0, zeros(x), x),
    "norm": lambda x: x.norm().square(),
    "gradient of expand": lambda x: gradient(x, lambda weight: weight.expand(len(x)) * x),
    "gradient of rows": lambda x: gradient(x, lambda weight: weight[zeros(x)] * x),
    "gradient of a product": lambda x: gradient(x, lambda w: x.reshape(-1, 1) * w.reshape(1, 1)),
}


@pytest.mark.parametrize("dtype", COUNTS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", SUMS)
def test_ones_are_counted(name: str, dtype: DType) -> None:
    count = COUNTS[dtype]
    total = SUMS[name](Tensor.ones(count, dtype=dtype).contiguous().realize())
    assert total.dtype is dtype
    assert total.item() == count


def test_other_dtypes_of_sums() -> None:
    ones = Tensor.ones(4096, dtype="half").contiguous().realize()
    assert (ones * 32).sum().item() == float("inf")
    assert (ones * 32).sum(dtype="float32").item() == 131072.0
    assert Tensor([200, 100], dtype="uint8").sum().tolist() == 300
    assert Tensor([True, True]).sum().dtype is dtypes.int64
    assert Tensor([120, 120], dtype="int8").prod().item() == 14400


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("options", [{}, {"padding": 1, "stride": 2}, {"groups": 4}], ids=str)
def test_products_in_a_convolution_are_not_rounded(dtype: DType, options: dict[str, int]) -> None:
    """Nor in its gradients: each sum is rounded once, at the end."""
    generator = np.random.default_rng(5)

    def drawn(*shape: int) -> Tensor:
        return Tensor(generator.standard_normal(shape)).cast(dtype).realize()

    x, w = drawn(2, 4, 9, 9), drawn(8, 4 // options.get("groups", 1), 3, 3)
    y = x.conv2d(w, **options)
    wide = x.double().conv2d(w.double(), **options)
    g = drawn(*y.shape)
    exact = [wide, *wide.gradient(x, w, gradient=g.double())]
    found = [y, *y.gradient(x, w, gradient=g)]
    digits, least = (11, -24) if dtype is dtypes.half else (8, -133)
    for ours, theirs in zip(found, exact):
        target = theirs.double().numpy()
        _, exponent = np.frexp(target)
        unit = np.ldexp(1.0, np.maximum(exponent - digits, least))
        # Half a unit, and what float32 loses of sums of numbers near 1.
        assert np.all(np.abs(ours.double().numpy() - target) <= 0.5 * unit + 1e-5)
