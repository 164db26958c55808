"""`torch.utils.hooks`: what registering a hook gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.tensor.writing.watching import RemovableHandle as RemovableHandle
from tilegrad.torch.absent_hints import refusing

__all__ = ["RemovableHandle"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
