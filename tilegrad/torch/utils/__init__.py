"""`torch.utils`."""

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.utils import _pytree, checkpoint, data, dlpack, hooks

__all__ = ["_pytree", "checkpoint", "data", "dlpack", "hooks"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
