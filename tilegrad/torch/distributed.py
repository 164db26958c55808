"""`torch.distributed`: what programs ask before they train in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent import absent

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False: one process computes."""
    return False


def is_initialized() -> bool:
    """False: there is no group of processes."""
    return False


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(absent("torch.distributed", name, __all__), name=name)
