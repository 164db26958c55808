"""Loops leave out turns that change nothing: those of folds that add the identity, and those of
nests that fill what nobody reads.

A window at the border of its input reads zeros, and so do the first and last places of a gradient
that was padded. Which rows of the window those are depends on loops around the fold alone, so the
fold's loop begins where the input does and ends where it ends. A 3x3 convolution of 7x7 pixels has
a tenth less to do then, the gradient of a 5x5 convolution of 24x24 a sixth. A row of which all is
hidden behind some place, as in attention that looks back only, is folded up to there: half of the
work of all rows.

A zero is found at the gate of a load, also where the load was copied to scratch before: the copy
holds zeros wherever its own loads are closed. What the other factor of a product is does not
matter, as in `schedule.phases`; nor what is added to minus infinity, whose exponential is zero.
What is written out has a turn in common, which stays if any of it counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_turns"]

_LOOPS = (Axis.LOOP, Axis.THREAD, Axis.REDUCE)
_WRITTEN = (Axis.UPCAST, Axis.UNROLL)
# What folds add nothing by.
_NOTHING = (0, -math.inf)
# A loop that ends where only its last turns are open in part is worth it from so many times these.
_LONG = 8


class _Bound(NamedTuple):
    """Terms count only where `total` is less than `limit`, or, if not `is_less`, is not; it is
    `condition` that asks for this, where no copy stands between.
    """

    total: UOp
    limit: int
    is_less: bool
    condition: UOp | None = None


def skip_turns(ast: UOp, target: Target) -> UOp:
    """`ast` with loops of folds that run over the turns that count.

    before   REDUCE(LOAD(a, y + k - 1, 0, 0 < y + k) * LOAD(w, k), k)         k: 0..3
    after    REDUCE(LOAD(a, y + j + f - 1) * LOAD(w, j + f), j)               j: 0..3 - f
    with f = max(1 - y, 0)
    """
    if target.has_locals:
        return ast
    nodes = ast.toposort()
    named = _named(nodes)
    mapping: dict[UOp, tuple[UOp, tuple[UOp]]] = {}
    opened: dict[UOp, UOp] = {}
    for fold in (node for node in nodes if node.op is Ops.REDUCE):
        own = [
            part for part in fold.src[1:] if part.arg[1] is Axis.REDUCE and named.count(part) == 1
        ]
        nothing = fold.arg.definition.identity(fold.dtype)
        bounds = list(_bounds(fold.src[0], nothing)) if own and nothing in _NOTHING else []
        for loop in own:
            lows: list[UOp] = []
            highs: list[UOp] = []
            for bound in bounds:
                end = _end(bound, loop, fold.ranges)
                if end is None:
                    continue
                (highs if end.is_less else lows).append(end.total)
                if end.condition is not None:
                    opened[end.condition] = UOp.const(dtypes.bool, bound.is_less)
            if lows or highs:
                place, parts = _shorter(loop, lows, highs)
                if parts != (loop,):
                    mapping[loop] = place, parts
    return _fill_what_is_read(replace_ranges(simplify(ast, opened), mapping)) if mapping else ast


def _named(nodes: Iterable[UOp]) -> list[UOp]:
    """The ranges that folds and nests run over, each as often as it is named."""
    return [part for node in nodes if node.op in (Ops.REDUCE, Ops.END) for part in node.src[1:]]


def _shorter(loop: UOp, lows: list[UOp], highs: list[UOp]) -> tuple[UOp, tuple[UOp]]:
    """What `loop` is, and the loop it is made from, which runs from the last of `lows` to the first
    of `highs`.
    """
    first, end = UOp.const(dtypes.index, 0), loop.src[0]
    for low in lows:
        first = first.maximum(low)
    for high in highs:
        end = end.minimum(high)
    part = loop.replace(src=(simplify((end - first).maximum(0)),))
    return part + simplify(first), (part,)


def _end(bound: _Bound, loop: UOp, around: Iterable[UOp]) -> _Bound | None:
    """The bound as one of `loop` itself, with what is known outside of the loop as its `total`:
    where it ends, or, if not `is_less`, begins. None where that is not known.
    """
    terms = terms_of(bound.total)
    if terms is None or loop not in terms[0]:
        return None
    scale = terms[0][loop]
    rest, slack = UOp.const(dtypes.index, terms[1]), 0
    for factor, times in terms[0].items():
        if factor.op is Ops.RANGE and factor.arg[1] in _WRITTEN:
            # Of what is written out, the place that counts longest.
            most = times * factor.vmax
            slack += abs(most)
            rest = rest + (min(most, 0) if bound.is_less else max(most, 0))
        elif factor is not loop:
            rest = rest + factor * times
    if any(part not in around or part.arg[1] not in _LOOPS for part in rest.ranges):
        return None
    if slack and abs(scale) * loop.vmax < _LONG * slack:
        return None
    # total < limit is loop * scale < limit - rest; of a negative scale, the other way round.
    left, is_less = rest * -1 + bound.limit, bound.is_less
    if scale < 0:
        left, scale, is_less = left * -1 + 1, -scale, not is_less
    condition = None if slack else bound.condition
    return _Bound(simplify((left + (scale - 1)) // scale), 0, is_less, condition)


def _bounds(value: UOp, nothing: float) -> Iterator[_Bound]:
    """Outside of which `value` is `nothing`, as far as loads and conditions tell."""
    for node in value.toposort():
        if node.op is Ops.CMPLT and _is_scalar_index(node):
            left, right = node.src
            for flag in (False, True):
                closed = {node: UOp.const(dtypes.bool, flag)}
                if _is_always(simplify(value, closed), nothing):
                    if right.op is Ops.CONST:
                        yield _Bound(left, right.arg, not flag, node)
                    else:
                        yield _Bound(simplify(left - right), 0, not flag, node)
        elif (copy := _copy_of(node)) is not None:
            for held in _NOTHING if node.dtype.is_float else (0,):
                is_open = simplify(value, {node: UOp.const(node.dtype, held)})
                if _is_always(is_open, nothing) and _is_closed(value, node, nothing):
                    for bound in _bounds(copy.value, held):
                        yield _Bound(_moved(bound.total, copy), bound.limit, bound.is_less)


def _is_scalar_index(condition: UOp) -> bool:
    return condition.src[0].dtype is dtypes.index and condition.dtype is dtypes.bool


def _is_closed(value: UOp, load: UOp, nothing: float) -> bool:
    """Whether `value` is `nothing` where the gate of `load` is closed, if it has one."""
    if len(load.src) < 4:
        return True
    _, _, instead, gate = load.src
    closed = {load: instead, gate: UOp.const(dtypes.bool, False)}
    return _is_always(simplify(value, closed), nothing)


class _Copy(NamedTuple):
    """What a nest fills scratch with, at `filled_at`, and where a load finds it; `places` are those
    of the nest's ranges that the load reads.
    """

    value: UOp
    filled_at: UOp
    read_at: UOp
    places: Mapping[UOp, UOp]


def _moved(total: UOp, copy: _Copy) -> UOp:
    """`total`, over the ranges of a nest, over those of a load."""
    terms, digits = terms_of(total), terms_of(copy.filled_at)
    if terms is not None and digits is not None:
        times = {terms[0].get(part, 0) / scale for part, scale in digits[0].items()}
        if len(times) == 1 and (each := times.pop()) == int(each):
            # All digits of a place are the place.
            rest = total - copy.filled_at * int(each)
            return simplify(simplify(rest) + copy.read_at * int(each))
    return simplify(total, copy.places)


def _copy_of(load: UOp) -> _Copy | None:
    """What a load from scratch that a nest filled finds there."""
    if load.op is not Ops.LOAD or load.src[0].op is not Ops.AFTER:
        return None
    memory, *effects = load.src[0].src
    if memory.op is not Ops.DEFINE_LOCAL or len(effects) != 1 or effects[0].op is not Ops.END:
        return None
    store, *nest = effects[0].src
    if store.op is not Ops.STORE or store.src[0] is not memory:
        return None
    # What the gate of a store keeps out is not read.
    opened = {gate: UOp.const(dtypes.bool, True) for gate in store.src[3:]}
    terms = terms_of(store.src[1])
    if terms is None or terms[1] or set(terms[0]) != set(nest):
        return None
    places: dict[UOp, UOp] = {}
    length = 1
    for part, scale in sorted(terms[0].items(), key=lambda each: each[1]):
        # Digits: each place begins where those of the ones inside it end.
        if scale != length or part.op is not Ops.RANGE or part.src[0].op is not Ops.CONST:
            return None
        length *= part.src[0].arg
        places[part] = simplify(load.src[1] // scale % part.src[0].arg)
    return _Copy(simplify(store.src[2], opened), store.src[1], load.src[1], places)


_Known = dict[tuple[UOp, float], bool]


def _is_always(value: UOp, nothing: float, known: _Known | None = None) -> bool:
    """Whether `value` is zero, or minus infinity, whatever it is made of besides; `known` has the
    answers so far.
    """
    known = {} if known is None else known
    key = value, nothing
    if key not in known:
        known[key] = _is_made_so(value, nothing, known)
    return known[key]


def _is_made_so(value: UOp, nothing: float, known: _Known) -> bool:
    if value.op is Ops.CONST:
        return bool(value.arg == nothing)
    if value.op is Ops.CAST and value.dtype.is_float and value.src[0].dtype.is_float:
        return _is_always(value.src[0], nothing, known)
    if nothing == 0:
        if value.op in (Ops.EXP, Ops.EXP2):
            return _is_always(value.src[0], -math.inf, known)
        return value.op is Ops.MUL and any(_is_always(factor, 0, known) for factor in value.src)
    if value.op is Ops.MUL and value.src[1].op is Ops.CONST and value.src[1].arg > 0:
        return _is_always(value.src[0], nothing, known)
    return value.op is Ops.ADD and any(_is_always(part, nothing, known) for part in value.src)


def _fill_what_is_read(ast: UOp) -> UOp:
    """`ast` with nests that fill scratch up to where it is read, those first that read others.

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
        shorter = _shorter_nest(fill.src[1], loads, _named(nodes))
        if shorter is not None:
            ast = replace_ranges(ast, shorter)


def _shorter_nest(
    nest: UOp, loads: list[UOp], named: list[UOp]
) -> dict[UOp, tuple[UOp, tuple[UOp]]] | None:
    """The outermost loop of a nest, to end where the last of `loads` reads; None if it is not known
    to read less than all.
    """
    if nest.op is not Ops.END or nest.src[0].op is not Ops.STORE:
        return None
    terms = terms_of(nest.src[0].src[1])
    if terms is None or terms[1] or set(terms[0]) != set(nest.src[1:]):
        return None
    loop, scale = max(terms[0].items(), key=lambda each: each[1])
    if loop.arg[1] is not Axis.LOOP or named.count(loop) != 1:
        return None
    last = UOp.const(dtypes.index, 0)
    for load in loads:
        end = _end_of_reads(load.src[1], nest.ranges)
        if end is None or end.op is Ops.CONST:
            return None
        last = last.maximum(end)
    part = loop.replace(src=(simplify(((last + (scale - 1)) // scale).minimum(loop.src[0])),))
    return {loop: (part, (part,))}


def _end_of_reads(position: UOp, around: Set[UOp]) -> UOp | None:
    """What is behind the last place that is read within a turn of the loops `around`."""
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
