"""The calls that wait below a loss, what they stand on, and their gradients as a template."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.recent import Recent
from tilegrad.engine.realize import realize as engine
from tilegrad.grad.backward import gradients, pullback
from tilegrad.grad.node_hooks import is_watched
from tilegrad.grad.regions import region_of
from tilegrad.ir.args import CustomArg
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.size_patterns import Shapes
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.sized_gradients import Backward, Family
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.living import holders_of, older_leaves, with_nodes
from tilegrad.tensor.handle.waiting import Call, Input, Number
from tilegrad.tensor.storage import past, running
from tilegrad.tensor.storage.graphs import graphs, replayed
from tilegrad.tensor.storage.memory import base_of

__all__ = ["Below", "Seed", "ends", "families", "stand_in_node"]

# With more calls the nodes are made. A recurrent network that goes over a thousand time steps has
# fewer calls, and fewer nodes in its gradients.
_MOST_CALLS, _MOST_STEPS = 1 << 14, 1 << 16
# The most nodes below a call that are searched for leaves.
_MOST_NODES = 64
# Numbers that no program has, for two recordings: what depends on them differs.
_EXAMPLES = 100_003.0, 200_003.0
# A number that no recording knows.
_UNKNOWN = math.nan
# Ops that a leaf of a segment may be made of: memory, its origin and its views.
_AS_IS = frozenset({Ops.BUFFER, Ops.COPY, Ops.DETACH, Ops.CONST})
# By signature without the sizes of the leaves.
families: Recent[tuple[Any, ...], Family] = Recent(lambda: 512)
_NOTHING: frozenset[Call] = frozenset()
# The template of gradients that are constants.
_EMPTY = Template([], [], (), 0, is_view=False)


class Seed:
    """The gradient that comes to a result which is no loss, before there is one."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: DType, shape: tuple[Any, ...]):
        self.dtype, self.shape = dtype, shape


