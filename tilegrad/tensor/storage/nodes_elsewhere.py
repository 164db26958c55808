"""The nodes of a segment at other sizes of its leaves (`tensor.storage.sized_segments`): without
memory, to ask a plan whether it is for those sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input
from tilegrad.tensor.storage.leaf_kinds import slice_of
from tilegrad.tensor.storage.noted_runs import PlainNodes
from tilegrad.tensor.storage.signatures import WaitingCalls

__all__ = [
    "MEMORY", "NodesElsewhere", "Position", "chain_of", "is_at_end", "long_axis", "shape_below",
]  # fmt: skip

# Where a size is: a leaf, its axis, or `MEMORY` for the elements of the memory below it, and how
# much larger than the unknown it is.
Position = tuple[int, int, int]
MEMORY = -1


class NodesElsewhere:
    """The nodes of a segment at other sizes of its leaves."""

    def __init__(
        self,
        found: WaitingCalls,
        plain: PlainNodes,
        unknowns: Sequence[Sequence[Position]],
        sizes: tuple[int, ...],
        growing: Collection[int],
    ):
        self.found, self.plain, self.growing = found, plain, growing
        self.size_of = {
            (number, axis): size + more
            for positions, size in zip(unknowns, sizes, strict=True)
            for number, axis, more in positions
        }
        self.memory: dict[UOp, UOp] = {}
        # For memory that a leaf covers: the shape that it is seen in.
        self.shape_of: dict[UOp, tuple[int, ...]] = {}

    def calls(self) -> dict[Call, UOp] | None:
        """The nodes of the calls; None if they have other graphs there."""
        nodes: dict[Input, UOp] = {}
        same: list[Input] = []
        # A leaf that covers its memory tells how long that is, also for slices of it.
        leaves = [*enumerate(self.plain.leaves.items())]
        leaves.sort(key=lambda each: _has_slice(chain_of(each[1][1])))
        for number, (leaf, node) in leaves:
            shape = tuple(
                [self.size_of.get((number, n), size) for n, size in enumerate(leaf.shape)]
            )
            if shape == leaf.shape:
                same.append(leaf)
                continue
            other = self._leaf(number, node, shape)
            if other is None:
                return None
            nodes[leaf] = other
        for (number, axis), size in self.size_of.items():
            if axis == MEMORY and not self._has_memory(number, size):
                return None
        for leaf in same:
            # A slice that has one size may be one of memory that has others now.
            other = self._above_changed(self.plain.leaves[leaf])
            if other is None:
                return None
            nodes[leaf] = other
        found: dict[Call, UOp] = {}
        for call in self.found.by_time:
            inputs = [nodes[each] for each in call.inputs or ()]
            shapes = tuple([node.shape for node in inputs])
            template = call.template
            if call.pattern is not None:
                values = call.pattern.values(shapes)
                if values is None:
                    return None
                template = call.pattern.graph_at(values)
            elif template.steps and shapes != tuple([each.shape for each in call.inputs or ()]):
                # An alias, which has no steps, is of any shape.
                return None
            nodes[call] = found[call] = template.make(inputs, ())[call.slot]
        return found

    def _leaf(self, number: int, node: UOp, shape: tuple[int, ...]) -> UOp | None:
        """Leaf `number`, all of its memory or a slice of it, in another shape."""
        chain = chain_of(node)
        if not chain and node.op is not Ops.BUFFER:
            return None
        if _has_slice(chain):
            return self._slice(number, chain, shape)
        below = chain[-1].src[0] if chain else node
        made = self._memory(below, math.prod(shape))
        self.shape_of[below] = shape
        return None if made is None else _replayed(chain, made, shape, shape)

    def _has_memory(self, number: int, size: int) -> bool:
        """Let the memory below leaf `number`, a slice of it, have another size."""
        chain = chain_of([*self.plain.leaves.values()][number])
        if not chain:
            return False
        node = chain[-1].src[0]
        shape = shape_below(chain, node.arg.size)
        if shape is None or self._memory(node, size) is None:
            return False
        axis = long_axis(shape)
        self.shape_of.setdefault(node, (*shape[:axis], size, *shape[axis + 1 :]))
        return True

    def _above_changed(self, node: UOp) -> UOp | None:
        """A leaf of one size, over memory that may have another size by now."""
        chain: list[UOp] = []
        top = node
        while len(node.src) == 1:
            chain.append(node)
            node = node.src[0]
        made = self.memory.get(node)
        if made is None:
            return top
        if made.arg.size == node.arg.size:
            return top.substitute({node: made})
        shape = self.shape_of.get(node)
        return None if shape is None else _replayed(chain, made, shape, None)

    def _memory(self, node: UOp, size: int) -> UOp | None:
        """Memory with `size` elements in the place of a BUFFER; None if it has another size."""
        made = self.memory.get(node)
        if made is None:
            arg = node.arg._replace(slot=-1 - len(self.memory), size=size)
            made = self.memory[node] = UOp(Ops.BUFFER, node.dtype, (), arg)
        return made if made.arg.size == size else None

    def _slice(self, number: int, chain: list[UOp], shape: tuple[int, ...]) -> UOp | None:
        """The slice that is the top of `chain`, with as many elements along its axes as `shape`
        says, and of that shape; None where its memory has fewer.
        """
        sliced = next(node for node in chain if node.op is Ops.SHRINK).shape
        left = iter([size for size in shape if size != 1])
        wanted = [size if size == 1 else next(left) for size in sliced]
        made: UOp | None = chain[-1].src[0]
        below: tuple[int, ...] | None = None
        if number in self.growing and made is not None:
            lowest = next(node for node in reversed(chain) if node.op is Ops.SHRINK).src[0].shape
            below = self.shape_of.get(made)
            if below is None:
                below = tuple([size + new - old for size, old, new in zip(lowest, sliced, wanted)])
            made = self._memory(made, math.prod(below))

        def ends(each: UOp, most: tuple[int, ...]) -> list[tuple[int, int]]:
            # An axis that is whole stays whole, one that has its size at last has it now.
            return [
                (start, start + new if end - start == old else end + size - before)
                for (start, end), old, new, before, size in zip(
                    each.arg, sliced, wanted, each.src[0].shape, most
                )
            ]

        return None if made is None else _replayed(chain, made, below, shape, ends)


Ends = Callable[[UOp, tuple[int, ...]], Sequence[tuple[int, int]]]


def _has_slice(chain: Sequence[UOp]) -> bool:
    return any(each.op is Ops.SHRINK for each in chain)


def _ends_from_the_end(each: UOp, most: tuple[int, ...]) -> Sequence[tuple[int, int]]:
    """The ends of a slice of an axis of another size: some are counted from its end."""
    found: list[tuple[int, int]] = []
    for (start, end), old, new in zip(each.arg, each.src[0].shape, most):
        more = new - old if is_at_end(start, end - start, old) else 0
        found.append((start + more, end + more))
    return found


def _replayed(
    chain: Sequence[UOp],
    memory: UOp,
    below: tuple[int, ...] | None,
    top: tuple[int, ...] | None,
    ends: Ends = _ends_from_the_end,
) -> UOp | None:
    """The moves of a `chain` from the top down, over other memory: `below` is its shape elsewhere,
    `top` that of the leaf, where these are others, and `ends` gives those of each slice. None for a
    slice that lies outside, and where another shape comes of it.
    """
    made = memory
    is_sliced = False
    for position, each in enumerate(reversed(chain)):
        arg = each.arg
        if each.op is Ops.SHRINK:
            arg, is_sliced = tuple(ends(each, made.shape)), True
            if len(arg) != len(made.shape) or any(
                start < 0 or end > size for (start, end), size in zip(arg, made.shape)
            ):
                return None
        elif each.op is Ops.RESHAPE and is_sliced:
            arg = top or arg
        elif each.op is Ops.RESHAPE and below is not None:
            is_flat = len(arg) == 1 and position + 1 < len(chain)
            arg = (math.prod(below),) if is_flat else below
        made = UOp(each.op, each.dtype, (made,), arg)
    wanted = top or (chain[0].shape if chain else memory.shape)
    return made if made.shape == wanted else None


def chain_of(node: UOp) -> list[UOp]:
    """The nodes from a leaf down to its memory, without that; none where it stands on none."""
    chain: list[UOp] = []
    while node.src:
        chain.append(node)
        node = node.src[0]
    return chain if node.op is Ops.BUFFER else []


def shape_below(chain: Sequence[UOp], size: int) -> tuple[int, ...] | None:
    """The shape of memory of `size` elements below a slice, the top of `chain`, where all of them
    are along one axis.
    """
    moves = [(each.op, each.arg, each.shape) for each in reversed(chain)]
    found = slice_of(moves, size) if moves else None
    return found[0] if found is not None and size in found[0] and size > 1 else None


def long_axis(shape: tuple[int, ...]) -> int:
    """The axis of the elements, where all others have one."""
    return shape.index(max(shape))


def is_at_end(start: int, length: int, size: int) -> bool:
    """Whether a slice of an axis is counted from the end: `x[-1:]` and not `x[:1]`."""
    return start + length == size and start > 0
