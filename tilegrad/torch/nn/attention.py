"""`torch.nn.attention`: which kernel attention takes, which the compiler decides here."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn import flex_attention

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A block in which nothing changes: there is one way to compute attention."""
    yield


also_known(__name__, ("flex_attention",), flex_attention)

refuse_others(__name__)