class Below:
    """The waiting calls below a loss, or another result whose gradient will be known, in order, and
    what they stand on.

    Attributes:
        calls: the calls, sources first, and `numbers` by call.
        roots: the loss, or the results whose gradients will be known.
        leaves: what they stand on, by position; the `seeds`, the gradients of roots that are no
            loss, are the last.
        stops: the calls at which gradients stop.
        targets: for each position of a leaf that requires a gradient, its tensor; of a call at
            which the gradient stops, the call.
        key: the signature of the calls; the `skeleton` is that without the `shapes` of leaves.
        is_plain: whether the gradients follow from it.
        meets_stop: whether a gradient stops on the way at a call that is none of the `stops`.
    """

    def __init__(
        self,
        loss: Call,
        device: str,
        wanted: Sequence[Any] | None = None,
        stops: Collection[Call] = _NOTHING,
        seed: Seed | None = None,
    ):
        self._begin([loss], device, stops, [] if seed is None else [seed])
        flowing = self._find_calls(loss)
        if self.is_plain:
            self._sign(flowing, wanted)

    def _begin(
        self, roots: list[Call], device: str, stops: Collection[Call], seeds: list[Seed]
    ) -> None:
        self.roots, self.device, self.stops, self.seeds = roots, device, stops, seeds
        self.leaves: dict[Any, int] = {}
        self.targets: dict[int, Any] = {}
        self.bases: list[UOp] = []
        self.is_plain = True
        self.meets_stop = False

    def _find_calls(self, loss: Call) -> set[Input]:
        """Find the calls; gives those that a gradient may reach."""
        calls: list[Call] = []
        stops = self.stops
        # Calls that a gradient may reach. The last comes first, so all users of a call are known.
        flowing: set[Input] = {loss}
        found: set[Call] = {loss}
        last = [(-loss.serial, 0, loss)]
        while last:
            call = heappop(last)[2]
            if call is not loss and call.value is not None:
                if not (call in flowing and call.requires_grad) or call.inputs is None:
                    # It is read as memory.
                    continue
            if call in stops and call in flowing and call is not loss:
                continue
            calls.append(call)
            node = call.node
            if call.stop is not None:
                # The stop knows all that the node does.
                is_seen = False
                self.meets_stop = self.meets_stop or (call in flowing and call not in stops)
            else:
                is_seen = node is not None and (is_watched(node) or region_of(node) is not None)
            if is_seen or len(calls) > _MOST_CALLS:
                self.is_plain = False
                break
            inputs = call.inputs or ()
            if call in flowing:
                flowing.update([inputs[at] for at in call.template.flowing(call.slot)])
            for each in inputs:
                if each.__class__ is Call and each not in found and not ends(each):
                    found.add(each)
                    # A call and the copy that has its memory alone are of one time.
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
                # Calls above read its value; gradients go on below.
                key.append(numbers[call])
                leaves.setdefault(call, len(leaves))
        for root, seed in zip(self.roots, self.seeds):
            leaves[seed] = len(leaves)
            key += "seed", numbers[root]
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
        if leaf in self.stops:
            return leaf
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

    def last_users(self) -> dict[int, int]:
        """For each position of a target, when the first call that it flows to was made: its
        gradient is known once that of this one is.
        """
        found: dict[int, int] = {}
        for call in self.calls:
            inputs = call.inputs or ()
            for at in call.template.flowing(call.slot):
                position = self.leaves.get(inputs[at])
                if position is not None and position in self.targets:
                    found.setdefault(position, call.serial)
        return found

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
            family = families.setdefault(self.skeleton, Family())
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
            is_equal = other is not None and found.graph.is_equal(other.graph)
            if other is None or not is_equal or found.constants != other.constants:
                # Two numbers that are multiplied, as weights of losses are, are left to a kernel.
                return self._differentiated(_UNKNOWN, bearers)
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
            if isinstance(leaf, Number) and example is not _UNKNOWN:
                stand_ins[leaf] = (
                    leaf.node if example is None else UOp.const(leaf.dtype, example + position)
                )
                continue
            shape = leaf.shape if shapes is None else shapes[position]
            stand_ins[leaf] = stand_in_node(position, leaf.dtype, shape, self.device)
        nodes = dict(stand_ins)
        for call in self.calls:
            inputs = [nodes[each] for each in call.inputs or ()]
            template = call.template if shapes is None else _at_shapes(call, inputs)
            if template is None:
                return None
            nodes[call] = template.make(inputs, call.entry)[call.slot]
        roots = [nodes[root] for root in self.roots]
        listed = [*stand_ins.values()]
        positions = [*self.targets]
        targets = [listed[position] for position in positions]
        if self.seeds:
            found = pullback(roots, [stand_ins[seed] for seed in self.seeds], targets)
        else:
            found = gradients(roots[0], UOp.const(roots[0].dtype, 1), targets)
        if example is _UNKNOWN:
            values = {stand_ins[leaf] for leaf in self.leaves if not isinstance(leaf, Number)}
            if any(each is not None and values.isdisjoint(each.toposort()) for each in found):
                # A gradient of numbers alone is a constant, and no call.
                return None
        computed = {nodes[leaf]: stand_ins[leaf] for leaf in self.leaves if leaf in self.numbers}
        reached = [
            (position, node.substitute(computed))
            for position, node in zip(positions, found, strict=True)
            if node is not None
        ]
        return _recorded(reached, listed, bearers, self.device)


def stand_in_node(position: int, dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    """The node that stands for a leaf, known by its dtype, shape and device alone."""
    alone = CustomArg(f"leaf {position}", shape, _no_call)
    # A rule may ask on which device it is.
    return UOp(Ops.CONTIGUOUS, dtype, (UOp(Ops.CUSTOM, dtype, (), alone),), device)


def _at_shapes(call: Call, inputs: list[UOp]) -> Template | None:
    """The template of a call for inputs of other shapes; None if there is none."""
    shapes = tuple([node.shape for node in inputs])
    if call.pattern is not None:
        values = call.pattern.values(shapes)
        return None if values is None else call.pattern.graph_at(values)
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
        return Backward(_EMPTY, (), tuple(constants)) if constants else None
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


def ends(call: Call) -> bool:
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
