"""Values that a kernel keeps in scratch for a few rows at a time: a product between two others.

A value whose axes are output ranges of the one kernel that reads it moves there by that proof alone
(moving). One that is read along a whole axis again, as the scores of a row are by a softmax and a
second product, can move as well: each row of it lives in scratch, between the nest that fills it
and those that read it, and is computed once all the same.

Whether that pays is asked of bytes. What the rows do not move (a matrix) is passed over again for
every few of them, so it has to stay in the second cache together with the rows in scratch; and
those folds that do the work need it to be so, as otherwise nothing is used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from tilegrad.base.dtype import Pointer
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.block_rows import is_worth_slicing, slice_of_block
from tilegrad.schedule.cost import extent_product, nbytes
from tilegrad.schedule.parts import in_parts, longest_row
from tilegrad.target import Target

__all__ = ["Place", "cut_rows", "is_worth_keeping", "place_of", "shared_axes"]

# So many rows are computed at once; what they share is packed, which takes a few times as many.
_ROWS = 8
_MANY_ROWS = 32
# In second caches: what all rows pass over (the last cache gives a tile of eight rows that much in
# time), and what is kept of some rows.
_PASSED_OVER = 2
_KEPT = 1 / 2
# The same of a part of rows that do not fit, which is whole vectors; of fewer places, it costs more
# to go on from part to part.
_PART = 1
_VECTORS, _SHORTEST = 32, 64
# What the folds lose as a share, as they pass over whole matrices, not over panels of these; and
# cycles to pack an element, which each chunk of rows does for itself.
_LOST = 0.045
_PACKED = 2.5
# In last caches, and in results of the kernel: what is kept also where a dot unit would multiply it
# in a kernel of its own, in less time.
_HUGE = 16
# From so many steps on, a fold is worth a tile of registers; and folds that have fewer than this
# share of the largest one's need none.
_WORTH_A_TILE = 1 << 18
_LIGHT = 1 / 16


class Place(NamedTuple):
    """Where a kept value lives: `shared` are those of its axes that are output ranges of the
    kernel, which are `outer`.
    """

    shared: tuple[int, ...]
    outer: tuple[UOp, ...]


def shared_axes(uses: Sequence[tuple[UOp, ...]], outputs: Sequence[UOp]) -> tuple[int, ...]:
    """The axes along which all `uses` of a value read at the same one of the `outputs`."""
    return tuple(
        axis
        for axis, part in enumerate(uses[0])
        if part in outputs and all(index[axis] is part for index in uses)
    )


def place_of(value: UOp, uses: Sequence[tuple[UOp, ...]], outputs: Sequence[UOp]) -> Place | None:
    """Where `value`, read at `uses` by a kernel with the output ranges `outputs`, can live inside
    it; None where some of it would be computed more than once.
    """
    if not uses:
        return None
    shared = shared_axes(uses, outputs)
    inner = [axis for axis in range(len(value.shape)) if axis not in shared]
    if any(index[axis].op not in (Ops.RANGE, Ops.CONST) for index in uses for axis in inner):
        return None
    outer = tuple(uses[0][axis] for axis in shared if uses[0][axis].op is Ops.RANGE)
    if not outer or len(set(outer)) != len(outer):
        return None
    return Place(shared, outer)


def is_worth_keeping(
    value: UOp, element: UOp, place: Place, moving: Set[int], target: Target, *, is_long: bool
) -> bool:
    """Whether a kernel that stores `element`, with `value` already kept in scratch, takes less time
    than one that reads it from memory, where another has written it. `moving` are the parameters
    that may still be computed in there, too; `is_long` says that rows go through the kernel in
    parts that fit.
    """
    if target.has_locals:
        return is_long and is_worth_slicing(element, place.outer, target)
    if not target.has_vectors or len(target.cache_bytes) < 2:
        return False
    nodes = element.toposort()
    folds = _heavy([node for node in nodes if node.op is Ops.REDUCE])
    kept = sum(_size(node) for node in nodes if node.op is Ops.DEFINE_LOCAL)
    second = _second(target)
    if not folds or any(n.op is Ops.PREFIX for n in nodes):
        return False
    if _ROWS * kept > _KEPT * second and not is_long:
        return False
    is_huge = nbytes(value) > _HUGE * max(target.cache_bytes[-1], _nbytes(element))
    if not is_huge and any(_has_dot_unit(fold, target) for fold in folds):
        return False
    if not _fill_along_memory(nodes):
        return False
    saved = 2 * nbytes(value) * _byte_cycles(nbytes(value), target)
    along = _in_rows(element, folds, place, moving)
    for row in place.outer:
        still = [_unmoved(fold, row, target) for fold in folds]
        if row.vmax + 1 < _MANY_ROWS or not all(still):
            continue
        passed = {load: _reach(load, place.outer) for found in still for load in found}
        apart = extent_product(place.outer) // (row.vmax + 1)
        chunks = target.threads if apart < target.threads // 2 else 1
        steps = sum(_steps(fold) / (2 * target.lanes_of(fold.dtype)) for fold in folds)
        packed = _PACKED * (chunks - 1) * sum(passed.values())
        lost = _LOST * steps + packed + along * _byte_cycles(along, target)
        nearer = sum(count * load.dtype.itemsize for load, count in passed.items())
        if (nearer <= _PASSED_OVER * second or is_long) and saved > lost:
            return True
    return False


def cut_rows(ast: UOp, target: Target) -> UOp | None:
    """The kernel `ast` with its rows in parts that fit; None where they fit as a whole, or where no
    parts can be made.
    """
    if not target.has_locals and (not target.has_vectors or len(target.cache_bytes) < 2):
        return None
    row = longest_row(ast)
    if row is None:
        return None
    if target.has_locals:
        size = slice_of_block(ast, row, target)
        return in_parts(ast, row, size, target) if size else None
    second = _second(target)
    around = {loop for memory in row.memories for loop in memory.src}
    # What all rows pass over, for each place of the row.
    passed = {
        node
        for node in ast.toposort()
        if node.op is Ops.LOAD and node.ranges & row.ranges and not around <= node.ranges
    }
    each = sum(
        extent_product(load.ranges - around - row.ranges) * load.dtype.itemsize for load in passed
    )
    rows = _ROWS * row.nbytes
    if row.length * rows <= _KEPT * second and row.length * each <= _PASSED_OVER * second:
        return None
    most = int(min(_KEPT * second // rows, _PART * second // max(each, 1)))
    if most < _SHORTEST:
        return None
    # Equal parts of whole vectors, if there are such, else the last one is shorter.
    equal = (size for size in range(most, most // 2, -1) if row.length % size == 0)
    count = -(-row.length // most)
    size = next((size for size in equal if size % _VECTORS == 0), 0)
    size = size or min(-(-row.length // (count * _VECTORS)) * _VECTORS, most)
    return in_parts(ast, row, size, target)


def _second(target: Target) -> int:
    """Bytes of the second cache that scratch may count on: it lies on the stack of a thread."""
    return min(target.cache_bytes[1], target.scratch_bytes // 2)


def _byte_cycles(nbytes: int, target: Target) -> float:
    """Cycles for a byte of a value of so many, beyond those of one in the nearest cache."""
    return target.timing.byte[target.level_of(nbytes)] - target.timing.byte[0]


def _in_rows(element: UOp, folds: list[UOp], place: Place, moving: Set[int]) -> int:
    """Bytes of whole rows that are read or stored outside of `folds`, whose tiles do so for
    themselves.
    """
    found: dict[int, int] = {}
    for node in toposort([element], stop=lambda node: node in folds):
        if node.op is Ops.LOAD and node.src[0].op is Ops.DEFINE_GLOBAL:
            number = node.src[0].arg
            if number not in moving and node.ranges.issuperset(place.outer):
                found[number] = max(found.get(number, 0), _nbytes(node))
    inner = element.ranges.difference(place.outer)
    is_tiled = any(inner & fold.ranges for fold in folds)
    return sum(found.values()) + (0 if is_tiled or not inner else _nbytes(element))


def _nbytes(element: UOp) -> int:
    """Bytes of all elements of which this is one."""
    return extent_product(element.ranges) * element.dtype.itemsize


def _steps(fold: UOp) -> int:
    return extent_product({*fold.ranges, *fold.src[1:]})


def _heavy(folds: list[UOp]) -> list[UOp]:
    """The folds that do the work, if there is enough of it."""
    steps = {fold: _steps(fold) for fold in folds}
    most = max(steps.values(), default=0)
    return [fold for fold in folds if steps[fold] > most * _LIGHT] if most >= _WORTH_A_TILE else []


def _unmoved(fold: UOp, row: UOp, target: Target) -> list[UOp]:
    """What a tile of `row` by lanes of another range loads once for all its rows; nothing where
    the fold has no such tile.
    """
    folded = set(fold.src[1:])
    loads = [
        node for node in fold.src[0].toposort() if node.op is Ops.LOAD and folded & node.ranges
    ]
    moved = [load for load in loads if row in load.ranges]
    still = [load for load in loads if row not in load.ranges]
    lanes = target.lanes_of(fold.dtype)
    for part in fold.ranges:
        if (
            part is not row
            and part.arg[1] is Axis.LOOP
            and part.vmax + 1 >= lanes
            and moved
            and all(part in load.ranges for load in still)
            and not any(part in load.ranges for load in moved)
        ):
            return still
    return []


def _reach(load: UOp, outer: Iterable[UOp]) -> int:
    """Elements that are loaded within one iteration of the ranges `outer`."""
    return extent_product(load.ranges.difference(outer))


def _size(memory: UOp) -> int:
    """Bytes of scratch."""
    pointer = memory.dtype
    assert isinstance(pointer, Pointer)
    return pointer.size * pointer.base.itemsize


def _has_dot_unit(fold: UOp, target: Target) -> bool:
    """Whether an instruction for several products at once serves the fold, which needs a kernel for
    itself.
    """
    units = [unit for unit in target.matrix_units if unit.is_dot]
    shorts = {unit.dtype_in for unit in units} | {unit.dtype_right for unit in units}
    return any(node.op is Ops.LOAD and node.dtype in shorts for node in fold.src[0].toposort())


def _fill_along_memory(nodes: Iterable[UOp]) -> bool:
    """Whether what is kept and is no fold comes from memory as it lies there."""
    for node in nodes:
        if node.op is not Ops.END or node.src[0].op is not Ops.STORE:
            continue
        value, own = node.src[0].src[2], set(node.src[1:])
        loads = [each for each in value.toposort() if each.op is Ops.LOAD]
        if any(each.op is Ops.REDUCE and own & each.ranges for each in value.toposort()):
            continue
        last = node.src[-1]
        for load in loads:
            terms = terms_of(load.src[1])
            if last in load.src[1].ranges and (terms is None or terms[0].get(last) != 1):
                return False
    return True
