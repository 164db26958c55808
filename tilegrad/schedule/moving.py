"""Stored values move back into the one kernel that reads them, where that kernel's outer ranges are
the value's own, or where a few rows of the value can live in its scratch (`keep.py`).

Legality is that proof; profit is a comparison of bytes with the parallelism and the cache sizes
that the target states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.cost import elements, extent_product, flops_of, nbytes
from tilegrad.schedule.finish import finish
from tilegrad.schedule.index import Held, KernelBuilder, flat_index, maximum_shape
from tilegrad.schedule.keep import is_worth_keeping, place_of, shared_axes
from tilegrad.schedule.meeting import Meeting
from tilegrad.schedule.parts import part_of
from tilegrad.schedule.reason import FORCED, Reason
from tilegrad.target import Target

__all__ = ["Fusion", "hold", "move_back", "readers_of"]

# Below this many elements a launch costs more than the lost parallelism.
_SMALL = 1 << 14
# Values that a kernel evaluates, counted anew for each index: to one of more nothing is added. A
# reduction that moves in evaluates all below it for its own ranges.
_LARGEST = 1000
# Operations per element from which a value that two nests of a kernel need is kept, not computed
# twice.
_WORTH_HOLDING = 8


@dataclass
class Fusion:
    """The outcome: stored values in an order that respects their dependencies, and what each kernel
    took in.

    Attributes:
        stored: the values with memory of their own, and why.
        joined: for a value that moved, the stored value into whose kernel it did (perhaps by way of
            another).
        outer: for a stored value, the axes along which what was moved into its kernel is shared,
            outermost first.
        held: for a stored value, the dear values that its kernel needs in several nests and keeps
            in scratch.
        shaped: for a stored value, the same elements in the shape in which its kernel computes
            them, where that is another.
        long: the kernels that keep rows that do not fit, unless they go through it in parts.
        refused: for a stored value that was not moved, (reason, bytes that moving it would save,
            flops it would add).
    """

    stored: dict[UOp, Reason] = field(default_factory=dict)
    joined: dict[UOp, UOp] = field(default_factory=dict)
    outer: dict[UOp, list[frozenset[int]]] = field(default_factory=dict)
    held: dict[UOp, dict[UOp, Held]] = field(default_factory=dict)
    refused: dict[UOp, tuple[Reason, int, int]] = field(default_factory=dict)
    shaped: dict[UOp, UOp] = field(default_factory=dict)
    long: set[UOp] = field(default_factory=set)


class Trace(NamedTuple):
    """A kernel as it would be built: for what it reads and where, the ranges of its result, the
    result (before values moved in), and the numbers that stand for what it reads.
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


def move_back(nodes: list[UOp], given: Fusion, target: Target, wanted: Sequence[UOp]) -> Fusion:
    """Stored values moved into the kernel that reads them, last first, where legal and
    profitable.

    Whether rows that do not fit can go through a kernel in parts is seen when all of it is there:
    where they cannot, everything is moved again, and such rows are stored.
    """
    fusion = _moved_back(nodes, given, target, wanted, is_long=True)
    if all(_goes_in_parts(kernel, fusion, target) for kernel in fusion.long):
        return fusion
    return _moved_back(nodes, given, target, wanted, is_long=False)


def _goes_in_parts(kernel: UOp, fusion: Fusion, target: Target) -> bool:
    trace = _trace(kernel, fusion)
    memory = UOp(Ops.DEFINE_GLOBAL, kernel.dtype.ptr(), (), len(trace.numbers))
    place = flat_index(trace.outputs, fusion.shaped.get(kernel, kernel).shape)
    loops = [part for part in trace.outputs if part.op is Ops.RANGE]
    raw = UOp.sink(simplify(memory.store(place, trace.element)))
    return part_of(finish(raw, loops, target, plain=False)[0]) is not None


def _moved_back(
    nodes: list[UOp], given: Fusion, target: Target, wanted: Sequence[UOp], *, is_long: bool
) -> Fusion:
    fusion = Fusion(dict(given.stored), refused=dict(given.refused), shaped=given.shaped)
    later = set(toposort(wanted, stop=lambda node: node in fusion.stored))
    movable = (Reason.EXPANDED, Reason.REDUCED_AGAIN, Reason.SHARED, Reason.COSTLY)
    readers = readers_of(nodes, fusion.stored)
    meeting = Meeting(readers)
    traces: dict[UOp, Trace] = {}
    for value in [node for node, reason in reversed(fusion.stored.items()) if reason in movable]:
        kernels = {_kernel_of(reader, fusion) for reader in readers[value]}
        if len(kernels) != 1:
            fusion.refused[value] = (Reason.SHARED, nbytes(value), 0)
            continue
        (kernel,) = kernels
        verdict = _can_join(value, kernel, fusion, target, traces)
        goes_on = not isinstance(verdict, Reason)
        if isinstance(verdict, Reason) and value not in later:
            verdict = _keep(value, kernel, fusion, target, traces, meeting, is_long) or verdict
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
    meeting: Meeting,
    is_long: bool,
) -> frozenset[int] | None:
    """Keep `value` in scratch inside the kernel that reads it, where each row of it is read along
    more than the kernel's own ranges; the kernel's axes that it shares, or None where that cannot
    be or does not pay.
    """
    if kernel not in traces:
        return None
    builder, outputs, *_ = traces[kernel]
    if builder.size > _LARGEST:
        return None
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
        if node in fusion.stored and meeting.is_on_every_way(kernel, node)
    }
    for in_parts in (False, True) if is_long else (False,):
        if is_worth_keeping(value, trial.element, place, moving, target, is_long=in_parts):
            if in_parts:
                fusion.long.add(kernel)
            return shared
    del held[value]
    return None


def hold(costs: dict[UOp, int], fusion: Fusion, target: Target) -> None:
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
        below = {source for node in often for source in node.src}
        tops = [node for node in often if node not in below]
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
    shared = shared_axes(places, outputs)
    inner = [axis for axis in range(len(node.shape)) if axis not in shared]
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
