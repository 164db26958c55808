"""Coordinates of `grid_sample` as positions among the elements of an axis, and their neighbours.

At an element a gradient depends on the last bit of a position, at a tie the nearest element does,
and far outside all do. So the order of operations and their roundings are PyTorch's (found by trial
with version 2.13 on x86): those of images round a product and a sum once, those of volumes twice.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from tilegrad.tensor.composed.rearrange import Rearranging

__all__ = ["GridAxis", "GridPositions"]


class GridAxis(NamedTuple):
    """An axis of `size` elements as `grid_sample` is asked to read it."""

    size: int
    padding_mode: str
    is_aligned: bool
    is_volume: bool


class GridPositions(Rearranging):
    """Positions on one axis."""

    __slots__ = ()

    def _neighbours(self, mode: str, axis: GridAxis) -> list[tuple[Self, Self | None]]:
        """The elements around these coordinates: whole positions, and their weights."""
        spot = self._in_elements(axis)
        if mode == "bicubic":
            low = spot.floor()
            after = spot - low
            return [
                ((low + step)._padded_into(axis), (after - step)._keys(is_near=step in (0, 1)))
                for step in range(-1, 3)
            ]
        spot = spot._padded_into(axis)
        if mode == "nearest":
            return [(spot.round(), None)]
        low = spot.floor()
        return [(low, low + 1 - spot), (low + 1, spot - low)]

    def _keys(self, *, is_near: bool) -> Self:
        """Keys' cubic with slope -0.75 at these distances: below 1 where they are near, else 2."""
        far = self.abs()
        if is_near:
            return (far * 1.25 - 2.25) * far * far + 1
        return ((far * -0.75 + 3.75) * far - 6) * far + 3

    def _in_elements(self, axis: GridAxis) -> Self:
        """Coordinates from -1 to 1 as positions among the elements."""
        shifted = self + 1
        if axis.is_aligned:
            return shifted * ((axis.size - 1) / 2)
        if axis.is_volume:
            return shifted * (axis.size / 2) - 0.5
        return shifted._times_plus(shifted.const_like(axis.size / 2), -0.5)

    def _padded_into(self, axis: GridAxis) -> Self:
        """Positions where those outside are replaced as the padding says."""
        if axis.padding_mode == "zeros":
            return self
        spot, last = self, axis.size - 1
        if axis.padding_mode == "reflection":
            spot = spot._mirrored_into(axis)
        # No element is the reflection of an infinite position, either.
        is_inside = (spot > 0) & (spot < last)
        return spot.isnan().where(0, is_inside.where(spot, spot.detach().clip(0, last)))

    def _mirrored_into(self, axis: GridAxis) -> Self:
        """Positions outside reflected into the axis; there and back again is one period."""
        low, high = (0.0, axis.size - 1.0) if axis.is_aligned else (-0.5, axis.size - 0.5)
        span = high - low
        if not span:
            return self * 0
        away = (self - low).abs()
        if axis.is_volume:
            wraps = (away / span).detach().floor()
            rest = away.fmod(span)
            is_back = (wraps - (wraps / 2).floor() * 2).ne(0)
            return is_back.where(span - rest, rest) + low
        periods = (away / (2 * span)).detach().floor()
        rest = periods._times_plus(away.const_like(-2 * span), away)
        return (rest > span).where(span * 2 - rest, rest) + low
