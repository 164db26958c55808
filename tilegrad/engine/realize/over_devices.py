"""Graphs of several devices: run as one graph per device, with copies between these.

Nodes of the user's graph have the shape of the whole value. `schedule.shard` says what each device
computes of them; those graphs run as any other, in one schedule, and their memory together is the
value's. Questions about all tensors alive, such as who needs a value that is overwritten, are asked
of the user's graph before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilegrad.engine.realize.request import Request
from tilegrad.engine.run import group_memory
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement
from tilegrad.ir.queries import base_of, below_views, device_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["has_groups", "placement_of", "run_over_devices"]

_WRITTEN = (Ops.ASSIGN, Ops.AFTER)
Memory = dict[UOp, UOp]


def has_groups(roots: Sequence[UOp], known: Callable[[UOp], UOp | None]) -> bool:
    """Whether a value that has to be computed for `roots` is on several devices; `known` gives the
    memory of computed nodes.
    """
    for node in toposort(roots, stop=known):
        if node.op is Ops.SHARD:
            return True
        if node.op is Ops.BUFFER and isinstance(node.arg.device, Group):
            return True
        if node.op is Ops.CONTIGUOUS and isinstance(node.arg, Group):
            return True
        if node.stored is not None and isinstance(device_of(known(node) or node), Group):
            return True
    return False


def placement_of(node: UOp, known: Callable[[UOp], UOp | None]) -> Placement | None:
    """The placement of a value of several devices; None for a value of a single device."""
    from tilegrad.schedule.shard import Shards

    shards = Shards(known, group_memory.children_of)
    shards.add(node)
    return shards.placements.get(node)


def run_over_devices(
    request: Request,
    wanted: Sequence[UOp],
    known: Callable[[UOp], UOp | None],
    remember: Callable[[UOp, UOp], None],
    run: Callable[[list[UOp]], Memory],
) -> Memory:
    """Compute `wanted`, whose graphs `request` has, and give the memory of each.

    `run` computes nodes of single devices and gives the memory of each that could be computed,
    `remember` notes the memory of an assignment.
    """
    from tilegrad.schedule.shard import Shards

    shards = Shards(known, group_memory.children_of)
    writes = [node for node in request.nodes if node.op in _WRITTEN]
    # The source of another write is asked for by that write: alone, it would be copied aside.
    earlier = {below_views(write.src[0]) for write in writes}
    stored: dict[UOp, list[UOp | None]] = {}
    for root in (*wanted, *writes):
        shards.add(root)
    for write in writes:
        if write not in earlier:
            is_ours = write in shards.placements
            stored[write] = shards.of(write) if is_ours else [shards.plain[write]]
    for root in wanted:
        if root in stored or below_views(root).op in _WRITTEN:
            continue
        if root in shards.placements:
            stored[root] = shards.stored(root)
        else:
            stored[root] = [_own(root, shards.plain[root])]
    asked = dict.fromkeys([each for found in stored.values() for each in found if each is not None])
    memory = run([*asked])
    for write in writes:
        if write not in shards.placements and shards.plain[write] in memory:
            remember(write, memory[shards.plain[write]])
    groups = [write for write in writes if write in shards.placements]
    _note_writes(groups, stored, memory, remember, known)
    done: Memory = {}
    for root in wanted:
        if root not in stored or root.op in _WRITTEN:
            found = known(root) if root.op in _WRITTEN else _moved(root, known)
            if found is not None:
                done[root] = found
            continue
        shares = [None if each is None else memory.get(each) for each in stored[root]]
        if any(each is not None and share is None for each, share in zip(stored[root], shares)):
            # It needs a value that is gone: for its own reader to hear of.
            continue
        if root in shards.placements:
            own = _apart(shares, run)
            placement = shards.placements[root]
            done[root] = group_memory.over_shards(placement, own, root.shape, root.dtype)
        else:
            (share,) = shares
            assert share is not None
            done[root] = share
    return done


def _own(root: UOp, node: UOp) -> UOp:
    """The node that is computed for a root of a single device, in memory of its own: the root may
    be the shard of another value.
    """
    if node is root or node.op in (Ops.COPY, Ops.CONTIGUOUS, *_WRITTEN):
        return node
    return UOp(Ops.CONTIGUOUS, node.dtype, (node,))


def _apart(shares: Sequence[UOp | None], run: Callable[[list[UOp]], Memory]) -> list[UOp | None]:
    """Memory that is no other value's: of equal shards there is one."""
    found: list[UOp | None] = []
    for share in shares:
        if share is not None and group_memory.is_child(base_of(share)):
            copy = UOp(Ops.CONTIGUOUS, share.dtype, (share,))
            share = run([copy])[copy]
        found.append(share)
    return found


def _note_writes(
    writes: Sequence[UOp],
    stored: Mapping[UOp, Sequence[UOp | None]],
    memory: Mapping[UOp, UOp],
    remember: Callable[[UOp, UOp], None],
    known: Callable[[UOp], UOp | None],
) -> None:
    """After the run: memory of several devices that was written to has a new leaf, which is where
    the assignments are found.
    """
    children: dict[UOp, list[UOp | None]] = {}
    base: dict[UOp, UOp] = {}
    for write in writes:
        below = below_views(write.src[0])
        if below not in base:
            base[below] = _leaf(below, known)
        leaf = base[write] = base[below]
        own = children.setdefault(leaf, [*group_memory.children_of(leaf)])
        for number, shard in enumerate(stored.get(write, ())):
            if shard is not None and shard in memory:
                own[number] = base_of(memory[shard])
    fresh = {leaf: group_memory.overwrite(leaf, own) for leaf, own in children.items()}
    for write in writes:
        chain: list[UOp] = []
        node = write.src[0]
        while node.op.is_movement or node.op is Ops.DETACH:
            if node.op.is_movement:
                chain.append(node)
            node = node.src[0]
        if node.op is Ops.BUFFER:
            found = fresh[node]
        else:
            memory_before = known(node)
            assert memory_before is not None
            found = memory_before.substitute(fresh)
        for step in reversed(chain):
            found = UOp(step.op, step.dtype, (found,), step.arg)
        remember(write, found)


def _leaf(version: UOp, known: Callable[[UOp], UOp | None]) -> UOp:
    """The leaf of a version: memory itself, or the memory of its computed value."""
    memory = version if version.op is Ops.BUFFER else known(version)
    assert memory is not None
    return base_of(memory)


def _moved(root: UOp, known: Callable[[UOp], UOp | None]) -> UOp | None:
    """The memory of a view of a written value."""
    version = below_views(root)
    found = known(version)
    return None if found is None else root.substitute({version: found})
