"""Reductions whose loop is outside a parallel loop: the accumulator is an array in memory. Scans
whose loop is outside one get an array too.

A tiled reduce axis runs outside the loops over outputs, so one register cannot hold the
accumulator. The reduction is split: the inner loops reduce in registers, and the outer loop adds
their results to the array. Where the reduction is stored without an epilogue, the output buffer
itself is the array; otherwise the array is scratch, and loops of their own read it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import loop_ranks, next_number, reductions_of, trips_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp, element_of, prod
from tilegrad.lower.accumulators import carried_dtype
from tilegrad.lower.levels import MOST_TERMS, block_length
from tilegrad.target import Target

__all__ = ["use_memory_accumulators"]

# Axes that are no loops: each lane or block has a register of its own.
_SEQUENTIAL = (Axis.LOOP, Axis.REDUCE, Axis.STAGE, Axis.THREAD)


def use_memory_accumulators(ast: UOp, target: Target) -> UOp:
    """`ast` with a memory accumulator for each reduction whose ranges enclose ranges of its own
    result.

    before   a[j] = REDUCE(b[k*8 + j], k)            k outside of j
    after    k: { j: a[j] = (k == 0 ? 0 : a[j]) + b[k*8 + j] }
    """
    room = target.cache_bytes[1] // 4 if target.has_vectors else 0
    ast = _with_scans_inside(ast, target)
    while (prefix := _outer_prefix(ast, is_reduced=False)) is not None:
        ast = _prefix_in_memory(ast, target, *prefix)
    while found := _outermost(ast):
        ast = (
            _in_levels(ast, found)
            or _in_registers(ast, target, found)
            or _in_memory(ast, room, found)
        )
    # A scan along a reduce loop is handled last: it runs in the loop nest that the reduction
    # leaves.
    while (prefix := _outer_prefix(ast, is_reduced=True)) is not None:
        ast = _prefix_in_memory(ast, target, *prefix)
    return ast


class _Reduction(NamedTuple):
    """A reduction, its outer ranges, its inner ranges, and the output ranges between them."""

    reduce: UOp
    outer: list[UOp]
    inner: list[UOp]
    between: list[UOp]


def _outermost(ast: UOp) -> list[_Reduction]:
    """A reduction that needs memory, with those that share its outer loops and are independent of
    each other.
    """
    rank = loop_ranks(ast)
    reductions = reductions_of(ast)
    found = [split for reduce in reductions if (split := _memory_split(reduce, rank)) is not None]
    together: list[_Reduction] = []
    for each in found:
        below = each.reduce.toposort()
        if set(each.outer) == set(found[0].outer) and all(
            other.reduce not in below for other in together
        ):
            together.append(each)
    return together


def _memory_split(reduce: UOp, rank: dict[int, int]) -> _Reduction | None:
    """The split of a reduction that needs memory; None where a register will do."""
    own = [loop for loop in reduce.src[1:] if loop.number in rank and loop.axis not in UNROLLED]
    if not own:
        return None
    first = min(rank[loop.number] for loop in own)
    between = [loop for loop in reduce.ranges if rank.get(loop.number, -1) > first]
    loops = [loop for loop in between if loop.axis in _SEQUENTIAL]
    if not loops:
        return None
    deepest = max(rank[loop.number] for loop in loops)
    outer = [loop for loop in own if rank[loop.number] < deepest]
    inner = [loop for loop in reduce.src[1:] if loop not in outer]
    between.sort(key=lambda loop: rank[loop.number])
    return _Reduction(reduce, outer, inner, between)


def _in_levels(ast: UOp, reductions: list[_Reduction]) -> UOp | None:
    """The kernel with each long sum in `reductions` as a sum of blocks, each block with memory of
    its own, as lower.levels does with registers; None where no sum is long.

    before   REDUCE(x, k)                            k: 0..100000, outside of j
    after    REDUCE(REDUCE(x, q), p)                 x at k = p*320 + q
    """
    long = [each.reduce for each in reductions if _is_sum(each.reduce)]
    order = loop_ranks(ast)
    outer, *others = sorted(reductions[0].outer, key=lambda loop: order[loop.number])
    inside = trips_of(others)
    terms = inside * outer.src[0].vmax
    if not long or terms <= MOST_TERMS or outer.src[0].vmax < 2:
        return None
    length = block_length(terms)
    if inside < length // 2:
        return _split_in_blocks(ast, outer, max(length // inside, 2))
    mapping = {
        reduce: reduce.replace(
            src=(reduce.replace(src=tuple(loop for loop in reduce.src if loop is not outer)), outer)
        )
        for reduce in long
    }
    return ast.substitute(mapping)


def _in_registers(ast: UOp, target: Target, reductions: list[_Reduction]) -> UOp | None:
    """The kernel with the outer loops of `reductions` inside of the loops over outputs, where the
    partial results do not fit scratch; None where they do, or lie in the output.
    """
    nbytes = sum(_accumulator_bytes(each) for each in reductions)
    if nbytes <= target.scratch_bytes or _only_store(ast, reductions[0].reduce) is not None:
        return None
    for each in reductions:
        ast = _moved_inside(ast, each.outer, each.between)
    return ast


def _accumulator_bytes(each: _Reduction) -> int:
    return trips_of(each.between) * each.reduce.dtype.itemsize


def _is_sum(reduce: UOp) -> bool:
    is_plain = reduce.src[0].op not in (Ops.RESCALED, Ops.WMMA)
    return reduce.arg is Ops.ADD and reduce.dtype.is_float and is_plain


def _split_in_blocks(ast: UOp, loop: UOp, length: int) -> UOp:
    """The kernel with `loop` split into blocks of `length` iterations; the last block may be
    shorter.
    """
    extent = loop.extent
    number = next_number(ast.toposort())
    count = simplify((extent + (length - 1)) // length)
    block = UOp(Ops.RANGE, loop.dtype, (count,), (number, loop.axis))
    rest = simplify((extent - block * length).minimum(length))
    step = UOp(Ops.RANGE, loop.dtype, (rest,), (number + 1, loop.axis))
    order = list(ast.arg.order)
    position = order.index(loop.number)
    order[position : position + 1] = [number, number + 1]
    ast = replace_ranges(ast, {loop: (block * length + step, (block, step))})
    return ast.replace(arg=KernelInfo(ast.arg.name, tuple(order), ast.arg.opts))


def _outer_prefix(ast: UOp, *, is_reduced: bool) -> tuple[UOp, list[UOp], list[UOp]] | None:
    """A scan, those of its loops that are outside parallel loops, and these parallel loops;
    `is_reduced` selects the scans that run along a reduce loop.
    """
    order = loop_ranks(ast)
    for node in ast.toposort():
        if node.op is not Ops.PREFIX:
            continue
        own = node.src[1:]
        loops = [loop for loop in own if loop.axis in _SEQUENTIAL]
        if not loops or is_reduced is not any(loop.axis is Axis.REDUCE for loop in loops):
            continue
        first = min(order[loop.number] for loop in loops)
        others = node.ranges.difference(own)
        between = [loop for loop in others if order.get(loop.number, -1) > first]
        inside = [order[loop.number] for loop in between if loop.axis in _SEQUENTIAL]
        if inside:
            outer = [loop for loop in loops if order[loop.number] < max(inside)]
            between += _repeated_loops(ast, node, outer, order, max(inside))
            return node, outer, sorted(between, key=lambda loop: order[loop.number])
    return None


def _with_scans_inside(ast: UOp, target: Target) -> UOp:
    """`ast` with the loops of a scan inside of the loops whose carried values do not fit scratch:
    such a scan carries one value, in a register.
    """
    found = _outer_prefix(ast, is_reduced=False)
    if found is None:
        return ast
    prefix, outer, between = found
    carried = carried_dtype(prefix.dtype, prefix.combine, target).itemsize
    if carried * prod(loop.extent.vmax for loop in between) <= target.scratch_bytes // 2:
        return ast
    return _moved_inside(ast, outer, between)


def _moved_inside(ast: UOp, outer: list[UOp], between: list[UOp]) -> UOp:
    """`ast` with the loops `outer` inside of those `between`."""
    numbers = [loop.number for loop in outer]
    rest = [number for number in ast.arg.order if number not in numbers]
    behind = 1 + max(rest.index(loop.number) for loop in between if loop.number in rest)
    order = (*rest[:behind], *numbers, *rest[behind:])
    return ast.replace(arg=KernelInfo(ast.arg.name, order, ast.arg.opts))


def _repeated_loops(
    ast: UOp, prefix: UOp, outer: list[UOp], order: dict[int, int], deepest: int
) -> list[UOp]:
    """The loops between those of a scan on which its value does not depend. Each iteration of them
    would add the value once more, so each gets an element of its own.
    """
    first = min(order[loop.number] for loop in outer)
    found: dict[UOp, None] = {}
    for loops in {node.ranges for node in ast.toposort() if outer[0] in node.ranges}:
        for loop in loops:
            is_between = first < order.get(loop.number, -1) < deepest
            if is_between and loop.axis in _SEQUENTIAL and loop not in prefix.ranges:
                found[loop] = None
    return [loop for loop in found if loop not in prefix.src]


def _prefix_in_memory(
    ast: UOp, target: Target, prefix: UOp, outer: list[UOp], between: list[UOp]
) -> UOp:
    """The scan with its carried value in scratch: one element for each parallel iteration. Inner
    loops and unrolled axes run in registers.

    before   i: { j: STORE(a, i*8 + j, PREFIX(x, i)) }
    after    i: { j: old = i == 0 ? 0 : LOAD(scratch, j)
                     STORE(a, i*8 + j, old + x), STORE(scratch, j, old + x) }
    """
    between.sort(key=lambda loop: loop.vmax if loop.axis in UNROLLED else -1)
    value, *own = prefix.src
    function, _ = prefix.arg
    inner = [loop for loop in own if loop not in outer]
    owners = [loop for loop in prefix.ranges if loop not in own and loop not in between]
    wide = carried_dtype(prefix.dtype, function, target)
    memory = _scratch(next_number(ast.toposort(), Ops.DEFINE_LOCAL), wide, between, owners)
    position = _flat(between)
    identity = UOp.const(wide, function.definition.identity(wide))
    old = _is_first(outer).where(identity, memory.load(position, dtype=wide))
    whole = value
    if inner:
        whole = UOp(Ops.REDUCE, prefix.dtype, (value, *inner), function)
    stored = memory.store(position, old.alu(function, whole.cast(wide)))
    made: dict[UOp, UOp] = {}
    for node in ast.toposort():
        # Inclusive and exclusive prefixes of one scan share the memory.
        if node.op is Ops.PREFIX and node.src == prefix.src and node.combine is function:
            here = value if node.arg[1] else None
            if inner:
                here = UOp(Ops.PREFIX, prefix.dtype, (value, *inner), node.arg)
            total = old if here is None else old.alu(function, here.cast(wide))
            made[node] = total.cast(prefix.dtype)
    ast = ast.substitute(made)
    closed = [loop for loop in outer if loop.axis is Axis.REDUCE]
    return ast.replace(src=(*ast.src, stored.end(*closed) if closed else stored))


def _is_first(loops: list[UOp]) -> UOp:
    """Whether this is the first iteration of all `loops`."""
    is_first = loops[0].eq(0)
    for loop in loops[1:]:
        is_first = is_first & loop.eq(0)
    return is_first


def _scratch(number: int, dtype: DType, loops: Sequence[UOp], owners: Sequence[UOp]) -> UOp:
    """Memory with an element for each iteration of `loops`; each iteration of `owners` has an array
    of its own.
    """
    size = trips_of(loops)
    return UOp(Ops.DEFINE_LOCAL, dtype.ptr(size, AddressSpace.SCRATCH), tuple(owners), number)


def _in_memory(ast: UOp, room: int, reductions: list[_Reduction]) -> UOp:
    # The widest unrolled axis becomes the vector lanes: as the last axis it is contiguous.
    for each in reductions:
        each.between.sort(key=lambda loop: loop.vmax if loop.axis in UNROLLED else -1)
    reduce, _, _, between = reductions[0]
    store = _only_store(ast, reduce)
    is_large = _accumulator_bytes(reductions[0]) > room
    if store is not None and (_is_vector(store, between[-1]) or is_large):
        return _in_output(ast, store, reductions[0])
    return _in_scratch(ast, reductions)


def _only_store(ast: UOp, reduce: UOp) -> UOp | None:
    """The store of `reduce`, if it is the kernel's only effect and its output holds partial results
    without loss.
    """
    (store,) = ast.src if len(ast.src) == 1 else (None,)
    if store is None or store.op is not Ops.STORE or store.value is not reduce:
        return None
    return store if store.arg is None and _is_exact(store, reduce) else None


def _next(each: _Reduction, stored: UOp) -> UOp:
    """The content of memory after an iteration of the outer loops, given the content before it."""
    reduce, outer, inner, _ = each
    identity = UOp.const(reduce.dtype, reduce.arg.definition.identity(reduce.dtype))
    before, value = _is_first(outer).where(identity, stored), reduce.src[0]
    if value.op is Ops.RESCALED:
        value, factor = value.src
        return before * factor + value
    partial = UOp(Ops.REDUCE, reduce.dtype, (value, *inner), reduce.arg) if inner else value
    return before.alu(reduce.arg, partial)


def _in_output(ast: UOp, store: UOp, each: _Reduction) -> UOp:
    """Partial results in the output: an iteration of the outer loops reduces one block into it."""
    reduce = each.reduce
    identity = UOp.const(reduce.dtype, reduce.arg.definition.identity(reduce.dtype))
    pointer, position, _, *gate = store.src
    stored = pointer.load(position, *((identity, gate[0]) if gate else ()), dtype=reduce.dtype)
    total = pointer.store(position, _next(each, stored), *gate)
    return ast.replace(src=(total.end(*each.outer),))


def _in_scratch(ast: UOp, reductions: list[_Reduction]) -> UOp:
    """Partial results in scratch: each iteration of the outer loops reduces one block of each
    reduction into it. New loop nests over the parallel loops read the totals.
    """
    nodes = ast.toposort()
    scratch = next_number(nodes, Ops.DEFINE_LOCAL)
    loops = list(dict.fromkeys(loop for each in reductions for loop in each.between))
    fresh = {
        loop: loop.replace(arg=(number, loop.axis))
        for number, loop in enumerate(loops, start=next_number(nodes))
    }
    stand_ins: dict[UOp, UOp] = {}
    reads: dict[UOp, UOp] = {}
    for count, each in enumerate(reductions):
        reduce, outer, _, between = each
        owners = [loop for loop in reduce.ranges if loop not in between]
        memory = _scratch(scratch + count, reduce.dtype, between, owners)
        position = _flat(between)
        total = _next(each, memory.load(position, dtype=reduce.dtype))
        filled = memory.after(memory.store(position, total).end(*outer, *between))
        stand_in = stand_ins[reduce] = UOp.variable(f"reduced{count}", 0, 0, reduce.dtype)
        reads[stand_in] = filled.load(position.substitute(fresh), dtype=reduce.dtype)
    above = ast.substitute(stand_ins).substitute(fresh)
    order = (*ast.arg.order, *(fresh[loop].number for loop in loops))
    info = KernelInfo(ast.arg.name, order, ast.arg.opts)
    return simplify(above.substitute(reads).replace(arg=info))


def _is_exact(store: UOp, reduce: UOp) -> bool:
    """Whether the output holds partial results without loss."""
    return store.src[0].op is Ops.DEFINE_GLOBAL and element_of(store.src[0]) is reduce.dtype


def _is_vector(store: UOp, loop: UOp) -> bool:
    """Whether the axis `loop` is contiguous in the output, or no vector anyway."""
    if loop.axis not in UNROLLED:
        return True
    found = terms_of(store.index)
    return found is not None and found[0].get(loop) == 1


def _flat(loops: list[UOp]) -> UOp:
    position, stride = UOp.const(dtypes.index, 0), 1
    for loop in reversed(loops):
        position = loop * stride + position
        stride *= loop.vmax + 1
    return simplify(position)
