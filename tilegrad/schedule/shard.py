"""Values of several devices: their graph becomes one graph per device, and copies between these.

before   SUM(SHARD(x, axis 0 on A and B) * 2)
after    on A: SUM(x[0:2] * 2) + COPY(SUM(COPY(x[2:4]) * 2))        on B: the same, the other way

The graph comes in with its whole shapes. Each node has a *placement* (`ir.placement`): its devices,
the axis that is split, and the range that each device has. Nodes are visited sources first, and for
each the *shards* are made, a node per device. A shard that no result needs is in no graph: of a sum
over devices that is read on one device, the sums of the others are not computed.

* elementwise: operands of the largest operand's placement. A replicated one is cut, which copies
  nothing; of one that is split otherwise each device gets the elements that it lacks.
* a reduction over the split axis: a reduction on each device, then one of their results in the
  order of the devices (`all_reduce`), so that all devices have the same bits.
* movement: the split axis moves with it. Where the elements of a device are no range of an axis any
  more, the value is brought together on each device.
* padding along the split axis: on the devices at that end which have nothing, else on the last one
  that has something. A shard that is all padding is constant, and no kernel computes it.
* all else: on each device of the whole value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tilegrad.base.dtype import as_const, dtypes
from tilegrad.base.errors import DeviceError, InternalError
from tilegrad.ir.movement import fill, permute, shaped, stretched
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement, Range
from tilegrad.ir.queries import below_views, device_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.shard_moves import copied, cut, joined, moved, present, ring_reduce, shrunk

__all__ = ["Shards", "all_reduce"]

Shard = UOp | None
Children = Callable[[UOp], Sequence[Shard]]
_ALIKE = frozenset({Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH})
_ON_MEMORY = frozenset({Ops.BUFFER, Ops.ASSIGN, Ops.AFTER})


class Shards:
    """The shards of nodes, made on demand.

    `known` gives the memory of a node that was computed before, `children` the leaves of the
    devices' memory behind a leaf of several devices, None for a device that has nothing.

    Attributes:
        placements: those of the nodes that several devices share.
        plain: replacements of the other nodes.
    """

    def __init__(self, known: Callable[[UOp], UOp | None], children: Children):
        self._known, self._children = known, children
        self.placements: dict[UOp, Placement] = {}
        self.plain: dict[UOp, UOp] = {}
        self._shards: dict[UOp, list[Shard]] = {}
        self._long: dict[UOp, bool] = {}
        self._brought: dict[tuple[UOp, Placement], list[Shard]] = {}
        # Writes to values that lie across devices, as writes to all of the memory.
        self._writes: dict[UOp, tuple[UOp, UOp]] = {}

    def add(self, root: UOp) -> None:
        """Make the shards of `root` and all that it needs."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.plain or node in self._shards:
                stack.pop()
                continue
            memory = self._memory_of(node)
            if memory is not None and not isinstance(device_of(memory), Group):
                self.plain[node] = memory
                continue
            sources = node.src if memory is None else (memory,)
            waiting = [each for each in sources if not self._is_made(each)]
            if not waiting and node.op is Ops.ASSIGN and self._lies_across(node.src[0]):
                self._writes[node] = whole = _over_all(*node.src)
                waiting = [each for each in whole if not self._is_made(each)]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if memory is None:
                self._make(node)
            else:
                self.placements[node] = self.placements[memory]
                self._shards[node] = self._shards[memory]

    def of(self, node: UOp) -> list[Shard]:
        """The shards of an added node that several devices share."""
        return self._shards[node]

    def stored(self, node: UOp) -> list[Shard]:
        """The nodes whose values are the shards of `node` in memory: the split axis first, so that
        each device has a range of the elements.
        """
        placement, found = self.placements[node], self._shards[node]
        axis = placement.axis or 0
        order = [axis, *[each for each in range(len(node.shape)) if each != axis]]
        roots: list[Shard] = []
        for device, shard in zip(placement.devices, found):
            if shard is not None and axis:
                shard = permute(shard, order)
            if shard is not None and shard.op is not Ops.COPY:
                name = device if device_of(shard) is None else None
                shard = UOp(Ops.CONTIGUOUS, shard.dtype, (shard,), name)
            roots.append(shard)
        return roots

    def _is_made(self, node: UOp) -> bool:
        return node in self.plain or node in self._shards

    def _memory_of(self, node: UOp) -> UOp | None:
        """The memory that holds the value of `node`, other than itself."""
        memory = None if node.stored is None else self._known(node)
        return None if memory is node else memory

    def _make(self, node: UOp) -> None:
        op, src = node.op, node.src
        if op is Ops.BUFFER and isinstance(node.arg.device, Group):
            bounds = node.arg.bounds
            placement = Placement(node.arg.device, 0 if bounds else None, bounds)
            self._put(node, placement, list(self._children(node)))
        elif op is Ops.SHARD:
            self._put(node, node.arg, self._sharded(node))
        elif op is Ops.CONTIGUOUS and isinstance(node.arg, Group):
            (value,) = [self.plain.get(src[0], src[0])]
            shards: list[Shard] = [UOp(op, node.dtype, (value,), name) for name in node.arg]
            self._put(node, Placement(node.arg), shards)
        elif _is_stored_constant(node):
            self.plain[node] = self.plain[src[0]]
        elif not any(source in self.placements for source in src):
            self.plain[node] = node.over(tuple([self.plain[source] for source in src]))
        elif op is Ops.COPY:
            self.plain[node] = self._gathered(src[0], node.arg)
        elif op is Ops.SINK:
            pass
        else:
            self._put(node, *self._placed(node))

    def _put(self, node: UOp, placement: Placement, shards: list[Shard]) -> None:
        self.placements[node], self._shards[node] = placement, shards

    def _sharded(self, node: UOp) -> list[Shard]:
        """A value on its way to several devices."""
        (source,), placement = node.src, node.arg
        if source in self.placements:
            if self.placements[source].devices == placement.devices:
                return self._bring(source, placement)
            source = self._gathered(source, placement.devices[0])
        else:
            source = self.plain[source]
        draws = _draws_alone(source)
        found: list[Shard] = []
        for number, device in enumerate(placement.devices):
            if not placement.has(number):
                found.append(None)
            elif draws is not None:
                # Element i of a draw is the same number wherever it is computed.
                own = source.substitute({each: _drawn_on(each, device) for each in draws})
                found.append(cut(own, placement, number))
            else:
                found.append(copied(cut(source, placement, number), device))
        return found

    def _placed(self, node: UOp) -> tuple[Placement, list[Shard]]:
        """The placement and the shards of a node with a source of several devices."""
        op = node.op
        first = self.placements.get(node.src[0])
        if op.is_alu:
            placement = self._common(node)
            return placement, self._each(node, placement, [placement] * len(node.src))
        if first is None or (first.axis is None and op not in _ON_MEMORY):
            return self._whole(node)
        if op in _ALIKE:
            return first, self._each(node, first, [first])
        if op is Ops.ASSIGN:
            return self._assigned(node)
        if op is Ops.AFTER:
            return first, self._after(node)
        assert first.axis is not None
        if op.is_movement:
            return moved(node, first, self._shards[node.src[0]]) or self._whole(node)
        if op is Ops.REDUCE_AXIS:
            if first.axis not in node.axes:
                return first, self._each(node, first, [first])
            slices = self._each(node, first, [first])
            return first.split_at(None), all_reduce(slices, first.devices, node)
        if op is Ops.PREFIX_AXIS and first.axis not in node.arg[1:]:
            return first, self._each(node, first, [first])
        return self._whole(node)

    def _common(self, node: UOp) -> Placement:
        """The placement of the largest operand that is split."""
        found = [self.placements[each] for each in node.src if each in self.placements]
        for source in node.src:
            if source not in self.placements and not self.plain[source].is_constant:
                raise DeviceError(
                    f"{node.op.name.lower()}: operands on {', '.join(found[0].devices)} and on "
                    f"{device_of(self.plain[source])}",
                    remedy="shard the one of a single device, or bring the other there with to()",
                )
        split = [each for each in node.src if each in self.placements and self._is_split(each)]
        if not split:
            return found[0]
        # A value that is cut here and there most likely is the smaller one below its expansion.
        return self.placements[max(split, key=lambda each: _bytes_below(each))]

    def _is_split(self, node: UOp) -> bool:
        return self.placements[node].axis is not None

    def _each(self, node: UOp, placement: Placement, wanted: Sequence[Placement]) -> list[Shard]:
        """The node over the shards of its sources, on each device that has some."""
        columns = [self._bring(source, each) for source, each in zip(node.src, wanted)]
        found: list[Shard] = []
        for number in range(len(placement.devices)):
            sources = [column[number] for column in columns]
            if not placement.has(number) or any(each is None for each in sources):
                found.append(None)
                continue
            own = node.over(tuple([each for each in sources if each is not None]))
            found.append(own.src[0] if _is_stored_constant(own) else own)
        return found

    def _whole(self, node: UOp) -> tuple[Placement, list[Shard]]:
        """The node on each device, of whole sources."""
        devices = next(self.placements[each].devices for each in node.src if self._has(each))
        if node.op is Ops.ASSIGN:
            raise DeviceError(
                f"assign: a value on {', '.join(devices)} to memory of a single device",
                remedy="bring the value there with to()",
            )
        replicated = Placement(devices)
        return replicated, self._each(node, replicated, [replicated] * len(node.src))

    def _has(self, node: UOp) -> bool:
        return node in self.placements

    # memory

    def _lies_across(self, target: UOp) -> bool:
        """Whether the target of a write is no view of memory on each device."""
        shards = self._shards.get(target, ())
        return any(each is not None and below_views(each).op not in _ON_MEMORY for each in shards)

    def _assigned(self, node: UOp) -> tuple[Placement, list[Shard]]:
        target, value = self._writes.get(node, node.src)
        placement = self.placements[target]
        values = self._bring(value, placement)
        return placement, [
            None if shard is None or own is None else UOp(Ops.ASSIGN, node.dtype, (shard, own))
            for shard, own in zip(self._shards[target], values)
        ]

    def _after(self, node: UOp) -> list[Shard]:
        memory, assign = (self._shards[source] for source in node.src)
        return [
            shard if write is None or shard is None else node.over((shard, write))
            for shard, write in zip(memory, assign)
        ]

    # bringing a value to another placement

    def _bring(self, node: UOp, placement: Placement) -> list[Shard]:
        """The shards of `node` under `placement`."""
        if self.placements.get(node) == placement:
            return self._shards[node]
        key = node, placement
        found = self._brought.get(key)
        if found is None:
            found = self._brought[key] = [
                self._slice_for(node, placement, number) if placement.has(number) else None
                for number in range(len(placement.devices))
            ]
        return found

    def _is_long(self, value: UOp) -> bool:
        """Whether a constant is computed by more arithmetic than an index into it takes: kernels
        might share it in memory, which must be on each device.
        """
        found = self._long.get(value)
        if found is None:
            nodes = value.toposort() if value.is_constant and value.shape else ()
            work = sum(each.op.is_alu for each in nodes)
            found = self._long[value] = work > 4 * len(value.shape)
        return found

    def _slice_for(self, node: UOp, placement: Placement, number: int) -> UOp:
        """The shard of `node` on device `number` under `placement`."""
        own = self.placements.get(node)
        if own is None:
            value = self.plain[node]
            if self._is_long(value):
                # Two devices that compute it would share its sources.
                owner, *_ = placement.devices
                value = UOp(Ops.CONTIGUOUS, value.dtype, (value,), owner)
                return copied(cut(value, placement, number), placement.devices[number])
            return cut(value, placement, number)
        if own.devices != placement.devices:
            raise DeviceError(
                f"operands on {', '.join(own.devices)} and on {', '.join(placement.devices)}",
                remedy="bring one of them to the devices of the other with shard() or to()",
            )
        shards, device = self._shards[node], placement.devices[number]
        if own.axis is None:
            return cut(present(shards[number]), placement, number)
        slices: list[tuple[Range, UOp]] = []
        axis = own.axis
        for other, shard in enumerate(shards):
            start, end = own.bounds[other]
            if shard is None:
                continue
            if placement.axis == axis:
                low, high = placement.bounds[number]
                first, last = max(start, low), min(end, high)
                if first >= last:
                    continue
                own_slice = shrunk(shard, axis, (first - start, last - start))
                where = first - low, last - low
            else:
                own_slice, where = cut(shard, placement, number), (start, end)
            slices.append((where, own_slice if other == number else copied(own_slice, device)))
        low, high = placement.bounds[number] if placement.axis == axis else (0, node.shape[axis])
        return joined(slices, axis, high - low)

    def _gathered(self, node: UOp, device: str) -> UOp:
        """All of `node` on one device."""
        placement, shards = self.placements[node], self._shards[node]
        if placement.axis is None:
            if device in placement.devices:
                return present(shards[placement.devices.index(device)])
            return copied(present(shards[0]), device)
        slices = [
            (bounds, shard if name == device else copied(shard, device))
            for name, bounds, shard in zip(placement.devices, placement.bounds, shards)
            if shard is not None
        ]
        return joined(slices, placement.axis, node.shape[placement.axis])


