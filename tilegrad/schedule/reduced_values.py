"""Reduced and costly values: where they are stored, at the end of the elementwise work on them."""

from __future__ import annotations

import heapq
from collections.abc import Set

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import elements, flops_of
from tilegrad.schedule.items import FORCED, Reason

__all__ = ["costs_of", "store_reduced"]

# Tuning, worth shown by `bench/corpus.py`, families elementwise and rowwise.
# Operations per element from which recomputing an expanded value is dearer than storing it.
_COSTLY = 3

# Bits for the ops between a value and the stored values that need it.
_EXPANDED, _REPEATED, _REDUCED = 1, 2, 4

# Limits of compile time.
# Uses of a value that are followed to the value through which all of them go.
_REGION = 64

_REDUCES, _REPEATS = (Ops.REDUCE_AXIS, Ops.PREFIX_AXIS), (Ops.EXPAND, Ops.GATHER)


def store_reduced(
    nodes: list[UOp],
    users: dict[UOp, list[UOp]],
    stored: dict[UOp, Reason],
    closed: Set[UOp],
    costs: dict[UOp, int],
    *,
    plain: bool,
) -> tuple[dict[UOp, Reason], set[UOp]]:
    """The stored values: `stored`, and reductions that are needed more often than they are
    computed, except those with a closed form, and, unless `plain`, costly elementwise values. Also
    values that several values are made of and several kernels need.
    """
    order = {node: position for position, node in enumerate(nodes)}
    ends: _Ends = {}
    tops = {
        _top_of(node, users, order, stored, ends)
        for node in nodes
        if node.op is Ops.REDUCE_AXIS and node not in closed
    }
    # Work on a reduction that is expanded is stored with it, and so does not count above it.
    costs = costs_of(nodes, closed, tops) if tops and not plain else costs
    above: dict[UOp, _Above] = {}
    chosen = dict(stored)
    shared: set[UOp] = set()
    for node in reversed(nodes):
        if node.op is Ops.SINK:
            continue
        kernels, between = above[node] = _above(node, users[node], chosen, above)
        if node in chosen or node.op is Ops.BUFFER:
            continue
        if node in tops:
            if between & _EXPANDED:
                chosen[node] = Reason.EXPANDED
            elif between & _REDUCED:
                chosen[node] = Reason.REDUCED_AGAIN
            elif len(kernels) > 1:
                chosen[node] = Reason.SHARED
        elif (
            between & _REPEATED
            and costs.get(node, 0) >= _COSTLY
            and _is_end_of_work(node, users[node])
        ):
            chosen[node] = Reason.COSTLY
        elif len(kernels) > 1 and len(users[node]) > 1:
            shared.add(node)
    return chosen, shared


# The stored values that need a value, two of them, as these are enough to know that there are
# several; and the nodes between, in bits.
_Above = tuple[tuple[UOp, ...], int]


def _above(
    node: UOp, users: list[UOp], stored: dict[UOp, Reason], known: dict[UOp, _Above]
) -> _Above:
    """Kernels above `node`, two at most, and the nodes between; `known` has those of its users."""
    kernels: tuple[UOp, ...] = ()
    between = 0
    for user in users:
        if user.op is Ops.SINK:
            continue
        beyond, bits = ((user,), 0) if user in stored else known[user]
        between |= bits
        if beyond is not kernels:
            kernels = _two_of(kernels, beyond) if kernels else beyond
        if user.op in _REDUCES:
            between |= _REDUCED
        elif user.op in _REPEATS:
            # Picking a few rows of many repeats none.
            is_repeated = elements(user) > elements(node)
            between |= _EXPANDED if is_repeated or user.op is Ops.GATHER else 0
            between |= _REPEATED if is_repeated else 0
    return kernels, between


