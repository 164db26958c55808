"""`torch.accelerator`: the GPU of this machine, if there is one."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.cuda import synchronize as synchronize
from tilegrad.torch.device_names import device, has_gpu

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether there is one."""
    return has_gpu()


def device_count() -> int:
    """How many there are."""
    return int(has_gpu())


def current_accelerator(check_available: bool = False) -> Any:
    """The device to compute on, or None where there is none."""
    return device("cuda") if has_gpu() else None


refuse_others(__name__)
