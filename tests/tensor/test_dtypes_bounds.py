"""How exact functions are in float32: the table in docs/dtypes.md, entry by entry."""

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
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
}  # fmt: skip


def bounds() -> dict[str, float]:
    """The rows `| name | number |` of the page."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: float(bound) for name, bound in rows}


def samples() -> Any:
    """Numbers of every size, and more of the usual ones."""
    generator = np.random.default_rng(11)
    words = np.arange(0, 1 << 32, 40_009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = [generator.uniform(-span, span, 60_000).astype(np.float32) for span in (100, 8, 1.1)]
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([words, *usual, special])


X = samples()


def test_the_page_has_every_function() -> None:
    assert bounds().keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_within_its_bound(name: str) -> None:
    found = getattr(Tensor(X), name)().numpy()
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](X.astype(np.float64))
        nearest = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    kept = ~np.isnan(nearest) & (found != nearest)
    _, exponent = np.frexp(exact[kept])
    unit = np.ldexp(1.0, np.maximum(exponent - 24, -149))
    distance = np.abs(found[kept].astype(np.float64) - exact[kept]) / unit
    assert distance.max(initial=0.0) <= bounds()[name]
