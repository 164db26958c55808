"""Scalar stores of a tile become vector stores of the turned tile.

The lanes of a register tile may lie far apart in memory while its rows are neighbours there:
channels as lanes, pixels as rows. Element by element, storing such a tile would cost as much as a
short fold. Turned in registers, each lane's neighbours are one vector; where the neighbours of one
lane end where those of the next begin, as in a panel of pairs, all of them are whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import DType, Place, Pointer, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["LEAST_ROWS", "turn_tiles"]

# Fewer rows are stored element by element.
LEAST_ROWS = 4
# (pointer, what its index adds to a constant, the dtype of the vectors)
Key = tuple[UOp, frozenset[tuple[UOp, int]], DType]


def turn_tiles(ast: UOp, target: Target) -> UOp:
    """before   STORE(a, i*8 + l*99 + r, GEP(v_r, l))          for all lanes l and rows r
    after    STORE(a, i*8 + l*99, GEP(t, l*rows ...))        t: the vectors of all rows, turned

    Lanes that are neighbours in memory, as are the pairs of a panel, stay together.
    """
    if not target.has_vectors:
        return ast
    groups: dict[Key, dict[UOp, dict[int, tuple[int, UOp]]]] = {}
    for node in ast.toposort():
        if (found := _element(node)) is not None:
            key, offset = found
            vector, lane = node.src[2].src[0], node.src[2].arg[0]
            groups.setdefault(key, {}).setdefault(vector, {})[lane] = offset, node
    new: dict[UOp, UOp] = {}
    for (pointer, _, dtype), rows in groups.items():
        for run, size in _runs(rows, dtype.lanes):
            if size == 1 and _is_dense(run, rows, dtype.lanes):
                new |= _interleaved(pointer, run, rows)
                continue
            for part in _cut(run, dtype.lanes, size, target):
                new |= _turned(pointer, part, size, rows)
    # What a tile is computed from may have been filled by another.
    while any(node in new for node in ast.toposort()):
        ast = _with_stores(ast, new)
    return ast


def _element(node: UOp) -> tuple[Key, int] | None:
    """What a store of one lane of a vector shares with those of its tile, and the constant part of
    its index.
    """
    if node.op is not Ops.STORE or len(node.src) != 3 or node.arg is not None:
        return None
    pointer, index, value = node.src
    memory = pointer.dtype
    if pointer.op is Ops.AFTER or not isinstance(memory, Pointer) or memory.place is Place.SHARED:
        return None
    if value.op is not Ops.GEP or len(value.arg) != 1 or memory.base is dtypes.bool:
        return None
    found = terms_of(index)
    if found is None:
        return None
    return (pointer, frozenset(found[0].items()), value.src[0].dtype), found[1]


def _runs(
    rows: dict[UOp, dict[int, tuple[int, UOp]]], lanes: int
) -> Iterator[tuple[list[UOp], int]]:
    """Vectors of which each group of lanes is stored behind that of the vector before it, and how
    many lanes a group has.
    """
    whole = [vector for vector, stored in rows.items() if len(stored) == lanes]
    run: list[UOp] = []
    size = 1
    for vector in sorted(whole, key=lambda vector: rows[vector][0][0]):
        own = _group(rows[vector], lanes)
        if run and (
            own != size
            or any(rows[vector][lane][0] != rows[run[-1]][lane][0] + size for lane in range(lanes))
        ):
            yield run, size
            run = []
        run.append(vector)
        size = own
    yield run, size


def _group(stored: dict[int, tuple[int, UOp]], lanes: int) -> int:
    """How many neighbouring lanes are neighbours in memory: a power of two, less than all."""
    size = 1
    while size * 4 <= lanes and all(
        stored[lane][0] == stored[lane - lane % (2 * size)][0] + lane % (2 * size)
        for lane in range(lanes)
    ):
        size *= 2
    return size


def _cut(run: Sequence[UOp], lanes: int, size: int, target: Target) -> Iterator[Sequence[UOp]]:
    """Parts of a run that are one vector a group: powers of two, or what a mask makes one."""
    least = LEAST_ROWS if size == 1 else 2
    while len(run) >= least:
        power = min(1 << (len(run).bit_length() - 1), lanes // size)
        count = power
        if (
            target.has_mask
            and size == 1
            and power < len(run) < 2 * power <= lanes
            and len(run) - power >= LEAST_ROWS - 1
        ):
            count = len(run)
        if power < least:
            return
        yield run[:count]
        run = run[count:]


def _is_dense(run: Sequence[UOp], rows: dict[UOp, dict[int, tuple[int, UOp]]], lanes: int) -> bool:
    """Whether the rows of a lane end where those of the next begin."""
    count = len(run)
    if count < 2 or count > lanes or count.bit_count() != 1 or lanes.bit_count() != 1:
        return False
    first = rows[run[0]]
    return all(first[lane][0] == first[0][0] + lane * count for lane in range(lanes))


def _interleaved(
    pointer: UOp, run: Sequence[UOp], rows: dict[UOp, dict[int, tuple[int, UOp]]]
) -> dict[UOp, UOp]:
    """The stores of whole vectors of a dense tile, by the scalar stores they stand for."""
    lanes, count = run[0].dtype.lanes, len(run)
    vectors = _zipped_all(run)
    found: dict[UOp, UOp] = {}
    for place, value in enumerate(vectors):
        held = range(place * lanes // count, (place + 1) * lanes // count)
        store = pointer.store(rows[run[0]][held[0]][1].src[1], value)
        found |= {rows[vector][lane][1]: store for vector in run for lane in held}
    return found


def _zipped_all(vectors: Sequence[UOp], size: int = 1) -> list[UOp]:
    """The elements of a power of two of vectors, first the first of each, then the second; groups
    of `size` stay together.
    """
    count = len(vectors)
    for _ in range(count.bit_length() - 1):
        half = count // 2
        vectors = [
            _zipped(vectors[place], vectors[place + half], side, size)
            for place in range(half)
            for side in range(2)
        ]
    return list(vectors)


def _turned(
    pointer: UOp, part: Sequence[UOp], size: int, rows: dict[UOp, dict[int, tuple[int, UOp]]]
) -> dict[UOp, UOp]:
    """The vector stores of the rows `part`, by the scalar stores they stand for."""
    lanes = part[0].dtype.lanes
    count = 1 << (len(part) - 1).bit_length()
    vectors = _zipped_all([*part, *[part[-1]] * (count - len(part))], size)
    whole = count * size
    found: dict[UOp, UOp] = {}
    for lane in range(0, lanes, size):
        first = lane * count % lanes
        value = vectors[lane * count // lanes].gep(*range(first, first + whole))
        gate: tuple[UOp, ...] = ()
        if count > len(part):
            gate = (UOp.stack(UOp.const(dtypes.bool, row < len(part)) for row in range(count)),)
        store = pointer.store(rows[part[0]][lane][1].src[1], value, *gate)
        found |= {rows[vector][lane + at][1]: store for vector in part for at in range(size)}
    return found


def _zipped(a: UOp, b: UOp, side: int, size: int) -> UOp:
    """Lanes of `a` and `b` in turn, from their first halves or their second; `size` at a time."""
    lanes = a.dtype.lanes
    places = [
        side * (lanes // 2) + place // (2 * size) * size + place % size for place in range(lanes)
    ]
    is_first = UOp.stack(UOp.const(dtypes.bool, place // size % 2 == 0) for place in range(lanes))
    return is_first.where(a.gep(*places), b.gep(*places))


def _with_stores(ast: UOp, new: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = (
            tuple(dict.fromkeys(done[source] for source in node.src))
            if node.op in (Ops.END, Ops.SINK, Ops.AFTER)
            else tuple(done[source] for source in node.src)
        )
        done[node] = new.get(node) or (
            node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        )
    return done[ast]
