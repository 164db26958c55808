"""Which tensors are alive, and which of them hold a node: an index that the one setter of a
tensor's node maintains, so that no search for those of a graph walks all tensors.

A node knows the tensors that hold it (`UOp.holders`, weak references). An entry that is out of date
is harmless: a tensor counts only while it holds the node. A tensor is *young* until a run that
writes to memory has seen it: then its graph is put into the index of users (`engine.run.users`), by
which such a run finds who stands on that memory.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from types import MethodType
from typing import Any

from tilegrad.engine.run.leaf_memory import by_slot
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "Handle", "Owner", "Some", "by_identity", "ends", "enter", "forget", "generations", "hold",
    "hold_also", "holders_of", "leave", "live", "older_leaves", "owners", "pools", "promote",
    "with_gradient", "with_nodes", "with_nodes_made", "with_variables", "young",
]  # fmt: skip

# Tensors by identity: a tensor compares element by element, so it is no key itself.
_young: dict[int, weakref.ref[Any]] = {}
_old: dict[int, weakref.ref[Any]] = {}
_lock = threading.Lock()
# For the one who makes tensors.
by_identity, forget = _young, _young.pop

# Values that were assigned to leaves that require a gradient: none flows on from them.
ends: weakref.WeakSet[UOp] = weakref.WeakSet()
# Nodes of leaves that require a gradient, from before they took another value.
older_leaves: weakref.WeakSet[UOp] = weakref.WeakSet()
# The number of runs between a computed value and memory that has no graph, by the value. One that
# requires a gradient counts as such memory, as its graph lives as long as itself.
generations: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()


class Some:
    """Some of the tensors alive, by identity."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, tensor: Any) -> None:
        number, references = id(tensor), self._references
        if number not in references:
            references[number] = weakref.ref(tensor, MethodType(references.pop, number))

    def discard(self, tensor: Any) -> None:
        self._references.pop(id(tensor), None)

    @property
    def references(self) -> dict[int, weakref.ref[Any]]:
        """Weak references to them: none is dead for long."""
        return self._references

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[Any]:
        found = [reference() for reference in list(self._references.values())]
        return iter([tensor for tensor in found if tensor is not None])


# Those that were given a gradient, and those that were given values of variables, at some time.
with_gradient = Some()
with_variables = Some()


