"""`torch.utils`."""

from tilegrad.torch.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