def _is_stored_constant(node: UOp) -> bool:
    """Whether a constant would be stored without a device of its own, which would be the default
    device.
    """
    return node.op is Ops.CONTIGUOUS and node.is_constant and not isinstance(node.arg, str)


def _over_all(view: UOp, value: UOp) -> tuple[UOp, UOp]:
    """The memory that `view` is a slice of, with `value` written to the slice; for slices whose
    elements on a device are no view of that device's memory.
    """
    if value.shape != view.shape:
        value = stretched(shaped(value, (1,) * len(view.shape)), view.shape)
    written = fill(view.shape, True, dtypes.bool)
    while view.op.is_movement or view.op is Ops.DETACH:
        if view.op.is_movement:
            value, written = _moved_back(view, value), _moved_back(view, written)
        view = view.src[0]
    return view, UOp(Ops.WHERE, value.dtype, (written, value, view))


def _moved_back(step: UOp, value: UOp) -> UOp:
    """`value`, which has the shape of a movement op, at the positions of its source."""
    op, arg, shape = step.op, step.arg, step.src[0].shape
    if op is Ops.RESHAPE:
        return shaped(value, shape)
    if op is Ops.PERMUTE:
        return permute(value, [arg.index(axis) for axis in range(len(arg))])
    if op is Ops.FLIP:
        return UOp(op, value.dtype, (value,), arg)
    if op is not Ops.SHRINK:
        raise InternalError(f"schedule.shard: a {op} is no view that is written to")
    around = tuple([(start, size - end) for size, (start, end) in zip(shape, arg)])
    return UOp(Ops.PAD, value.dtype, (value,), around)


