"""`torch.nn.utils.stateless`: a call of a module with other tensors in the place of its own."""

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.func import functional_call

__all__ = ["functional_call"]

refuse_others(__name__)
