"""Copies of operands that a kernel packs, taken out of it: made once, for constant memory.

A STAGE fills scratch from an operand at every launch. Where the operand is known to be the same
from launch to launch, the loop nest that fills it becomes a kernel of its own. Its result, for
every iteration of the loops around it, is memory that the kernel takes instead of the operand.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilegrad.base.dtype import DType, Pointer, dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import is_scratch, loads_of, stride_of, trips_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.optimize.analysis.facts import COPIED, OFTEN
from tilegrad.optimize.opts.opt import Opt, OptOps, StageOperand, loop_order

__all__ = ["Packed", "find_packed", "take_out", "worth_taking_out"]

# Tuning, worth shown by `bench/rows.py`, networks whose weights are constant.
# Cost of copying an element, in multiply-adds, and the bytes of a contiguous run from which on the
# processor prefetches it; the fewest elements that are worth memory of their own.
_FORESEEN, _LONG_RUN = 4, 8 << 10
_LEAST = 1 << 13


@dataclass(frozen=True)
class Packed:
    """A copy of an operand that a kernel makes.

    Attributes:
        slot: the parameter that is copied, which nothing else in the kernel reads.
        read: how the copy is read: AFTER(scratch, END(STORE)).
        loops: those around it that say which slice is copied, outermost first.
    """

    slot: int
    read: UOp
    loops: tuple[UOp, ...]

    @property
    def _pointer(self) -> Pointer:
        return pointer_of(self.read.src[0])

    @property
    def dtype(self) -> DType:
        """The dtype of an element."""
        return self._pointer.base

    @property
    def slice_size(self) -> int:
        """Elements of the scratch."""
        return self._pointer.size

    @property
    def size(self) -> int:
        """Elements of the copy for all iterations of the loops."""
        return self.slice_size * trips_of(self.loops)

    @property
    def has_long_runs(self) -> bool:
        """Whether the copy of a slice reads memory in long runs; several of them at a time count as
        one.
        """
        store, *nest = self.read.src[1].src
        (load,) = loads_of(store.value)
        run, left = 1, {axis: stride_of(load.index, axis) for axis in nest}
        while (loop := next((each for each in left if left[each] == run), None)) is not None:
            if run > 1 and loop.axis is Axis.UPCAST:
                break
            run *= int(loop.vmax + 1)
            del left[loop]
        return run * self.dtype.itemsize >= _LONG_RUN

    @property
    def start(self) -> UOp:
        """The index in the whole copy at which the slice of an iteration begins."""
        index = UOp.const(dtypes.index, 0)
        for loop in self.loops:
            index = index * int(loop.vmax + 1) + loop
        return index * self.slice_size


def find_packed(ast: UOp) -> list[Packed]:
    """The copies in a kernel after its Opts that depend on one parameter alone."""
    nodes = ast.toposort()
    loads = [node for node in nodes if node.op is Ops.LOAD]
    found: list[Packed] = []
    for node in nodes:
        if node.op is not Ops.AFTER or len(node.src) != 2 or not is_scratch(node.src[0]):
            continue
        end = node.src[1]
        if end.op is not Ops.END or end.src[0].op is not Ops.STORE:
            continue
        below = end.src[0].toposort()
        inside = [each for each in below if each.op is Ops.LOAD]
        slots = {each.src[0].arg for each in inside if each.src[0].op is Ops.DEFINE_GLOBAL}
        is_alone = all(each.src[0].op is Ops.DEFINE_GLOBAL for each in inside) and len(slots) == 1
        if not is_alone or any(
            each.op in (Ops.DEFINE_VAR, Ops.REDUCE, Ops.AFTER) for each in below
        ):
            continue
        (slot,) = slots
        memory = next(each.src[0] for each in inside)
        others = [each for each in loads if each.src[0] is memory and each not in inside]
        # The last chunk of a launch may be shorter: how far its loop runs, the chunk says.
        extents = [each.src[0] for each in below if each.op is Ops.RANGE]
        if others or any(not extent.ranges <= node.ranges for extent in extents):
            continue
        found.append(Packed(slot, node, node.src[0].src))
    return found


def worth_taking_out(
    ast: UOp, given: Collection[int], plain: Collection[Opt] = (), *, is_far: bool = False
) -> list[int]:
    """Those of the parameters `given` whose copies take a measurable share of the kernel; `plain`
    are the Opts that it has while it makes them itself. With `is_far` they come from memory at each
    launch: where they are used a few times, that takes most of the time.

    Where the same copies are made of other operands too, as of padded ones, these hide the cost of
    the one: convolutions won nothing.
    """
    work = trips_of(loop_order(ast))
    # The share of the time that is too little to measure.
    unseen = work / OFTEN
    copies = _staged(ast.arg.opts)
    if len(copies) > 1 and copies == _staged(plain):
        return []
    return [
        each.slot
        for each in find_packed(ast)
        if each.slot in given
        and each.size >= max(_LEAST, unseen / (_FORESEEN if each.has_long_runs else COPIED))
        and not (is_far and each.size * OFTEN > work)
    ]


def _staged(opts: Collection[Opt]) -> set[StageOperand]:
    """The operands that are copied."""
    names = [opt.arg for opt in opts if opt.op is OptOps.STAGE]
    return {name[0] if isinstance(name, tuple) else name for name in names}


def take_out(ast: UOp, slots: Collection[int]) -> tuple[UOp, dict[int, UOp]]:
    """The kernel with the operands `slots` packed beforehand, and the kernels that pack them, by
    slot: each writes its parameter 0, which is then that of the slot, from its parameter 1.

    before   LOAD(AFTER(scratch, END(STORE(scratch, f, LOAD(b, ...)), nest)), p)      in loops o
    after    LOAD(b', o*size + p)      and      STORE(b', o*size + f, LOAD(b, ...))
    """
    made: dict[int, UOp] = {}
    mapping: dict[UOp, UOp] = {}
    for each in find_packed(ast):
        if each.slot not in slots:
            continue
        given = UOp(Ops.DEFINE_GLOBAL, each.dtype.ptr(each.size), (), each.slot)
        for node in ast.toposort():
            if node.op is Ops.LOAD and node.src[0] is each.read:
                index = each.start + node.src[1]
                mapping[node] = node.replace(src=(given, index, *node.src[2:]))
        made[each.slot] = _packing(each)
    return simplify(ast.substitute(mapping)), made


def _packing(each: Packed) -> UOp:
    """The kernel that makes a copy."""
    end = each.read.src[1]
    store, nest = end.src[0], end.src[1:]
    target = UOp(Ops.DEFINE_GLOBAL, each.dtype.ptr(each.size), (), 0)
    filled = target.store(each.start + store.index, *store.src[2:])
    ranges = [*each.loops, *nest]
    mapping: dict[UOp, UOp] = {}
    for number, loop in enumerate(ranges):
        kind = loop.axis if loop.axis in (Axis.UPCAST, Axis.UNROLL) else Axis.LOOP
        extent = loop.extent.substitute(mapping)
        mapping[loop] = loop.replace(src=(extent,), arg=(number, kind))
    for node in store.toposort():
        if node.op is Ops.DEFINE_GLOBAL:
            mapping[node] = node.replace(arg=1)
    order = tuple(range(len(ranges)))
    return UOp.sink(simplify(filled.substitute(mapping)), arg=KernelInfo("p", order))
