"""This stage's passes, and the function that makes a schedule with them.

    graph_passes   the list of passes on the whole graph
      empty        reductions of nothing are constants                 empty.py
      channels     operands of convolutions have another order         channels.py
      one_hot      sums of rows that a one-hot chooses add rows        one_hot.py
      split        a large reduction to one number becomes two         split_reductions.py,
                   reductions with few results have more blocks        over_blocks.py
      scan_slices  scans of few long rows are done in slices           scans.py
      exact_sums   many rows that meet are summed in float64           scatter_collisions.py
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

from tilegrad.base.trace import counters
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.edges import edges_between
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.graph_passes import GraphDevices, prepare
from tilegrad.schedule.items import Item, Schedule
from tilegrad.schedule.node_devices import devices_of
from tilegrad.schedule.order import UnorderedItem, join_items, order_items
from tilegrad.schedule.reason import Reason
from tilegrad.schedule.shared_offsets import share_offsets
from tilegrad.schedule.value_items import ValueItems
from tilegrad.target import Target

__all__ = ["make_schedule"]

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
