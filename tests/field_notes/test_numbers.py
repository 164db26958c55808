"""Numbers that users of tensor libraries found wrong: functions of short floats, sums that were
kept in them, divisions in the wrong dtype.

The bounds of every function, dtype and op stand in tests/conformance and docs/dtypes.md; here each
complaint has a name, and the size of the error that was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilegrad import Context, Device, Tensor, dtypes
from tilegrad.base.dtype import DType
from tilegrad.base.errors import NotANumberError

SHORT = {dtypes.half: np.dtype(np.float16), dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16)}


def every(dtype: DType) -> Tensor:
    """All 65,536 values of a dtype of 16 bits."""
    return Tensor(np.arange(1 << 16, dtype=np.uint16)).bitcast(dtype)


def units(found: Any, exact: Any, dtype: DType) -> float:
    """The largest distance in units of the last place of `dtype`; infinite unless infinities and
    NaN stand where they are to.
    """
    digits, least = (11, -24) if dtype is dtypes.half else (8, -133)
    most = 65520.0 if dtype is dtypes.half else 2.0**128 * (1 - 2.0**-9)
    rounded = np.where(np.abs(exact) >= most, np.copysign(np.inf, exact), exact)
    if not np.array_equal(np.isnan(found), np.isnan(rounded)):
        return math.inf
    finite = np.isfinite(rounded)
    if not np.array_equal(found[~finite], rounded[~finite], equal_nan=True):
        return math.inf
    _, exponent = np.frexp(rounded[finite])
    unit = np.ldexp(1.0, np.maximum(exponent - digits, least))
    return float(np.max(np.abs(found[finite] - rounded[finite]) / unit))


@pytest.mark.parametrize("dtype", SHORT, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", ["exp", "log", "cos", "sin", "sqrt", "tanh", "exp2"])
def test_functions_of_short_floats_are_rounded_once(name: str, dtype: DType) -> None:
    """exp of a bfloat16 gave 169,984 where 162,816 was expected; exp of a half was infinite."""
    x = every(dtype)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.double().numpy())
    found = getattr(x, name)()
    assert found.dtype is dtype
    assert units(found.double().numpy(), exact, dtype) <= 0.51


def test_the_exponential_that_was_seen() -> None:
    assert Tensor([12.0], dtype=dtypes.bfloat16).exp().item() == 162816.0
    assert Tensor([11.0], dtype=dtypes.half).exp().item() == pytest.approx(59874.14, abs=16)
    assert Tensor([12.0], dtype=dtypes.half).exp().item() == math.inf


@pytest.mark.parametrize("dtype", SHORT, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("opts", [{}, {"NOOPT": 1}, {"TC": 0}], ids=str)
def test_a_convolution_of_short_floats_sums_in_float32(dtype: DType, opts: dict[str, int]) -> None:
    """A half convolution over many channels was off in its second digit."""
    generator = np.random.default_rng(2)
    x = Tensor(generator.standard_normal((1, 256, 5, 5))).cast(dtype).realize()
    w = Tensor(generator.standard_normal((3, 256, 3, 3))).cast(dtype).realize()
    exact = x.double().conv2d(w.double()).numpy()
    with Context(**opts):
        found = x.conv2d(w)
        assert found.dtype is dtype
        assert units(found.double().numpy(), exact, dtype) <= 0.6


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_matrix_units_are_as_exact_as_a_loop(dtype: DType) -> None:
    """A matrix unit gave bfloat16 products that were up to 17% off."""
    generator = np.random.default_rng(4)
    a, b = generator.standard_normal((2, 32, 32))
    device = "EMU"
    assert any(unit.dtype_in is dtype for unit in Device[device].target.matrix_units)
    left, right = (Tensor(each, device=device).cast(dtype).realize() for each in (a, b))
    exact = left.to("CPU").double().numpy() @ right.to("CPU").double().numpy()
    size = np.abs(left.to("CPU").double().numpy()) @ np.abs(right.to("CPU").double().numpy())
    for opts in ({"TC": 1}, {"TC": 0}):
        with Context(**opts):
            found = (left @ right).to("CPU").double().numpy()
        step = 2.0**-11 if dtype is dtypes.half else 2.0**-8
        # Each product is rounded where there is no unit.
        assert np.max(np.abs(found - exact) / size) <= step + 2.0**-20


def test_finding_where_numbers_go_wrong() -> None:
    """Wanted: a mode that says which operation made the first NaN."""
    x = Tensor([4.0, 1.0, -1.0]).realize()
    y = x.sqrt()
    total = (y * 2 + 1).sum()
    with Context(CHECK=2), pytest.raises(NotANumberError) as caught:
        total.realize()
    assert "sqrt" in str(caught.value) and "test_numbers.py" in str(caught.value)


DIVISIONS: list[tuple[str, Callable[[], Tensor], list[float], DType]] = [
    ("int / int", lambda: Tensor([7, -7]) / Tensor([2, 2]), [3.5, -3.5], dtypes.float32),
    ("int / number", lambda: Tensor([7, -7]) / 2, [3.5, -3.5], dtypes.float32),
    ("number / int", lambda: 7 / Tensor([2, -2]), [3.5, -3.5], dtypes.float32),
    ("bool / bool", lambda: Tensor([True, False]) / Tensor([True, True]), [1, 0], dtypes.float32),
    ("byte / int", lambda: Tensor([7], dtype="uint8") / Tensor([2]), [3.5], dtypes.float32),
    ("half / int", lambda: Tensor([7.0], dtype="half") / Tensor([2]), [3.5], dtypes.half),
    ("int // int", lambda: Tensor([7, -7]) // Tensor([2, 2]), [3, -4], dtypes.int32),
    ("int // negative", lambda: Tensor([7, -7]) // -2, [-4, 3], dtypes.int32),
    ("int % int", lambda: Tensor([7, -7]) % Tensor([3, 3]), [1, 2], dtypes.int32),
    ("byte // number", lambda: Tensor([255], dtype="uint8") // 2, [127], dtypes.uint8),
    ("float // float", lambda: Tensor([7.5, -7.5]) // 2, [3, -4], dtypes.float32),
    ("mean of ints", lambda: Tensor([1, 2, 2, 2]).mean(), 1.75, dtypes.float32),
    ("long / long", lambda: Tensor([6], dtype="int64") / Tensor([3]), [2], dtypes.float32),
]  # fmt: skip


@pytest.mark.parametrize(("make", "value", "dtype"), [row[1:] for row in DIVISIONS],
                         ids=[row[0] for row in DIVISIONS])  # fmt: skip
def test_division_of_integers(make: Callable[[], Tensor], value: Any, dtype: DType) -> None:
    """Two integers divided to an integer, or to a dtype that depended on the path."""
    found = make()
    assert found.dtype is dtype
    assert found.tolist() == value


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda a, b: a @ b,
    "dot": lambda a, b: a.dot(b),
    "linear": lambda a, b: a.linear(b),
    "einsum": lambda a, b: Tensor.einsum("ij,jk->ik", a, b),
    "tensordot": lambda a, b: a.tensordot(b, 1),
    "conv2d": lambda a, b: a.reshape(4, 4, 1, 1).conv2d(b.T.reshape(4, 4, 1, 1)).reshape(4, 4),
}


NUMBERS = [*SHORT, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int32]


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
def test_the_dtype_of_a_product_does_not_depend_on_its_path(dtype: DType) -> None:
    """A special path for some products gave its result in another dtype than the plain one."""
    a = (Tensor.arange(16).reshape(4, 4) % 5).cast(dtype)
    b = (Tensor.arange(16).reshape(4, 4) % 3).cast(dtype)
    found = {name: product(a, b) for name, product in PRODUCTS.items()}
    kinds = {name: each.dtype for name, each in found.items()}
    assert len(set(kinds.values())) == 1, kinds
    assert len({str(each.tolist()) for each in found.values()}) == 1
