"""`torch.Size`: a shape that counts its elements and prints as PyTorch's."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["Size"]


class Size(tuple[int, ...]):
    """A shape.

    >>> import tilegrad.torch as torch
    >>> torch.zeros(2, 3).shape, torch.Size([2, 3]).numel()
    (torch.Size([2, 3]), 6)
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: tuple[Any, ...]) -> Size:
        return Size(tuple.__add__(self, tuple(other)))
