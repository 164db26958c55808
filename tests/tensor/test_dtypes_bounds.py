"""How exact functions are in float32 and float64: the table in docs/dtypes.md, entry by entry.

The exact results are those of longer numbers where there are, of the C library where there are not:
they are themselves within a unit of float64 then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor

PAGE = Path(__file__).parents[2] / "docs" / "dtypes.md"
# Numbers with a longer mantissa than float64, where the machine has them.
LONG = np.longdouble


def each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of the C library, for every element."""
    return np.vectorize(lambda x: function(float(x)), otypes=[LONG])


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": each(math.erf), "erfc": each(math.erfc),
    "sigmoid": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
}  # fmt: skip


def bounds() -> dict[str, tuple[float, float]]:
    """The rows `| name | float32 | float64 |` of the page."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: (float(single), float(double)) for name, single, double in rows}


def samples(dtype: Any) -> Any:
    """Numbers of every size, and more of the usual ones."""
    generator = np.random.default_rng(11)
    if dtype is np.float32:
        words = np.arange(0, 1 << 32, 40_009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    else:
        words = generator.integers(0, 1 << 64, 15_000, dtype=np.uint64).view(np.float64)
    count = 60_000 if dtype is np.float32 else 15_000
    usual = [generator.uniform(-span, span, count).astype(dtype) for span in (100, 8, 1.1)]
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], dtype)
    return np.concatenate([words, *usual, special])


X = {dtype: samples(dtype) for dtype in (np.float32, np.float64)}


def units(found: Any, exact: Any) -> float:
    """The largest distance, in units of the last place."""
    dtype = found.dtype
    digits, least = (24, -149) if dtype == np.float32 else (53, -1074)
    with np.errstate(over="ignore"):
        nearest = exact.astype(dtype)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    kept = ~np.isnan(nearest) & (found != nearest)
    _, exponent = np.frexp(exact[kept])
    unit = np.ldexp(LONG(1.0), np.maximum(exponent - digits, least))
    return float(np.max(np.abs(found[kept].astype(LONG) - exact[kept]) / unit, initial=0.0))


def test_the_page_has_every_function() -> None:
    assert bounds().keys() == FUNCTIONS.keys() | {"pow"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_their_bounds(name: str, dtype: Any) -> None:
    x = X[dtype]
    found = getattr(Tensor(x), name)().numpy()
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64 if dtype is np.float32 else LONG))
    assert units(found, exact.astype(LONG)) <= bounds()[name][dtype is np.float64]


@pytest.mark.skipif(np.finfo(LONG).nmant < 63, reason="no numbers longer than float64 here")
def test_powers_are_within_their_bound() -> None:
    """Also those with exponents in the hundreds, which multiply what a logarithm has lost."""
    generator = np.random.default_rng(12)
    x = np.concatenate([generator.uniform(0.01, 100, 8000), generator.uniform(0.9, 1.1, 8000)])
    y = np.concatenate([generator.uniform(-10, 10, 8000), generator.uniform(-900, 900, 8000)])
    exact = np.power(x.astype(LONG), y.astype(LONG))
    assert units(Tensor(x).pow(Tensor(y)).numpy(), exact) <= bounds()["pow"][1]
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(LONG), y.astype(LONG))
    assert units(Tensor(x).pow(Tensor(y)).numpy(), exact) <= bounds()["pow"][0]


def test_whole_powers_of_whole_numbers_are_exact() -> None:
    base, exponent = (grid.ravel() for grid in np.meshgrid(np.arange(2.0, 30), np.arange(1.0, 11)))
    found = Tensor(base).pow(Tensor(exponent)).numpy()
    np.testing.assert_array_equal(found, base**exponent)
