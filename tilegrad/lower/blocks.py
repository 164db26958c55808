"""Folds whose loop stands outside a parallel one: their accumulator is an array in memory. So is
that of a fold whose every step is looked at.

A reduce axis that was tiled runs outside the loops over outputs, so one register cannot hold what
it gathers. The fold is cut in two: the inner loops fold in registers, the outer one adds their
results to the array. Where nothing follows the fold but the store, the output itself is that array;
otherwise it is scratch, read back by loops of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import DType, Place, dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp, element_of, prod
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
    while (running := _running_outside(ast)) is not None:
        ast = _running_in_memory(ast, *running)
    while True:
        place = {number: rank for rank, number in enumerate(ast.arg.order)}
        found = next(
            (
                parts
                for fold in ast.toposort()
                if fold.op is Ops.REDUCE and (parts := _parts(fold, place))
            ),
            None,
        )
        if found is None:
            return ast
        ast = _in_memory(ast, room, *found)


def _parts(fold: UOp, place: dict[int, int]) -> tuple[UOp, list[UOp], list[UOp], list[UOp]] | None:
    """(fold, its outer ranges, its inner ranges, the output ranges between), or None where a
    register will do.
    """
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
    return fold, outer, inner, between


def _running_outside(ast: UOp) -> tuple[UOp, list[UOp], list[UOp]] | None:
    """A prefix, those of its loops that stand outside parallel ones, and these."""
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    for node in ast.toposort():
        if node.op is not Ops.PREFIX:
            continue
        own = node.src[1:]
        loops = [part for part in own if part.arg[1] in _SEQUENTIAL]
        if not loops:
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


def _running_in_memory(ast: UOp, prefix: UOp, outer: list[UOp], between: list[UOp]) -> UOp:
    """What the turns of the outer loops fold to is kept in scratch, an element for each of the
    parallel turns; inner loops, and what is written out, run in registers.

    before   i: { j: STORE(a, i*8 + j, PREFIX(x, i)) }
    after    i: { j: old = i == 0 ? 0 : LOAD(scratch, j)
                     STORE(a, i*8 + j, old + x), STORE(scratch, j, old + x) }
    """
    between.sort(key=lambda part: part.vmax if part.arg[1] in _WRITTEN else -1)
    value, *own = prefix.src
    function = prefix.arg[0]
    inner = [part for part in own if part not in outer]
    lives_in = [part for part in prefix.ranges if part not in own and part not in between]
    memory = _scratch(ast, prefix.dtype, between, lives_in)
    position = _flat(between)
    identity = UOp.const(prefix.dtype, function.definition.identity(prefix.dtype))
    old = _is_first(outer).where(identity, memory.load(position, dtype=prefix.dtype))
    here = whole = value
    if inner:
        here = UOp(Ops.PREFIX, prefix.dtype, (value, *inner), prefix.arg)
        whole = UOp(Ops.REDUCE, prefix.dtype, (value, *inner), function)
    kept = memory.store(position, old.alu(function, whole))
    ast = ast.substitute({prefix: old.alu(function, here)})
    return ast.replace(src=(*ast.src, kept))


def _is_first(loops: list[UOp]) -> UOp:
    """Whether this is the first turn of all `loops`."""
    is_first = loops[0].eq(0)
    for part in loops[1:]:
        is_first = is_first & part.eq(0)
    return is_first


def _scratch(ast: UOp, dtype: DType, parts: Sequence[UOp], lives_in: Sequence[UOp]) -> UOp:
    """Memory for an element in each turn of `parts`, anew in each turn of `lives_in`."""
    size = int(prod(part.vmax + 1 for part in parts))
    numbers = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    pointer = dtype.ptr(size, Place.SCRATCH)
    return UOp(Ops.DEFINE_LOCAL, pointer, tuple(lives_in), 1 + max(numbers, default=-1))


def _in_memory(
    ast: UOp, room: int, fold: UOp, outer: list[UOp], inner: list[UOp], between: list[UOp]
) -> UOp:
    # The widest of what is written out is what lanes are made of: last, it lies in vectors.
    between.sort(key=lambda part: part.vmax if part.arg[1] in _WRITTEN else -1)
    partial = UOp(Ops.REDUCE, fold.dtype, (fold.src[0], *inner), fold.arg) if inner else fold.src[0]
    store = _only_store(ast, fold)
    nbytes = int(prod(part.vmax + 1 for part in between)) * fold.dtype.itemsize
    if store is not None and (_is_vector(store, between[-1]) or nbytes > room):
        return _in_output(ast, store, fold, outer, partial)
    return _in_scratch(ast, fold, outer, between, partial)


def _only_store(ast: UOp, fold: UOp) -> UOp | None:
    """The store of `fold` as it is, if the kernel has no other, and its output can hold partial
    results without loss.
    """
    (store,) = ast.src if len(ast.src) == 1 else (None,)
    if store is None or store.op is not Ops.STORE or store.src[2] is not fold:
        return None
    return store if store.arg is None and _is_exact(store, fold) else None


def _in_output(ast: UOp, store: UOp, fold: UOp, outer: list[UOp], partial: UOp) -> UOp:
    """Each turn of the outer loops folds `partial` into what the output holds."""
    identity = UOp.const(fold.dtype, fold.arg.definition.identity(fold.dtype))
    pointer, position, _, *gate = store.src
    kept = pointer.load(position, *((identity, gate[0]) if gate else ()), dtype=fold.dtype)
    total = _is_first(outer).where(identity, kept).alu(fold.arg, partial)
    return ast.replace(src=(pointer.store(position, total, *gate).end(*outer),))


def _in_scratch(ast: UOp, fold: UOp, outer: list[UOp], between: list[UOp], partial: UOp) -> UOp:
    """Each turn of the outer loops folds `partial` into scratch; a second nest over the parallel
    loops goes on with what it holds at the end.
    """
    identity = UOp.const(fold.dtype, fold.arg.definition.identity(fold.dtype))
    lives_in = [part for part in fold.ranges if part not in between]
    memory, position = _scratch(ast, fold.dtype, between, lives_in), _flat(between)
    kept = memory.load(position, dtype=fold.dtype)
    total = _is_first(outer).where(identity, kept).alu(fold.arg, partial)
    filled = memory.after(memory.store(position, total).end(*outer, *between))
    last = max(node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE)
    fresh = {
        part: part.replace(arg=(last + count, part.arg[1]))
        for count, part in enumerate(between, start=1)
    }
    stand_in = UOp.variable("folded", 0, 0, fold.dtype)
    above = ast.substitute({fold: stand_in}).substitute(fresh)
    read = filled.load(position.substitute(fresh), dtype=fold.dtype)
    order = (*ast.arg.order, *(fresh[part].arg[0] for part in between))
    info = KernelInfo(ast.arg.name, order, ast.arg.opts)
    return simplify(above.substitute({stand_in: read}).replace(arg=info))


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
