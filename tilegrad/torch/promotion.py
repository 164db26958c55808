"""Operands of one dtype, as PyTorch promotes those without axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType

__all__ = ["given_way", "kind_of"]


def kind_of(dtype: DType) -> int:
    """A higher number for a higher kind: of bools, integers, floats."""
    return 2 if dtype.is_float else 1 if dtype.is_int else 0


def given_way(tensors: Sequence[Any]) -> list[Any]:
    """Operands after promotion: one without axes takes the dtype of those with axes, unless its
    kind (bool, integer, float) is higher.
    """
    wide = [each for each in tensors if each.shape]
    if not wide or len(wide) == len(tensors):
        return list(tensors)
    highest = max(wide, key=lambda each: kind_of(each.dtype))
    top = kind_of(highest.dtype)
    made = []
    for each in tensors:
        if not each.shape and each.dtype is not highest.dtype:
            if kind_of(each.dtype) <= top:
                each = each.cast(highest.dtype)
        made.append(each)
    return made
