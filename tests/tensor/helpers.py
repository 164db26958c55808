"""NumPy as the oracle: the same function, or its NumPy twin, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilegrad import Tensor

__all__ = ["check", "close", "numbers"]


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """float32 numbers that repeat."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def close(ours: Tensor, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The values, shape and kind of dtype agree."""
    expected = np.asarray(theirs)
    found = ours.numpy()
    assert found.shape == expected.shape, f"{found.shape} and {expected.shape}"
    assert found.dtype.kind == expected.dtype.kind, f"{found.dtype} and {expected.dtype}"
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found, expected)


def check(
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None = None,
    *arrays: np.ndarray,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """`ours` on tensors gives what `theirs` (the same function, if None) gives on arrays."""
    with np.errstate(all="ignore"):
        expected = (theirs or ours)(*arrays)
    close(ours(*[Tensor(array) for array in arrays]), expected, rtol, atol)
