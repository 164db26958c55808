"""`torch.signal`."""

from tilegrad.torch.signal import windows

__all__ = ["windows"]
