"""Writes to a tensor of six numbers and to a NumPy array, for random programs."""

from __future__ import annotations

import numpy as np

from tilegrad import Tensor

__all__ = ["wrote_alone"]


def wrote_alone(kind: str, number: int, x: Tensor, array: np.ndarray) -> bool:
    """Write what depends on the tensor alone, and to the array; False for another `kind`."""
    if kind == "add":
        x.assign(x + number)
        array += number
    elif kind == "flip":
        x.assign(x.flip(0) * 0.5)
        array[:] = array[::-1].copy() * 0.5
    elif kind == "window":
        x[number : number + 2] = x[1:3]
        array[number : number + 2] = array[1:3].copy()
    else:
        return False
    return True
