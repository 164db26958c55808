"""Fills of a tile in shared memory: by vectors that all lanes of a block copy, or by boxes that one
lane copies with an instruction each.

A vector holds neighbours in global memory. In shared memory they are neighbours too, or, where the
tile is transposed, in neighbouring rows. Lanes with neighbouring numbers take neighbouring
vectors, unless their stores would meet in a bank: then a few rows come first.

Matrix units may read shared memory by themselves. Where their operand is a plain matrix in global
memory, one instruction copies a box of it (COPY_TILE): no lane computes addresses, and no register
holds elements. The box follows from the indices of the fill: each range of the tile is a dimension,
and all other terms, those of blocks and of the loop over the sum, are its offset.

    before   END(STORE(shared, i*64 + j, LOAD(a, m*262144 + i*4096 + k*64 + j)), i, j)
    after    COPY_TILE(shared, 0, a, ..., k*64, m*64)   of 4096 by 4096 elements, a box of 64 by 64

A barrier in shared memory tells lanes that a tile has landed; there is one for each tile that an
operand has at a time. In each phase of the barrier the lane that copies arrives once and announces
the number of bytes (ARRIVE); the phase ends when all of them have landed. The tile of iteration t
is filled in phase t // n of barrier t % n: each tile is filled once per iteration that reads it.

The rules for boxes are those of `cuTensorMapEncodeTiled` (CUDA Driver API, "Tensor Map Object
Management"); dimensions must not overlap each other, as the strides of its example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import is_const, loads_of, memory_of, shortened_memories, trips_of
from tilegrad.ir.ranges import gate_loads
from tilegrad.ir.rules import conjuncts, from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp, element_of, pointer_of, prod
from tilegrad.target import Target

__all__ = ["Boxes", "LaneCopy", "TileCopies", "find_boxes", "has_room", "lane_of", "read_by_units"]

# Banks of shared memory, and the bytes of each (CUDA C++ Programming Guide, shared memory).
_BANKS, _WORD = 32, 4


class _Digits(NamedTuple):
    """A vector's number as digits, the fastest first: rows that come first, vectors of a row, and
    the other rows.
    """

    rows_first: int
    vectors: int

    def row_and_vector(self, number: UOp) -> tuple[UOp, UOp]:
        first = number % self.rows_first
        rest = number // self.rows_first
        return rest // self.vectors * self.rows_first + first, rest % self.vectors


class LaneCopy:
    """The fill of one tile."""

    def __init__(self, fill: UOp, lanes: Sequence[UOp], target: Target):
        self.store, *self.nest = fill.src
        self.lanes, self.target = lanes, target
        self.itemsize = self.store.value.dtype.itemsize
        self.fast = self._contiguous()
        self.rows = [loop for loop in self.nest if loop is not self.fast]
        self.width = self._width()
        self.unrolled: list[UOp] = []

    @property
    def is_moved(self) -> bool:
        """Whether the tile has the values of memory as they are."""
        return self.store.value.op is Ops.LOAD

    @property
    def nbytes(self) -> int:
        """Bytes that are copied at a time."""
        return self.width * self.itemsize

    def shared(self, number: int) -> UOp:
        """The store of one lane, over the ranges `unrolled`, with numbers from `number` on."""
        extent = self.fast.extent.arg
        vectors = extent // self.width
        count = trips_of(self.rows) * vectors
        lane, lanes = lane_of(self.lanes)
        steps = -(-count // lanes)
        step = UOp.range(steps, number, Axis.UPCAST)
        vector = UOp.range(self.width, number + 1, Axis.UPCAST)
        self.unrolled = [step] * (steps > 1) + [vector] * (self.width > 1)
        at = step * lanes + lane if steps > 1 else lane
        digits = _Digits(self._rows_first(count // vectors, vectors), vectors)
        row, vector_index = digits.row_and_vector(at)
        values = {self.fast: vector_index * self.width + vector if self.width > 1 else vector_index}
        for loop in reversed(self.rows):
            values[loop] = row % loop.extent.arg
            row = row // loop.extent.arg
        pointer, index, value = self.store.src
        values = {loop: simplify(each) for loop, each in values.items()}
        index, value = simplify(index.substitute(values)), simplify(value.substitute(values))
        if count % lanes == 0:
            return pointer.store(index, value)
        inside = simplify(at < count)
        return pointer.store(index, simplify(gate_loads(value, inside)), inside)

    def _contiguous(self) -> UOp:
        """The range in which most loads are contiguous; else the last."""
        loads = loads_of(self.store.value)

        def moved_by_one(loop: UOp) -> int:
            terms = (terms_of(load.index) for load in loads)
            return sum(found is not None and found[0].get(loop) == 1 for found in terms)

        return max(self.nest, key=lambda loop: (moved_by_one(loop), self.nest.index(loop)))

    def _width(self) -> int:
        return math.gcd(self.fast.extent.arg, self.target.access_lanes(self.store.value.dtype))

    def _rows_first(self, rows: int, vectors: int) -> int:
        """How many rows come before the next vector of a row: the fewest with which the stores of
        a warp share no bank; whole sectors are read all the same.
        """
        found = terms_of(self.store.index)
        if found is None or len(self.rows) != 1 or any(loop not in found[0] for loop in self.nest):
            return 1
        down, across = found[0][self.rows[0]], found[0][self.fast]
        warp = max(self.target.warp_lanes, 1)
        most = (
            max(warp * self.width * self.itemsize // self.target.sector_bytes, 1)
            if vectors > 1
            else 1
        )
        choices = [count for count in (1, 2, 4, 8, 16, 32) if rows % count == 0 and count <= most]

        def conflicts(rows_first: int) -> int:
            starts = []
            for lane in range(warp):
                rest = lane // rows_first
                row = rest // vectors * rows_first + lane % rows_first
                starts.append(row * down + rest % vectors * self.width * across)
            nbytes = self.itemsize * (self.width if across == 1 else 1)
            return _conflicts([start * self.itemsize for start in starts], nbytes)

        return min(choices, key=lambda count: (conflicts(count), count))


def lane_of(ranges: Sequence[UOp]) -> tuple[UOp, int]:
    """The number of a lane in its block, as hardware counts, and how many there are."""
    total, lanes = UOp.const(dtypes.index, 0), 1
    for loop in reversed(ranges):
        total = loop * lanes + total
        lanes *= loop.extent.arg
    return simplify(total), lanes


def _conflicts(starts: Sequence[int], nbytes: int) -> int:
    """The bank conflicts of a warp that accesses `nbytes` at each of `starts`: wide accesses are
    served by halves or quarters of it.
    """
    together = max(len(starts) // max(nbytes // _WORD, 1), 1)
    waits = 0
    for first in range(0, len(starts), together):
        words: dict[int, set[int]] = {}
        for start in starts[first : first + together]:
            for word in range(start // _WORD, (start + nbytes - 1) // _WORD + 1):
                words.setdefault(word % _BANKS, set()).add(word)
        waits += max(map(len, words.values())) - 1
    return waits


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
            int(prod(boxes.map.box)) * len(boxes.cuts) * element_of(memory).nbytes
            for memory, boxes in tiles
        )

    def wait(self) -> UOp:
        """Until the tiles of this iteration have landed."""
        number = simplify(self.loop % self.count)
        parity = simplify(self.loop // self.count % 2)
        return UOp(Ops.WAIT_TILE, dtypes.void, (self.barriers, number, parity))

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
        arrived = (self.barriers.after(*after), number, gate)
        barriers = self.barriers.after(UOp(Ops.ARRIVE, dtypes.void, arrived, self.nbytes))
        found = []
        for memory, boxes in self.tiles:
            first, *others = (
                simplify(each.substitute({self.loop: trip})) for each in boxes.coordinates
            )
            size = pointer_of(memory).size // self.count
            for start, further in boxes.cuts:
                at = simplify(number * size + start)
                begin = (simplify(first + further), *others)
                src = (memory, at, boxes.source, barriers, number, gate, *begin)
                found.append(UOp(Ops.COPY_TILE, dtypes.void, src, boxes.map))
        return found


def read_by_units(nodes: Iterable[UOp]) -> set[UOp]:
    """The memory that matrix units read by themselves, as it was copied."""
    nodes = list(nodes)
    found = {memory_of(node.src[1]) for node in nodes if node.op is Ops.DESCRIPTOR}
    return found - shortened_memories(nodes)


def find_boxes(fill: UOp, loop: UOp, target: Target) -> Boxes | None:
    """The boxes that fill a tile in an iteration of `loop`; None where it is no plain matrix."""
    store, *nest = fill.src
    value = store.value
    if not target.has_tile_copies or store.is_gated or loop.extent.op is not Ops.CONST:
        return None
    if value.op is not Ops.LOAD or (value.is_gated and not is_const(value.other, 0)):
        return None
    source = memory_of(value.src[0])
    if source.op is not Ops.DEFINE_GLOBAL or element_of(source) is not element_of(
        memory_of(store.src[0])
    ):
        return None
    row = _ROW // element_of(source).nbytes
    cuts = _cuts(store.index, nest, row)
    gates = _gates(value)
    found = terms_of(value.index)
    if cuts is None or gates is None or found is None:
        return None
    fastest_first = [nest[-1], *reversed(nest[:-1])]
    dimensions = _dimensions(*found, fastest_first, row, gates)
    if dimensions is None or not _fits(dimensions, cuts[-1][1], element_of(source).nbytes):
        return None
    first, *others = (each.size for each in dimensions)
    sizes = (first if dimensions[0].is_cut else first + cuts[-1][1], *others)
    matrix = TileMap(
        sizes, tuple(each.stride for each in dimensions), tuple(each.box for each in dimensions)
    )
    # A buffer of unknown size has less than no elements.
    if matrix.last >= pointer_of(source).size:
        return None
    return Boxes(matrix, source, tuple(each.begin for each in dimensions), cuts)


class _Gate(NamedTuple):
    """A condition of a load: a sum, as terms and a constant, is less than `bound`."""

    terms: Mapping[UOp, int]
    constant: int
    bound: int


def _gates(load: UOp) -> list[_Gate] | None:
    """The conditions under which a load reads memory; None if one is of another kind."""
    found: list[_Gate] = []
    for each in conjuncts(load.gate) if load.is_gated else ():
        below = terms_of(each.src[0]) if each.op is Ops.CMPLT else None
        if below is None or each.src[1].op is not Ops.CONST:
            return None
        found.append(_Gate(*below, int(each.src[1].arg)))
    return found


class _Dimension:
    """A dimension of a matrix: the elements between neighbours, the length of a box, and where one
    begins, as terms and a constant.
    """

    def __init__(self, stride: int, box: int, loop: UOp | None = None):
        self.stride, self.box, self.loop = stride, box, loop
        self.terms: dict[UOp, int] = {}
        self.constant = 0
        # The elements behind which memory is not read.
        self.bound: int | None = None

    @property
    def begin(self) -> UOp:
        zero = UOp.const(dtypes.index, 0)
        return simplify(from_terms(self.terms.items(), self.constant, zero))

    @property
    def is_cut(self) -> bool:
        """Whether the matrix ends where the reads of it end."""
        return self.bound is not None

    @property
    def size(self) -> int:
        return int(self.begin.vmax) + self.box if self.bound is None else self.bound


def _dimensions(
    terms: Mapping[UOp, int], constant: int, nest: Sequence[UOp], row: int, gates: Sequence[_Gate]
) -> list[_Dimension] | None:
    """The dimensions of the matrix, the smallest stride first: one for each range of the tile, and
    one for each matrix of a batch. A term belongs to the range of largest stride that divides it;
    one that no range divides, or whose range has an end, is a matrix of a batch.
    """
    rest = dict(terms)
    boxes = [row, *(int(loop.extent.arg) for loop in nest[1:])]
    own = [_Dimension(rest.pop(each, 0), box, each) for each, box in zip(nest, boxes, strict=True)]
    strides = [each.stride for each in own]
    if strides[0] != 1 or strides != sorted(set(strides)) or constant < 0:
        return None
    for term, scale in rest.items():
        if scale <= 0 or term.vmin < 0 or _is_of_launch(term) or not term.ranges.isdisjoint(nest):
            return None
        fitting = [each for each in own if scale % each.stride == 0]
        fitting[-1].terms[term] = scale // fitting[-1].stride
    for each in reversed(own):
        each.constant, constant = divmod(constant, each.stride)
    if not all(_bounded(own, gate) for gate in gates):
        return None
    more = []
    for each, following in zip(own, [*own[1:], None], strict=True):
        ended = [gate for gate in gates if each.loop in gate.terms]
        for term, scale in list(each.terms.items()):
            is_beyond = following is not None and scale * each.stride >= following.stride
            if is_beyond or any(term not in gate.terms for gate in ended):
                more.append(_Dimension(each.terms.pop(term) * each.stride, 1))
                more[-1].terms[term] = 1
    return sorted([*own, *more], key=lambda each: each.stride)


def _bounded(dimensions: Sequence[_Dimension], gate: _Gate) -> bool:
    """Whether a gate is the end of one of the dimensions, which is set."""
    for each in dimensions:
        if each.loop is None or gate.terms.get(each.loop) != 1:
            continue
        if all(
            term is each.loop or each.terms.get(term) == scale for term, scale in gate.terms.items()
        ):
            end = gate.bound - gate.constant + each.constant
            each.bound = end if each.bound is None else min(each.bound, end)
            return end > 0
    return False


def _is_of_launch(term: UOp) -> bool:
    """Whether a term depends on a length that only a launch knows, or on a loaded value."""
    return any(
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


def _fits(dimensions: Sequence[_Dimension], further: int, itemsize: int) -> bool:
    """Whether there is an instruction for such boxes, if the last one begins `further` elements
    beyond the first.
    """
    spans = [each.size * each.stride for each in dimensions]
    spans[0] += 0 if dimensions[0].is_cut else further
    strides = [each.stride for each in dimensions[1:]]
    return (
        len(dimensions) <= _MOST_DIMENSIONS
        and all(each.box <= _LONGEST for each in dimensions)
        and all(int(each.begin.vmax) + each.box + further < _MOST_POSITION for each in dimensions)
        and all(span <= stride for span, stride in zip(spans, strides, strict=False))
        and all(each * itemsize % _VECTOR == 0 and each * itemsize < _FARTHEST for each in strides)
    )


def has_room(nodes: Iterable[UOp], count: int, target: Target) -> bool:
    """Whether a block has shared memory for barriers beside `count` tiles of each array."""
    arrays = [node for node in nodes if node.op is Ops.DEFINE_LOCAL]
    total = sum(pointer_of(each).size * element_of(each).nbytes for each in arrays)
    return count * total + len(arrays) * _SLACK <= target.block_bytes
