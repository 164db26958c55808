"""Transposes in registers: scalar stores of a register tile become vector stores of the transposed
tile, and gathered vectors become vector loads along the other axis."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import LEAST_ROWS
from tilegrad.target import Target

__all__ = ["transpose_loads", "transpose_stores"]

# (pointer, the terms of the indices, the offset of each lane from the first, the alternative and
# the gate of each lane, the dtype)
_RowKey = tuple[
    UOp, frozenset[tuple[UOp, int]], tuple[int, ...], tuple[tuple[UOp, ...], ...], DType
]


def transpose_loads(ast: UOp, target: Target) -> UOp:
    """before   VECTORIZE(LOAD(a, i*8 + r), LOAD(a, i*8 + 99 + r), ...)      for all rows r
    after    unzipped LOAD(a, i*8) : vec(8), LOAD(a, i*8 + 99) : vec(8), ...

    The reverse of `transpose_stores`: an operand of a register tile's epilogue (a residual, a
    bias for each element) may have the layout of the stored tile, contiguous along its rows.
    Element by element, gathering the lanes of each row would cost as much as a short reduction. So
    each lane loads its rows as one vector, and the vectors are transposed in registers. Lanes may
    be padding, as those of a packed copy whose channels are no whole vectors: then each vector has
    the gate of its lane.
    """
    groups: dict[_RowKey, dict[int, UOp]] = {}
    for node in ast.toposort():
        if node.op is Ops.VECTORIZE and (found := _row(node, target)) is not None:
            groups.setdefault(found[0], {})[found[1]] = node
    new: dict[UOp, UOp] = {}
    for rows in groups.values():
        for run in _row_runs(rows):
            for chunk in _row_chunks(run, rows[run[0]].dtype.lanes):
                new |= _transposed_rows([rows[offset] for offset in chunk])
    return ast.substitute(new)


def _row(node: UOp, target: Target) -> tuple[_RowKey, int] | None:
    """The key that the rows of a tile share, and the constant offset of this row; None for a vector
    that is no gathered row.
    """
    if node.dtype.lanes.bit_count() != 1:
        return None
    first = node.src[0]
    if first.op is not Ops.LOAD or first.dtype is dtypes.bool or first.src[0].op is Ops.AFTER:
        return None
    pointer = first.src[0]
    offsets: list[int] = []
    factors: frozenset[tuple[UOp, int]] | None = None
    for load in node.src:
        if load.op is not Ops.LOAD or load.src[0] is not pointer:
            return None
        if load.is_gated and not target.has_mask:
            return None
        terms = terms_of(load.index)
        if terms is None or (offsets and frozenset(terms[0].items()) != factors):
            return None
        factors = frozenset(terms[0].items())
        offsets.append(terms[1])
    if factors is None or len(set(offsets)) < len(offsets):
        # One element for several lanes is one load already.
        return None
    apart = tuple(offset - offsets[0] for offset in offsets)
    gates = tuple(load.src[2:] if load.is_gated else () for load in node.src)
    return (pointer, factors, apart, gates, node.dtype), offsets[0]


def _row_runs(rows: dict[int, UOp]) -> Iterator[list[int]]:
    """Runs of consecutive offsets."""
    run: list[int] = []
    for offset in sorted(rows):
        if run and offset != run[-1] + 1:
            yield run
            run = []
        run.append(offset)
    yield run


def _row_chunks(run: list[int], lanes: int) -> Iterator[list[int]]:
    """Chunks of a run that are one vector a lane; the last two may overlap to avoid a mask."""
    count = min(1 << (len(run).bit_length() - 1), lanes)
    if count < LEAST_ROWS:
        return
    for first in range(0, len(run) - count + 1, count):
        yield run[first : first + count]
    if len(run) % count:
        yield run[-count:]


def _transposed_rows(rows: Sequence[UOp]) -> dict[UOp, UOp]:
    """The rows of a tile, each by the vector that replaces it."""
    dtype = rows[0].dtype
    count = len(rows)
    loads = [
        load.replace(
            dtype=load.dtype.vec(count),
            src=(*load.src[:2], *(each.broadcast(count) for each in load.src[2:])),
        )
        for load in rows[0].src
    ]
    together = dtype.lanes // count
    vectors = [
        _joined(loads[number : number + together], dtype)
        for number in range(0, len(loads), together)
    ]
    for _ in range(count.bit_length() - 1):
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = [_unzipped(a, b, side) for side in range(2) for a, b in pairs]
    return dict(zip(rows, vectors, strict=True))


def _joined(vectors: Sequence[UOp], dtype: DType) -> UOp:
    """The concatenation of short vectors."""
    count = vectors[0].dtype.lanes
    total = _spread(vectors[-1], dtype)
    for number, vector in reversed(list(enumerate(vectors[:-1]))):
        is_before = UOp.stack(
            UOp.const(dtypes.bool, lane < (number + 1) * count) for lane in range(dtype.lanes)
        )
        total = is_before.where(_spread(vector, dtype), total)
    return total


def _spread(vector: UOp, dtype: DType) -> UOp:
    """A short vector repeated."""
    count = vector.dtype.lanes
    return (
        vector
        if count == dtype.lanes
        else vector.gep(*(lane % count for lane in range(dtype.lanes)))
    )


def _unzipped(a: UOp, b: UOp, side: int) -> UOp:
    """Every second lane of both, from the first or the second on."""
    lanes = a.dtype.lanes
    picks = [(2 * lane + side) % lanes for lane in range(lanes)]
    is_first = UOp.stack(UOp.const(dtypes.bool, lane < lanes // 2) for lane in range(lanes))
    return is_first.where(a.gep(*picks), b.gep(*picks))


# (pointer, the terms of its index, the dtype of the vectors, the op that combines them with memory)
_ElementKey = tuple[UOp, frozenset[tuple[UOp, int]], DType, Ops | None]
# The lanes of each vector: the constant term of the index of its store, and the store.
_Rows = dict[UOp, dict[int, tuple[int, UOp]]]


def transpose_stores(ast: UOp, target: Target) -> UOp:
    """before   STORE(a, i*8 + l*99 + r, GEP(v_r, l))          for all lanes l and rows r
    after    STORE(a, i*8 + l*99, GEP(t, l*rows ...))        t: the vectors of all rows, transposed

    Lanes that are consecutive in memory, as are the pairs of a panel, stay together. Where lanes
    have gates, those of padding, a vector has the gate of its lane.

    The lanes of a register tile may be far apart in memory while its rows are contiguous: channels
    as lanes, pixels as rows. Element by element, storing such a tile would cost as much as a short
    reduction. After a transpose in registers, the elements of each lane are one vector. Where the
    elements of one lane end where those of the next begin, as in a panel of pairs, all of them are
    whole vectors.
    """
    groups: dict[_ElementKey, _Rows] = {}
    for node in ast.toposort():
        if node.op is Ops.STORE and (found := _element(node, target)) is not None:
            key, offset = found
            vector, lane = node.value.src[0], node.value.arg[0]
            groups.setdefault(key, {}).setdefault(vector, {})[lane] = offset, node
    new: dict[UOp, UOp] = {}
    for (_, _, dtype, _), rows in groups.items():
        for run, size in _runs(rows, dtype.lanes):
            if size == 1 and not _has_gates(run, rows) and _is_dense(run, rows, dtype.lanes):
                new |= _interleaved(run, rows)
                continue
            for chunk in _cut(run, dtype.lanes, size, target):
                new |= _transposed_stores(chunk, size, rows)
    # A tile may be computed from memory that another tile's stores fill.
    while not new.keys().isdisjoint(ast.toposort()):
        ast = _with_stores(ast, new)
    return ast


def _element(node: UOp, target: Target) -> tuple[_ElementKey, int] | None:
    """The key that the stores of a tile share, and the constant term of this store's index; None
    for a store of anything but one lane of a vector.
    """
    if node.is_gated and not target.has_mask:
        return None
    pointer, index, value = node.src[:3]
    memory = pointer.dtype
    if (
        pointer.op is Ops.AFTER
        or not isinstance(memory, Pointer)
        or memory.space is AddressSpace.SHARED
    ):
        return None
    if value.op is not Ops.GEP or len(value.arg) != 1 or memory.base is dtypes.bool:
        return None
    found = terms_of(index)
    if found is None:
        return None
    key = pointer, frozenset(found[0].items()), value.src[0].dtype, node.arg
    return key, found[1]


def _runs(rows: _Rows, lanes: int) -> Iterator[tuple[list[UOp], int]]:
    """Runs of vectors in which each group of lanes is stored right after that of the vector before
    it; and the size of the groups.
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
    """The number of consecutive lanes that are consecutive in memory: a power of two, below all."""
    size = 1
    while size * 4 <= lanes and all(
        stored[lane][0] == stored[lane - lane % (2 * size)][0] + lane % (2 * size)
        for lane in range(lanes)
    ):
        size *= 2
    return size


