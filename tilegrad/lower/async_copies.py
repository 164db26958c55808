"""Copies from global to shared memory that go on while a lane computes.

Where a fill of a tile stores its own load, one instruction does both, and no register holds the
elements meanwhile. The lane waits before the barrier behind which others read them, and before no
other one: until then the copies go on.

    before   BARRIER(k); STORE(AFTER(shared, BARRIER), i, LOAD(a, j))
    after    BARRIER(WAIT, k); COPY_ASYNC(AFTER(shared, BARRIER), i, LOAD(a, j))

A barrier that separates n tiles, as its `arg` says, comes n - 1 tiles after the copies of the one
that is read behind it: those of the n - 2 tiles between need not have landed (WAIT's `arg`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import is_const, memory_of, shortened_memories
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.uop import UOp
from tilegrad.target import TILES, Target

__all__ = ["use_async_copies"]

# Bytes that one copy may have.
_SIZES = (4, 8, 16)


def use_async_copies(ast: UOp, target: Target) -> UOp:
    """`ast` with such stores as COPY_ASYNC, and a WAIT before each barrier that they need."""
    nodes = ast.toposort()
    users = Counter(source for node in nodes for source in node.src)
    shortened = shortened_memories(nodes)
    moves = [
        node
        for node in nodes
        if node.op is Ops.STORE and _is_copy(node) and memory_of(node.src[0]) not in shortened
    ]
    # A load may fill several tiles, as where keys are values; nothing else may want it.
    times = Counter(node.value for node in moves)
    copies = {node for node in moves if users[node.value] == times[node.value]}
    if not copies:
        return ast
    barriers = _barriers(nodes, {memory_of(store.src[0]) for store in copies})

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in copies:
            return UOp(Ops.COPY_ASYNC, dtypes.void, src)
        if node in barriers:
            wait = UOp(Ops.WAIT, dtypes.void, src, node.arg - TILES if node.arg else None)
            return UOp(Ops.BARRIER, dtypes.void, (wait, *src), node.arg)
        return None

    return rebuilt(ast, change, (Ops.STORE, Ops.BARRIER))


def _is_copy(store: UOp) -> bool:
    """Whether a store to a tile only moves a loaded value, or zeros."""
    value = store.value
    if value.op is not Ops.LOAD or store.index.dtype.lanes > 1:
        return False
    pointers = [memory_of(pointer).dtype for pointer in (store.src[0], value.src[0])]
    spaces = [each.space for each in pointers if isinstance(each, Pointer)]
    if spaces != [AddressSpace.SHARED, AddressSpace.GLOBAL]:
        return False
    if value.dtype.nbytes not in _SIZES or value.index.dtype.lanes > 1:
        return False
    return not value.is_gated or is_const(value.other, 0)


def _barriers(nodes: Iterable[UOp], memories: Collection[UOp]) -> set[UOp]:
    """The barriers behind which `memories` are read; all of them, where a load names none."""
    found: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.LOAD and memory_of(node.src[0]) in memories:
            pointer, own = node.src[0], set[UOp]()
            while pointer.op is Ops.AFTER:
                own |= {source for source in pointer.src[1:] if source.op is Ops.BARRIER}
                pointer = pointer.src[0]
            if not own:
                return {each for each in nodes if each.op is Ops.BARRIER}
            found |= own
    return found
