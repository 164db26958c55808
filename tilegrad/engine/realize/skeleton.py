"""A request without its sizes: the common part of graphs that differ in lengths only.

The sizes stand in arguments: of memory, of draws, of movement ops, of loops, whose steps are as
many as the rows that they go over, and integers as constants, which often are sizes. They are taken
out in the order of the nodes; of a SHRINK, where it begins and how long it is. A kernel written by
hand has sizes if it is one of a family; any other is one for its sizes, so these are no variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.engine.realize.request import Request
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.size_patterns import Sizes
from tilegrad.ir.uop import UOp

__all__ = ["Role", "role_of", "sizes_of", "split", "twin_writes", "twins_of", "with_sizes"]

Role = str

_SHAPES = (Ops.RESHAPE, Ops.EXPAND)
# Ops with rules of their own for sizes.
_CLOSED = frozenset({Ops.DEFINE_VAR, Ops.BIND})
_SIZED = frozenset({
    Ops.BUFFER, Ops.RAND, Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.CONST, Ops.LOOP,
    Ops.CUSTOM,
})  # fmt: skip


def role_of(node: UOp, position: int) -> Role:
    """The role of size number `position` of `node`: "shape", "start", "amount", "memory" or
    "number".
    """
    op = node.op
    if op is Ops.SHRINK:
        return "shape" if position % 2 else "start"
    if op is Ops.PAD:
        return "amount"
    if op is Ops.BUFFER:
        return "memory"
    return "number" if op is Ops.CONST else "shape"


def sizes_of(node: UOp) -> Sequence[int]:
    """The sizes in the argument of a node."""
    op, arg = node.op, node.arg
    if op in _SHAPES:
        return arg  # type: ignore[no-any-return]
    if op is Ops.PAD:
        return [amount for pair in arg for amount in pair]
    if op is Ops.SHRINK:
        return [number for start, end in arg for number in (start, end - start)]
    if op is Ops.BUFFER:
        return (arg.size,)
    if op is Ops.RAND:
        return arg.shape  # type: ignore[no-any-return]
    if op is Ops.LOOP:
        return (arg.length,)
    if op is Ops.CUSTOM:
        return arg.sizes if isinstance(arg, KernelArg) else ()
    if op is Ops.CONST and node.dtype.is_int:
        return (arg,)
    return ()


def with_sizes(node: UOp, sizes: Sequence[Any]) -> Any:
    """The argument of `node` with other sizes."""
    op = node.op
    if op in _SHAPES:
        return tuple(sizes)
    if op is Ops.PAD:
        return tuple(zip(sizes[::2], sizes[1::2], strict=True))
    if op is Ops.SHRINK:
        starts, lengths = sizes[::2], sizes[1::2]
        return tuple([
            (start, start + length if _is_there(start) else length)
            for start, length in zip(starts, lengths, strict=True)
        ])  # fmt: skip
    if op is Ops.BUFFER:
        return node.arg._replace(size=sizes[0])
    if op is Ops.LOOP:
        return replace(node.arg, length=sizes[0])
    if op is Ops.CUSTOM:
        return node.arg.at(sizes)
    assert op is Ops.RAND
    return replace(node.arg, shape=tuple(sizes))


def _is_there(start: Any) -> bool:
    return isinstance(start, UOp) or start != 0


def split(request: Request) -> tuple[tuple[Any, ...], Sizes] | None:
    """The signature of `request` without sizes, and the sizes; None where some of its ops have
    sizes of another kind.
    """
    rows: list[Any] = []
    sizes: list[int] = []
    for node, row in zip(request.nodes, request.rows, strict=True):
        op = node.op
        if op in _CLOSED or (op is Ops.CUSTOM and not isinstance(node.arg, KernelArg)):
            # A Python function may hold sizes.
            return None
        if op not in _SIZED or not (found := sizes_of(node)):
            rows.append(row)
            continue
        if not all(type(size) is int for size in found):
            return None
        sizes += found
        rows.append((row[0], row[1], len(found), row[3], _rest(node, row)))
    return (*rows, *request.roots), tuple(sizes)


def _rest(node: UOp, row: tuple[Any, ...]) -> Any:
    """Key of a node beside its sizes: for a constant, whether it is one of the request's
    `constants`. All graphs of a signature have as many of these.
    """
    if node.op is Ops.CONST:
        return row[2] is None
    if node.op is Ops.LOOP:
        arg = node.arg
        return arg.body.key, arg.carries, arg.stacks, arg.is_reversed
    if node.op is Ops.CUSTOM:
        return node.arg.family
    return node.arg.device if node.op in (Ops.BUFFER, Ops.RAND) else None


def twins_of(request: Request) -> list[int]:
    """For each node the first one that is the same over the same memory. A graph has two of them
    where one stands on memory, and the other on nodes that were computed into it.
    """
    first: dict[UOp | tuple[Any, ...], int] = {}
    found: list[int] = []
    for number, (node, sources) in enumerate(zip(request.nodes, request.sources, strict=True)):
        below = tuple([found[source] for source in sources])
        is_leaf = node.op in (Ops.BUFFER, Ops.RAND)
        key: Any = node if is_leaf else (node.op, node.dtype, node.arg, below)
        found.append(first.setdefault(key, number))
    return found


def twin_writes(request: Request) -> list[tuple[int, int]]:
    """The writes to memory that are twins of an earlier one, and the nodes below that are twins."""
    if len(request.assigns) < 2:
        return []
    twins = twins_of(request)
    found = {(number, twins[number]): None for number in request.assigns}
    pairs = [*found]
    # The list grows while it is walked.
    for number, twin in pairs:
        if number != twin:
            sources = zip(request.sources[number], request.sources[twin], strict=True)
            fresh = [pair for pair in sources if pair not in found]
            found.update(dict.fromkeys(fresh))
            pairs += fresh
    return [(number, twin) for number, twin in found if number != twin]
