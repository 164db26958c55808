"""What the tests of capture share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad import Tensor

__all__ = ["Counter", "full", "values"]


class Counter:
    """Counts how often a function's body runs, by a call that no guard takes notice of."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def tick(self) -> None:
        self.calls.append(1)

    def __int__(self) -> int:
        return len(self.calls)


def full(value: float, *shape: int) -> Tensor:
    """A tensor in memory."""
    return Tensor([float(value)] * _count(shape)).reshape(*shape).realize()


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def values(tensor: Tensor) -> Any:
    return tensor.tolist()
