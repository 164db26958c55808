"""What shares a kernel: which values of a graph are stored, each with its reason.

Two steps. The plain plan (all that NOOPT=1 takes) stores what it must, and a reduced value where it
is expanded or reduced again, at the end of the elementwise work that follows the reduction. Then,
unless told otherwise, a stored value moves back into the one kernel that reads it wherever that
kernel's outer ranges are the value's own: legality is that proof, profit a comparison of bytes with
parallelism and cache sizes that the target states. One that is read along whole axes again may be
kept there in scratch, a row at a time (keep.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.cost import elements, extent_product, flops_of, nbytes
from tilegrad.schedule.index import Held, KernelBuilder, maximum_shape
from tilegrad.schedule.keep import is_worth_keeping, place_of
from tilegrad.schedule.large import base_of, cut_large
from tilegrad.schedule.loop import memory_below
from tilegrad.schedule.reason import Reason
from tilegrad.schedule.running import running_folds
from tilegrad.target import Target

__all__ = ["Fusion", "fuse"]


class Trace(NamedTuple):
    """A kernel as it would be built: for what it reads and where, the ranges of its result, the
    result, and the numbers that stand for what it reads.
    """

    builder: KernelBuilder
    outputs: tuple[UOp, ...]
    element: UOp
    numbers: dict[UOp, int]


# From so many products on, a sum of them is worth a kernel of its own.
_WORTH_A_TILE = 1 << 20
# Zeros around such a sum are part of its kernel while that has no more elements than so many times
# the sum's.
_MOST_PADDED = 1.5
_REGION = 64
# Below this many elements a launch costs more than the lost parallelism.
_SMALL = 1 << 14
# Operations per element from which recomputing an expanded value is dearer than storing it.
_COSTLY = 3
# Operations per element from which a value that two nests of a kernel need is kept, not computed
# twice.
_WORTH_HOLDING = 8

_FORCED = {
    Ops.COPY: Reason.COPIED,
    Ops.CONTIGUOUS: Reason.CONTIGUOUS,
    Ops.ASSIGN: Reason.ASSIGNED,
    # Memory, and no kernel of its own.
    Ops.AFTER: Reason.ASSIGNED,
    Ops.SCATTER_ADD: Reason.SCATTERED,
    Ops.CUSTOM: Reason.CUSTOM,
    Ops.LOOP: Reason.LOOPED,
    Ops.PART: Reason.LOOPED,
}
# These take the bytes of whole values.
_OF_BYTES = {Ops.COPY: Reason.COPIED, Ops.CUSTOM: Reason.CUSTOM}


@dataclass
class Fusion:
    """The outcome: stored values in an order that respects their dependencies, and what each kernel
    took in.

    Attributes:
        stored: the values with memory of their own, and why.
        joined: for a value that moved, the stored value into whose kernel it did (perhaps by way of
        another). outer: for a stored value, the axes along which what was moved into its kernel is
        shared, outermost first. held: for a stored value, the dear values that its kernel needs in
        several nests and keeps in scratch. shaped: for a stored value, the same elements in the
        shape in which its kernel computes them, where that is another. refused: for a stored value
        that was not moved, (reason, bytes that moving it would save, flops it would add).
    """

    stored: dict[UOp, Reason] = field(default_factory=dict)
    joined: dict[UOp, UOp] = field(default_factory=dict)
    outer: dict[UOp, list[frozenset[int]]] = field(default_factory=dict)
    held: dict[UOp, dict[UOp, Held]] = field(default_factory=dict)
    refused: dict[UOp, tuple[Reason, int, int]] = field(default_factory=dict)
    shaped: dict[UOp, UOp] = field(default_factory=dict)


def fuse(sink: UOp, target: Target, *, plain: bool, wanted: Sequence[UOp] = ()) -> Fusion:
    """Decide what is stored of the graph under `sink`, whose sources are the requested values; what
    the values `wanted` can be computed from later is not kept in scratch.
    """
    nodes = list(toposort([sink]))
    users = _users(nodes)
    fusion = Fusion(_forced(sink, nodes))
    running, fusion.shaped = running_folds(nodes, users, fusion.stored)
    fusion.stored = _in_order(fusion.stored | running, nodes)
    closed = frozenset() if plain else _closed_forms(nodes)
    costs = {} if plain else _costs(nodes, closed)
    _store_reduced(nodes, users, fusion, closed, plain=plain)
    fusion.stored = _in_order(cut_large(nodes, fusion.stored), nodes)
    if not plain:
        _separate(nodes, fusion)
        _move_back(nodes, fusion, target, wanted)
        _hold(costs, fusion, target)
    return fusion


def _users(nodes: list[UOp]) -> dict[UOp, list[UOp]]:
    users: dict[UOp, list[UOp]] = {node: [] for node in nodes}
    for node in nodes:
        for source in node.src:
            if not users[source] or users[source][-1] is not node:
                users[source].append(node)
    return users


def _forced(sink: UOp, nodes: list[UOp]) -> dict[UOp, Reason]:
    """Values that must be in memory whatever it costs; the graph's leaves are there already."""
    stored: dict[UOp, Reason] = {}
    for node in nodes:
        if node.op in _FORCED:
            stored[node] = _FORCED[node.op]
        for number, source in enumerate(node.src):
            is_whole = node.op in _OF_BYTES or (node.op is Ops.SCATTER_ADD and number == 0)
            # Bytes are copied in their order: a reshape of what is stored is stored as well.
            while node.op in _OF_BYTES and source.op is Ops.RESHAPE:
                source = source.src[0]
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


