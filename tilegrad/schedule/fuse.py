"""Fusion: which values of a graph are stored, each with its reason.

The steps are a list (`STEPS`). The plain plan (all that NOOPT=1 takes) stores what it must, and a
reduced value where it is expanded or reduced again, at the end of the elementwise work that follows
the reduction (reduced_values.py). Then, unless told otherwise, stored values are inlined into the
kernels that read them (inlining.py). `python -m tilegrad show FILE --after schedule.NAME` prints
what is stored after a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.cost import WORTH_A_KERNEL, TargetOf, elements, nbytes
from tilegrad.schedule.inlining import Fusion, inline_values, readers_of, share_in_scratch
from tilegrad.schedule.items import FORCED, Reason, StoredValues
from tilegrad.schedule.kernel_graphs import KernelBuilder
from tilegrad.schedule.limits import cut_large, within_buffers
from tilegrad.schedule.loop_steps import memory_below
from tilegrad.schedule.reduced_values import costs_of, store_reduced
from tilegrad.schedule.scans import stored_scans

__all__ = ["STEPS", "fuse"]

# Tuning, worth shown by `bench/corpus.py`, families elementwise and rowwise.
# Elements of a kernel, as a multiple of such a sum's, up to which it also stores zeros around the
# sum.
_MOST_PADDED = 1.5

# Limits of compile time.
# Values of an element; ordinary programs have some hundred, for slices of a mask.
_LONG_EXPRESSION = 1 << 12
# These take the bytes of whole values.
_OF_BYTES = {Ops.COPY: Reason.COPIED, Ops.CUSTOM: Reason.CUSTOM}


@dataclass
class _FusionState:
    """A graph, and the decisions on it so far. `closed` are its reductions that need no loop,
    `costs` the operations per element of its elementwise values, and `shared` its values that
    several kernels need.
    """

    sink: UOp
    nodes: list[UOp]
    users: dict[UOp, list[UOp]]
    target_of: TargetOf
    needed_later: Sequence[UOp]
    plain: bool
    closed: frozenset[UOp] = frozenset()
    costs: dict[UOp, int] = field(default_factory=dict)
    shared: set[UOp] = field(default_factory=set)
    fusion: Fusion = field(default_factory=Fusion)

    def stored_values(self) -> StoredValues:
        in_scratch = [each for values in self.fusion.in_scratch.values() for each in values]
        return StoredValues(dict(self.fusion.stored), in_scratch)


def _with_scans(state: _FusionState) -> dict[UOp, Reason]:
    scans, state.fusion.shaped = stored_scans(state.nodes, state.users, state.fusion.stored)
    return state.fusion.stored | scans


def _with_reduced(state: _FusionState) -> dict[UOp, Reason]:
    stored, state.shared = store_reduced(
        *(state.nodes, state.users, state.fusion.stored, state.closed, state.costs),
        plain=state.plain,
    )
    return stored


def _inline(state: _FusionState) -> None:
    state.fusion = inline_values(state.nodes, state.fusion, state.target_of, state.needed_later)


Step = Callable[[_FusionState], dict[UOp, Reason] | None]
"""A step gives the values that are stored from then on; None where it has changed the state."""

STEPS: tuple[tuple[str, Step], ...] = (
    # First: all others ask which values are in memory in any case.
    ("schedule.forced", lambda state: _forced(state.sink, state.nodes, state.users)),
    # Before reduced, which asks which other values are stored above one.
    ("schedule.stored_scans", _with_scans),
    ("schedule.reduced", _with_reduced),
    # After reduced, which says which values several kernels would compute.
    (
        "schedule.large",
        lambda state: cut_large(state.nodes, state.fusion.stored, state.shared, state.target_of),
    ),
    # After all that store: the next steps inline stored values into the kernels that read them.
    ("schedule.separate", lambda state: _separate(state.nodes, state.fusion)),
    ("schedule.inline", _inline),
    # After inlining, whose kernels may need a value in several loop nests.
    ("schedule.scratch", lambda s: share_in_scratch(s.costs, s.fusion, s.target_of)),
    # Last: only now the inputs of a kernel are known.
    ("schedule.buffers", lambda s: within_buffers(s.nodes, s.fusion.stored, s.target_of)),
)
"""The steps that decide which values are stored, in their order, each with the reason for its
position."""

# Steps of the plain plan, under NOOPT.
_PLAIN = (
    "schedule.forced", "schedule.stored_scans", "schedule.reduced", "schedule.large",
    "schedule.buffers",
)  # fmt: skip


def fuse(
    sink: UOp, target_of: TargetOf, *, plain: bool, needed_later: Sequence[UOp] = ()
) -> Fusion:
    """Decide which values of the graph under `sink`, whose sources are the requested values, are
    stored. Values from which `needed_later` can be computed do not live in scratch. A graph may
    have kernels for several devices.
    """
    nodes = list(toposort([sink]))
    state = _FusionState(sink, nodes, _users(nodes), target_of, needed_later, plain)
    if not plain:
        state.closed = _without_loops(nodes)
        state.costs = costs_of(nodes, state.closed)
    record = trace.get()
    has_scans = any(node.op is Ops.PREFIX_AXIS for node in nodes)
    for name, step in STEPS:
        if plain and name not in _PLAIN:
            continue
        before = state.stored_values() if record is not None else None
        stored = None if step is _with_scans and not has_scans else step(state)
        if stored is not None:
            state.fusion.stored = {node: stored[node] for node in nodes if node in stored}
        if record is not None:
            record.append(PassRecord(name, before, state.stored_values()))
    return state.fusion


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
            # The table that rows are added to is copied in any case, from a view of memory or in
            # another dtype.
            table = source.src[0] if source.op is Ops.CAST else source
            is_whole &= node.op in _OF_BYTES or base_of(table).op is not Ops.BUFFER
            if node.op in _OF_BYTES:
                # Bytes are copied in their order: a reshape of a stored value is stored as well.
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
    """Whether a node is a constant in memory to which rows are added: the kernel that adds fills
    its own output with it, which is faster than a copy.
    """
    return (
        node.op is Ops.CONTIGUOUS
        and node.src[0].is_constant
        and all(user.op is Ops.SCATTER_ADD and node not in user.src[1:] for user in users)
    )


def _separate(nodes: list[UOp], fusion: Fusion) -> dict[UOp, Reason]:
    """Store, of several large sums of products in one kernel, all but the largest: there are
    registers for the tile of one. A sum among many zeros is stored, too, as it would be computed
    for each of them. So are other reductions for each element beside it, such as the counts of a
    pooling's gradient: the lanes of the tile lie apart in their inputs.
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
        return stored
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
    return stored


def _multiplies(reduce: UOp) -> int:
    """Number of products that a reduction sums, if both factors are used in several of them, else
    0.
    """
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
