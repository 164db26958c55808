"""Plans: a schedule with its kernels compiled and its memory planned, kept by the graph that it
computes.

A plan (`engine.plans.plan`) serves every graph of one signature, in this process and the next. The
key of a graph numbers its leaves by first visit, so that aliasing shows; values of variables,
offsets of random draws and source lines are no part of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tilegrad.base import cache
from tilegrad.base.collection import no_collection
from tilegrad.base.config import config
from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import Entry
from tilegrad.base.recent import Recent
from tilegrad.base.trace import section
from tilegrad.device.registry import Device
from tilegrad.engine.build import preload
from tilegrad.engine.build.background import BackgroundThread, count_of_helpers
from tilegrad.engine.build.kernels import Helpers, compile_kernels
from tilegrad.engine.build.pipeline import (
    CompiledKernel,
    Job,
    backend_key,
    is_recalled,
    kernel_key,
    recall_kernel,
)
from tilegrad.engine.plans.plan import LoopPlan, Plan, PlannedMemory, Step, plan_of, text_of
from tilegrad.ir.args import BufferArg, RandArg
from tilegrad.ir.lengths import terms_of
from tilegrad.ir.op import Ops
from tilegrad.ir.slices import MemorySlice, offset_number, with_variable_slices
from tilegrad.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from tilegrad.schedule.items import BufferSpec, Item, Schedule
    from tilegrad.schedule.memory_plan import MemoryPlan

__all__ = ["Graph", "key_of", "normalise", "plan_for", "use_best"]


@dataclass
class Graph:
    """A graph as plans see it: its nodes in order, its leaves and draws by number, the slices of
    memory whose offsets are variables, and its key.
    """

    nodes: list[UOp]
    leaves: list[UOp]
    draws: list[UOp]
    key: str
    slices: Sequence[MemorySlice] = ()

    def numbered(self) -> UOp:
        """The graph as the schedule takes it: leaves and draws are numbers, without memory."""
        root = with_variable_slices(self.nodes, self.slices) if self.slices else self.nodes[-1]
        mapping: dict[UOp, UOp] = {}
        for number, node in enumerate(self.leaves):
            mapping[node] = node.replace(arg=BufferArg(number, node.arg.device, node.arg.size))
        for number, node in enumerate(self.draws):
            mapping[node] = node.replace(arg=RandArg(node.arg.shape, number, 0, node.arg.device))
        return root.substitute(mapping)

    def origin_of(self, positions: Iterable[int]) -> tuple[Entry, ...]:
        """The user's calls behind some nodes of this graph, whose plan may be an older graph's."""
        known = [self.nodes[position] for position in positions if position < len(self.nodes)]
        return tuple(dict.fromkeys(entry for node in known for entry in node.origin))


# The number of nodes from which graphs have tens of kernels.
_LARGE = 400

_plans: Recent[str, Plan] = Recent(lambda: config.KEEP_KERNELS)


def normalise(sink: UOp) -> Graph:
    """The graph under `sink`, with the key that equal graphs over other memory share."""
    nodes = list(toposort([sink]))
    leaves = [node for node in nodes if node.op is Ops.BUFFER]
    draws = [node for node in nodes if node.op is Ops.RAND]
    return Graph(nodes, leaves, draws, key_of(nodes))


def key_of(nodes: Sequence[UOp], slices: Sequence[MemorySlice] = ()) -> str:
    """The key of the graph that `nodes` make up; it leaves out the offsets of `slices`."""
    positions: dict[int, list[object]] = {}
    for each_slice in slices:
        bounds = positions.setdefault(each_slice.position, list(nodes[each_slice.position].arg))
        bounds[each_slice.axis] = each_slice.size
    known: dict[UOp, int] = {}
    leaves = draws = 0
    text: list[str] = []
    for number, node in enumerate(nodes):
        known[node] = number
        arg: Any = node.arg
        if node.op is Ops.BUFFER:
            arg, leaves = (leaves, arg.device, arg.size), leaves + 1
        elif node.op is Ops.RAND:
            arg, draws = (draws, arg.shape, arg.device), draws + 1
        elif number in positions:
            arg = positions[number]
        sources = ",".join([str(known[source]) for source in node.src])
        text.append(
            f"{node.op.serial} {node.dtype!r} {sources} {arg!r}"
            if arg is not None
            else f"{node.op.serial} {node.dtype!r} {sources}"
        )
    return hashlib.blake2b("\n".join(text).encode(), digest_size=20).hexdigest()


def plan_for(graph: Graph, needed_later: Sequence[int] = (), *, is_short: bool = False) -> Plan:
    """The plan of `graph`: cached in this process, on disk, or made now. It keeps those of its
    stored values from which the nodes at the positions `needed_later` can be computed. With
    `is_short`, its kernels may be in short shapes.
    """
    # Somebody has to make the best ones later.
    is_short = is_short and bool(config.SHORT and count_of_helpers())
    devices = sorted(
        {_device(node) for node in (*graph.leaves, *graph.draws)} - {"HOST"} | {Device.DEFAULT}
    )
    key = cache.digest(
        graph.key,
        Device.DEFAULT,
        repr(devices),
        *(backend_key(Device[name]) for name in devices),
        *map(str, needed_later),
    )
    found = _plans.get(key)
    if found is None and is_recalled():
        found = _recall(key)
    if found is None:
        with no_collection():
            found = _make(graph, needed_later, is_short=is_short)
        cache.put("plans", key, text_of(found))
    elif not is_short:
        use_best(found)
    return _plans.setdefault(key, found)


def use_best(plan: Plan) -> None:
    """Bring all kernels of a plan to their best shape, now."""
    short = plan.short_kernels()
    if not short:
        return
    preload.finish()
    from tilegrad.ir.text import parse

    with no_collection():
        graphs = [(parse(kernel.graph), Device[device]) for device, kernel in short.values()]
        plan.use(dict(zip(short, compile_kernels(graphs))))


def _device(node: UOp) -> str:
    # The name itself: `str` of one that is a `torch.device` is PyTorch's name.
    name: str = node.arg.device
    return name


def _make(graph: Graph, needed_later: Sequence[int], *, is_short: bool) -> Plan:
    names = {_device(node) for node in (*graph.leaves, *graph.draws)} | {Device.DEFAULT}
    names |= {node.arg for node in graph.nodes if node.op is Ops.COPY} | {
        node.arg for node in graph.nodes if node.op is Ops.CONTIGUOUS and isinstance(node.arg, str)
    }
    targets = {name: Device[name].target for name in names}
    preload.finish()
    # Start before the first import of the compiler: that takes as long as the preparations.
    with _helpers(graph) as helpers, _prepared(names):
        from tilegrad.ir.definition import Stage
        from tilegrad.ir.spec import verify
        from tilegrad.schedule.memory_plan import plan_memory
        from tilegrad.schedule.schedule import make_schedule

        numbered = graph.numbered()
        if config.VERIFY:
            verify(numbered, Stage.TENSOR, "tensor")
        with section("plan", numbered) as entry:
            if entry is not None:
                entry.origin = graph.origin_of(range(len(graph.nodes)))
            schedule = make_schedule(
                numbered,
                targets,
                Device.DEFAULT,
                plain=bool(config.NOOPT),
                needed_later=needed_later,
                begin=partial(_begin, helpers, is_short),
            )
        kernels = iter(_kernels_of(schedule, graph, helpers, is_short=is_short))
    loops = [position for position, item in enumerate(schedule.items) if item.loop is not None]
    loop_plans = {position: _loop_plan(schedule, position, is_short=is_short) for position in loops}
    outputs = [*schedule.outputs, *schedule.materialised.values()]
    memory = plan_memory(schedule, outputs, targets)
    steps = []
    for position, item in enumerate(schedule.items):
        kernel = None if item.ast is None else next(kernels)
        given = () if kernel is None else _names_in_graph(kernel.variables, item)
        loop = loop_plans.get(position)
        steps.append(
            Step(
                item.device, item.buffers, kernel, item.nodes, item.custom, given, loop,
                item.written,
            )
        )  # fmt: skip
    return Plan(
        tuple(steps),
        tuple(_memory_of(spec, number, memory) for number, spec in enumerate(schedule.buffers)),
        tuple(outputs),
        memory.blocks,
        tuple(schedule.materialised),
    )


def _kernels_of(
    schedule: Schedule, graph: Graph, helpers: Helpers | None, *, is_short: bool
) -> list[CompiledKernel]:
    """The kernels of a schedule, in its order."""
    items = [(item.ast, item) for item in schedule.items if item.ast is not None]
    return compile_kernels(
        [(ast, Device[item.device]) for ast, item in items],
        helpers,
        lambda number: graph.origin_of(items[number][1].nodes),
        is_short=is_short,
    )


def _memory_of(spec: BufferSpec, number: int, memory: MemoryPlan) -> PlannedMemory:
    """Buffer `number` of a schedule, and where it lies."""
    return PlannedMemory(
        spec.device,
        spec.dtype,
        spec.size,
        spec.source,
        memory.offsets.get(number),
        None if spec.extent is None else terms_of(spec.extent),
        memory.slots.get(number),
    )


def _loop_plan(schedule: Schedule, position: int, *, is_short: bool) -> LoopPlan:
    """The plan of a loop's step. Its temporaries get a buffer of the schedule, one per device: they
    live as long as the loop runs.
    """
    from tilegrad.schedule.items import BufferSpec

    item = schedule.items[position]
    loop = item.loop
    assert loop is not None
    graph = normalise(loop.body)
    plan = plan_for(graph, is_short=is_short)
    blocks: dict[str, int] = {}
    for device, size in plan.blocks.items():
        blocks[device] = len(item.buffers)
        item = replace(item, buffers=(*item.buffers, len(schedule.buffers)))
        schedule.buffers.append(BufferSpec(device, dtypes.uint8, size))
    schedule.items[position] = item
    inputs = [loop.positions[-1 - leaf.arg.slot] for leaf in graph.leaves]
    length = loop.length if isinstance(loop.length, int) else terms_of(loop.length)
    return LoopPlan(plan, length, loop.is_reversed, tuple(inputs), blocks)


def _helpers(graph: Graph) -> AbstractContextManager[Helpers | None]:
    """Processes to make kernels with: as many as there can be if the graph is large enough to have
    many kernels, in which case they begin while it is scheduled; else one from the second plan on,
    as a process that made two will make more.
    """
    count = count_of_helpers()
    if not count:
        return nullcontext()
    from tilegrad.engine.build import workers

    return workers.taken(count if len(graph.nodes) >= _LARGE else min(1, len(_plans)))


def _begin(helpers: Helpers | None, is_short: bool, ast: UOp, device: str) -> None:
    """Let helpers make a kernel while the schedule goes on, if it is not kept."""
    if helpers is not None:
        backend = Device[device]
        key = kernel_key(ast, backend)
        if recall_kernel(key, is_short=is_short) is None:
            helpers.begin(Job(key, ast, backend.name, is_short))


@contextmanager
def _prepared(devices: Iterable[str]) -> Iterator[None]:
    """Prepare `devices` for their first launch while the kernels are made."""
    works = [Device[name].runtime.preparation() for name in devices if name != "HOST"]
    with BackgroundThread() as background:
        for work in works:
            if work is not None and count_of_helpers():
                # A failure here comes again at the launch, and is reported there.
                background.begin(work)
        yield


_DRAW = re.compile(r"(seed|offset)(\d+)(_low|_high|)")


def _names_in_graph(variables: Sequence[str], item: Item) -> tuple[str | int, ...]:
    """The names that a kernel's variables have in its graph, or their values where the graph has
    numbers: a kernel counts its own draws and slices.
    """
    names: list[str | int] = []
    for name in variables:
        draw, position = _DRAW.fullmatch(name), offset_number(name)
        if draw is not None and int(draw[2]) < len(item.draws):
            names.append(f"{draw[1]}{item.draws[int(draw[2])]}{draw[3]}")
        elif position is not None and position < len(item.offset_names):
            names.append(item.offset_names[position])
        else:
            names.append(name)
    return tuple(names)


def _recall(key: str) -> Plan | None:
    cached = cache.get("plans", key)
    return None if cached is None else plan_of(cached)
