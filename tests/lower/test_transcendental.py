"""exp2, log2 and sin are as exact as lower/transcendental.py says, on dense samples and at the
edges.

float32 is measured against NumPy's float64, float64 against decimal fractions of fifty digits.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower import transcendental

# Units in the last place, by function: (float32, float64).
BOUNDS = {"exp2": (1.5, 2.0), "log2": (2.0, 3.0), "sin": (2.0, 2.5)}
SIN_SINGLE, SIN_DOUBLE = 2.0**26 * math.pi, 2.0**20
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with decimal.localcontext() as context:
        context.prec = 60
        yield


def computed(name: str, x: Any, device: str = "CPU") -> Any:
    """The function as the device has it, which for the CPU is the polynomial."""
    with Context(DEVICE=device):
        found: Tensor = getattr(Tensor(x), name)()
        return found.numpy()


def units(found: Any, exact: Any) -> Any:
    """The distance in units of the last place of `exact`, in float32."""
    _, exponent = np.frexp(np.abs(exact))
    return np.abs(found.astype(np.float64) - exact) / np.ldexp(1.0, np.maximum(exponent, -125) - 24)


def sine(x: Decimal) -> Decimal:
    rest = x % (2 * PI)
    term = total = rest
    for n in range(1, 60):
        term = -term * rest * rest / (2 * n * (2 * n + 1))
        total += term
    return total


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "exp2": lambda x: (x * Decimal(2).ln()).exp(),
    "log2": lambda x: x.ln() / Decimal(2).ln(),
    "sin": sine,
}


def worst_in_double(name: str, x: Any, found: Any) -> float:
    """The largest distance in units of the last place, in float64."""
    worst = 0.0
    for argument, ours in zip(x.tolist(), found.tolist(), strict=True):
        exact = EXACT[name](Decimal(argument))
        unit = Decimal(math.ulp(float(exact)))
        worst = max(worst, float(abs(Decimal(ours) - exact) / unit))
    return worst


# What the compiler makes of the functions


def test_the_cpu_has_no_instructions_for_them() -> None:
    """So the tests below measure the polynomials, not a library."""
    assert {Ops.EXP2, Ops.LOG2, Ops.SIN} <= Device["CPU"].target.missing


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_they_are_made_of_arithmetic(name: str, dtype: Any) -> None:
    """No function is left, and every step works on whole vectors."""
    x = UOp(Ops.DEFINE_ACC, dtype.vec(8), (UOp.const(dtype.vec(8), 0.0),), 0)
    made = getattr(transcendental, name)(x)
    assert made.dtype is x.dtype
    nodes = made.toposort()
    assert not {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT} & {node.op for node in nodes}
    assert {node.dtype.lanes for node in nodes} == {8}


# float32


def every(step: int) -> Any:
    """Every `step`-th float32 of both signs, the infinities and some NaN among them."""
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def check_single(name: str, x: Any) -> None:
    found = computed(name, x)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
        nearest = exact.astype(np.float32)
        if name == "sin":
            inside = np.abs(x) <= SIN_SINGLE
            found, exact, nearest = found[inside], exact[inside], nearest[inside]
        is_equal = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
        distance = np.where(is_equal, 0.0, units(found, exact))
    assert np.nanmax(distance) <= BOUNDS[name][0]
    # NaN would pass as no distance at all.
    assert not np.isnan(distance).any()


@pytest.mark.parametrize("name", BOUNDS)
def test_float32(name: str) -> None:
    check_single(name, every(1021))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("exp2", -151, 129), ("exp2", -1, 1), ("log2", 0.4, 2.5), ("sin", -7, 7), ("sin", 0, 1e8)],
)
def test_float32_where_it_matters(name: str, low: float, high: float) -> None:
    check_single(name, np.random.default_rng(1).uniform(low, high, 300_000).astype(np.float32))


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("part", range(64))
def test_float32_all(name: str, part: int) -> None:
    """Every float32 there is, in 64 parts."""
    first = np.arange(part << 26, (part + 1) << 26, dtype=np.uint64)
    for piece in np.split(first, 16):
        check_single(name, piece.astype(np.uint32).view(np.float32))


def test_float32_near_multiples_of_pi() -> None:
    """The sine is small there, so an inexact reduction of the argument would show."""
    multiples = np.unique(np.round(np.geomspace(1, 2**26, 60_000)))
    x = (multiples * np.pi).astype(np.float32)
    check_single("sin", np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.float32(1e9))]))


# float64


DOUBLES = {
    "exp2": [(-1080, 1025), (-1, 1), (-1e-3, 1e-3)],
    "log2": [(0, 1e-300), (0.5, 2), (1, 1.02), (0, 1e300)],
    "sin": [(-4, 4), (-1e-3, 1e-3), (1.4, 1.7), (-SIN_DOUBLE, SIN_DOUBLE)],
}


@pytest.mark.parametrize("name", BOUNDS)
def test_float64(name: str) -> None:
    generator = np.random.default_rng(2)
    for low, high in DOUBLES[name]:
        x = generator.uniform(low, high, 500)
        found = computed(name, x)
        kept = np.isfinite(found) & (found != 0)
        assert kept.sum() > 450
        assert worst_in_double(name, x[kept], found[kept]) <= BOUNDS[name][1]


@pytest.mark.parametrize("name", BOUNDS)
def test_float64_densely(name: str) -> None:
    """Against NumPy, which itself may be off by a unit."""
    generator = np.random.default_rng(3)
    for low, high in DOUBLES[name]:
        x = generator.uniform(low, high, 100_000)
        found = computed(name, x)
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(x)
            distance = np.abs(found - exact) / np.spacing(np.abs(exact))
        distance = np.where(found == exact, 0.0, distance)
        assert distance.max() <= BOUNDS[name][1] + 1.0


def test_float64_near_multiples_of_pi() -> None:
    multiples = np.unique(np.round(np.geomspace(1, SIN_DOUBLE / math.pi, 300)))
    x = multiples * math.pi
    assert worst_in_double("sin", x, computed("sin", x)) <= BOUNDS["sin"][1]


# edges


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_results(dtype: Any) -> None:
    """Powers of two and their logarithms are exact, subnormal ones included."""
    least, most = (-149, 127) if dtype is np.float32 else (-1074, 1023)
    exponents = np.arange(least, most + 1).astype(dtype)
    powers = np.array([math.ldexp(1.0, exponent) for exponent in range(least, most + 1)], dtype)
    np.testing.assert_array_equal(computed("exp2", exponents), powers)
    np.testing.assert_array_equal(computed("log2", powers), exponents)


SPECIAL = [
    ("exp2", math.inf, math.inf), ("exp2", -math.inf, 0.0), ("exp2", math.nan, math.nan),
    ("exp2", 0.0, 1.0), ("exp2", -0.0, 1.0), ("exp2", 1024.0, math.inf),
    ("exp2", 1e30, math.inf), ("exp2", -1e30, 0.0), ("exp2", 1e-40, 1.0), ("exp2", -1200.0, 0.0),
    ("log2", 0.0, -math.inf), ("log2", -0.0, -math.inf), ("log2", 1.0, 0.0),
    ("log2", math.inf, math.inf), ("log2", -math.inf, math.nan), ("log2", -1.0, math.nan),
    ("log2", -1e-40, math.nan), ("log2", math.nan, math.nan),
    ("sin", 0.0, 0.0), ("sin", -0.0, -0.0), ("sin", math.inf, math.nan),
    ("sin", -math.inf, math.nan), ("sin", math.nan, math.nan), ("sin", 1e-40, 1e-40),
    ("sin", -1e-20, -1e-20),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("device", ["CPU", "EMU:CPU", "EMU"])
def test_special_values(dtype: Any, device: str) -> None:
    for name in BOUNDS:
        rows = [(x, y) for row, x, y in SPECIAL if row == name]
        with np.errstate(over="ignore"):
            x = np.array([row[0] for row in rows]).astype(dtype)
            expected = np.array([row[1] for row in rows]).astype(dtype)
        # What rounds to infinity or to zero in this dtype is another number.
        wide = np.array([row[0] for row in rows])
        kept = (np.isfinite(wide) == np.isfinite(x)) & ((wide == 0) == (x == 0))
        found = computed(name, x[kept], device)
        np.testing.assert_array_equal(found, expected[kept])
        np.testing.assert_array_equal(
            np.signbit(found[found == 0]), np.signbit(expected[kept][found == 0])
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_exp2_leaves_the_normal_numbers(dtype: Any) -> None:
    least = -149 if dtype is np.float32 else -1074
    x = np.linspace(least - 2, least + 60, 2001).astype(dtype)
    exact = np.array([float(EXACT["exp2"](Decimal(value))) for value in x.tolist()])
    step = 2.0**least
    found = computed("exp2", x).astype(np.float64)
    # A subnormal result is rounded twice: in the polynomial, and to fewer digits.
    assert np.all(np.abs(found - exact) <= 0.75 * step + exact * np.finfo(dtype).eps)
    assert np.all(np.diff(found) >= 0)


def test_sine_is_odd() -> None:
    x = np.random.default_rng(4).uniform(0, 1e5, 20_000)
    for array in (x, x.astype(np.float32)):
        np.testing.assert_array_equal(computed("sin", -array), -computed("sin", array))


# another device, another width


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_emulator_computes_the_same_polynomial(name: str, dtype: Any) -> None:
    """Its multiply-add may round twice in float64, so a unit is allowed there."""
    low = 1e-3 if name == "log2" else -30
    x = np.random.default_rng(5).uniform(low, 30, 60).astype(dtype)
    found, again = computed(name, x), computed(name, x, "EMU:CPU")
    step = np.spacing(np.abs(found))
    assert np.all(np.abs(found - again) <= (0.0 if dtype is np.float32 else 2.0) * step)


@pytest.mark.parametrize("name", BOUNDS)
def test_half_is_rounded_once(name: str) -> None:
    """All 65,536 values: the nearest half, but for ties that float32 cannot tell apart."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = computed(name, x)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
        nearest = exact.astype(np.float16)
        is_equal = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
        distance = np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(nearest))
    assert np.all(is_equal | (distance <= 0.501))
    assert is_equal.mean() > 0.999
