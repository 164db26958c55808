"""Parts of a graph whose values are computed anew for the gradient, and leaves to trace functions
with.

A *region* has the nodes that one call of `tilegrad.func.checkpoint` computed. Its outputs stand in
the graph as they would without it, so the forward pass is the same; but a gradient that reaches
them goes over to the region's inputs in one step, by a second copy of the region's graph. Equal
graphs are one node and one value, so the copy needs inputs that are other nodes with the same
values: each input is copied by a kernel that also takes the gradients that came in, as sources that
it does not read. Thus the copy can neither be taken for the first one nor be computed before it is
needed.

A *leaf* is a node of the same value as another and unlike every other node: an argument on which a
function is run to be differentiated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tilegrad.grad.node_hooks import carry_over
from tilegrad.grad.partial_writes import partly_written
from tilegrad.ir.args import KernelArg, KernelInfo
from tilegrad.ir.movement import fill
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = [
    "Mark", "Region", "Rule", "has_regions", "is_leaf", "leaf", "moved", "output", "region_of",
    "regions_among", "register", "unrecorded", "waiting_copy", "without_outputs",
]  # fmt: skip


class Mark:
    """The argument that makes a leaf unlike every other; all are written alike, so that graphs that
    differ in marks only share a plan. The mark of an `output` knows its region.
    """

    __slots__ = ("__weakref__", "output_of")

    def __init__(self, output_of: tuple[Region, int] | None = None):
        self.output_of = output_of

    def __repr__(self) -> str:
        return "Mark()"

    def __reduce__(self) -> tuple[type[Mark], tuple[()]]:
        # A region may have functions of the user's: in another process the mark knows none.
        return Mark, ()


def leaf(value: UOp) -> UOp:
    """A new node of the value of `value`, through which gradients pass."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), Mark())


def is_leaf(node: UOp) -> bool:
    return node.op is Ops.CONTIGUOUS and isinstance(node.arg, Mark)


class Rule(Protocol):
    """Gives the gradients of a region's inputs, None where nothing flows."""

    def of(self, given: Sequence[UOp | None]) -> Sequence[UOp | None]:
        """From those of the outputs, None for one that nothing depends on."""

    def traced(self) -> Sequence[UOp | None]:
        """As graphs in which the region's leaves stand for those of the outputs."""


@dataclass(frozen=True, eq=False)
class Region:
    """A graph from `leaves`, which stand for `inputs`, and from the values `outer` to `outputs`.

    One with `gradients` is not computed anew: these are graphs, one for each input or None where
    nothing flows, in which `leaves` stand for the gradients of the outputs. Nor is one with a
    `rule`, which is asked for them when gradients of the outputs come.
    """

    leaves: tuple[UOp, ...]
    inputs: tuple[UOp, ...]
    outer: tuple[UOp, ...]
    outputs: tuple[UOp, ...]
    gradients: tuple[UOp | None, ...] | None = None
    rule: Rule | None = None

    @property
    def is_computed_anew(self) -> bool:
        """Whether its gradients are those of a copy of its graph."""
        return self.gradients is None and self.rule is None

    @property
    def _own_gradients(self) -> Sequence[UOp | None] | None:
        return self.gradients if self.rule is None else self.rule.traced()

    @property
    def sources(self) -> tuple[UOp, ...]:
        """The nodes that gradients of the outputs are passed to."""
        return (*self.inputs, *self.outer)

    @property
    def nodes(self) -> list[UOp]:
        """All graphs that the region is made of."""
        given = [g for g in self._own_gradients or () if g is not None]
        return [*self.leaves, *self.sources, *self.outputs, *given]

    def replaced(self, done: Mapping[UOp, UOp]) -> Region:
        """This region after each node was replaced by its new one, if that is in `done`."""
        leaves, inputs, outer, outputs = (
            tuple(done.get(node, node) for node in nodes)
            for nodes in (self.leaves, self.inputs, self.outer, self.outputs)
        )
        given = self._own_gradients
        if given is not None:
            given = tuple(g if g is None else done.get(g, g) for g in given)
        return Region(leaves, inputs, outer, outputs, given)

    def passed_on(self, given: Sequence[UOp | None]) -> Sequence[UOp | None]:
        """By the region's own `gradients` or `rule`: that of each input, from those of the outputs,
        None for one that nothing depends on.
        """
        if self.rule is not None:
            return self.rule.of(given)
        assert self.gradients is not None
        whole = [
            fill(own.shape, 0.0, own.dtype) if each is None else each
            for own, each in zip(self.leaves, given, strict=True)
        ]
        seeds = dict(zip(self.leaves, whole, strict=True))
        gradients = iter(moved([g for g in self.gradients if g is not None], seeds))
        return [g if g is None else next(gradients) for g in self.gradients]


# By the node that an output is in the graph around the region, with the number of the output.
_regions: weakref.WeakKeyDictionary[UOp, tuple[Region, int]] = weakref.WeakKeyDictionary()


def register(region: Region, nodes: Iterable[UOp]) -> None:
    """From now on `nodes` are the outputs of `region`, unless they are its inputs."""
    for number, node in enumerate(nodes):
        if node not in region.sources and node is not region.outputs[number]:
            _regions[node] = region, number


