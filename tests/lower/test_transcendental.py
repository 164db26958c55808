"""exp, exp2, log2, sin and cos are as exact as lower/transcendental.py says, on dense samples and
at the edges.

float32 is measured against NumPy's float64, float64 against decimal fractions of fifty digits.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower import range_reduction, transcendental
from tilegrad.lower.decompose import decompose
from tilegrad.target import Target

# Units in the last place, by function: (float32, float64).
BOUNDS = {
    "exp": (1.5, 2.0), "exp2": (1.5, 2.0), "log2": (1.5, 3.0), "sin": (2.0, 2.5),
    "cos": (2.0, 2.5),
}  # fmt: skip
FUNCTIONS = {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS}


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


@cache
def pi() -> Decimal:
    """400 digits, which is enough to take multiples of pi from any double: 16 arctan(1/5) -
    4 arctan(1/239).
    """
    with decimal.localcontext() as context:
        context.prec = 420

        def arctangent(n: int) -> Decimal:
            powers = (Decimal(-n * n) ** k * (2 * k + 1) for k in range(320))
            return sum(1 / power for power in powers) / n

        return 16 * arctangent(5) - 4 * arctangent(239)


def sine(x: Decimal) -> Decimal:
    with decimal.localcontext() as context:
        context.prec = 400
        rest = x % (2 * pi())
        rest -= 2 * pi() if rest > pi() else 0
    rest = +rest
    term = total = rest
    for n in range(1, 60):
        term = -term * rest * rest / (2 * n * (2 * n + 1))
        total += term
    return total


def cosine(x: Decimal) -> Decimal:
    with decimal.localcontext() as context:
        context.prec = 400
        quarter = x + pi() / 2
        return sine(quarter)


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": lambda x: x.exp(),
    "cos": cosine,
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
    assert Device["CPU"].target.missing >= FUNCTIONS


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_they_are_made_of_arithmetic(name: str, dtype: Any) -> None:
    """No function is left, and every step works on whole vectors."""
    x = UOp(Ops.DEFINE_ACC, dtype.vec(8), (UOp.const(dtype.vec(8), 0.0),), 0)
    made = getattr(transcendental, name)(x)
    assert made.dtype is x.dtype
    nodes = made.toposort()
    assert not {*FUNCTIONS, Ops.SQRT} & {node.op for node in nodes}
    assert {node.dtype.lanes for node in nodes} == {8}


def test_sines_in_one_loop_share_a_branch() -> None:
    """Four vectors: one test, one loop."""
    x = UOp(Ops.DEFINE_ACC, dtypes.float32.vec(8), (UOp.const(dtypes.float32.vec(8), 0.0),), 0)
    sines = [(x * float(scale)).alu(Ops.SIN) for scale in range(1, 5)]
    made = decompose(UOp.sink(*sines), Target("plain", missing=frozenset({Ops.SIN})))
    loops = [node for node in made.toposort() if node.op is Ops.RANGE]
    assert len(loops) == 1 and loops[0].src[0].vmax == 32
    after = decompose(
        UOp.sink(sines[0].alu(Ops.SIN)), Target("plain", missing=frozenset({Ops.SIN}))
    )
    assert sum(node.op is Ops.RANGE for node in after.toposort()) == 2


# float32


def every(step: int) -> Any:
    """Every `step`-th float32 of both signs, the infinities and some NaN among them."""
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def check_single(name: str, x: Any) -> None:
    found = computed(name, x)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
        nearest = exact.astype(np.float32)
        is_equal = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
        distance = np.where(is_equal, 0.0, units(found, exact))
    assert np.nanmax(distance) <= TENSOR_BOUNDS[name]
    # NaN would pass as no distance at all.
    assert not np.isnan(distance).any()


@pytest.mark.parametrize("name", BOUNDS)
def test_float32(name: str) -> None:
    check_single(name, every(1021))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("exp", -104, 89),
        ("exp", -1, 1),
        ("exp2", -151, 129),
        ("exp2", -1, 1),
        ("log2", 0.4, 2.5),
        ("sin", -7, 7),
        ("sin", 0, 1e8),
        ("cos", -7, 7),
        ("cos", 0, 1e8),
    ],
)
def test_float32_where_it_matters(name: str, low: float, high: float) -> None:
    check_single(name, np.random.default_rng(1).uniform(low, high, 300_000).astype(np.float32))


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("part", range(4))
def test_float32_every_61st(name: str, part: int) -> None:
    """Seventy million numbers of each function, in four chunks."""
    for piece in np.array_split(every(61), 16)[part::4]:
        check_single(name, piece)


def test_float32_near_multiples_of_pi() -> None:
    """The sine is small there, so an inexact reduction of the argument would show."""
    multiples = np.unique(np.round(np.geomspace(1, 2**26, 60_000)))
    for name, part in (("sin", 0.0), ("cos", 0.5)):
        x = ((multiples + part) * np.pi).astype(np.float32)
        beside = [np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(1e9))]
        check_single(name, np.concatenate([x, *beside]))


# float64


DOUBLES = {
    "exp": [(-745, 710), (-1, 1), (-1e-3, 1e-3)],
    "cos": [(-4, 4), (-1e-3, 1e-3), (1.4, 1.7), (-1e6, 1e6), (-2e8, 2e8), (-1e300, 1e300)],
    "exp2": [(-1080, 1025), (-1, 1), (-1e-3, 1e-3)],
    "log2": [(0, 1e-300), (0.5, 2), (1, 1.02), (0, 1e300)],
    "sin": [(-4, 4), (-1e-3, 1e-3), (1.4, 1.7), (-1e6, 1e6), (-2e8, 2e8), (-1e300, 1e300)],
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
    multiples = np.unique(np.round(np.geomspace(1, 1e300, 600)))
    for name, part in (("sin", 0.0), ("cos", 0.5)):
        x = (multiples + part) * math.pi
        assert worst_in_double(name, x, computed(name, x)) <= BOUNDS[name][1]


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
    ("exp", math.inf, math.inf), ("exp", -math.inf, 0.0), ("exp", math.nan, math.nan),
    ("exp", 0.0, 1.0), ("exp", -0.0, 1.0), ("exp", 1e30, math.inf), ("exp", -1e30, 0.0),
    ("exp", 710.0, math.inf), ("exp", -746.0, 0.0), ("exp", 1e-40, 1.0),
    ("cos", 0.0, 1.0), ("cos", -0.0, 1.0), ("cos", math.inf, math.nan),
    ("cos", -math.inf, math.nan), ("cos", math.nan, math.nan), ("cos", 1e-40, 1.0),
    ("cos", -1e-10, 1.0),
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


@pytest.mark.parametrize("device", ["CPU", "EMU:CPU"])
@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_least_power_that_is_not_zero(name: str, dtype: Any, device: str) -> None:
    """It belongs to the last argument above log(2**-150), or 2**-1075 in float64: half of the
    least subnormal number.
    """
    half = -150 if dtype is np.float32 else -1075
    limit = half * (Decimal(2).ln() if name == "exp" else 1)
    near = [dtype(float(limit))]
    for _ in range(4):
        near.insert(0, np.nextafter(near[0], dtype(-np.inf)))
        near.append(np.nextafter(near[-1], dtype(np.inf)))
    x = np.array([*near, -1e4, -np.inf], dtype)
    least = np.ldexp(1.0, half + 1)
    wanted = [least if Decimal(float(value)) > limit else 0.0 for value in near] + [0.0, 0.0]
    assert {*wanted} == {0.0, least}
    found = computed(name, np.tile(x, 16), device)
    np.testing.assert_array_equal(found, np.tile(np.array(wanted, dtype), 16))


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_a_power_that_is_zero_underflows_nowhere(name: str) -> None:
    """What is scaled is 0 there: some processors take long for an operation that underflows, and a
    mask leaves e**-inf in a softmax.
    """
    target = replace(Device["CPU"].target, has_scale=True, vector_bytes=64)
    x = Tensor(np.zeros(1024, np.float32)).realize()
    program = to_program(kernel_of(getattr(x, name)(), target), target)[1]
    scaled = [node.src[0] for node in program if node.op is Ops.SCALE]
    assert scaled
    assert all((value.op, value.src[1].arg) == (Ops.WHERE, 0.0) for value in scaled)


@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaling_by_one_instruction_changes_no_bit(name: str, dtype: Any) -> None:
    """Nor does it where results are subnormal, overflow or are no numbers."""
    backend = Device["CPU"]
    ends = (-152, 130) if dtype is np.float32 else (-1080, 1026)
    x = np.concatenate([np.linspace(*ends, 1 << 14), [np.inf, -np.inf, np.nan, -0.0] * 4])
    x = x.astype(dtype)
    ast = kernel_of(getattr(Tensor(x).realize(), name)(), backend.target)
    results = []
    for has_scale in (False, True):
        target = replace(backend.target, has_scale=has_scale and backend.target.has_scale)
        uops = to_program(ast, target)[1]
        assert any(node.op is Ops.SCALE for node in uops) == target.has_scale
        loaded = backend.runtime.load("kernel", backend.compile(backend.render("kernel", uops)))
        results.append(np.empty_like(x))
        chunks = max((node.arg[1] for node in uops if node.op is Ops.SPECIAL), default=1)
        addresses = [results[-1].ctypes.data, x.ctypes.data]
        backend.runtime.launch(loaded, addresses, (), (chunks, 1, 1), (1, 1, 1), wait=True)
    plain, scaled = (result.view(np.uint8) for result in results)
    np.testing.assert_array_equal(plain, scaled)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_nothing_is_more_than_one(name: str) -> None:
    """Where a sine is largest, a rounding error must not carry it beyond."""
    for dtype in (np.float32, np.float64):
        tops = (np.arange(-200, 200) + (0.5 if name == "sin" else 0.0)) * math.pi
        beside = np.linspace(-3e-3, 3e-3, 2001)
        x = (tops[:, None] + beside).astype(dtype).reshape(-1)
        found = np.abs(computed(name, x))
        assert found.max() == 1.0


def test_sine_is_odd() -> None:
    x = np.random.default_rng(4).uniform(0, 1e5, 20_000)
    for array in (x, x.astype(np.float32)):
        np.testing.assert_array_equal(computed("sin", -array), -computed("sin", array))


# arguments of any size

# The nearest that a float32 and a double come to a multiple of pi / 2: 2**-30 and 2**-61.
NEAREST = {np.float32: 16367173.0 * 2.0**72, np.float64: 6381956970095103.0 * 2.0**797}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_arguments(name: str, dtype: Any) -> None:
    """Of all sizes, on both sides of where the reduction changes, and next to multiples of pi."""
    generator = np.random.default_rng(6)
    most = 127 if dtype is np.float32 else 1023
    sizes = np.ldexp(generator.uniform(1, 2, 800), generator.integers(0, most + 1, 800))
    edges = [NEAREST[dtype], 2 * NEAREST[dtype], 1e16, 1e18, 1e20, float(np.finfo(dtype).max)]
    far = np.nextafter(dtype(range_reduction.FAR), dtype([0, np.inf]))
    x = np.concatenate([sizes, edges, far, [range_reduction.FAR], far * 1.001]).astype(dtype)
    x = np.concatenate([x, -x])
    found = computed(name, x)
    if dtype is np.float64:
        assert worst_in_double(name, x, found) <= BOUNDS[name][1]
    else:
        exact = np.array([float(EXACT[name](Decimal(value))) for value in x.tolist()])
        assert units(found, exact).max() <= BOUNDS[name][0]
        # NumPy's own is a reference for many.
        check_single(name, np.geomspace(1e8, 3.4e38, 300_000).astype(dtype))


def test_large_arguments_of_other_dtypes() -> None:
    """bfloat16 is as large as float32; no half is, and needs no branch."""
    x = np.geomspace(1, 3e38, 2000).astype(np.float32)
    x = (x.view(np.uint32) >> 16 << 16).view(np.float32)
    with np.errstate(all="ignore"):
        exact = np.sin(x.astype(np.float64))
    found = Tensor(x).bfloat16().sin().float().numpy()
    assert np.abs(found - exact).max() <= 0.502 * 2.0**-8
    half = np.arange(1 << 15, dtype=np.uint16).view(np.float16)
    half = half[np.isfinite(half)]
    exact = np.sin(half.astype(np.float64))
    distance = np.abs(computed("sin", half) - exact) / np.spacing(np.abs(exact.astype(np.float16)))
    assert distance.max() <= 0.501


@pytest.mark.parametrize("device", ["CPU", "EMU:CPU", "EMU"])
def test_few_large_arguments_among_small_ones(device: str) -> None:
    """The lanes that are far get their own way, and leave the others as they are."""
    x = np.linspace(-3, 3, 43).astype(np.float32)
    alone = computed("sin", x, device)
    mixed = x.copy()
    mixed[[0, 17, 40]] = [1e30, -3e20, 2e9]
    found = computed("sin", mixed, device)
    kept = mixed == x
    np.testing.assert_array_equal(found[kept], alone[kept])
    exact = np.sin(mixed[~kept].astype(np.float64))
    np.testing.assert_allclose(found[~kept], exact, rtol=0, atol=1.2e-7)


def test_large_arguments_in_any_lane() -> None:
    """In a reduction, twice in one kernel, in sequence, under a mask, and without Opts."""
    x = np.array([[1e10, 2.0, -5e22], [3e38, -1e-3, 7e7]], np.float32)
    wide = x.astype(np.float64)
    for noopt in (0, 1):
        with Context(NOOPT=noopt):
            t = Tensor(x)
            np.testing.assert_allclose(t.sin().sum(1).numpy(), np.sin(wide).sum(1), atol=1e-6)
            both = (t.sin() * (t * 0.5).sin()).numpy()
            np.testing.assert_allclose(both, np.sin(wide) * np.sin(wide / 2), atol=1e-6)
            nested = (t.sin() * 1e12).sin().numpy()
            again = (Tensor(computed("sin", x)) * 1e12).sin().numpy()
            np.testing.assert_array_equal(nested, again)
            padded = t.sin().pad(((1, 0), (0, 2))).numpy()
            np.testing.assert_allclose(padded[1:, :3], np.sin(wide), atol=1e-6)
            assert not padded[0].any() and not padded[:, 3:].any()
            t = Tensor(wide)
            np.testing.assert_allclose(t.cos().numpy(), np.cos(wide), atol=1e-15)


# another device, another width


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_emulator_computes_the_same_polynomial(name: str, dtype: Any) -> None:
    """Its multiply-add may round twice in float64, so a unit is allowed there."""
    low = 1e-3 if name == "log2" else -30
    x = np.random.default_rng(5).uniform(low, 30, 40).astype(dtype)
    found, again = computed(name, x), computed(name, x, "EMU:CPU")
    step = np.spacing(np.abs(found))
    assert np.all(np.abs(found - again) <= (0.0 if dtype is np.float32 else 2.0) * step)


# the functions of tensors, some of them composed

# Units in the last place of float32.
TENSOR_BOUNDS = {**{name: single for name, (single, _) in BOUNDS.items()}, "log": 2.0, "tanh": 2.0,
                 "sqrt": 0.5}  # fmt: skip


@pytest.mark.parametrize("name", ["log", "sqrt", "tanh"])
def test_float32_of_composed_functions(name: str) -> None:
    generator = np.random.default_rng(7)
    spans = [generator.uniform(low, 2.5, 200_000).astype(np.float32) for low in (-9.0, 0.4)]
    check_single(name, np.concatenate([every(1021), *spans]))


@pytest.mark.parametrize("name", TENSOR_BOUNDS)
@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_half_types_are_rounded_once(name: str, kind: str) -> None:
    """All 65,536 values: the nearest, but for ties that float32 cannot tell apart."""
    words = np.arange(1 << 16, dtype=np.uint16)
    narrow = np.float16 if kind == "half" else ml_dtypes.bfloat16
    x = words.view(narrow)
    found = getattr(Tensor(words).bitcast(kind), name)().bitcast("uint16").numpy().view(narrow)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
        nearest = exact.astype(narrow)
        is_equal = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
        _, exponent = np.frexp(exact)
        digits, least = (11, -24) if kind == "half" else (8, -133)
        unit = np.ldexp(1.0, np.maximum(exponent - digits, least))
        distance = np.abs(found.astype(np.float64) - exact) / unit
    assert np.all(is_equal | (distance <= 0.501))
    assert is_equal.mean() > 0.999
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(nearest[found == 0]))


@pytest.mark.parametrize("name", ["sin", "cos", "log2"])
def test_float32_keeps_its_bound_without_float64_and_fused_multiply_adds(name: str) -> None:
    """As on most adapters of WebGPU: angles are reduced in whole numbers, and what log2 multiplies
    is split. Of all sizes, and next to multiples of pi / 2.
    """
    generator = np.random.default_rng(11)
    bits = generator.integers(0, 0x7F800000, 150, np.uint32).view(np.float32)
    near = (np.arange(1, 101) * (np.pi / 2)).astype(np.float32)
    usual = generator.uniform(0.01, 40, 150).astype(np.float32)
    x = np.concatenate([bits, near, usual, np.float32(1) + near / 1e6])
    x = x if name == "log2" else np.concatenate([x, -x])
    assert not Device["EMU:WEBGPU"].target.supports(dtypes.float64)
    exact = np.array([float(EXACT[name](Decimal(float(each)))) for each in x])
    assert units(computed(name, x, "EMU:WEBGPU"), exact).max() <= BOUNDS[name][0]


@pytest.mark.parametrize("name", ["sin", "cos", "log2"])
def test_special_values_without_float64(name: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40], np.float32)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    found = computed(name, x, "EMU:WEBGPU")
    np.testing.assert_allclose(found, exact, rtol=3e-7)
    assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()
