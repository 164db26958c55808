"""Which values are stored lest a kernel become too large to compile: too deep, of too many
operations, with too many parameters, or reading them at too many places.
"""

from __future__ import annotations

from collections.abc import Set

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import elements
from tilegrad.schedule.reason import Reason

__all__ = ["base_of", "cut_large"]

_DEPTH = 200
# Steps that count for more. Rows that are picked of picked rows: each index is a condition for all
# that lies below. What is padded has a condition, too.
_STEP = {Ops.GATHER: 25, Ops.PAD: 20}
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
# Operations are counted in blocks of this many.
_BLOCK = 25
# A value that several kernels need is stored from this share of a kernel on.
_AGAIN = 1 / 8
# How far beyond that a kernel may grow where all that could be stored is larger than its sources.
_WORTH_WAITING = 4
# Where a kernel becomes too large, values are looked at that come so many nodes before in the order
# of the graph, and their uses by so many nodes that follow.
_BEFORE, _AFTER = 1000, 250
# The least share of a full kernel that ends before it is full.
_LEAST = 1 / 2


def base_of(node: UOp) -> UOp:
    """What a chain of movement ops moves."""
    while node.op.is_movement:
        node = node.src[0]
    return node


def cut_large(nodes: list[UOp], stored: dict[UOp, Reason], shared: Set[UOp]) -> dict[UOp, Reason]:
    """`stored`, and values that must be too, lest a kernel become too large to compile. Values that
    are `shared` are computed again in each of several kernels, and values made of them, too.
    """
    found = _cut(nodes, stored, shared, frozenset())
    if len(found) == len(stored):
        return found
    # Where a kernel ends, what it computed on the way may be needed beyond: a gradient goes back
    # over all steps. Each kernel would compute that again, so some of it is stored after all.
    return _cut(nodes, stored, shared, _needed_again(nodes, found))


def _cut(
    nodes: list[UOp], stored: dict[UOp, Reason], shared: Set[UOp], again: Set[UOp]
) -> dict[UOp, Reason]:
    """As `cut_large`; of the values `again`, those are stored that take long to compute."""
    cut = _Cut(nodes, stored)
    position = 0
    while position < len(nodes):
        node = nodes[position]
        if node.op is not Ops.SINK:
            cut.add(position)
            if node not in cut.found:
                reason = cut.reason_to_store(node, shared, again)
                if reason is not None:
                    position = cut.narrow_before(position, reason is Reason.SHARED)
                    cut.found[nodes[position]] = reason
            if nodes[position] in cut.found or node.op is Ops.BUFFER:
                cut.store(position)
        position += 1
    return cut.found


