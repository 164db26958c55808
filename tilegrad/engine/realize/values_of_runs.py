"""Where values are after a run: in its plan's results, or in memory that it wrote; and the movement
above that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.ir.lengths import Terms, is_length, memory_shape, terms_of, value_of
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Moves", "Value", "moves_at", "values_after"]

Moves = tuple[tuple[Ops, Any], ...]


class Extent(NamedTuple):
    """A size in the argument of a movement op that depends on lengths."""

    terms: Terms


class Value(NamedTuple):
    """Position of a value: [movement of] result number `source` of the plan, or, if it
    `is_written`, of the memory of node number `source` as it is after the run.
    """

    source: int
    is_written: bool
    moves: Moves


def values_after(
    results: Sequence[UOp],
    below: Collection[UOp],
    overwritten: Collection[UOp],
    number_of: dict[UOp, int],
) -> dict[UOp, Value]:
    """Positions, after the run, of the values of the `results` and of the memory that it wrote."""
    values: dict[UOp, Value] = {}
    for number, node in enumerate(results):
        if node.op is not Ops.ASSIGN:
            values[node] = Value(number, False, _shaping(node))
    views = {node: node.src[0] for node in results if node.op is Ops.ASSIGN}
    views |= {node: node for node in below if node.op is Ops.AFTER}
    for node, view in views.items():
        # Memory that is overwritten in the same run no longer holds the value, unless that was
        # copied.
        if node not in overwritten:
            target, moves = _on_memory(view)
            values[node] = Value(number_of[target], True, moves)
    return values


def moves_at(moves: Moves, lengths: Mapping[str, int]) -> Moves:
    """The movement for these lengths."""
    return tuple([(op, _at(arg, lengths)) for op, arg in moves])


def _at(arg: Any, lengths: Mapping[str, int]) -> Any:
    if isinstance(arg, Extent):
        return value_of(arg.terms, lengths)
    return tuple([_at(value, lengths) for value in arg]) if isinstance(arg, tuple) else arg


def _of_lengths(arg: Any) -> Any:
    """An argument with an Extent for each size that depends on lengths."""
    if isinstance(arg, UOp):
        return Extent(terms_of(arg)) if is_length(arg) else arg
    return tuple([_of_lengths(value) for value in arg]) if isinstance(arg, tuple) else arg


def _on_memory(view: UOp) -> tuple[UOp, Moves]:
    """The BUFFER that `view` views once it was written to, and the movement above it."""
    moves: list[tuple[Ops, Any]] = []
    while view.op is not Ops.BUFFER:
        if view.op.is_movement:
            moves.append((view.op, _of_lengths(view.arg)))
        view = view.src[0]
    return view, tuple(reversed(moves))


def _shaping(node: UOp) -> Moves:
    """From flat memory to the shape of `node`; memory has the largest sizes of a symbolic shape."""
    shape = node.shape
    largest = memory_shape(shape)
    moves: list[tuple[Ops, Any]] = [] if len(largest) == 1 else [(Ops.RESHAPE, largest)]
    if any(isinstance(size, UOp) for size in largest):
        return tuple([(op, _of_lengths(arg)) for op, arg in moves])
    if largest != shape:
        moves.append((Ops.SHRINK, tuple((0, size) for size in shape)))
    return tuple(moves)
