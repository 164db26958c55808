"""Plans: a schedule with its kernels compiled and its memory planned, kept by the graph that it
computes.

A plan holds numbers, names and keys only, never buffers or graphs, so that one plan serves every
graph of the same form, in this process and the next. The key of a graph numbers its leaves by first
visit, which leaves aliasing visible; values of variables, offsets of random draws and source lines
stay out of it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.origin import Entry
from tilegrad.device.registry import Device
from tilegrad.engine.pipeline import (
    CompiledKernel,
    Helpers,
    backend_key,
    compile_kernels,
    is_recalled,
    recall_kernel,
)
from tilegrad.ir.args import BufferArg, RandArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.ir.windows import Window, open_windows, place_number

if TYPE_CHECKING:
    from tilegrad.schedule.schedule import Item, Schedule

__all__ = ["Graph", "Plan", "Step", "Turns", "key_of", "normalise", "plan_for"]


@dataclass(frozen=True)
class Step:
    """A launch, or where `kernel` is None a copy, or with `is_custom` the Python function of the
    first of `nodes`, which are positions in the graph's order, or with `turns` a plan run many
    times. `names` are those of the values that the kernel's variables take.
    """

    device: str
    buffers: tuple[int, ...]
    kernel: CompiledKernel | None
    nodes: tuple[int, ...]
    is_custom: bool = False
    names: tuple[str, ...] = ()
    turns: Turns | None = None


@dataclass(frozen=True)
class Turns:
    """The plan of a loop's step, run `length` times, with the number of the step as the variable
    `STEP`, from the last down if it `is_reversed`.

    `places` are, of each of the plan's inputs, the positions in the loop's buffers: in the first
    turn, in later ones that an even number of turns follow, and an odd number. `blocks` are those
    of the memory that the plan's temporaries share on a device.
    """

    plan: Plan
    length: int
    is_reversed: bool
    places: tuple[tuple[int, ...], ...]
    blocks: dict[str, int]


@dataclass(frozen=True)
class Memory:
    """A buffer of a plan: the input number `source`, a part of the block at `offset`, or memory of
    its own.
    """

    device: str
    dtype: DType
    size: int
    source: int | None
    offset: int | None


@dataclass(frozen=True)
class Plan:
    """Steps in order, their buffers, which of these are the results, and the bytes of each device's
    block. The last results are values that were not asked for, of the nodes at `kept`.
    """

    steps: tuple[Step, ...]
    buffers: tuple[Memory, ...]
    outputs: tuple[int, ...]
    blocks: dict[str, int]
    kept: tuple[int, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """Memory that a run takes beyond its inputs."""
        own = sum(
            m.size * m.dtype.itemsize for m in self.buffers if m.source is None and m.offset is None
        )
        return own + sum(self.blocks.values())


@dataclass
class Graph:
    """A graph as plans see it: its nodes in order, its leaves and draws by number, those windows of
    memory whose places are variables, and its key.
    """

    nodes: list[UOp]
    leaves: list[UOp]
    draws: list[UOp]
    key: str
    windows: Sequence[Window] = ()

    def numbered(self) -> UOp:
        """The graph as the schedule takes it: leaves and draws are numbers, nobody's memory."""
        root = open_windows(self.nodes, self.windows) if self.windows else self.nodes[-1]
        mapping: dict[UOp, UOp] = {}
        for number, node in enumerate(self.leaves):
            mapping[node] = node.replace(arg=BufferArg(number, node.arg.device, node.arg.size))
        for number, node in enumerate(self.draws):
            mapping[node] = node.replace(arg=RandArg(node.arg.shape, number, 0, node.arg.device))
        return root.substitute(mapping)

    def origin_of(self, places: Iterable[int]) -> tuple[Entry, ...]:
        """The user's calls behind some of the nodes: those of this graph, whoever made the plan."""
        known = [self.nodes[place] for place in places if place < len(self.nodes)]
        return tuple(dict.fromkeys(entry for node in known for entry in node.origin))


# Graphs of so many nodes have tens of kernels.
_LARGE = 400

_lock = threading.RLock()
_plans: dict[str, Plan] = {}


