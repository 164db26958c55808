"""One load where loops choose among places in one memory.

A border that is made of the tensor itself (reflected, circular) and parts of one tensor beside each
other are a choice among loads, each behind a gate. Of a choice that is the same for all lanes of a
vector, one load has the chosen place, and no gate says again which one was meant.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import from_terms, simplify, simplify_under, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["choose_loads"]

_WRITTEN = (Axis.UPCAST, Axis.UNROLL)


def choose_loads(ast: UOp, target: Target) -> UOp:
    """before   WHERE(y < 2, LOAD(a, 9 - y*4 + l, 0, y < 2), LOAD(a, y*4 + l, 0, not y < 2))
    after    LOAD(a, WHERE(y < 2, 9 - y*4, y*4) + l)         l: written out
    """
    if not target.has_vectors:
        return ast
    done: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple(done[source] for source in node.src)
        made = node if src == node.src else node.replace(src=src)
        if made.op is Ops.WHERE and _is_of_loops(made.src[0]):
            condition, yes, no = made.src
            yes, no = _chosen(yes, condition), _chosen(no, condition.logical_not())
            if yes.op is no.op is Ops.LOAD:
                made = _one_load(condition, yes, no) or made
        done[node] = made
    return done[ast]


def _chosen(value: UOp, condition: UOp) -> UOp:
    """What `value` is where `condition` holds, if that decides which side of a choice it is."""
    if value.op is not Ops.WHERE or not _is_of_loops(value.src[0]):
        return value
    known = simplify_under(value.src[0], condition)
    return value if known.op is not Ops.CONST else value.src[1 if known.arg else 2]


def _one_load(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """The load that both are, if nothing but their places differs, and only with loops that are
    none of the lanes.
    """
    if yes.src[0] is not no.src[0] or yes.dtype is not no.dtype:
        return None
    if len({load.src[2] for load in (yes, no) if len(load.src) == 4}) > 1:
        return None
    place = _chosen_place(condition, yes.src[1], no.src[1])
    if place is None:
        return None
    sides = (yes, condition), (no, condition.logical_not())
    gates = [
        simplify_under(load.src[3], side) if len(load.src) == 4 else UOp.const(dtypes.bool, True)
        for load, side in sides
    ]
    gate = gates[0] if gates[0] is gates[1] else simplify(condition.where(*gates))
    if gate.op is Ops.CONST and gate.arg:
        return yes.replace(src=(yes.src[0], place))
    other = next(load.src[2] for load in (yes, no) if len(load.src) == 4)
    return yes.replace(src=(yes.src[0], place, other, gate))


def _is_of_loops(condition: UOp) -> bool:
    """Whether all lanes agree on it, and nothing is loaded for it."""
    return bool(condition.ranges) and _is_fixed(condition)


def _is_fixed(value: UOp) -> bool:
    """Whether loops that are no lanes are all it is made of."""
    return all(
        (node.op is not Ops.RANGE or node.arg[1] not in _WRITTEN)
        and (node.op.is_alu or node.op in (Ops.RANGE, Ops.CONST, Ops.DEFINE_VAR))
        for node in value.toposort()
    )


def _chosen_place(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """What lanes add to both indices, and the choice between the rest of each."""
    parts = [terms_of(index) for index in (yes, no)]
    if parts[0] is None or parts[1] is None:
        return None
    (ours, first), (theirs, second) = parts[0], parts[1]
    common = {factor: scale for factor, scale in ours.items() if theirs.get(factor) == scale}
    rests = [
        {factor: scale for factor, scale in terms.items() if factor not in common}
        for terms in (ours, theirs)
    ]
    # A place that is computed from values, each behind the gate of its own side, stays there.
    if not all(_is_fixed(factor) for rest in rests for factor in rest):
        return None
    choice = condition.where(
        from_terms(rests[0].items(), first, yes), from_terms(rests[1].items(), second, no)
    )
    return simplify(from_terms(common.items(), 0, yes) + choice)
