"""Graphs over memory as it was before slices of it were written, made to read it as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.engine.realize.noted_writes import are_noted, newest_of
from tilegrad.engine.realize.realize import realized
from tilegrad.engine.run.leaf_memory import is_overwritten
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, below_views
from tilegrad.ir.uop import UOp, toposort

__all__ = ["from_later_versions"]

_WRITTEN = (Ops.ASSIGN, Ops.AFTER)


def from_later_versions(
    roots: Sequence[UOp], stand_in: Callable[[UOp, UOp], UOp] = lambda memory, view: memory
) -> list[UOp]:
    """`roots`, where slices of an earlier version of memory are read from the present one, if no
    write since then has touched them. `stand_in(memory, view)` is put in place of a view, whose
    value is in `memory`.
    """
    if not are_noted():
        return list(roots)
    found: dict[UOp, UOp] = {}

    def is_known(node: UOp) -> bool:
        if _is_known(node):
            # It is known by its operands, which stay as they were.
            found[node] = node
        return node in found

    for node in toposort(roots, stop=is_known):
        if node not in found and not node.op.is_movement and node.op not in _WRITTEN:
            row = _row_of(node)
            for source in node.src:
                if row is not None and source is node.src[0]:
                    moved = _from_later(source, row)
                    if moved is not None:
                        found[node] = stand_in(node.over((moved, node.src[1])), node)
                elif source not in found and source.op.is_movement:
                    moved = _from_later(source)
                    if moved is not None:
                        found[source] = stand_in(moved, source)
    return [root.substitute(found) for root in roots]


def _is_known(node: UOp) -> bool:
    """Whether the value of a node that was computed is in memory now."""
    if node.stored is None:
        return False
    memory = realized(node)
    return memory is not None and not is_overwritten(base_of(memory))


def _row_of(node: UOp) -> int | None:
    """The row that a node picks by a number, if it does."""
    if node.op is not Ops.GATHER or node.src[1].op is not Ops.CONST:
        return None
    row, rows = node.src[1].arg, node.src[0].shape[0]
    return row if isinstance(rows, int) and 0 <= row < rows else None


def _from_later(view: UOp, row: int | None = None) -> UOp | None:
    """`view`, movement of memory as it was once, as movement of it now; None if it is not known to
    hold the same there, or is there as it was.
    """
    version = below_views(view)
    if version.op is Ops.BUFFER:
        return newest_of(view, None, row) if is_overwritten(version) else None
    memory = realized(version)
    if memory is None:
        return newest_of(view, None, row)
    return newest_of(view, memory, row) if is_overwritten(base_of(memory)) else None
