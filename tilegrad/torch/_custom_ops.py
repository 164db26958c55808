"""`torch._custom_ops`, what `torch.library` was called before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.library import *  # noqa: F403
from tilegrad.torch.library import __all__ as __all__

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
