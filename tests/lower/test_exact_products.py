"""Sums of products of short floats outside of matrix units: no product is rounded before it is
added, whatever the target.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.device.helpers import needs
from tests.optimize.kernels import CUDA, program
from tests.schedule.plans import kernel_of
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.lower.lower import lower
from tilegrad.optimize.opts.opts import start
from tilegrad.target import Target

DEVICES = ["EMU:METAL", "EMU:CUDA", "EMU:CL", "EMU:WEBGPU", "EMU:NV:sm_80",
           pytest.param("WEBGPU", marks=needs("WEBGPU"))]  # fmt: skip
# Digits behind the point of each dtype's numbers, and factors whose square it cannot hold.
DIGITS = {"fp8e4m3": 3, "fp8e5m2": 2, "bfloat16": 7, "float16": 10}
LARGE = {"fp8e4m3": 40.0, "fp8e5m2": 512.0, "float16": 1024.0}


# In each run every second dtype on every second device, at night all.
PAIRS = [
    pytest.param(
        device,
        dtype,
        marks=[
            *([needs(device)] if device == "WEBGPU" else []),
            *([pytest.mark.nightly] if (row + column) % 2 else []),
        ],
    )
    for row, device in enumerate([*DEVICES[:-1], "WEBGPU"])
    for column, dtype in enumerate(DIGITS)
]


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Random ones that `dtype` holds."""
    scale = 1 << DIGITS[dtype]
    found = np.random.default_rng(11).integers(scale, 2 * scale, shape) / scale
    return (found * np.random.default_rng(12).choice([-1.0, 0.5, 1.0], shape)).astype(np.float32)


@pytest.mark.parametrize(("device", "dtype"), PAIRS)
def test_a_sum_of_products_has_the_errors_of_float32(device: str, dtype: str) -> None:
    """7 rows and 21 terms: no matrix unit takes them."""
    x, y = numbers(dtype, 7, 21), numbers(dtype, 21, 5)
    wide = x.astype(np.float64) @ y
    with Context(DEVICE=device):
        a, b = Tensor(x).cast(dtype).realize(), Tensor(y).cast(dtype).realize()
        found = a.matmul(b, dtype="float32").numpy()
        product = (a.reshape(7, 21, 1) * b.reshape(1, 21, 5)).sum(1, dtype="float32").numpy()
    bound = 21 * 2.0**-24 * (np.abs(x) @ np.abs(y))
    assert (np.abs(found - wide) <= bound).all()
    assert (np.abs(product - wide) <= bound).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LARGE)
def test_a_product_that_the_dtype_cannot_hold_is_added(device: str, dtype: str) -> None:
    """It would be NaN or infinite, and so the sum, in which it is cancelled."""
    large = LARGE[dtype]
    x = np.array([[large, large, 1.0] * 6] * 3, np.float32)
    y = np.array([[large, -large, 0.5] * 6] * 3, np.float32).T.copy()
    with Context(DEVICE=device):
        a, b = Tensor(x).cast(dtype).realize(), Tensor(y).cast(dtype).realize()
        found = (a @ b).cast("float32").numpy()
    np.testing.assert_array_equal(found, np.full((3, 3), 3.0))


@pytest.mark.parametrize("target", [CUDA, Target("SMALL", has_locals=True)], ids=lambda x: x.name)
def test_a_kernel_without_opts_is_that_of_the_graph(target: Target) -> None:
    """In half; with Opts no half is multiplied."""
    a, b = Tensor.empty(5, 7, dtype="half"), Tensor.empty(7, 3, dtype="half")
    ast = kernel_of(a @ b, target)
    plain = lower(start(ast, target), target)
    assert any(node.op is Ops.MUL and node.dtype is dtypes.float16 for node in plain)
    shaped = program(ast, None, CUDA)
    assert not any(node.op.is_alu and node.dtype is dtypes.float16 for node in shaped)
