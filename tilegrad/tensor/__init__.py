"""Stage 1: the user's tensor. Its methods build graphs; here values come in and go out."""

from tilegrad.tensor.tensor import Tensor

__all__ = ["Tensor"]
