"""Parts of a graph whose values are computed anew for the gradient, and leaves to trace functions
with.

A *region* is what one call of `tilegrad.func.checkpoint` computed. Its outputs stand in the graph
as they would without it, so the forward pass is the same; but a gradient that reaches them goes
over to the region's inputs in one step, by a second copy of the region's graph. Equal graphs are
one node and one value, so the copy needs inputs that are other nodes with the same values: each
input is copied by a kernel that also takes the gradients that came in, as sources that it does not
read. Thus the copy can neither be taken for the first one nor be computed before it is needed.

A *leaf* is a node of the same value as another and unlike every other node: what a function that is
to be differentiated is run on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.grad.parts import with_part
from tilegrad.ir.args import KernelArg, KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = [
    "Mark",
    "Region",
    "has_regions",
    "is_leaf",
    "leaf",
    "moved",
    "region_of",
    "register",
    "waiting_copy",
]


class Mark:
    """The argument that makes a leaf unlike every other; all are written alike, so that graphs that
    differ in marks only share a plan.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "Mark()"


def leaf(value: UOp) -> UOp:
    """A new node of the value of `value`, through which gradients pass."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), Mark())


def is_leaf(node: UOp) -> bool:
    return node.op is Ops.CONTIGUOUS and isinstance(node.arg, Mark)


@dataclass(frozen=True, eq=False)
class Region:
    """A graph from `leaves`, which stand for `inputs`, and from the values `outer` to `outputs`."""

    leaves: tuple[UOp, ...]
    inputs: tuple[UOp, ...]
    outer: tuple[UOp, ...]
    outputs: tuple[UOp, ...]

    @property
    def sources(self) -> tuple[UOp, ...]:
        """What a gradient of the outputs goes over to."""
        return (*self.inputs, *self.outer)


# By the node that an output is in the graph around the region, with the number of the output.
_regions: weakref.WeakKeyDictionary[UOp, tuple[Region, int]] = weakref.WeakKeyDictionary()


def register(region: Region, nodes: Iterable[UOp]) -> None:
    """From now on `nodes` are the outputs of `region`, unless they are its inputs."""
    for number, node in enumerate(nodes):
        if node not in region.sources and node is not region.outputs[number]:
            _regions[node] = region, number


def has_regions() -> bool:
    """Whether there is any region."""
    return bool(_regions)


def region_of(node: UOp) -> tuple[Region, int] | None:
    """The region that `node` is an output of, and the number of the output."""
    return _regions.get(node) if _regions else None


def moved(roots: Sequence[UOp], mapping: Mapping[UOp, UOp]) -> list[UOp]:
    """`roots` with each key of `mapping` replaced by its value; regions stay regions.

    An assignment of another value becomes that value, in memory of its own: the first may have run.
    """
    done: dict[UOp, UOp] = dict(mapping)

    def move(nodes: Iterable[UOp]) -> list[Region]:
        """Add `nodes` and what they need to `done`; the regions that changed."""
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
                made = with_part(node, src[0], done[node.src[1].src[1]])
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
        waiting += move([*region.leaves, *region.sources, *region.outputs])
        fresh = Region(
            *(
                tuple(done[node] for node in nodes)
                for nodes in (region.leaves, region.inputs, region.outer, region.outputs)
            )
        )
        register_moved(region, fresh, done)
    return results


def register_moved(old: Region, fresh: Region, done: Mapping[UOp, UOp]) -> None:
    """Let what became of the outputs of `old` be the outputs of `fresh`."""
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
    place = simplify(UOp.range(count, 0))
    ast = UOp.sink(
        pointers[0].store(place, pointers[1].load(place)),
        arg=KernelInfo("copied_again", (0,) if count > 1 else ()),
    )
    arg = KernelArg("copied_again", tuple(value.shape), ast, _pass)
    return UOp(Ops.CUSTOM, value.dtype, (value, *first), arg)


def _pass(g: UOp, node: UOp) -> list[UOp | None]:
    return [g, *[None] * (len(node.src) - 1)]
