"""`torch.utils`."""

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.utils import checkpoint, data, dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
