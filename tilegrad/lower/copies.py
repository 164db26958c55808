"""Tiles in shared memory that a whole block fills (STAGE): when they are filled, and how many there
are at once.

A lane copies vectors; where one instruction copies a whole tile, one lane does
(lower.filling_lanes has both).

There are two tiles of each operand. Before the loop the first is filled; each iteration waits at a
barrier, loads the next tile, computes with its own, and stores the next (double buffering). So
loads from global memory have an iteration to arrive, and one barrier is enough: a lane that fills a
tile anew has passed the barrier that all lanes reach after they have read it.

Where BARRIER's `arg` says that there are more tiles, n, all but one are filled ahead: n - 1 before
the loop, and in each iteration the one that is used n - 1 iterations later, if there is such an
iteration. Copies that go on meanwhile (lower.async_copies) then have n - 1 iterations to arrive.

    before   k: { BARRIER(END(STORE(shared, ..., LOAD(a, k)), i, j)); LOAD(shared, ...) }
    after    STORE(shared, ..., LOAD(a, 0))                        i, j in terms of lanes
             k: { BARRIER; x = LOAD(a, k + 1 < n ? k + 1 : 0); LOAD(shared, k % 2 * size + ...);
                  STORE(shared, (k + 1) % 2 * size + ..., x) }
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    loop_ranks,
    memory_of,
    next_number,
    nodes_of,
    points_to,
    trips_of,
    written_memories,
)
from tilegrad.ir.ranges import gate_loads, replace_ranges
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.lower.filling_lanes import (
    Boxes,
    LaneCopy,
    TileCopies,
    find_boxes,
    has_room,
    lane_of,
    read_by_units,
)
from tilegrad.lower.unroll_tiles import tiles_at_once
from tilegrad.target import TILES, Target

__all__ = ["share_copies"]

# Iterations from which an idle copy in the last one is at most an eighth of all copies.
_LONG = 8
# Bytes of the widest access.
_VECTOR = 16
_LANES = (Axis.LOCAL, Axis.GROUP)
_LOOPS = (Axis.LOOP, Axis.REDUCE)
_UNROLLED = (Axis.UPCAST, Axis.UNROLL)


def share_copies(ast: UOp, target: Target) -> UOp:
    """`ast` with each tile filled by the lanes of the block together."""
    fills = [node for node in nodes_of(ast, Ops.END) if _is_tile(node.src[0])]
    if not fills:
        return ast
    rank = loop_ranks(ast)
    ranges = [node for node in nodes_of(ast, Ops.RANGE) if node.number in rank]
    ranges.sort(key=lambda each: rank[each.number])
    number = next_number(ast.toposort())
    barriers: dict[UOp, list[UOp]] = {}
    begins: dict[UOp, list[UOp]] = {}
    for node in ast.toposort():
        if node.op is Ops.BARRIER and len(node.src) == 1 and node.src[0].op is Ops.RANGE:
            begins.setdefault(node.src[0], []).append(node)
        elif node.op is Ops.BARRIER and any(fill in fills for fill in node.src):
            barriers[node] = [fill for fill in node.src if fill in fills]
    ahead: list[UOp] = []
    mapping: dict[UOp, UOp] = {}
    tiles: list[_Tiles] = []
    is_by_vectors = True
    for barrier, own in barriers.items():
        filled = _Fills(ast, own, ranges, _count(ranges, barrier), target)
        is_by_vectors &= filled.is_by_vectors
        mapping[barrier] = filled.barrier(number)
        # One barrier at the begin of an iteration is enough for all that it separates.
        mapping |= dict.fromkeys(begins.get(filled.loop, ()), mapping[barrier])
        ahead += filled.ahead(mapping[barrier])
        tiles += filled.tiles
        number += 2 * len(own)
    ast = ast.substitute(mapping)
    ast = ast.replace(src=(*ast.src, *ahead))
    for tile in tiles:
        ast = _moved(ast, tile.memory, tile.whole, tile.offset(tile.trip))
    is_plain = sum(each.axis is Axis.REDUCE for each in ranges) == 1
    return _with_loops_over_tiles(simplify(ast), tiles, is_plain, is_by_vectors)


class _Fills:
    """The fills of the tiles that one barrier separates: by all lanes, or by one of them."""

    def __init__(
        self,
        ast: UOp,
        fills: Sequence[UOp],
        ranges: Sequence[UOp],
        count: int,
        target: Target,
    ):
        self.count = count
        self.lanes = [each for each in ranges if each.axis in _LANES]
        self.tiles: list[_Tiles] = []
        self.copies: list[tuple[LaneCopy, _Tiles]] = []
        boxes: list[tuple[UOp, Boxes]] = []
        nodes = ast.toposort()
        of_units = read_by_units(nodes) if target.has_tile_copies else set()
        stored = written_memories(nodes)
        for fill in fills:
            memory = fill.src[0].src[0]
            tile = _Tiles(memory, ranges, _loops_of_sum(ast, memory.src[0]), count)
            self.tiles.append(tile)
            found = None
            if memory in of_units and tile.is_of_one_loop and has_room(nodes, count, target):
                found = find_boxes(fill, tile.loop, target)
            if found is not None and found.source not in stored:
                boxes.append((tile.whole, found))
                continue
            copy = LaneCopy(fill, self.lanes, target)
            tile.is_gated = target.has_async_copies and copy.is_moved and copy.nbytes >= _VECTOR
            self.copies.append((copy, tile))
        self.loop = self.tiles[0].loop
        self.boxes: TileCopies | None = None
        if boxes:
            number = next_number(nodes, Ops.DEFINE_LOCAL)
            lane, _ = lane_of(self.lanes)
            self.boxes = TileCopies(boxes, self.loop, count, lane, number)
        self.stores: list[UOp] = []

    @property
    def is_by_vectors(self) -> bool:
        """Whether no lane copies less than the widest access at a time."""
        return all(copy.nbytes >= _VECTOR for copy, _ in self.copies)

    def barrier(self, number: int) -> UOp:
        """The barrier, behind the fills of the tiles of the first iterations. Ranges that are
        unrolled have numbers from `number` on.
        """
        self.stores = [
            copy.shared(number + 2 * position) for position, (copy, _) in enumerate(self.copies)
        ]
        first: list[UOp] = []
        for trip in range(self.count - 1):
            # A group of copies for each tile, one after the other.
            fills = [node.end(*copy.unrolled) for node, (copy, _) in zip(first, self.copies)]
            before: tuple[UOp, ...] = ()
            if fills:
                before = (UOp(Ops.WAIT, dtypes.void, tuple(fills), self.count - TILES),)
            made = zip(self.stores, self.copies, strict=True)
            first = [tile.filled(store, trip, before) for store, (_, tile) in made]
        if self.boxes is not None:
            first = [self.boxes.wait(), *self.boxes.filled(), *first]
        # Reads behind the barrier change with each of the loops.
        counted = dict.fromkeys(axis for tile in self.tiles for axis in tile.counted)
        arg = self.count if self.count > TILES else None
        return UOp(Ops.BARRIER, dtypes.void, (*first, *counted), arg)

    def ahead(self, barrier: UOp) -> list[UOp]:
        """The fills of later tiles in each iteration, which are at its end of the loops."""
        found = []
        for store, (copy, tile) in zip(self.stores, self.copies, strict=True):
            ends = (*tile.counted, *copy.unrolled)
            found.append(tile.filled_ahead(store, barrier).end(*ends))
        if self.boxes is not None:
            found += [each.end(self.loop) for each in self.boxes.filled_ahead(barrier)]
        return found


def _with_loops_over_tiles(
    ast: UOp, tiles: Sequence[_Tiles], is_plain: bool, is_by_vectors: bool
) -> UOp:
    """`ast` with an inner loop over tiles, to be unrolled, where matrix units read them: in a sum
    over one axis, which `is_plain`, or one that is copied `is_by_vectors`.
    """
    # Rows that are rescaled have a long body, and registers for one copy of it; so have sums over
    # several axes whose operands are copied element by element.
    found = {node.op for node in ast.toposort()}
    if Ops.WMMA in found and Ops.RESCALED not in found and (is_plain or is_by_vectors):
        for loop, count in dict.fromkeys((tile.loop, tile.count) for tile in tiles):
            if not is_plain:
                count = tiles_at_once(loop.extent.vmin, count, _products(ast))
            ast = _by_tiles(ast, loop, count)
    return ast


def _loops_of_sum(ast: UOp, loop: UOp) -> tuple[UOp, ...]:
    """The loops of a sum of several axes whose tiles follow each other without a pause: the last
    iteration of `loop`, the innermost one, copies the next tile of the others. Its indices take
    some ten instructions an iteration, which pays beside matrix units and where `loop` is short.
    """
    nodes = ast.toposort()
    sums = [node for node in nodes if node.op is Ops.REDUCE]
    is_worth_it = loop.extent.vmax < _LONG or any(node.op is Ops.WMMA for node in nodes)
    return sums[0].src[1:] if len(sums) == 1 and is_worth_it else ()


def _count(ranges: Sequence[UOp], barrier: UOp) -> int:
    """The tiles of each operand that is filled before a barrier: two, where the loop is too short
    to have more of them filled ahead, or not the only one.
    """
    count = int(barrier.arg or TILES)
    loops = [each for each in ranges if each.axis is Axis.REDUCE]
    return count if len(loops) == 1 and loops[0].extent.vmin >= count else TILES


def _products(ast: UOp) -> int:
    """The matrix instructions of a lane in one iteration of all loops."""
    units = nodes_of(ast, Ops.WMMA)
    loops = (each for node in units[:1] for each in node.ranges)
    return trips_of(each for each in loops if each.axis in _UNROLLED)


def _by_tiles(ast: UOp, loop: UOp, count: int) -> UOp:
    """`ast` with an inner loop over tiles of an operand, `count` of them, where as many divide
    `loop`: it will be unrolled (lower.unroll_tiles), and which tile is read and filled is known in
    each copy.
    """
    trips = loop.extent
    if trips.op is not Ops.CONST or trips.arg % count or trips.arg == count:
        return ast
    number = next_number(ast.toposort())
    outer = UOp.range(trips.arg // count, number, loop.axis)
    inner = UOp.range(count, number + 1, loop.axis)
    order = list(ast.arg.order)
    position = order.index(loop.number)
    order[position : position + 1] = [outer.number, inner.number]
    ast = replace_ranges(ast, {loop: (outer * count + inner, (outer, inner))})
    info = ast.arg
    return ast.replace(arg=type(info)(info.name, tuple(order), info.opts))


def _is_tile(store: UOp) -> bool:
    """Whether a store fills shared memory that lives in a loop of the block."""
    memory = store.src[0] if store.op is Ops.STORE else store
    return (
        memory.op is Ops.DEFINE_LOCAL
        and points_to(memory, AddressSpace.SHARED)
        and len(memory.src) == 1
        and memory.src[0].axis is Axis.REDUCE
    )


class _Tiles:
    """`memory` as `count` tiles; each iteration of the loops around uses the next tile."""

    def __init__(self, memory: UOp, ranges: Sequence[UOp], of_sum: Sequence[UOp], count: int):
        (self.loop,) = memory.src
        self.count = count
        # Whether a copy of a sum over several axes has a gate behind the last tile.
        self.is_gated = False
        self.memory = memory
        around = [each for each in ranges[: ranges.index(self.loop) + 1] if each.axis in _LOOPS]
        # The loops whose iterations follow each other with a tile each: those of one sum.
        self.counted = [each for each in around if each in of_sum and each is not self.loop]
        self.counted.append(self.loop)
        # Whether no loop is around that one, so that it counts all iterations.
        self.is_of_one_loop = len(around) == 1
        self.trip = UOp.const(dtypes.index, 0)
        for loop in around:
            self.trip = self.trip * loop.extent + loop
        pointer = pointer_of(memory)
        self.size = pointer.size
        whole = pointer.base.ptr(pointer.size * count, AddressSpace.SHARED)
        self.whole = UOp(Ops.DEFINE_LOCAL, whole, (), memory.arg)

    def offset(self, trip: UOp) -> UOp:
        return simplify(trip % self.count * self.size)

    def filled(self, store: UOp, trip: int, after: Sequence[UOp]) -> UOp:
        """The fill of the tile of iteration `trip`, one of the first, before the loop."""
        first = dict.fromkeys(self.counted, UOp.const(dtypes.index, 0))
        first[self.loop] = UOp.const(dtypes.index, trip)
        _, index, *rest = store.src
        offset = self.offset(self.trip.substitute(first))
        values = [simplify(each.substitute(first)) for each in rest]
        pointer = self.whole.after(*after) if after else self.whole
        return pointer.store(simplify(index + offset), *values)

    def filled_ahead(self, store: UOp, barrier: UOp) -> UOp:
        """In each iteration, the fill of the last tile that is filled ahead. With two tiles the
        last iteration copies the first one once more, and no lane reads it; with more, it copies
        none.
        """
        ahead, zero = self.count - 1, UOp.const(dtypes.index, 0)
        _, index, *rest = store.src
        goes_on = simplify(self.loop < self.loop.extent - ahead)
        *outer, _ = self.counted
        if outer:
            ends = [loop < loop.extent - 1 for loop in self.counted] if self.is_gated else []
            advanced = _advanced(outer, is_endless=self.is_gated)
            here, next_ = {self.loop: self.loop + 1}, {self.loop: zero}
            next_ |= {loop: each.value for loop, each in advanced.items()}
            choice = _Choice(goes_on, self.loop, advanced)
            values = [_chosen(each, choice, here, next_) for each in rest]
            if self.is_gated:
                more = simplify(functools.reduce(operator.or_, ends))
                values = [simplify(gate_loads(values[0], more)), *values[1:]]
        else:
            at = goes_on.where(self.loop + ahead, zero)
            values = [simplify(each.substitute({self.loop: at})) for each in rest]
        if self.count > TILES:
            value, *gates = values
            values = [value, simplify(gates[0] & goes_on) if gates else goes_on]
        at = simplify(index + self.offset(self.trip + ahead))
        return self.whole.after(barrier).store(at, *values)


class _Next(NamedTuple):
    """The value of a loop in the next iteration of the loops within it, and its increase."""

    value: UOp
    step: UOp


class _Choice(NamedTuple):
    """Whether an innermost loop goes on, and the values of the loops around where it does not."""

    goes_on: UOp
    loop: UOp
    advanced: Mapping[UOp, _Next]


def _advanced(loops: Sequence[UOp], *, is_endless: bool) -> dict[UOp, _Next]:
    """The values of the loops in the next iteration, the innermost last. After the very last
    iteration comes the first one; with `is_endless` one past the end of the outermost loop, which
    the caller's gate excludes.
    """
    found: dict[UOp, _Next] = {}
    carries = UOp.const(dtypes.bool, True)
    zero, one = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 1)
    for loop in reversed(loops):
        goes_on = loop < loop.extent - 1
        value, step = goes_on.where(loop + 1, zero), goes_on.where(one, -loop)
        if is_endless and loop is loops[0]:
            value, step = loop + 1, one
        found[loop] = _Next(
            simplify(carries.where(value, loop)), simplify(carries.where(step, zero))
        )
        carries = simplify(carries & goes_on.logical_not())
    return found


def _chosen(value: UOp, choice: _Choice, here: Mapping[UOp, UOp], next_: Mapping[UOp, UOp]) -> UOp:
    """`value` with its ranges as in `here` where the loop goes on, else as in `next_`: of each
    index, only the terms that differ are chosen, so that contiguous accesses remain contiguous.
    """

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.dtype is not dtypes.index and node.dtype is not dtypes.bool:
            return None
        one, other = (simplify(node.substitute(dict(ranges))) for ranges in (here, next_))
        return one if one is other else _one_of(choice, one, other)

    return simplify(rebuilt(value, change, None))


def _one_of(choice: _Choice, one: UOp, other: UOp) -> UOp:
    condition, loop, advanced = choice
    left, found = terms_of(one), terms_of(other)
    if one.dtype is not dtypes.index or left is None or found is None:
        return condition.where(one, other)
    right, constant = dict(found[0]), found[1]
    for outer, following in advanced.items():
        # A loop and its next iteration have the loop in common: values computed from it, such as an
        # address, can stand outside of the loops within.
        scale = left[0].get(outer)
        if scale and right.get(following.value) == scale and outer not in right:
            del right[following.value]
            right[outer] = scale
            if following.step.op is Ops.CONST:
                constant += following.step.arg * scale
            else:
                right[following.step] = scale
    common = {term: scale for term, scale in left[0].items() if right.get(term) == scale}
    rests = [
        simplify(from_terms([each for each in terms.items() if each[0] not in common], number, one))
        for terms, number in (left, (right, constant))
    ]
    rest = condition.where(*rests)
    if simplify(rests[0].substitute({loop: loop.extent - 1})) is rests[1]:
        # The next elements follow in memory.
        rest = rests[0]
    return simplify(rest + from_terms(common.items(), 0, one))


def _moved(ast: UOp, memory: UOp, whole: UOp, offset: UOp) -> UOp:
    """`ast` with every load from `memory` `offset` further in `whole`."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is Ops.AFTER:
            return whole.after(*src[1:]) if node.src[0] is memory else None
        if node.op is Ops.DESCRIPTOR:
            is_of_it = memory_of(node.src[1]) is memory
            return node.over((*src[:2], src[2] + offset)) if is_of_it else None
        is_of_it = node.src[0].op is Ops.AFTER and node.src[0].src[0] is memory
        return node.over((src[0], src[1] + offset, *src[2:])) if is_of_it else None

    return rebuilt(ast, change, (Ops.AFTER, Ops.LOAD, Ops.DESCRIPTOR), {memory: whole})
