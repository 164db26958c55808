"""Operands of one dtype and on one device, as PyTorch has those without axes give way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.tensor import Tensor
from tilegrad.torch.device_names import is_meta, is_processor

__all__ = ["brought_together", "given_way", "kind_of"]


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


def brought_together(tensors: Sequence[Any]) -> list[Any] | None:
    """Operands on one device: those without axes that are on the CPU are moved to where the others
    are. None where these are on several, or on `meta`.
    """
    devices = {
        device_of(each) for each in tensors if each.shape or not is_processor(device_of(each))
    }
    if len(devices) != 1 or is_meta(target := devices.pop()):
        return None
    return [each if device_of(each) == target else Tensor.to(each, target) for each in tensors]
