"""Running what is pending: the other tensors that a run concerns, and the new nodes of tensors
whose value was computed or whose memory was written to.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.request import Request
from tilegrad.engine.run.run import record_of_thread
from tilegrad.engine.run.users import above
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.aliases import hold, same_storage
from tilegrad.tensor.handle.living import (
    Owner,
    ends,
    generations,
    holders_of,
    live,
    owners,
    promote,
    with_gradient,
    with_variables,
    young,
)
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.storage.graphs import graphs, over_memory
from tilegrad.tensor.storage.memory import (
    WRITTEN,
    base_of,
    is_stored,
    is_written,
    owned,
    stored_below,
)
from tilegrad.tensor.storage.overwritten import follow, old_value
from tilegrad.tensor.storage.past_of_graphs import note_past, remember
from tilegrad.tensor.storage.worth_keeping import (
    NEVER_MATERIALISED,
    below_views,
    worth_keeping,
)

__all__ = [
    "MOST_GENERATIONS", "Owner", "become_memory", "gradients", "has_waiting", "keeps", "owners",
    "put_off", "retained_of", "run", "settle",
]  # fmt: skip


# The values of variables in the graphs of assignments that wait to run, by their outcome.
_waiting: weakref.WeakKeyDictionary[UOp, Variables] = weakref.WeakKeyDictionary()
# The most runs between a value and memory without a graph: more would hold the memory of all
# earlier states.
MOST_GENERATIONS = 4
_stored = attrgetter("stored")


def put_off(version: UOp, variables: Variables) -> None:
    """Remember the values of variables in the graph of an assignment, whose outcome is `version`,
    for when it runs.
    """
    if variables:
        _waiting[version] = variables


def has_waiting() -> bool:
    """Whether an assignment that has yet to run may need values of variables."""
    return len(_waiting) > 0


def run(roots: list[UOp], variables: Variables, but: Collection[Any] = ()) -> list[UOp]:
    """As `_run`; parameters below that are not memory yet are computed in a run of their own,
    before: then the first step of a training program is the same graph as the second.
    """
    # Who looks at what a run wrote is told before another thread's run looks for these.
    with engine.exclusive():
        asked = {id(tensor) for tensor in but}
        waiting = [
            tensor
            for tensor in young()
            if tensor._is_leaf and tensor._requires_grad and not tensor._variables
            if id(tensor) not in asked
            if not is_stored(tensor.uop) and not tensor.uop.is_constant
        ]
        if waiting and keeps():
            below = toposort(roots, stop=_stored)
            first = [each for each in waiting if each.uop in below]
            wanted = [stored_below(tensor.uop, tensor.device) for tensor in first]
            for tensor, root, stored in zip(
                first, wanted, _run(wanted, {}, [*first, *but]) if first else ()
            ):
                if is_written(tensor.uop):
                    follow(tensor)
                else:
                    become_memory(tensor, root, stored)
        return _run(roots, variables, but)


def keeps() -> bool:
    """Whether runs store values beside the requested ones: not those of a capture, whose results
    alone count, not the plain plan, and not those that a transformed function asks for.
    """
    record = record_of_thread()
    is_captured = record is not None and record.known is not None
    return not (is_captured or current_config().NOOPT or is_transforming())


def _run(roots: list[UOp], variables: Variables, but: Collection[Any] = ()) -> list[UOp]:
    """Compute `roots` now; each result is [a view of] a buffer that holds its value.

    Live tensors that still need what is overwritten get its old value. Those whose memory is
    overwritten look at it as it is then, except the tensors `but`, whose caller sees to that.
    """
    values = _values(roots, dict(variables))
    others = _Others(values)
    results = engine.realize(roots, values, others)
    excluded = {id(tensor) for tensor in but}
    if others.materialised and not all(tensor._requires_grad for tensor in but):
        others.remember_pasts()
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
        else:
            value, memory = _below_equal_moves(root, stored)
            is_all = memory is base or (memory.op is Ops.RESHAPE and memory.src[0] is base)
            # A view of memory that was there before has no graph but that.
            if is_all and base_of(value) is not base:
                graphs[base] = value
    hold(tensor, result, is_computed=root is node or node.is_constant)


def _below_equal_moves(root: UOp, stored: UOp) -> tuple[UOp, UOp]:
    """The value and the memory below the movements that are equal in both."""
    while root.op.is_movement and root.op is stored.op and root.arg == stored.arg:
        root, stored = root.src[0], stored.src[0]
    return root, stored


def _apart(tensor: Any, stored: UOp) -> UOp:
    """Memory of its own for a tensor whose value another thread's has too."""
    (own,) = run([owned(stored, tensor.device)], tensor._variables)
    owners[base_of(own)] = Owner(tensor)
    if not tensor._requires_grad:
        note_past({tensor.uop: own})
    elif not tensor._is_leaf and own.op is Ops.BUFFER:
        graphs[own] = tensor.uop
    return own


