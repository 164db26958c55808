"""The estimate of a kernel's time from static facts: generators and search order shapes by it.

Issue: every node runs once in each iteration of the loops that it needs, as vectors where the
lowering makes its unrolled axes lanes, and the sum of a vector's lanes is a tree of shuffles.
Latency: a reduce waits for its last step, unless other work is in between. Registers: accumulators
without a register move to the stack and back. Memory: bytes from each level. Pages:
addresses are looked up, and lines of crowded sets waited for (traffic.py). Launch: threads are
woken and waited for.

All facts are the target's. The cycles order two shapes of one kernel; they are no forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tilegrad.base.dtype import dtypes
from tilegrad.ir.lanes import lane_axes
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.accesses import access_of
from tilegrad.optimize.opt import axes_of, loop_order
from tilegrad.optimize.traffic import Traffic
from tilegrad.target import Target

__all__ = ["Estimate", "estimate"]

_LANES = (Axis.LOCAL, Axis.GROUP)


@dataclass(frozen=True)
class Estimate:
    """A kernel's time in cycles, and its components as one thread would take them.

    Attributes:
        flops: operations on values.
        instructions: of these and of loads and stores, vectors counted once.
        vector_use: the share of operations done by whole vectors, from 0 to 1.
        traffic: bytes from the second cache, the last, and memory.
        registers: vectors that the innermost loop needs at the same time.
        issue: cycles in which operations, loads and stores start, and of loops.
        latency: cycles in which reductions wait for their last step.
        spill: cycles for values that move to the stack.
        levels: cycles for the bytes of `traffic`.
        pages: cycles for addresses of pages, and for crowded sets of the nearest cache.
        launch: cycles to hand chunks to threads.
        cycles: all of it, over all threads.
    """

    flops: int
    instructions: int
    vector_use: float
    traffic: tuple[int, ...]
    registers: int
    issue: float
    latency: float
    spill: float
    levels: tuple[float, ...]
    pages: float
    launch: float
    cycles: float

    @property
    def components(self) -> dict[str, float]:
        """Cycles by what takes them."""
        names = ("second cache", "last cache", "memory")
        own = {"issue": self.issue, "latency": self.latency, "spill": self.spill}
        levels = dict(zip(names, self.levels, strict=True))
        return {**own, **levels, "pages": self.pages, "launch": self.launch}

    @property
    def binds(self) -> str:
        """The component that takes longest."""
        components = self.components
        return max(components, key=components.__getitem__)

    def __str__(self) -> str:
        components = sorted(self.components.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {cycles:,.0f}" for name, cycles in components if cycles >= 1)
        return f"{self.cycles:,.0f} cycles: {shown}"


def estimate(ast: UOp, target: Target) -> Estimate:
    """The estimate for a kernel graph after its Opts.

    >>> from tilegrad.base.dtype import dtypes
    >>> from tilegrad.ir import Axis, UOp
    >>> from tilegrad.ir.op import Ops
    >>> from tilegrad.ir.args import KernelInfo
    >>> from tilegrad.target import Target
    >>> i = UOp.range(UOp.const(dtypes.index, 1024), 0, Axis.LOOP)
    >>> a, b = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1024), (), slot) for slot in (0, 1))
    >>> ast = UOp(Ops.SINK, arg=KernelInfo("E", (0,)), src=(a.store(i, b.load(i) * 2.0),))
    >>> found = estimate(ast, Target("cpu", vector_bytes=32))
    >>> found.flops, found.vector_use
    (1024, 0.0)
    """
    return _Counter(ast, target).run()


@dataclass
class _Body:
    """What one iteration of some loops does, vectors counted once.

    Attributes:
        busy: cycles of the ports that compute.
        operations, loads, stores: how many of each start.
        accumulators: of reductions that go on in the next iteration.
        operands: vectors that are loaded for several uses.
    """

    busy: float = 0.0
    operations: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    accumulators: float = 0.0
    operands: float = 0.0

    @property
    def instructions(self) -> float:
        return self.operations + self.loads + self.stores

    def issue(self, target: Target) -> float:
        """Cycles in which all of it starts."""
        timing = target.timing
        return max(
            self.busy,
            self.loads / timing.load_ports,
            self.stores / timing.store_ports,
            self.instructions / timing.width,
        )


Loops = frozenset[UOp]


class _Counter:
    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target
        self.nodes = ast.toposort()
        self.loops = [loop for loop in loop_order(ast) if loop.arg[1] not in UNROLLED]
        # A dot unit takes k neighbours at once: its lanes are k elements apart.
        self.steps = {
            load: unit.arg.k
            for unit in self.nodes
            if unit.op is Ops.WMMA and unit.arg.is_dot
            for side in unit.src[:2]
            for load in side.toposort()
            if load.op is Ops.LOAD and load.dtype is not dtypes.index
        }
        self.positions = _positions(self.nodes)
        self.lanes = (
            lane_axes(ast, target.lanes_of, target.gather_bytes) if target.has_vectors else {}
        )
        self.bodies: dict[Loops, _Body] = {}
        self.flops, self.vectors = 0, 0.0

    def run(self) -> Estimate:
        for node in self.nodes:
            if node.op in (Ops.LOAD, Ops.STORE):
                self._access(node)
            elif node.op is Ops.REDUCE:
                self._reduce(node)
            elif _is_arithmetic(node) or node in self.positions:
                self._operation(node, node.ranges)
        timing = self.target.timing
        issue = stalled = spilled = instructions = 0.0
        for loops, body in self.bodies.items():
            times = _iterations(loops)
            starts = body.issue(self.target)
            issue += times * (starts + (timing.loop if loops else 0.0))
            if body.accumulators:
                # An iteration waits for the steps of reductions before.
                stalled += times * max(timing.latency - starts, 0.0)
                vectors = body.accumulators + body.operands
                spilled += times * max(vectors - self.target.registers, 0.0) * timing.spill
            instructions += times * body.instructions
        unrolled = [axis for axis in axes_of(self.ast) if axis.arg[1] in UNROLLED]
        memory = Traffic(self.nodes, self.loops, unrolled, self.target)
        traffic, pages = memory.levels(), memory.pages()
        levels = tuple(
            nbytes * cycles for nbytes, cycles in zip(traffic, timing.byte[1:], strict=True)
        )
        compute = issue + stalled + spilled
        longest = max(compute, *levels)
        alone = longest + timing.exposed * (compute + sum(levels) - longest) + pages
        chunks = any(loop.arg[1] is Axis.THREAD for loop in self.loops)
        launch = float(timing.launch) if chunks else 0.0
        return Estimate(
            self.flops,
            int(instructions),
            self.vectors / self.flops if self.flops else 0.0,
            traffic,
            int(
                max((body.accumulators + body.operands for body in self.bodies.values()), default=0)
            ),
            issue,
            stalled,
            spilled,
            levels,
            pages,
            launch,
            self._spread(alone) + launch,
        )

    def _body(self, ranges: Loops) -> _Body:
        loops = frozenset(
            loop for loop in ranges if loop.op is Ops.RANGE and loop.arg[1] not in UNROLLED
        )
        return self.bodies.setdefault(loops, _Body())

    def _access(self, node: UOp) -> None:
        found = access_of(node, self.lanes, self.target, self.steps.get(node, 1))
        body = self._body(node.ranges)
        if node.op is Ops.LOAD:
            body.loads += found.memory
        else:
            body.stores += found.memory
        body.operations += found.operations
        body.busy += found.operations / self.target.timing.ports

    def _operation(self, node: UOp, ranges: Loops) -> None:
        copies, width = _copies(ranges), self._width(ranges)
        count = -(-copies // width)
        body = self._body(ranges)
        body.operations += count
        body.busy += count * self.target.cycles(node.op)
        times = _iterations(ranges) * copies
        self.flops += times
        self.vectors += times if width > 1 else 0

    def _reduce(self, node: UOp) -> None:
        """A step of a reduction, and for each result the sum of its lanes."""
        own = node.ranges | frozenset(loop for loop in node.src[1:] if loop.op is Ops.RANGE)
        self._operation(node, own)
        body = self._body(own)
        lane = next((axis for axis in node.src[1:] if axis in self.lanes), None)
        # Unrolled values that are no lanes are added up before they are accumulated.
        results = node.ranges | (frozenset([lane]) if lane is not None else frozenset())
        accumulators = -(-_copies(results) // self._width(own))
        body.accumulators += accumulators
        body.operands = max(body.operands, self._operands(node))
        if lane is not None:
            steps = 2 * math.log2(self.lanes[lane]) * _copies(node.ranges)
            outer = self._body(node.ranges)
            outer.operations += steps
            outer.busy += steps / self.target.timing.ports

    def _width(self, ranges: Loops) -> int:
        """Lanes of the vectors that compute what depends on `ranges`."""
        return next((width for axis, width in self.lanes.items() if axis in ranges), 1)

    def _spread(self, cycles: float) -> float:
        """The time over chunks or lanes; a slow last chunk is waited for."""
        chunks = [loop.src[0].vmax for loop in self.loops if loop.arg[1] is Axis.THREAD]
        if chunks:
            at_once: int = max(min(chunks[0], self.target.cores), 1)
            rounds = -(-chunks[0] // at_once)
            return float(cycles * rounds / chunks[0] / self.target.timing.shared_speed)
        lanes = prod(loop.src[0].vmax for loop in axes_of(self.ast) if loop.arg[1] in _LANES)
        grid = prod(loop.src[0].vmax for loop in self.loops if loop.arg[1] is Axis.GLOBAL)
        return cycles / min(max(int(lanes), 1), 256) / min(max(int(grid), 1), 64)

    def _operands(self, reduce: UOp) -> int:
        """Vectors that a step of a reduction loads for several uses, and one that is broadcast."""
        found = 1
        for load in reduce.src[0].toposort():
            if load.op is Ops.LOAD and not self.lanes.keys().isdisjoint(load.src[1].ranges):
                memory = access_of(load, self.lanes, self.target, self.steps.get(load, 1)).memory
                found += int(min(memory, 4))
        return found


def _iterations(ranges: Iterable[UOp]) -> int:
    """How often the loops of `ranges` run their body."""
    extents = (loop.src[0].vmax for loop in ranges if loop.arg[1] not in UNROLLED)
    return int(prod(extents))


def _copies(ranges: Iterable[UOp]) -> int:
    """Unrolled copies in one iteration."""
    return int(prod(axis.src[0].vmax for axis in ranges if axis.arg[1] in UNROLLED))


def _positions(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """Arithmetic on positions that depends on loaded values: no loop computes it step by step."""
    found: set[UOp] = set()
    loaded: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.LOAD or any(source in loaded for source in node.src):
            loaded.add(node)
        if node.op.is_alu and any(source in loaded for source in node.src):
            sides = (node.dtype, *(source.dtype for source in node.src))
            if dtypes.index in sides or any(source in found for source in node.src):
                found.add(node)
    return frozenset(found)


def _is_arithmetic(node: UOp) -> bool:
    is_value = node.op.is_alu or node.op is Ops.PREFIX
    return is_value and node.dtype.scalar not in (dtypes.index, dtypes.bool)
