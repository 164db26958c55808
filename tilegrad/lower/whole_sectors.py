"""Lanes exchange their stores and loads, so that a warp asks for whole sectors of memory.

Lanes of a matrix unit hold two neighbouring results each, and four lanes those of a row. With
16-bit elements a row is half of a sector: memory moves 32 bytes for each 16. The other half is the
next 8 columns, which the same lanes hold. Two neighbours exchange one vector each, so that one of
them has four elements of the first half, and the other four of the second.

One store, one SHUFFLE and three choices take the place of two stores: three more instructions of a
warp. A multiprocessor starts four in a cycle. Eight sectors less cross to the second-level cache,
which takes five cycles for them (A100: 5,120 bytes a cycle for 108 multiprocessors, by its maker's
white paper). Loads behind a product, of a residual or of a mask, are those of the results: they are
exchanged the same way, each lane loads for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import nesting_depth
from tilegrad.ir.rules import shared_terms, simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["fill_sectors"]

# Bytes that lanes exchange at a time, and the sizes of elements that make such a word.
_WORD, _SIZES = 4, (2, 4)
_LANES = (Axis.LOCAL, Axis.GROUP)
_LOOPS = (Axis.LOOP, Axis.REDUCE)


def fill_sectors(ast: UOp, target: Target) -> UOp:
    """`ast` with stores and loads of whole sectors where lanes of a warp can exchange them.

    before   STORE(a, i + l*2, x), STORE(a, i + l*2 + 8, y)      x, y: half.vec(2), l: a lane's bit
    after    z = SHUFFLE(l ? x : y)
             STORE(a, i + l*8, l ? (z, y) : (x, z))

    before   x = LOAD(a, i + l*2), y = LOAD(a, i + l*2 + 8)
    after    (u, v) = LOAD(a, i + l*8), z = SHUFFLE(l ? u : v)
             x = l ? z : u, y = l ? v : z
    """
    nodes = ast.toposort()
    bits = _bits(ast, nodes, target.shuffle_lanes)
    if not bits:
        return ast
    ast, every = _with_loads(ast, nodes, bits, target)
    users = Counter(source for node in every for source in node.src if source.op is Ops.STORE)
    done: dict[UOp, UOp] = {}
    for node in every:
        src = [done[source] for source in node.src]
        if sum(source.op is Ops.STORE for source in src) > 1:
            own = [done[source] for source in node.src if users[source] == 1]
            exchanged = _joined_pairs(own, bits, target)
            src = list(dict.fromkeys(exchanged.get(source, source) for source in src))
        done[node] = node.over(tuple(src))
    return done[ast]


def _bits(ast: UOp, nodes: Iterable[UOp], warp: int) -> list[UOp]:
    """The axes of two lanes that are the bits of a lane's number in its warp, the lowest first, in
    the order of lower.grid.
    """
    lanes = [node for node in nodes if node.op is Ops.RANGE and node.axis in _LANES]
    lanes.sort(key=nesting_depth(ast), reverse=True)
    count = warp.bit_length() - 1
    found = lanes[:count]
    is_warp = len(found) == count and all(bit.extent.vmax == 2 for bit in found)
    return found if is_warp else []


def _with_loads(
    ast: UOp, nodes: Iterable[UOp], bits: Sequence[UOp], target: Target
) -> tuple[UOp, Iterable[UOp]]:
    """The kernel with loads exchanged, and its nodes. Loads inside loops stay: where lanes differ
    in how often they run a loop, none may wait for another.
    """
    loads = [
        node
        for node in nodes
        if node.op is Ops.LOAD and all(each.axis not in _LOOPS for each in node.ranges)
    ]
    made = _joined_pairs(loads, bits, target)
    if not made:
        return ast, nodes
    done: dict[UOp, UOp] = {}
    for node in nodes:
        # Replacements need no replacement themselves: their addresses hold no such load.
        done[node] = made.get(node) or node.over(tuple(done[source] for source in node.src))
    return done[ast], done[ast].toposort()


class _Slice(NamedTuple):
    """A store or load of a vector: its first index by bit, the constant in it, the part that all
    share.
    """

    node: UOp
    dtype: DType
    by_bit: list[int]
    offset: int
    rest: dict[UOp, int]

    @property
    def lanes(self) -> int:
        return self.dtype.lanes

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


def _joined_pairs(accesses: Sequence[UOp], bits: Sequence[UOp], target: Target) -> dict[UOp, UOp]:
    """Replacements of stores or loads: one access for a pair of them."""
    groups: dict[tuple[object, ...], dict[int, _Slice]] = {}
    for node in accesses:
        if (found := _read(node, bits, target)) is not None:
            same = (node.src[0], found.dtype, *_gates(node))
            key = (*same, tuple(found.by_bit), frozenset(found.rest.items()))
            groups.setdefault(key, {})[found.offset] = found
    made: dict[UOp, UOp] = {}
    for group in groups.values():
        for offset in sorted(group):
            first, second = group[offset], group.get(offset + group[offset].run)
            if second is not None and first.node not in made and offset % (2 * first.lanes) == 0:
                join = _joined if first.node.op is Ops.STORE else _joined_loads
                made |= zip((first.node, second.node), join(first, second, bits), strict=True)
    return made


def _gates(node: UOp) -> tuple[UOp, ...]:
    """The gate of a store or load, and the alternative of a load."""
    return node.src[3:] if node.op is Ops.STORE else node.src[2:]


def _read(node: UOp, bits: Sequence[UOp], target: Target) -> _Slice | None:
    """An access to global memory by which a warp fills at most half of a sector, or None."""
    if node.op not in (Ops.STORE, Ops.LOAD) or node.arg is not None:
        return None
    pointer, value = node.src[0].dtype, node.value.dtype if node.op is Ops.STORE else node.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.GLOBAL:
        return None
    is_words = value.is_float and value.itemsize in _SIZES and value.nbytes % _WORD == 0
    if not is_words or 2 * value.lanes > target.access_lanes(value.scalar):
        return None
    found = shared_terms([node.src[1]], bits)
    if found is None or found[0].count(value.lanes) != 1:
        return None
    by_bit, (offset,), rest = found
    each = _Slice(node, value, by_bit, offset, rest)
    if each.run * value.itemsize >= target.sector_bytes:
        return None
    # Lanes that exchange must agree on whether they do.
    if any(bits[each.neighbour] in gate.ranges for gate in _gates(node)):
        return None
    starts = [step for step in by_bit if step != value.lanes]
    starts += [scale * term.divisor for term, scale in rest.items()]
    return None if any(start % (2 * value.lanes) for start in starts) else each


def _joined(first: _Slice, second: _Slice, bits: Sequence[UOp]) -> tuple[UOp, UOp]:
    """The store of both, twice: a lane whose bit is not set has the first."""
    at, dtype = first.neighbour, first.dtype
    bit = bits[at]
    is_second = bit.ne(0)
    low: list[UOp] = []
    high: list[UOp] = []
    for own, next_own in zip(_words(first.node.value), _words(second.node.value), strict=True):
        other = UOp(Ops.SHUFFLE, own.dtype, (is_second.where(own, next_own),), 1 << at)
        low.append(is_second.where(other, own))
        high.append(is_second.where(next_own, other))
    pointer, index, _, *gate = first.node.src
    begin = simplify(index + bit * (first.run - first.lanes))
    store = pointer.store(begin, _vector((*low, *high), dtype), *gate)
    return store, store


def _joined_loads(first: _Slice, second: _Slice, bits: Sequence[UOp]) -> tuple[UOp, UOp]:
    """Both values of one load: a lane whose bit is not set loads the first's, of two lanes."""
    at, dtype = first.neighbour, first.dtype
    bit = bits[at]
    is_second = bit.ne(0)
    pointer, index, *rest = first.node.src
    if rest:
        # The alternative, of lanes that do not load.
        rest[0] = UOp.stack([rest[0].gep(lane) for lane in range(dtype.lanes)] * 2)
    begin = simplify(index + bit * (first.run - first.lanes))
    both = UOp(Ops.LOAD, dtype.scalar.vec(2 * dtype.lanes), (pointer, begin, *rest))
    words = _words(both)
    half = len(words) // 2
    left: list[UOp] = []
    right: list[UOp] = []
    for low, high in zip(words[:half], words[half:], strict=True):
        other = UOp(Ops.SHUFFLE, low.dtype, (is_second.where(low, high),), 1 << at)
        left.append(is_second.where(other, low))
        right.append(is_second.where(high, other))
    return _vector(left, dtype), _vector(right, dtype)


def _vector(words: Iterable[UOp], dtype: DType) -> UOp:
    """Numbers of 32 bits as elements of `dtype`, a word's in their order."""
    lanes = _WORD // dtype.itemsize
    return UOp.stack(
        [word.bitcast(dtype.scalar.vec(lanes)).gep(lane) for word in words for lane in range(lanes)]
    )


def _words(value: UOp) -> list[UOp]:
    """A vector as numbers of 32 bits."""
    lanes = _WORD // value.dtype.itemsize
    return [
        UOp.stack([value.gep(at + lane) for lane in range(lanes)]).bitcast(dtypes.uint32)
        for at in range(0, value.dtype.lanes, lanes)
    ]
