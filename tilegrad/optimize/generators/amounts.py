"""How many elements of a row one iteration takes, as whole vectors or with padding."""

from __future__ import annotations

from tilegrad.optimize.analysis.facts import LONG, UNROLLED, is_mostly_used, padded_to, power_below

__all__ = ["lane_amount", "padded_amount", "reduction_amount"]


def reduction_amount(extent: int, width: int) -> int:
    """Elements of a reduction per iteration: all of them, or as many vectors as pad little. Only
    the last vector has a mask.
    """
    whole = padded_to(extent, width)
    if whole <= UNROLLED * width:
        return whole
    amounts = (count * width for count in (4, 2))
    fits = (each for each in amounts if is_mostly_used(extent, each))
    return next(fits, width)


def padded_amount(extent: int, width: int) -> int:
    """Several vectors for an iteration, where little of the axis is padding then, else one."""
    wide = (4 * width, 2 * width)
    return next((each for each in wide if is_mostly_used(extent, each)), width)


def lane_amount(extent: int, width: int, vectors: int, *, has_mask: bool) -> int:
    """Elements per iteration: as many whole vectors as divide the extent, the whole extent masked,
    or one padded vector.
    """
    for count in range(vectors, 0, -1):
        if extent % (count * width) == 0 and count & (count - 1) == 0:
            return count * width
    padded = -(-extent // width) * width
    if has_mask and width < extent <= vectors * width:
        return padded
    if has_mask and extent >= LONG * vectors * width:
        return vectors * width
    if extent >= width:
        half = width // 2
        if extent < 4 * width and half > 1 and extent % half == 0:
            return half
        return width
    power = power_below(extent)
    return (
        extent
        if extent == power
        else power
        if extent % power == 0
        else power * 2
        if power * 2 <= 2 * extent and extent > 2
        else 1
    )
