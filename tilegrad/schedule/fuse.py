"""What shares a kernel: which values of a graph are stored, each with its reason.

Two steps. The plain plan (all that NOOPT=1 takes) stores what it must, and a reduced value where it
is expanded or reduced again, at the end of the elementwise work that follows the reduction. Then,
unless told otherwise, stored values are inlined into the kernels that read them (inlining.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.cost import WORTH_A_KERNEL, TargetOf, elements, flops_of, nbytes
from tilegrad.schedule.index import KernelBuilder
from tilegrad.schedule.inlining import Fusion, inline_values, readers_of, share_in_scratch
from tilegrad.schedule.limits import cut_large, within_buffers
from tilegrad.schedule.loop import memory_below
from tilegrad.schedule.reason import FORCED, Reason
from tilegrad.schedule.scans import stored_scans

__all__ = ["fuse"]

# Tuning, worth shown by `bench/corpus.py`, families elementwise and rowwise.
# Elements of a kernel, as a multiple of such a sum's, up to which it also stores zeros around the
# sum.
_MOST_PADDED = 1.5
# Operations per element from which recomputing an expanded value is dearer than storing it.
_COSTLY = 3

# Bits for the ops between a value and the stored values that need it.
_EXPANDED, _REPEATED, _REDUCED = 1, 2, 4

# Limits of compile time.
# Uses of a value that are followed to the value through which all of them go.
_REGION = 64
# Values of an element; ordinary programs have some hundred, for slices of a mask.
_LONG_EXPRESSION = 1 << 12
# These take the bytes of whole values.
_OF_BYTES = {Ops.COPY: Reason.COPIED, Ops.CUSTOM: Reason.CUSTOM}


def fuse(
    sink: UOp, target_of: TargetOf, *, plain: bool, needed_later: Sequence[UOp] = ()
) -> Fusion:
    """Decide what is stored of the graph under `sink`, whose sources are the requested values; what
    the values `needed_later` can be computed from later does not live in scratch. A graph may have
    kernels for several devices.
    """
    nodes = list(toposort([sink]))
    users = _users(nodes)
    fusion = Fusion(_forced(sink, nodes, users))
    scans, fusion.shaped = stored_scans(nodes, users, fusion.stored)
    fusion.stored = _in_order(fusion.stored | scans, nodes)
    closed = frozenset() if plain else _without_loops(nodes)
    costs = {} if plain else _costs(nodes, closed)
    shared = _store_reduced(nodes, users, fusion, closed, costs, plain=plain)
    fusion.stored = _in_order(cut_large(nodes, fusion.stored, shared, target_of), nodes)
    if not plain:
        _separate(nodes, fusion)
        fusion = inline_values(nodes, fusion, target_of, needed_later)
        share_in_scratch(costs, fusion, target_of)
    fusion.stored = _in_order(within_buffers(nodes, fusion.stored, target_of), nodes)
    return fusion


def _users(nodes: list[UOp]) -> dict[UOp, list[UOp]]:
    users: dict[UOp, list[UOp]] = {node: [] for node in nodes}
    for node in nodes:
        for source in node.src:
            if not users[source] or users[source][-1] is not node:
                users[source].append(node)
    return users


def _forced(sink: UOp, nodes: list[UOp], users: dict[UOp, list[UOp]]) -> dict[UOp, Reason]:
    """Values that must be in memory whatever it costs; the graph's leaves are there already."""
    stored: dict[UOp, Reason] = {}
    filled = {node for node in nodes if _is_filled_for(node, users[node])}
    for node in nodes:
        if node.op in FORCED and node not in filled:
            stored[node] = FORCED[node.op]
        for number, source in enumerate(node.src):
            is_whole = node.op in _OF_BYTES or (node.op is Ops.SCATTER_ADD and number == 0)
            is_whole &= source not in filled
            # What rows are added to is copied in any case, from memory as it is seen by movement.
            is_whole &= node.op in _OF_BYTES or base_of(source).op is not Ops.BUFFER
            if node.op in _OF_BYTES:
                # Bytes are copied in their order: a reshape of what is stored is stored as well.
                source = below_reshapes(source)
            if is_whole and source.op is not Ops.BUFFER and source not in stored:
                stored[source] = _OF_BYTES.get(node.op, Reason.SCATTERED)
            if node.op is Ops.LOOP:
                below = memory_below(node, number)
                if below.op is not Ops.BUFFER:
                    stored.setdefault(below, Reason.LOOPED)
    for node in sink.src:
        if node.op is not Ops.BUFFER:
            stored.setdefault(node, Reason.REQUESTED)
    return stored


def _is_filled_for(node: UOp, users: list[UOp]) -> bool:
    """Whether a node is a constant in memory to which rows are added: who adds fills memory of its
    own with it, as a copy would take longer.
    """
    return (
        node.op is Ops.CONTIGUOUS
        and node.src[0].is_constant
        and all(user.op is Ops.SCATTER_ADD and node not in user.src[1:] for user in users)
    )


_REDUCES, _REPEATS = (Ops.REDUCE_AXIS, Ops.PREFIX_AXIS), (Ops.EXPAND, Ops.GATHER)


def _store_reduced(
    nodes: list[UOp],
    users: dict[UOp, list[UOp]],
    fusion: Fusion,
    closed: Set[UOp],
    costs: dict[UOp, int],
    *,
    plain: bool,
) -> set[UOp]:
    """Store reductions that are needed more often than they are computed, but for those with a
    closed form, and, unless `plain`, elementwise values that are costly. Of the rest, those that
    several values are made of and several kernels need.
    """
    order = {node: position for position, node in enumerate(nodes)}
    ends: _Ends = {}
    tops = {
        _top_of(node, users, order, fusion.stored, ends)
        for node in nodes
        if node.op is Ops.REDUCE_AXIS and node not in closed
    }
    # Work on a reduction that is expanded is stored with it, and so does not count above it.
    costs = _costs(nodes, closed, tops) if tops and not plain else costs
    above: dict[UOp, _Above] = {}
    chosen = dict(fusion.stored)
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
    fusion.stored = _in_order(chosen, nodes)
    return shared


# The stored values that need a value, two of them, as these are enough to know that there are
# several; and what lies between, in bits.
_Above = tuple[tuple[UOp, ...], int]


def _above(
    node: UOp, users: list[UOp], stored: dict[UOp, Reason], known: dict[UOp, _Above]
) -> _Above:
    """What needs `node`; `known` has the answers for its users."""
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
            is_repeated = _enlarges(user, node)
            between |= _EXPANDED if is_repeated or user.op is Ops.GATHER else 0
            between |= _REPEATED if is_repeated else 0
    return kernels, between


