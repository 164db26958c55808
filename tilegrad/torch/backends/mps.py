"""`torch.backends.mps`: whether there is Apple's GPU; METAL is the device here."""

from __future__ import annotations

from tilegrad.torch.absent_hints import refuse_others

__all__ = ["is_available", "is_built", "is_macos_or_newer"]


def is_available() -> bool:
    """False: no tensor is on `mps`."""
    return False


is_built = is_available


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: nothing depends on the version."""
    return False


refuse_others(__name__)
