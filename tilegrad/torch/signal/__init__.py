"""`torch.signal`."""

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.signal import windows

__all__ = ["windows"]

refuse_others(__name__)
