"""SLICE: the lanes of a block share each slice of some rows, which a softmax between two products
leaves in scratch (schedule.scratch_rows).

A few neighbouring lanes have a row, and each lane every few elements of its slice, in registers:
results of the first product, and values computed from them. The lanes exchange the slice's largest
element and its sum. Operands that the second product reads along the whole slice go through shared
memory, and its columns are shared by the same lanes.

    before   p: { END(STORE(x, i, REDUCE(q*k)), i);  m = REDUCE(LOAD(x, j), j, MAX)
                  END(STORE(w, h, exp(LOAD(x, h) - m)), h);  REDUCE(LOAD(w, l) * v, l) }
    after    p: { x = REDUCE(q*k);  m = REDUCE over the lanes of REDUCE(x, own, MAX)
                  BARRIER(p); BARRIER(STORE(w, own*lanes + lane, exp(x - m)))
                  REDUCE(LOAD(w, l) * v, l) }

The first barrier of an iteration waits until all lanes have read the earlier values of `w`.
"""

from __future__ import annotations

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of, next_number, nodes_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, loop_order
from tilegrad.optimize.opts.slices_on_units import Slices, find_slices, memory_behind, share_on_unit
from tilegrad.optimize.opts.split import reorder
from tilegrad.target import Target

__all__ = ["share_slices"]


def share_slices(ast: UOp, opt: Opt, loop: UOp, target: Target) -> UOp:
    """The slices that `loop` runs over, with `opt.arg` lanes for each row; or, where that is
    (number,), with both products on the matrix unit of this number, or (number, number) on two.
    """
    lanes = opt.arg
    if not target.shared_bytes:
        raise OptError(f"slice: {target.name} has no shared memory", opt=opt)
    found = find_slices(ast, opt, loop)
    if isinstance(lanes, tuple):
        count = len(target.matrix_units)
        if len(lanes) not in (1, 2) or not all(0 <= number < count for number in lanes):
            raise OptError(f"slice: {target.name} has {count} matrix units, not {lanes}", opt=opt)
        units = [target.matrix_units[number] for number in (lanes[0], lanes[-1])]
        for unit in units:
            if unit.row_bytes and not unit.takes_left:
                raise OptError(f"slice: {unit.name} takes no operand from registers", opt=opt)
        return share_on_unit(ast, opt, loop, found, target, units)
    if not isinstance(lanes, int) or lanes < 2 or found.size % lanes:
        raise OptError(f"slice: {lanes} lanes do not divide a slice of {found.size}", opt=opt)
    extent = found.columns.extent
    if extent.op is not Ops.CONST or extent.arg % lanes:
        raise OptError(f"slice: {lanes} lanes do not divide {extent.vmax} columns", opt=opt)
    return _Sharer(ast, loop, found, lanes, target).rewritten()


