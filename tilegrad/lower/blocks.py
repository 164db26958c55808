"""Folds whose loop stands outside a parallel one: their accumulator is an array in memory. So is
that of a fold whose every step is looked at.

A reduce axis that was tiled runs outside the loops over outputs, so one register cannot hold what
it gathers. The fold is cut in two: the inner loops fold in registers, the outer one adds their
results to the array. Where nothing follows the fold but the store, the output itself is that array;
otherwise it is scratch, read back by loops of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import DType, Place, dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp, element_of, prod
from tilegrad.lower.levels import MOST_TERMS, block_length
from tilegrad.lower.reduce import carried_dtype
from tilegrad.target import Target

__all__ = ["block_folds"]

# What a lane or a block runs is no loop: each has a register of its own.
_WRITTEN = (Axis.UPCAST, Axis.UNROLL)
_SEQUENTIAL = (Axis.LOOP, Axis.REDUCE, Axis.STAGE, Axis.THREAD)


def block_folds(ast: UOp, target: Target) -> UOp:
    """Every fold of `ast` whose ranges enclose ranges of its own result, with an accumulator in
    memory.
    """
    room = target.cache_bytes[1] // 4 if target.has_vectors else 0
    while (running := _running_outside(ast, is_folded=False)) is not None:
        ast = _running_in_memory(ast, target, *running)
    while found := _outermost(ast):
        ast = _in_levels(ast, found) or _in_memory(ast, room, found)
    # What runs along the loop of a fold does so in the nest that is left of it.
    while (running := _running_outside(ast, is_folded=True)) is not None:
        ast = _running_in_memory(ast, target, *running)
    return ast


class _Fold(NamedTuple):
    """A fold, its outer ranges, its inner ranges, and the output ranges between."""

    fold: UOp
    outer: list[UOp]
    inner: list[UOp]
    between: list[UOp]


def _outermost(ast: UOp) -> list[_Fold]:
    """A fold that needs memory, and those that share its outer loops, of which none needs
    another.
    """
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    folds = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    found = [parts for fold in folds if (parts := _parts(fold, place)) is not None]
    together: list[_Fold] = []
    for each in found:
        needs = each.fold.toposort()
        if set(each.outer) == set(found[0].outer) and all(
            other.fold not in needs for other in together
        ):
            together.append(each)
    return together


def _parts(fold: UOp, place: dict[int, int]) -> _Fold | None:
    """How a fold needs memory; None where a register will do."""
    own = [part for part in fold.src[1:] if part.arg[0] in place and part.arg[1] not in _WRITTEN]
    if not own:
        return None
    first = min(place[part.arg[0]] for part in own)
    between = [part for part in fold.ranges if place.get(part.arg[0], -1) > first]
    loops = [part for part in between if part.arg[1] in _SEQUENTIAL]
    if not loops:
        return None
    deepest = max(place[part.arg[0]] for part in loops)
    outer = [part for part in own if place[part.arg[0]] < deepest]
    inner = [part for part in fold.src[1:] if part not in outer]
    between.sort(key=lambda part: place[part.arg[0]])
    return _Fold(fold, outer, inner, between)


def _in_levels(ast: UOp, folds: list[_Fold]) -> UOp | None:
    """The kernel with long sums among `folds` as sums of blocks, each with memory of its own, as
    lower.levels does with registers; None where none is long.

    before   REDUCE(x, k)                            k: 0..100000, outside of j
    after    REDUCE(REDUCE(x, q), p)                 x at k = p*320 + q
    """
    long = [each.fold for each in folds if _is_sum(each.fold)]
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    outer, *others = sorted(folds[0].outer, key=lambda part: place[part.arg[0]])
    inside = int(prod(part.src[0].vmax for part in others))
    terms = inside * outer.src[0].vmax
    if not long or terms <= MOST_TERMS or outer.src[0].vmax < 2:
        return None
    length = block_length(terms)
    if inside < length // 2:
        return _split_in_blocks(ast, outer, max(length // inside, 2))
    mapping = {
        fold: fold.replace(
            src=(fold.replace(src=tuple(part for part in fold.src if part is not outer)), outer)
        )
        for fold in long
    }
    return ast.substitute(mapping)


def _is_sum(fold: UOp) -> bool:
    is_plain = fold.src[0].op not in (Ops.RESCALED, Ops.WMMA)
    return fold.arg is Ops.ADD and fold.dtype.is_float and is_plain


def _split_in_blocks(ast: UOp, loop: UOp, length: int) -> UOp:
    """The kernel with `loop` as one over blocks of `length` iterations, the last of which may be
    shorter.
    """
    extent = loop.src[0]
    number = 1 + max(node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE)
    count = simplify((extent + (length - 1)) // length)
    block = UOp(Ops.RANGE, loop.dtype, (count,), (number, loop.arg[1]))
    rest = simplify((extent - block * length).minimum(length))
    step = UOp(Ops.RANGE, loop.dtype, (rest,), (number + 1, loop.arg[1]))
    order = list(ast.arg.order)
    at = order.index(loop.arg[0])
    order[at : at + 1] = [number, number + 1]
    ast = replace_ranges(ast, {loop: (block * length + step, (block, step))})
    return ast.replace(arg=KernelInfo(ast.arg.name, tuple(order), ast.arg.opts))


def _running_outside(ast: UOp, *, is_folded: bool) -> tuple[UOp, list[UOp], list[UOp]] | None:
    """A prefix, those of its loops that stand outside parallel ones, and these; `is_folded` says
    whether it is to run along the loop of a fold.
    """
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    for node in ast.toposort():
        if node.op is not Ops.PREFIX:
            continue
        own = node.src[1:]
        loops = [part for part in own if part.arg[1] in _SEQUENTIAL]
        if not loops or is_folded is not any(part.arg[1] is Axis.REDUCE for part in loops):
            continue
        first = min(place[part.arg[0]] for part in loops)
        others = node.ranges.difference(own)
        between = [part for part in others if place.get(part.arg[0], -1) > first]
        inside = [place[part.arg[0]] for part in between if part.arg[1] in _SEQUENTIAL]
        if inside:
            outer = [part for part in loops if place[part.arg[0]] < max(inside)]
            between += _repeating(ast, node, outer, place, max(inside))
            return node, outer, sorted(between, key=lambda part: place[part.arg[0]])
    return None


def _repeating(
    ast: UOp, prefix: UOp, outer: list[UOp], place: dict[int, int], deepest: int
) -> list[UOp]:
    """The loops between those of a prefix that its value does not depend on: each of their turns
    would fold it once more, so each has an element of its own.
    """
    first = min(place[part.arg[0]] for part in outer)
    found: dict[UOp, None] = {}
    for nest in {node.ranges for node in ast.toposort() if outer[0] in node.ranges}:
        for part in nest:
            is_between = first < place.get(part.arg[0], -1) < deepest
            if is_between and part.arg[1] in _SEQUENTIAL and part not in prefix.ranges:
                found[part] = None
    return [part for part in found if part not in prefix.src]


def _running_in_memory(
    ast: UOp, target: Target, prefix: UOp, outer: list[UOp], between: list[UOp]
) -> UOp:
    """What the turns of the outer loops fold to is kept in scratch, an element for each of the
    parallel turns; inner loops, and what is written out, run in registers.

    before   i: { j: STORE(a, i*8 + j, PREFIX(x, i)) }
    after    i: { j: old = i == 0 ? 0 : LOAD(scratch, j)
                     STORE(a, i*8 + j, old + x), STORE(scratch, j, old + x) }
    """
    between.sort(key=lambda part: part.vmax if part.arg[1] in _WRITTEN else -1)
    value, *own = prefix.src
    function, _ = prefix.arg
    inner = [part for part in own if part not in outer]
    lives_in = [part for part in prefix.ranges if part not in own and part not in between]
    numbers = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    wide = carried_dtype(prefix.dtype, function, target)
    memory = _scratch(1 + max(numbers, default=-1), wide, between, lives_in)
    position = _flat(between)
    identity = UOp.const(wide, function.definition.identity(wide))
    old = _is_first(outer).where(identity, memory.load(position, dtype=wide))
    whole = value
    if inner:
        whole = UOp(Ops.REDUCE, prefix.dtype, (value, *inner), function)
    kept = memory.store(position, old.alu(function, whole.cast(wide)))
    made: dict[UOp, UOp] = {}
    for node in ast.toposort():
        # Those that differ in how much of a turn they fold share the memory.
        if node.op is Ops.PREFIX and node.src == prefix.src and node.arg[0] is function:
            here = value if node.arg[1] else None
            if inner:
                here = UOp(Ops.PREFIX, prefix.dtype, (value, *inner), node.arg)
            total = old if here is None else old.alu(function, here.cast(wide))
            made[node] = total.cast(prefix.dtype)
    ast = ast.substitute(made)
    closed = [part for part in outer if part.arg[1] is Axis.REDUCE]
    return ast.replace(src=(*ast.src, kept.end(*closed) if closed else kept))


def _is_first(loops: list[UOp]) -> UOp:
    """Whether this is the first turn of all `loops`."""
    is_first = loops[0].eq(0)
    for part in loops[1:]:
        is_first = is_first & part.eq(0)
    return is_first


def _scratch(number: int, dtype: DType, parts: Sequence[UOp], lives_in: Sequence[UOp]) -> UOp:
    """Memory for an element in each turn of `parts`, anew in each turn of `lives_in`."""
    size = int(prod(part.vmax + 1 for part in parts))
    return UOp(Ops.DEFINE_LOCAL, dtype.ptr(size, Place.SCRATCH), tuple(lives_in), number)


def _in_memory(ast: UOp, room: int, folds: list[_Fold]) -> UOp:
    # The widest of what is written out is what lanes are made of: last, it lies in vectors.
    for each in folds:
        each.between.sort(key=lambda part: part.vmax if part.arg[1] in _WRITTEN else -1)
    fold, _, _, between = folds[0]
    store = _only_store(ast, fold)
    nbytes = int(prod(part.vmax + 1 for part in between)) * fold.dtype.itemsize
    if store is not None and (_is_vector(store, between[-1]) or nbytes > room):
        return _in_output(ast, store, folds[0])
    return _in_scratch(ast, folds)


def _only_store(ast: UOp, fold: UOp) -> UOp | None:
    """The store of `fold` as it is, if the kernel has no other, and its output can hold partial
    results without loss.
    """
    (store,) = ast.src if len(ast.src) == 1 else (None,)
    if store is None or store.op is not Ops.STORE or store.src[2] is not fold:
        return None
    return store if store.arg is None and _is_exact(store, fold) else None


def _next(each: _Fold, kept: UOp) -> UOp:
    """What memory holds after a turn of the outer loops, of what it holds before it."""
    fold, outer, inner, _ = each
    identity = UOp.const(fold.dtype, fold.arg.definition.identity(fold.dtype))
    before, value = _is_first(outer).where(identity, kept), fold.src[0]
    if value.op is Ops.RESCALED:
        value, factor = value.src
        return before * factor + value
    partial = UOp(Ops.REDUCE, fold.dtype, (value, *inner), fold.arg) if inner else value
    return before.alu(fold.arg, partial)


def _in_output(ast: UOp, store: UOp, each: _Fold) -> UOp:
    """Each turn of the outer loops folds a part into what the output holds."""
    fold = each.fold
    identity = UOp.const(fold.dtype, fold.arg.definition.identity(fold.dtype))
    pointer, position, _, *gate = store.src
    kept = pointer.load(position, *((identity, gate[0]) if gate else ()), dtype=fold.dtype)
    total = pointer.store(position, _next(each, kept), *gate)
    return ast.replace(src=(total.end(*each.outer),))


def _in_scratch(ast: UOp, folds: list[_Fold]) -> UOp:
    """Each turn of the outer loops folds a part of each into scratch; further nests over the
    parallel loops go on with what it holds at the end.
    """
    numbers = [node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE]
    scratch = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    loops = list(dict.fromkeys(part for each in folds for part in each.between))
    fresh = {
        part: part.replace(arg=(max(numbers) + count, part.arg[1]))
        for count, part in enumerate(loops, start=1)
    }
    stand_ins: dict[UOp, UOp] = {}
    reads: dict[UOp, UOp] = {}
    for count, each in enumerate(folds):
        fold, outer, _, between = each
        lives_in = [part for part in fold.ranges if part not in between]
        memory = _scratch(1 + count + max(scratch, default=-1), fold.dtype, between, lives_in)
        position = _flat(between)
        total = _next(each, memory.load(position, dtype=fold.dtype))
        filled = memory.after(memory.store(position, total).end(*outer, *between))
        stand_in = stand_ins[fold] = UOp.variable(f"folded{count}", 0, 0, fold.dtype)
        reads[stand_in] = filled.load(position.substitute(fresh), dtype=fold.dtype)
    above = ast.substitute(stand_ins).substitute(fresh)
    order = (*ast.arg.order, *(fresh[part].arg[0] for part in loops))
    info = KernelInfo(ast.arg.name, order, ast.arg.opts)
    return simplify(above.substitute(reads).replace(arg=info))


def _is_exact(store: UOp, fold: UOp) -> bool:
    """Whether the output holds partial results without loss."""
    return store.src[0].op is Ops.DEFINE_GLOBAL and element_of(store.src[0]) is fold.dtype


def _is_vector(store: UOp, part: UOp) -> bool:
    """Whether what `part` runs over lies side by side in the output, or is no vector anyway."""
    if part.arg[1] not in _WRITTEN:
        return True
    found = terms_of(store.src[1])
    return found is not None and found[0].get(part) == 1


def _flat(parts: list[UOp]) -> UOp:
    position, stride = UOp.const(dtypes.index, 0), 1
    for part in reversed(parts):
        position = part * stride + position
        stride *= part.vmax + 1
    return simplify(position)
