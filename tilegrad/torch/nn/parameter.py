"""`torch.nn.parameter`."""

from tilegrad.torch.nn.module import Buffer, Parameter

__all__ = ["Buffer", "Parameter"]