class _Sharer:
    """One rewrite of the kernel."""

    def __init__(self, ast: UOp, loop: UOp, found: Slices, lanes: int, target: Target):
        self.ast, self.loop, self.found = ast, loop, found
        self.number = next_number(ast.toposort())
        self.lane = self._range(lanes, Axis.GROUP)
        self.own = self._range(found.size // lanes, Axis.UPCAST)
        vector = next(size for size in (4, 2, 1) if found.columns.extent.arg % (size * lanes) == 0)
        self.vector = self._range(vector, Axis.UPCAST)
        self.rest = self._range(found.columns.extent.arg // (vector * lanes), Axis.UPCAST)
        self.array = next_number(ast.toposort(), Ops.DEFINE_LOCAL)
        self.begin = UOp(Ops.BARRIER, dtypes.void, (loop,))
        self.materialised: dict[UOp, UOp] = {}
        self.done: dict[UOp, UOp] = {}

    def _range(self, extent: int, axis: Axis) -> UOp:
        self.number += 1
        return UOp.range(extent, self.number - 1, axis)

    def rewritten(self) -> UOp:
        found, lanes = self.found, self.lane.extent.arg
        index = self.own * lanes + self.lane
        for axis in found.shared:
            self.done[axis] = index
        vector = self.vector.extent.arg
        column = (self.rest * lanes + self.lane) * vector + self.vector
        self.done[found.columns] = column
        for node in self.ast.toposort():
            if node not in self.done:
                self.done[node] = self._made(node)
        made = simplify(self.done[self.ast])
        gone = {loop.number for loop in (*found.shared, found.columns)}
        order = [number for number in self.ast.arg.order if number not in gone]
        alive = {node.number for node in nodes_of(made, Ops.RANGE)}
        inner = [loop.number for loop in (self.own, self.rest, self.vector)]
        order.insert(self._position_of_lane(order), self.lane.number)
        return reorder(made, [number for number in (*order, *inner) if number in alive])

    def _position_of_lane(self, order: list[int]) -> int:
        """The lanes of a row are the innermost ones."""
        kinds = {loop.number: loop.axis for loop in loop_order(self.ast)}
        return next(
            (at for at, number in enumerate(order) if kinds[number] is Axis.REDUCE), len(order)
        )

    def _made(self, node: UOp) -> UOp:
        found = self.found
        src = tuple([self.done[source] for source in node.src])
        if node.op is Ops.LOAD and (memory := memory_of(node.src[0])) in found.memories:
            if node.src[1] in found.shared:
                return self._own(memory)
            return self._shared(memory).load(src[1], dtype=node.dtype)
        if node.op is Ops.REDUCE and found.shared & set(node.src[1:]):
            return self._met(node, src[0])
        if node in found.memories or memory_behind(node) in found.memories:
            # Whatever is read of it is read elsewhere now.
            return node
        return node.over(src)

    def _own(self, memory: UOp) -> UOp:
        """The value that a lane would store to `memory`: 0 behind the end of a row."""
        store = self.found.memories[memory].src[0]
        value = self.done[store.value]
        if not store.is_gated:
            return value
        return self.done[store.gate].where(value, UOp.const(value.dtype, 0))

    def _shared(self, memory: UOp) -> UOp:
        """`memory` in the block's shared memory, filled by all lanes of a row."""
        if memory not in self.materialised:
            value = self._own(memory)
            lives_in = tuple(self.done[axis] for axis in memory.src if axis is not self.loop)
            # Padded, so that the lanes of several rows store to different banks.
            size = self.found.size + self.lane.extent.arg
            pointer = value.dtype.ptr(size, AddressSpace.SHARED)
            mine = UOp(Ops.DEFINE_LOCAL, pointer, lives_in, memory.arg)
            index = self.own * self.lane.extent.arg + self.lane
            store = mine.after(self.begin).store(index, value)
            if self.own.extent.arg > 1:
                store = store.end(self.own)
            self.materialised[memory] = mine.after(UOp(Ops.BARRIER, dtypes.void, (store,)))
        return self.materialised[memory]

    def _met(self, reduce: UOp, value: UOp) -> UOp:
        """A reduction over a slice: within each lane, then over all lanes of the row."""
        partial = UOp(Ops.REDUCE, reduce.dtype, (value, self.own), reduce.arg)
        lives_in = [axis for axis in reduce.ranges if axis is not self.loop]
        lives_in = sorted((self.done[axis] for axis in lives_in), key=lambda axis: axis.number)
        pointer = reduce.dtype.ptr(self.lane.extent.arg, AddressSpace.SHARED)
        memory = UOp(Ops.DEFINE_LOCAL, pointer, tuple(lives_in), self.array)
        self.array += 1
        store = memory.after(self.begin).store(self.lane, partial)
        barrier = UOp(Ops.BARRIER, dtypes.void, (store,))
        again = self._range(self.lane.extent.arg, Axis.UNROLL)
        read = memory.after(barrier).load(again)
        return UOp(Ops.REDUCE, reduce.dtype, (read, again), reduce.arg)
