"""Calls of the standard's functions, and values that are special to them.

A call is written once and run on any namespace: `run(xp, "sum", (x,), {"axis": 0})`. Its arrays are
NumPy's, which become those of the namespace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

INF, NAN = np.inf, np.nan
SPECIAL = [
    0.0, 1.0, INF, 0.5, 2.0, 3.0, 1e30, 1e-30, 2.5, 1.5, 7.0, 1e-40,
]  # fmt: skip
SPECIAL = [*SPECIAL, *[-value for value in SPECIAL], NAN]
FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)


def given(value: Any, xp: Any) -> Any:
    """`value` with arrays and dtypes of `xp`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return xp.asarray(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)([given(each, xp) for each in value])
    if isinstance(value, np.dtype):
        return getattr(xp, value.name)
    return value


def run(xp: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[np.ndarray]:
    """What the function `path` of `xp` gives, as arrays of NumPy."""
    found = xp
    for part in path.split("."):
        found = getattr(found, part)
    made = found(
        *[given(each, xp) for each in args],
        **{name: given(each, xp) for name, each in kwargs.items()},
    )
    return [np.asarray(each) for each in (made if isinstance(made, (tuple, list)) else (made,))]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Small numbers, among them equal ones."""
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return rng.integers(0 if dtype[0] == "u" else -5, 6, shape).astype(dtype)
    return np.asarray(np.round(rng.standard_normal(shape) * 3, 1), dtype)


def extremes(dtype: str) -> np.ndarray:
    """Integers around zero and at the ends of a dtype."""
    limits = np.iinfo(dtype)
    values = (0, 1, 2, 3, 7, -1, -2, -7, int(limits.min), int(limits.max))
    return np.array(sorted({x for x in values if limits.min <= x <= limits.max}), dtype)
