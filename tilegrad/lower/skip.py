"""Loop bounds without the iterations that change nothing: those that add the identity to a
reduction, and those that fill scratch that is not read.

A filter window at the border of its input reads padding, that is zeros; so do the first and last
positions of a padded gradient. The rows of the filter window that do so depend only on loops around
the reduction. So the reduce loop starts and ends with the input. That saves a tenth of a 3x3
convolution of 7x7 pixels, and a sixth of the gradient of a 5x5 convolution of 24x24 pixels. Causal
attention hides the end of each row: its reductions stop there, which saves half of the work over
all rows.

A zero is found by the gate of a load, also where scratch holds a copy of the load: the copy is zero
wherever its own loads are closed. The other factor of the product does not matter, as in
`schedule.strided`; nor does a term that is added to minus infinity, as exp(-inf) is zero. Unrolled
copies share an iteration, which stays if one of them counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.neutral import Neutral, is_always
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import is_const, loops_of, values_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import conjuncts, simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_iterations", "skip_products", "skip_slices"]

_BOTH = (False, True)
_LOOPS = (Axis.LOOP, Axis.THREAD, Axis.REDUCE)
# The identities of the reductions that have skipped iterations.
_NOTHING = (0, -math.inf)
# The least ratio of a loop's iterations to its partly masked last ones for which these are split
# off.
_LONG = 8


class _Bound(NamedTuple):
    """Terms count only where `total` is less than `limit`, or, if not `is_less`, where it is not
    less. `condition` is the gate that says so, if no copy in scratch is between.
    """

    total: UOp
    limit: int
    is_less: bool
    condition: UOp | None = None


def skip_iterations(ast: UOp, target: Target) -> UOp:
    """`ast` with reduce loops over the iterations that count.

    before   REDUCE(LOAD(a, y + k - 1, 0, 0 < y + k) * LOAD(w, k), k)         k: 0..3
    after    REDUCE(LOAD(a, y + j + f - 1) * LOAD(w, j + f), j)               j: 0..3 - f
    with f = max(1 - y, 0)
    """
    if target.has_locals:
        return skip_slices(ast)
    nodes = ast.toposort()
    named = _named(nodes)
    mapping: dict[UOp, tuple[UOp, tuple[UOp]]] = {}
    opened: dict[UOp, UOp] = {}
    empty: dict[UOp, UOp] = {}
    for reduce in (node for node in nodes if node.op is Ops.REDUCE):
        own = [
            loop for loop in reduce.src[1:] if loop.axis is Axis.REDUCE and named.count(loop) == 1
        ]
        nothing = reduce.arg.definition.identity(reduce.dtype)
        is_asked = bool(own) and nothing in _NOTHING
        bounds = list(_bounds(reduce.src[0], nothing, own)) if is_asked else []
        for loop in own:
            lows: list[UOp] = []
            highs: list[UOp] = []
            for bound in bounds:
                end = _end(bound, loop, reduce.ranges)
                if end is None:
                    continue
                (highs if end.is_less else lows).append(end.total)
                if end.condition is not None:
                    opened[end.condition] = UOp.const(dtypes.bool, bound.is_less)
            if lows or highs:
                index, loops = _shorter(loop, lows, highs)
                if loops[0].extent.vmax <= 0:
                    # No iteration counts: a filter window that lies in padding wherever it is.
                    empty[reduce] = UOp.const(reduce.dtype, nothing)
                elif loops != (loop,):
                    mapping[loop] = index, loops
    if not mapping and not empty:
        return ast
    return _trim_fills(replace_ranges(simplify(ast, opened | empty), mapping))


def _named(nodes: Iterable[UOp]) -> list[UOp]:
    """The ranges that reductions and loop nests run over, one entry per use."""
    return [loop for node in nodes if node.op in (Ops.REDUCE, Ops.END) for loop in node.src[1:]]


def _shorter(loop: UOp, lows: list[UOp], highs: list[UOp]) -> tuple[UOp, tuple[UOp]]:
    """The value of `loop` in terms of a shorter loop, which runs from the largest of `lows` to the
    smallest of `highs`; and the shorter loop.
    """
    first, end = UOp.const(dtypes.index, 0), loop.extent
    for low in lows:
        first = first.maximum(low)
    for high in highs:
        end = end.minimum(high)
    shorter = loop.replace(src=(simplify((end - first).maximum(0)),))
    return shorter + simplify(first), (shorter,)


def _end(bound: _Bound, loop: UOp, around: Iterable[UOp]) -> _Bound | None:
    """The bound solved for `loop`: its `total` is the end of the loop, or, if not `is_less`, its
    start. None where it depends on more than loops around the reduction.
    """
    terms = terms_of(bound.total)
    if terms is None or loop not in terms[0]:
        return None
    scale = terms[0][loop]
    rest, slack = UOp.const(dtypes.index, terms[1]), 0
    for factor, times in terms[0].items():
        if factor.op is Ops.RANGE and factor.axis in UNROLLED:
            # The unrolled copy that counts longest.
            most = times * factor.vmax
            slack += abs(most)
            rest = rest + (min(most, 0) if bound.is_less else max(most, 0))
        elif factor is not loop:
            rest = rest + factor * times
    if any(loop not in around or loop.axis not in _LOOPS for loop in rest.ranges):
        return None
    if slack and abs(scale) * loop.vmax < _LONG * slack:
        return None
    # total < limit means loop * scale < limit - rest, or the opposite if the scale is negative.
    left, is_less = rest * -1 + bound.limit, bound.is_less
    if scale < 0:
        left, scale, is_less = left * -1 + 1, -scale, not is_less
    condition = None if slack else bound.condition
    return _Bound(simplify((left + (scale - 1)) // scale), 0, is_less, condition)


def _bounds(value: UOp, nothing: float, loops: Collection[UOp]) -> Iterator[_Bound]:
    """Bounds for `loops`, as gates and conditions show them: outside, `value` is `nothing`."""
    nodes = value.toposort()
    deciding = _deciding(nodes)
    for node in nodes:
        if node.op not in (Ops.CMPLT, Ops.LOAD) or node.ranges.isdisjoint(loops):
            continue
        if node.op is Ops.CMPLT and _is_scalar_index(node):
            left, right = node.src
            for flag in sorted(deciding.get(node, _BOTH)):
                if _is_nothing_where(value, node, flag, nothing):
                    if right.op is Ops.CONST:
                        yield _Bound(left, right.arg, not flag, node)
                    else:
                        yield _Bound(simplify(left - right), 0, not flag, node)
        elif (copy := _copy_of(node)) is not None:
            for hidden in _NOTHING if node.dtype.is_float else (0,):
                is_open = simplify(value, {node: UOp.const(node.dtype, hidden)})
                if is_always(is_open, nothing) and _is_closed(value, node, nothing):
                    for bound in _bounds(copy.value, hidden, {*loops, *copy.digits}):
                        yield _Bound(_at_load(bound.total, copy), bound.limit, bound.is_less)


def _is_nothing_where(value: UOp, condition: UOp, flag: bool, nothing: float) -> bool:
    """Whether `value` is `nothing` where `condition` is `flag`: as the gate of a load, which is
    soon seen, or otherwise.
    """
    if Neutral((), condition, flag=flag).is_always(value, nothing):
        return True
    return is_always(simplify(value, {condition: UOp.const(dtypes.bool, flag)}), nothing)


def _deciding(nodes: Iterable[UOp]) -> dict[UOp, set[bool]]:
    """By condition, the values of it that may decide its users: an AND is decided by a False alone,
    so True need not be tried.
    """
    found: dict[UOp, set[bool]] = {}
    for node in nodes:
        for source in node.src:
            if source.op is Ops.CMPLT:
                found.setdefault(source, set()).update((False,) if node.op is Ops.AND else _BOTH)
    return found


def _is_scalar_index(condition: UOp) -> bool:
    return condition.src[0].dtype is dtypes.index and condition.dtype is dtypes.bool


def _is_closed(value: UOp, load: UOp, nothing: float) -> bool:
    """Whether `value` is `nothing` where the gate of `load` is closed, if it has one."""
    if not load.is_gated:
        return True
    _, _, instead, gate = load.src
    closed = {load: instead, gate: UOp.const(dtypes.bool, False)}
    return is_always(simplify(value, closed), nothing)


class _ScratchCopy(NamedTuple):
    """A copy in scratch: its value, the index of the store, the index of the load, and the ranges
    of the store's loop nest in terms of the load's index.
    """

    value: UOp
    filled_at: UOp
    read_at: UOp
    digits: Mapping[UOp, UOp]


def _at_load(total: UOp, copy: _ScratchCopy) -> UOp:
    """`total`, over the ranges of the store, in terms of the load's index."""
    terms, digits = terms_of(total), terms_of(copy.filled_at)
    if terms is not None and digits is not None:
        times = {terms[0].get(loop, 0) / scale for loop, scale in digits[0].items()}
        if len(times) == 1 and (each := times.pop()) == int(each):
            # All digits of an index together are the index.
            rest = total - copy.filled_at * int(each)
            return simplify(simplify(rest) + copy.read_at * int(each))
    return simplify(total, copy.digits)


