"""Items of stored values: what each becomes by its op, a kernel, a copy, a call, the steps of a
loop, or a write to memory that exists.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import KernelArg
from tilegrad.ir.lengths import extent_of
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import base_of, below_reshapes, direct_copies
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.items import BufferSpec, Reason
from tilegrad.schedule.kernel_graphs import KernelBuilder, flat_index
from tilegrad.schedule.kernel_items import KernelItems
from tilegrad.schedule.loop_steps import carries_of, memory_below, sources_of, step_of
from tilegrad.schedule.order import UnorderedItem
from tilegrad.schedule.versions import overwritten_by, writer_of

__all__ = ["ValueItems"]


class ValueItems(KernelItems):
    """The items of all stored values of a graph."""

    def add_all(self) -> None:
        """Make the items, in the order of the stored values."""
        self.direct = {} if self.plain else direct_copies(self.nodes)
        # By assignment: its result as a view of memory, as if nothing had been written.
        self.bare: dict[UOp, UOp] = {}
        for node in list(self.fusion.stored):
            self._add_value(node)
        for item in self.items:
            item.needs = [writer_of(value) for value in item.needs]

    def _add_value(self, node: UOp) -> None:
        if node.op in (Ops.COPY, Ops.CUSTOM):
            if node not in self.direct.values():
                self.memory[node] = self.buffer_for(node)
                self._add_call(node, node)
        elif node.op is Ops.LOOP:
            self._add_loop(node)
        elif node.op is Ops.LOOP_OUTPUT:
            # Its loop makes it.
            assert node in self.memory
        elif node in self.direct:
            self.memory[node] = self.memory[self._bare(node)]
            self._add_call(node, self.direct[node])
        elif node.op is Ops.ASSIGN:
            self._add_assign(node)
        elif node.op is Ops.AFTER:
            self.memory[node] = self.memory[node.src[1]]
            self._bare(node)
        elif node.op is Ops.SCATTER_ADD:
            table = node.src[0]
            if table.op is Ops.SCATTER_ADD and self.position[table] == self.position[node]:
                # Both are steps of one sum (scatter_adds.py): the first has no other reader.
                self.memory[node] = self.memory[table]
            else:
                self.memory[node] = self.buffer_for(node)
                self.add_kernel(node, table, self.memory[node])
            self._add_scatter(node)
        else:
            self.memory[node] = self.buffer_for(node)
            self.add_kernel(node, node, self.memory[node])

    def _add_call(self, node: UOp, step: UOp) -> None:
        """Add a step that is no kernel: a copy, or a function of the user's. It makes `node`."""
        sources = [below_reshapes(source) for source in step.src]
        reads = [self.memory[source] for source in sources]
        item = UnorderedItem(node, self.device[node], self.memory[node], reads, sources)
        item.nodes = (self.position[node],)
        if isinstance(step.arg, KernelArg):
            item.ast = step.arg.ast
        self.items.append(item)

    def _add_loop(self, node: UOp) -> None:
        """One item for all steps, that writes the requested values of the loop, and its carries.

        The buffers: outputs, a second one for each carry, inputs.
        """
        outputs = {
            each.arg: each
            for each in self.nodes
            if each.op is Ops.LOOP_OUTPUT and each.src[0] is node
        }
        arg = node.arg
        carries = carries_of(arg, outputs)
        buffers: list[int] = []
        written: dict[int, int] = {}
        for number in [*carries, *sorted(outputs.keys() - set(carries))]:
            shape = arg.shape(number)
            size = prod([each if isinstance(each, int) else int(each.vmax) for each in shape])
            spec = BufferSpec(
                self.device[node], arg.value(number).dtype, size, extent=extent_of(shape)
            )
            written[number] = len(buffers)
            buffers.append(self.new_buffer(spec))
            if number in outputs:
                self.memory[outputs[number]] = buffers[-1]
        spare: dict[int, int] = {}
        for carry in carries if arg.length != 1 else ():
            spare[carry] = len(buffers)
            buffers.append(self.new_buffer(self.buffers[buffers[written[carry]]]))
        count = len(buffers)
        used = (*carries, *sorted(sources_of(arg, written)))
        needs = list(dict.fromkeys(memory_below(node, number) for number in used))
        reads = {value: count + position for position, value in enumerate(needs)}
        loop = step_of(node, self.device[node], written, spare, reads)
        first, *also = buffers
        item = UnorderedItem(
            node, self.device[node], first, [self.memory[value] for value in needs]
        )
        item.also, item.values, item.loop = also, list(outputs.values()), loop
        item.needs = [value for value in needs if value.op is not Ops.BUFFER]
        item.nodes = (self.position[node],)
        self.items.append(item)

    def _add_assign(self, node: UOp) -> None:
        """Write into the memory of the target; a value that reads it elsewhere is computed aside
        first.
        """
        value = node.src[1]
        base = self._bare(node)
        target = self.memory[node] = self.memory[base]
        builder = self.builder()
        outputs = tuple(builder.range(size, Axis.LOOP) for size in node.shape)
        pointer = self.parameter(base)
        where = self._position_of(self.bare[node], outputs)
        computed = builder.value(value, outputs)
        overlaps = any(
            load.op is Ops.LOAD and load.src[0] is pointer and _may_meet(load.index, where)
            for load in computed.toposort()
        )
        if overlaps:
            aside = self.buffer_for(value)
            self.fusion.stored.setdefault(value, Reason.OVERLAPPING)
            self.memory[value] = aside
            self.add_kernel(value, value, aside)
            builder = self.builder()
            computed = builder.value(value, outputs)
        self.finish_kernel(
            node,
            pointer.store(where, computed),
            [loop for loop in outputs if loop.op is Ops.RANGE],
            target,
            builder,
        )
        before = overwritten_by(node)
        if before.op is Ops.ASSIGN:
            self.items[-1].needs.append(before)

    def _bare(self, node: UOp) -> UOp:
        """The BUFFER that `node`, an ASSIGN or AFTER, is another version of."""
        version = base_of(node.src[0])
        bare = node.src[0].substitute({version: self.bare.get(version, version)})
        self.bare[node] = bare
        return base_of(bare)

    def _position_of(self, index: UOp, outputs: tuple[UOp, ...]) -> UOp:
        """The position in memory of the element at `outputs` of a view of it: the same slice may
        be stored as a value.
        """
        loaded = KernelBuilder(self.parameter, lambda value: False).value(index, outputs)
        # A slice by steps is one of a padded value. No element of it lies in the padding, which is
        # not proven where the length is a variable.
        while loaded.op is Ops.WHERE:
            loaded = loaded.src[1]
        return loaded.index

    def _add_scatter(self, node: UOp) -> None:
        """Add the rows into the memory that the first kernel filled; two rows may meet, so the rows
        run in order.
        """
        table, rows, values = node.src
        builder = self.builder()
        loops = tuple(builder.range(size, Axis.REDUCE) for size in rows.shape)
        rest = tuple(builder.range(size, Axis.LOOP) for size in table.shape[1:])
        row = simplify(builder.value(rows, loops).cast(dtypes.index))
        value = builder.value(values, (*loops, *rest))
        inside = simplify((row < 0).logical_not() & (row < table.shape[0]))
        if inside.op is Ops.CONST and not inside.arg:
            return
        gate = () if inside.op is Ops.CONST else (inside,)
        position = flat_index((row, *rest), table.shape)
        store = self.parameter(node).store(position, value, *gate, combine=Ops.ADD)
        order = [loop for loop in (*rest, *loops) if loop.op is Ops.RANGE]
        self.finish_kernel(node, store, order, self.memory[node], builder)
        self.items[-1].needs += [node, table] if table.op is Ops.SCATTER_ADD else [node]


def _may_meet(read: UOp, written: UOp) -> bool:
    """Whether an element may be read in one iteration and written in another."""
    apart = read.vmax < written.vmin or written.vmax < read.vmin
    return read is not written and not apart
