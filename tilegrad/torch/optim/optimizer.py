"""`torch.optim.optimizer`."""

from tilegrad.torch.optim.base import Optimizer

__all__ = ["Optimizer", "required"]

# What PyTorch once had for an option that must be given.
required = object()
