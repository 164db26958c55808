"""`backward()` and `gradient()` of a loss whose calls wait: each gradient is a call as well.

What gradients are made of follows from the calls below the loss and from what these stand on. The
first time, the calls are made over stand-ins and differentiated, and what came of it is recorded
(`ir.graph_templates`). From then on each leaf is given a gradient that waits: no node is made.
Where a gradient goes through more than these calls (values that were computed, hooks, checkpoints,
views of leaves), the nodes tell.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import call_site
from tilegrad.base.recent import Recent
from tilegrad.engine.realize import realize as engine
from tilegrad.grad.backward import gradients
from tilegrad.grad.node_hooks import is_watched
from tilegrad.grad.regions import region_of
from tilegrad.ir.args import CustomArg
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.size_patterns import Shapes
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.sized_gradients import Backward, Family
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.gradient import add_gradient
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.leaf_hooks import hooks_of
from tilegrad.tensor.handle.living import holders_of, older_leaves, with_nodes
from tilegrad.tensor.handle.replaced import postpone
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import Call, Input, Number, this_thread
from tilegrad.tensor.storage import past, running
from tilegrad.tensor.storage.graphs import graphs, replayed
from tilegrad.tensor.storage.memory import base_of
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = ["wait_for_gradients", "waiting_gradients"]

# With more calls the nodes are made. A recurrent network that goes over a thousand time steps has
# fewer calls, and fewer nodes in its gradients.
_MOST_CALLS, _MOST_STEPS = 1 << 14, 1 << 16
# A training step of a large model has fewer. Of more steps a template has megabytes, and of more
# calls it takes as long to make as two steps by nodes: there are few, of what has come before.
_MANY_CALLS, _MANY_STEPS = 1 << 11, 1 << 14
# The most nodes below a call that are searched for leaves.
_MOST_NODES = 64
# Numbers that no program has, for two recordings: what depends on them differs.
_EXAMPLES = 100_003.0, 200_003.0
# What a leaf of a segment may be made of: memory, and where it comes from and how it is looked at.
_AS_IS = frozenset({Ops.BUFFER, Ops.COPY, Ops.DETACH, Ops.CONST})


_BY_VALUE, _BY_NODES = "by value", "by nodes"
# How many values of numbers came with a signature, and the most that are tried.
_values: Recent[tuple[Any, ...], list[int]] = Recent(lambda: 512)
_MOST_VALUES = 16
# By signature; for those that have no template of all numbers, whether values have one.
_known: Recent[tuple[Any, ...], Backward | str] = Recent(lambda: 512)
# Those of many steps, and hashes of the signatures of many calls that have come.
_long: Recent[tuple[Any, ...], Backward | str] = Recent(lambda: 8)
_met: Recent[int, bool] = Recent(lambda: 512)


# By signature without the sizes of what the calls stand on.
_families: Recent[tuple[Any, ...], Family] = Recent(lambda: 512)


def wait_for_gradients(loss: Any) -> bool:
    """Let each leaf below `loss` have its gradient, or the sum of what it has and that, as a call
    that waits; False, and nothing is done, where nodes have to tell.
    """
    found = _waiting(loss, None)
    if found is None:
        return False
    for leaf, gradient in found:
        add_gradient(leaf, gradient)
    loss._call.is_loss = True
    return True


def waiting_gradients(loss: Any, targets: Sequence[Any]) -> list[Any] | None:
    """The gradients of `loss` by each of `targets`, leaves that require one, as calls that wait, of
    which gradients can be asked for in turn; None where nodes have to tell.
    """
    if not targets or not all(each._requires_grad and each._is_leaf for each in targets):
        return None
    found = _waiting(loss, targets)
    if found is None:
        return None
    by_target: dict[int, Any] = {}
    for leaf, gradient in found:
        # What was computed from a leaf before and after it took a value adds up.
        known = by_target.get(id(leaf))
        by_target[id(leaf)] = gradient if known is None else known + gradient
    if any(id(each) not in by_target for each in targets):
        return None
    for gradient in by_target.values():
        if gradient._call is not None:
            gradient._call.requires_grad = True
    return [by_target[id(each)] for each in targets]


def _waiting(loss: Any, targets: Sequence[Any] | None) -> list[tuple[Any, Any]] | None:
    """Each leaf below `loss`, of `targets` if these are given, with its gradient, a call that
    waits; None where nodes have to tell.
    """
    asked = loss._call
    if asked is None or asked.pool is not this_thread.pool or asked.shape != ():
        return None
    if not asked.dtype.is_float or not postpones_calls():
        return None
    below = _Below(asked, canonical(loss.device), targets)
    if not below.is_plain or not below.targets or below.may_be_lost():
        return None
    if any(hooks_of(each) for each in below.targets.values()):
        return None
    found = _gradients_of(below)
    if found is None:
        return None
    entry = (call_site(),)
    inputs = tuple(below.leaves)
    made: list[tuple[Any, Any]] = []
    for position, node in found.constants:
        leaf = below.targets[position]
        made.append((leaf, leaf._of(node, leaf.device, NO_VARIABLES, False)))
    for number, position, slot in found.targets:
        leaf = below.targets[position]
        gradient: Any = object.__new__(type(leaf))
        gradient.device, gradient._symbols, gradient._requires_grad = (
            leaf.device,
            NO_VARIABLES,
            False,
        )
        gradient._previous, gradient._is_leaf, gradient._is_shared = (), False, False
        gradient._gradient = gradient._alias = None
        size = found.graph.size if (number, position, slot) == found.targets[0] else 0
        postpone(gradient, found.graph, slot, number, inputs, entry, size)
        gradient._call.pattern = found.pattern
        made.append((leaf, gradient))
    calls = [gradient._call for _, gradient in made if gradient._call is not None]
    siblings = [*map(weakref.ref, calls)]
    for call in calls:
        call.siblings = siblings
    return made


def _gradients_of(below: _Below) -> Backward | None:
    """The gradients of calls, for any numbers that they take or for those alone; None if no
    template can say them.
    """
    found = _known.get(below.key) or _long.get(below.key)
    if found is None:
        if len(below.calls) > _MANY_CALLS and _met.get(hash(below.key)) is None:
            _met.put(hash(below.key), True)
            return None
        of_sizes = _families.get(below.skeleton)
        sized = None if of_sizes is None else of_sizes.known(below.shapes)
        if sized is not None:
            return sized
        found = _note(below.key, below.differentiated_in(of_sizes) or _BY_VALUE)
    if not isinstance(found, str):
        return found
    numbers = [leaf.bits for leaf in below.leaves if isinstance(leaf, Number)]
    if found == _BY_NODES or not numbers:
        return None
    by_value = (*below.key, *numbers)
    known = _known.get(by_value) or _long.get(by_value)
    if known is None:
        family = _values.setdefault(below.key, [0])
        family[0] += 1
        if family[0] > _MOST_VALUES:
            # A number that changes at each step: what follows from it is made by nodes.
            _known.put(below.key, _BY_NODES)
            return None
        known = _note(by_value, below.differentiated_by_value() or _BY_NODES)
    return None if isinstance(known, str) else known


def _note(key: tuple[Any, ...], found: Backward | str) -> Backward | str:
    is_long = not isinstance(found, str) and found.graph.size > _MANY_STEPS
    return (_long if is_long else _known).put(key, found)


class _Below:
    """The waiting calls below a loss, in order, and what they stand on.

    Attributes:
        calls: the calls, sources first, and `numbers` by call.
        leaves: what they stand on, by position.
        targets: for each position of a leaf that requires a gradient, its tensor.
        key: the signature of the calls; the `skeleton` is that without the `shapes` of leaves.
        is_plain: whether the gradients follow from it.
    """

    def __init__(self, loss: Call, device: str, wanted: Sequence[Any] | None = None):
        self.device = device
        self.leaves: dict[Input, int] = {}
        self.targets: dict[int, Any] = {}
        self.bases: list[UOp] = []
        self.is_plain = True
        flowing = self._find_calls(loss)
        if self.is_plain:
            self._sign(flowing, wanted)

    def _find_calls(self, loss: Call) -> set[Input]:
        """Find the calls; what a gradient may reach."""
        calls: list[Call] = []
        # What a gradient may reach. The last call first: of each is known then who takes it.
        flowing: set[Input] = {loss}
        found: set[Call] = {loss}
        last = [(-loss.serial, 0, loss)]
        while last:
            call = heappop(last)[2]
            if call is not loss and call.value is not None:
                if not (call in flowing and call.requires_grad) or call.inputs is None:
                    # It is read as memory.
                    continue
            calls.append(call)
            node = call.node
            is_seen = node is not None and (is_watched(node) or region_of(node) is not None)
            if is_seen or len(calls) > _MOST_CALLS:
                self.is_plain = False
                break
            inputs = call.inputs or ()
            if call in flowing:
                flowing.update([inputs[at] for at in call.template.flowing(call.slot)])
            for each in inputs:
                if each.__class__ is Call and each not in found and not _ends(each):
                    found.add(each)
                    # A call and what has its memory alone are of one time.
                    heappush(last, (-each.serial, len(found), each))
        calls.reverse()
        self.calls = calls
        return flowing

    def _sign(self, flowing: set[Input], wanted: Sequence[Any] | None) -> None:
        """Find the leaves and their targets, of those `wanted`, and the signature."""
        calls = self.calls
        numbers: dict[Any, int] = {call: number for number, call in enumerate(calls)}
        self.numbers = numbers
        key: list[Any] = [len(calls), self.device]
        self.is_sized = any(call.pattern is not None for call in calls)
        leaves = self.leaves
        for call in calls:
            key.append(call.number)
            for each in call.inputs or ():
                number = numbers.get(each)
                if number is None:
                    number = -1 - leaves.setdefault(each, len(leaves))
                key.append(number)
        for call in calls:
            if call.value is not None:
                # What follows from its value reads it; gradients go on below.
                key.append(numbers[call])
                leaves.setdefault(call, len(leaves))
        for leaf, position in leaves.items():
            target = self._target(leaf) if leaf in flowing else None
            if not self.is_plain:
                return
            if wanted is not None and not any(target is each for each in wanted):
                target = None
            if target is not None:
                self.targets[position] = target
            key += leaf.dtype, len(leaf.shape), leaf.__class__ is Number, target is not None
        self.shapes: Shapes = tuple([leaf.shape for leaf in leaves])
        self.skeleton = tuple(key)
        self.key = self.skeleton, self.shapes

    def _target(self, leaf: Input) -> Any:
        """The tensor that requires a gradient and has the value `leaf`, or None; what is not plain
        is noted.
        """
        if not leaf.dtype.is_float or isinstance(leaf, Number) or leaf in self.numbers:
            return None
        if isinstance(leaf, Call):
            tensor = leaf.handle()
            if leaf.value is None or _stands_on(tensor, leaf):
                return tensor
            if leaf.is_write and tensor is not None and tensor._requires_grad and tensor._is_leaf:
                # The leaf has taken another value since.
                return tensor
            if leaf.is_write and tensor is None:
                # The leaf is gone. Another one, with an equal value, may stand on this memory.
                self.is_plain = False
                return None
            if leaf.value.leaf is None and not past.is_computed(leaf.value):
                return None
            # Somebody knows it as a node.
            leaf = leaf.value.node(leaf.moves)
        stack, seen = [leaf], {leaf}
        targets: list[Any] = []
        is_computed = False
        while stack:
            node = stack.pop()
            targets += _leaves_that_hold(node)
            if is_watched(node) or region_of(node) is not None or node in older_leaves:
                self.is_plain = False
            if not (node.op in _AS_IS or node.op.is_movement):
                is_computed = True
            if node.op is Ops.BUFFER:
                self.bases.append(node)
                if node in graphs or node in replayed:
                    self.is_plain = False
            elif node.stored is not None and (memory := engine.realized(node)) is not None:
                owner = running.owners.get(base_of(memory))
                tensor = None if owner is None else owner()
                if tensor is not None and tensor._requires_grad:
                    # It knows it as memory by now.
                    self.is_plain = False
                is_computed = is_computed or node.op is not Ops.COPY
            for source in node.src:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
            if len(seen) > _MOST_NODES:
                self.is_plain = False
                return None
        if not targets:
            return None
        if is_computed or len(targets) > 1 or targets[0].uop is not leaf:
            # A view of a leaf, or two leaves of one memory.
            self.is_plain = False
        return targets[0]

    def may_be_lost(self) -> bool:
        """Whether memory below was computed from a leaf, and its graph was given back."""
        with_past = [base for base in self.bases if past.has_past(base)]
        if not with_past:
            return False
        leaves = [each for each in with_nodes() if each._requires_grad and each._is_leaf]
        names = [(leaf.uop, *leaf._earlier()) for leaf in leaves]
        return past.lost(with_past, graphs, names, are_leaves=True) is not None

    def differentiated_in(self, family: Family | None) -> Backward | None:
        """As `differentiated`; at all sizes if others of the `family` came."""
        bearers = self._bearers()
        found = self.differentiated(bearers)
        if found is None or not self.is_sized:
            return found
        if family is None:
            family = _families.setdefault(self.skeleton, Family())
        return family.note(
            self.shapes,
            found,
            lambda shapes: self._differentiated(_EXAMPLES[0], bearers, shapes),
            bearers,
        )

    def differentiated(self, bearers: list[UOp]) -> Backward | None:
        """The gradients of calls like these; None if no template can say them."""
        found = self._differentiated(_EXAMPLES[0], bearers)
        if found is not None and any(isinstance(leaf, Number) for leaf in self.leaves):
            other = self._differentiated(_EXAMPLES[1], bearers)
            # Nothing may be made of a number that is not made again of another one.
            if other is None or not found.graph.is_equal(other.graph):
                return None
            if found.constants != other.constants:
                return None
        return found

    def differentiated_by_value(self) -> Backward | None:
        """As `differentiated`, for the numbers that the calls take now."""
        return self._differentiated(None, self._bearers())

    def _bearers(self) -> list[UOp]:
        return [_bearer(entry) for entry in {call.entry: None for call in self.calls}]

    def _differentiated(
        self, example: float | None, bearers: list[UOp], shapes: Shapes | None = None
    ) -> Backward | None:
        """As `differentiated`, for certain numbers, or for those of the calls; of other `shapes` of
        the leaves, if these are given and the calls are the same there.
        """
        stand_ins: dict[Any, UOp] = {}
        for leaf, position in self.leaves.items():
            if isinstance(leaf, Number):
                stand_ins[leaf] = (
                    leaf.node if example is None else UOp.const(leaf.dtype, example + position)
                )
                continue
            shape = leaf.shape if shapes is None else shapes[position]
            alone = CustomArg(f"leaf {position}", shape, _no_call)
            # A rule may ask on which device it is.
            stand_ins[leaf] = UOp(
                Ops.CONTIGUOUS, leaf.dtype, (UOp(Ops.CUSTOM, leaf.dtype, (), alone),), self.device
            )
        nodes = dict(stand_ins)
        for call in self.calls:
            inputs = [nodes[each] for each in call.inputs or ()]
            template = call.template if shapes is None else _at_shapes(call, inputs)
            if template is None:
                return None
            nodes[call] = template.make(inputs, call.entry)[call.slot]
        loss = nodes[self.calls[-1]]
        listed = [*stand_ins.values()]
        positions = [*self.targets]
        found = gradients(
            loss, UOp.const(loss.dtype, 1), [listed[position] for position in positions]
        )
        computed = {nodes[leaf]: stand_ins[leaf] for leaf in self.leaves if leaf in self.numbers}
        reached = [
            (position, node.substitute(computed))
            for position, node in zip(positions, found, strict=True)
            if node is not None
        ]
        return _recorded(reached, listed, bearers, self.device)


def _at_shapes(call: Call, inputs: list[UOp]) -> Template | None:
    """The template of a call for inputs of other shapes; None if there is none."""
    shapes = tuple([node.shape for node in inputs])
    if call.pattern is not None:
        values = call.pattern.values(shapes)
        found: Template | None = None if values is None else call.pattern.graph_at(values)
        return found
    is_same = shapes == tuple([each.shape for each in call.inputs or ()])
    # An alias, which has no steps, is of any shape.
    return call.template if is_same or not call.template.steps else None


def _recorded(
    reached: list[tuple[int, UOp]], inputs: list[UOp], bearers: list[UOp], device: str
) -> Backward | None:
    """The template of gradients, each by the position of its target among `inputs`. Steps have the
    origins of `bearers`.
    """
    constants = [(position, node) for position, node in reached if node.is_constant]
    reached = [(position, node) for position, node in reached if not node.is_constant]
    if not reached:
        return None
    # A gradient that is a view of an operand is copied: it is memory of its own.
    nodes = [
        UOp(Ops.CONTIGUOUS, node.dtype, (node,), device) if _is_view(node, inputs) else node
        for _, node in reached
    ]
    template = record(nodes, [*inputs, *bearers], _MOST_STEPS)
    if template is None:
        return None
    # The bearers are the same for all inputs.
    template.constants[:0] = bearers
    template.count = len(inputs)
    template.is_view = False
    slots = zip(reached, template.results, strict=True)
    targets = [(next_number(), position, slot) for (position, _), slot in slots]
    return Backward(template, tuple(targets), tuple(constants))


def _is_view(node: UOp, inputs: Iterable[UOp]) -> bool:
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node in inputs


def _bearer(entry: tuple[Any, ...]) -> UOp:
    """A node that has the origin `entry`, for those of a template that have the same."""
    # A name of its own: equal nodes are one.
    alone = CustomArg(f"origin {next_number()}", (), _no_call)
    node = UOp(Ops.CUSTOM, dtypes.float32, (), alone)
    node.origin = entry
    return node


def _ends(call: Call) -> bool:
    """Whether a call is what was assigned to a leaf that requires a gradient: none flows on, be it
    that the leaf is memory by now, or has taken another value.
    """
    if not call.is_write:
        return False
    tensor = call.handle()
    return tensor is not None and tensor._requires_grad and tensor._is_leaf


def _stands_on(tensor: Any, call: Call) -> bool:
    """Whether a tensor is a leaf that has the value of a call, which was computed, and no node."""
    if tensor is None or tensor._call is None or not (tensor._requires_grad and tensor._is_leaf):
        return False
    return tensor._call.value is call.value


def _leaves_that_hold(node: UOp) -> list[Any]:
    if node.holders is None:
        return []
    return [each for each in holders_of(node) if each._requires_grad and each._is_leaf]


def _no_call(data: Any) -> memoryview:
    raise InternalError("a stand-in of an operand was run")
