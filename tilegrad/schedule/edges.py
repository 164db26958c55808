"""Edges of a schedule: pairs of kernels joined by a stored value, with the reason for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.ir.uop import UOp
from tilegrad.schedule.inlining import Fusion
from tilegrad.schedule.order import UnorderedItem
from tilegrad.schedule.reason import Edge, Reason

__all__ = ["edges_between"]


def edges_between(
    order: Sequence[UnorderedItem],
    fusion: Fusion,
    bytes_of: Callable[[UOp], int],
    *,
    plain: bool,
) -> list[Edge]:
    """Edges of a schedule: for each pair of kernels joined by a stored value of `bytes_of` bytes,
    the reason why they are two kernels.
    """
    position = {id(item): number for number, item in enumerate(order)}
    maker: dict[UOp, int] = {
        value: position[id(item)] for item in order for value in (item.value, *item.values)
    }
    edges: list[Edge] = []
    for item in order:
        for value in item.needs:
            if value not in maker or maker[value] == position[id(item)]:
                continue
            reason, saved, flops = fusion.refused.get(value, (fusion.stored[value], 0, 0))
            if plain and reason in (Reason.EXPANDED, Reason.REDUCED_AGAIN):
                saved = 2 * bytes_of(value)
            edges.append(Edge(maker[value], position[id(item)], reason, saved, flops))
    return edges
