"""Inputs: numbers of a coarse grid, whose sums and products float32 has exactly; and wild ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.program import FIRST, Call

__all__ = ["drawn_input", "input_array", "random_shape"]

_WILD = (
    float("nan"), -float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e9, 3e9, -3e9,
    2.0**31, 2.0**31 - 128, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e19,
    3.4028234663852886e38, 1e-45, -1e-40, 1.1754943508222875e-38, 255.5, 256.0, -1.0, -0.5,
    0.5, 1.5, 2.5, -2.5, 127.9, 128.0, 448.0,
    1000.0, 65504.0, 65520.0, 1e-3, 7.0, 16777217.0, 8388609.0, -129.0, 32768.0, 3.0, -7.0,
)  # fmt: skip
# Special values between ordinary numbers. A processor makes of 0 / 0 a NaN with its sign bit set.
_SPECIAL = (float("nan"), -float("nan"), float("inf"), float("-inf"), -0.0)
_INTEGERS = ("int32", "int32", "int8", "uint8", "int16", "uint32", "int64")


def random_shape(chance: random.Random) -> tuple[int, ...]:
    """A few axes, most of them short."""
    sizes = (1, 2, 3, 4, 5, 7, 8, 13, 33) if chance.random() < 0.3 else (1, 2, 3, 4, 5, 7)
    axes = chance.randrange(1, 4)
    if chance.random() < 0.15:
        # Squares and cubes: some instructions take nothing else.
        return (chance.choice(sizes[:6]),) * axes
    return tuple([chance.choice(sizes) for _ in range(axes)])


def _edges(dtype: str) -> tuple[int, int]:
    import numpy as np

    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def drawn_input(
    chance: random.Random,
    dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
    among: Sequence[str] = (),
) -> tuple[Any, ...]:
    """Parameters of an input: values, shape, dtype, and whether they are wild. If it is not given,
    the dtype is one `among` those that have inputs, more often than not.
    """
    is_given = dtype is not None
    favoured = [each for each in among if each == "float32" or each in _INTEGERS]
    if dtype is None and favoured and chance.random() < 0.6:
        dtype = chance.choice(favoured)
    if dtype is None:
        dtype = "float32" if chance.random() < 0.7 else chance.choice(_INTEGERS)
    if shape is None:
        shape = random_shape(chance)
    count = math.prod(shape)
    values: list[Any]
    is_wild = not is_given and chance.random() < 0.2
    if dtype == "float32" and is_wild and chance.random() < 0.4:
        values = [float(chance.randrange(-3, 4)) for _ in range(count)]
        values = [chance.choice(_SPECIAL) if chance.random() < 0.3 else v for v in values]
    elif dtype == "float32" and is_wild:
        values = [float(_single(chance.choice(_WILD))) for _ in range(count)]
    elif dtype == "float32" and chance.random() < 0.3:
        # Few numbers, so that many are equal.
        values = [chance.choice((-1.0, 0.0, 1.0, 2.0)) for _ in range(count)]
    elif dtype == "float32":
        grid = chance.choice((4, 64))
        values = [chance.randrange(-9 * grid // 4, 10 * grid // 4) / grid for _ in range(count)]
    elif is_wild:
        low, high = _edges(dtype)
        some = (low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 100)
        values = [chance.choice(some) for _ in range(count)]
    else:
        low, _ = _edges(dtype)
        values = [chance.randrange(max(low, -9), 10) for _ in range(count)]
    return values, shape, dtype, is_wild


def _single(number: float) -> Any:
    import numpy as np

    return np.float32(number)


def input_array(
    values: Any, shape: Any, dtype: str, is_wild: bool = False, call: Call = FIRST
) -> Any:
    """The input at a call, in its own dtype: one less at each. At first -0.0 stays what it is. A
    larger one begins anew where the values end.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        array = np.resize(np.array(values, dtype), call.shape(shape))
        return (array - np.array(call.number, dtype)).astype(dtype)
