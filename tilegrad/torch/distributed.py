"""`torch.distributed`: what programs ask before they train in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False: one process computes."""
    return False


def is_initialized() -> bool:
    """False: there is no group of processes."""
    return False


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
