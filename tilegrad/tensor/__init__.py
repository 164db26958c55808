"""The user's tensor: methods that build graphs, and the ends where values come in and out."""

from tilegrad.tensor.tensor import Tensor

__all__ = ["Tensor"]
