"""Vector loads and stores on targets whose arithmetic is scalar.

There every unrolled element is a value of its own, and only memory accesses are vectors, of 2, 4
or 8 elements. Accesses are joined where it is proven that they are consecutive, that the first one
is aligned, and that one gate holds for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["join_accesses"]

# (pointer, the terms of the index, gate)
Key = tuple[UOp, frozenset[tuple[UOp, int]], tuple[UOp, ...]]


def join_accesses(ast: UOp, target: Target) -> UOp:
    """before   LOAD(a, i*4), LOAD(a, i*4 + 1)
    after    v = LOAD(a, i*4) : float.vec(2), GEP(v, 0), GEP(v, 1)
    """
    return _join_stores(_join_loads(simplify(ast), target), target)


def _key(access: UOp) -> tuple[Key, int] | None:
    """The key that joinable accesses share, and the constant term of the index."""
    pointer, index = access.src[:2]
    memory = pointer.dtype
    # A lane's private array need not be aligned.
    if not isinstance(memory, Pointer) or memory.space is AddressSpace.SCRATCH:
        return None
    found = terms_of(index)
    if found is None or index.dtype is not dtypes.index or memory.base is dtypes.bool:
        return None
    rest = access.src[2:] if access.op is Ops.LOAD else access.src[3:]
    return (pointer, frozenset(found[0].items()), rest), found[1]


def _runs(
    key: Key, offsets: Sequence[int], dtype: DType, target: Target
) -> Iterator[tuple[int, int]]:
    """(first, count) of consecutive `offsets` that one access can move, longest first."""
    aligned = math.gcd(*(scale * factor.divisor for factor, scale in key[1])) if key[1] else 0
    left = set(offsets)
    width = target.access_lanes(dtype)
    while width > 1:
        if aligned % width == 0:
            for first in sorted(left):
                run = range(first, first + width)
                if first % width == 0 and left.issuperset(run):
                    left.difference_update(run)
                    yield first, width
        width //= 2


def _join_loads(ast: UOp, target: Target) -> UOp:
    # Loads of one element may be several nodes, whose indices are sums in different orders.
    groups: dict[tuple[Key, DType], dict[int, list[UOp]]] = {}
    nodes = ast.toposort()
    for node in nodes:
        if node.op is Ops.LOAD and node.dtype.lanes == 1 and (found := _key(node)) is not None:
            loads = groups.setdefault((found[0], node.dtype), {})
            loads.setdefault(found[1], []).append(node)
    # load -> (its run, its lane in it)
    member: dict[UOp, tuple[tuple[Key, int, int], int]] = {}
    for (key, dtype), loads in groups.items():
        if len(loads) > 1:
            for first, count in _runs(key, list(loads), dtype, target):
                for lane in range(count):
                    member |= dict.fromkeys(loads[first + lane], ((key, first, count), lane))
    if not member:
        return ast
    joined: dict[tuple[Key, int, int], UOp] = {}

    def change(load: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if load not in member:
            return None
        run, lane = member[load]
        if run not in joined:
            count = run[2]
            start = simplify(src[1] - lane)
            gate = (src[2].broadcast(count), src[3]) if len(src) == 4 else ()
            joined[run] = UOp(Ops.LOAD, load.dtype.vec(count), (src[0], start, *gate))
        return joined[run].gep(lane)

    return rebuilt(ast, change, (Ops.LOAD,))


def _join_stores(ast: UOp, target: Target) -> UOp:
    nodes = ast.toposort()
    users = Counter(source for node in nodes for source in node.src if source.op is Ops.STORE)
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src: Sequence[UOp] = [done[source] for source in node.src]
        if sum(source.op is Ops.STORE for source in src) > 1:
            own = {done[source] for source in node.src if users[source] == 1}
            src = _joined([(source, source in own) for source in src], target)
        done[node] = node.over(tuple(src))
    return done[ast]


def _joined(effects: Sequence[tuple[UOp, bool]], target: Target) -> list[UOp]:
    """The sources of one node, with the stores that only this node has joined."""
    groups: dict[tuple[Key, DType], dict[int, UOp]] = {}
    for node, is_own in effects:
        if is_own and node.op is Ops.STORE and node.arg is None and node.value.dtype.lanes == 1:
            found = _key(node)
            if found is not None:
                groups.setdefault((found[0], node.value.dtype), {})[found[1]] = node
    replaced: dict[UOp, UOp] = {}
    for (key, dtype), stores in groups.items():
        for first, count in _runs(key, list(stores), dtype, target):
            members = [stores[first + lane] for lane in range(count)]
            pointer, index, _, *gate = members[0].src
            store = pointer.store(index, _stack([member.value for member in members]), *gate)
            replaced |= dict.fromkeys(members, store)
    return list(dict.fromkeys(replaced.get(node, node) for node, _ in effects))


def _stack(values: Sequence[UOp]) -> UOp:
    """The vector of `values`; an existing vector, if they are all its lanes."""
    first = values[0]
    if first.op is Ops.GEP and first.src[0].dtype.lanes == len(values):
        lanes = tuple((node.src[0], node.arg) if node.op is Ops.GEP else None for node in values)
        if lanes == tuple((first.src[0], (lane,)) for lane in range(len(values))):
            return first.src[0]
    return UOp.stack(values)
