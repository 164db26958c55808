"""The estimate of a kernel's time from static facts: generators and search order shapes by it.

Issue: every node runs once in each iteration of the loops that it needs, as vectors where its
unrolled axes run as lanes, one element at a time where memory does not allow that. Latency: a
reduce waits for its last step, unless other accumulators are in between. Registers: accumulators
without a register move to the stack and back. Memory: what the loops inside some depth touch
is loaded once if it fits a cache, so the deepest loops that fit decide how much comes from the
level beyond. Pages: addresses are looked up, and lines of crowded sets waited for (pages.py).
Launch: threads are woken and waited for.

All facts are the target's. The cycles order two shapes of one kernel; they are no forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import position_bytes, stride_of
from tilegrad.ir.uop import UOp, element_of, prod
from tilegrad.optimize.opt import axes_of, loop_order
from tilegrad.optimize.pages import page_cycles
from tilegrad.target import Target

__all__ = ["Estimate", "estimate"]

_UNROLLED = (Axis.UPCAST, Axis.UNROLL)
_LANES = (Axis.LOCAL, Axis.GROUP)
# Tuning, worth shown by `bench/corpus.py --candidates`, family convolutions.
# Largest stride, in elements, of loads that become shuffles of vectors (lower.shuffled_loads).
_PICKED = 4


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


class _Counter:
    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target
        self.nodes = ast.toposort()
        self.loops = [loop for loop in loop_order(ast) if loop.arg[1] not in _UNROLLED]
        self.depth_of = {loop: depth for depth, loop in enumerate(self.loops)}
        self.accesses = [node for node in self.nodes if node.op in (Ops.LOAD, Ops.STORE)]
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
        self.lanes = self._lane_axes()
        self.most = {
            axis: target.gather_bytes // max(sizes)
            for axis in self.lanes
            if target.gather_bytes and (sizes := position_bytes(ast, axis))
        }
        closed = {loop for node in self.nodes if node.op is Ops.END for loop in node.src[1:]}
        # Loops around the whole kernel; accesses in a loop nest that fills scratch.
        self.outer = frozenset(
            loop for loop in self.loops if loop not in closed and loop.arg[1] is not Axis.REDUCE
        )
        self.nested = frozenset(node for node in self.accesses if closed & node.ranges)

    def run(self) -> Estimate:
        timing = self.target.timing
        flops, instructions, vectors = 0, 0.0, 0.0
        busy = moved = stalled = 0.0
        live = 0
        trips = 0.0
        for node in self.nodes:
            if node.op in (Ops.LOAD, Ops.STORE):
                count = self._steps(node) * self._moves(node)
                instructions += count
                trips = max(trips, self._steps(node))
                moved += count / (timing.store_ports if node.op is Ops.STORE else timing.load_ports)
                continue
            if not (node.op is Ops.REDUCE or _is_arithmetic(node) or node in self.positions):
                continue
            ranges = node.ranges | frozenset(node.src[1:] if node.op is Ops.REDUCE else ())
            steps, copies = _split(ranges)
            width = self._width(node, copies)
            count = steps * -(-copies // width)
            flops += steps * copies
            instructions += count
            vectors += steps * copies if width > 1 else 0
            busy += count * self.target.cycles(node.op)
            trips = max(trips, steps)
            if node.op is Ops.REDUCE:
                # Unrolled values that are no lanes are added up before they are accumulated.
                own = node.ranges | (self.lanes & frozenset(node.src[1:]))
                accumulators = -(-_split(own)[1] // width)
                stalled += steps * max(timing.latency - accumulators / timing.ports, 0.0)
                live = max(live, accumulators + self._operands(node))
        spilled = max(live - self.target.registers, 0) * self.target.timing.spill * trips
        issue = max(busy, moved) + trips * timing.loop
        compute = issue + stalled + spilled
        traffic = self._traffic()
        levels = tuple(
            nbytes * cycles for nbytes, cycles in zip(traffic, timing.byte[1:], strict=True)
        )
        longest = max(compute, *levels)
        unrolled = [axis for axis in axes_of(self.ast) if axis.arg[1] in _UNROLLED]
        pages = page_cycles(self.accesses, self.loops, unrolled, self.target)
        alone = longest + self.target.timing.exposed * (compute + sum(levels) - longest) + pages
        chunks = any(loop.arg[1] is Axis.THREAD for loop in self.loops)
        launch = float(timing.launch) if chunks else 0.0
        return Estimate(
            flops,
            int(instructions),
            vectors / flops if flops else 0.0,
            traffic,
            live,
            issue,
            stalled,
            spilled,
            levels,
            pages,
            launch,
            self._spread(alone) + launch,
        )

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

    # lanes

    def _lane_axes(self) -> frozenset[UOp]:
        """Unrolled axes that run as lanes: memory is contiguous along them more often than not, and
        no access moves with two of them.
        """
        if not self.target.has_vectors:
            return frozenset()
        score: dict[UOp, float] = {}
        for node in self.accesses:
            depth = sum(loop.arg[1] is Axis.REDUCE for loop in node.ranges)
            for axis in node.src[1].ranges:
                if axis.arg[1] in _UNROLLED:
                    if stride_of(node.src[1], axis) == self.steps.get(node, 1):
                        gain = 1.5 if node.op is Ops.STORE else 1.0
                    else:
                        # A tile with vectors along its other axis is transposed in registers.
                        gain = -0.25 if _has_vectors(node.src[1]) else -1.5
                    score[axis] = score.get(axis, 0.0) + gain * 8 ** min(depth, 3)
        most = min(self.target.lanes_of(node.dtype.scalar) for node in self.accesses if node.src)
        # A vector half as wide is worth half.
        worth = {axis: score[axis] * _power(axis, most) for axis in score}
        chosen: list[UOp] = []
        for axis in sorted(score, key=lambda axis: (-worth[axis], axis.arg[0])):
            if worth[axis] > score[axis] > 0 and not any(
                axis in node.ranges and other in node.ranges
                for other in chosen
                for node in self.accesses
            ):
                chosen.append(axis)
        return frozenset(chosen)

    def _width(self, node: UOp, copies: int) -> int:
        """Lanes of the vectors that compute `node`."""
        own = node.ranges | frozenset(node.src[1:] if node.op is Ops.REDUCE else ())
        values = node.src[0] if node.dtype.scalar is dtypes.bool and node.src else node
        most = self.target.lanes_of(values.dtype.scalar)
        return max((self._lanes_of(axis, most) for axis in self.lanes & own), default=1)

    def _lanes_of(self, axis: UOp, most: int) -> int:
        """Lanes along an axis, of at most `most`: fewer where they hold positions of loads."""
        return _power(axis, min(most, self.most.get(axis, most)))

    def _moves(self, node: UOp) -> float:
        """Loads or stores in one step: whole vectors along a lane, single elements elsewhere."""
        index, step = node.src[1], self.steps.get(node, 1)
        axes = [axis for axis in index.ranges if axis.arg[1] in _UNROLLED]
        count = float(prod(axis.src[0].vmax for axis in axes))
        lanes, contiguous = [axis for axis in axes if axis in self.lanes], []
        if lanes:
            most = self.target.lanes_of(
                node.dtype.scalar if node.op is Ops.LOAD else node.src[2].dtype
            )
            contiguous = [
                self._lanes_of(axis, most) for axis in lanes if stride_of(index, axis) == step
            ]
            across = [_power(axis, most) for axis in axes if stride_of(index, axis) == 1]
            if contiguous:
                count /= max(contiguous)
            elif max(across, default=1) > 1:
                # Vectors along the other axis, transposed in registers.
                width = max(across)
                count *= (1 + math.log2(width)) / width
            else:
                apart = min(abs(stride_of(index, axis) or _PICKED + 1) for axis in lanes)
                width = max(_power(axis, most) for axis in lanes)
                if node.op is Ops.LOAD and len(node.src) == 2 and apart <= _PICKED < width:
                    count *= (apart + 1) / width
                else:
                    # A lane that is not contiguous is loaded alone and inserted.
                    count *= 2
        return count * self._gate(node, is_alone=bool(lanes) and not contiguous)

    def _gate(self, node: UOp, *, is_alone: bool) -> float:
        """The factor that a gate puts on the cost of a load; `is_alone` where lanes are loaded one
        by one.
        """
        if len(node.src) < 4:
            return 1.0
        compared = [each for each in node.src[3].toposort() if each.op.is_boolean]
        # Comparisons of an axis that is unrolled as a whole are constants.
        asks_lanes = any(
            each.ranges & self.lanes and any(axis.arg[1] not in _UNROLLED for axis in each.ranges)
            for each in compared
        )
        if asks_lanes and (is_alone or not self.target.has_mask):
            return self.target.timing.branch
        return 1.5

    def _operands(self, reduce: UOp) -> int:
        """Vectors that a step of a reduction loads for several uses, and one that is broadcast."""
        found = 1
        for load in reduce.src[0].toposort():
            if load.op is Ops.LOAD and self.lanes & load.src[1].ranges:
                found += int(min(self._moves(load), 4))
        return found

    # memory

    def _steps(self, node: UOp) -> float:
        return float(_split(node.ranges)[0])

    def _traffic(self) -> tuple[int, ...]:
        """Bytes from the second cache, the last, and memory."""
        caches = self.target.cache_bytes
        levels = [caches[0], caches[min(1, len(caches) - 1)], caches[-1]] if caches else [0, 0, 0]
        nearer = [self._from_beyond(size // 2) for size in levels]
        # A kernel whose memory fits the last cache finds it there.
        if self._together(0) <= levels[-1] // 2:
            nearer[-1] = 0
        return tuple(nearer)

    def _from_beyond(self, size: int) -> int:
        """Bytes that a cache of `size` has to fetch."""
        depth = 0
        while depth < len(self.loops) and self._together(depth) > size:
            depth += 1
        total = 0
        for node in self.accesses:
            reach = self._reach(node, depth)
            if node.src[0].op is not Ops.DEFINE_GLOBAL and depth == 0:
                continue
            outside = [
                loop
                for loop in self.loops[:depth]
                if loop in node.ranges or (loop in self.outer and node not in self.nested)
            ]
            # Memory that the loops just outside do not move is still there in their next iteration.
            while outside and outside[-1] not in node.ranges and reach <= size // 2:
                outside.pop()
            total += reach * int(prod(loop.src[0].vmax for loop in outside))
        return total

    def _together(self, depth: int) -> int:
        return sum(self._reach(node, depth) for node in self.accesses)

    def _reach(self, node: UOp, depth: int) -> int:
        """Bytes that an access touches in the loops from `depth` inward, by whole cache lines."""
        index, element = node.src[1], element_of(_memory(node)).itemsize
        inner = [loop for loop in index.ranges if self.depth_of.get(loop, depth) >= depth]
        count = int(prod(loop.src[0].vmax for loop in inner))
        run = int(prod(loop.src[0].vmax for loop in inner if stride_of(index, loop) == 1))
        nbytes = count * element
        # The loop just outside goes along the lines that are here already.
        is_next = depth > 0 and stride_of(index, self.loops[depth - 1]) == 1
        if run * element < self.target.line_bytes and not is_next:
            nbytes = count // run * self.target.line_bytes
        whole = getattr(_memory(node).dtype, "size", -1) * element
        return min(nbytes, whole) if whole > 0 else nbytes


def _has_vectors(index: UOp) -> bool:
    """Whether neighbours in memory are unrolled along some axis."""
    return any(
        axis.arg[1] in _UNROLLED and axis.src[0].vmax > 1 and stride_of(index, axis) == 1
        for axis in index.ranges
    )


def _power(axis: UOp, most: int) -> int:
    """Lanes along an unrolled axis: the largest power of two that divides it."""
    width = 1
    while width * 2 <= most and axis.src[0].arg % (2 * width) == 0:
        width *= 2
    return width


def _memory(access: UOp) -> UOp:
    pointer = access.src[0]
    return pointer.src[0] if pointer.op is Ops.AFTER else pointer


def _split(ranges: frozenset[UOp] | Sequence[UOp]) -> tuple[int, int]:
    """(iterations of loops, unrolled copies) of a node in `ranges`."""
    axes = [loop for loop in ranges if loop.op is Ops.RANGE]
    loops = prod(loop.src[0].vmax for loop in axes if loop.arg[1] not in _UNROLLED)
    copies = prod(loop.src[0].vmax for loop in axes if loop.arg[1] in _UNROLLED)
    return int(loops), int(copies)


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
