"""Inlining of stored values into the one kernel that reads them, where that kernel's outer ranges
are the value's own, or where a few rows of the value can live in its scratch (scratch_rows.py).

Legality is that proof; profit is a comparison of bytes with the parallelism and the cache sizes
that the target states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import trips_of
from tilegrad.ir.ranges import slice_loop
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.cost import (
    MOST_INSTRUCTIONS,
    TargetOf,
    elements,
    flops_of,
    instructions_of,
    nbytes,
)
from tilegrad.schedule.finish import finish
from tilegrad.schedule.items import FORCED, Reason
from tilegrad.schedule.kernel_graphs import InScratch, KernelBuilder, flat_index, maximum_shape
from tilegrad.schedule.scratch_rows import find_scratch_axes, is_worth_materialising, shared_axes
from tilegrad.target import Target

__all__ = ["Dominators", "Fusion", "inline_values", "readers_of", "share_in_scratch"]

# Tuning, worth shown by `bench/corpus.py`, families rowwise and attention.
# Below this many elements a launch costs more than the lost parallelism.
_SMALL = 1 << 14
# Operations per element from which a value that two loop nests need lives in scratch.
_WORTH_SCRATCH = 8

# Limits of compile time.
# Values that a kernel evaluates, once for each index, up to which others are inlined into it. An
# inlined reduction evaluates all below it for its own ranges.
_LARGEST = 1000


@dataclass
class Fusion:
    """The outcome: stored values in an order that respects their dependencies, and the values that
    each kernel took in.

    Attributes:
        stored: the values with memory of their own, and why.
        joined: for an inlined value, the stored value whose kernel computes it, perhaps by way of
            another.
        outer: for a stored value, the axes along which values inlined into its kernel are shared,
            outermost first.
        in_scratch: for a stored value, the costly values that its kernel needs in several loop
            nests, in scratch.
        shaped: for a stored value, the same elements in the shape in which its kernel computes
            them, where that is another.
        long: the kernels with rows in scratch that fit only in slices.
        refused: for a stored value that was not inlined, (reason, bytes that moving it would save,
            flops it would add).
    """

    stored: dict[UOp, Reason] = field(default_factory=dict)
    joined: dict[UOp, UOp] = field(default_factory=dict)
    outer: dict[UOp, list[frozenset[int]]] = field(default_factory=dict)
    in_scratch: dict[UOp, dict[UOp, InScratch]] = field(default_factory=dict)
    refused: dict[UOp, tuple[Reason, int, int]] = field(default_factory=dict)
    shaped: dict[UOp, UOp] = field(default_factory=dict)
    long: set[UOp] = field(default_factory=set)


class Trace(NamedTuple):
    """A kernel as it would be built: its builder, the ranges of its result, the result before
    values were inlined, and the numbers of the values it reads.
    """

    builder: KernelBuilder
    outputs: tuple[UOp, ...]
    element: UOp
    numbers: dict[UOp, int]


def readers_of(nodes: Iterable[UOp], stored: dict[UOp, Reason]) -> dict[UOp, set[UOp]]:
    """For each stored value, the stored values whose kernels read it."""
    readers: dict[UOp, set[UOp]] = {node: set() for node in stored}
    above: dict[UOp, set[UOp]] = {}
    # Those whose set no other node shares.
    own: set[UOp] = set()
    for node in reversed(list(nodes)):
        mine = above.pop(node, set())
        if node in readers:
            readers[node], mine = mine, {node}
        for source in node.src:
            known = above.setdefault(source, mine)
            if known is mine:
                continue
            if source not in own:
                known = above[source] = set(known)
                own.add(source)
            known |= mine
    return readers


def inline_values(
    nodes: list[UOp], given: Fusion, target_of: TargetOf, needed_later: Sequence[UOp]
) -> Fusion:
    """Stored values inlined into the kernel that reads them, last first, where legal and
    profitable.

    Whether rows that do not fit can go through a kernel in slices is known when all of it is built:
    where they cannot, everything is inlined anew, and such rows are stored.
    """
    fusion = _inlined(nodes, given, target_of, needed_later, is_long=True)
    if all(_goes_in_slices(kernel, fusion, target_of(kernel)) for kernel in fusion.long):
        return fusion
    return _inlined(nodes, given, target_of, needed_later, is_long=False)


def _goes_in_slices(kernel: UOp, fusion: Fusion, target: Target) -> bool:
    trace = _trace(kernel, fusion)
    memory = UOp(Ops.DEFINE_GLOBAL, kernel.dtype.ptr(), (), len(trace.numbers))
    index = flat_index(trace.outputs, fusion.shaped.get(kernel, kernel).shape)
    loops = [loop for loop in trace.outputs if loop.op is Ops.RANGE]
    raw = UOp.sink(simplify(memory.store(index, trace.element)))
    return slice_loop(finish(raw, loops, target, plain=False)[0]) is not None


def _inlined(
    nodes: list[UOp],
    given: Fusion,
    target_of: TargetOf,
    needed_later: Sequence[UOp],
    *,
    is_long: bool,
) -> Fusion:
    fusion = Fusion(dict(given.stored), refused=dict(given.refused), shaped=given.shaped)
    later = set(toposort(needed_later, stop=lambda node: node in fusion.stored))
    movable = (Reason.EXPANDED, Reason.REDUCED_AGAIN, Reason.SHARED, Reason.COSTLY)
    readers = readers_of(nodes, fusion.stored)
    dominators = Dominators(readers)
    traces: dict[UOp, Trace] = {}
    for value in [node for node, reason in reversed(fusion.stored.items()) if reason in movable]:
        kernels = {_kernel_of(reader, fusion) for reader in readers[value]}
        if len(kernels) != 1:
            fusion.refused[value] = (Reason.SHARED, nbytes(value), 0)
            continue
        (kernel,) = kernels
        target = target_of(kernel)
        verdict = _can_join(value, kernel, fusion, target, traces)
        goes_on = not isinstance(verdict, Reason)
        if isinstance(verdict, Reason) and value not in later:
            verdict = (
                _inline_rows(value, kernel, fusion, target, traces, dominators, is_long) or verdict
            )
        if isinstance(verdict, Reason):
            fusion.refused[value] = (verdict, 2 * nbytes(value), flops_of(value) * elements(kernel))
            continue
        del fusion.stored[value]
        if goes_on:
            # Tracing the kernel anew for each value would take the square of its size.
            traces[kernel].builder.take_in(value)
        else:
            del traces[kernel]
        fusion.joined[value] = kernel
        fusion.outer.setdefault(kernel, []).append(verdict)
    return fusion


def _kernel_of(node: UOp, fusion: Fusion) -> UOp:
    while node in fusion.joined:
        node = fusion.joined[node]
    return node


def _can_join(
    value: UOp, kernel: UOp, fusion: Fusion, target: Target, traces: dict[UOp, Trace]
) -> frozenset[int] | Reason:
    """The kernel's axes that `value` shares, or why it cannot join.

    Legal: at every use, each axis of `value` is an output range of the kernel, or has one element.
    Then computing it inside those ranges computes each element once.
    """
    if kernel.op in FORCED and kernel.op is not Ops.CONTIGUOUS:
        return fusion.stored[value]
    if kernel not in traces:
        traces[kernel] = _trace(kernel, fusion)
    builder, outputs, *_ = traces[kernel]
    if builder.size > _LARGEST:
        return Reason.TOO_LARGE
    uses = builder.reads.get(value, [])
    axis_of = {at: axis for axis, at in enumerate(outputs) if at.op is Ops.RANGE}
    if not uses or any(index != uses[0] for index in uses):
        return fusion.stored[value]
    read_at = [at for at in uses[0] if at.op is not Ops.CONST]
    if any(at not in axis_of for at in read_at) or len(set(read_at)) != len(read_at):
        return fusion.stored[value]
    shared = frozenset(axis_of[at] for at in read_at)
    if not all(shared <= other or other <= shared for other in fusion.outer.get(kernel, [])):
        return fusion.stored[value]
    work = max(elements(kernel), elements(_widest_below(value, fusion)))
    parallel = trips_of([at for at in read_at if at not in builder.running])
    # A block of lanes works on a row of its own.
    least = _SMALL * parallel if target.has_locals else _SMALL
    if parallel < _least_parallel(target) and work > least:
        return Reason.NO_PARALLELISM
    return Reason.TOO_LARGE if _is_long(builder, target) else shared


def _inline_rows(
    value: UOp,
    kernel: UOp,
    fusion: Fusion,
    target: Target,
    traces: dict[UOp, Trace],
    dominators: Dominators,
    is_long: bool,
) -> frozenset[int] | None:
    """Axes of the kernel that `value` shares if its rows live in scratch there, because they are
    read along more than the kernel's own ranges. None where that is illegal or does not pay.
    """
    if kernel not in traces:
        return None
    builder, outputs, *_ = traces[kernel]
    if builder.size > _LARGEST:
        return None
    axes = find_scratch_axes(value, builder.reads.get(value, []), outputs)
    if axes is None or trips_of(axes.outer) < _least_parallel(target):
        return None
    shared = frozenset(outputs.index(at) for at in axes.outer)
    if not all(shared <= other or other <= shared for other in fusion.outer.get(kernel, [])):
        return None
    if _is_long(builder, target):
        return None
    in_scratch = fusion.in_scratch.setdefault(kernel, {})
    in_scratch[value] = InScratch(axes.shared, len(in_scratch))
    trial = _trace(kernel, fusion)
    inlinable = {
        number
        for node, number in trial.numbers.items()
        if node in fusion.stored and dominators.is_on_every_way(kernel, node)
    }
    for in_slices in (False, True) if is_long else (False,):
        if is_worth_materialising(value, trial.element, axes, inlinable, target, is_long=in_slices):
            if in_slices:
                fusion.long.add(kernel)
            return shared
    del in_scratch[value]
    return None


def _is_long(builder: KernelBuilder, target: Target) -> bool:
    """Whether a kernel has reached the limit of instructions, those of its sines included."""
    counts = [instructions_of(node, target) for node, _, _ in builder.evaluated]
    return sum(counts) > MOST_INSTRUCTIONS


def share_in_scratch(costs: dict[UOp, int], fusion: Fusion, target_of: TargetOf) -> None:
    """Move costly values that several loop nests of one kernel need to scratch, such as the
    exponentials of a softmax row.
    """
    for kernel in fusion.outer:
        target = target_of(kernel) if kernel in fusion.stored else None
        if target is None or target.has_locals:
            continue
        builder, outputs, *_ = _trace(kernel, fusion)
        indices: dict[UOp, list[tuple[UOp, ...]]] = {}
        for node, index, _ in builder.evaluated:
            if node.op.is_alu and costs.get(node, 0) >= _WORTH_SCRATCH:
                indices.setdefault(node, []).append(index)
        often = {node: found for node, found in indices.items() if len(set(found)) > 1}
        below = {source for node in often for source in node.src}
        tops = [node for node in often if node not in below]
        for node in tops:
            in_scratch = _in_scratch(
                node, often[node], outputs, len(fusion.in_scratch.get(kernel, {})), target
            )
            if in_scratch is not None:
                fusion.in_scratch.setdefault(kernel, {})[node] = in_scratch


def _in_scratch(
    node: UOp, indices: list[tuple[UOp, ...]], outputs: tuple[UOp, ...], number: int, target: Target
) -> InScratch | None:
    """The axes along which a value in scratch is shared, if each loop nest reads all other axes and
    these fit half of the nearest cache.
    """
    shared = shared_axes(indices, outputs)
    inner = [axis for axis in range(len(node.shape)) if axis not in shared]
    if (
        not shared
        or not inner
        or any(index[axis].op not in (Ops.RANGE, Ops.CONST) for index in indices for axis in inner)
    ):
        return None
    size = int(prod(maximum_shape(tuple(node.shape[axis] for axis in inner))))
    return (
        InScratch(shared, number)
        if size * node.dtype.itemsize <= target.cache_bytes[0] // 2
        else None
    )


def _trace(kernel: UOp, fusion: Fusion) -> Trace:
    numbers: dict[UOp, int] = {}
    builder = KernelBuilder(
        lambda node: UOp(
            Ops.DEFINE_GLOBAL, node.dtype.ptr(), (), numbers.setdefault(node, len(numbers))
        ),
        lambda node: node in fusion.stored,
        fusion.in_scratch.get(kernel, {}),
    )
    shaped = fusion.shaped.get(kernel, kernel)
    outputs = tuple(builder.range(size, Axis.LOOP) for size in shaped.shape)
    return Trace(builder, outputs, builder.start(shaped, outputs), numbers)


def _least_parallel(target: Target) -> int:
    """How many independent iterations keep the target busy."""
    return max(target.threads, 1) if not target.has_locals else 64


def _widest_below(value: UOp, fusion: Fusion) -> UOp:
    """The largest value that one evaluation goes through."""
    below = toposort([value], stop=lambda node: node is not value and node in fusion.stored)
    return max((node for node in below if node.op is not Ops.SINK), key=elements)


class Dominators:
    """Dominators of stored values: answers `is_on_every_way`. It is built from the readers of each
    stored value, readers last.

    The stored values and their readers are a graph without cycles. A kernel that every way from a
    value goes through is one into which the value may move, once all that reads it on the way has
    moved. The nearest such kernel is the value's parent in a tree; a kernel is on every way if it
    is above the value in that tree. Each value keeps, beside its parent, a link that jumps further
    up, so that a question takes a number of steps that grows with the logarithm of the depth.
    """

    def __init__(self, readers: dict[UOp, set[UOp]]):
        # None is the end, behind the values that no kernel reads.
        self._parent: dict[UOp | None, UOp | None] = {None: None}
        self._jump: dict[UOp | None, UOp | None] = {None: None}
        self._depth: dict[UOp | None, int] = {None: 0}
        for value in reversed(readers):
            first: UOp | None = None
            for number, reader in enumerate(readers[value]):
                first = self._common(first, reader) if number else reader
            self._add(value, first)

    def is_on_every_way(self, kernel: UOp, value: UOp) -> bool:
        """Whether every path from `value` to a result goes through `kernel`."""
        depth = self._depth[kernel]
        return self._depth[value] > depth and self._above(value, depth) is kernel

    def _add(self, value: UOp, parent: UOp | None) -> None:
        depth, jump = self._depth, self._jump
        middle = jump[parent]
        # As in a skew-binary number: two jumps of one length in a row become one of both.
        is_even = depth[parent] - depth[middle] == depth[middle] - depth[jump[middle]]
        self._parent[value] = parent
        depth[value] = depth[parent] + 1
        jump[value] = jump[middle] if is_even else parent

    def _above(self, value: UOp | None, depth: int) -> UOp | None:
        """The ancestor of `value` at that depth."""
        while self._depth[value] > depth:
            further = self._jump[value]
            value = further if self._depth[further] >= depth else self._parent[value]
        return value

    def _common(self, one: UOp | None, other: UOp | None) -> UOp | None:
        """The deepest common ancestor, which may be one of the two."""
        depth = min(self._depth[one], self._depth[other])
        one, other = self._above(one, depth), self._above(other, depth)
        while one is not other:
            if self._jump[one] is not self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self._parent[one], self._parent[other]
        return one
