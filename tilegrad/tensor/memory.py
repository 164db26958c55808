"""Where tensors meet the engine: memory for new ones, running what is pending, reading values.

A tensor with a symbolic size has memory for the Variable's maximum, and is a window of it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.dtype import DType
from tilegrad.device.registry import Device
from tilegrad.engine import memory as store
from tilegrad.engine import realize as engine
from tilegrad.engine.request import Request
from tilegrad.engine.run import current_recording
from tilegrad.engine.users import above
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, sint, toposort
from tilegrad.runtime.buffer import address_of
from tilegrad.tensor import past
from tilegrad.tensor.aliases import hold, same_storage
from tilegrad.tensor.core import compute
from tilegrad.tensor.graphs import forgotten, graphs
from tilegrad.tensor.living import (
    grown_up,
    holders_of,
    live,
    with_gradient,
    with_variables,
    young,
)  # fmt: skip
from tilegrad.tensor.sizes import NO_VARIABLES, Variables, are_plain, simple
from tilegrad.tensor.tracing import is_transforming

__all__ = [
    "Owner", "base_of", "become_memory", "bound", "empty", "expose", "fixed", "follow",
    "from_host", "has_assignment", "is_in_order", "is_row_major", "is_shared", "is_sole",
    "is_stored", "is_superseded",
    "is_view", "is_whole", "is_written", "leave_out_overwritten", "lend", "looks_at", "moves_of",
    "note_past", "number_in", "over", "owned", "owners", "place_of", "put_off", "read", "run",
    "settle",
    "share", "sizes_in", "stored_below", "supersede", "unwritten", "version_of",
    "writes_before",
]  # fmt: skip


class Owner(weakref.ref[Any]):
    """A weak reference to a tensor, and the thread that it belongs to: what two threads lend each
    other, one would write while the other reads.
    """

    __slots__ = ("thread",)

    def __init__(self, tensor: Any):
        # The reference itself is made by __new__.
        self.thread = threading.get_ident()


# Which tensor the memory of a leaf was computed for; another one of equal value, of the same
# thread, only borrows it.
owners: weakref.WeakKeyDictionary[UOp, Owner] = weakref.WeakKeyDictionary()
# Versions of memory that an assignment, run or not, goes on from.
_superseded: weakref.WeakSet[UOp] = weakref.WeakSet()
# The values of variables in the graphs of assignments that wait to run, by their outcome.
_waiting: weakref.WeakKeyDictionary[UOp, Variables] = weakref.WeakKeyDictionary()
# An ASSIGN is its target once that was written; AFTER is memory once a part of it was.
_WRITTEN = (Ops.ASSIGN, Ops.AFTER)
# Through these a tensor that is not memory looks at a value without a copy.
_FREE = frozenset({
    Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.DETACH, Ops.FLIP, Ops.PAD
})  # fmt: skip
# Memory, and what is remembered as it runs.
_NEVER_KEPT = frozenset({
    Ops.BUFFER, Ops.CONST, Ops.COPY, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.PART, Ops.BIND
})  # fmt: skip
# How many runs stand between a kept value and memory that has no graph, by the value.
_generation: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
# So many of them, and no more, hold the memory of earlier states.
_MOST_GENERATIONS = 4
# Nodes that unpack a block of quantized weights, at most (io/quantized.py).
_MOST_UNPACKING = 512
_REINTERPRETING = (Ops.CAST, Ops.BITCAST, Ops.DETACH)
# A run keeps no more bytes than these of what nobody asked for.
_MOST_KEPT = 1 << 29


def _largest(shape: Sequence[sint]) -> tuple[int, ...]:
    if are_plain(shape):
        return tuple(shape)  # type: ignore[arg-type]
    # Simplified, as the bounds of (n + 1) - n are not those of 1.
    sizes = [simple(size) for size in shape]
    return tuple(size if isinstance(size, int) else int(size.vmax) for size in sizes)


def _shaped(node: UOp, shape: tuple[sint, ...]) -> UOp:
    """The flat `node` in `shape`; a window of it where a size is symbolic."""
    whole = _largest(shape)
    if node.shape != whole:
        node = UOp(Ops.RESHAPE, node.dtype, (node,), whole)
    if whole != shape:
        node = UOp(Ops.SHRINK, node.dtype, (node,), tuple((0, size) for size in shape))
    return node


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def empty(device: str, dtype: DType, shape: tuple[sint, ...]) -> UOp:
    """New memory of `shape` on `device`, holding whatever it holds."""
    return _shaped(store.empty(device, dtype, _elements(_largest(shape))), shape)


def from_host(device: str, dtype: DType, data: bytes | memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape`, on the host and on their way to `device`."""
    node = store.buffer_from_host("HOST", dtype, data, _elements(shape))
    if device != "HOST":
        node = compute(Ops.COPY, dtype, (node,), device)
    return _shaped(node, shape)


