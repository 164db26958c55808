"""Old values of memory that is overwritten: kept aside where they are needed beside newer ones.

An assignment makes a new version of its memory. A kernel may read one version, and runs before the
next is written; a value that needs an old version and, by whatever way, a newer one too cannot. So
there, values from the old version are computed into memory of their own:

before   ADD(MUL(BUFFER, 2), ASSIGN(BUFFER, ...))
after    ADD(CONTIGUOUS(MUL(BUFFER, 2)), ASSIGN(BUFFER, ...))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp

__all__ = ["Versions", "overwritten_by", "store_old_versions", "writer_of"]


def overwritten_by(assign: UOp) -> UOp:
    """The version of its memory, an ASSIGN or a BUFFER, that `assign` overwrites."""
    return writer_of(base_of(assign.src[0]))


def writer_of(version: UOp) -> UOp:
    """The node that made a version of some memory: for an AFTER its ASSIGN, else the version
    itself.
    """
    return version.src[1] if version.op is Ops.AFTER else version


class Versions:
    """The versions of memory that some assignments, sources first, make: for each, the one that it
    overwrites and the one that overwrites it, and how many are before it.

    Attributes:
        are_a_chain: whether no version is overwritten by two of them.
    """

    def __init__(self, assigns: Iterable[UOp]):
        self._before: dict[UOp, UOp] = {}
        self._after: dict[UOp, UOp] = {}
        self._number: dict[UOp, int] = {}
        self._first: dict[UOp, UOp] = {}
        self.are_a_chain = True
        for assign in dict.fromkeys(assigns):
            before = overwritten_by(assign)
            self._before[assign] = before
            self._number[assign] = self._number.get(before, 0) + 1
            self._first[assign] = self._first.get(before, before)
            self.are_a_chain &= self._after.setdefault(before, assign) is assign

    def first(self, assign: UOp) -> UOp:
        """The memory's version before all of them."""
        return self._first[assign]

    def after(self, version: UOp) -> UOp | None:
        """The assignment that overwrites `version`, if one does; of a chain."""
        return self._after.get(version)

    def number(self, version: UOp) -> int:
        """Number of assignments between the first version of the memory and `version`."""
        return self._number.get(version, 0)

    def is_from(self, version: UOp, assign: UOp) -> bool:
        """Whether `version` is the outcome of `assign`, or of a later one."""
        if self._first.get(version, version) is not self._first[assign]:
            return False
        if self.are_a_chain:
            return self.number(version) >= self.number(assign)
        while version is not assign:
            before = self._before.get(version)
            if before is None:
                return False
            version = before
        return True


def store_old_versions(sink: UOp, nodes: Sequence[UOp]) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph of `nodes`, sources first, with old versions stored aside, and for each node of it
    the one it came from.
    """
    versions = [node for node in nodes if node.op in (Ops.BUFFER, Ops.ASSIGN)]
    if len(versions) == 0 or all(node.op is Ops.BUFFER for node in versions):
        return sink, {}
    came_from = dict(zip(nodes, nodes))
    # Sets of versions are bits of an integer: these are few, and the nodes many.
    bit = {node: 1 << position for position, node in enumerate(versions)}
    assigned = sum(bit[node] for node in versions if node.op is Ops.ASSIGN)
    older: dict[UOp, int] = {}
    for node in versions:
        if node.op is Ops.ASSIGN:
            before = overwritten_by(node)
            older[node] = bit[before] | older.get(before, 0)
    needs: dict[UOp, int] = {}
    made: dict[UOp, UOp] = {}
    for node in nodes:
        all_needs = bit.get(node, 0)
        for source in node.src:
            all_needs |= needs[source]
        needs[node] = all_needs
        sources = []
        for number, source in enumerate(node.src):
            stored = made[source]
            newer = all_needs & assigned & ~needs[source] & ~bit.get(node, 0)
            is_target = node.op in (Ops.ASSIGN, Ops.AFTER) and number == 0
            if newer and needs[source] and node.op is not Ops.SINK and not is_target:
                if _has_older(newer, needs[source], versions, older):
                    stored = UOp(Ops.CONTIGUOUS, stored.dtype, (stored,))
                    came_from.setdefault(stored, source)
            sources.append(stored)
        made[node] = node.over(tuple(sources))
        came_from.setdefault(made[node], node)
    return made[sink], came_from


def _has_older(newer: int, needs: int, versions: Sequence[UOp], older: Mapping[UOp, int]) -> bool:
    """Whether among the versions `needs` there is an older one of memory than one of `newer`."""
    while newer:
        number = newer.bit_length() - 1
        if needs & older.get(versions[number], 0):
            return True
        newer ^= 1 << number
    return False
