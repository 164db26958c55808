"""The range of a size in which a method does the same: a method may choose by a size, as `topk`
does by how much there is to compare. Then no template serves all sizes, but one serves each range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Range", "same_around"]

Made = TypeVar("Made")


class Range(NamedTuple, Generic[Made]):
    """Results for some sizes from `low` to `high`, by size."""

    low: int
    high: int
    made: dict[int, Made]


def same_around(
    size: int,
    allowed: Sequence[int],
    others: frozenset[int],
    make: Callable[[int], Made | None],
    are_same: Callable[[Made, Made], bool],
) -> Range[Made] | None:
    """The sizes around `size`, as far as the smallest and the largest of the `allowed` ones, at
    which what is made is the same. It is looked at outwards, then half-way between the last one
    that is the same and the first that is not: what is chosen by a threshold has one range on each
    side. Sizes among `others` are left out. None if nothing is made at `size`.
    """
    here = make(size)
    if here is None:
        return None
    made = {size: here}

    def is_same(other: int) -> bool:
        one = make(other)
        if one is None or not are_same(here, one):
            return False
        made[other] = one
        return True

    def end(candidates: Iterable[int]) -> int:
        last = size
        for each in candidates:
            if is_same(each):
                last = each
                continue
            while abs(each - last) > 1:
                middle = (each + last) // 2
                if middle in others:
                    break
                if is_same(middle):
                    last = middle
                else:
                    each = middle
            break
        return last

    ordered = sorted(allowed)
    low = end([each for each in reversed(ordered) if each < size])
    high = end([each for each in ordered if each > size])
    return Range(low, high, made)
