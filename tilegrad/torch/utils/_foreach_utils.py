"""`torch.utils._foreach_utils`: lists of tensors by device and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = ["_group_tensors_by_device_and_dtype"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """By device and dtype of the first list's tensors: each list's tensors at these positions, and
    the positions, empty unless `with_indices`. A list may be empty, or hold None.
    """
    positions: dict[tuple[Any, Any], list[int]] = {}
    for number, tensor in enumerate(tensorlistlist[0]):
        positions.setdefault((tensor.device, tensor.dtype), []).append(number)
    return {
        key: (
            [[each[number] for number in found] if each else [] for each in tensorlistlist],
            found if with_indices else [],
        )
        for key, found in positions.items()
    }


refuse_others(__name__)
