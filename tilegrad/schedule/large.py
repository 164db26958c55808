"""Which values are stored lest a kernel become too large to compile: too deep, of too many
operations, with too many parameters, or reading them at too many places.
"""

from __future__ import annotations

from collections.abc import Set
from math import inf

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import elements
from tilegrad.schedule.reason import Reason

__all__ = ["base_of", "cut_large"]

_DEPTH = 200
# Rows that are picked of picked rows: each index is a condition for all that lies below.
_PICK = 25
_LEAVES = 48
# Of what several kernels compute anew: x = x - x.mean() forty times would be forty kernels of which
# each takes all steps.
_SHARED_LEAVES = 8
# A value that meets itself elsewhere (x + x.roll(1)) is computed at both places, and at four if
# that meets itself again.
_PLACES = 128
# Of a kernel, about: compilers take more than twice the time for twice the operations.
_OPERATIONS = 2000
# A reduction's loops count for many.
_REDUCTION = 50
# How far beyond that a kernel may grow where all that could be stored is larger than its sources.
_WORTH_WAITING = 4


def base_of(node: UOp) -> UOp:
    """What a chain of movement ops moves."""
    while node.op.is_movement:
        node = node.src[0]
    return node


def cut_large(nodes: list[UOp], stored: dict[UOp, Reason], shared: Set[UOp]) -> dict[UOp, Reason]:
    """`stored`, and values that must be too, lest a kernel become too large to compile. Values that
    are `shared` are computed again in each of several kernels, and values made of them, too.
    """
    found = dict(stored)
    depth: dict[UOp, int] = {}
    # What is read, and a number for the movements on the way: where.
    reads: dict[UOp, frozenset[tuple[UOp, int]]] = {}
    # What is larger than all it is made of, such as the products before their sum: stored, it would
    # take more memory than all else.
    spread: set[UOp] = set()
    # How many operations come before a node, and before the first that it is computed by. Between
    # the two lies its subtree, as sources stand right before their user unless they are shared.
    # Memory and constants take none, wherever they stand.
    place: dict[UOp, int] = {}
    first: dict[UOp, float] = {}
    count = 0
    for node in nodes:
        if node.op is Ops.SINK:
            continue
        own = _REDUCTION if node.op is Ops.REDUCE_AXIS else int(node.op.is_alu)
        near = [first[part] for part in node.src if count - place[part] <= _OPERATIONS]
        first[node] = min(near, default=inf)
        if own and not node.is_constant:
            first[node] = min(first[node], count)
        count += own
        place[node] = count
        known = _reads_of(node, reads)
        level = (_PICK if node.op is Ops.GATHER else 1) + max(
            (depth[source] for source in node.src), default=0
        )
        excess = max(level / _DEPTH, _crowding(known), (count - first[node]) / _OPERATIONS)
        if _is_spread(node, spread):
            spread.add(node)
        most = _WORTH_WAITING if node in spread else 1
        is_step = node.op.is_alu or node.op is Ops.GATHER
        if is_step and node not in found and not node.is_constant:
            if excess > most:
                found[node] = Reason.TOO_LARGE
            elif node in shared and _leaves_of(known) > _SHARED_LEAVES:
                found[node] = Reason.SHARED
        if node in found or node.op is Ops.BUFFER:
            known, level, first[node] = frozenset({(node, 0)}), 0, inf
        depth[node], reads[node] = level, known
    return found


def _reads_of(
    node: UOp, reads: dict[UOp, frozenset[tuple[UOp, int]]]
) -> frozenset[tuple[UOp, int]]:
    """What is read for an element of `node`, and where."""
    if node.op.is_movement or node.op is Ops.GATHER:
        way = hash((node.op, node.arg) if node.op.is_movement else node)
        moved = frozenset([(leaf, hash((before, way))) for leaf, before in reads[node.src[0]]])
        return moved.union(*(reads[source] for source in node.src[1:]))
    if len(node.src) == 1:
        return reads[node.src[0]]
    return frozenset().union(*(reads[source] for source in node.src))


def _crowding(known: frozenset[tuple[UOp, int]]) -> float:
    """What is read, as a share of what a kernel may."""
    places = len(known) / _PLACES
    return places if len(known) <= _LEAVES else max(places, _leaves_of(known) / _LEAVES)


def _leaves_of(known: frozenset[tuple[UOp, int]]) -> int:
    """How many values are read."""
    return len({leaf for leaf, _ in known})


def _is_spread(node: UOp, spread: Set[UOp]) -> bool:
    """Whether an elementwise value has more elements than all it is computed from."""
    if not node.op.is_alu:
        return False
    bases = [base for source in node.src if not (base := base_of(source)).is_constant]
    if any(base in spread for base in bases):
        return True
    return bool(bases) and elements(node) > max(elements(base) for base in bases)
