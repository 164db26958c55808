"""Loads of one buffer that become fewer: selects between two loads, and vectors side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import from_terms, simplify, simplify_under, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["choose_loads", "share_vectors"]


def choose_loads(ast: UOp, target: Target) -> UOp:
    """before   WHERE(y < 2, LOAD(a, 9 - y*4 + l, 0, y < 2), LOAD(a, y*4 + l, 0, not y < 2))
    after    LOAD(a, WHERE(y < 2, 9 - y*4, y*4) + l)         l: unrolled

    Reflected and circular padding, and concatenated slices of one tensor, are selects between
    loads, each behind a gate. Where the condition is uniform over the lanes of a vector, one load
    at the selected index does, and the gates of the two sides go.
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


# (pointer, the terms of the index, the dtype, the argument of the load)
Key = tuple[UOp, frozenset[tuple[UOp, int]], DType, object]
Loads = dict[int, UOp]
"""Loads of one key by their constant offsets."""


def share_vectors(ast: UOp, target: Target) -> UOp:
    """before   LOAD(a, i)[0, 2, 3, 3], LOAD(a, i + 3)[0, 0, 1, 3]: the even elements;
                LOAD(a, i + 1)[0, 2, 3, 3], LOAD(a, i + 4)[0, 0, 1, 3]: the odd ones
    after    LOAD(a, i)[0, 2, 3, 3], LOAD(a, i + 4)[0, 0, 0, 2];
             LOAD(a, i)[1, 3, 3, 3], LOAD(a, i + 4)[0, 0, 1, 3]

    The columns of a filter window with a stride of two are the even elements of some vectors, and
    the odd ones of nearly the same vectors, one element further. Each column alone loads its span
    from its first element to its last (lower.lane_accesses). Together they read one run of memory
    without gaps, so all of them are taken out of the vectors that cover this run side by side.
    """
    nodes = ast.toposort()
    vectors = [node for node in nodes if node.op is Ops.LOAD and node.dtype.lanes > 1]
    if len(vectors) < 3:
        return ast
    groups: dict[Key, Loads] = {}
    for node in vectors:
        if (found := _position(node)) is not None:
            groups.setdefault(found[0], {})[found[1]] = node
    runs = [run for loads in groups.values() for run in _runs(loads) if len(run) > 2]
    if not runs:
        return ast
    picks = _Picks(nodes)
    new: dict[UOp, UOp] = {}
    for run in runs:
        new |= _shared(run, picks)
    return ast.substitute(new)


def _position(node: UOp) -> tuple[Key, int] | None:
    """The key and the offset of a vector that is loaded without a gate."""
    terms = None if node.is_gated else terms_of(node.index)
    if terms is None:
        return None
    return (node.src[0], frozenset(terms[0].items()), node.dtype, node.arg), terms[1]


def _runs(loads: Loads) -> Iterator[Loads]:
    """Loads that cover memory without gaps."""
    run: Loads = {}
    end = 0
    for offset in sorted(loads):
        if run and offset > end:
            yield run
            run = {}
        run[offset] = loads[offset]
        end = offset + loads[offset].dtype.lanes
    yield run


class _Picks:
    """The lanes that are taken out of loads: by GEP, and by WHERE of a gate that is constant in
    each lane.
    """

    def __init__(self, nodes: Iterable[UOp]):
        # The load and the lane of it that each lane of a value is.
        self.lanes: dict[UOp, tuple[tuple[UOp, int], ...]] = {}
        self.users: dict[UOp, list[UOp]] = {}
        for node in nodes:
            for source in node.src:
                self.users.setdefault(source, []).append(node)
            if (found := self._lanes_of(node)) is not None:
                self.lanes[node] = found

    def _lanes_of(self, node: UOp) -> tuple[tuple[UOp, int], ...] | None:
        if node.op is Ops.LOAD and node.dtype.lanes > 1:
            return tuple((node, lane) for lane in range(node.dtype.lanes))
        if node.op is Ops.GEP and node.src[0] in self.lanes and node.dtype.lanes > 1:
            return tuple(self.lanes[node.src[0]][lane] for lane in node.arg)
        if node.op is Ops.WHERE and all(each in self.lanes for each in node.src[1:]):
            gate = node.src[0]
            if gate.op is Ops.VECTORIZE and all(each.op is Ops.CONST for each in gate.src):
                one, other = (self.lanes[each] for each in node.src[1:])
                flags = (each.arg for each in gate.src)
                return tuple(a if flag else b for flag, a, b in zip(flags, one, other))
        return None

    def roots(self, loads: Collection[UOp]) -> dict[UOp, tuple[tuple[UOp, int], ...]]:
        """The values with other users than those that take lanes out of them."""
        reached = set(loads)
        found = {}
        for node, lanes in self.lanes.items():
            if reached.isdisjoint((node, *node.src)):
                continue
            reached.add(node)
            if any(user not in self.lanes for user in self.users.get(node, ())):
                found[node] = lanes
        return found


def _shared(run: Loads, picks: _Picks) -> dict[UOp, UOp]:
    """Values that are taken out of vectors side by side, if these are fewer loads."""
    offset_of = {load: offset for offset, load in run.items()}
    first = min(run)
    last, lanes = max(run), run[first].dtype.lanes
    starts = [*range(first, last, lanes), last]
    new: dict[UOp, UOp] = {}
    after: set[int] = set()
    for root, own in picks.roots(offset_of).items():
        before = {load for load, _ in own}
        elements = [offset_of[load] + lane for load, lane in own if load in offset_of]
        taken = _cover(elements, starts, lanes)
        if len(elements) == len(own) and len(taken) <= len(before):
            new[root] = _taken(root, elements, [_load_at(run, start) for start in taken], taken)
            after.update(taken)
        else:
            after.update(offset_of[load] for load in before if load in offset_of)
    return new if len(after) < len(run) else {}


def _cover(elements: Collection[int], starts: Sequence[int], lanes: int) -> list[int]:
    """The vectors of `starts`, in order, that have the elements: few, if not the fewest."""
    taken: list[int] = []
    for element in sorted(elements):
        if not taken or element >= taken[-1] + lanes:
            taken.append(max(start for start in starts if start <= element))
    return taken


def _load_at(run: Loads, start: int) -> UOp:
    """The vector at an offset."""
    if start in run:
        return run[start]
    below = max(offset for offset in run if offset < start)
    load = run[below]
    return load.replace(src=(load.src[0], load.index + (start - below), *load.src[2:]))


def _taken(root: UOp, elements: Sequence[int], loads: Sequence[UOp], starts: Sequence[int]) -> UOp:
    """The elements, each out of the first of the vectors that has it."""
    found: UOp | None = None
    end = 0
    for load, start in zip(loads, starts, strict=True):
        lanes = load.dtype.lanes
        wanted = tuple(min(max(each - start, 0), lanes - 1) for each in elements)
        picked = UOp(Ops.GEP, root.dtype, (load,), wanted)
        if found is None:
            found = load if wanted == tuple(range(lanes)) else picked
        else:
            is_before = UOp.stack([UOp.const(dtypes.bool, each < end) for each in elements])
            found = is_before.where(found, picked)
        end = start + lanes
    assert found is not None
    return found