def _two_of(some: tuple[UOp, ...], others: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Two different ones of these, or one, if all are the same."""
    if len(some) > 1 or some == others:
        return some
    return tuple(dict.fromkeys(some + others))[:2]


def _is_end_of_work(node: UOp, users: list[UOp]) -> bool:
    """Whether the elementwise work ends here: the users move, reduce or store."""
    return (node.op.is_alu or node.op is Ops.CAST) and any(
        user.op.is_movement or user.op is Ops.REDUCE_AXIS for user in users
    )


def costs_of(nodes: list[UOp], closed: Set[UOp], tops: Set[UOp] = frozenset()) -> dict[UOp, int]:
    """Operations per element of each elementwise value, counted from memory, a reduction or one of
    `tops` on.
    """
    costs: dict[UOp, int] = {}
    for node in nodes:
        if node.op in (Ops.SINK, Ops.BUFFER, Ops.CONST):
            continue
        if node in closed or node in tops:
            costs[node] = int(node in closed)
            continue
        is_start = node.op in _REDUCES or node.op in FORCED
        below = 0 if is_start else sum(costs.get(source, 0) for source in _taken(node))
        own = flops_of(node)
        if node.op in (Ops.ADD, Ops.WHERE) and not node.is_constant:
            # Each operand of a concatenation takes a gate.
            padded = sum(_is_padded(source) and not source.is_constant for source in node.src)
            own += padded if padded > 1 else 0
        # Index arithmetic, comparisons and casts go along with whatever needs them.
        is_light = node.is_constant or node.dtype is dtypes.bool or node.op is Ops.CAST
        costs[node] = min(below + (0 if is_light and own <= 1 else own), 1 << 20)
    return costs


def _taken(node: UOp) -> tuple[UOp, ...]:
    """The computed sources of a node: of a rectifier, `(x.max(0) != 0).where(x, x.max(0))`, only
    the limited value.
    """
    if node.op is Ops.WHERE and node.src[2].op is Ops.MAX:
        gate, value, limited = node.src
        below, zero = limited.src
        below = below.src[0] if below.op is Ops.DETACH else below
        if below is value and gate.op is Ops.CMPNE and gate.src == (limited, zero):
            return (value,)
    return node.src


def _is_padded(node: UOp) -> bool:
    """Whether a value is another one with zeros around it."""
    while node.op.is_movement and node.op is not Ops.PAD:
        node = node.src[0]
    return node.op is Ops.PAD


# The last value of the elementwise work that follows a value, by it and a number of elements.
_Ends = dict[tuple[UOp, int], UOp | None]


def _top_of(
    reduced: UOp,
    users: dict[UOp, list[UOp]],
    order: dict[UOp, int],
    stored: dict[UOp, Reason],
    ends: _Ends,
) -> UOp:
    """Where the elementwise work on a reduction ends: the last value of its size through which all
    uses go. `ends` keeps the results on the way, for other reductions that this work takes in.

    before   REDUCE_AXIS -> RESHAPE -> MUL -> EXPAND
    after    the MUL
    """
    here, size = reduced, elements(reduced)
    way: list[tuple[tuple[UOp, int], UOp | None]] = []
    while here not in stored and (here, size) not in ends:
        region = _meeting(here, users, order, size, stored)
        way.append(((here, size), region))
        if region is None:
            break
        here = region
        if _is_top(here, stored):
            size = elements(here)
    last = ends.get((here, size))
    for at, region in reversed(way):
        if last is None and region is not None and _is_top(region, stored):
            last = region
        ends[at] = last
    return last or reduced


def _is_top(node: UOp, stored: dict[UOp, Reason]) -> bool:
    return node.op.is_alu or node.op in (Ops.CAST, Ops.SHRINK) or node in stored


def _meeting(
    start: UOp,
    users: dict[UOp, list[UOp]],
    order: dict[UOp, int],
    size: int,
    stored: dict[UOp, Reason],
) -> UOp | None:
    """The nearest value that every use of `start` goes through, over elementwise ops of the same
    size only.

    Uses are followed in the order of the graph; when a single one is open, all paths go through it.
    """
    frontier: list[tuple[int, int, UOp]] = []
    waiting: set[UOp] = set()
    here = start
    for _ in range(_REGION):
        for user in users[here]:
            if user not in waiting:
                if not _keeps(user, size):
                    return None
                waiting.add(user)
                heapq.heappush(frontier, (order[user], len(waiting), user))
        if not frontier:
            return None
        here = heapq.heappop(frontier)[2]
        if not frontier:
            return here
        if here in stored:
            return None
    return None


def _keeps(user: UOp, size: int) -> bool:
    if user.op is Ops.SINK:
        return False
    # Elements that are cut off, as the gradient of a padding, need not be computed.
    if user.op is Ops.SHRINK:
        return True
    is_step = user.op.is_alu or user.op in (Ops.CAST, Ops.RESHAPE, Ops.PERMUTE)
    return is_step and elements(user) == size
