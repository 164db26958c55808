"""Stage 1: the user's tensor. Its methods build graphs; here values come in and go out."""

from tilegrad.base.absent import says_what_to_call
from tilegrad.engine.build import preload
from tilegrad.tensor.tensor import Tensor

__all__ = ["Tensor"]

# PyTorch has a function of this name.
says_what_to_call(__name__, "Tensor(data)")

preload.start()