def _cut(run: Sequence[UOp], lanes: int, size: int, target: Target) -> Iterator[Sequence[UOp]]:
    """Chunks of a run that are one vector a group: powers of two, or more with a mask."""
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


def _has_gates(run: Sequence[UOp], rows: _Rows) -> bool:
    return any(store.is_gated for vector in run for _, store in rows[vector].values())


def _is_dense(run: Sequence[UOp], rows: _Rows, lanes: int) -> bool:
    """Whether the rows of a lane end where those of the next begin."""
    count = len(run)
    if count < 2 or count > lanes or count.bit_count() != 1 or lanes.bit_count() != 1:
        return False
    first = rows[run[0]]
    return all(first[lane][0] == first[0][0] + lane * count for lane in range(lanes))


def _interleaved(run: Sequence[UOp], rows: _Rows) -> dict[UOp, UOp]:
    """The stores of whole vectors of a dense tile, by the scalar stores they replace."""
    lanes, count = run[0].dtype.lanes, len(run)
    vectors = _zipped_all(run)
    found: dict[UOp, UOp] = {}
    for number, value in enumerate(vectors):
        covered = range(number * lanes // count, (number + 1) * lanes // count)
        first = rows[run[0]][covered[0]][1]
        store = _vector_of(first, value)
        found |= {rows[vector][lane][1]: store for vector in run for lane in covered}
    return found


def _zipped_all(vectors: Sequence[UOp], size: int = 1) -> list[UOp]:
    """The elements of a power of two of vectors interleaved: the first of each, then the second;
    groups of `size` stay together.
    """
    count, lanes = len(vectors), vectors[0].dtype.lanes
    half = count // 2
    # The first halves of two vectors are interleaved, then their second halves.
    is_first = UOp.stack([UOp.const(dtypes.bool, lane // size % 2 == 0) for lane in range(lanes)])
    picks = [lane // (2 * size) * size + lane % size for lane in range(lanes)]
    sides = (tuple(picks), tuple([lanes // 2 + pick for pick in picks]))
    for _ in range(count.bit_length() - 1):
        vectors = [
            is_first.where(vectors[number].gep(*side), vectors[number + half].gep(*side))
            for number in range(half)
            for side in sides
        ]
    return list(vectors)


def _transposed_stores(chunk: Sequence[UOp], size: int, rows: _Rows) -> dict[UOp, UOp]:
    """The vector stores of the rows `chunk`, by the scalar stores they replace."""
    lanes = chunk[0].dtype.lanes
    stores = [
        [rows[vector][lane + at][1] for vector in chunk for at in range(size)]
        for lane in range(0, lanes, size)
    ]
    # The rows of a lane become one vector, with one gate.
    if any(store.src[3:] != own[0].src[3:] for own in stores for store in own):
        return {}
    count = 1 << (len(chunk) - 1).bit_length()
    vectors = _zipped_all([*chunk, *[chunk[-1]] * (count - len(chunk))], size)
    whole = count * size
    found: dict[UOp, UOp] = {}
    for lane, own in zip(range(0, lanes, size), stores):
        first = lane * count % lanes
        value = vectors[lane * count // lanes].gep(*range(first, first + whole))
        gates = [gate.broadcast(whole) for gate in own[0].src[3:]]
        if count > len(chunk):
            gates += [UOp.stack(UOp.const(dtypes.bool, row < len(chunk)) for row in range(count))]
        gate = (functools.reduce(operator.and_, gates),) if gates else ()
        found |= dict.fromkeys(own, _vector_of(own[0], value, *gate))
    return found


def _vector_of(store: UOp, value: UOp, *gate: UOp) -> UOp:
    """The store of the vector `value` from where `store` stores on, combined as there."""
    return store.src[0].store(store.src[1], value, *gate, combine=store.arg)


def _with_stores(ast: UOp, new: dict[UOp, UOp]) -> UOp:
    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return new.get(node) if node.op is Ops.STORE else node.over(tuple(dict.fromkeys(src)))

    return rebuilt(ast, change, (Ops.STORE, Ops.END, Ops.SINK, Ops.AFTER))