class Handle(weakref.ref[Any]):
    """A weak reference to the tensor of a call. Two of one tensor are two: a plain reference is
    compared by what it refers to, and tensors compare element by element. It has a callback, or
    CPython 3.11 crashes where it dies shortly before its tensor, in one long chain of objects.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class Owner(weakref.ref[Any]):
    """A weak reference to a tensor, and the thread that it belongs to: what two threads lend each
    other, one would write while the other reads. It has a callback, as a `Handle` has.
    """

    __slots__ = ("thread",)

    def __new__(cls, tensor: Any) -> Owner:
        """The reference; what is called as its tensor dies does nothing."""
        return super().__new__(cls, tensor, id)

    def __init__(self, tensor: Any):
        # The reference itself is made by __new__.
        self.thread = threading.get_ident()


class _Owners:
    """Owners by leaf, a BUFFER: an entry goes with its leaf. No other node has one."""

    __slots__ = ("_by_slot",)

    def __init__(self) -> None:
        self._by_slot: dict[int, Owner] = by_slot()

    def get(self, node: UOp) -> Owner | None:
        return self._by_slot.get(node.arg.slot) if node.op is Ops.BUFFER else None

    def __getitem__(self, leaf: UOp) -> Owner:
        return self._by_slot[leaf.arg.slot]

    def __setitem__(self, leaf: UOp, owner: Owner) -> None:
        self._by_slot[leaf.arg.slot] = owner

    def setdefault(self, leaf: UOp, owner: Owner) -> Owner:
        return self._by_slot.setdefault(leaf.arg.slot, owner)

    def __contains__(self, node: UOp) -> bool:
        return node.op is Ops.BUFFER and node.arg.slot in self._by_slot


# Which tensor the memory of a leaf was computed for; another one of equal value, of the same
# thread, only borrows it.
owners = _Owners()

# The calls of each thread whose nodes are not made yet (`tensor.handle.waiting`).
pools = Some()
every_pool = pools.references


def with_nodes_made() -> None:
    """Let every tensor have its node."""
    for reference in [*every_pool.values()]:
        pool = reference()
        if pool is not None and pool.has_new:
            pool.expand()


def live() -> Iterator[Any]:
    """Every tensor that someone still holds."""
    with_nodes_made()
    yield from with_nodes()


def with_nodes() -> Iterator[Any]:
    """Every tensor that someone still holds and whose node is made."""
    # The young ones first: a run in another thread may make them old meanwhile.
    young = _young.copy()
    for reference in (_old | young).values():
        tensor = reference()
        if tensor is not None:
            yield tensor


def young() -> list[Any]:
    """The tensors alive whose node is newer than the last run that looked at all of these."""
    with_nodes_made()
    return [tensor for each in list(_young.values()) if (tensor := each()) is not None]


def enter(tensor: Any, node: UOp) -> None:
    """Note that `tensor` holds `node` from now on."""
    number = id(tensor)
    # Called while the tensor goes, before its number may be another's, as _young.pop(number, _).
    reference = _young[number] = weakref.ref(tensor, MethodType(_young.pop, number))
    # No other thread comes between these two lines: the interpreter switches at calls only.
    if node.holders is None:
        node.holders = reference
    else:
        hold_also(node, reference)


def hold(tensor: Any, node: UOp) -> None:
    """As `enter`, of a tensor that held another node before."""
    _old.pop(id(tensor), None)
    enter(tensor, node)


def leave(tensor: Any, node: UOp) -> None:
    """Note that `tensor` holds `node` no more, nor any other so far."""
    number = id(tensor)
    _old.pop(number, None)
    _young.pop(number, None)
    with _lock:
        found = node.holders
        if isinstance(found, list):
            found[:] = [each for each in found if each() is not tensor]
        elif found is not None and found() is tensor:
            node.holders = None


def promote(tensor: Any, node: UOp) -> None:
    """Say that `node`, the graph of `tensor`, is in the index of users: it is young no more."""
    number = id(tensor)
    # First, so that at no moment it is in neither.
    reference = weakref.ref(tensor, MethodType(_old.pop, number))
    _old[number] = reference
    if _young.pop(number, None) is None:
        _old.pop(number, None)
    if tensor.uop is not node:
        # Its own thread has given it another one meanwhile, which was not looked at.
        hold(tensor, tensor.uop)


def hold_also(node: UOp, reference: weakref.ref[Any]) -> None:
    """Add a second or further tensor to those that hold `node`."""
    with _lock:
        found = node.holders
        if not isinstance(found, list):
            node.holders = reference if found is None or found() is None else [found, reference]
            return
        found.append(reference)
        # At powers of two, so that the dead never outnumber the living by much.
        if len(found) >= 16 and not len(found) & (len(found) - 1):
            found[:] = [
                each for each in found if (tensor := each()) is not None and _has(tensor, node)
            ]


def _has(tensor: Any, node: UOp) -> bool:
    """Whether `node` is that of a tensor now. One whose call waits is not asked for its node: it
    would be made, and noted in the block that asks.
    """
    call = tensor._call
    return (tensor._node if call is None else call.node) is node


def holders_of(node: UOp) -> list[Any]:
    """The tensors alive that hold `node`."""
    found = node.holders
    if found is None:
        return []
    if not isinstance(found, list):
        tensor = found()
        return [tensor] if tensor is not None and tensor.uop is node else []
    references = list(found)
    tensors = {id(tensor): tensor for each in references if (tensor := each()) is not None}
    return [tensor for tensor in tensors.values() if tensor.uop is node]
