"""`torch.serialization`: files, and the classes that may be read from them."""

from __future__ import annotations

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.saving import load as load
from tilegrad.torch.saving import save as save
from tilegrad.torch.whole_objects import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save",
]  # fmt: skip

refuse_others(__name__)