class _Cut:
    """The measures of what computes each value, up to some position in the order of the graph.

    Attributes:
        found: the values that are stored, and why.
    """

    def __init__(self, nodes: list[UOp], stored: dict[UOp, Reason]):
        self.found = dict(stored)
        self._nodes = nodes
        self._place = {node: position for position, node in enumerate(nodes)}
        self._depth: dict[UOp, int] = {}
        # What is read, and a number for the movements on the way: where.
        self._reads: dict[UOp, frozenset[tuple[UOp, int]]] = {}
        # What is larger than all it is made of, such as the products before their sum: stored, it
        # would take more memory than all else.
        self._spread: set[UOp] = set()
        self._work = _Work()
        # What a value takes, as shares of what a kernel may: all in all, and to compute it again.
        self._excess: dict[UOp, tuple[float, float]] = {}
        # The position of the last value that was stored.
        self._last = -1

    def add(self, position: int) -> None:
        """Measure the next node."""
        node = self._nodes[position]
        known = self._reads[node] = _reads_of(node, self._reads)
        level = _STEP.get(node.op, 1)
        level += max([self._depth[source] for source in node.src], default=0)
        self._depth[node] = level
        work = self._work.add(node) / _OPERATIONS
        crowding = _crowding(known)
        self._excess[node] = max(level / _DEPTH, crowding, work), max(crowding, work)
        if _is_spread(node, self._spread):
            self._spread.add(node)

    def store(self, position: int) -> None:
        """Let the node be read from memory from here on."""
        node = self._nodes[position]
        self._depth[node], self._reads[node] = 0, frozenset({(node, 0)})
        self._work.store(node)
        if node in self.found:
            self._last = position

    def reason_to_store(self, node: UOp, shared: Set[UOp], again: Set[UOp]) -> Reason | None:
        """Why `node` is better stored, None if it is not."""
        most = _WORTH_WAITING if node in self._spread else 1
        is_step = node.op.is_alu or node.op is Ops.GATHER
        whole, recomputed = self._excess[node]
        if (is_step or node.op is Ops.PAD) and whole > most:
            return Reason.TOO_LARGE
        if node.is_constant or not is_step:
            # A constant is an index, perhaps, that is computed wherever it is needed.
            return None
        if node in again and recomputed > _AGAIN * most:
            return Reason.SHARED
        if node in shared and _leaves_of(self._reads[node]) > _SHARED_LEAVES:
            return Reason.SHARED
        return None

    def narrow_before(self, position: int, is_again: bool) -> int:
        """The position of the value to store lest the one at `position` take too much: the nearest
        before it through which all goes that is computed since the last stored value, so that
        equal steps of a chain have equal kernels; else `position` itself.
        """
        last = max(self._last, position - _BEFORE)
        behind = {self._nodes[position]}
        needed: set[UOp] = set()
        for here in range(min(position + _AFTER, len(self._nodes) - 1), last, -1):
            node = self._nodes[here]
            if here < position:
                whole, recomputed = self._excess[node]
                if (recomputed / _AGAIN if is_again else whole) < _LEAST:
                    break
                if node in behind and needed == {node} and self._may_end(node):
                    return here
            needed.discard(node)
            if node.op is Ops.SINK:
                continue
            is_behind = node in behind
            for source in node.src:
                if last < self._place[source] and not source.is_constant:
                    needed.add(source)
                    if is_behind:
                        behind.add(source)
        return position

    def _may_end(self, node: UOp) -> bool:
        """Whether a kernel may end with `node`."""
        is_step = node.op.is_alu or node.op is Ops.GATHER
        return is_step and node not in self._spread and node not in self.found


class _Work:
    """How many operations a value takes that is computed from what is stored.

    Operations come in blocks of equally many, and a value knows the blocks that it needs: a value
    that is needed twice is computed once.
    """

    def __init__(self) -> None:
        self._blocks: dict[UOp, frozenset[int]] = {}
        self._current = 0
        self._filled = 0

    def add(self, node: UOp) -> int:
        """The operations of `node`, about."""
        needs: frozenset[int] = frozenset()
        for source in node.src:
            below = self._blocks[source]
            if not needs:
                needs = below
            elif below is not needs and not below <= needs:
                needs = needs | below
        own = _REDUCTION if node.op is Ops.REDUCE_AXIS else int(node.op.is_alu)
        if own and not node.is_constant:
            last = self._current + (self._filled + own - 1) // _BLOCK
            if last not in needs:
                needs = needs.union(range(self._current, last + 1))
            self._filled += own
            self._current, self._filled = (
                self._current + self._filled // _BLOCK,
                self._filled % _BLOCK,
            )
        self._blocks[node] = needs
        return len(needs) * _BLOCK

    def store(self, node: UOp) -> None:
        self._blocks[node] = frozenset()
        # Equal steps from here on have equal blocks, so that their kernels are equal.
        self._current += self._filled > 0
        self._filled = 0


def _needed_again(nodes: list[UOp], stored: dict[UOp, Reason]) -> set[UOp]:
    """Values that are not stored and that several kernels need, by more than one way."""
    kernels: dict[UOp, frozenset[UOp]] = {}
    users: dict[UOp, int] = {}
    found = set()
    for node in reversed(nodes):
        mine = kernels.get(node, frozenset())
        if node in stored:
            mine = frozenset({node})
        elif len(mine) > 1 and users[node] > 1:
            found.add(node)
        for source in node.src if node.op is not Ops.SINK else ():
            users[source] = users.get(source, 0) + 1
            known = kernels.get(source, mine)
            # Two are enough to know that there are several.
            if len(known) < 2 and known is not mine:
                known = known | mine
            kernels[source] = known if len(known) < 3 else frozenset(list(known)[:2])
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
