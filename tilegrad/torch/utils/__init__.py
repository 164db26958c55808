"""`torch.utils`."""

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.utils import _pytree, checkpoint, data, dlpack, hooks

__all__ = ["_pytree", "checkpoint", "data", "dlpack", "hooks"]

refuse_others(__name__)
