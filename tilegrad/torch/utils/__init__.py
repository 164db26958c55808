"""`torch.utils`."""

from tilegrad.torch.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