# Marks that know a region: their nodes may go, and be made again.
_marks: weakref.WeakSet[Mark] = weakref.WeakSet()


def has_regions() -> bool:
    """Whether there is any region."""
    return bool(_regions or _marks)


def region_of(node: UOp) -> tuple[Region, int] | None:
    """The region that `node` is an output of, and the number of the output."""
    if not has_regions():
        return None
    found = _regions.get(node)
    if found is None and node.op is Ops.DETACH and isinstance(node.arg, Mark):
        # The node may be one that was made again of the same parts.
        return node.arg.output_of
    return found


def regions_among(nodes: Collection[UOp]) -> dict[UOp, tuple[Region, int]]:
    """The result of `region_of` for each output of a region among `nodes`, in their order. No
    Python function is called for a node: other graphs of the process may have regions.
    """
    if not has_regions():
        return {}
    found: dict[UOp, tuple[Region, int]] = {}
    known, ref = cast(Any, _regions).data.get, weakref.ref
    for node in nodes:
        output_of = known(ref(node))
        if output_of is None and node.op is Ops.DETACH and isinstance(node.arg, Mark):
            output_of = node.arg.output_of
        if output_of is not None:
            found[node] = output_of
    return found


def output(region: Region, number: int) -> UOp:
    """The value of an output of a region with gradients of its own, as a node that is no other: an
    equal graph that is computed elsewhere has the usual ones.
    """
    value = region.outputs[number]
    mark = Mark((region, number))
    _marks.add(mark)
    node = UOp(Ops.DETACH, value.dtype, (value,), mark)
    _regions[node] = region, number
    return node


def unrecorded(value: UOp, view: Callable[[UOp], UOp], old: UOp | None) -> UOp:
    """`value`, through which no gradient flows on: that of a `view` of it goes as it is to `old`,
    what was there before it was written to unseen by gradients.
    """
    stand_in = leaf(value)
    sources, gradients = ((), ()) if old is None else ((old,), (view(stand_in),))
    return output(Region((stand_in,), sources, (), (value,), gradients), 0)


def without_outputs(node: UOp) -> UOp:
    """The value of outputs of regions with gradients of their own."""
    while node.op is Ops.DETACH and isinstance(node.arg, Mark):
        node = node.src[0]
    return node


def moved(
    roots: Sequence[UOp], mapping: Mapping[UOp, UOp], *, unwatched: Collection[UOp] | None = None
) -> list[UOp]:
    """`roots` with each key of `mapping` replaced by its value; regions stay regions. With
    `unwatched`, those who watch the gradients of other nodes watch them in the new nodes, too.

    An assignment of another value becomes that value, in memory of its own: the first may have run.
    """
    done: dict[UOp, UOp] = dict(mapping)

    def move(nodes: Iterable[UOp]) -> list[Region]:
        """Add `nodes` and their operands to `done`; the regions that changed."""
        changed: dict[Region, None] = {}
        for node in toposort(nodes, stop=lambda node: node in done):
            if node in done:
                continue
            src = tuple([done[source] for source in node.src])
            if src == node.src:
                done[node] = node
                continue
            if node.op is Ops.ASSIGN:
                made = UOp(Ops.CONTIGUOUS, node.dtype, (src[1],))
            elif node.op is Ops.AFTER:
                made = partly_written(node, src[0], done[node.src[1].src[1]])
            else:
                made = UOp(node.op, node.dtype, src, node.arg)
            done[node] = made
            if node.origin and not made.origin:
                made.origin = node.origin
            if (found := region_of(node)) is not None:
                changed[found[0]] = None
        return list(changed)

    waiting = move(roots)
    results = [done[root] for root in roots]
    while waiting:
        region = waiting.pop()
        waiting += move(region.nodes)
        register_moved(region, region.replaced(done), done)
    if unwatched is not None:
        carry_over(done, done.keys() - mapping.keys() - set(unwatched))
    return results


def register_moved(old: Region, fresh: Region, done: Mapping[UOp, UOp]) -> None:
    """Let the replacements of the outputs of `old` be the outputs of `fresh`."""
    known = [(node, found) for node, found in _regions.items() if found[0] is old]
    for node, (_, number) in known:
        made = done.get(node)
        if made is not None and made is not node and made not in fresh.sources:
            _regions[made] = fresh, number


def waiting_copy(value: UOp, *first: UOp) -> UOp:
    """A copy of `value`, made once `first` have been computed; gradients pass through it."""
    count = prod(value.shape)
    if not isinstance(count, int) or count == 0 or value.is_constant:
        return leaf(value)
    pointers = [
        UOp(Ops.DEFINE_GLOBAL, value.dtype.ptr(count), (), 0),
        UOp(Ops.DEFINE_GLOBAL, value.dtype.ptr(count), (), 1),
    ]
    index = simplify(UOp.range(count, 0))
    ast = UOp.sink(
        pointers[0].store(index, pointers[1].load(index)),
        arg=KernelInfo("copied_again", (0,) if count > 1 else ()),
    )
    arg = KernelArg("copied_again", tuple(value.shape), ast, _pass)
    return UOp(Ops.CUSTOM, value.dtype, (value, *first), arg)


def _pass(g: UOp, node: UOp) -> list[UOp | None]:
    return [g, *[None] * (len(node.src) - 1)]
