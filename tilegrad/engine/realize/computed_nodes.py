"""Computed values, by node: a graph is never run twice, as long as the node that was run lives.

A capture must see every step that its results depend on. So while one records, only its own
computed values count, and those that a replay may rely on as they are: an assignment that has run
(its target is memory), host memory that was copied to a device (a leaf of the host is one value for
ever), and values that can no longer be computed, as memory below was overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tilegrad.engine.run.leaf_memory import is_overwritten
from tilegrad.engine.run.run import current_recording
from tilegrad.engine.run.users import stands_on
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp, toposort

__all__ = ["Known", "of_variables", "readers"]

_WRITTEN = (Ops.ASSIGN, Ops.AFTER)


class Known:
    """A mapping from a node to [movement of] the BUFFER that holds its value, which the node itself
    keeps (`UOp.stored`): it lasts as long as the node.
    """

    def get(self, node: UOp) -> UOp | None:
        """The memory of `node`, if it was computed."""
        found = node.stored
        if found is None:
            return None
        record = current_recording()
        if record is None or record.known is None:
            # As `_unless_written`, without its frame.
            if node.op in _WRITTEN:
                return found
            base = found
            while base.op.is_movement:
                base = base.src[0]
            return None if base.op is Ops.BUFFER and is_overwritten(base) else found
        own = _unless_written(node, record.known.get(node))
        if own is not None:
            return own
        found = _unless_written(node, found)
        if found is not None and not (
            node.op in _WRITTEN or _is_upload(node) or self._is_past(node)
        ):
            return None
        return found

    def _is_past(self, node: UOp) -> bool:
        below = toposort([node], stop=lambda other: other is not node and other.stored is not None)
        return any(leaf.op is Ops.BUFFER and is_overwritten(leaf) for leaf in below)

    def __contains__(self, node: UOp) -> bool:
        return self.get(node) is not None

    def __getitem__(self, node: UOp) -> UOp:
        found = self.get(node)
        if found is None:
            raise KeyError(node)
        return found

    def __setitem__(self, node: UOp, value: UOp) -> None:
        record = current_recording()
        if record is not None and record.known is not None:
            record.known[node] = value
        node.stored = value
        if node.users is not None:
            stands_on(node, value)


def _unless_written(node: UOp, found: UOp | None) -> UOp | None:
    """`found`, unless that memory was written to and so has another value: then this one is
    computed again. The memory of an assignment counts: it has run.
    """
    if found is None or node.op in _WRITTEN:
        return found
    base = base_of(found)
    return None if base.op is Ops.BUFFER and is_overwritten(base) else found


def _is_upload(node: UOp) -> bool:
    if node.op is not Ops.COPY:
        return False
    below = below_reshapes(node.src[0])
    return below.op is Ops.BUFFER and below.arg.device == "HOST"


def readers(roots: Iterable[UOp], leaves: Collection[UOp], known: Known) -> list[UOp]:
    """The `roots` whose values are in the memory of `leaves` or have yet to be computed from it."""
    needs: dict[UOp, bool] = {}
    found: list[UOp] = []
    for root in roots:
        for node in toposort([root], stop=lambda node: node in needs or node in known):
            if node not in needs:
                memory = known.get(node)
                sources = (memory,) if memory is not None else node.src
                needs[node] = node in leaves or any(
                    _stands_on(source, needs, leaves) for source in sources
                )
        if needs[root]:
            found.append(root)
    return found


def _stands_on(node: UOp, needs: dict[UOp, bool], leaves: Collection[UOp]) -> bool:
    found = needs.get(node)
    if found is not None:
        return found
    return base_of(node) in leaves


def of_variables(nodes: Iterable[UOp]) -> set[UOp]:
    """The `nodes`, sources first, whose values depend on variables: their memory is not remembered
    by node, as one node has all of these values. The memory that an assignment wrote is remembered
    once it has run.
    """
    found: set[UOp] = set()
    for node in nodes:
        if node.op in _WRITTEN:
            continue
        if node.op is Ops.DEFINE_VAR or _names_node(node.arg) or not found.isdisjoint(node.src):
            found.add(node)
    return found


def _names_node(arg: Any) -> bool:
    """Whether sizes or bounds are nodes."""
    return isinstance(arg, UOp) or (isinstance(arg, tuple) and any(map(_names_node, arg)))
