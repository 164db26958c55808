"""Schedules of tensors without running them, for targets that are the same on every machine."""

from __future__ import annotations

from typing import Any

from tilegrad import Tensor
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.items import Item, Schedule
from tilegrad.schedule.schedule import make_schedule
from tilegrad.target import Target

__all__ = ["CPU", "edges", "kernel_of", "kernels", "loops", "plan", "sizes"]

# Two independent iterations keep it busy.
CPU = Target("CPU", vector_bytes=32, threads=2)


def plan(*tensors: Tensor, plain: bool = False, target: Target = CPU) -> Schedule:
    """The schedule that computes `tensors`, with their leaves and draws numbered by first visit."""
    return plan_nodes(*[tensor.uop for tensor in tensors], plain=plain, target=target)


def plan_nodes(*roots: UOp, plain: bool = False, target: Target = CPU) -> Schedule:
    """As `plan`, of graphs."""
    graph = normalise(UOp.sink(*roots)).numbered()
    targets = dict.fromkeys(("CPU", "CPU:1", "HOST"), target)
    return make_schedule(graph, targets, "CPU", plain=plain)


def kernel_of(value: Tensor, target: Target = CPU) -> UOp:
    """The one kernel that computes `value`; the leaves are its parameters in order."""
    (item,) = plan(value, target=target).items
    assert item.ast is not None
    return item.ast


def kernels(schedule: Schedule) -> list[Item]:
    """The steps that are no copies."""
    return [item for item in schedule.items if not item.is_copy]


def loops(item: Item) -> list[tuple[int, Axis]]:
    """The extents of a kernel's ranges with what runs them, sorted."""
    assert item.ast is not None
    ranges = [node for node in item.ast.toposort() if node.op is Ops.RANGE]
    return sorted(((part.vmax + 1, part.arg[1]) for part in ranges), key=str)


def sizes(schedule: Schedule) -> list[int]:
    """Elements of the buffers that the schedule makes itself."""
    return [spec.size for spec in schedule.buffers if spec.source is None]


def edges(schedule: Schedule) -> list[tuple[Any, ...]]:
    """(producer, consumer, reason, bytes saved) of each edge."""
    return [
        (edge.producer, edge.consumer, edge.reason, edge.bytes_saved) for edge in schedule.edges
    ]
