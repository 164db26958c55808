"""Pivots of LAPACK: in step i of an elimination row i is exchanged with row `pivots[i] - 1`. The
methods of tilegrad have the order of rows instead in which the exchanges end.
"""

from __future__ import annotations

from typing import Any

from tilegrad.tensor.loops import scan
from tilegrad.tensor.tensor import Tensor as OurTensor

__all__ = ["order_of", "pivots_of"]


def pivots_of(order: Any) -> Any:
    """The exchanges, int32 (..., n), that bring rows into an `order`."""
    positions = _positions(order)

    def step(rows: Any, given: Any) -> Any:
        wanted, at = given[0].unsqueeze(-1), given[1]
        is_here, is_found = positions.eq(at), rows.eq(wanted)
        first = is_here.where(rows, 0).sum(-1, keepdim=True).cast(rows.dtype)
        pivot = (is_found.where(positions, 0).sum(-1) + 1).cast(rows.dtype)
        return is_here.where(wanted, is_found.where(first, rows)), pivot

    return _over_steps(step, order)


def order_of(pivots: Any) -> Any:
    """The order of rows, int32 (..., n), in which exchanges end."""
    positions = _positions(pivots)

    def step(rows: Any, given: Any) -> Any:
        other, at = given[0].unsqueeze(-1) - 1, given[1]
        is_here, is_there = positions.eq(at), positions.eq(other)
        first, second = (
            each.where(rows, 0).sum(-1, keepdim=True).cast(rows.dtype)
            for each in (is_here, is_there)
        )
        return is_here.where(second, is_there.where(first, rows)), other.squeeze(-1)

    return _over_steps(step, pivots, is_state=True)


def _positions(like: Any) -> Any:
    return OurTensor.arange(like.shape[-1], device=like.device)


def _over_steps(step: Any, given: Any, *, is_state: bool = False) -> Any:
    """The outputs of all steps over the last axis, or the last state; rows begin in their order."""
    size = given.shape[-1]
    if 0 in given.shape:
        return given
    flat = OurTensor(given).reshape(-1, size).cast("int32")
    positions = _positions(given)
    rows, outputs = scan(step, positions.expand(*flat.shape), (flat.T, positions))
    found = rows if is_state else outputs.T
    return found.reshape(*given.shape).cast("int32")
