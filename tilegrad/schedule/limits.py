"""Limits of a kernel: values are stored lest one become too large to compile, by its depth, its
operations, its parameters, or the indices at which it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import (
    MOST_INSTRUCTIONS,
    TargetOf,
    elements,
    instructions_of,
    nbytes,
)
from tilegrad.schedule.items import Reason
from tilegrad.target import Target, slices_of

__all__ = ["cut_large", "within_buffers"]

# Limits of compile time.
# Nodes on the way from a kernel's inputs to its store.
_DEPTH = 200
# Steps that count for more in depth: an index of a GATHER, or a padding, is a condition for all
# below.
_STEP = {Ops.GATHER: 25, Ops.PAD: 20}
# Values that a kernel reads.
_LEAVES = 48
# Values read by nodes that several kernels compute anew: x = x - x.mean() forty times would be
# forty kernels, each with all steps.
_SHARED_LEAVES = 8
# The most indices at which one value is computed in a kernel: two in x + x.roll(1), four if that is
# added to its own roll.
_POSITIONS = 128
# Instructions that the loops of a reduction count for.
_REDUCTION = 50
# Instructions are counted in blocks of this many.
_BLOCK = 25
# The share of a kernel from which a value that several kernels need is stored.
_AGAIN = 1 / 8
# The multiple of the limit to which a kernel may grow where all values that could be stored are
# larger than their sources.
_WORTH_WAITING = 4
# Nodes, in the order of the graph, that are searched for a value to store where a kernel becomes
# too large: before that one, and behind it for uses.
_BEFORE, _AFTER = 1000, 250
# The least share of a full kernel that ends before it is full.
_LEAST = 1 / 2
_NOTHING: frozenset[tuple[UOp, int]] = frozenset()


def cut_large(
    nodes: list[UOp], stored: dict[UOp, Reason], shared: Set[UOp], target_of: TargetOf
) -> dict[UOp, Reason]:
    """`stored`, and further values that are stored lest a kernel become too large to compile.
    Values that are `shared`, and values made of them, are computed again in several kernels.
    """
    steps = _NodeSteps(nodes, target_of)
    found = _Cutter(steps, stored).run(shared, frozenset())
    if len(found) == len(stored):
        return found
    # Where a kernel ends, values on the way may be needed beyond: a gradient goes back over all
    # steps. Each kernel would compute that again, so some of it is stored after all.
    return _Cutter(steps, stored).run(shared, _needed_again(nodes, found))


def within_buffers(
    nodes: list[UOp], stored: dict[UOp, Reason], target_of: TargetOf
) -> dict[UOp, Reason]:
    """`stored`, and further values that are stored lest a kernel need more buffers than a device
    binds: of the sources of a value with too many reads, those with the most.
    """
    found = dict(stored)
    targets = {node: target_of(node) for node in nodes if node.op is not Ops.SINK}
    if not any(target.most_buffers for target in targets.values()):
        return found
    # Nodes that were visited before may read a value that is stored for a later one.
    while more := _over_the_limit(targets, found):
        found |= more
    return found


def _over_the_limit(
    targets: Mapping[UOp, Target], stored: Mapping[UOp, Reason]
) -> dict[UOp, Reason]:
    """Values to store beside `stored`, so that no value needs more buffers than its target binds.
    `targets` has the nodes, sources first.
    """
    found: dict[UOp, Reason] = {}
    reads: dict[UOp, dict[UOp, int]] = {}
    for node, target in targets.items():
        # A value that is not stored belongs to one result, whose size is not known here.
        own = _bindings(node, target) if node in stored else 1
        while True:
            needed: dict[UOp, int] = {}
            for source in node.src:
                needed |= reads[source]
            if not target.most_buffers or sum(needed.values()) <= target.most_buffers - own:
                break
            base = max(
                (base_of(source) for source in node.src),
                key=lambda each: sum(reads[each].values()),
            )
            if len(reads[base]) < 2:
                break
            found[base] = Reason.TOO_LARGE
            _read_from_memory(base, node, reads, _bindings(base, target))
        is_memory = node in stored or node in found or node.op is Ops.BUFFER
        reads[node] = {node: _bindings(node, target)} if is_memory else needed
    return found


def _bindings(node: UOp, target: Target) -> int:
    """Bindings that a kernel needs for a value in memory: several where one binding is too small.
    A value whose size is known at the launch counts as one.
    """
    if not target.bound_bytes or not all(type(size) is int for size in node.shape):
        return 1
    return slices_of(nbytes(node), target.bound_bytes)


def _read_from_memory(
    base: UOp, user: UOp, reads: dict[UOp, dict[UOp, int]], bindings: int
) -> None:
    """Let `base`, and the movement ops between it and `user`, be read from one buffer."""
    reads[base] = {base: bindings}
    for source in user.src:
        while source is not base and source.op.is_movement:
            reads[source] = reads[base] if base_of(source) is base else reads[source]
            source = source.src[0]


class _NodeSteps:
    """Facts of each node that do not depend on the stored values, by its position in the graph.

    Attributes:
        sources: the positions of its sources; nothing for the SINK.
        may_end: whether a kernel may end with it.
        spread: whether it is larger than all it is made of, such as the products before their sum:
            stored, it would take more memory than all else.
        level: the steps that it counts for in depth.
        own: its instructions.
        way: for a node that reads its source at other positions, a number for that change.
    """

    def __init__(self, nodes: list[UOp], target_of: TargetOf):
        self.nodes = nodes
        position_of = {node: position for position, node in enumerate(nodes)}
        self.sources: list[tuple[int, ...]] = []
        self.may_end: list[bool] = []
        self.level: list[int] = []
        self.own: list[int] = []
        self.way: list[int | None] = []
        spread: set[UOp] = set()
        for node in nodes:
            op = node.op
            is_sink = op is Ops.SINK
            self.sources.append(
                () if is_sink else tuple([position_of[source] for source in node.src])
            )
            is_end = op.is_alu or op is Ops.GATHER or _is_narrowed(node)
            self.may_end.append(is_end and not node.is_constant)
            self.level.append(_STEP.get(op, 1))
            own = _REDUCTION if op is Ops.REDUCE_AXIS else 0
            if not is_sink and op is not Ops.REDUCE_AXIS:
                own = instructions_of(node, target_of(node))
            # Integers that are constants are indices, perhaps, which are simplified.
            self.own.append(0 if node.is_constant and not node.dtype.is_float else own)
            is_moved = op.is_movement
            way = (
                hash((op, node.arg) if is_moved else node) if is_moved or op is Ops.GATHER else None
            )
            self.way.append(way)
            if op.is_alu and _is_spread(node, spread):
                spread.add(node)
        self.spread = [node in spread for node in nodes]


class _Cutter:
    """Goes through a graph, sources first, and stores values that make kernels too large.

    By position: the depth of the value; its reads, each with a number for the movements on the way;
    and its share of the limits of a kernel, as a whole and to compute it again.
    """

    def __init__(self, steps: _NodeSteps, stored: dict[UOp, Reason]):
        self._steps = steps
        self._nodes = steps.nodes
        self._found = dict(stored)
        self._work = _InstructionCounts(steps)
        count = len(steps.nodes)
        self._depth = [0] * count
        self._reads: list[frozenset[tuple[UOp, int]]] = [_NOTHING] * count
        self._whole = [0.0] * count
        self._again = [0.0] * count
        # The position of the last value that was stored.
        self._last = -1

    def run(self, shared: Set[UOp], again: Set[UOp]) -> dict[UOp, Reason]:
        """The stored values with their reasons; of the values `again`, those that are costly to
        compute.
        """
        found, nodes = self._found, self._nodes
        position, count = 0, len(nodes)
        while position < count:
            node = nodes[position]
            if node.op is not Ops.SINK:
                self._measure(position)
                if node not in found:
                    reason, limit = self._reason_to_store(position, shared, again)
                    if reason is not None:
                        position = self._narrow_before(position, limit)
                        node = nodes[position]
                        found[node] = reason
                if node in found or node.op is Ops.BUFFER:
                    self._store(position)
            position += 1
        return found

    def _measure(self, position: int) -> None:
        steps, depth = self._steps, self._depth
        level = 0
        for source in steps.sources[position]:
            if depth[source] > level:
                level = depth[source]
        level += steps.level[position]
        depth[position] = level
        known = self._reads[position] = self._reads_of(position)
        # Shares of the largest numbers allowed; there are as many reads as values, or more.
        values = _leaves_of(known) if len(known) > _LEAVES else 0
        again = self._again[position] = max(
            len(known) / _POSITIONS, values / _LEAVES, self._work.add(position) / MOST_INSTRUCTIONS
        )
        self._whole[position] = max(level / _DEPTH, again)

    def _reads_of(self, position: int) -> frozenset[tuple[UOp, int]]:
        """The reads for one element of a value, with their positions."""
        reads = self._reads
        sources, way = self._steps.sources[position], self._steps.way[position]
        found = _NOTHING
        if way is not None:
            moved, *sources_beside = sources
            found = frozenset([(leaf, hash((before, way))) for leaf, before in reads[moved]])
            sources = tuple(sources_beside)
        for source in sources:
            known = reads[source]
            if known and known is not found:
                found = found | known if found and not known <= found else found or known
        return found

    def _store(self, position: int) -> None:
        """Let the value be read from memory from here on."""
        node = self._nodes[position]
        self._depth[position], self._reads[position] = 0, frozenset(((node, 0),))
        self._work.store(position)
        if node in self._found:
            self._last = position

    def _reason_to_store(
        self, position: int, shared: Set[UOp], again: Set[UOp]
    ) -> tuple[Reason | None, float]:
        """The reason to store a value, None if there is none, and the share of a full kernel by
        which it is too large, 0 for other reasons.
        """
        node = self._nodes[position]
        most = _WORTH_WAITING if self._steps.spread[position] else 1
        may_end = self._steps.may_end[position]
        if self._whole[position] > most and (node.op.is_alu or node.op in (Ops.GATHER, Ops.PAD)):
            return Reason.TOO_LARGE, 1
        # A constant is an index, perhaps, that is computed wherever it is needed.
        if may_end and self._again[position] > _AGAIN * most and node in again:
            return Reason.SHARED, _AGAIN
        if may_end and node in shared and _leaves_of(self._reads[position]) > _SHARED_LEAVES:
            return Reason.SHARED, 0
        return None, 0

    def _narrow_before(self, position: int, limit: float) -> int:
        """The position of the value to store lest the one at `position` take more than `limit`: the
        nearest earlier value that dominates all values computed since the last stored one, so that
        equal steps of a chain have equal kernels; else `position` itself.
        """
        if not limit:
            return position
        steps, shares = self._steps, self._whole if limit == 1 else self._again
        last = max(self._last, position - _BEFORE)
        behind = {position}
        needed: set[int] = set()
        for here in range(min(position + _AFTER, len(self._nodes) - 1), last, -1):
            if here < position:
                if shares[here] < limit * _LEAST:
                    break
                is_way = here in behind and len(needed) == 1 and here in needed
                if is_way and self._may_end(here):
                    return here
            needed.discard(here)
            for source in steps.sources[here]:
                if last < source and not self._nodes[source].is_constant:
                    needed.add(source)
                    if here in behind:
                        behind.add(source)
        return position

    def _may_end(self, position: int) -> bool:
        """Whether a kernel may end with a value that is not stored yet."""
        steps = self._steps
        is_new = self._nodes[position] not in self._found
        return steps.may_end[position] and not steps.spread[position] and is_new


class _InstructionCounts:
    """Number of instructions of a value computed from stored ones. Instructions are grouped in
    blocks of equal size, and a value knows its blocks, so that a value that is needed twice counts
    once.

    Instructions come in blocks of equally many, and a value knows the blocks that it needs: a value
    that is needed twice is computed once.
    """

    def __init__(self, steps: _NodeSteps) -> None:
        self._steps = steps
        self._blocks: list[frozenset[int]] = [frozenset()] * len(steps.nodes)
        self._current = 0
        self._filled = 0

    def add(self, position: int) -> int:
        """The instructions of the value at `position`, about."""
        needs: frozenset[int] = frozenset()
        for source in self._steps.sources[position]:
            below = self._blocks[source]
            if not needs:
                needs = below
            elif below is not needs and not below <= needs:
                needs = needs | below
        own = self._steps.own[position]
        if own:
            last = self._current + (self._filled + own - 1) // _BLOCK
            if last not in needs:
                needs = needs.union(range(self._current, last + 1))
            self._filled += own
            if self._filled >= _BLOCK:
                self._current += self._filled // _BLOCK
                self._filled %= _BLOCK
        self._blocks[position] = needs
        return len(needs) * _BLOCK

    def store(self, position: int) -> None:
        self._blocks[position] = frozenset()
        # Equal steps from here on have equal blocks, so that their kernels are equal.
        self._current += self._filled > 0
        self._filled = 0


def _needed_again(nodes: list[UOp], stored: dict[UOp, Reason]) -> set[UOp]:
    """Values that are not stored and that several kernels need, by more than one path. A widened
    value is represented by the one of fewer bits.
    """
    kernels: dict[UOp, frozenset[UOp]] = {}
    users: dict[UOp, int] = {}
    found = set()
    for node in reversed(nodes):
        mine = kernels.get(node, frozenset())
        if node in stored:
            mine = frozenset({node})
        elif len(mine) > 1 and users[node] > 1:
            is_widened = node.op is Ops.CAST and _is_narrowed(node.src[0])
            found.add(node.src[0] if is_widened else node)
        for source in node.src if node.op is not Ops.SINK else ():
            users[source] = users.get(source, 0) + 1
            known = kernels.get(source, mine)
            # Two are enough to know that there are several.
            if len(known) < 2 and known is not mine:
                known = known | mine
            kernels[source] = known if len(known) < 3 else frozenset(list(known)[:2])
    return found


def _leaves_of(known: frozenset[tuple[UOp, int]]) -> int:
    """Number of values that are read."""
    return len({leaf for leaf, _ in known})


def _is_narrowed(node: UOp) -> bool:
    """Whether a value is another one rounded to fewer bits, as each step in bfloat16 ends."""
    is_cast = node.op is Ops.CAST and node.dtype.is_float
    return is_cast and node.dtype.itemsize < node.src[0].dtype.itemsize


def _is_spread(node: UOp, spread: Set[UOp]) -> bool:
    """Whether an elementwise value has more elements than all of its sources."""
    most = 0
    for source in node.src:
        base = base_of(source)
        if not base.is_constant:
            if base in spread:
                return True
            most = max(most, elements(base))
    return 0 < most < elements(node)
