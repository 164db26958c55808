"""The ways of reading state that `tests/capture/test_stale.py` goes through, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad import Tensor

__all__ = ["CASES", "Box", "case", "nothing"]

Case = Callable[[], tuple[Callable[[Tensor], Tensor], Callable[[int], Any]]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """A way of reading state: gives a function, and what changes the state before call `n`."""
    CASES[make.__name__] = make
    return make


class Box:
    """An object with attributes."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)


def nothing(n: int) -> None:
    """The state changes by being read."""
