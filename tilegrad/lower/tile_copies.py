"""Tiles that one lane copies to shared memory, for matrix units that read it by themselves.

Where an operand is a plain matrix in global memory, one instruction copies a box of it (COPY_TILE):
no lane computes addresses, and no register holds elements. Which boxes there are, the indices of
the fill say: each range of the tile is a dimension of the box, and all other terms, which are those
of blocks and of the loop over the sum, say where it begins.

    before   END(STORE(shared, i*64 + j, LOAD(a, m*262144 + i*4096 + k*64 + j)), i, j)
    after    COPY_TILE(shared, 0, a, ..., k*64, m*64)   of 4096 by 4096 elements, a box of 64 by 64

Lanes know by a barrier in shared memory that a tile has landed, one for each tile that an operand
has at a time. In a phase of it the lane that copies arrives once and says how many bytes will come
(ARRIVE); the phase ends as all of them have. The tile of iteration t is filled in phase t // n of
barrier t % n, as each tile is filled once for each iteration that reads it, and never in vain.

The rules for boxes are those of `cuTensorMapEncodeTiled` (CUDA Driver API, "Tensor Map Object
Management"); dimensions must not overlap each other, as the strides of its example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.rules import from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.target import Target

__all__ = ["Boxes", "TileCopies", "find_boxes", "has_room", "read_by_units"]

# Bytes of a row of a box, whose vectors the copy swizzles among 8 rows, as matrix units read them.
_ROW = 128
# The most dimensions, and the most elements of a box along each.
_MOST_DIMENSIONS, _LONGEST = 5, 256
# Strides are multiples of a vector, in bytes, and less than 2^40; a position has 32 bits.
_VECTOR, _FARTHEST, _MOST_POSITION = 16, 1 << 40, 1 << 31
# Bytes that barriers, and arrays that begin at a multiple of 1024, take beside the tiles at most.
_SLACK = 1 << 10


class Boxes(NamedTuple):
    """The boxes that fill a tile in an iteration, by where each begins in the tile, and how many
    elements of a row lie before it.
    """

    map: TileMap
    source: UOp
    coordinates: tuple[UOp, ...]
    cuts: tuple[tuple[int, int], ...]


class TileCopies:
    """Tiles that one lane fills in one loop."""

    def __init__(
        self, tiles: Sequence[tuple[UOp, Boxes]], loop: UOp, count: int, lane: UOp, number: int
    ):
        """`tiles` are memories of `count` tiles each, `lane` is a lane's number in its block, and
        `number` that of the array of barriers.
        """
        self.tiles, self.loop, self.count = tiles, loop, count
        self.barriers = UOp(
            Ops.DEFINE_LOCAL, dtypes.uint64.ptr(count, AddressSpace.SHARED), (), number
        )
        self.is_chosen = UOp(Ops.ELECT, dtypes.bool, (lane,))
        self.nbytes = sum(
            int(prod(boxes.map.box)) * len(boxes.cuts) * _base(memory).nbytes
            for memory, boxes in tiles
        )

    def wait(self) -> UOp:
        """Until the tiles of this iteration have landed."""
        number = simplify(self.loop % self.count)
        parity = simplify(self.loop // self.count % 2)
        return UOp(Ops.WAIT_PHASE, dtypes.void, (self.barriers, number, parity))

    def filled(self) -> list[UOp]:
        """The fills of the tiles of the first iterations, before the loop: the last of them."""
        found: list[UOp] = []
        for trip in range(self.count - 1):
            found = self._filled(UOp.const(dtypes.index, trip), self.is_chosen, found)
        return found

    def filled_ahead(self, barrier: UOp) -> list[UOp]:
        """In each iteration, the fills of the last tiles that are filled ahead, if any is left."""
        ahead = self.count - 1
        gate = simplify(self.is_chosen & (self.loop < self.loop.extent - ahead))
        return self._filled(simplify(self.loop + ahead), gate, [barrier])

    def _filled(self, trip: UOp, gate: UOp, after: Sequence[UOp]) -> list[UOp]:
        """The fills of the tiles of iteration `trip`, behind `after`."""
        number = simplify(trip % self.count)
        src = (self.barriers.after(*after), number, gate)
        barriers = self.barriers.after(UOp(Ops.ARRIVE, dtypes.void, src, self.nbytes))
        found = []
        for memory, boxes in self.tiles:
            first, *others = (
                simplify(each.substitute({self.loop: trip})) for each in boxes.coordinates
            )
            size = _pointer(memory).size // self.count
            for start, further in boxes.cuts:
                at = simplify(number * size + start)
                src = (memory, at, boxes.source, barriers, number, gate)
                src = (*src, simplify(first + further), *others)
                found.append(UOp(Ops.COPY_TILE, dtypes.void, src, boxes.map))
        return found


def _pointer(memory: UOp) -> Pointer:
    assert isinstance(memory.dtype, Pointer)
    return memory.dtype


def _base(memory: UOp) -> DType:
    return _pointer(memory).base


def read_by_units(nodes: Iterable[UOp]) -> set[UOp]:
    """The memory that matrix units read by themselves."""
    return {memory_of(node.src[1]) for node in nodes if node.op is Ops.DESCRIPTOR}


def find_boxes(fill: UOp, loop: UOp, target: Target) -> Boxes | None:
    """The boxes that fill a tile in an iteration of `loop`; None where it is no plain matrix."""
    store, *nest = fill.src
    value = store.src[2]
    if not target.has_tile_copies or store.is_gated or loop.extent.op is not Ops.CONST:
        return None
    if value.op is not Ops.LOAD or value.is_gated:
        return None
    source, tile = memory_of(value.src[0]), memory_of(store.src[0])
    pointer, shared = source.dtype, tile.dtype
    if not isinstance(pointer, Pointer) or not isinstance(shared, Pointer):
        return None
    if source.op is not Ops.DEFINE_GLOBAL or pointer.base is not shared.base:
        return None
    row = _ROW // pointer.base.nbytes
    fast = nest[-1]
    cuts = _cuts(store.index, nest, row)
    found = terms_of(value.index)
    if cuts is None or found is None or found[0].get(fast) != 1:
        return None
    terms, constant = found
    nest = [fast, *reversed(nest[:-1])]
    strides = [terms.pop(each, 0) for each in nest]
    if any(each in term.ranges for term in terms for each in nest):
        return None
    box = [row, *(int(each.extent.arg) for each in nest[1:])]
    if any(_is_of_launch(term) for term in terms):
        return None
    layout = _layout(terms, constant, strides)
    if layout is None:
        return None
    strides, coordinates = layout
    box += [1] * (len(strides) - len(box))
    further = cuts[-1][1]
    sizes = [int(each.vmax) + length for each, length in zip(coordinates, box, strict=True)]
    sizes[0] += further
    if not _fits(sizes, strides, box, pointer.base.nbytes):
        return None
    matrix = TileMap(tuple(sizes), tuple(strides), tuple(box))
    # Of a buffer of unknown size, the least one is 0 elements.
    return Boxes(matrix, source, tuple(coordinates), cuts) if matrix.last < pointer.size else None


def _is_of_launch(term: UOp) -> bool:
    """Whether a term depends on a length that only a launch knows, or is no sum of positions."""
    return term.vmin < 0 or any(
        node.op in (Ops.DEFINE_VAR, Ops.LOAD)
        or (node.op is Ops.RANGE and node.extent.op is not Ops.CONST)
        for node in term.toposort()
    )


def _cuts(index: UOp, nest: Sequence[UOp], row: int) -> tuple[tuple[int, int], ...] | None:
    """Where the cuts of the rows begin in the tile, each with its first element in the row, if the
    elements of each follow each other in rows of `row`.
    """
    *others, last = nest
    length = last.extent.arg
    if length % row:
        return None
    wanted, rows = {last: 1}, row
    for loop in reversed(others):
        wanted[loop], rows = rows, rows * loop.extent.arg
    # Within a cut, the last range is shorter.
    inner = UOp.range(row, last.number, Axis.STAGE)
    within = {inner if loop is last else loop: scale for loop, scale in wanted.items()}
    found = []
    for first in range(0, length, row):
        terms = terms_of(simplify(index.substitute({last: inner + first})))
        if terms is None or terms[0] != within:
            return None
        found.append((int(terms[1]), first))
    return tuple(found)


def _layout(
    terms: dict[UOp, int], constant: int, strides: Sequence[int]
) -> tuple[list[int], list[UOp]] | None:
    """The strides of all dimensions, ascending, and where a box begins along each: a term belongs
    to the longest stride that divides it.
    """
    own = list(strides)
    if any(one >= other for one, other in zip(own, own[1:], strict=False)) or constant < 0:
        return None
    parts: list[list[tuple[UOp, int]]] = [[] for _ in own]
    for term, scale in sorted(terms.items(), key=lambda each: each[1]):
        if scale <= 0:
            return None
        at = max(number for number, stride in enumerate(own) if scale % stride == 0)
        if at == 0 and len(own) > 1 and scale >= own[1]:
            # Another matrix, whose distance is no whole number of rows.
            if scale < own[-1] * 2:
                return None
            own.append(scale)
            parts.append([(term, 1)])
        else:
            parts[at].append((term, scale // own[at]))
    rests = []
    for stride in reversed(own):
        rests.append(constant // stride)
        constant %= stride
    zero = UOp.const(dtypes.index, 0)
    starts = zip(parts, reversed(rests), strict=True)
    return own, [simplify(from_terms(each, rest, zero)) for each, rest in starts]


def _fits(sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], itemsize: int) -> bool:
    """Whether there is an instruction for such boxes."""
    spans = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    return (
        len(sizes) <= _MOST_DIMENSIONS
        and max(box) <= _LONGEST
        and max(sizes) < _MOST_POSITION
        and all(span <= stride for span, stride in zip(spans, strides[1:], strict=False))
        and all(each * itemsize % _VECTOR == 0 for each in strides[1:])
        and all(each * itemsize < _FARTHEST for each in strides[1:])
    )


def has_room(nodes: Iterable[UOp], count: int, target: Target) -> bool:
    """Whether a block has shared memory for barriers beside `count` tiles of each array."""
    arrays = [node for node in nodes if node.op is Ops.DEFINE_LOCAL]
    total = sum(_pointer(each).size * _base(each).nbytes for each in arrays)
    return count * total + len(arrays) * _SLACK <= target.block_bytes
