"""A select between two loads of one buffer becomes one load at a selected index.

Reflected and circular padding, and concatenated slices of one tensor, are selects between loads,
each behind a gate. Where the condition is uniform over the lanes of a vector, one load at the
selected index does, and the gates of the two sides go.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import from_terms, simplify, simplify_under, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["choose_loads"]


def choose_loads(ast: UOp, target: Target) -> UOp:
    """before   WHERE(y < 2, LOAD(a, 9 - y*4 + l, 0, y < 2), LOAD(a, y*4 + l, 0, not y < 2))
    after    LOAD(a, WHERE(y < 2, 9 - y*4, y*4) + l)         l: unrolled
    """
    return rebuilt(ast, _one_of, (Ops.WHERE,))


def _one_of(select: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """One load for both sides of a select; None where they are none, or stay two."""
    condition, yes, no = src
    if not _is_of_loops(condition):
        return None
    yes, no = _chosen(yes, condition), _chosen(no, condition.logical_not())
    return _one_load(condition, yes, no) if yes.op is no.op is Ops.LOAD else None


def _chosen(value: UOp, condition: UOp) -> UOp:
    """The side of the select `value` that is taken where `condition` holds; `value` where that is
    not decided.
    """
    if value.op is not Ops.WHERE or not _is_of_loops(value.src[0]):
        return value
    known = simplify_under(value.src[0], condition)
    return value if known.op is not Ops.CONST else value.src[1 if known.arg else 2]


def _one_load(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """One load for both sides, if they differ only in their index and the difference is uniform
    over the lanes.
    """
    if yes.src[0] is not no.src[0] or yes.dtype is not no.dtype:
        return None
    if len({load.other for load in (yes, no) if load.is_gated}) > 1:
        return None
    index = _chosen_index(condition, yes.src[1], no.src[1])
    if index is None:
        return None
    sides = (yes, condition), (no, condition.logical_not())
    gates = [
        simplify_under(load.gate, side) if load.is_gated else UOp.const(dtypes.bool, True)
        for load, side in sides
    ]
    gate = gates[0] if gates[0] is gates[1] else simplify(condition.where(*gates))
    if gate.op is Ops.CONST and gate.arg:
        return yes.replace(src=(yes.src[0], index))
    other = next(load.other for load in (yes, no) if load.is_gated)
    return yes.replace(src=(yes.src[0], index, other, gate))


def _is_of_loops(condition: UOp) -> bool:
    """Whether the condition depends on loops, is uniform over the lanes, and loads nothing."""
    return bool(condition.ranges) and _is_invariant(condition)


def _is_invariant(value: UOp) -> bool:
    """Whether the value consists of loops that are no lanes, constants and variables."""
    return all(
        (node.op is not Ops.RANGE or node.axis not in UNROLLED)
        and (node.op.is_alu or node.op in (Ops.RANGE, Ops.CONST, Ops.DEFINE_VAR))
        for node in value.toposort()
    )


def _chosen_index(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """The terms that both indices share, plus a select between the rest of each."""
    sums = [terms_of(index) for index in (yes, no)]
    if sums[0] is None or sums[1] is None:
        return None
    (ours, first), (theirs, second) = sums[0], sums[1]
    common = {factor: scale for factor, scale in ours.items() if theirs.get(factor) == scale}
    rests = [
        {factor: scale for factor, scale in terms.items() if factor not in common}
        for terms in (ours, theirs)
    ]
    # An index that is computed from loaded values is behind the gate of its own side: it must stay
    # there.
    if not all(_is_invariant(factor) for rest in rests for factor in rest):
        return None
    choice = condition.where(
        from_terms(rests[0].items(), first, yes), from_terms(rests[1].items(), second, no)
    )
    return simplify(from_terms(common.items(), 0, yes) + choice)
