"""`torch.nn.parameter`."""

from typing import TYPE_CHECKING

from tilegrad.torch.absent import refusing
from tilegrad.torch.nn.module import Buffer, Parameter

__all__ = ["Buffer", "Parameter"]


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