def retained_of(request: Request) -> Iterable[UOp]:
    """The values that a run of `request` stores beside the requested ones."""
    return _Others({}).retained(request)


class _Others(engine.Others):
    """The tensors alive that a run meets, beside the requested ones."""

    def __init__(self, values: Variables):
        self.values = values
        # Values that tensors need which look at memory about to be overwritten.
        self.lookers: dict[int, tuple[Any, UOp]] = {}
        self.request: Request | None = None
        # Values that tensors need which have yet to be computed from such memory.
        self.late: dict[UOp, None] = {}
        # Values that the run materialises beside the requested ones.
        self.materialised: list[UOp] = []
        self.request_numbers: Collection[UOp] | None = None
        # Values that depend on variables, for the variables' values in this run.
        self.passing: Mapping[UOp, UOp] = {}

    def retained(self, request: Request) -> Iterable[UOp]:
        """The values on the way that somebody holds, or will need."""
        if not keeps():
            return ()
        self._index_young(request, [*map(id, gradients())])
        needed = self._needed(request)
        found = worth_keeping(request, needed) if needed else []
        roots = {request.nodes[number] for number in request.roots}
        self.materialised = [*found, *[node for node in self.late if node in roots]]
        self.request_numbers = request.numbers
        return found

    def _needed(self, request: Request) -> set[UOp]:
        """The nodes of `request` that a tensor alive is, or is to be computed from and not by this
        run.
        """
        numbers = request.numbers
        outside: dict[UOp, None] = {}
        found: set[UOp] = set()
        stack: list[UOp] = []
        roots = {*map(request.nodes.__getitem__, request.roots)}
        for node in request.nodes:
            if node in roots:
                # A value made of a root alone finds it computed.
                continue
            # Values made of constants alone are never materialised, and graphs that have nothing
            # else in common share them.
            if node.users and node._is_constant is not True and not node.is_constant:
                stack.append(node)
            if node.holders is not None and node.op not in NEVER_MATERIALISED:
                if self._holds(node):
                    found.add(node)
        while stack:
            for reference in stack.pop().users or ():
                user = reference()
                if user is None or user in numbers or user in outside:
                    continue
                if engine.realized(user) is None:
                    outside[user] = None
                    stack.append(user)
        stack = [node for node in outside if node.holders is not None and self._holds(node)]
        seen = set(stack)
        while stack:
            for source in stack.pop().src:
                if source in numbers:
                    # One that was computed before is in memory, which its gradients go to.
                    if engine.realized(source) is None:
                        found.add(source)
                elif source in outside and source not in seen:
                    seen.add(source)
                    stack.append(source)
        return found

    def _holds(self, node: UOp) -> bool:
        """Whether a tensor alive is `node`, of the values of variables that the run has."""
        holders = node.holders
        if holders.__class__ is not list:
            # One at most, as a rule.
            tensor = None if holders is None else holders()
            return (
                tensor is not None
                and tensor.uop is node
                and (not tensor._symbols or _agree(tensor._symbols, self.values))
            )
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
            if node not in request and id(tensor) not in but:
                engine.index(node)
                promote(tensor, node)

    def standing_on(self, memory: Collection[UOp], request: Request) -> Iterable[UOp]:
        self.request = request
        self._index_young(request)
        found: dict[int, Any] = {id(tensor): tensor for tensor in young()}
        for node in engine.users_of(memory):
            found |= {id(tensor): tensor for tensor in holders_of(node)}
        needed: list[UOp] = []
        for number, tensor in found.items():
            node = tensor.uop
            if 0 in node.shape:
                # It has no elements to store.
                continue
            if is_stored(node):
                node = UOp(Ops.CONTIGUOUS, node.dtype, (node,)) if node.op is Ops.BUFFER else node
                self.lookers[number] = tensor, node
            else:
                # The value that its reader asks for.
                node = stored_below(node, tensor.device)
                self.late[node] = None
            needed.append(node)
        return needed

    def asked_soon(self) -> Iterable[UOp]:
        """The gradients that wait to be computed: a loss that is looked at before shares its
        graph.
        """
        nodes = [grad.uop for grad in gradients()]
        return [node for node in nodes if not is_stored(node) and not node.is_constant]

    def computed(self, memory: Mapping[UOp, UOp]) -> None:
        self.passing = memory

    def stand_on_passing(self, roots: Collection[UOp]) -> None:
        """After the run: for values that depend on variables, give each tensor whose values of them
        are those of the run the memory of its own value; for `roots` the caller does so.
        """
        for node, stored in self.passing.items():
            if node not in roots:
                for tensor in holders_of(node):
                    if _agree(tensor._variables, self.values):
                        become_memory(tensor, node, stored)

    def remember_pasts(self) -> None:
        """After the run: find what materialised values were computed from, while that is near."""
        found: dict[UOp, UOp] = {}
        for node in self.materialised:
            stored = engine.realized(node)
            if stored is not None and not any(each._requires_grad for each in holders_of(node)):
                found[node] = base_of(stored)
        remember(found)

    def stand_on_memory(self, roots: Iterable[UOp], excluded: Collection[int]) -> None:
        """After the run: tensors of materialised values have the memory instead of the graph below.
        But for the first few runs that follow one another they have their graphs, so that a
        gradient can still be asked for.
        """
        if not self.materialised or self.request_numbers is None:
            return
        values = [
            *self.materialised,
            *[root for root in roots if root.op not in NEVER_MATERIALISED],
        ]
        memory = {value: stored for value in values if (stored := engine.realized(value))}
        last = 0
        for node in self.request_numbers:
            # Nothing else was materialised, and to ask for each costs a call.
            if node.stored is not None:
                last = max(last, generations.get(node, 0))
        if last + 1 < MOST_GENERATIONS:
            generations.update(dict.fromkeys(memory, last + 1))
            return
        found = {id(tensor): tensor for tensor in young()}
        for node in above(memory):
            if node.holders is not None:
                found |= {id(tensor): tensor for tensor in holders_of(node)}
        whole: list[tuple[Any, UOp]] = []
        above_memory: list[tuple[Any, dict[UOp, UOp]]] = []
        lost: dict[UOp, UOp] = {}
        for number, tensor in found.items():
            node = tensor.uop
            if node.op is Ops.BUFFER or number in excluded:
                continue
            root = node if node in memory else below_views(node)
            if root in memory:
                whole.append((tensor, root))
                if not tensor._requires_grad:
                    lost[root] = memory[root]
            elif tensor._requires_grad and not tensor._is_leaf:
                continue
            elif engine.realized(node) is None:
                # No gradient goes on below a leaf, such as a parameter that waits for its update.
                computed = engine.computed_below(node)
                if not computed:
                    # It has nothing to do with this run.
                    continue
                above_memory.append((tensor, computed))
                if not tensor._requires_grad:
                    lost |= computed
        note_past(lost)
        for tensor, root in whole:
            become_memory(tensor, root, memory[root])
        for tensor, computed in above_memory:
            tensor._previous = (*tensor._earlier_references(), weakref.ref(tensor.uop))
            hold(tensor, over_memory(tensor.uop, computed), is_computed=False)
            if tensor._requires_grad:
                ends.add(tensor.uop)

    def look_again(self, excluded: Collection[int]) -> None:
        """After the run, let views of overwritten memory look at the copy of its old value, and
        views of an assignment's result at the memory that it wrote.
        """
        for tensor, node in self.lookers.values():
            memory = self.passing.get(node) or engine.realized(node)
            if memory is not None and memory is not node:
                memory = old_value(tensor, node, memory)
                hold(tensor, memory, is_computed=True)
                tensor._is_shared = False
        if self.request is None:
            return
        versions = [self.request.nodes[number] for number in self.request.versions]
        found = {id(tensor): tensor for tensor in young()}
        for node in above(versions, lambda node: not _is_view_op(node)):
            if node.holders is not None:
                found |= {id(tensor): tensor for tensor in holders_of(node)}
        for number, tensor in found.items():
            if tensor.uop.op is not Ops.BUFFER and number not in excluded:
                follow(tensor)


def gradients() -> list[Any]:
    """The gradients of tensors alive."""
    if not len(with_gradient):
        return []
    return [grad for tensor in with_gradient if (grad := tensor.grad) is not None]


def _is_view_op(node: UOp) -> bool:
    return node.op.is_movement or node.op is Ops.DETACH or node.op in WRITTEN


def _values(roots: list[UOp], values: dict[UOp, int]) -> dict[UOp, int]:
    """`values`, and those of the variables in what has to run for `roots`. A value with other
    values of the same variables runs on its own, before.
    """
    holders: list[Any] = []
    if len(with_variables):
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