def _copy_of(load: UOp) -> _ScratchCopy | None:
    """The copy that a load from scratch reads; None if the load is no such load."""
    if load.op is not Ops.LOAD or load.src[0].op is not Ops.AFTER:
        return None
    memory, *effects = load.src[0].src
    if memory.op is not Ops.DEFINE_LOCAL or len(effects) != 1 or effects[0].op is not Ops.END:
        return None
    store, *loops = effects[0].src
    if store.op is not Ops.STORE or store.src[0] is not memory:
        return None
    # The load does not read where the gate of the store is closed.
    opened = {gate: UOp.const(dtypes.bool, True) for gate in store.src[3:]}
    terms = terms_of(store.index)
    if terms is None or terms[1] or set(terms[0]) != set(loops):
        return None
    digits: dict[UOp, UOp] = {}
    length = 1
    for loop, scale in sorted(terms[0].items(), key=lambda each: each[1]):
        # Mixed-radix digits: each stride is the product of the extents inside of it.
        if scale != length or loop.op is not Ops.RANGE or loop.extent.op is not Ops.CONST:
            return None
        length *= loop.extent.arg
        digits[loop] = simplify(load.index // scale % loop.extent.arg)
    return _ScratchCopy(simplify(store.value, opened), store.index, load.index, digits)


def _trim_fills(ast: UOp) -> UOp:
    """`ast` with loop nests that fill scratch only as far as it is read; readers before the nests
    that they read.

    before   { k: STORE(scratch, k, x) } REDUCE(LOAD(scratch, j), j)       k: 0..n, j: 0..i
    after    { k: STORE(scratch, k, x) } REDUCE(LOAD(scratch, j), j)       k: 0..i, j: 0..i
    """
    done: set[UOp] = set()
    while True:
        nodes = ast.toposort()
        fills = [
            node
            for node in nodes
            if node.op is Ops.AFTER and node.src[0].op is Ops.DEFINE_LOCAL and len(node.src) == 2
        ]
        fill = next((node for node in reversed(fills) if node.src[0] not in done), None)
        if fill is None:
            return ast
        done.add(fill.src[0])
        loads = [node for node in nodes if node.op is Ops.LOAD and node.src[0] is fill]
        shorter = _shorter_fill(fill.src[1], loads, _named(nodes))
        if shorter is not None:
            ast = replace_ranges(ast, shorter)


def _shorter_fill(
    fill: UOp, loads: list[UOp], named: list[UOp]
) -> dict[UOp, tuple[UOp, tuple[UOp]]] | None:
    """The outermost loop of the nest `fill`, with the last position that `loads` read as its end;
    None if they may read all.
    """
    if fill.op is not Ops.END or fill.src[0].op is not Ops.STORE:
        return None
    terms = terms_of(fill.src[0].src[1])
    if terms is None or terms[1] or set(terms[0]) != set(fill.src[1:]):
        return None
    loop, scale = max(terms[0].items(), key=lambda each: each[1])
    if loop.axis is not Axis.LOOP or named.count(loop) != 1:
        return None
    last = UOp.const(dtypes.index, 0)
    for load in loads:
        end = _end_of_reads(load.index, fill.ranges)
        if end is None or end.op is Ops.CONST:
            return None
        last = last.maximum(end)
    shorter = loop.replace(src=(simplify(((last + (scale - 1)) // scale).minimum(loop.extent)),))
    return {loop: (shorter, (shorter,))}


def _end_of_reads(position: UOp, around: Set[UOp]) -> UOp | None:
    """One past the last index that is read in an iteration of the loops `around`."""
    terms = terms_of(position)
    if terms is None:
        return None
    end = UOp.const(dtypes.index, terms[1] + 1)
    for factor, times in terms[0].items():
        if factor.ranges <= around:
            end = end + factor * times
        elif factor.op is not Ops.RANGE or not factor.src[0].ranges <= around:
            return None
        elif times > 0:
            end = end + (factor.src[0] - 1) * times
    return simplify(end)


# Ops that combine values of several iterations.
_GATHERS = (Ops.REDUCE, Ops.PREFIX)


def skip_slices(ast: UOp) -> UOp:
    """`ast` with loops over slices that end where a condition hides the rest.

    Causal attention ends with the slice of the block's last row, which saves half of the work over
    all blocks.

    A block goes over the slices of its rows in one loop (optimize.opts.shared_slices). A slice
    whose scores are minus infinity for all rows of the block adds nothing: its largest score is
    minus infinity, its exponentials are zero, and so are their sums and products, whether they go
    through shared memory, lanes or matrix units. All lanes of a block leave the loop together.

    before   p: 0..32 { x = WHERE(b*64 + i < p*32 + j, -inf, ...); ... }       b: block, i: 0..64
    after    p: 0..(b*64 + 63)//32 + 1
    """
    nodes = ast.toposort()
    sums = [
        node
        for node in nodes
        if node.op is Ops.REDUCE and any(each.op is Ops.RESCALED for each in node.src)
    ]
    loops = {axis for node in sums for axis in node.src[1:]}
    if len(loops) != 1:
        return ast
    (loop,) = loops
    hidden: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is Ops.WHERE and node.src[1].op is Ops.CONST and node.src[1].arg == -math.inf:
            if (end := _slice_end(node.src[0], loop)) is not None:
                hidden[node] = end
    if not hidden or not _is_uniform(loop, hidden):
        return ast
    neutral = Neutral(hidden)
    users = [node for node in nodes if loop in node.src[1:]]
    if not all(_adds_nothing(node, neutral) for node in users if node.op in _GATHERS):
        return ast
    last = UOp.const(dtypes.index, 0)
    for end in dict.fromkeys(hidden.values()):
        last = last.maximum(end)
    short = loop.replace(src=(simplify(last.minimum(loop.extent)),))
    return replace_ranges(ast, {loop: (short, (short,))})


def _adds_nothing(node: UOp, neutral: Neutral) -> bool:
    """Whether a reduction over slices, or a scan along them, is the same without hidden ones."""
    value = node.src[0]
    if node.op is Ops.PREFIX:
        return node.combine is Ops.MAX and neutral.is_always(value, -math.inf)
    return value.op is Ops.RESCALED and neutral.is_always(value.src[0], 0.0)


def _is_uniform(loop: UOp, hidden: dict[UOp, UOp]) -> bool:
    return loop.extent.op is Ops.CONST and all(
        axis.axis is Axis.GLOBAL for end in hidden.values() for axis in end.ranges
    )


def _slice_end(condition: UOp, loop: UOp) -> UOp | None:
    """One past the last iteration of `loop` in which `condition` is false for some lane of a block;
    None where that is not known.
    """
    if condition.op is not Ops.CMPLT or condition.src[0].dtype is not dtypes.index:
        return None
    terms = terms_of(simplify(condition.src[0] - condition.src[1]))
    if terms is None or terms[0].get(loop, 0) >= 0:
        return None
    most = UOp.const(dtypes.index, terms[1])
    for factor, scale in terms[0].items():
        if factor is loop:
            continue
        if any(axis.axis is not Axis.GLOBAL for axis in factor.ranges):
            # The lane, or the value of a lane, that sees longest.
            most = most + max(scale * factor.vmin, scale * factor.vmax)
        else:
            most = most + factor * scale
    return simplify((most // -terms[0][loop] + 1).maximum(1))


def skip_products(ast: UOp, target: Target) -> UOp:
    """`ast` without products of a constant zero. Where a filter window and the positions it is
    applied to are unrolled, the gate of each load is constant, or conditions of it are.

    before   REDUCE(LOAD(a, 0, 0, False) * LOAD(w, k), LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    after    REDUCE(LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)

    This is the counterpart of `skip_iterations` for unrolled filter windows: another tenth of a 3x3
    convolution of 7x7 pixels, and three quarters of the gradient of an average over 5x5 pixels with
    stride 2.
    """
    mapping: dict[UOp, UOp] = {}
    closed: dict[UOp, bool] = {}
    for reduce in ast.toposort():
        if reduce.op is not Ops.REDUCE or reduce.arg is not Ops.ADD:
            continue
        values = values_of(reduce)
        left = [value for value in values if not _is_nothing(value, closed)]
        if len(left) < len(values):
            loops = loops_of(reduce)
            mapping[reduce] = reduce.replace(src=(*(left or [UOp.const(reduce.dtype, 0)]), *loops))
    return ast.substitute(mapping) if mapping else ast


def _is_nothing(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a zero that is known: a constant, a product with a closed load, or a
    choice between such values.
    """
    sides = [value]
    while sides:
        side = sides.pop()
        if side.op is Ops.WHERE:
            condition, then, other = side.src
            sides += [other] if _is_false(condition, closed) else [other, then]
        elif not is_const(side, 0) and not _is_always_zero(side, closed):
            return False
    return True


def _is_always_zero(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a product with a load whose gate is closed; `closed` caches answers for
    conditions and products.
    """
    if value.op is Ops.MUL:
        if value not in closed:
            closed[value] = any(_is_always_zero(factor, closed) for factor in value.src)
        return closed[value]
    if value.op is Ops.VECTORIZE:
        return all(_is_always_zero(lane, closed) for lane in dict.fromkeys(value.src))
    if value.op is not Ops.LOAD or not value.is_gated or not is_const(value.other, 0):
        return False
    return _is_false(value.gate, closed)


def _is_false(condition: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether some operand of a conjunction never holds, in no lane if it is a vector."""
    if condition not in closed:
        closed[condition] = any(
            all(_never_holds(lane, closed) for lane in dict.fromkeys(each.src))
            if each.op is Ops.VECTORIZE
            else _never_holds(each, closed)
            for each in conjuncts(condition)
        )
    return closed[condition]


def _never_holds(condition: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether some operand of a conjunction is known to be false, as no loop moves it."""
    for each in conjuncts(condition):
        if each.ranges:
            continue
        if each not in closed:
            found = simplify(each)
            closed[each] = found.op is Ops.CONST and not found.arg
        if closed[each]:
            return True
    return False
