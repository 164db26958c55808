"""`torch.utils.dlpack`: memory shared with other libraries."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.functions import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Any) -> Any:
    """A capsule that another library's `from_dlpack` takes."""
    return tensor.__dlpack__()


refuse_others(__name__)
