"""`torch.utils.hooks`: what registering a hook gives."""

from __future__ import annotations

from tilegrad.tensor.writing.watching import RemovableHandle as RemovableHandle
from tilegrad.torch.absent_hints import refuse_others

__all__ = ["RemovableHandle"]

refuse_others(__name__)