def over(device: str, dtype: DType, data: memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape` in memory of somebody else, which is read in place and never written
    to: by `device` itself where it reaches the host's memory, else on their way to it.
    """
    is_aligned = not address_of(data) % dtype.itemsize
    if is_aligned and device != "HOST" and Device[device].runtime.wrap(data) is not None:
        node = store.buffer_from_host(device, dtype, data, _elements(shape), is_fixed=True)
        return _shaped(node, shape)
    return from_host(device, dtype, data, shape)


def owned(node: UOp, device: str) -> UOp:
    """`node` written to memory of its own, so that it is one tensor's own."""
    return compute(Ops.ASSIGN, node.dtype, (empty(device, node.dtype, node.shape), node))


def base_of(node: UOp) -> UOp:
    """What a chain of movement ops, and of assignments that wait to run, is a view of."""
    written: UOp | None = None
    while True:
        if node.op.is_movement or node.op is Ops.DETACH:
            node = node.src[0]
        elif node.op in _WRITTEN:
            known = _bases.get(node)
            if known is not None:
                node = known
                break
            written = written or node
            node = node.src[0]
        else:
            break
    if written is not None:
        _bases[written] = node
    return node


# By assignments, what they write to: a chain of them may be long.
_bases: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
# Those whose elements are one element of memory each.
_views: weakref.WeakSet[UOp] = weakref.WeakSet()


def version_of(view: UOp) -> UOp:
    """What the view `view` of memory looks at: a BUFFER, or what is one once it was written to."""
    while view.op.is_movement or view.op is Ops.DETACH:
        view = view.src[0]
    return view


def supersede(version: UOp, *, is_so: bool = True) -> None:
    """Say that an assignment goes on from `version`: who still looks at it will be given a copy,
    and is not seen by others any more.
    """
    if is_so:
        _superseded.add(version)
    else:
        _superseded.discard(version)


def is_superseded(view: UOp) -> bool:
    """Whether `view` looks at a version of memory that an assignment goes on from."""
    return version_of(view) in _superseded


def put_off(version: UOp, variables: Variables) -> None:
    """Keep the values of variables in the graph of an assignment, of which `version` is the
    outcome, for when it runs.
    """
    if variables:
        _waiting[version] = variables


def writes_before(version: UOp) -> int:
    """How many assignments to parts of the memory have yet to run for `version`."""
    count = 0
    while version.op is Ops.AFTER and engine.realized(version) is None:
        version, count = version_of(version.src[0]), count + 1
    return count


def place_of(view: UOp) -> UOp:
    """The view of memory `view`, of which only the place counts, without DETACH."""
    chain: list[UOp] = []
    node = view
    while node.op.is_movement or node.op is Ops.DETACH:
        chain.append(node)
        node = node.src[0]
    for step in reversed(chain):
        node = node if step.op is Ops.DETACH else UOp(step.op, step.dtype, (node,), step.arg)
    return node


def is_view(node: UOp) -> bool:
    """Whether each element of `node` is one element of memory, so that it can be written to."""
    written: UOp | None = None
    while node.op is not Ops.BUFFER:
        if node.op not in _ONE_TO_ONE:
            return False
        if node.op in _WRITTEN:
            if node in _views:
                break
            written = written or node
        node = node.src[0]
    if written is not None:
        _views.add(written)
    return True


def unwritten(view: UOp) -> UOp:
    """`view`, but for its last assignment if that wrote all of the memory and has not run."""
    version = version_of(view)
    if version.op is not Ops.ASSIGN or engine.realized(version) is not None:
        return view
    return view.substitute({version: version.src[0]})


def is_whole(node: UOp) -> bool:
    """Whether the view `node` has all elements of its memory; a symbolic size counts as its
    maximum.
    """
    size: int = base_of(node).arg.size
    return _elements(_largest(node.shape)) == size


_ONE_TO_ONE = frozenset({
    Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.DETACH, Ops.ASSIGN, Ops.AFTER
})  # fmt: skip


def run(roots: list[UOp], variables: Variables, but: Collection[Any] = ()) -> list[UOp]:
    """As `_run`; parameters below that are not memory yet are computed in a run of their own,
    before: then the first step of a training program is the same graph as the second.
    """
    # Who looks at what a run wrote is told before another thread's run looks for these.
    with engine.exclusive():
        return _run_in_order(roots, variables, but)


def _run_in_order(roots: list[UOp], variables: Variables, but: Collection[Any]) -> list[UOp]:
    asked = {id(tensor) for tensor in but}
    waiting = [
        tensor
        for tensor in young()
        if tensor._is_leaf and tensor._requires_grad and not tensor._variables
        if id(tensor) not in asked
        if not is_stored(tensor.uop) and not tensor.uop.is_constant
    ]
    if waiting and keeps():
        below = toposort(roots, stop=lambda node: node.stored is not None)
        first = [each for each in waiting if each.uop in below]
        wanted = [stored_below(tensor.uop, tensor.device) for tensor in first]
        for tensor, root, stored in zip(first, wanted, _run(wanted, {}, first) if first else ()):
            if is_written(tensor.uop):
                follow(tensor)
            else:
                become_memory(tensor, root, stored)
    return _run(roots, variables, but)


def keeps() -> bool:
    """Whether runs store what nobody asked for: not those of a capture, whose results alone count,
    not the plain plan, and not what a transformed function asks for.
    """
    record = current_recording()
    is_captured = record is not None and record.known is not None
    return not (is_captured or config.NOOPT or is_transforming())


def _run(roots: list[UOp], variables: Variables, but: Collection[Any] = ()) -> list[UOp]:
    """Compute `roots` now; each result is [a view of] a buffer that holds its value.

    Live tensors that still need what is overwritten get its old value. Those whose memory is
    overwritten look at it as it is then, except the tensors `but`, whose caller sees to that.
    """
    values = _values(roots, dict(variables))
    others = _Others(values)
    results = engine.realize(roots, values, others)
    excluded = {id(tensor) for tensor in but}
    others.look_again(excluded)
    others.stand_on_passing(roots)
    others.stand_on_memory(roots, excluded)
    return results


def become_memory(tensor: Any, root: UOp, stored: UOp) -> None:
    """Let `tensor`, which is [a view of] the value `root`, be the same of the memory `stored` that
    holds it now.
    """
    node, base = tensor.uop, base_of(stored)
    # A constant graph was wrapped to say its device: then it is not below the node.
    result = stored if root is node or node.is_constant else node.substitute({root: stored})
    reference = owners.get(base)
    owner = None if reference is None else reference()
    if reference is None:
        owners[base] = Owner(tensor)
    elif owner is not tensor and reference.thread != threading.get_ident():
        tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
        hold(tensor, _apart(tensor, result), is_computed=True)
        return
    elif owner is None or not same_storage(owner, tensor):
        tensor._is_shared = True
    tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
    # A value that was looked at can still be differentiated, and so can what is made of it.
    if tensor._requires_grad and not tensor._is_leaf:
        is_a_leafs = root is not node and settle(root, stored)
        if is_a_leafs:
            tensor._is_shared = False
        elif stored.op is Ops.BUFFER or (stored.op is Ops.RESHAPE and stored.src[0] is base):
            graphs[base] = root
    hold(tensor, result, is_computed=root is node or node.is_constant)


def note_past(computed: Mapping[UOp, UOp]) -> None:
    """Note, before the graphs of `computed` values are given back, what they were computed from; by
    value, [movement of] the memory that holds it.
    """
    past.note({root: base_of(stored) for root, stored in computed.items()})


def _apart(tensor: Any, stored: UOp) -> UOp:
    """Memory of its own for a tensor whose value another thread's has too."""
    (own,) = run([owned(stored, tensor.device)], tensor._variables)
    owners[base_of(own)] = Owner(tensor)
    if not tensor._requires_grad:
        note_past({tensor.uop: own})
    elif not tensor._is_leaf and own.op is Ops.BUFFER:
        graphs[own] = tensor.uop
    return own


class _Others(engine.Others):
    """The tensors alive that a run meets, though nobody asked for them."""

    def __init__(self, values: Variables):
        self.values = values
        # What a tensor that looks at memory about to be overwritten needs.
        self.lookers: dict[int, tuple[Any, UOp]] = {}
        self.request: Request | None = None
        # What the run keeps though nobody asked for it.
        self.kept: list[UOp] = []
        self.request_numbers: Collection[UOp] | None = None
        # What depends on variables, of their values in this run.
        self.passing: Mapping[UOp, UOp] = {}

    def held(self, request: Request) -> Iterable[UOp]:
        """The values on the way that somebody holds, or will need."""
        if not keeps():
            return ()
        self._index_young(request, [id(tensor.grad) for tensor in with_gradient])
        needed = self._needed(request)
        if not needed:
            return ()
        left = _MOST_KEPT
        wanted = {_below_views(request.nodes[number]) for number in request.roots}
        kept: dict[UOp, None] = {}
        for node in request.nodes:
            if node not in needed:
                continue
            root = _below_views(node)
            if root in kept or root.op in _NEVER_KEPT or root.is_constant or is_stored(root):
                continue
            if root in wanted or _is_cheap(root, kept) or _is_unpacked(root):
                continue
            # A window of memory is memory: an assignment to it would find its copy instead.
            if version_of(root).op in _NEVER_KEPT:
                continue
            size = _elements(_largest(root.shape)) * root.dtype.itemsize
            if 0 < size <= left:
                left -= size
                kept[root] = None
        self.kept = list(kept)
        self.request_numbers = request.numbers
        return kept

    def _needed(self, request: Request) -> set[UOp]:
        """The nodes of `request` that a tensor alive is, or is to be computed from and not by this
        run.
        """
        numbers = request.numbers
        outside: dict[UOp, None] = {}
        # A constant costs nothing to whoever needs it.
        stack = [node for node in request.nodes if node.users and node.op is not Ops.CONST]
        while stack:
            for reference in stack.pop().users or ():
                user = reference()
                if user is None or user in numbers or user in outside:
                    continue
                if engine.realized(user) is None:
                    outside[user] = None
                    stack.append(user)
        roots = {request.nodes[number] for number in request.roots}
        found = {
            node
            for node in request.nodes
            if (holder := node.holders) is not None
            if (holder.__class__ is list or holder() is not None) and node.op not in _NEVER_KEPT
            if node not in roots and self._holds(node)
        }
        stack = [node for node in outside if self._holds(node)]
        seen = set(stack)
        while stack:
            for source in stack.pop().src:
                if source in numbers:
                    found.add(source)
                elif source in outside and source not in seen:
                    seen.add(source)
                    stack.append(source)
        return found

    def _holds(self, node: UOp) -> bool:
        """Whether a tensor alive is `node`, of the values of variables that the run has."""
        for tensor in holders_of(node):
            if not tensor._symbols or _agree(tensor._symbols, self.values):
                return True
        return False

    def _index_young(self, request: Request, but: Collection[int] = ()) -> None:
        """Put the graphs of young tensors into the index, but for what `request` computes: mostly
        that is memory after the run.
        """
        for tensor in young():
            node = tensor.uop
            if node not in request.numbers and id(tensor) not in but:
                engine.index(node)
                grown_up(tensor, node)

    def standing_on(self, memory: Collection[UOp], request: Request) -> Iterable[UOp]:
        self.request = request
        self._index_young(request)
        found: dict[int, Any] = {id(tensor): tensor for tensor in young()}
        for node in engine.users_of(memory):
            found |= {id(tensor): tensor for tensor in holders_of(node)}
        needed: list[UOp] = []
        for number, tensor in found.items():
            node = tensor.uop
            if is_stored(node):
                node = UOp(Ops.CONTIGUOUS, node.dtype, (node,)) if node.op is Ops.BUFFER else node
                self.lookers[number] = tensor, node
            needed.append(node)
        return needed

    def beside(self) -> Iterable[UOp]:
        """The gradients that wait to be computed: a loss that is looked at before shares its
        graph.
        """
        grads = [tensor.grad for tensor in with_gradient if tensor.grad is not None]
        return [grad.uop for grad in grads if not is_stored(grad.uop) and not grad.uop.is_constant]

    def computed(self, memory: Mapping[UOp, UOp]) -> None:
        self.passing = memory

    def stand_on_passing(self, roots: Collection[UOp]) -> None:
        """After the run: of what depends on variables, give each tensor whose values of them are
        those of the run the memory of its own value; for `roots` the caller does so.
        """
        for node, stored in self.passing.items():
            if node not in roots:
                for tensor in holders_of(node):
                    if _agree(tensor._variables, self.values):
                        become_memory(tensor, node, stored)

    def stand_on_memory(self, roots: Iterable[UOp], excluded: Collection[int]) -> None:
        """After the run: of what it kept, tensors have the memory instead of the graph below. But
        for the first few runs that follow one another they keep their graphs, so that a gradient
        can still be asked for.
        """
        if not self.kept or self.request_numbers is None:
            return
        values = [*self.kept, *[root for root in roots if root.op not in _NEVER_KEPT]]
        memory = {value: kept for value in values if (kept := engine.realized(value))}
        last = max([_generation.get(node, 0) for node in self.request_numbers], default=0)
        if last + 1 < _MOST_GENERATIONS:
            _generation.update(dict.fromkeys(memory, last + 1))
            return
        found = {id(tensor): tensor for tensor in young()}
        for node in above(memory, lambda node: False):
            found |= {id(tensor): tensor for tensor in holders_of(node)}
        whole: list[tuple[Any, UOp]] = []
        above_memory: list[tuple[Any, dict[UOp, UOp]]] = []
        lost: dict[UOp, UOp] = {}
        for number, tensor in found.items():
            node = tensor.uop
            if node.op is Ops.BUFFER or number in excluded:
                continue
            root = _below_views(node)
            if root in memory:
                whole.append((tensor, root))
                if not tensor._requires_grad:
                    lost[root] = memory[root]
            elif not tensor._requires_grad and engine.realized(node) is None:
                computed = engine.computed_below(node)
                above_memory.append((tensor, computed))
                lost |= computed
        note_past(lost)
        for tensor, root in whole:
            become_memory(tensor, root, memory[root])
        for tensor, computed in above_memory:
            hold(tensor, tensor.uop.substitute(computed), is_computed=False)

    def look_again(self, excluded: Collection[int]) -> None:
        """After the run: who looked at memory that was overwritten looks at the copy of what it
        held, and who looks at memory as an assignment leaves it at that memory.
        """
        for tensor, node in self.lookers.values():
            kept = self.passing.get(node) or engine.realized(node)
            if kept is not None and kept is not node:
                is_detached = any(part.op is Ops.DETACH for part in node.toposort())
                kept = UOp(Ops.DETACH, kept.dtype, (kept,)) if is_detached else kept
                hold(tensor, kept, is_computed=True)
                tensor._is_shared = False
        if self.request is None:
            return
        versions = [self.request.nodes[number] for number in self.request.versions]
        found = {id(tensor): tensor for tensor in young()}
        for node in above(versions, lambda node: not _is_view_op(node)):
            found |= {id(tensor): tensor for tensor in holders_of(node)}
        for number, tensor in found.items():
            if tensor.uop.op is not Ops.BUFFER and number not in excluded:
                follow(tensor)


def _below_views(node: UOp) -> UOp:
    """What `node` is a view of that has each of its elements, and no more."""
    while node.op in _FREE:
        node = node.src[0]
    return node


def _is_cheap(node: UOp, kept: Collection[UOp]) -> bool:
    """Whether one operation makes `node` of values that are kept, and of numbers and memory."""
    if not node.op.is_alu and node.op is not Ops.CAST:
        return False
    sources = [_below_views(source) for source in node.src]
    return any(source in kept for source in sources) and all(
        source in kept or source.op in (Ops.CONST, Ops.BUFFER) for source in sources
    )


def _is_unpacked(node: UOp) -> bool:
    """Whether elementwise operations alone make `node` of memory that is never written to, such as
    the quantized weights of a file: a kernel unpacks them as it reads them.
    """
    seen: set[UOp] = set()
    stack = [node]
    while stack and len(seen) < _MOST_UNPACKING:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op is Ops.BUFFER:
            if not store.buffer_of(part).is_fixed:
                return False
        elif part.op is Ops.CONST or part.op.is_alu or part.op in _REINTERPRETING:
            stack += part.src
        elif part.op.is_movement:
            stack.append(part.src[0])
        else:
            return False
    return not stack


def _is_view_op(node: UOp) -> bool:
    return node.op.is_movement or node.op is Ops.DETACH or node.op in _WRITTEN


def _values(roots: list[UOp], values: dict[UOp, int]) -> dict[UOp, int]:
    """`values`, and those of the variables in what has to run for `roots`. What has other values of
    the same variables runs on its own, before.
    """
    holders = [tensor for tensor in with_variables if tensor._variables]
    if not holders and not _waiting:
        return values
    versions = engine.pending(roots)
    if not versions:
        return values
    for version in versions:
        found = _waiting.get(version, NO_VARIABLES)
        if _agree(found, values):
            values.update(found)
        elif engine.realized(version) is None:
            run([version], found)
    nodes = [tensor.uop for tensor in holders]
    late = set(engine.late_readers(roots, nodes)) if holders else ()
    for tensor, node in zip(holders, nodes):
        if node not in late:
            continue
        if _agree(tensor._variables, values):
            values.update(tensor._variables)
        elif tensor.uop is node and engine.realized(node) is None:
            (stored,) = run([node], tensor._variables)
            become_memory(tensor, node, stored)
    return values


def _agree(first: Variables, second: Variables) -> bool:
    return all(second.get(variable, value) == value for variable, value in first.items())


def leave_out_overwritten() -> None:
    """Let the tensors that wait for an assignment be as they were before it, where it needs what
    another thread has overwritten: it can never run, nor what is assigned on top of it.
    """
    for tensor in live():
        node = tensor.uop
        version = version_of(node)
        while version.op in _WRITTEN and engine.realized(version) is None:
            if not any(store.is_overwritten(leaf) for leaf in engine.leaves_below(version)):
                break
            node = node.substitute({version: version.src[0]})
            version = version_of(node)
        if node is not tensor.uop:
            supersede(version, is_so=False)
            hold(tensor, node, is_computed=False)
            follow(tensor)


def is_written(node: UOp) -> bool:
    """Whether `node` looks at memory as an assignment that may not have run leaves it."""
    return version_of(node).op in _WRITTEN


def follow(tensor: Any) -> None:
    """Let a tensor whose memory was written to look at it as it is now, where that is known."""
    node = tensor.uop
    version = version_of(node)
    if version.op not in _WRITTEN:
        return
    stored = engine.realized(node)
    if stored is None:
        found = engine.realized(version)
        if found is None:
            return
        stored = node.substitute({version: found})
    old, fresh = base_of(node), base_of(stored)
    if old in owners and store.is_same(old, fresh):
        owners.setdefault(fresh, owners[old])
    elif node is version or not store.is_same(old, fresh):
        owners.setdefault(fresh, Owner(tensor))
    tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
    hold(tensor, stored, is_computed=False)
    owner = owners.get(fresh)
    # A view is followed like what it looks at, which may be a leaf.
    if tensor._requires_grad and not tensor._is_leaf and owner is not None and owner() is tensor:
        if version.op is Ops.AFTER:
            graphs[fresh] = version
        else:
            forgotten.add(fresh)
    if is_row_major(stored):
        tensor._variables = sizes_in(tensor.shape, tensor._variables)


def settle(root: UOp, stored: UOp) -> bool:
    """Let the tensors that a user made, that require a gradient, and that view the value `root`,
    view the memory `stored` that has it now: gradients of another view reach them there. Whether
    there is one.
    """
    base = base_of(stored)
    found = False
    for tensor in live():
        if not (tensor._requires_grad and tensor._is_leaf) or is_stored(tensor.uop):
            continue
        node = tensor.uop
        if stored_below(node, tensor.device) is root:
            tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
            hold(tensor, node.substitute({root: stored}), is_computed=False)
            owners[base] = Owner(tensor)
            found = True
    return found


def sizes_in(shape: Sequence[sint], variables: Variables) -> Variables:
    """The values of the variables in `shape`: of a tensor in memory, all that it needs."""
    if not variables:
        return variables
    known = {part for size in shape if isinstance(size, UOp) for part in size.toposort()}
    return {key: value for key, value in variables.items() if key in known}


def has_assignment(node: UOp) -> bool:
    """Whether an assignment in the chain down to memory has yet to run."""
    while node.op is not Ops.BUFFER:
        if node.op in _WRITTEN:
            return True
        node = node.src[0]
    return False


class _Probe:
    __slots__ = ("held",)
    held: object


def _references_of_one() -> int:
    """What the count is, seen from a function with a local variable for it, of what one other
    object holds.
    """
    probe = _Probe()
    probe.held = object()
    node = probe.held
    return sys.getrefcount(node)


_ONE = _references_of_one()


def is_sole(tensor: Any) -> bool:
    """Whether nothing but `tensor` stands on its memory: no view, and no graph that waits. The
    caller must hold no node of it.
    """
    node = tensor.uop
    while sys.getrefcount(node) <= _ONE:
        if not node.src:
            return True
        node = node.src[0]
    return False


def is_stored(node: UOp) -> bool:
    """Whether the value is in memory, under whatever index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node.op is Ops.BUFFER


def looks_at(node: UOp, buffer: UOp) -> bool:
    """Whether `node` is `buffer` under some index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node is buffer


def is_in_order(node: UOp) -> bool:
    """Whether the view `node` has the elements of what it looks at in their order."""
    while node.op.is_movement or node.op is Ops.DETACH:
        if node.op in (Ops.PERMUTE, Ops.FLIP):
            return False
        node = node.src[0]
    return True


def is_row_major(node: UOp) -> bool:
    """Whether `node` is all of its memory in its order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER


def moves_of(node: UOp) -> tuple[list[tuple[Ops, Any]], UOp]:
    """The movement ops of a view of memory, in order, and the memory."""
    moves: list[tuple[Ops, Any]] = []
    while node.op is not Ops.BUFFER:
        if node.op is not Ops.DETACH:
            moves.append((node.op, node.arg))
        node = node.src[0]
    return moves[::-1], node


def fixed(node: UOp, variables: Variables) -> UOp:
    """A stored `node` with numbers for the sizes of its movement ops, and nothing else above its
    memory.
    """
    if not variables and is_row_major(node):
        return node
    chain: list[UOp] = []
    while node.op is not Ops.BUFFER:
        chain.append(node)
        node = node.src[0]

    def number(part: Any) -> Any:
        return (
            tuple(number(inner) for inner in part)
            if isinstance(part, tuple)
            else bound(part, variables)
        )

    for step in reversed(chain):
        if step.op is Ops.DETACH:
            continue
        arg = number(step.arg)
        if step.op is not Ops.SHRINK or arg != tuple((0, size) for size in node.shape):
            node = UOp(step.op, step.dtype, (node,), arg)
    return node


def stored_below(node: UOp, device: str) -> UOp:
    """What to compute so that `node` is memory: itself, or the stored value it views."""
    if node.is_constant:
        # No memory below a constant graph says on which device to compute it.
        return (
            node if device == Device.DEFAULT else UOp(Ops.CONTIGUOUS, node.dtype, (node,), device)
        )
    base = node
    while base.op.is_movement or base.op is Ops.DETACH:
        base = base.src[0]
    if base in _superseded and base is not node:
        # Of what is about to be overwritten, no more is kept than is looked at.
        return node
    return base if base.op in (Ops.COPY, Ops.CONTIGUOUS, *_WRITTEN) else node


def read(node: UOp) -> memoryview:
    """The bytes of a realized node."""
    return engine.read(node)


def number_in(node: UOp) -> memoryview | None:
    """The bytes of `node` if it is all of memory of one element; None if that is not known here."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    if node.op is not Ops.BUFFER or node.arg.size != 1 or is_transforming():
        return None
    with engine.exclusive():
        return engine.read(node)


def lend(node: UOp) -> memoryview:
    """The bytes of a realized node, read-only, to keep: its memory itself where that can be."""
    return engine.lend(node)


def share(node: UOp) -> memoryview:
    """As `lend`, of small memory too."""
    return engine.lend(node, is_small_too=True)


def expose(node: UOp) -> None:
    """Say that the memory of the realized `node` goes to others who could write it unseen."""
    engine.expose(base_of(node))


def is_shared(node: UOp, data: memoryview) -> bool:
    """Whether `data` is the memory of the realized `node` itself."""
    view = engine.view_of(base_of(node)) if is_row_major(node) else None
    return view is not None and address_of(view) == address_of(data)


def bound(size: Any, variables: Variables) -> int:
    """A size as a number, under the values of its variables."""
    if isinstance(size, int):
        return size
    values = {variable: UOp.const(variable.dtype, value) for variable, value in variables.items()}
    return int(simplify(size.substitute(values)).arg)
