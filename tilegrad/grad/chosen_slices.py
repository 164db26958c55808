"""A slice of a choice by position is a slice of the operand that is chosen there.

Operands of a concatenation are padded, and a mask that is padded likewise chooses among them. The
gradient of an operand is a slice of the whole gradient where the mask is true, zeros elsewhere, and
the mask is true in all of the slice:

before   SHRINK(WHERE(PAD(true), g, 0), bounds)
after    SHRINK(g, bounds)

Slices of slices are one. So the gradient of a tensor that was joined with many others, pair by
pair, is one node, and not two for each pair above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilegrad.ir.movement import fill, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["chosen_slice", "plus"]

Bounds = tuple[tuple[Any, Any], ...]


def chosen_slice(x: UOp, bounds: Bounds) -> UOp:
    """The slice of `x` between `bounds`."""
    shape = shrink(x, bounds).shape
    while True:
        if x.op is Ops.WHERE and x.src[0].shape == x.shape:
            value = _constant_between(x.src[0], bounds)
            if value is None:
                break
            x = x.src[1 if value else 2]
            if not x.shape and shape:
                return fill(shape, x.arg, x.dtype) if x.op is Ops.CONST else shrink(x, bounds)
        elif x.op is Ops.SHRINK:
            pairs = zip(bounds, x.arg, strict=True)
            bounds = tuple([(plus(at, start), plus(at, end)) for (start, end), (at, _) in pairs])
            x = x.src[0]
        else:
            break
    return x if x.shape == shape else shrink(x, bounds)


def _constant_between(mask: UOp, bounds: Bounds) -> bool | None:
    """The value of a mask everywhere between `bounds`; None if it differs or is not known."""
    while mask.op in (Ops.EXPAND, Ops.PAD):
        (source,) = mask.src
        edges = mask.arg if mask.op is Ops.PAD else ()
        if not _are_numbers((*bounds, source.shape, *edges)):
            return None
        rows = list(zip(bounds, source.shape, strict=True))
        if edges:
            within = [(a - before, b - before) for (a, b), (before, _) in zip(bounds, edges)]
            rows = list(zip(within, source.shape, strict=True))
            if any(end <= 0 or size <= start for (start, end), size in rows):
                return False
            if any(start < 0 or size < end for (start, end), size in rows):
                return None
        # A repeated axis has one element, at index 0.
        bounds = tuple([(0, 1) if size == 1 else pair for pair, size in rows])
        mask = source
    while mask.op in (Ops.RESHAPE, Ops.EXPAND):
        mask = mask.src[0]
    return bool(mask.arg) if mask.op is Ops.CONST else None


def _are_numbers(rows: Iterable[Iterable[Any]]) -> bool:
    return all(isinstance(each, int) for row in rows for each in row)


def plus(a: Any, b: Any) -> Any:
    """a + b of sizes; a symbolic size stays the same node when nothing is added."""
    return b if isinstance(a, int) and a == 0 else a + b
