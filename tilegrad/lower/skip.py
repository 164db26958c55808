"""Folds leave out turns that add nothing.

A window at the border of its input reads zeros, and so do the first and last places of a gradient
that was padded. Which rows of the window those are depends on loops around the fold alone, so the
fold's loop begins where the input does and ends where it ends. A 3x3 convolution of 7x7 pixels has
a tenth less to do then, the gradient of a 5x5 convolution of 24x24 a sixth.

A zero is found at the gate of a load, also where the load was copied to scratch before: the copy
holds zeros wherever its own loads are closed. What the other factor of a product is does not
matter, as in `schedule.phases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_turns"]

_LOOPS = (Axis.LOOP, Axis.THREAD, Axis.REDUCE)


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
    named = [part for node in nodes if node.op in (Ops.REDUCE, Ops.END) for part in node.src[1:]]
    mapping: dict[UOp, tuple[UOp, tuple[UOp]]] = {}
    opened: dict[UOp, UOp] = {}
    for fold in (node for node in nodes if node.op is Ops.REDUCE and node.arg is Ops.ADD):
        own = [
            part
            for part in fold.src[1:]
            if part.arg[1] is Axis.REDUCE and part.src[0].op is Ops.CONST and named.count(part) == 1
        ]
        bounds = list(_bounds(fold.src[0])) if own else []
        for loop in own:
            lows: list[UOp] = []
            highs: list[UOp] = []
            for bound in bounds:
                end = _end(bound, loop, fold.ranges)
                if end is None:
                    continue
                (highs if end.is_less else lows).append(end.total)
                if bound.condition is not None:
                    opened[bound.condition] = UOp.const(dtypes.bool, bound.is_less)
            if lows or highs:
                mapping[loop] = _shorter(loop, lows, highs)
    return replace_ranges(simplify(ast, opened), mapping) if mapping else ast


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
    rest = UOp.const(dtypes.index, terms[1])
    for factor, times in terms[0].items():
        if factor is not loop:
            rest = rest + factor * times
    if any(part not in around or part.arg[1] not in _LOOPS for part in rest.ranges):
        return None
    # total < limit is loop * scale < limit - rest; of a negative scale, the other way round.
    left, is_less = rest * -1 + bound.limit, bound.is_less
    if scale < 0:
        left, scale, is_less = left * -1 + 1, -scale, not is_less
    return _Bound(simplify((left + (scale - 1)) // scale), 0, is_less)


def _bounds(value: UOp) -> Iterator[_Bound]:
    """Outside of which `value` is nothing, as far as loads tell."""
    for node in value.toposort():
        if node.op is Ops.CMPLT and node.src[1].op is Ops.CONST and _is_scalar_index(node):
            for flag in (False, True):
                closed = {node: UOp.const(dtypes.bool, flag)}
                if _is_nothing(simplify(value, closed)):
                    yield _Bound(node.src[0], node.src[1].arg, not flag, node)
        elif (copy := _copy_of(node)) is not None and _is_nothing(
            simplify(value, {node: UOp.const(node.dtype, 0)})
        ):
            stored, places = copy
            for bound in _bounds(stored):
                yield _Bound(simplify(bound.total, places), bound.limit, bound.is_less)


def _is_scalar_index(condition: UOp) -> bool:
    return condition.src[0].dtype is dtypes.index and condition.dtype is dtypes.bool


def _copy_of(load: UOp) -> tuple[UOp, Mapping[UOp, UOp]] | None:
    """Of a load from scratch that a nest filled: what it filled it with, and which of the nest's
    places the load reads.
    """
    if load.op is not Ops.LOAD or len(load.src) != 2 or load.src[0].op is not Ops.AFTER:
        return None
    memory, *effects = load.src[0].src
    if memory.op is not Ops.DEFINE_LOCAL or len(effects) != 1 or effects[0].op is not Ops.END:
        return None
    store, *nest = effects[0].src
    if store.op is not Ops.STORE or store.src[0] is not memory or len(store.src) != 3:
        return None
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
    return store.src[2], places


def _is_nothing(value: UOp) -> bool:
    if value.op is Ops.MUL:
        return any(_is_nothing(factor) for factor in value.src)
    return value.op is Ops.CONST and bool(value.arg == 0)