def normalise(sink: UOp) -> Graph:
    """The graph under `sink`, with the key that equal graphs over other memory share."""
    nodes = list(toposort([sink]))
    leaves = [node for node in nodes if node.op is Ops.BUFFER]
    draws = [node for node in nodes if node.op is Ops.RAND]
    return Graph(nodes, leaves, draws, key_of(nodes))


def key_of(nodes: Sequence[UOp], windows: Sequence[Window] = ()) -> str:
    """The key of the graph of which `nodes` are all; it leaves out the places of `windows`."""
    places: dict[int, list[object]] = {}
    for window in windows:
        bounds = places.setdefault(window.position, list(nodes[window.position].arg))
        bounds[window.axis] = window.size
    numbers: dict[UOp, int] = {}
    leaves = draws = 0
    text: list[str] = []
    for number, node in enumerate(nodes):
        numbers[node] = number
        arg: Any = node.arg
        if node.op is Ops.BUFFER:
            arg, leaves = (leaves, arg.device, arg.size), leaves + 1
        elif node.op is Ops.RAND:
            arg, draws = (draws, arg.shape, arg.device), draws + 1
        elif number in places:
            arg = places[number]
        sources = ",".join([str(numbers[source]) for source in node.src])
        text.append(
            f"{node.op.serial} {node.dtype!r} {sources} {arg!r}"
            if arg is not None
            else f"{node.op.serial} {node.dtype!r} {sources}"
        )
    return hashlib.blake2b("\n".join(text).encode(), digest_size=20).hexdigest()


def plan_for(graph: Graph, keep: Sequence[int] = ()) -> Plan:
    """The plan of `graph`: kept in this process, on disk, or made now. Of what it stores anyway, it
    keeps what the nodes at the positions `keep` can be computed from.
    """
    devices = sorted(
        {_device(node) for node in (*graph.leaves, *graph.draws)} - {"HOST"} | {Device.DEFAULT}
    )
    key = cache.digest(
        graph.key,
        Device.DEFAULT,
        repr(devices),
        *(backend_key(Device[name]) for name in devices),
        *map(str, keep),
    )
    found = _plans.get(key)
    if found is None and is_recalled():
        found = _recall(key)
    if found is None:
        with _no_collection():
            found = _make(graph, keep)
        cache.put("plans", key, json.dumps(_fields_of(found)).encode())
    with _lock:
        return _plans.setdefault(key, found)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Graphs have no cycles: a collector that walks all nodes again and again only makes large ones
    slow.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _device(node: UOp) -> str:
    return str(node.arg.device)


def _make(graph: Graph, keep: Sequence[int]) -> Plan:
    from tilegrad.ir.op import Stage
    from tilegrad.ir.spec import verify
    from tilegrad.schedule.memory import plan_memory
    from tilegrad.schedule.schedule import make_schedule

    numbered = graph.numbered()
    if config.VERIFY:
        verify(numbered, Stage.TENSOR, "tensor")
    names = {_device(node) for node in (*graph.leaves, *graph.draws)} | {Device.DEFAULT}
    names |= {node.arg for node in graph.nodes if node.op is Ops.COPY} | {
        node.arg for node in graph.nodes if node.op is Ops.CONTIGUOUS and isinstance(node.arg, str)
    }
    targets = {name: Device[name].target for name in names}
    with _helpers(graph, names) as helpers:
        schedule = make_schedule(
            numbered, targets, Device.DEFAULT, plain=bool(config.NOOPT), keep=keep
        )
        compiled = [(item.ast, item) for item in schedule.items if item.ast is not None]
        asts = [(ast, Device[item.device]) for ast, item in compiled]
        kernels = iter(
            compile_kernels(asts, helpers, lambda place: graph.origin_of(compiled[place][1].nodes))
        )
    loops = [place for place, item in enumerate(schedule.items) if item.loop is not None]
    turns = {place: _turns(schedule, place) for place in loops}
    outputs = [*schedule.outputs, *schedule.kept.values()]
    memory = plan_memory(schedule, outputs)
    steps = []
    for place, item in enumerate(schedule.items):
        kernel = None if item.ast is None else next(kernels)
        given = () if kernel is None else _names_in_graph(kernel.variables, item)
        loop = turns.get(place)
        steps.append(Step(item.device, item.buffers, kernel, item.nodes, item.custom, given, loop))
    buffers = [
        Memory(spec.device, spec.dtype, spec.size, spec.source, memory.offsets.get(number))
        for number, spec in enumerate(schedule.buffers)
    ]
    return Plan(tuple(steps), tuple(buffers), tuple(outputs), memory.blocks, tuple(schedule.kept))