@dataclass
class _Above:
    """What lies between a value and the stored values that need it."""

    kernels: frozenset[UOp] = frozenset()
    expanded: bool = False
    repeated: bool = False
    reduced: bool = False


def _store_reduced(
    nodes: list[UOp],
    users: dict[UOp, list[UOp]],
    fusion: Fusion,
    closed: Set[UOp],
    *,
    plain: bool,
) -> None:
    """Store reductions that are needed more often than they are computed, but for those with a
    closed form, and, unless `plain`, elementwise values that are dear.
    """
    order = {node: place for place, node in enumerate(nodes)}
    tops = {
        _top_of(node, users, order, fusion.stored)
        for node in nodes
        if node.op is Ops.REDUCE_AXIS and node not in closed
    }
    # What is dear above a reduction that is expanded is so beside the work on the reduction, which
    # is stored for itself.
    costs = {} if plain else _costs(nodes, closed, tops)
    above: dict[UOp, _Above] = {}
    chosen: dict[UOp, Reason] = {}
    for node in reversed(nodes):
        if node.op is Ops.SINK:
            continue
        here = _Above()
        for user in users[node]:
            if user.op is Ops.SINK:
                continue
            if user in fusion.stored or user in chosen:
                over = _Above(frozenset({user}))
            else:
                over = above[user]
            here = _Above(
                here.kernels | over.kernels,
                here.expanded or over.expanded or user.op is Ops.GATHER or _enlarges(user, node),
                here.repeated or over.repeated or _enlarges(user, node),
                here.reduced or over.reduced or user.op in (Ops.REDUCE_AXIS, Ops.PREFIX_AXIS),
            )
        above[node] = here
        if node in fusion.stored or node.op is Ops.BUFFER:
            continue
        if node in tops:
            if here.expanded:
                chosen[node] = Reason.EXPANDED
            elif here.reduced:
                chosen[node] = Reason.REDUCED_AGAIN
            elif len(here.kernels) > 1:
                chosen[node] = Reason.SHARED
        elif here.repeated and costs.get(node, 0) >= _COSTLY and _is_end_of_work(node, users[node]):
            chosen[node] = Reason.COSTLY
    fusion.stored = dict(
        sorted({**fusion.stored, **chosen}.items(), key=lambda item: order[item[0]])
    )


def _separate(nodes: list[UOp], fusion: Fusion) -> None:
    """Store, of several large sums of products in one kernel, all but the largest: there are
    registers for the tile of one. One that stands among many zeros is stored, too, as it would be
    computed for each of them.
    """
    stored = fusion.stored
    large = {
        node: Reason.BESIDE
        for node in nodes
        if node.op is Ops.REDUCE_AXIS
        and node not in stored
        and node.arg[0] is Ops.ADD
        and _multiplies(node) > _WORTH_A_TILE
    }
    if not large:
        return
    readers = _readers(nodes, {**stored, **large})
    meeting: dict[UOp, list[UOp]] = {}
    for fold in large:
        for kernel in readers[fold]:
            meeting.setdefault(kernel, []).append(fold)
    for kernel, folds in meeting.items():
        for place, fold in enumerate(sorted(folds, key=_multiplies, reverse=True)):
            is_padded = elements(kernel) > _MOST_PADDED * elements(fold)
            if place > 0 or is_padded:
                stored[fold] = Reason.BESIDE if place > 0 else Reason.PADDED
                fusion.refused[fold] = (stored[fold], 2 * nbytes(fold), 0)
    fusion.stored = _in_order(stored, nodes)


def _in_order(stored: dict[UOp, Reason], nodes: list[UOp]) -> dict[UOp, Reason]:
    order = {node: number for number, node in enumerate(nodes)}
    return dict(sorted(stored.items(), key=lambda item: order[item[0]]))


def _multiplies(fold: UOp) -> int:
    """How many products a reduction sums whose factors are both used for several of them."""
    product = base_of(fold.src[0])
    while product.op is Ops.CAST:
        product = base_of(product.src[0])
    if product.op is not Ops.MUL:
        return 0
    count = elements(product)
    return count if all(elements(base_of(side)) < count for side in product.src) else 0


def _enlarges(user: UOp, node: UOp) -> bool:
    """Whether `user` needs elements of `node` more than once: not where few rows of many are
    picked.
    """
    return user.op in (Ops.EXPAND, Ops.GATHER) and elements(user) > elements(node)


def _is_end_of_work(node: UOp, users: list[UOp]) -> bool:
    """Whether the elementwise work ends here: what follows moves, reduces or stores."""
    return (node.op.is_alu or node.op is Ops.CAST) and any(
        user.op.is_movement or user.op is Ops.REDUCE_AXIS for user in users
    )


def _closed_forms(nodes: list[UOp]) -> frozenset[UOp]:
    """Reductions of constants that need no loop, as an `arange` is its index: computed wherever
    they are needed.
    """
    found: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.REDUCE_AXIS and node.is_constant:
            builder = KernelBuilder(lambda value: value, lambda value: False)
            index = tuple(builder.range(size, Axis.LOOP) for size in node.shape)
            element = collapse(builder.start(node, index))
            if all(part.op is not Ops.REDUCE for part in element.toposort()):
                found.add(node)
    return frozenset(found)


def _costs(nodes: list[UOp], closed: Set[UOp], tops: Set[UOp] = frozenset()) -> dict[UOp, int]:
    """Operations per element of each elementwise value, counted from memory, a reduction or one of
    `tops` on.
    """
    costs: dict[UOp, int] = {}
    for node in nodes:
        if node.op is Ops.SINK or node.op is Ops.BUFFER or node.op is Ops.CONST:
            continue
        if node in closed:
            costs[node] = 1
            continue
        if node in tops:
            costs[node] = 0
            continue
        below = (
            0
            if node.op in (Ops.REDUCE_AXIS, Ops.PREFIX_AXIS) or node.op in _FORCED
            else sum(costs.get(source, 0) for source in node.src)
        )
        own = flops_of(node)
        if node.op in (Ops.ADD, Ops.WHERE) and not node.is_constant:
            # Of parts put together each takes a gate.
            parts = sum(_is_padded(source) and not source.is_constant for source in node.src)
            own += parts if parts > 1 else 0
        # Index arithmetic, comparisons and casts go along with whatever needs them.
        is_light = node.is_constant or node.dtype is dtypes.bool or node.op is Ops.CAST
        costs[node] = min(below + (0 if is_light and own <= 1 else own), 1 << 20)
    return costs


def _is_padded(node: UOp) -> bool:
    """Whether a value is another one with zeros around it."""
    while node.op.is_movement and node.op is not Ops.PAD:
        node = node.src[0]
    return node.op is Ops.PAD


def _top_of(
    reduced: UOp, users: dict[UOp, list[UOp]], order: dict[UOp, int], stored: dict[UOp, Reason]
) -> UOp:
    """Where the elementwise work on a reduction ends: the last value of its size through which all
    uses go.

    before   REDUCE_AXIS -> RESHAPE -> MUL -> EXPAND
    after    the MUL
    """
    top, size = reduced, elements(reduced)
    here = reduced
    while here not in stored:
        region = _meeting(here, users, order, size, stored)
        if region is None:
            break
        here = region
        if here.op.is_alu or here.op in (Ops.CAST, Ops.SHRINK) or here in stored:
            top, size = here, elements(here)
    return top


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


def _move_back(nodes: list[UOp], fusion: Fusion, target: Target, wanted: Sequence[UOp]) -> None:
    """Move stored values into the kernel that reads them, last first, where legal and
    profitable.
    """
    later = set(toposort(wanted, stop=lambda node: node in fusion.stored))
    movable = (Reason.EXPANDED, Reason.REDUCED_AGAIN, Reason.SHARED, Reason.COSTLY)
    readers = _readers(nodes, fusion.stored)
    traces: dict[UOp, Trace] = {}
    for value in [node for node, reason in reversed(fusion.stored.items()) if reason in movable]:
        kernels = {_kernel_of(reader, fusion) for reader in readers[value]}
        if len(kernels) != 1:
            fusion.refused[value] = (Reason.SHARED, nbytes(value), 0)
            continue
        (kernel,) = kernels
        verdict = _can_join(value, kernel, fusion, target, traces)
        if isinstance(verdict, Reason) and value not in later:
            verdict = _keep(value, kernel, fusion, target, traces, readers) or verdict
        if isinstance(verdict, Reason):
            fusion.refused[value] = (verdict, 2 * nbytes(value), flops_of(value) * elements(kernel))
            continue
        del fusion.stored[value], traces[kernel]
        fusion.joined[value] = kernel
        fusion.outer.setdefault(kernel, []).append(verdict)


def _kernel_of(node: UOp, fusion: Fusion) -> UOp:
    while node in fusion.joined:
        node = fusion.joined[node]
    return node


def _readers(nodes: Iterable[UOp], stored: dict[UOp, Reason]) -> dict[UOp, set[UOp]]:
    """For each stored value, the stored values whose kernels read it."""
    readers: dict[UOp, set[UOp]] = {node: set() for node in stored}
    above: dict[UOp, frozenset[UOp]] = {}
    for node in reversed(list(nodes)):
        if node in readers:
            readers[node] = set(above.get(node, frozenset()))
        mine = frozenset({node}) if node in stored else above.get(node, frozenset())
        for source in node.src:
            above[source] = above.get(source, frozenset()) | mine
    return readers


def _can_join(
    value: UOp, kernel: UOp, fusion: Fusion, target: Target, traces: dict[UOp, Trace]
) -> frozenset[int] | Reason:
    """The kernel's axes that `value` shares, or why it cannot join.

    Legal: at every use, each axis of `value` is an output range of the kernel, or has one element.
    Then computing it inside those ranges computes each element once.
    """
    if kernel.op in _FORCED and kernel.op is not Ops.CONTIGUOUS:
        return fusion.stored[value]
    if kernel not in traces:
        traces[kernel] = _trace(kernel, fusion)
    builder, outputs, *_ = traces[kernel]
    uses = builder.reads.get(value, [])
    axis_of = {part: axis for axis, part in enumerate(outputs) if part.op is Ops.RANGE}
    if not uses or any(index != uses[0] for index in uses):
        return fusion.stored[value]
    parts = [part for part in uses[0] if part.op is not Ops.CONST]
    if any(part not in axis_of for part in parts) or len(set(parts)) != len(parts):
        return fusion.stored[value]
    shared = frozenset(axis_of[part] for part in parts)
    if not all(shared <= other or other <= shared for other in fusion.outer.get(kernel, [])):
        return fusion.stored[value]
    work = max(elements(kernel), elements(_widest_below(value, fusion)))
    parallel = [part for part in parts if part not in builder.running]
    if extent_product(parallel) < _least_parallel(target) and work > _SMALL:
        return Reason.NO_PARALLELISM
    return shared


def _keep(
    value: UOp,
    kernel: UOp,
    fusion: Fusion,
    target: Target,
    traces: dict[UOp, Trace],
    readers: dict[UOp, set[UOp]],
) -> frozenset[int] | None:
    """Keep `value` in scratch inside the kernel that reads it, where each row of it is read along
    more than the kernel's own ranges; the kernel's axes that it shares, or None where that cannot
    be or does not pay.
    """
    if kernel not in traces:
        return None
    builder, outputs, *_ = traces[kernel]
    place = place_of(value, builder.reads.get(value, []), outputs)
    if place is None or extent_product(place.outer) < _least_parallel(target):
        return None
    shared = frozenset(outputs.index(part) for part in place.outer)
    if not all(shared <= other or other <= shared for other in fusion.outer.get(kernel, [])):
        return None
    held = fusion.held.setdefault(kernel, {})
    held[value] = Held(place.shared, len(held))
    trial = _trace(kernel, fusion)
    moving = {
        number
        for node, number in trial.numbers.items()
        if node in readers and _may_follow(node, kernel, fusion, readers)
    }
    if is_worth_keeping(value, trial.element, place, moving, target):
        return shared
    del held[value]
    return None


def _may_follow(value: UOp, kernel: UOp, fusion: Fusion, readers: dict[UOp, set[UOp]]) -> bool:
    """Whether all that reads a stored value is in `kernel`, or may still move there."""
    return all(
        _kernel_of(reader, fusion) is kernel
        or (bool(readers[reader]) and _may_follow(reader, kernel, fusion, readers))
        for reader in readers[value]
    )


def _hold(costs: dict[UOp, int], fusion: Fusion, target: Target) -> None:
    """Keep in scratch what several nests of one kernel need and what is dear to compute: the
    exponentials of a softmax row.
    """
    if target.has_locals or not fusion.outer:
        return
    for kernel in fusion.outer:
        if kernel not in fusion.stored:
            continue
        builder, outputs, *_ = _trace(kernel, fusion)
        places: dict[UOp, list[tuple[UOp, ...]]] = {}
        for node, index, _ in builder.evaluated:
            if node.op.is_alu and costs.get(node, 0) >= _WORTH_HOLDING:
                places.setdefault(node, []).append(index)
        often = {node: found for node, found in places.items() if len(set(found)) > 1}
        tops = [node for node in often if not any(node in other.src for other in often)]
        for node in tops:
            held = _as_held(node, often[node], outputs, len(fusion.held.get(kernel, {})), target)
            if held is not None:
                fusion.held.setdefault(kernel, {})[node] = held


def _as_held(
    node: UOp, places: list[tuple[UOp, ...]], outputs: tuple[UOp, ...], number: int, target: Target
) -> Held | None:
    """Where the value is shared, if each nest reads all of the rest, and the rest fits half of the
    nearest cache.
    """
    axes = range(len(node.shape))
    shared = tuple(
        axis
        for axis in axes
        if places[0][axis] in outputs and all(index[axis] is places[0][axis] for index in places)
    )
    inner = [axis for axis in axes if axis not in shared]
    if (
        not shared
        or not inner
        or any(index[axis].op not in (Ops.RANGE, Ops.CONST) for index in places for axis in inner)
    ):
        return None
    size = int(prod(maximum_shape(tuple(node.shape[axis] for axis in inner))))
    return (
        Held(shared, number) if size * node.dtype.itemsize <= target.cache_bytes[0] // 2 else None
    )


def _trace(kernel: UOp, fusion: Fusion) -> Trace:
    numbers: dict[UOp, int] = {}
    builder = KernelBuilder(
        lambda node: UOp(
            Ops.DEFINE_GLOBAL, node.dtype.ptr(), (), numbers.setdefault(node, len(numbers))
        ),
        lambda node: node in fusion.stored,
        fusion.held.get(kernel, {}),
    )
    shaped = fusion.shaped.get(kernel, kernel)
    outputs = tuple(builder.range(size, Axis.LOOP) for size in shaped.shape)
    return Trace(builder, outputs, builder.start(shaped, outputs), numbers)


def _least_parallel(target: Target) -> int:
    """How many independent iterations keep the target busy."""
    return 4 * max(target.threads, 1) if not target.has_locals else 64


def _widest_below(value: UOp, fusion: Fusion) -> UOp:
    """The largest value that one evaluation goes through."""
    below = toposort([value], stop=lambda node: node is not value and node in fusion.stored)
    return max((node for node in below if node.op is not Ops.SINK), key=elements)
