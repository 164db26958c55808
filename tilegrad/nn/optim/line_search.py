"""A line search by the strong Wolfe conditions (Nocedal and Wright, "Numerical Optimization", 2006:
algorithms 3.5 and 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tilegrad.tensor.tensor import Tensor

__all__ = ["Point", "strong_wolfe"]

_MOST_TRIALS = 25


class Point(NamedTuple):
    """A point of a line search: how far, the loss there, its slope, the gradient, and the largest
    of its magnitudes.
    """

    length: float
    loss: float
    slope: float
    gradient: Tensor
    largest: float


def strong_wolfe(at: Callable[[float], Point], start: Point, length: float, least: float) -> Point:
    """A length whose loss lies below the line of slope 1e-4 and whose slope is at most 0.9 of that
    at the start; or the best of those that were tried.
    """
    loss, slope = start.loss, start.slope
    last, tried = start, 0

    def is_low(point: Point) -> bool:
        return math.isfinite(point.loss) and point.loss <= loss + 1e-4 * point.length * slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -0.9 * slope

    while True:
        now = at(length)
        tried += 1
        if not is_low(now) or (tried > 1 and now.loss >= last.loss):
            low, high = last, now
            break
        if is_flat(now) or tried == _MOST_TRIALS:
            return now
        if now.slope >= 0:
            low, high = now, last
            break
        # Still downhill: further, by what a cubic through both says, within limits.
        nearest = length + 0.01 * (length - last.length)
        length = _cubic(last, now, nearest, length * 10)
        last = now
    while tried < _MOST_TRIALS and abs(high.length - low.length) > least:
        ends = sorted((low.length, high.length))
        margin = 0.1 * (ends[1] - ends[0])
        now = at(_cubic(low, high, ends[0] + margin, ends[1] - margin))
        tried += 1
        if not is_low(now) or now.loss >= low.loss:
            high = now
            continue
        if is_flat(now):
            return now
        if now.slope * (high.length - low.length) >= 0:
            high = low
        low = now
    return low


def _cubic(one: Point, two: Point, least: float, most: float) -> float:
    """Where the cubic through two points with their slopes is lowest, within limits; the middle
    where there is none.
    """
    (x1, f1, g1, *_), (x2, f2, g2, *_) = sorted((one, two), key=lambda point: point.length)
    middle = (least + most) / 2
    if not all(map(math.isfinite, (f1, f2, g1, g2))) or x1 == x2:
        return middle
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return middle
    d2 = math.sqrt(square)
    below = g2 - g1 + 2 * d2
    if below == 0:
        return middle
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / below), least), most)
