"""Kernels of stored values: each is built once, whatever the number of equal ones in a graph.

A kernel is known by its region (kernel_regions.py) before it is built, also one of an earlier
graph, and by its graph before it is finished: layers of a network that are alike have one, and so
have the first steps of a loop. Buffers are numbers here, so that equal kernels differ in the
numbers that their items hold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from tilegrad.base.config import config
from tilegrad.base.dtype import DType
from tilegrad.base.recent import Recent
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.lengths import extent_of
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.slices import offset_number, renamed
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.cost import elements
from tilegrad.schedule.finish import finish, renumbered
from tilegrad.schedule.graph_passes import Prepared
from tilegrad.schedule.inlining import Fusion
from tilegrad.schedule.items import BufferSpec
from tilegrad.schedule.join import is_never_joined
from tilegrad.schedule.kernel_graphs import KernelBuilder, flat_index, maximum_shape
from tilegrad.schedule.kernel_regions import (
    KernelRegion,
    OffsetRegion,
    at_offsets,
    has_offsets,
    region_of,
    without_offsets,
)
from tilegrad.schedule.order import UnorderedItem
from tilegrad.schedule.random_words import random_variables
from tilegrad.target import Target

__all__ = ["KernelItems", "fitting", "with_own_draws", "with_own_offsets"]


class _Made(NamedTuple):
    """A built kernel, for equal ones. Buffer -1 is the memory that it writes; other memory has its
    number in the region's key. `needs` are positions in the region, `offset_names` among its
    variables.
    """

    ast: UOp
    reads: tuple[int, ...]
    needs: tuple[int, ...]
    draws: tuple[int, ...]
    offset_names: tuple[int, ...]


# Kernels of all graphs by their regions, the target and whether they are plain: a share of the
# kernels that are known, as each is a graph.
_built: Recent[Hashable, _Made] = Recent(lambda: config.KEEP_KERNELS // 32)


class KernelItems:
    """The items of a schedule in no order yet, and the kernels among them.

    Attributes:
        nodes: the nodes of the graph; `position` has, for each of them, an index of `given`, the
            nodes of the graph as it came.
        fusion: which values are stored, and why.
        device, targets: the device of each node, and the target of each device.
        buffers, memory: the buffers of the schedule, and the number of each stored value's.
        items: those made so far.
    """

    def __init__(
        self,
        given: list[UOp],
        prepared: Prepared,
        fusion: Fusion,
        device: dict[UOp, str],
        targets: dict[str, Target],
        *,
        plain: bool,
    ):
        self.nodes = prepared.nodes
        position = {node: number for number, node in enumerate(given)}
        self.position = {node: position[prepared.came_from[node]] for node in self.nodes}
        self.fitting = fitting(given)
        self.fusion, self.device, self.targets, self.plain = fusion, device, targets, plain
        self.buffers: list[BufferSpec] = []
        self.memory: dict[UOp, int] = {}
        self.items: list[UnorderedItem] = []
        # Is told of each kernel that nothing will be joined to or shared with, and its device.
        self.begin: Callable[[UOp, str], None] = lambda ast, device: None
        # The number of the draw that a variable belongs to.
        self.draws = {
            variable: node.arg.seed
            for node in self.nodes
            if node.op is Ops.RAND
            for variable in random_variables(node.arg.seed)
        }
        # Kernels by their graph before the last passes, with the parameters that they read.
        self.finished: dict[tuple[UOp, tuple[UOp, ...], str], tuple[UOp, list[int]]] = {}
        # Kernels by their regions.
        self.made: dict[Hashable, _Made] = {}
        # Kernels whose slices may begin elsewhere, by their regions apart from that.
        self.movable: dict[Hashable, tuple[_Made, OffsetRegion]] = {}
        for node in self.nodes:
            if node.op is Ops.BUFFER:
                (size,) = maximum_shape(node.shape)
                extent = extent_of(node.shape)
                spec = BufferSpec(node.arg.device, node.dtype, size, node.arg.slot, extent)
                self.memory[node] = self.new_buffer(spec)

    def new_buffer(self, spec: BufferSpec) -> int:
        self.buffers.append(spec)
        return len(self.buffers) - 1

    def buffer_for(self, node: UOp) -> int:
        spec = BufferSpec(
            self.device[node], node.dtype, elements(node), extent=extent_of(node.shape)
        )
        return self.new_buffer(spec)

    def builder(self, node: UOp | None = None) -> KernelBuilder:
        in_scratch = {} if node is None else self.fusion.in_scratch.get(node, {})
        return KernelBuilder(self.parameter, lambda value: value in self.fusion.stored, in_scratch)

    def parameter(self, node: UOp) -> UOp:
        """A stand-in for the pointer parameter of stored memory: its number is the buffer's, until
        slots are given.
        """
        spec = self.buffers[self.memory[node]]
        return UOp(Ops.DEFINE_GLOBAL, spec.dtype.ptr(spec.size), (), self.memory[node])

    def add_kernel(self, node: UOp, value: UOp, target: int) -> None:
        """Build the kernel that writes `value` for `node`, or take an equal one."""
        if value is node:
            value = self.fusion.shaped.get(node, node)
        numbers: dict[int, int] = {}
        region = self._region(node, value, numbers)
        # Whether it reads its own output counts, too.
        key = self._key_of(region.key, region, node, value, target), numbers.get(target)
        known = self.made.get(key) or self._of_another_graph(key, node)
        if known is not None:
            self._add_known(node, value, target, region, numbers, known)
            return
        free = None if target in numbers else without_offsets(region)
        free_key = free and self._key_of(free.key, region, node, value, target)
        if free is not None and free_key in self.movable:
            made, other = self.movable[free_key]
            ast = _moved(made, other, free)
            if ast is not None:
                self.made[key] = made._replace(ast=ast)
                self._add_known(node, value, target, region, numbers, self.made[key])
                return
        self._build(node, value, target)
        found = self._made_of(region, numbers, target)
        if found is not None:
            self.made[key] = found
            _built.put(self._in_all_graphs(key, node), found)
            if free is not None:
                self.movable[free_key] = found, free

    def _of_another_graph(self, key: Hashable, node: UOp) -> _Made | None:
        """The kernel that was built under `key` for another graph; none for a trace, which shows
        how each is built.
        """
        found = None if trace.get() is not None else _built.get(self._in_all_graphs(key, node))
        if found is not None:
            self.made[key] = found
            self._begin(found.ast, node)
        return found

    def _in_all_graphs(self, key: Hashable, node: UOp) -> Hashable:
        return key, self.targets[self.device[node]], self.plain

    def _made_of(self, region: KernelRegion, numbers: dict[int, int], target: int) -> _Made | None:
        """The kernel that was built last, for regions that are equal to its own; None where it
        reads something outside of its region.
        """
        item = self.items[-1]
        assert item.ast is not None
        position = {each: number for number, each in enumerate(region.nodes)}
        numbers[target] = -1
        # A value that is read in more ways than the region says has a kernel of its own.
        is_known = all(read in numbers for read in item.reads)
        if not is_known or not all(each in position for each in item.needs):
            return None
        names: list[str | int] = [each.name for each in region.variables]
        if not all(each in names for each in item.offset_names):
            return None
        return _Made(
            item.ast,
            tuple([numbers[read] for read in item.reads]),
            tuple([position[each] for each in item.needs]),
            item.draws,
            tuple([names.index(each) for each in item.offset_names]),
        )

    def _add_known(
        self,
        node: UOp,
        value: UOp,
        target: int,
        region: KernelRegion,
        numbers: dict[int, int],
        known: _Made,
    ) -> None:
        """The item of a kernel that was built for an equal region."""
        memory = {number: buffer for buffer, number in numbers.items()} | {-1: target}
        names = [each.name for each in region.variables]
        is_plain = value is node and node not in self.fusion.in_scratch
        self.items.append(
            UnorderedItem(
                node,
                self.device[node],
                target,
                [memory[read] for read in known.reads],
                [region.nodes[each] for each in known.needs],
                known.ast,
                self.positions_of(node, region.nodes if is_plain else self.inside(node)),
                known.draws,
                tuple([names[each] for each in known.offset_names]),
            )
        )

    def _region(self, node: UOp, value: UOp, numbers: dict[int, int]) -> KernelRegion:
        """The region of the kernel that writes `value` for `node`; memory that it reads gets the
        next of `numbers`.
        """

        def memory_key(leaf: UOp) -> tuple[int, DType, int]:
            buffer = self.memory[leaf]
            spec = self.buffers[buffer]
            return numbers.setdefault(buffer, len(numbers)), spec.dtype, spec.size

        is_own = value is node or node in self.fusion.shaped
        in_scratch = self.fusion.in_scratch.get(node, {})

        def is_read(each: UOp) -> bool:
            # A value in scratch is computed here, though other kernels read it from memory.
            return (
                each in self.fusion.stored
                and each not in in_scratch
                and not (is_own and each is value)
            )

        return region_of(value, is_read, memory_key, self.fitting)

    def _key_of(
        self, own: Hashable, region: KernelRegion, node: UOp, value: UOp, target: int
    ) -> Hashable:
        """The key of a kernel: everything that determines it, with `own` for the region."""
        spec = self.buffers[target]
        in_scratch = self.fusion.in_scratch.get(node, {})
        position = {each: number for number, each in enumerate(region.nodes)} if in_scratch else {}
        return (
            own,
            self.device[node],
            (spec.dtype, spec.size),
            value is node or node in self.fusion.shaped,
            tuple(self.fusion.outer.get(node, ())),
            tuple([(position.get(each), of.shared, of.number) for each, of in in_scratch.items()]),
        )

    def _build(self, node: UOp, value: UOp, target: int) -> None:
        builder = self.builder(node)
        outputs = tuple(builder.range(size, Axis.LOOP) for size in value.shape)
        is_own = value is node or node in self.fusion.shaped
        computed = builder.start(value, outputs) if is_own else builder.value(value, outputs)
        spec = self.buffers[target]
        pointer = UOp(Ops.DEFINE_GLOBAL, spec.dtype.ptr(spec.size), (), target)
        store = pointer.store(flat_index(outputs, value.shape), computed)
        self.finish_kernel(node, store, self._outer_first(node, outputs), target, builder)

    def _outer_first(self, node: UOp, outputs: tuple[UOp, ...]) -> list[UOp]:
        """The output ranges, first those that inlined values share."""
        sets = self.fusion.outer.get(node, [])
        axes = sorted(range(len(outputs)), key=lambda axis: -sum(axis in shared for shared in sets))
        return [outputs[axis] for axis in axes if outputs[axis].op is Ops.RANGE]

    def finish_kernel(
        self, node: UOp, store: UOp, outputs: list[UOp], target: int, builder: KernelBuilder
    ) -> None:
        """Run the last passes on a kernel, once for all equal ones over other buffers."""
        raw = UOp.sink(simplify(store))
        if self.fitting:
            raw = simplify(raw.substitute(self.fitting))
            outputs = [loop.substitute(self.fitting) for loop in outputs]
        self._note_index(node, raw, builder)
        used = [node.arg for node in nodes_of(raw, Ops.DEFINE_GLOBAL)]
        buffers = list(dict.fromkeys([target, *used]))
        canonical = renumbered(raw, {buffer: slot for slot, buffer in enumerate(buffers)})
        canonical, draws = with_own_draws(canonical, self.draws)
        canonical, offset_names = with_own_offsets(canonical)
        key = canonical, tuple(outputs), self.device[node]
        is_new = key not in self.finished
        if is_new:
            hardware = self.targets[self.device[node]]
            self.finished[key] = finish(canonical, outputs, hardware, plain=self.plain)
        ast, slots = self.finished[key]
        reads = [buffers[slot] for slot in slots]
        needs = [value for value in builder.reads if value.op is not Ops.BUFFER]
        nodes = self.positions_of(node, self.inside(node))
        self.items.append(
            UnorderedItem(
                node, self.device[node], target, reads, needs, ast, nodes, draws, offset_names
            )
        )
        if is_new:
            self._begin(ast, node)

    def _begin(self, ast: UOp, node: UOp) -> None:
        """Tell of a kernel that is new to this graph, if it is final."""
        if is_never_joined(ast) and not has_offsets(ast):
            self.begin(ast, self.device[node])

    def _note_index(self, node: UOp, raw: UOp, builder: KernelBuilder) -> None:
        """Record how movement over memory became indices, if anybody records."""
        record = trace.get()
        if record is not None:
            read = {value: self.parameter(value) for value in builder.reads}
            record.append(PassRecord("schedule.index", UOp.sink(node.substitute(read)), raw))

    def inside(self, node: UOp) -> Iterable[UOp]:
        """The values that the kernel of `node` computes, and those that it reads."""
        stored = self.fusion.stored
        return toposort([node], stop=lambda each: each is not node and each in stored)

    def positions_of(self, node: UOp, inside: Iterable[UOp]) -> tuple[int, ...]:
        """The positions of the values that the kernel of `node` computes."""
        stored, position = self.fusion.stored, self.position
        return tuple(
            [
                position[each]
                for each in inside
                if each in position and (each is node or each not in stored)
            ]
        )


def _moved(made: _Made, known: OffsetRegion, wanted: OffsetRegion) -> UOp | None:
    """The graph of a kernel with slices that begin elsewhere; None if that is not a sum."""
    changes = {
        slot: wanted.offsets[number] - known.offsets[number]
        for slot, number in enumerate(made.reads, 1)
        if number in known.offsets
    }
    return at_offsets(made.ast, changes)


def with_own_draws(ast: UOp, numbers: Mapping[UOp, int]) -> tuple[UOp, tuple[int, ...]]:
    """A kernel with its draws numbered from 0, and their `numbers` in the graph, by variable:
    kernels that draw alike are one.
    """
    found = [node for node in ast.toposort() if node in numbers] if numbers else []
    draws = tuple(dict.fromkeys(numbers[node] for node in found))
    mapping: dict[UOp, UOp] = {}
    for own, number in enumerate(draws):
        mapping |= zip(random_variables(number), random_variables(own), strict=True)
    return ast.substitute(mapping), draws


def with_own_offsets(ast: UOp) -> tuple[UOp, tuple[str, ...]]:
    """A kernel with the offsets of its slices, and the numbers that change, numbered from 0, and
    their names in the graph: kernels over slices at other offsets are one.
    """
    found = [node for node in nodes_of(ast, Ops.DEFINE_VAR) if offset_number(node.name) is not None]
    if not found:
        return ast, ()
    own = {
        node: node.replace(arg=(renamed(node.name, number), *node.arg[1:]))
        for number, node in enumerate(found)
    }
    return ast.substitute(own), tuple([node.name for node in found])


def fitting(nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each variable that slices restrict, a variable whose range holds only values at which all
    slices fit.

    A slice such as `x[:, :n]` is allowed where the bound value of `n` fits, whatever other values
    `n` may have: who binds one checks that (`tensor.views.shrinking`, `capture.entry`). So in the
    kernels of that graph `n` has no other values, and every access is inside of its memory:

    before   n in 1..20, x of 10 columns, x[:, :n]
    after    n in 1..10

    Sizes of memory and strides stay those of the variable's own maximum.
    """
    ranges: dict[UOp, tuple[int, int]] = {}
    for node in nodes:
        if node.op is not Ops.SHRINK:
            continue
        for (start, end), size in zip(node.arg, node.src[0].shape):
            if isinstance(start, int) and isinstance(end, int) and isinstance(size, int):
                continue
            for distance in (start, end - start, size - end):
                _narrow(ranges, distance)
    return {
        variable: variable.replace(arg=(variable.name, low, high))
        for variable, (low, high) in ranges.items()
        if (low, high) != variable.arg[1:]
    }


def _narrow(ranges: dict[UOp, tuple[int, int]], distance: Any) -> None:
    """Restrict the variable of `distance`, if it is one, to values at which the distance is not
    negative.
    """
    if isinstance(distance, int) or distance.vmin >= 0:
        return
    distance = simplify(distance)
    variables = nodes_of(distance, Ops.DEFINE_VAR)
    if len(variables) != 1:
        return
    (variable,) = variables
    low, high = ranges.get(variable, variable.arg[1:])

    def fits(value: int) -> bool:
        number = UOp.const(variable.dtype, value)
        return bool(simplify(distance.substitute({variable: number})).arg >= 0)

    # A distance is monotone in its variable: it fits from a value on, or up to one.
    if fits(low) and not fits(high):
        high = _edge(low, high, fits)
    elif fits(high) and not fits(low):
        low = _edge(high, low, fits)
    ranges[variable] = low, high


def _edge(inside: int, outside: int, fits: Callable[[int], bool]) -> int:
    """The last value that fits between `inside`, which fits, and `outside`, which does not."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside
