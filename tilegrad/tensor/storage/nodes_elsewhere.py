"""The nodes of a segment at other sizes of its leaves (`tensor.storage.sized_segments`): without
memory, to ask a plan whether it is for those sizes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

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
        # Of memory that a leaf covers, the shape that it is seen in.
        self.shape_of: dict[UOp, tuple[int, ...]] = {}

    def calls(self) -> dict[Call, UOp] | None:
        """The nodes of the calls; None if they have other graphs there."""
        nodes: dict[Input, UOp] = {}
        same: list[Input] = []
        for number, (leaf, node) in enumerate(self.plain.leaves.items()):
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
        if any(each.op is Ops.SHRINK for each in chain):
            return self._slice(number, chain, shape)
        made = self._memory(chain[-1].src[0] if chain else node, math.prod(shape))
        if made is None:
            return None
        self.shape_of[chain[-1].src[0] if chain else node] = shape
        for position, each in enumerate(reversed(chain)):
            is_flat = each.op is Ops.RESHAPE and len(each.arg) == 1 and position + 1 < len(chain)
            arg = each.arg
            if each.op is Ops.RESHAPE:
                arg = (math.prod(shape),) if is_flat else shape
            made = UOp(each.op, each.dtype, (made,), arg)
        return made

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
        is_sliced = False
        for each in reversed(chain):
            arg = each.arg
            if each.op is Ops.SHRINK:
                ends: list[tuple[int, int]] = []
                for (start, end), old, new in zip(arg, each.src[0].shape, made.shape):
                    more = new - old if is_at_end(start, end - start, old) else 0
                    ends.append((start + more, end + more))
                    if start + more < 0 or end + more > new:
                        return None
                arg, is_sliced = tuple(ends), True
            elif each.op is Ops.RESHAPE and not is_sliced:
                shape = self.shape_of.get(node)
                if shape is None or len(shape) != len(arg):
                    return None
                arg = shape
            made = UOp(each.op, each.dtype, (made,), arg)
        return made if made.shape == top.shape else None

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
            below = tuple([size + new - old for size, old, new in zip(lowest, sliced, wanted)])
            made = self._memory(made, math.prod(below))
        is_sliced = False
        for each in reversed(chain):
            if made is None:
                return None
            arg = each.arg
            if each.op is Ops.SHRINK:
                ends: list[tuple[int, int]] = []
                for (start, end), old, new, before, most in zip(
                    arg, sliced, wanted, each.src[0].shape, made.shape
                ):
                    # An axis that is whole stays whole, one that has its size at last has it now.
                    end = start + new if end - start == old else end + most - before
                    if end > most:
                        return None
                    ends.append((start, end))
                arg, is_sliced = tuple(ends), True
            elif each.op is Ops.RESHAPE:
                arg = shape if is_sliced else below or arg
            made = UOp(each.op, each.dtype, (made,), arg)
        return made if made is not None and made.shape == shape else None


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
