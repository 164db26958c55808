"""Filter windows of `interpolate`: which old elements make a new one, and their weights.

In float32 each step is rounded as PyTorch rounds it, so that weights agree to the last bit. A step
with a product and a sum is rounded once, as a fused multiply-add does it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tilegrad.base.dtype import DType, dtypes, truncate

__all__ = ["FilterWindow", "Steps", "antialiasing_filter", "filter_window", "scales_of"]

# For each element of the window: its positions in the old axis, and its weights. Position -1: the
# window of that new element is shorter, and nothing is read.
FilterWindow = list[tuple[list[int], list[float]]]

# The slope of the cubic at its neighbours: of an interpolation, and of a window that smooths.
_CUBIC, _SMOOTH_CUBIC = -0.75, -0.5


@dataclass(frozen=True)
class Steps:
    """The steps in which positions and weights are computed.

    Args:
        computed: dtype of each step, float32 or float64.
        stored: dtype of the weights.
    """

    computed: DType
    stored: DType

    def rounded(self, value: float) -> float:
        """The nearest number of the dtype."""
        result: float = truncate(value, self.computed)
        return result

    def fused(self, x: float, factor: float, addend: float) -> float:
        """x * factor + addend, rounded once."""
        if self.computed is dtypes.float64:
            return float(Fraction(x) * Fraction(factor) + Fraction(addend))
        return self.rounded(x * factor + addend)

    def weight(self, value: float) -> float:
        """A weight as it is stored."""
        result: float = truncate(value, self.stored)
        return result


def scales_of(
    kind: str, old: Sequence[int], new: Sequence[int], ratios: Sequence[float], *, is_at_once: bool
) -> list[float | None]:
    """The scale that takes an axis to its new size; None where it is left as it is. Those that
    change `is_at_once` need the others as well.
    """
    is_nearest_image = kind == "nearest" and len(new) == 2
    found: list[float | None] = []
    for was, size, ratio in zip(old, new, ratios):
        # Whatever the scale is: as PyTorch, of images also the nearest.
        if was == size and (ratio == 1 or kind == "linear" or is_nearest_image):
            is_needed = is_at_once and list(new) != list(old)
            found.append(1.0 if is_needed else None)
        else:
            found.append(0.5 if is_nearest_image and size == 2 * was else ratio)
    return found


@functools.lru_cache(maxsize=64)
def filter_window(
    kind: str, old: int, new: int, ratio: float, steps: Steps, *, is_aligned: bool
) -> FilterWindow:
    """The filter window of each new element of an axis.

    Args:
        kind: "linear", "cubic", "nearest", "nearest-exact" or "area".
        old: the size before.
        new: the size after.
        ratio: old elements for a new one.
        steps: how positions and weights are rounded.
        is_aligned: the first and last elements keep their positions.
    """
    if kind == "area":
        return _area(old, new)
    if kind.startswith("nearest"):
        half = 0.5 if kind == "nearest-exact" else 0.0
        step = steps.rounded(ratio)
        # float32 in images of float64 too.
        spots = [truncate((at + half) * step, dtypes.float32) for at in range(new)]
        return [([min(int(spot), old - 1) for spot in spots], [1.0] * new)]
    if is_aligned:
        step = _aligned_step(old, new, steps)
        spots = [steps.rounded(at * step) for at in range(new)]
    else:
        step = steps.rounded(ratio)
        spots = [steps.fused(at + 0.5, step, -0.5) for at in range(new)]
    if kind == "linear":
        spots = [max(spot, 0.0) for spot in spots]
        lows = [min(int(spot), old - 1) for spot in spots]
        nexts = [
            steps.weight(min(steps.rounded(spot - low), 1.0)) for spot, low in zip(spots, lows)
        ]
        weights = [[steps.weight(steps.rounded(1 - weight)), weight] for weight in nexts]
        offsets = range(2)
    else:
        lows = [math.floor(spot) for spot in spots]
        weights = [
            _cubic_weights(steps.rounded(spot - low), steps) for spot, low in zip(spots, lows)
        ]
        offsets = range(-1, 3)
    return [
        (
            [min(max(low + offset, 0), old - 1) for low in lows],
            [each[number] for each in weights],
        )
        for number, offset in enumerate(offsets)
    ]


def _aligned_step(old: int, new: int, steps: Steps) -> float:
    """Old elements between two new ones where the first and the last keep their positions."""
    return steps.rounded((old - 1) / (new - 1)) if new > 1 else 0.0


def _area(old: int, new: int) -> FilterWindow:
    """The mean of the elements that a new element covers."""
    ranges = [(at * old // new, -(-(at + 1) * old // new)) for at in range(new)]
    longest = max(end - start for start, end in ranges)
    return [
        (
            [start + offset if start + offset < end else -1 for start, end in ranges],
            [1 / (end - start) if start + offset < end else 0.0 for start, end in ranges],
        )
        for offset in range(longest)
    ]


@functools.lru_cache(maxsize=64)
def antialiasing_filter(
    kind: str, old: int, new: int, ratio: float, steps: Steps, *, is_aligned: bool
) -> FilterWindow:
    """The filter window of each new element where a window is as wide as a new element: a triangle
    ("linear"), or a cubic with the slope that keeps quadratics (Keys 1981).

    The arguments are those of `filter_window`.
    """
    step = _aligned_step(old, new, steps) if is_aligned else steps.rounded(ratio)
    stretch = max(step, 1.0)
    reach, inverse = stretch * (1 if kind == "linear" else 2), steps.rounded(1 / stretch)
    rows = []
    for number in range(new):
        middle = steps.rounded(step * (number + 0.5))
        begin = max(int(steps.rounded(steps.rounded(middle - reach) + 0.5)), 0)
        end = min(int(steps.rounded(steps.rounded(middle + reach) + 0.5)), old)
        distances = [
            abs(steps.rounded(steps.rounded(at - middle) + 0.5)) for at in range(begin, end)
        ]
        weights = [
            _smooth_weight(kind, steps.rounded(distance * inverse), steps) for distance in distances
        ]
        total = 0.0
        for weight in weights:
            total = steps.rounded(total + weight)
        rows.append((begin, [steps.rounded(weight / total) for weight in weights]))
    count = max(len(weights) for _, weights in rows)
    return [
        (
            [begin + offset if offset < len(weights) else -1 for begin, weights in rows],
            [weights[offset] if offset < len(weights) else 0.0 for _, weights in rows],
        )
        for offset in range(count)
    ]


def _smooth_weight(kind: str, x: float, steps: Steps) -> float:
    """The weight of an element at distance `x`, in widths of the window."""
    if kind == "linear":
        return steps.rounded(max(0.0, 1.0 - x))
    if x < 1:
        return steps.fused(*_near(x, _SMOOTH_CUBIC, steps), 1)
    return steps.fused(*_far(x, _SMOOTH_CUBIC, steps), -4 * _SMOOTH_CUBIC) if x < 2 else 0.0


def _cubic_weights(after: float, steps: Steps) -> list[float]:
    """Weights of the four elements around a position that lies `after` the second. The constant
    term is added to a product that is rounded before, other than in a window that smooths.
    """
    before = steps.rounded(1 - after)

    def plus(factors: tuple[float, float], constant: float) -> float:
        return steps.weight(steps.rounded(steps.rounded(factors[0] * factors[1]) + constant))

    near = [plus(_near(x, _CUBIC, steps), 1) for x in (after, before)]
    far = [plus(_far(steps.rounded(x + 1), _CUBIC, steps), -4 * _CUBIC) for x in (after, before)]
    return [far[0], *near, far[1]]


def _near(x: float, slope: float, steps: Steps) -> tuple[float, float]:
    """The cubic of a distance up to 1 without its constant term 1, as two factors."""
    return steps.rounded(steps.fused(x, slope + 2, -(slope + 3)) * x), x


def _far(x: float, slope: float, steps: Steps) -> tuple[float, float]:
    """The cubic of a distance from 1 to 2 without its constant term, as two factors."""
    return steps.fused(steps.fused(x, slope, -5 * slope), x, 8 * slope), x