def _two_of(some: tuple[UOp, ...], others: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Two of all these, or one, if all are the same."""
    if len(some) > 1 or some == others:
        return some
    return tuple(dict.fromkeys(some + others))[:2]


def _separate(nodes: list[UOp], fusion: Fusion) -> None:
    """Store, of several large sums of products in one kernel, all but the largest: there are
    registers for the tile of one. A sum among many zeros is stored, too, as it would be computed
    for each of them. So are other reductions for each element beside it, such as the counts of a
    pooling's gradient: the lanes of the tile lie apart in what they read.
    """
    stored = fusion.stored
    large = {
        node: Reason.BESIDE
        for node in nodes
        if node.op is Ops.REDUCE_AXIS
        and node not in stored
        and node.combine is Ops.ADD
        and _multiplies(node) > WORTH_A_KERNEL
    }
    if not large:
        return
    small = {node: Reason.GATHERED for node in nodes if node not in stored and _is_pooling(node)}
    readers = readers_of(nodes, {**stored, **large, **small})
    for node in small:
        for kernel in {*readers[node]} & {each for reduce in large for each in readers[reduce]}:
            if kernel not in large and 2 * elements(node) >= elements(kernel):
                stored[node] = Reason.GATHERED
                fusion.refused[node] = (Reason.GATHERED, 2 * nbytes(node), 0)
    beside: dict[UOp, list[UOp]] = {}
    for reduce in large:
        for kernel in readers[reduce]:
            beside.setdefault(kernel, []).append(reduce)
    for kernel, reductions in beside.items():
        for position, reduce in enumerate(sorted(reductions, key=_multiplies, reverse=True)):
            is_padded = elements(kernel) > _MOST_PADDED * elements(reduce)
            if position > 0 or is_padded:
                stored[reduce] = Reason.BESIDE if position > 0 else Reason.PADDED
                fusion.refused[reduce] = (stored[reduce], 2 * nbytes(reduce), 0)
    fusion.stored = _in_order(stored, nodes)


def _in_order(stored: dict[UOp, Reason], nodes: list[UOp]) -> dict[UOp, Reason]:
    order = {node: number for number, node in enumerate(nodes)}
    return dict(sorted(stored.items(), key=lambda item: order[item[0]]))


def _multiplies(reduce: UOp) -> int:
    """How many products a reduction sums whose factors are both used for several of them."""
    product = reduce.src[0]
    while product.op is Ops.CAST or product.op.is_movement:
        product = product.src[0]
    if product.op is not Ops.MUL:
        return 0
    count = elements(product)
    return count if all(elements(base_of(side)) < count for side in product.src) else 0


def _is_pooling(node: UOp) -> bool:
    """Whether a reduction goes over a few of very many elements for each of its results."""
    return (
        node.op is Ops.REDUCE_AXIS
        and not node.is_constant
        and not _multiplies(node)
        and elements(node.src[0]) > max(WORTH_A_KERNEL, elements(node))
    )


def _enlarges(user: UOp, node: UOp) -> bool:
    """Whether `user` needs elements of `node` more than once: not where few rows of many are
    picked.
    """
    return user.op in _REPEATS and elements(user) > elements(node)


def _is_end_of_work(node: UOp, users: list[UOp]) -> bool:
    """Whether the elementwise work ends here: what follows moves, reduces or stores."""
    return (node.op.is_alu or node.op is Ops.CAST) and any(
        user.op.is_movement or user.op is Ops.REDUCE_AXIS for user in users
    )


def _without_loops(nodes: list[UOp]) -> frozenset[UOp]:
    """Reductions of constants that need no loop, as an `arange` is its index: computed wherever
    they are needed. Long expressions are not looked at: a value for each reduction on the way would
    make the work grow with the cube of a chain.
    """
    found: set[UOp] = set()
    # How many values an element of a constant is made of, a shared one counted for each use.
    values: dict[UOp, int] = {}
    for node in nodes:
        if not node.is_constant:
            continue
        values[node] = min(1 + sum([values[source] for source in node.src]), _LONG_EXPRESSION)
        if node.op is Ops.PREFIX_AXIS:
            # A loop in order; where its values are moved it has memory of its own.
            values[node] = _LONG_EXPRESSION
        if node.op is Ops.REDUCE_AXIS and values[node] < _LONG_EXPRESSION:
            builder = KernelBuilder(lambda value: value, lambda value: False)
            index = tuple(builder.range(size, Axis.LOOP) for size in node.shape)
            element = collapse(builder.start(node, index))
            if all(each.op is not Ops.REDUCE for each in element.toposort()):
                found.add(node)
    return frozenset(found)


def _costs(nodes: list[UOp], closed: Set[UOp], tops: Set[UOp] = frozenset()) -> dict[UOp, int]:
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
    """The sources that are computed: of a rectifier, `(x.max(0) != 0).where(x, x.max(0))`, only
    what it limits.
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
    uses go. `ends` keeps what was found on the way, for other reductions that this work takes in.

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
    # What is cut off, as the gradient of a padding, need not be computed.
    if user.op is Ops.SHRINK:
        return True
    is_step = user.op.is_alu or user.op in (Ops.CAST, Ops.RESHAPE, Ops.PERMUTE)
    return is_step and elements(user) == size
