"""Regions that differ in where their slices begin: each time step of a recurrent network takes a
slice of a sequence, and has a kernel that is equal but for numbers added to indices.

A slice of memory, or of an elementwise function of memory, reads that memory at a distance that
follows from where it begins. So where memory is read through such slices only, one kernel is built,
and the others have it with another number:

before   SHRINK(x, ((3, 4), (0, 8))), SHRINK(x, ((5, 6), (0, 8)))
after    LOAD(x, i + 24), and the same with 40
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of, prod
from tilegrad.schedule.region import KernelRegion

__all__ = ["OffsetRegion", "at_offsets", "split_index", "without_offsets"]

# Ops whose element depends on the same element of the source alone.
_SAME_ELEMENT = (Ops.CAST, Ops.BITCAST, Ops.DETACH)
# Ops of a constant that give the same constant everywhere.
_OF_CONSTANTS = (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP)


class OffsetRegion(NamedTuple):
    """The key of a region without the offsets of its slices, and these: by the number of the
    memory, how many elements are left out. No other access is made to that memory.
    """

    key: tuple[Hashable, ...]
    offsets: dict[int, int]


def without_offsets(region: KernelRegion) -> OffsetRegion | None:
    """The region without offsets; None if it has none that are understood."""
    if not any(node.op is Ops.SHRINK for node in region.nodes):
        return None
    key = list(region.key)
    # The memory below a node, if each of its elements is a function of the same elements there.
    plain: dict[UOp, frozenset[int]] = {}
    offsets: dict[int, int] = {}
    met: set[int] = set()
    for position, node in enumerate(region.nodes):
        if node in region.memory:
            plain[node] = frozenset([region.memory[node]])
            continue
        found = _memory_of(node, plain, region)
        if found is not None:
            plain[node] = found
            continue
        below = {each for source in node.src for each in plain.get(source, ())}
        if node.op is not Ops.SHRINK or node.src[0] not in plain:
            met |= below
            continue
        offset = _offset(node)
        if offset is None:
            met |= below
            continue
        for each in below:
            if offsets.setdefault(each, offset) != offset:
                met.add(each)
        sizes = tuple([end - start for start, end in node.arg])
        key[position] = region.without_argument(position), sizes
    return None if not offsets or met & offsets.keys() else OffsetRegion(tuple(key), offsets)


def _memory_of(
    node: UOp, plain: Mapping[UOp, frozenset[int]], region: KernelRegion
) -> frozenset[int] | None:
    """The memory below `node`, if each element is made of the same element there; else None."""
    if not node.src:
        return frozenset() if node.op is Ops.CONST else None
    sources = [plain.get(source) for source in node.src]
    if any(each is None for each in sources):
        return None
    found = frozenset().union(*[each for each in sources if each is not None])
    if not found:
        is_same = node.op.is_alu or node.op in (*_SAME_ELEMENT, *_OF_CONSTANTS)
        return found if is_same else None
    if node.op is Ops.RESHAPE:
        # Only memory itself has its elements in the order of all shapes.
        below = node.src[0]
        while below.op is Ops.RESHAPE and below not in region.memory:
            below = below.src[0]
        return found if below in region.memory else None
    is_whole = all(source.shape == node.shape for source in node.src if plain[source])
    return found if is_whole and (node.op.is_alu or node.op in _SAME_ELEMENT) else None


def _offset(shrink: UOp) -> int | None:
    """The elements of memory before a slice; None if that is not a number."""
    shape = shrink.src[0].shape
    edges = [edge for pair in shrink.arg for edge in pair]
    if not all(isinstance(each, int) for each in (*shape, *edges)):
        return None
    total = 0
    for axis, (start, _) in enumerate(shrink.arg):
        total += start * int(prod(shape[axis + 1 :]))
    return total


def split_index(index: UOp) -> tuple[UOp, int]:
    """An index as a sum of something and a number."""
    if index.op is Ops.ADD and index.dtype.lanes == 1:
        for own, other in (index.src, index.src[::-1]):
            if other.op is Ops.CONST:
                return own, int(other.arg)
    return index, 0


def at_offsets(ast: UOp, changes: Mapping[int, int]) -> UOp | None:
    """A kernel that reads some parameters by `changes` further on. None if they are written, or if
    a read may lie outside of its memory, here or there: the gates that it needs are others.
    """
    mapping: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        pointer, index = node.src[:2]
        if pointer.op is not Ops.DEFINE_GLOBAL or pointer.arg not in changes:
            continue
        change = changes[pointer.arg]
        rest, number = split_index(index)
        low, high = index.bounds
        is_inside = (
            min(low, low + change) >= 0 and max(high, high + change) < pointer_of(pointer).size
        )
        if node.op is Ops.STORE or not is_inside:
            return None
        if any(each.op is Ops.LOAD for each in rest.toposort()):
            return None
        number += change
        index = rest + number if number else rest
        mapping[node] = node.over((pointer, index, *node.src[2:]))
    return ast.substitute(mapping)
