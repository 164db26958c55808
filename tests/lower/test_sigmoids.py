"""tanh and the logistic function are as exact as lower/transcendental.py says, and so are gradients
that are made of their results.

float32 is measured against NumPy's float64, float64 against decimal fractions.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.decompose import decompose
from tilegrad.target import Target

NAMES = ("tanh", "sigmoid")
# Units in the last place, by function: (float32, float64).
BOUNDS = {"tanh": (1.5, 1.5), "sigmoid": (2.5, 2.5)}
OPS = {"tanh": Ops.TANH, "sigmoid": Ops.SIGMOID}


def exact(name: str, x: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.tanh(x) if name == "tanh" else 1 / (1 + np.exp(-x))


def samples(dtype: Any) -> Any:
    generator = np.random.default_rng(1)
    least = math.log10(float(np.finfo(dtype).tiny))
    around = [generator.uniform(-size, size, 100_000) for size in (1, 12, 90)]
    small = 10.0 ** generator.uniform(least, 0, 100_000)
    return np.concatenate([*around, small, -small]).astype(dtype)


@pytest.mark.parametrize("device", ["CPU", "CLANG", "EMU"])
@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str, device: str) -> None:
    x = samples(np.float32)[:: 1000 if device == "EMU" else 1]
    found = getattr(Tensor(x, device=device), name)().numpy()
    wanted = exact(name, x.astype(np.float64))
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - wanted) / unit).max() <= BOUNDS[name][0]


@pytest.mark.parametrize("name", NAMES)
def test_float64(name: str) -> None:
    x = samples(np.float64)[::400]
    found = getattr(Tensor(x), name)().numpy()
    with decimal.localcontext() as context:
        context.prec = 360
        for argument, ours in zip(x.tolist(), found.tolist(), strict=True):
            power = (-2 * Decimal(argument) if name == "tanh" else -Decimal(argument)).exp()
            wanted = (1 - power if name == "tanh" else 1) / (1 + power)
            unit = Decimal(math.ulp(float(wanted)))
            assert abs(Decimal(ours) - wanted) / unit <= Decimal(BOUNDS[name][1]), argument


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_halves_round_once(name: str, dtype: Any) -> None:
    """All numbers: float32's error moves no result by more than its rounding."""
    x = np.arange(1 << 16).astype(np.uint16).view(dtype)
    kind = dtypes.float16 if dtype is np.float16 else dtypes.bfloat16
    found = getattr(Tensor(x.astype(np.float32)).cast(kind), name)().cast(dtypes.float32).numpy()
    with np.errstate(invalid="ignore"):
        wanted = exact(name, x.astype(np.float64))
    nearest = wanted.astype(dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):
        unit = np.maximum(np.abs(nearest) * 2.0 ** (-10 if dtype is np.float16 else -7), 2.0**-24)
        distance = np.abs(found - wanted) / unit
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.nanmax(distance) <= 0.51


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(dtype: Any) -> None:
    largest, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    x = np.array([np.nan, np.inf, -np.inf, largest, -largest, 0.0, -0.0, least, -least], dtype)
    one = [np.nan, 1, -1, 1, -1, 0, 0, least, -least]
    tanh, sigmoid = Tensor(x).tanh().numpy(), Tensor(x).sigmoid().numpy()
    np.testing.assert_array_equal(tanh, np.array(one, dtype))
    assert np.array_equal(np.signbit(tanh[1:]), np.signbit(x[1:]))
    np.testing.assert_array_equal(sigmoid, np.array([np.nan, 1, 0, 1, 0, *[0.5] * 4], dtype))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_off_by_the_rounding_of_the_result(name: str) -> None:
    """Near 1 a result is off by half a unit of 1, and so is one minus it."""
    x = np.linspace(-30, 30, 20_001).astype(np.float32)
    leaf = Tensor(x, requires_grad=True)
    getattr(leaf, name)().sum().backward()
    y = exact(name, x.astype(np.float64))
    wanted = (1 - y) * (1 + y) if name == "tanh" else y * exact(name, -x.astype(np.float64))
    assert leaf.grad is not None
    assert np.abs(leaf.grad.numpy() - wanted).max() <= 3 * 2.0**-24


@pytest.mark.parametrize("name", NAMES)
def test_second_and_third_derivatives(name: str) -> None:
    x = np.linspace(-4, 4, 101)
    leaf = Tensor(x, requires_grad=True)
    value, found = getattr(leaf, name)(), []
    for _ in range(3):
        (value,) = value.sum().gradient(leaf)
        found.append(value)
    y = exact(name, x)
    if name == "tanh":
        d = 1 - y**2
        wanted = [d, -2 * y * d, d * (6 * y**2 - 2)]
    else:
        d = y * (1 - y)
        wanted = [d, d * (1 - 2 * y), d * (1 - 6 * y + 6 * y**2)]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=2e-15)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", NAMES)
def test_one_exponential_serves_value_and_gradient(name: str, dtype: Any, lanes: int) -> None:
    """They are made after vectors, of whole vectors; who needs the value has it once."""
    kind = dtype.vec(lanes)
    x = UOp(Ops.DEFINE_ACC, kind, (UOp.const(kind, 0.0),), 0)
    y = x.alu(OPS[name])
    made = decompose(UOp.sink(y * x, y * (1.0 - y)), Target("plain")).toposort()
    assert sum(node.op is Ops.EXP for node in made) == 1
    assert sum(node.op is Ops.FDIV for node in made) == 1
    assert not {Ops.TANH, Ops.SIGMOID} & {node.op for node in made}
    assert {node.dtype.lanes for node in made if node.op is not Ops.SINK} == {lanes}
