"""Gates of loads without the conditions that follow from their other conditions.

A position that was picked by indices of several axes is computed where each index is inside its
axis. Whether the position is inside the memory follows from that, once an `arange` among the
indices is its loop and no sum any more.

before   data1[row * 1037 + data2[i]] where 0 <= data2[i] < 1037 and 0 <= row * 1037 + data2[i] < n
after    data1[row * 1037 + data2[i]] where 0 <= data2[i] < 1037
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.proof import bounds_under
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules.terms import conjuncts
from tilegrad.ir.uop import UOp

__all__ = ["shorten_gates"]


def shorten_gates(ast: UOp) -> UOp:
    """`ast` with shorter gates where positions depend on loaded values."""
    return graph_rewrite(ast, _GATES)


def _shortened(load: UOp) -> UOp | None:
    if not load.is_gated:
        return None
    gate = load.gate
    conditions = found = conjuncts(gate)
    if len(found) < 3 or all(node.op is not Ops.LOAD for node in gate.toposort()):
        return None
    # The last ones first: the memory's bounds stand behind those of the indices.
    for condition in reversed(found[1:]):
        others = [each for each in conditions if each is not condition]
        if _follows(condition, others):
            conditions = others
    if len(conditions) == len(found):
        return None
    return load.replace(src=(*load.src[:3], reduce(UOp.__and__, conditions)))


# Loads inside of others first: a position and its gate go on reading the same.
_GATES = PatternMatcher(
    "gates",
    [Rule("shorten-gate", UPat(Ops.LOAD, name="load"), function=_shortened)],
)


def _follows(condition: UOp, others: Sequence[UOp]) -> bool:
    """Whether the other conditions imply a comparison with a constant."""
    is_negated = condition.op is Ops.XOR and condition.src[1].op is Ops.CONST
    comparison = condition.src[0] if is_negated else condition
    if comparison.op is not Ops.CMPLT or comparison.src[1].op is not Ops.CONST:
        return False
    value, limit = comparison.src
    low, high = bounds_under(value, reduce(UOp.__and__, others))
    return bool(low >= limit.arg if is_negated else high < limit.arg)
