"""The estimate of a kernel's time from static facts: generators and search order shapes by it.

Issue: every node runs once in each iteration of the loops that it needs, as vectors where the
lowering makes its unrolled axes lanes, and the sum of a vector's lanes is a tree of shuffles.
Latency: a reduce waits for its last step, and its users for its result, unless other work is in
between. Registers: accumulators without a register move to the stack and back. Memory: bytes from
each level. Pages: addresses are looked up, and lines of crowded sets waited for (traffic.py).
Launch: threads are woken and waited for.

All facts are the target's. The cycles order two shapes of one kernel; they are no forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import loads_of, loops_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.ir.vector_lanes import lane_axes
from tilegrad.optimize.analysis.accesses import access_of, open_share
from tilegrad.optimize.analysis.facts import loops_around
from tilegrad.optimize.model.traffic import Traffic
from tilegrad.optimize.opts.opt import axes_of, loop_order
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
        code: instructions of the text: those of one iteration of each loop.
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
    code: float

    @property
    def components(self) -> dict[str, float]:
        """Cycles by their cause."""
        names = ("second cache", "last cache", "memory")
        own = {"issue": self.issue, "latency": self.latency, "spill": self.spill}
        levels = dict(zip(names, self.levels, strict=True))
        return {**own, **levels, "pages": self.pages, "launch": self.launch}

    @property
    def binds(self) -> str:
        """The component that takes longest."""
        components = self.components
        return max(components, key=components.__getitem__)

    def price(self, rate: float) -> float:
        """The cycles of a launch, with `rate` for each instruction of the text."""
        return self.cycles + self.code * rate

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
class _Iteration:
    """Work of one iteration of some loops, vectors counted once.

    Attributes:
        busy: cycles of the ports that compute.
        operations, loads, stores: how many of each start.
        accumulators: of reductions that go on in the next iteration.
        operands: vectors that are loaded for several uses.
        carried: cycles until the next iteration has its operands from this one.
    """

    busy: float = 0.0
    operations: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    accumulators: float = 0.0
    operands: float = 0.0
    carried: float = 0.0

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

    def waits(self, target: Target) -> float:
        """Cycles in which nothing starts, as operands of the next iteration are not there yet."""
        return max(self.carried - self.issue(target), 0.0)


Loops = frozenset[UOp]


class _Counter:
    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target
        self.nodes = ast.toposort()
        self.loops = [loop for loop in loop_order(ast) if loop.axis not in UNROLLED]
        # A dot unit takes k neighbours at once: its lanes are k elements apart.
        self.steps = {
            load: unit.arg.k
            for unit in self.nodes
            if unit.op is Ops.WMMA and unit.arg.is_dot
            for side in unit.src[:2]
            for load in loads_of(side)
            if load.dtype is not dtypes.index
        }
        self.positions = _positions(self.nodes)
        self.fused = _fused(self.nodes) if target.has_fma else frozenset()
        self.lanes = (
            lane_axes(ast, target.lanes_of, target.gather_bytes) if target.has_vectors else {}
        )
        self.bodies: dict[Loops, _Iteration] = {}
        self.flops, self.vectors = 0, 0.0
        # Accumulators in memory: bytes, and how often all of them are added to.
        self.arrays: list[tuple[int, int]] = []
        self.depth = {loop: number for number, loop in enumerate(self.loops, 1)}
        closed = {loop for node in self.nodes if node.op is Ops.END for loop in node.src[1:]}
        self.outer = frozenset(
            loop for loop in self.loops if loop.axis is not Axis.REDUCE and loop not in closed
        )
        self.around = loops_around(self.nodes, self.loops)
        # Results of `_loops_of`: most values depend on one of few sets of ranges.
        self.loops_of: dict[Loops, Loops] = {}
        # Each chunk of a launch repeats the work that does not depend on its number.
        self.chunk = next((loop for loop in self.loops if loop.axis is Axis.THREAD), None)
        # Cycles from the last term of a reduction to its result.
        self.waits: dict[UOp, float] = {}

    def run(self) -> Estimate:
        for node in self.nodes:
            if node.op in (Ops.LOAD, Ops.STORE):
                self._access(node)
            elif node.op is Ops.REDUCE:
                self._reduce(node)
            elif node not in self.fused and (_is_arithmetic(node) or node in self.positions):
                self._operation(node, node.ranges)
        timing = self.target.timing
        issue = spilled = instructions = code = 0.0
        stalled = self._chained()
        for loops, body in self.bodies.items():
            times = _iterations(loops)
            if self.chunk is not None and self.chunk not in loops:
                times *= self.chunk.extent.vmax
            starts = body.issue(self.target)
            issue += times * (starts + (timing.loop if loops else 0.0))
            stalled += times * body.waits(self.target)
            if body.accumulators:
                vectors = body.accumulators + body.operands
                spilled += times * max(vectors - self.target.registers, 0.0) * timing.spill
            instructions += times * body.instructions
            code += body.instructions
        memory = Traffic(self.nodes, self.loops, self.target, self.around, self.lanes)
        traffic, pages = self._with_arrays(memory.levels), memory.pages()
        levels = tuple(
            nbytes * cycles for nbytes, cycles in zip(traffic, timing.byte[1:], strict=True)
        )
        compute = issue + stalled + spilled
        longest = max(compute, *levels)
        alone = longest + timing.exposed * (compute + sum(levels) - longest) + pages
        chunks = any(loop.axis is Axis.THREAD for loop in self.loops)
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
            code,
        )

    def _body(self, ranges: Loops) -> _Iteration:
        return self._body_of(ranges)[1]

    def _body_of(self, ranges: Loops) -> tuple[Loops, _Iteration]:
        """The body of the innermost of `ranges`, and the loops around it: it also runs in each
        iteration of those that it does not depend on. A reduction runs outside of them.
        """
        loops = self._loops_of(ranges)
        return loops, self.bodies.setdefault(loops, _Iteration())

    def _loops_of(self, ranges: Loops) -> Loops:
        """The loops around values that depend on `ranges`."""
        found = self.loops_of.get(ranges)
        if found is not None:
            return found
        loops = frozenset(
            loop for loop in ranges if loop.op is Ops.RANGE and loop.axis not in UNROLLED
        )
        depth = max((self.depth.get(loop, 0) for loop in loops), default=0)
        reduced = [self.around[loop] for loop in loops if loop in self.around]
        around = frozenset().union(*reduced) if reduced else self.outer
        found = self.loops_of[ranges] = loops | around.intersection(self.loops[:depth])
        return found

    def _chained(self) -> float:
        """Cycles in which results of reductions are waited for: the loops around them go on to
        another iteration as far as the processor looks ahead, and inside of one nothing else starts
        before a reduction is done.
        """
        found = 0.0
        for loops in {self._loops_of(reduce.ranges) for reduce in self.waits}:
            inside = [(own, body) for own, body in self.bodies.items() if loops <= own]
            times = [_iterations(own - loops) for own, _ in inside]
            count = sum(n * body.instructions for n, (_, body) in zip(times, inside))
            starts = sum(n * body.issue(self.target) for n, (_, body) in zip(times, inside))
            window = self.target.timing.window
            chain = self._chain(loops)
            waits = (starts + chain) / max(window / max(count, 1.0), 1.0) - starts
            if len(inside) == 1:
                # An instruction waits for the chain at most, and a window of others with it.
                waits = min(waits, chain * count / window - starts)
            found += max(waits, 0.0) * _iterations(loops)
        return found

    def _chain(self, loops: Loops) -> float:
        """The cycles of the longest chain of values that wait for one another in an iteration of
        `loops`: an op by its price as multiplies, one after the other.
        """
        timing = self.target.timing
        chain: dict[UOp, float] = {}
        for node in self.nodes:
            if not loops <= self._loops_of(node.ranges):
                continue
            own = self.waits.get(node, 0.0)
            if node.op is Ops.LOAD:
                own = timing.first_byte[0]
            elif _is_arithmetic(node) and node not in self.fused:
                own = timing.latency * node.op.definition.price
            chain[node] = own + max((chain.get(source, 0.0) for source in node.src), default=0.0)
        return max(chain.values(), default=0.0)

    def _access(self, node: UOp) -> None:
        loops, body = self._body_of(node.ranges)
        inner = max(loops, key=lambda loop: self.depth.get(loop, 0), default=None)
        found = access_of(node, self.lanes, self.target, self.steps.get(node, 1), inner)
        if node.op is Ops.LOAD:
            body.loads += found.memory
        else:
            body.stores += found.memory
        body.operations += found.operations
        body.busy += found.operations / self.target.timing.ports

    def _open_share(self, value: UOp) -> float:
        """The share of terms of a sum that are not known to be zero (lower.skip): products
        with a load, or choices.
        """
        gates = [value.src[0]] if value.op is Ops.WHERE else []
        factors = value.src if value.op is Ops.MUL else (value,)
        gates += [each.gate for each in factors if each.op is Ops.LOAD and each.is_gated]
        return min((open_share(gate, self.lanes) for gate in gates), default=1.0)

    def _operation(self, node: UOp, ranges: Loops, share: float = 1.0) -> None:
        """`share` of the unrolled copies of an operation."""
        copies, width = _copies(ranges), self._width(ranges)
        count = -(-copies // width) * share
        count *= self.target.registers_of(node.dtype.scalar, width)
        body = self._body(ranges)
        is_missing = self.target.lacks(node.op)
        body.operations += count * (node.op.definition.instructions if is_missing else 1)
        body.busy += count * self.target.cycles(node.op)
        times = _iterations(ranges) * copies
        self.flops += times
        self.vectors += times if width > 1 else 0

    def _reduce(self, node: UOp) -> None:
        """A step of a reduction, and for each result the sum of its lanes."""
        own = node.ranges.union(loops_of(node))
        share = self._open_share(node.src[0])
        self._operation(node, own, share)
        body = self._body(own)
        lane = next((axis for axis in node.src[1:] if axis in self.lanes), None)
        # Values of an iteration are combined before they are accumulated, in one vector.
        width = 1 if lane is not None else self._width(own)
        accumulators = -(-_copies(node.ranges) // width)
        body.accumulators += accumulators
        steps = -(-_copies(own) // self._width(own)) / accumulators
        latency = self.target.timing.latency
        self.waits[node] = latency * steps
        if any(loop.axis not in UNROLLED for loop in node.src[1:]):
            # Where accumulators are few, the values of an iteration are combined first.
            is_combined = steps >= 4 and accumulators < self.target.busy_accumulators
            self.waits[node] = latency * (1 if is_combined else steps)
            body.carried = max(body.carried, self.waits[node])
        body.operands = max(body.operands, self._operands(node))
        self._array(node, accumulators)
        if lane is not None:
            steps = 2 * math.log2(self.lanes[lane]) * _copies(node.ranges)
            self.waits[node] += 2 * math.log2(self.lanes[lane]) * latency
            outer = self._body(node.ranges)
            outer.operations += steps
            outer.busy += steps / self.target.timing.ports

    def _array(self, reduce: UOp, accumulators: int) -> None:
        """Where a loop of a reduction runs outside of loops over its results, these are in memory,
        and each of its iterations adds to all of them (lower.memory_accumulators).
        """
        deepest = max((self.depth.get(loop, 0) for loop in reduce.ranges), default=0)
        outer = [loop for loop in reduce.src[1:] if 0 < self.depth.get(loop, 0) < deepest]
        if not outer:
            return
        first = min(self.depth[loop] for loop in outer)
        between = [loop for loop in reduce.ranges if self.depth.get(loop, 0) > first]
        body = self._body(reduce.ranges.union(outer))
        body.loads += accumulators
        body.stores += accumulators
        body.operations += accumulators
        body.busy += accumulators / self.target.timing.ports
        size = _iterations(between) * _copies(reduce.ranges) * reduce.dtype.itemsize
        around = {loop for loop in self.loops if self.depth[loop] <= first}
        self.arrays.append((size, _iterations(around.union(outer))))

    def _with_arrays(self, traffic: tuple[int, ...]) -> tuple[int, ...]:
        """The bytes of each level with those of accumulators in memory, read and written."""
        moved = [0] * len(traffic)
        for size, times in self.arrays:
            for level in range(self.target.level_of(size)):
                moved[level] += 2 * size * times
        return tuple(map(sum, zip(traffic, moved, strict=True)))

    def _width(self, ranges: Loops) -> int:
        """Lanes of the vectors that compute values that depend on `ranges`."""
        return next((width for axis, width in self.lanes.items() if axis in ranges), 1)

    def _spread(self, cycles: float) -> float:
        """The time over chunks or lanes; a slow last chunk is waited for."""
        chunks = [loop.extent.vmax for loop in self.loops if loop.axis is Axis.THREAD]
        if chunks:
            at_once: int = max(min(chunks[0], self.target.cores), 1)
            rounds = -(-chunks[0] // at_once)
            return float(cycles * rounds / chunks[0] / self.target.timing.shared_speed)
        lanes = prod(loop.extent.vmax for loop in axes_of(self.ast) if loop.axis in _LANES)
        grid = prod(loop.extent.vmax for loop in self.loops if loop.axis is Axis.GLOBAL)
        return cycles / min(max(int(lanes), 1), 256) / min(max(int(grid), 1), 64)

    def _operands(self, reduce: UOp) -> int:
        """Vectors that a step of a reduction loads for several uses, and one that is broadcast."""
        found = 1
        own = reduce.src[0].ranges
        # Straight code begins with the loads of all steps.
        is_straight = all(loop.axis in UNROLLED for loop in reduce.src[1:])
        for load in reduce.src[0].toposort():
            ranges = load.index.ranges if load.op is Ops.LOAD else frozenset()
            # Loads of copies are done before.
            if not self.lanes.keys().isdisjoint(ranges) and ranges <= own:
                vectors = -(-_copies(ranges) // self._width(ranges))
                is_shared = any(axis.axis in UNROLLED for axis in reduce.ranges - ranges)
                found += vectors if is_straight and is_shared else min(vectors, 4)
        return found


def _iterations(ranges: Iterable[UOp]) -> int:
    """How often the loops of `ranges` run their body."""
    extents = (loop.extent.vmax for loop in ranges if loop.axis not in UNROLLED)
    return int(prod(extents))


def _copies(ranges: Iterable[UOp]) -> int:
    """Unrolled copies in one iteration."""
    return trips_of(axis for axis in ranges if axis.axis in UNROLLED)


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


def _fused(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """Products that are added up: the sum takes both in one instruction."""
    return frozenset(
        node.src[0]
        for node in nodes
        if node.op is Ops.REDUCE and node.arg is Ops.ADD and node.dtype.is_float
        if node.src[0].op is Ops.MUL
    )


def _is_arithmetic(node: UOp) -> bool:
    is_value = node.op.is_alu or node.op is Ops.PREFIX
    return is_value and node.dtype.scalar not in (dtypes.index, dtypes.bool)
