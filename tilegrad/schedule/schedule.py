"""This stage's passes, and the function that makes a schedule with them.

    graph_passes   the list of passes on the whole graph
      empty        reductions of nothing are constants                 graph_passes.py
      channels     operands of convolutions have another order         channels.py
      one_hot      sums of rows that a one-hot chooses add rows        scatter_adds.py
      split        a large reduction to one number becomes two         graph_passes.py,
                   reductions with few results have more blocks        over_blocks.py
      scan_slices  scans of few long rows are done in slices           scans.py
      exact_sums   many rows that meet are summed in float64           scatter_adds.py
      versions     old values that are needed beside newer ones are
                   stored apart                                        versions.py
    fuse           the list of steps that choose what is stored        fuse.py
    index          each stored value becomes a kernel graph, once      kernel_items.py,
                   for all equal ones                                  kernel_graphs.py
      finish       each kernel's last passes, a list with reasons      finish.py
    items          what is no kernel: copies, calls, loops, writes     value_items.py
    order          readers of an old value run before it is overwritten  order.py
    join           updates, and reductions, over equal elements are one
                   kernel                                              join.py
    memory         lifetimes give temporary buffers shared memory      memory_plan.py

The graph comes in normalised: its BUFFERs and draws are numbered by first visit, so that a Schedule
holds numbers only and can be kept and run again with other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.base.errors import DeviceError
from tilegrad.base.trace import counters
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.graph_passes import GraphDevices, prepare
from tilegrad.schedule.inlining import Fusion
from tilegrad.schedule.items import Edge, Item, Reason, Schedule
from tilegrad.schedule.kernel_regions import share_offsets
from tilegrad.schedule.order import UnorderedItem, join_items, order_items
from tilegrad.schedule.value_items import ValueItems
from tilegrad.target import Target

__all__ = ["devices_of", "edges_between", "make_schedule"]

# Memory of others, and values that are remembered in any case.
_NOT_MATERIALISED = (Ops.ASSIGN, Ops.AFTER, Ops.COPY, Ops.LOOP, Ops.LOOP_OUTPUT)

Begin = Callable[[UOp, str], None]


def _is_not_awaited(ast: UOp, device: str) -> None:
    """The default of `begin`: no kernel is made before the schedule is complete."""


def make_schedule(
    sink: UOp,
    targets: dict[str, Target],
    default_device: str,
    *,
    plain: bool,
    needed_later: Sequence[int] = (),
    begin: Begin = _is_not_awaited,
) -> Schedule:
    """The steps that compute the sources of `sink`. Stored values are results too if the nodes at
    the positions `needed_later` can be computed from them. `begin` is told of finished kernels and
    their devices before all kernels are finished.
    """
    counters.schedules += 1
    given = list(toposort([sink]))
    later = [given[each] for each in needed_later]
    devices = GraphDevices(
        targets.values(), lambda node: targets[device_of(node) or default_device]
    )
    prepared = prepare(sink, given, devices, plain=plain)
    device = devices_of(prepared.nodes, default_device)
    fusion = fuse(
        prepared.sink, lambda node: targets[device[node]], plain=plain, needed_later=later
    )
    for node in fusion.stored:
        if node in prepared.old_versions:
            fusion.stored[node] = Reason.OVERWRITTEN
    made = ValueItems(given, prepared, fusion, device, targets, plain=plain)
    made.begin = begin
    made.add_all()
    order = order_items(made.items, made.buffers, made.memory)
    if not plain:
        order = join_items(order, targets, lambda number: made.buffers[number].nbytes)
        order = share_offsets(order)
    edges = edges_between(
        order, fusion, lambda value: made.buffers[made.memory[value]].nbytes, plain=plain
    )
    outputs = [made.memory[node] for node in prepared.sink.src]
    schedule = Schedule(list(map(_ordered, order)), made.buffers, outputs, edges)
    schedule.materialised = _materialised(made, given, later, prepared.sink)
    return schedule


def _ordered(item: UnorderedItem) -> Item:
    return Item(
        item.device,
        (item.writes, *item.also, *item.reads),
        item.ast,
        item.nodes,
        item.value.op is Ops.CUSTOM and item.ast is None,
        item.draws,
        item.offset_names,
        item.loop,
        1 + len(item.also),
    )


def _materialised(
    made: ValueItems, given: Sequence[UOp], later: Sequence[UOp], sink: UOp
) -> dict[int, int]:
    """Buffers of the stored values below the nodes `later`, by the positions of the values; only
    of values that no pass has changed.
    """
    stored, found = made.fusion.stored, {}
    for node in toposort(later, stop=lambda node: node in stored):
        if node in stored and node.op not in _NOT_MATERIALISED and node not in sink.src:
            position = made.position[node]
            if given[position] is node:
                found[position] = made.memory[node]
    return found


def edges_between(
    order: Sequence[UnorderedItem],
    fusion: Fusion,
    bytes_of: Callable[[UOp], int],
    *,
    plain: bool,
) -> list[Edge]:
    """Edges of a schedule: for each pair of kernels joined by a stored value of `bytes_of` bytes,
    the reason why they are two kernels.
    """
    position = {id(item): number for number, item in enumerate(order)}
    maker: dict[UOp, int] = {
        value: position[id(item)] for item in order for value in (item.value, *item.values)
    }
    edges: list[Edge] = []
    for item in order:
        for value in item.needs:
            if value not in maker or maker[value] == position[id(item)]:
                continue
            reason, saved, flops = fusion.refused.get(value, (fusion.stored[value], 0, 0))
            if plain and reason in (Reason.EXPANDED, Reason.REDUCED_AGAIN):
                saved = 2 * bytes_of(value)
            edges.append(Edge(maker[value], position[id(item)], reason, saved, flops))
    return edges


def devices_of(nodes: Sequence[UOp], default_device: str) -> dict[UOp, str]:
    """The device of every node: that of its memory, of its copy, of its sources, or, for a
    constant, of a user.
    """
    device: dict[UOp, str] = {}
    for node in nodes:
        if node.op in (Ops.BUFFER, Ops.RAND):
            device[node] = node.arg.device
        elif node.op is Ops.COPY or (node.op is Ops.CONTIGUOUS and isinstance(node.arg, str)):
            device[node] = node.arg
        else:
            found = [device[source] for source in node.src if device.get(source)]
            if len(set(found)) > 1 and node.op is not Ops.SINK:
                both = " and ".join(dict.fromkeys(found))
                raise DeviceError(
                    f"{node.op.name.lower()}: operands on two devices: {both}",
                    remedy="move one of them with .to(device)",
                )
            device[node] = found[0] if found else ""
    # Values made of constants alone are computed where they are used.
    for node in reversed(nodes):
        name = device[node]
        if name and node.op is not Ops.SINK:
            for source in node.src:
                device[source] = device[source] or name
    return {node: name or default_device for node, name in device.items()}