def _turns(schedule: Schedule, place: int) -> Turns:
    """The plan of a loop's step. Its temporaries get a buffer of the schedule, one per device: they
    live as long as the loop runs.
    """
    from tilegrad.schedule.schedule import BufferSpec

    item = schedule.items[place]
    loop = item.loop
    assert loop is not None
    graph = normalise(loop.body)
    plan = plan_for(graph)
    blocks: dict[str, int] = {}
    for device, size in plan.blocks.items():
        blocks[device] = len(item.buffers)
        item = replace(item, buffers=(*item.buffers, len(schedule.buffers)))
        schedule.buffers.append(BufferSpec(device, dtypes.uint8, size))
    schedule.items[place] = item
    inputs = [loop.places[-1 - leaf.arg.slot] for leaf in graph.leaves]
    return Turns(plan, loop.length, loop.is_reversed, tuple(inputs), blocks)


def _helpers(graph: Graph, devices: Iterable[str]) -> AbstractContextManager[Helpers | None]:
    """Processes to make kernels with, if the graph is large enough to have many; they begin while
    it is scheduled.
    """
    if len(graph.nodes) < _LARGE:
        return nullcontext()
    from tilegrad.engine import workers

    count = workers.count_of_helpers()
    return workers.Helpers(count, sorted(set(devices) - {"HOST"})) if count else nullcontext()


_DRAW = re.compile(r"(seed|offset)(\d+)(_low|_high|)")


def _names_in_graph(variables: Sequence[str], item: Item) -> tuple[str, ...]:
    """The names that a kernel's variables have in its graph: a kernel counts its own draws and
    windows.
    """
    names: list[str] = []
    for name in variables:
        draw, place = _DRAW.fullmatch(name), place_number(name)
        if draw is not None and int(draw[2]) < len(item.draws):
            name = f"{draw[1]}{item.draws[int(draw[2])]}{draw[3]}"
        elif place is not None and place < len(item.places):
            name = item.places[place]
        names.append(name)
    return tuple(names)


def _fields_of(plan: Plan) -> dict[str, Any]:
    steps = []
    for s in plan.steps:
        kernel = s.kernel.key if s.kernel else None
        turns = None
        if s.turns is not None:
            turns = {**vars(s.turns), "plan": _fields_of(s.turns.plan)}
        steps.append([s.device, s.buffers, kernel, s.nodes, s.is_custom, s.names, turns])
    buffers = [{**asdict(m), "dtype": m.dtype.name} for m in plan.buffers]
    return {
        "steps": steps,
        "buffers": buffers,
        "outputs": plan.outputs,
        "blocks": plan.blocks,
        "kept": plan.kept,
    }


def _recall(key: str) -> Plan | None:
    kept = cache.get("plans", key)
    if kept is None:
        return None
    return _plan_of(json.loads(kept))


def _plan_of(fields: dict[str, Any]) -> Plan | None:
    steps: list[Step] = []
    for device, buffers, kernel_key, nodes, is_custom, names, kept in fields["steps"]:
        kernel, turns = None, None
        if kernel_key is not None:
            kernel = recall_kernel(kernel_key)
            if kernel is None:
                return None
        if kept is not None:
            plan = _plan_of(kept["plan"])
            if plan is None:
                return None
            places = tuple([tuple(each) for each in kept["places"]])
            turns = Turns(plan, kept["length"], kept["is_reversed"], places, kept["blocks"])
        steps.append(
            Step(device, tuple(buffers), kernel, tuple(nodes), is_custom, tuple(names), turns)
        )
    memory = [
        Memory(m["device"], dtypes.from_name(m["dtype"]), m["size"], m["source"], m["offset"])
        for m in fields["buffers"]
    ]
    outputs, kept_values = tuple(fields["outputs"]), tuple(fields.get("kept", ()))
    return Plan(tuple(steps), tuple(memory), outputs, fields["blocks"], kept_values)
