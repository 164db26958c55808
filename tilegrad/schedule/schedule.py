"""This stage's pass list: split, versions, fuse, index, collapse, order, plan memory.

    split      a large reduction to one number becomes two             split_reductions.py
      channels   operands of convolutions are stored in another order  channels.py
      blocks     reductions with few results have more blocks          over_blocks.py
    versions   old values that are needed beside newer ones are copied versions.py
    direct     copies land in the memory that they are assigned to      ir/copies.py
    fuse       which values are stored:                                 fuse.py, limits.py
      scans      scans, and those of few long rows in slices            scans.py
      inlining   values join the one kernel that reads them             inlining.py, scratch_rows.py
    index      each stored value becomes a kernel graph                 index.py
    finish     each kernel's last passes, a list with reasons           finish.py
    loop       what a loop's step is, and which memory it finds         loop.py
    order      readers of an old value run before it is overwritten     order.py
    join       updates, and reductions, over equal elements are one kernel   join.py
    memory     lifetimes give temporary buffers shared memory           memory.py

The graph comes in normalised: its BUFFERs and draws are numbered by first visit, so that a Schedule
holds numbers only and can be kept and run again with other memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import counters
from tilegrad.ir.args import KernelArg
from tilegrad.ir.copies import direct_copies
from tilegrad.ir.lengths import extent_of
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import base_of, below_reshapes, device_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.cost import elements
from tilegrad.schedule.edges import edges_between
from tilegrad.schedule.finish import finish, renumbered
from tilegrad.schedule.fitting import fitting
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.index import KernelBuilder, flat_index, maximum_shape
from tilegrad.schedule.inlining import Fusion
from tilegrad.schedule.items import BufferSpec, Item, Schedule
from tilegrad.schedule.loop import carries_of, memory_below, sources_of, step_of
from tilegrad.schedule.node_devices import devices_of
from tilegrad.schedule.order import UnorderedItem, join_items, order_items
from tilegrad.schedule.own_names import with_own_draws, with_own_offsets
from tilegrad.schedule.random import random_variables
from tilegrad.schedule.reason import Reason
from tilegrad.schedule.region import KernelRegion, region_of
from tilegrad.schedule.split_reductions import split_reductions
from tilegrad.schedule.versions import overwritten_by, store_old_versions, writer_of
from tilegrad.target import Target

__all__ = ["make_schedule"]

# Memory of others, and what is remembered in any case.
_NOT_MATERIALISED = (Ops.ASSIGN, Ops.AFTER, Ops.COPY, Ops.LOOP, Ops.LOOP_OUTPUT)


class _Made(NamedTuple):
    """A kernel that was built, for equal ones: -1 is the memory that it writes, other memory has
    the number that it has in the key of the region. `needs` are positions in the region.
    """

    ast: UOp
    reads: tuple[int, ...]
    needs: tuple[int, ...]
    draws: tuple[int, ...]
    offset_names: tuple[str, ...]


class _Scheduler:
    """A graph on its way to a schedule.

    Attributes:
        given, nodes: the nodes of the graph that came, and of the graph once reductions are split
            and old versions stored; `position` has, for each of `nodes`, an index of `given`.
        device, targets: the device of each node, and the target of each device.
        fusion: which values are stored, and why.
        buffers, memory: the buffers of the schedule, and the number of each stored value's.
        items: what was made so far, in no order yet.
    """

    def __init__(
        self,
        sink: UOp,
        targets: dict[str, Target],
        default_device: str,
        needed_later: Sequence[int],
        *,
        plain: bool,
    ):
        given = toposort([sink])
        self.given = list(given)
        self.fitting = fitting(given)
        sink, was_split = split_reductions(
            sink,
            targets.values(),
            lambda node: targets[device_of(node) or default_device],
            plain=plain,
        )
        sink, came_from = store_old_versions(sink)
        self.sink = sink
        self.plain = plain
        self.nodes = list(toposort([sink]))
        position = {node: number for number, node in enumerate(self.given)}
        self.direct = {} if plain else direct_copies(self.nodes)
        self.position = {
            node: position[was_split.get(came_from[node], came_from[node])] for node in self.nodes
        }
        self.device = devices_of(self.nodes, default_device)
        self.targets = targets
        self.fusion: Fusion = fuse(
            sink,
            lambda node: targets[self.device[node]],
            plain=plain,
            needed_later=[self.given[each] for each in needed_later],
        )
        for node in self.fusion.stored:
            if node.op is Ops.CONTIGUOUS and came_from[node].op is not Ops.CONTIGUOUS:
                self.fusion.stored[node] = Reason.OVERWRITTEN
        self.buffers: list[BufferSpec] = []
        self.memory: dict[UOp, int] = {}
        # What assignments leave, as a view of memory itself: as if nothing had been written.
        self.bare: dict[UOp, UOp] = {}
        self.items: list[UnorderedItem] = []
        # The number of the draw that a variable belongs to.
        self.draws = {
            variable: node.arg.seed
            for node in self.nodes
            if node.op is Ops.RAND
            for variable in random_variables(node.arg.seed)
        }
        # Kernels by their graph before the last passes, with the parameters that they read.
        self.finished: dict[tuple[UOp, tuple[UOp, ...], str], tuple[UOp, list[int]]] = {}
        # Kernels by what they compute.
        self.made: dict[Hashable, _Made] = {}
        for node in self.nodes:
            if node.op is Ops.BUFFER:
                (size,) = maximum_shape(node.shape)
                extent = extent_of(node.shape)
                spec = BufferSpec(node.arg.device, node.dtype, size, node.arg.slot, extent)
                self.memory[node] = self._new_buffer(spec)

    def _new_buffer(self, spec: BufferSpec) -> int:
        self.buffers.append(spec)
        return len(self.buffers) - 1

    def _buffer_for(self, node: UOp) -> int:
        spec = BufferSpec(
            self.device[node], node.dtype, elements(node), extent=extent_of(node.shape)
        )
        return self._new_buffer(spec)

    # values to items

    def run(self) -> Schedule:
        for node in list(self.fusion.stored):
            self._add_value(node)
        for item in self.items:
            item.needs = [writer_of(value) for value in item.needs]
        order = order_items(self.items, self.buffers, self.memory)
        if not self.plain:
            limits = {name: target.most_buffers for name, target in self.targets.items()}
            order = join_items(order, limits)
        items = [
            Item(
                item.device,
                (item.writes, *item.also, *item.reads),
                item.ast,
                item.nodes,
                item.value.op is Ops.CUSTOM and item.ast is None,
                item.draws,
                item.offset_names,
                item.loop,
            )
            for item in order
        ]
        outputs = [self.memory[node] for node in self.sink.src]
        edges = edges_between(
            order,
            self.fusion,
            lambda value: self.buffers[self.memory[value]].nbytes,
            plain=self.plain,
        )
        return Schedule(items, self.buffers, outputs, edges)

    def materialised(self, positions: Sequence[int]) -> dict[int, int]:
        """The buffers of stored values below the nodes at `positions`, by their own positions; of
        what is as it was given.
        """
        needed_later = [self.given[each] for each in positions]
        stored, found = self.fusion.stored, {}
        for node in toposort(needed_later, stop=lambda node: node in stored):
            if node in stored and node.op not in _NOT_MATERIALISED and node not in self.sink.src:
                position = self.position[node]
                if self.given[position] is node:
                    found[position] = self.memory[node]
        return found

    def _add_value(self, node: UOp) -> None:
        if node.op in (Ops.COPY, Ops.CUSTOM):
            if node not in self.direct.values():
                self.memory[node] = self._buffer_for(node)
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
                # Both are steps of one sum (scatter_collisions.py): nobody else reads the first.
                self.memory[node] = self.memory[table]
            else:
                self.memory[node] = self._buffer_for(node)
                self._add_kernel(node, table, self.memory[node])
            self._add_scatter(node)
        else:
            self.memory[node] = self._buffer_for(node)
            self._add_kernel(node, node, self.memory[node])

    def _add_call(self, node: UOp, step: UOp) -> None:
        """What is no kernel of ours: a copy, or a function of the user's. It makes `node`."""
        sources = [below_reshapes(source) for source in step.src]
        reads = [self.memory[source] for source in sources]
        item = UnorderedItem(node, self.device[node], self.memory[node], reads, sources)
        item.nodes = (self.position[node],)
        if isinstance(step.arg, KernelArg):
            item.ast = step.arg.ast
        self.items.append(item)

    def _add_loop(self, node: UOp) -> None:
        """One item for all steps, that writes what the graph asks for of the loop, and its carries.

        The buffers: what is written, a second one for each carry, what is read.
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
            size = int(prod(arg.shape(number)))
            spec = BufferSpec(self.device[node], arg.value(number).dtype, size)
            written[number] = len(buffers)
            buffers.append(self._new_buffer(spec))
            if number in outputs:
                self.memory[outputs[number]] = buffers[-1]
        spare: dict[int, int] = {}
        for carry in carries if arg.length > 1 else ():
            spare[carry] = len(buffers)
            buffers.append(self._new_buffer(self.buffers[buffers[written[carry]]]))
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

    def _builder(self, node: UOp | None = None) -> KernelBuilder:
        in_scratch = {} if node is None else self.fusion.in_scratch.get(node, {})
        return KernelBuilder(self._parameter, lambda value: value in self.fusion.stored, in_scratch)

    def _parameter(self, node: UOp) -> UOp:
        """A stand-in for the pointer parameter of stored memory: its number is the buffer's, until
        slots are given.
        """
        spec = self.buffers[self.memory[node]]
        return UOp(Ops.DEFINE_GLOBAL, spec.dtype.ptr(spec.size), (), self.memory[node])

    def _add_kernel(self, node: UOp, value: UOp, target: int) -> None:
        """Build the kernel that writes `value` for `node`, or take an equal one."""
        if value is node:
            value = self.fusion.shaped.get(node, node)
        numbers: dict[int, int] = {}
        region = self._region(node, value, numbers)
        # Whether it reads what it writes counts, too.
        key = self._key_of(region, node, value, target), numbers.get(target)
        known = self.made.get(key)
        if known is None:
            self._build(node, value, target)
            item = self.items[-1]
            assert item.ast is not None
            position = {each: number for number, each in enumerate(region.nodes)}
            numbers[target] = -1
            # What is read in more ways than the region says has a kernel of its own.
            is_known = all(read in numbers for read in item.reads)
            if is_known and all(each in position for each in item.needs):
                self.made[key] = _Made(
                    item.ast,
                    tuple([numbers[read] for read in item.reads]),
                    tuple([position[each] for each in item.needs]),
                    item.draws,
                    item.offset_names,
                )
            return
        memory = {number: buffer for buffer, number in numbers.items()} | {-1: target}
        is_plain = value is node and node not in self.fusion.in_scratch
        self.items.append(
            UnorderedItem(
                node,
                self.device[node],
                target,
                [memory[read] for read in known.reads],
                [region.nodes[each] for each in known.needs],
                known.ast,
                self._positions_of(node, region.nodes if is_plain else self._inside(node)),
                known.draws,
                known.offset_names,
            )
        )

    def _region(self, node: UOp, value: UOp, numbers: dict[int, int]) -> KernelRegion:
        """What the kernel that writes `value` for `node` computes; memory that it reads gets the
        next of `numbers`.
        """

        def memory_key(leaf: UOp) -> Hashable:
            buffer = self.memory[leaf]
            spec = self.buffers[buffer]
            return numbers.setdefault(buffer, len(numbers)), spec.dtype, spec.size

        is_own = value is node or node in self.fusion.shaped
        in_scratch = self.fusion.in_scratch.get(node, {})

        def is_read(each: UOp) -> bool:
            # What is in scratch is computed here, though other kernels read it from memory.
            return (
                each in self.fusion.stored
                and each not in in_scratch
                and not (is_own and each is value)
            )

        return region_of(value, is_read, memory_key)

    def _key_of(self, region: KernelRegion, node: UOp, value: UOp, target: int) -> Hashable:
        """All that a kernel follows from."""
        spec = self.buffers[target]
        in_scratch = self.fusion.in_scratch.get(node, {})
        position = {each: number for number, each in enumerate(region.nodes)} if in_scratch else {}
        return (
            region.key,
            self.device[node],
            (spec.dtype, spec.size),
            value is node or node in self.fusion.shaped,
            tuple(self.fusion.outer.get(node, ())),
            tuple([(position.get(each), of.shared, of.number) for each, of in in_scratch.items()]),
        )

    def _build(self, node: UOp, value: UOp, target: int) -> None:
        builder = self._builder(node)
        outputs = tuple(builder.range(size, Axis.LOOP) for size in value.shape)
        is_own = value is node or node in self.fusion.shaped
        computed = builder.start(value, outputs) if is_own else builder.value(value, outputs)
        spec = self.buffers[target]
        pointer = UOp(Ops.DEFINE_GLOBAL, spec.dtype.ptr(spec.size), (), target)
        store = pointer.store(flat_index(outputs, value.shape), computed)
        self._finish(node, store, self._outer_first(node, outputs), target, builder)

    def _outer_first(self, node: UOp, outputs: tuple[UOp, ...]) -> list[UOp]:
        """The output ranges, those first that values inlined into the kernel share."""
        sets = self.fusion.outer.get(node, [])
        axes = sorted(range(len(outputs)), key=lambda axis: -sum(axis in shared for shared in sets))
        return [outputs[axis] for axis in axes if outputs[axis].op is Ops.RANGE]

    def _add_assign(self, node: UOp) -> None:
        """Write into the memory of the target; a value that reads it elsewhere is computed aside
        first.
        """
        value = node.src[1]
        base = self._bare(node)
        target = self.memory[node] = self.memory[base]
        builder = self._builder()
        outputs = tuple(builder.range(size, Axis.LOOP) for size in node.shape)
        pointer = self._parameter(base)
        where = self._position_of(self.bare[node], outputs)
        computed = builder.value(value, outputs)
        overlaps = any(
            load.op is Ops.LOAD and load.src[0] is pointer and _may_meet(load.index, where)
            for load in computed.toposort()
        )
        if overlaps:
            aside = self._buffer_for(value)
            self.fusion.stored.setdefault(value, Reason.OVERLAPPING)
            self.memory[value] = aside
            self._add_kernel(value, value, aside)
            builder = self._builder()
            computed = builder.value(value, outputs)
        self._finish(
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
        loaded = KernelBuilder(self._parameter, lambda value: False).value(index, outputs)
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
        builder = self._builder()
        loops = tuple(builder.range(size, Axis.REDUCE) for size in rows.shape)
        rest = tuple(builder.range(size, Axis.LOOP) for size in table.shape[1:])
        row = simplify(builder.value(rows, loops).cast(dtypes.index))
        value = builder.value(values, (*loops, *rest))
        inside = simplify((row < 0).logical_not() & (row < table.shape[0]))
        if inside.op is Ops.CONST and not inside.arg:
            return
        gate = () if inside.op is Ops.CONST else (inside,)
        position = flat_index((row, *rest), table.shape)
        store = self._parameter(node).store(position, value, *gate, combine=Ops.ADD)
        order = [loop for loop in (*rest, *loops) if loop.op is Ops.RANGE]
        self._finish(node, store, order, self.memory[node], builder)
        self.items[-1].needs += [node, table] if table.op is Ops.SCATTER_ADD else [node]

    def _finish(
        self, node: UOp, store: UOp, outputs: list[UOp], target: int, builder: KernelBuilder
    ) -> None:
        """Run the last passes on a kernel, once for all equal ones over other buffers."""
        raw = UOp.sink(simplify(store))
        if self.fitting:
            raw = simplify(raw.substitute(self.fitting))
            outputs = [loop.substitute(self.fitting) for loop in outputs]
        used = [node.arg for node in raw.toposort() if node.op is Ops.DEFINE_GLOBAL]
        buffers = list(dict.fromkeys([target, *used]))
        canonical = renumbered(raw, {buffer: slot for slot, buffer in enumerate(buffers)})
        canonical, draws = with_own_draws(canonical, self.draws)
        canonical, offset_names = with_own_offsets(canonical)
        key = canonical, tuple(outputs), self.device[node]
        if key not in self.finished:
            hardware = self.targets[self.device[node]]
            self.finished[key] = finish(canonical, outputs, hardware, plain=self.plain)
        ast, slots = self.finished[key]
        reads = [buffers[slot] for slot in slots]
        needs = [value for value in builder.reads if value.op is not Ops.BUFFER]
        nodes = self._positions_of(node, self._inside(node))
        self.items.append(
            UnorderedItem(
                node, self.device[node], target, reads, needs, ast, nodes, draws, offset_names
            )
        )

    def _inside(self, node: UOp) -> Iterable[UOp]:
        """What the kernel of `node` computes, and what it reads."""
        stored = self.fusion.stored
        return toposort([node], stop=lambda each: each is not node and each in stored)

    def _positions_of(self, node: UOp, inside: Iterable[UOp]) -> tuple[int, ...]:
        """The positions of what the kernel of `node` computes."""
        stored, position = self.fusion.stored, self.position
        return tuple(
            [
                position[each]
                for each in inside
                if each in position and (each is node or each not in stored)
            ]
        )


def _may_meet(read: UOp, written: UOp) -> bool:
    """Whether an element may be read in one iteration and written in another."""
    apart = read.vmax < written.vmin or written.vmax < read.vmin
    return read is not written and not apart


def make_schedule(
    sink: UOp,
    targets: dict[str, Target],
    default_device: str,
    *,
    plain: bool,
    needed_later: Sequence[int] = (),
) -> Schedule:
    """The steps that compute the sources of `sink`. Values that they store on the way are among the
    results where the nodes at the positions `needed_later` can be computed from them.
    """
    counters.schedules += 1
    scheduler = _Scheduler(sink, targets, default_device, needed_later, plain=plain)
    schedule = scheduler.run()
    schedule.materialised = scheduler.materialised(needed_later)
    return schedule
