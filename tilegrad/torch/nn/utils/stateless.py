"""`torch.nn.utils.stateless`: a call of a module with other tensors in the place of its own."""

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.func import functional_call

__all__ = ["functional_call"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
