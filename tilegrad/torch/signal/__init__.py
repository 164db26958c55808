"""`torch.signal`."""

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.signal import windows

__all__ = ["windows"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
