"""`torch._custom_ops`, what `torch.library` was called before."""

from __future__ import annotations

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.library import *  # noqa: F403
from tilegrad.torch.library import __all__ as __all__

refuse_others(__name__)
