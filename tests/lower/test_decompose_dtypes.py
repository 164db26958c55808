"""float16 and bfloat16 on a target that lacks them are computed in float32, with equal results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.device import cpu
from tilegrad.device.backend import Backend
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.decompose import decompose
from tilegrad.target import Target

ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(scope="module", params=["CPU", "NARROW"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The processor, and one without half."""

    def narrow(name: str) -> Backend:
        found = cpu.backend(name)
        missing = frozenset({dtypes.bfloat16, dtypes.float16})
        return replace(found, target=replace(found.target, missing_dtypes=missing))

    if request.param == "NARROW":
        Device.register("NARROW", narrow)
    yield request.param
    if request.param == "NARROW":
        Device.unregister("NARROW")


def on(device: str, array: Any, compute: Callable[[Tensor], Tensor]) -> Any:
    with Context(DEVICE=device):
        return compute(Tensor(array).realize()).numpy()


def as_bfloat16(x: Any) -> Any:
    """float32 rounded to bfloat16, by its bits: half the last place is added, less if even."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    found = rounded.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), found)


def same(found: Any, expected: Any) -> None:
    """Equal values, signs of zeros included; any NaN is NaN."""
    np.testing.assert_array_equal(found, expected)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(expected)[kept])


@pytest.mark.parametrize("target", [np.float32, np.float64])
def test_all_halves_widen(device: str, target: Any) -> None:
    halves = ALL_HALVES.view(np.float16)
    name = np.dtype(target).name
    same(on(device, halves, lambda x: x.cast(name)), halves.astype(target))


def test_all_bfloat16_widen(device: str) -> None:
    wide = (ALL_HALVES.astype(np.uint32) << 16).view(np.float32)
    found = on(device, ALL_HALVES, lambda x: x.bitcast(dtypes.bfloat16).cast(dtypes.float32))
    same(found, wide)
    found = on(device, ALL_HALVES, lambda x: x.bitcast(dtypes.bfloat16).cast(dtypes.float64))
    with np.errstate(invalid="ignore"):
        same(found, wide.astype(np.float64))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_all_bit_patterns_survive(device: str, dtype: DType) -> None:
    """What is only moved keeps its bits, those of NaN too."""
    found = on(device, ALL_HALVES, lambda x: x.bitcast(dtype).flip(0).bitcast(dtypes.uint16))
    np.testing.assert_array_equal(found, ALL_HALVES[::-1])
    with Context(DEVICE=device):
        stored = Tensor(ALL_HALVES).bitcast(dtype).contiguous().realize()
        moved = stored.reshape(256, 256).T.contiguous().bitcast(dtypes.uint16)
        np.testing.assert_array_equal(moved.numpy(), ALL_HALVES.reshape(256, 256).T)


def between(wide: Any) -> Any:
    """Each value, what lies halfway to the next, and the nearest numbers on both sides of that."""
    values = np.sort(wide[np.isfinite(wide)].astype(np.float64))
    middle = ((values[1:] + values[:-1]) / 2).astype(wide.dtype)
    up, down = np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)
    edges = np.array([np.inf, -np.inf, np.nan, 65519.99, 65520, -65520, 1e30], wide.dtype)
    return np.concatenate([values.astype(wide.dtype), middle, up, down, edges])


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_rounding_to_half(device: str, source: Any) -> None:
    """Every half, and every tie between two; a double that is all but a tie is none."""
    x = between(ALL_HALVES.view(np.float16).astype(source))
    with np.errstate(over="ignore"):
        same(on(device, x, lambda x: x.cast(dtypes.float16)), x.astype(np.float16))


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_rounding_to_bfloat16(device: str, source: Any) -> None:
    wide = (ALL_HALVES.astype(np.uint32) << 16).view(np.float32)
    x = between(wide)
    expected = as_bfloat16(x)
    found = on(device, x.astype(source), lambda x: x.cast(dtypes.bfloat16))
    same(found, expected)
    if source is np.float64:
        # A little more or less than a tie, which float32 does not see.
        ties = x[len(np.unique(wide[np.isfinite(wide)])) :][:60_000].astype(np.float64)
        ties = ties[np.abs(ties) > 1e-30]
        for nudge in (1 + 2.0**-45, 1 - 2.0**-45):
            side = (np.sign(ties) * (nudge - 1) * math.inf).astype(np.float32)
            beside = np.nextafter(ties.astype(np.float32), side)
            same(on(device, ties * nudge, lambda x: x.cast(dtypes.bfloat16)), as_bfloat16(beside))


def nearest_bfloat16(value: int) -> float:
    """An integer rounded to 8 digits, ties to even."""
    unit = 1 << max(abs(value).bit_length() - 8, 0)
    quotient, rest = divmod(abs(value), unit)
    up = 2 * rest > unit or (2 * rest == unit and quotient & 1)
    return math.copysign((quotient + up) * unit, value)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_to_bfloat16_are_rounded_once(device: str, dtype: Any) -> None:
    """A tie of bfloat16 and one more or less, beyond what float32 counts."""
    kind = np.iinfo(dtype)
    ties = [(m << bits) + (1 << (bits - 8)) for bits in range(9, kind.bits) for m in (1, 3)]
    steps = [tie + step for tie in ties for step in (-1, 0, 1)] + [0, 1, 1 << 24, kind.max]
    values = [sign * step for step in steps for sign in (1, -1)] + [kind.min]
    x = np.array([value for value in values if kind.min <= value <= kind.max], dtype)
    expected = [nearest_bfloat16(value) for value in x.tolist()]
    found = on(device, x, lambda x: x.cast(dtypes.bfloat16))
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_integers_to_half_are_rounded_once(device: str) -> None:
    x = np.array([2049, 2050, 2051, -4098, -4102, 65519, 65520, 1 << 40, -(1 << 62)], np.int64)
    expected = [2048, 2050, 2052, -4096, -4104, 65504, np.inf, np.inf, -np.inf]
    found = on(device, x, lambda x: x.cast(dtypes.float16))
    np.testing.assert_array_equal(found, np.array(expected, np.float16))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_doubles_beyond_float32(device: str, dtype: DType) -> None:
    """What float32 makes infinite or zero is so here too; NaN stays NaN."""
    x = np.array([1e300, -1e300, 1e-300, -1e-300, np.inf, -np.inf, np.nan, 5e-324, -0.0])
    found = on(device, x, lambda x: x.cast(dtype).cast(dtypes.float32))
    inf, nan = np.inf, np.nan
    same(found, np.array([inf, -inf, 0.0, -0.0, inf, -inf, nan, 0.0, -0.0], np.float32))


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "sqrt", "chain"])
def test_arithmetic_of_halves_rounds_each_time(device: str, name: str) -> None:
    """All halves with shuffled ones: what is held in float32 is rounded after each step."""
    x = ALL_HALVES.view(np.float16)
    y = np.random.default_rng(0).permutation(x)
    steps: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "add": (lambda x, y: x + y, np.add),
        "mul": (lambda x, y: x * y, np.multiply),
        "div": (lambda x, y: x / y, np.divide),
        "maximum": (lambda x, y: x.maximum(y), np.maximum),
        "sqrt": (lambda x, y: x.sqrt(), lambda x, y: np.sqrt(x)),
        "chain": (lambda x, y: x * y + x, lambda x, y: x * y + x),
    }
    ours, theirs = steps[name]
    with Context(DEVICE=device), np.errstate(all="ignore"):
        found = ours(Tensor(x).realize(), Tensor(y).realize()).numpy()
        expected = theirs(x, y)
    # Of 0.0 and -0.0 a maximum may be either.
    np.testing.assert_array_equal(found, expected)
    if name != "maximum":
        same(found, expected)


def test_a_switch_asks_for_emulation() -> None:
    """The same results, of which the code knows no half."""
    x = ALL_HALVES.view(np.float16)[::17]
    with np.errstate(all="ignore"):
        expected = x * x + x
    for names, is_native in (("", True), ("half", False), ("bfloat16, float16", False)):
        with Context(EMULATED_DTYPES=names):
            given = Tensor(x).realize()
            same((given * given + given).numpy(), expected)
            memory = UOp(Ops.DEFINE_GLOBAL, dtypes.half.ptr(4), (), 0)
            load = memory.load(UOp.const(dtypes.int32, 0))
            root = UOp.sink(memory.store(UOp.const(dtypes.int32, 1), load + load))
            made = decompose(root, Target("plain")).toposort()
            assert any(node.dtype.scalar is dtypes.half for node in made) is is_native
    with Context(EMULATED_DTYPES="double"), pytest.raises(ConfigError, match="'double'"):
        decompose(root, Target("plain"))