def all_reduce(slices: Sequence[Shard], devices: Sequence[str], node: UOp) -> list[Shard]:
    """The reduction of all shards, by the op of `node`, on each device.

    Each device gets a copy of each value, or, of three devices or more, of slices of their sums:
    a ring moves fewer bytes, and has more steps.
    """
    function = node.combine
    given = [(number, each) for number, each in enumerate(slices) if each is not None]
    if not given:
        identity = function.definition.identity
        assert identity is not None
        value = as_const(identity(node.dtype), node.dtype)
        return [fill(node.shape, value, node.dtype)] * len(devices)
    if len(given) == len(devices) > 2 and prod(node.shape) >= len(devices):
        return list(ring_reduce([each for _, each in given], devices, function))
    found: list[Shard] = []
    for own, device in enumerate(devices):
        here = [each if at == own else copied(each, device) for at, each in given]
        found.append(reduce(lambda x, y: x.alu(function, y), here))
    return found


def _draws_alone(value: UOp) -> list[UOp] | None:
    """The draws below `value`, if no other value below it is on a device."""
    draws: list[UOp] = []
    for node in value.toposort():
        if node.op is Ops.RAND:
            draws.append(node)
        elif node.stored is not None or node.op in (
            Ops.BUFFER, Ops.COPY, Ops.CUSTOM, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.CONTIGUOUS
        ):  # fmt: skip
            return None
    return draws


def _drawn_on(node: UOp, device: str) -> UOp:
    arg = node.arg
    return node.replace(arg=type(arg)(arg.shape, arg.seed, arg.offset, device))


def _bytes_below(node: UOp) -> int:
    """The bytes of the value below a chain of movement ops."""
    base = node
    while base.op.is_movement and base.op is not Ops.PAD:
        base = base.src[0]
    return int(prod(base.shape)) * node.dtype.itemsize
