"""Counts of a GPU kernel without a GPU: `python -m tilegrad gpu-report FILE`.

The emulator runs some blocks of a kernel and watches its memory. A *request* is what one warp asks
of memory with one instruction. Global memory answers in sectors of 32 bytes, shared memory through
32 banks of 4 bytes, which take one word each at a time (CUDA C++ Programming Guide, sections on
device memory accesses and shared memory). Where NVIDIA's compiler is installed, it says what it
made of the text: registers, spills, and the instructions of the innermost loop.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.base.config import Context
from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.compile import nvrtc
from tilegrad.compile.ptxas import find_ptxas
from tilegrad.device.nv import nv_target
from tilegrad.hardware import cuda_target
from tilegrad.ir.args import TileMap
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import copied_of, memory_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.render.cuda import CUDARenderer
from tilegrad.render.names import function_name
from tilegrad.render.ptx import PTXRenderer
from tilegrad.render.ptx_one_lane import loops_of_one_lane
from tilegrad.render.ptx_wgmma import needless
from tilegrad.render.python import render_python
from tilegrad.render.tile_maps import blocks_together
from tilegrad.runtime.protocol import launch_dims, variable_names
from tilegrad.runtime.simt import SimtLaunch, SimtProgram
from tilegrad.runtime.simt_memory import CopyGroup, Memory, rows_of_box
from tilegrad.target import MatrixUnit
from tilegrad.tools.gpu_counts import SECTOR, WARP, Counts
from tilegrad.tools.gpu_listings import assembled, compiled
from tilegrad.tools.gpu_time import RATES, predicted
from tilegrad.tools.show import run_recorded

__all__ = ["count", "instructions", "report"]

BANKS, WORD = 32, 4
# Iterations of one lane's innermost loops: more would take Python minutes.
_MOST_ITERATIONS = 200_000
# Instructions that `ptxas` makes of the rounding of an operand of a unit with short fractions.
_OF_ROUNDING = 2


class _Watcher:
    """Requests of every warp: accesses of one instruction in one of its visits."""

    def __init__(self, sizes: Mapping[str, int], units: Mapping[str, MatrixUnit]):
        """`sizes` are the bytes of an element, by the memory's name; `units` read the memory by
        themselves.
        """
        self.sizes, self.units = sizes, units
        self.visits: Counter[tuple[Any, ...]] = Counter()
        self.requests: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
        # Bytes of shared memory that matrix units read by themselves: whole rows of all banks.
        self.unit_bytes = 0

    def watch(self, launch: SimtLaunch, memory: Memory) -> Any:
        return _Watched(self, launch, memory, self.sizes[memory.name])

    def note(self, launch: SimtLaunch, memory: str, index: int, size: int, nbytes: int) -> None:
        line = sys._getframe(3).f_lineno
        visited = (memory, line, launch.block, launch.lane)
        visit = self.visits[visited] = self.visits[visited] + 1
        request = (memory, line, launch.block, launch.lane // WARP, visit)
        self.requests[request].append((launch.lane, index * size, nbytes))


class _Watched:
    """A memory whose accesses are noted."""

    def __init__(self, watcher: _Watcher, launch: SimtLaunch, memory: Memory, size: int):
        self.watcher, self.launch, self.memory, self.size = watcher, launch, memory, size
        self.unit = watcher.units.get(memory.name)

    def note(self, index: int, count: int) -> None:
        index = self.unit.swizzled(index) if self.unit else index
        self.watcher.note(self.launch, self.memory.name, index, self.size, count * self.size)

    def read(self, index: int) -> Any:
        self.note(index, 1)
        return self.memory.read(index)

    def read_vector(self, index: int, count: int) -> Any:
        self.note(index, count)
        return self.memory.read_vector(index, count)

    def read_for_unit(self, index: int, count: int) -> Any:
        self.watcher.unit_bytes += count * self.size
        return self.memory.read_for_unit(index, count)  # type: ignore[attr-defined]

    def end_reads(self, but: int = 0) -> None:
        self.memory.end_reads(but)  # type: ignore[attr-defined]

    def write(self, index: int, value: Any) -> None:
        self.note(index, 1)
        self.memory.write(index, value)

    def write_vector(self, index: int, values: Sequence[Any]) -> None:
        self.note(index, len(values))
        self.memory.write_vector(index, values)

    def copy(self, index: int, values: Sequence[Any]) -> None:
        self.note(index, len(values))
        self.memory.copy(index, values)  # type: ignore[attr-defined]

    def read_box(self, matrix: TileMap, begin: Sequence[int]) -> Any:
        """Each row is a request of its own."""
        for index, count in rows_of_box(matrix, begin):
            if count:
                self.note(index, count)
        return self.memory.read_box(matrix, begin)

    def copy_in(self, group: CopyGroup, index: int, values: Sequence[Any]) -> None:
        # Whole rows of all banks, as units read them.
        self.watcher.unit_bytes += len(values) * self.size
        self.memory.copy_in(group, index, values)  # type: ignore[attr-defined]

    @property
    def peers(self) -> Sequence[_Watched]:
        """The same array of each block of the cluster."""
        found = self.memory.peers  # type: ignore[attr-defined]
        return [_Watched(self.watcher, self.launch, memory, self.size) for memory in found]

    def land(self, but: int = 0) -> None:
        self.memory.land(but)  # type: ignore[attr-defined]

    def combine(self, index: int, change: Any) -> None:
        self.note(index, 1)
        self.memory.combine(index, change)


def count(program: Sequence[UOp], blocks: int = 0) -> Counts:
    """Run the first `blocks` blocks of a program on zeros, all for 0, and count.

    Raises ConfigError for a program whose sizes are known at its launch only, or whose loops are
    too long to be run here.
    """
    if variable_names(program):
        raise ConfigError("gpu-report: sizes that only a launch knows cannot be counted")
    kinds = instructions(program)
    if sum(kinds.values()) > _MOST_ITERATIONS:
        raise ConfigError(
            f"gpu-report: {sum(kinds.values())} instructions a lane are too many to be run here",
            limit=_MOST_ITERATIONS,
            remedy="a smaller size along the reduction has the same accesses",
        )
    dims, together = launch_dims(program), blocks_together(program)
    x, y, z = dims.global_size
    # Whole clusters.
    blocks = -(-blocks // together) * together
    grid = (x, y, z) if not blocks or blocks >= x * y * z else (min(blocks, x), 1, 1)
    found = Counts(
        (grid[0] * grid[1] * grid[2], x * y * z),
        instructions=kinds,
        lanes=math.prod(dims.local_size),
        unit_products=_unit_products(program),
        copies=_copies(program) + _rows_in_flight(program, math.prod(dims.local_size)),
    )
    memories, sizes = _memories(program)
    units = {
        f"shared{memory_of(source.src[1]).arg}": node.arg
        for node in program
        if node.op is Ops.WMMA
        for source in node.src[:2]
        if source.op is Ops.DESCRIPTOR
    }
    watcher = _Watcher(sizes, units)
    found.buffer_bytes = sum(memory.nbytes for memory in memories)
    emulated = SimtProgram("kernel", render_python("kernel", program))
    emulated.run(memories, [], grid, dims.local_size, watcher.watch)
    touched = _add_up(watcher, found)
    found.grid = (x, y, z)
    axes = _grid_axes(program)
    found.strips = {
        memory: (own, len(bytes_) // math.prod(grid[axis] for axis in own))
        for memory, bytes_ in touched.items()
        for own in [axes.get(memory, frozenset())]
    }
    return found


def _unit_products(program: Sequence[UOp]) -> float:
    """Multiply-adds of a warp by one matrix instruction, in the mean of those that a lane has, in
    units of 16-bit products: those of bytes count half, as a unit does twice as many in a time, and
    those of float32 with short fractions twice.
    """
    found, times, count = 0.0, [1], 0
    for node in program:
        if node.op is Ops.RANGE:
            times.append(times[-1] * (node.vmax + 1))
        elif node.op is Ops.END:
            del times[-sum(source.op is Ops.RANGE for source in node.src) :]
        elif node.op is Ops.WMMA:
            unit: MatrixUnit = node.arg
            products = unit.m * unit.n * unit.k * WARP / unit.lanes
            found += times[-1] * products * unit.dtype_in.itemsize / 2
            count += times[-1]
    return found / count if count else Counts.unit_products


def _copies(program: Sequence[UOp]) -> int:
    """Copies that a lane has begun and need not have landed when it goes on behind a WAIT and
    begins the next ones: those of the groups that WAIT leaves, and of one more.
    """
    groups, group, between = 1, 0, 0
    for node in program:
        if node.op is Ops.WAIT and node.dtype is dtypes.void:
            groups, group, between = max(groups, 1 + (node.arg or 0)), max(group, between), 0
        between += node.op is Ops.COPY_ASYNC
    return groups * max(group, between)


def _rows_in_flight(program: Sequence[UOp], lanes: int) -> int:
    """Rows of boxes that go on at the same time (COPY_TILE), of a block, for each of its warps:
    those of all tiles but one.
    """
    tiles = {
        node.src[0]: memory.dtype.size
        for node in program
        if node.op is Ops.ARRIVE and isinstance((memory := memory_of(node.src[0])).dtype, Pointer)
    }
    rows: Counter[UOp] = Counter()
    for node in program:
        if node.op is Ops.COPY_TILE:
            rows[node.src[3]] += math.prod(node.arg.box[1:])
    most = max(rows.values(), default=0) * (max(tiles.values(), default=1) - 1)
    return -(-most * WARP // lanes)


def _grid_axes(program: Sequence[UOp]) -> dict[str, frozenset[int]]:
    """The axes of the grid that accesses of each global memory depend on."""
    found: dict[str, frozenset[int]] = {}
    together = blocks_together(program)
    for node in UOp.sink(*program).toposort():
        if node.op in (Ops.LOAD, Ops.STORE, Ops.COPY_TILE):
            is_box = node.op is Ops.COPY_TILE
            memory, index = copied_of(node) if is_box else (memory_of(node.src[0]), (node.index,))
            if memory.op is Ops.DEFINE_GLOBAL:
                nodes = UOp.sink(*index).toposort()
                names = {each.name for each in nodes if each.op is Ops.SPECIAL}
                if is_box and together > 1 and "gidx0" in names and _is_of_cluster(index, together):
                    names.discard("gidx0")
                axes = frozenset(axis for axis in range(3) if f"gidx{axis}" in names)
                name = f"data{memory.arg}"
                found[name] = found.get(name, frozenset()) | axes
    return found


def _is_of_cluster(index: Sequence[UOp], blocks: int) -> bool:
    """Whether an index says of the first axis of the launch only which block of its cluster it is:
    it is the same for the first block of each.
    """
    specials = [each for each in UOp.sink(*index).toposort() if each.op is Ops.SPECIAL]
    (axis,) = (each for each in specials if each.name == "gidx0")
    made = {
        tuple(simplify(each.substitute({axis: UOp.const(axis.dtype, at)})) for each in index)
        for at in range(0, axis.vmax + 1, blocks)
    }
    return len(made) == 1


def _memories(program: Sequence[UOp]) -> tuple[list[memoryview], dict[str, int]]:
    """Zeros for each slot, and the bytes of an element of each memory, by its name."""
    sizes: dict[str, int] = {}
    found: dict[int, memoryview] = {}
    for node in program:
        pointer = node.dtype
        if not isinstance(pointer, Pointer):
            continue
        if node.op is Ops.DEFINE_GLOBAL:
            found[node.arg] = memoryview(bytearray(pointer.size * pointer.base.nbytes))
            sizes[f"data{node.arg}"] = pointer.base.itemsize
        elif node.op is Ops.DEFINE_LOCAL and pointer.space is AddressSpace.SHARED:
            sizes[f"shared{node.arg}"] = pointer.base.itemsize
    slots = range(max(found, default=-1) + 1)
    return [found.get(slot, memoryview(b"")) for slot in slots], sizes


def _add_up(watcher: _Watcher, found: Counts) -> Mapping[str, set[int]]:
    """Add the requests to `found`; the bytes that each global memory was touched at."""
    touched: dict[str, set[int]] = defaultdict(set)
    for (memory, *_), accesses in watcher.requests.items():
        if memory.startswith("shared"):
            found.shared_requests += 1
            found.conflicts += conflicts(accesses)
            continue
        asked = {at for _, start, nbytes in accesses for at in range(start, start + nbytes)}
        found.requests += 1
        found.sectors += len({at // SECTOR for at in asked})
        found.used_bytes += len(asked)
        touched[memory] |= asked
    found.shared_requests += watcher.unit_bytes // (BANKS * WORD)
    found.touched_bytes = sum(map(len, touched.values()))
    return touched


def conflicts(accesses: Sequence[tuple[int, int, int]]) -> int:
    """How often the banks make a warp wait: by lane, where its bytes begin, and how many they are.
    Lanes that ask for 8 bytes are served by halves of a warp, for 16 by quarters; lanes that ask
    for the same word are served together.
    """
    widest = max(nbytes for _, _, nbytes in accesses)
    together = WARP // max(widest // WORD, 1)
    words: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for lane, start, nbytes in accesses:
        for word in range(start // WORD, (start + nbytes - 1) // WORD + 1):
            words[lane % WARP // together][word % BANKS].add(word)
    return sum(max(map(len, banks.values())) - 1 for banks in words.values())


def instructions(program: Sequence[UOp]) -> dict[str, int]:
    """Instructions that a lane executes, by kind. For a loop that one lane runs alone, a warp's
    share counts, but all products.
    """
    found: Counter[str] = Counter()
    times = [1]
    idle = needless(program)
    alone = {node for body in loops_of_one_lane(program).values() for node in body}
    idle |= {node for node in alone if node.op is Ops.BARRIER}
    warps = -(-math.prod(launch_dims(program).local_size) // WARP) if alone else 1
    shared: Counter[str] = Counter()
    rounded: set[UOp] = set()
    for node in program:
        if node in idle:
            continue
        if node.op is Ops.RANGE:
            times.append(times[-1] * (node.vmax + 1))
        elif node.op is Ops.END:
            del times[-sum(source.op is Ops.RANGE for source in node.src) :]
        elif kind := _kind(node):
            lanes = 1 if node.op in (Ops.LOAD, Ops.STORE, Ops.WMMA) else node.dtype.lanes
            is_shared = node in alone and kind != "matrix"
            (shared if is_shared else found)[kind] += times[-1] * lanes
            if node.op is Ops.WMMA and node.arg.digits:
                operands = [source for source in node.src[:2] if source not in rounded]
                rounded.update(operands)
                steps = _OF_ROUNDING * sum(source.dtype.lanes for source in operands)
                found["float"] += times[-1] * steps
    for kind, number in shared.items():
        found[kind] += -(-number // warps)
    return dict(found)


def _kind(node: UOp) -> str:
    if node.op is Ops.COPY_ASYNC:
        return "copy"
    if node.op in (Ops.LOAD, Ops.STORE):
        target = memory_of(node.src[0])
        return f"{node.op.name.lower()} {pointer_of(target).space.name.lower()}"
    if node.op is Ops.WMMA:
        return "matrix"
    if node.op is Ops.SHUFFLE:
        return "shuffle"
    if node.op in (Ops.BARRIER, Ops.WAIT_TILE):
        return "barrier"
    if node.op is Ops.MULACC and node.dtype.is_float:
        return "multiply-add"
    if node.op is Ops.EXP2_APPROX:
        return "function"
    if node.op.is_alu or node.op is Ops.CAST:
        return "float" if node.src[-1].dtype.is_float else "integer"
    return ""


def report(
    file: str, arguments: Sequence[str], archs: Sequence[str], blocks: int, device: str = "CUDA"
) -> str:
    """The counts of the kernels that a script compiles, for each architecture: of CUDA's text, or
    of NV's.
    """
    words = []
    missing = nvrtc.why_not() if device == "CUDA" else "" if find_ptxas() else "ptxas is not here"
    for arch in archs:
        cuda_target(arch)
        with Context(DEVICE=f"NULL:{device}:{arch}"):
            kernels = run_recorded(file, arguments)
        for number, kernel in enumerate(kernels):
            words.append(f"{arch}  kernel {number}: {kernel.name}")
            try:
                found = count(kernel.program, blocks)
                words += [f"  {line}" for line in _lines(found)]
                if arch.rstrip("af") in RATES:
                    words.append(f"  predicted: {predicted(found, arch)}")
            except ConfigError as error:
                words.append(f"  not counted: {error.headline}")
            if missing:
                words.append(f"  not compiled: {missing}")
                continue
            name = function_name(kernel.name)
            if device == "CUDA":
                made = compiled(CUDARenderer(arch).render(name, kernel.program), arch)
            else:
                made = assembled(PTXRenderer(nv_target(arch)).render(name, kernel.program), arch)
            mix = ", ".join(f"{count} {name}" for name, count in list(made.loop.items())[:8])
            words.append(f"  registers {made.registers}, spilled bytes {made.spilled_bytes}")
            words.append(f"  innermost loop: {mix}")
            if made.products:
                others = made.others / made.products
                words.append(f"  others for each product of 16x8x16: {others:.2f}")
    return "\n".join(words)


def _lines(found: Counts) -> list[str]:
    kinds = ", ".join(f"{number} {kind}" for kind, number in found.instructions.items())
    per_request = found.sectors / found.requests if found.requests else 0.0
    moved = found.moved_bytes / found.touched_bytes if found.touched_bytes else 0.0
    return [
        f"blocks run {found.blocks[0]} of {found.blocks[1]}",
        f"global memory: {found.requests} requests, {per_request:.1f} sectors each, "
        f"{100 * found.sector_use:.0f}% of their bytes used",
        f"global bytes: {found.moved_bytes} moved, {moved:.2f} of the {found.touched_bytes} "
        "that are touched",
        f"shared memory: {found.shared_requests} requests, {found.conflicts} bank conflicts",
        f"instructions a lane: {kinds}",
    ]
