"""`torch.optim.optimizer`."""

from tilegrad.torch.optim.base import Optimizer

__all__ = ["Optimizer", "required"]

# PyTorch's former mark of an option that must be given.
required = object()
