"""Kernels that run over the same elements become one with several outputs.

An optimizer assigns a few buffers per parameter, each from the others at the same position; and the
gradients of a normalisation reduce the same values twice. Where the loops agree and every shared
buffer is touched at one position only, one pass over memory does them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loads_of, loop_ranks, nodes_of, reductions_of, trips_of
from tilegrad.ir.uop import UOp

__all__ = [
    "MOST_BUFFERS",
    "Update",
    "has_reductions",
    "is_never_joined",
    "is_update",
    "join_updates",
    "kernel_ranges",
]

# Tuning, worth shown by `bench/rows.py`, steps of training with Adam.
# Values that a joined kernel stores.
_MOST_OUTPUTS = 8
MOST_BUFFERS = 24
"""Buffers of a kernel that was joined, where the target sets no lower limit."""
# The most uses of an element by reductions that share a pass.
_MOST_USES = 2


@dataclass
class Update:
    """A kernel that writes whole values: its graph, and the buffers behind its slots, `outputs` of
    them written.
    """

    ast: UOp
    buffers: list[int]
    outputs: int = 1

    @property
    def written(self) -> list[int]:
        return self.buffers[: self.outputs]


def is_update(ast: UOp) -> bool:
    """Whether a kernel stores whole values, element by element, without gates or scratch."""
    if len({store.src[0] for store in ast.src}) < len(ast.src):
        return False
    plain = all(
        store.op is Ops.STORE and not store.is_gated and store.arg is None for store in ast.src
    )
    return plain and all(
        node.op not in (Ops.PREFIX, Ops.END, Ops.DEFINE_LOCAL) for node in ast.toposort()
    )


def has_reductions(ast: UOp) -> bool:
    """Whether a kernel has a reduction."""
    return any(node.op is Ops.REDUCE for node in ast.toposort())


def is_never_joined(ast: UOp) -> bool:
    """Whether a kernel with a reduction uses its elements so often that it is never joined with
    another one.
    """
    loads = loads_of(ast)
    return has_reductions(ast) and _reuses(loads, kernel_ranges(ast))


def join_updates(first: Update, second: Update, most_buffers: int) -> Update | None:
    """Both updates in one kernel, the first before the second in each iteration. None where that
    changes a result, or where reductions do not gain.

    before   STORE(m, i, f(m[i]))  and  STORE(p, i, g(p[i], m[i]))
    after    STORE(m, i, x), STORE(p, i, g(p[i], x))                x = f(m[i])
    """
    buffers = list(
        dict.fromkeys([*first.written, *second.written, *first.buffers, *second.buffers])
    )
    outputs = len(dict.fromkeys([*first.written, *second.written]))
    if (
        outputs < first.outputs + second.outputs
        or outputs > _MOST_OUTPUTS
        or len(buffers) > most_buffers
    ):
        return None
    ranges = kernel_ranges(first.ast)
    others = kernel_ranges(second.ast)
    # One stores along an axis that the other reduces: it is no loop of both.
    if [(loop.src, loop.axis) for loop in ranges] != [(loop.src, loop.axis) for loop in others]:
        return None
    a = _by_buffer(first, buffers)
    b = _by_buffer(second, buffers).substitute(dict(zip(others, ranges, strict=True)))
    if (has_reductions(a) or has_reductions(b)) and not _may_reduce_together(a, b, ranges):
        return None
    written = {store.src[0]: (store.index, store.value) for store in a.src}
    later = {store.src[0]: store.index for store in b.src}
    if any(load.index is not later[load.src[0]] for load in loads_of(a) if load.src[0] in later):
        return None
    known: dict[UOp, UOp] = {}
    for load in loads_of(b):
        if load.src[0] in written:
            index, value = written[load.src[0]]
            if load.index is not index or load.is_gated or load.dtype is not value.dtype:
                return None
            known[load] = value
    b = b.substitute(known)
    info = first.ast.arg
    return Update(UOp.sink(*a.src, *b.src, arg=KernelInfo(info.name, info.order)), buffers, outputs)


def _may_reduce_together(a: UOp, b: UOp, ranges: list[UOp]) -> bool:
    """Whether two kernels that reduce over the same ranges gain by being one: neither reads the
    other's result in a reduction, they read mostly the same memory, and read each element about
    once, so that memory bounds them. A product, which reads its elements often, needs the registers
    for its own tile.
    """
    if not (has_reductions(a) and has_reductions(b)):
        return False
    written = {store.src[0] for kernel in (a, b) for store in kernel.src}
    mine, others = set(loads_of(a)), set(loads_of(b)) - _beside_reductions(b, a)
    if any(load.src[0] in written for load in mine | others):
        return False
    sizes = [{load: trips_of(load.ranges) for load in loads} for loads in (mine, others)]
    shared = sum(size for load, size in sizes[0].items() if load in others)
    return 2 * shared > min(sum(each.values()) for each in sizes) and not any(
        _reuses(each, ranges) for each in sizes
    )


def _reuses(loads: Iterable[UOp], ranges: Sequence[UOp]) -> bool:
    """Whether each element of the largest of the `loads` is read often."""
    most = max((trips_of(load.ranges) for load in loads), default=0)
    return trips_of(ranges) > _MOST_USES * most


def _beside_reductions(b: UOp, a: UOp) -> set[UOp]:
    """Loads of `b` that read the results of `a` and that no reduction of `b` needs, as in a sum of
    squares that is corrected by the sum beside it.
    """
    written = {store.src[0] for store in a.src}
    found = {load for load in loads_of(b) if load.src[0] in written}
    reductions = reductions_of(b) if found else []
    return found.difference(*(reduction.toposort() for reduction in reductions))


def kernel_ranges(ast: UOp) -> list[UOp]:
    """The ranges of a kernel, in its order."""
    position = loop_ranks(ast)
    found = nodes_of(ast, Ops.RANGE)
    return sorted(found, key=lambda node: position[node.number])


def _by_buffer(update: Update, buffers: list[int]) -> UOp:
    """The graph with its parameters at their slots in `buffers`."""
    mapping: dict[UOp, UOp] = {}
    for node in update.ast.toposort():
        if node.op is Ops.DEFINE_GLOBAL:
            mapping[node] = node.replace(arg=buffers.index(update.buffers[node.arg]))
    return update.ast.substitute(mapping)
