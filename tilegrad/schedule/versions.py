"""Old values of memory that is overwritten: kept aside where they are needed beside newer ones.

An assignment makes a new version of its memory. A kernel may read one version, and runs before the
next is written; a value that needs an old version and, by whatever way, a newer one too cannot. So
there, what comes of the old version is computed into memory of its own:

before   ADD(MUL(BUFFER, 2), ASSIGN(BUFFER, ...))
after    ADD(CONTIGUOUS(MUL(BUFFER, 2)), ASSIGN(BUFFER, ...))
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort

__all__ = ["keep_old_versions", "overwritten_by", "writer_of"]


def overwritten_by(assign: UOp) -> UOp:
    """The version of its memory, an ASSIGN or a BUFFER, that `assign` overwrites."""
    place = assign.src[0]
    while place.op.is_movement:
        place = place.src[0]
    return writer_of(place)


def writer_of(version: UOp) -> UOp:
    """What made a version of some memory: for an AFTER its ASSIGN, else the version itself."""
    return version.src[1] if version.op is Ops.AFTER else version


def keep_old_versions(sink: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph with old versions kept aside, and for each node of it the one it came from."""
    nodes = toposort([sink])
    came_from = {node: node for node in nodes}
    versions = [node for node in nodes if node.op in (Ops.BUFFER, Ops.ASSIGN)]
    if len(versions) == 0 or all(node.op is Ops.BUFFER for node in versions):
        return sink, came_from
    # Sets of versions are bits of an integer: these are few, and the nodes many.
    bit = {node: 1 << place for place, node in enumerate(versions)}
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
        for place, source in enumerate(node.src):
            kept = made[source]
            newer = all_needs & assigned & ~needs[source] & ~bit.get(node, 0)
            is_target = node.op in (Ops.ASSIGN, Ops.AFTER) and place == 0
            if newer and node.op is not Ops.SINK and not is_target:
                if any(newer & bit[other] and needs[source] & old for other, old in older.items()):
                    kept = UOp(Ops.CONTIGUOUS, kept.dtype, (kept,))
                    came_from.setdefault(kept, source)
            sources.append(kept)
        made[node] = node if tuple(sources) == node.src else node.replace(src=tuple(sources))
        came_from.setdefault(made[node], node)
    return made[sink], came_from
