"""Lanes exchange what they store, so that a warp stores whole sectors of memory.

Lanes of a matrix unit hold two neighbouring results each, and four lanes those of a row. Of 16 bits
that is half of a sector: memory moves 32 bytes for each 16. The other half is what the same lanes
hold of the next 8 columns. Two neighbours exchange one vector each, so that one of them has four
elements of the first half, and the other four of the second.

One store, one SHUFFLE and three choices take the place of two stores: three more instructions of a
warp. A multiprocessor starts four in a cycle. Eight sectors less cross to the second-level cache,
which takes five cycles for them (A100: 5,120 bytes a cycle for 108 multiprocessors, by its maker's
white paper).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import shared_terms, simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["fill_sectors"]

# Bytes that lanes exchange at a time, and the sizes of elements that make such a word.
_WORD, _SIZES = 4, (2, 4)
_LANES = (Axis.LOCAL, Axis.GROUP)


def fill_sectors(ast: UOp, target: Target) -> UOp:
    """`ast` with stores of whole sectors where lanes of a warp can exchange what they store.

    before   STORE(a, i + l*2, x), STORE(a, i + l*2 + 8, y)      x, y: half.vec(2), l: a lane's bit
    after    z = SHUFFLE(l ? x : y)
             STORE(a, i + l*8, l ? (z, y) : (x, z))
    """
    if not target.shuffle_lanes or target.has_vectors:
        return ast
    nodes = ast.toposort()
    bits = _bits(ast, nodes, target.shuffle_lanes)
    if not bits:
        return ast
    users = Counter(source for node in nodes for source in node.src if source.op is Ops.STORE)
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = [done[source] for source in node.src]
        if sum(source.op is Ops.STORE for source in src) > 1:
            own = [done[source] for source in node.src if users[source] == 1]
            exchanged = _exchanged(own, bits, target)
            src = list(dict.fromkeys(exchanged.get(source, source) for source in src))
        done[node] = node.over(tuple(src))
    return done[ast]


def _bits(ast: UOp, nodes: Iterable[UOp], warp: int) -> list[UOp]:
    """The axes of two lanes that are the bits of a lane's number in its warp, the lowest first, in
    the order of lower.grid.
    """
    rank = {number: rank for rank, number in enumerate(ast.arg.order)}
    lanes = [node for node in nodes if node.op is Ops.RANGE and node.axis in _LANES]
    lanes.sort(key=lambda lane: -rank.get(lane.number, len(rank) + lane.number))
    count = warp.bit_length() - 1
    found = lanes[:count]
    is_warp = len(found) == count and all(bit.extent.vmax == 2 for bit in found)
    return found if is_warp else []


class _Slice(NamedTuple):
    """A store of a vector: its first index by bit, the constant in it, and what all share."""

    store: UOp
    by_bit: list[int]
    offset: int
    rest: dict[UOp, int]

    @property
    def lanes(self) -> int:
        return self.store.value.dtype.lanes

    @property
    def neighbour(self) -> int:
        """The bit in which the lane differs that stores the next elements."""
        return self.by_bit.index(self.lanes)

    @property
    def run(self) -> int:
        """Neighbouring elements that lanes of a warp store together."""
        run = self.lanes
        while run in self.by_bit:
            run *= 2
        return run


def _exchanged(effects: Sequence[UOp], bits: Sequence[UOp], target: Target) -> dict[UOp, UOp]:
    """The stores that come in place of some of `effects`: one for two."""
    groups: dict[tuple[object, ...], dict[int, _Slice]] = {}
    for node in effects:
        if (found := _read(node, bits, target)) is not None:
            pointer, _, value, *gate = node.src
            key = (pointer, value.dtype, *gate, tuple(found.by_bit), frozenset(found.rest.items()))
            groups.setdefault(key, {})[found.offset] = found
    made: dict[UOp, UOp] = {}
    for group in groups.values():
        for offset in sorted(group):
            first, second = group[offset], group.get(offset + group[offset].run)
            if second is not None and first.store not in made and offset % (2 * first.lanes) == 0:
                made |= dict.fromkeys((first.store, second.store), _joined(first, second, bits))
    return made


def _read(node: UOp, bits: Sequence[UOp], target: Target) -> _Slice | None:
    """What a store to global memory says, if a warp fills half of a sector by it or less."""
    if node.op is not Ops.STORE or node.arg is not None:
        return None
    pointer, value = node.src[0].dtype, node.value.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.GLOBAL:
        return None
    is_words = value.is_float and value.itemsize in _SIZES and value.nbytes % _WORD == 0
    if not is_words or 2 * value.lanes > target.access_lanes(value.scalar):
        return None
    found = shared_terms([node.src[1]], bits)
    if found is None or found[0].count(value.lanes) != 1:
        return None
    by_bit, (offset,), rest = found
    each = _Slice(node, by_bit, offset, rest)
    if each.run * value.itemsize >= target.sector_bytes:
        return None
    # Lanes that exchange must agree on whether they store.
    if any(bits[each.neighbour] in gate.ranges for gate in node.src[3:]):
        return None
    starts = [step for step in by_bit if step != value.lanes]
    starts += [scale * term.divisor for term, scale in rest.items()]
    return None if any(start % (2 * value.lanes) for start in starts) else each


def _joined(first: _Slice, second: _Slice, bits: Sequence[UOp]) -> UOp:
    """The store of both: a lane whose bit is not set has the first."""
    at, dtype = first.neighbour, first.store.value.dtype
    bit = bits[at]
    is_second = bit.ne(0)
    low: list[UOp] = []
    high: list[UOp] = []
    for own, next_own in zip(_words(first.store), _words(second.store), strict=True):
        other = UOp(Ops.SHUFFLE, own.dtype, (is_second.where(own, next_own),), 1 << at)
        low.append(is_second.where(other, own))
        high.append(is_second.where(next_own, other))
    lanes = _WORD // dtype.itemsize
    values = [
        word.bitcast(dtype.scalar.vec(lanes)).gep(lane)
        for word in (*low, *high)
        for lane in range(lanes)
    ]
    pointer, index, _, *gate = first.store.src
    begin = simplify(index + bit * (first.run - first.lanes))
    return pointer.store(begin, UOp.stack(values), *gate)


def _words(store: UOp) -> list[UOp]:
    """What is stored, as numbers of 32 bits."""
    value = store.value
    lanes = _WORD // value.dtype.itemsize
    return [
        UOp.stack([value.gep(at + lane) for lane in range(lanes)]).bitcast(dtypes.uint32)
        for at in range(0, value.dtype.lanes, lanes)
    ]
