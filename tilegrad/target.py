"""What a piece of hardware can do, as data. Stages read a `Target`, never a device's name.

A matrix unit is data too: its shape, its dtypes, and for each operand which element each lane
holds, so that one Opt and one emulator serve `mma`, `simdgroup` and their kin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.ir.op import Ops

__all__ = [
    "MatrixUnit", "Target", "Timing", "amd_target", "clang_target", "cuda_target", "dot_unit",
    "hip_target", "matrix_unit", "metal_target", "nvidia_units", "opencl_target", "webgpu_target",
]  # fmt: skip

Position = tuple[int, int]


@dataclass(frozen=True)
class MatrixUnit:
    """A matrix multiply `c[m,n] += a[m,k] @ b[k,n]` done by `lanes` lanes together.

    `a_layout[lane][i]` is the (row, column) of element i that this lane holds of a (M x K), and so
    for b (K x N) and c (M x N). `synchronous` is False for units whose result must be waited for
    (WAIT): until then they also read their operands. `dtype_right` is the dtype of b where it is
    another than that of a.

    A unit with `row_bytes` reads a and b from shared memory by itself, in rows of so many bytes
    whose vectors of 16 bytes are swizzled: vector i of row r lies where vector i ^ r % 8 would.
    The layouts of a and b then only share the reading among the lanes, as an emulator does it.

    A unit of one lane with M = N = 1 is a dot unit, an instruction of a vector processor: every
    lane of a vector of c takes k products, of vectors of a and b that are k times as long.
    """

    name: str
    m: int
    n: int
    k: int
    lanes: int
    dtype_in: DType
    dtype_out: DType
    # Long, and implied by the name: no part of the hash.
    a_layout: tuple[tuple[Position, ...], ...] = field(repr=False, hash=False)
    b_layout: tuple[tuple[Position, ...], ...] = field(repr=False, hash=False)
    c_layout: tuple[tuple[Position, ...], ...] = field(repr=False, hash=False)
    synchronous: bool = True
    dtype_right: DType | None = None
    row_bytes: int = 0

    @property
    def is_dot(self) -> bool:
        return self.lanes == 1

    @property
    def row_elements(self) -> int:
        """Elements of a row of an operand that the unit reads by itself."""
        return self.row_bytes // self.dtype_in.itemsize

    @property
    def group_rows(self) -> int:
        """Rows whose vectors of 16 bytes are swizzled in different ways."""
        return self.row_bytes // 16

    def swizzled(self, index: int) -> int:
        """Where element `index` of an operand's memory lies, of a unit that reads it by itself."""
        row = index // self.row_elements
        return index ^ row % self.group_rows * (self.row_elements // self.group_rows)


@dataclass(frozen=True)
class Timing:
    """How long things take, in cycles of one core or multiprocessor.

    The defaults are a server core of today, between Zen 4 (Software Optimization Guide 57647,
    chapter 2) and Golden Cove (Intel's Optimization Reference Manual, chapter 2); bytes a cycle are
    those that a loop of vector loads reached on an Emerald Rapids: 46, 10 and 5.

    Attributes:
        ports: vector operations that start in one cycle.
        load_ports, store_ports: loads and stores of whole vectors that start in one cycle.
        width: instructions of all kinds that start in one cycle (6 on both).
        latency: from a multiply-add to one that takes its result.
        window: instructions that wait for their operands while later ones start (320 on Zen 4, 512
            on Golden Cove).
        loop: of an iteration of a loop by itself.
        byte: for a byte that streams from the nearest cache, the second, the last, and memory.
        first_byte: until a load from each of these has its value.
        page: to find the address of a page that the first translation buffer does not know, while
            other loads go on (7 cycles where nothing else does).
        page_ahead: for a page whose next lines are not fetched ahead, as more pages are read at the
            same time than that is done for (fitted to transposes, docs/decisions/odd-sizes.md).
        crowded_line: until a line of the nearest cache is free whose set is full of lines that were
            stored to (fitted to transposes, docs/decisions/odd-sizes.md).
        stored_line: how often a line moves that is stored to: it is read before, and written back.
        launch: to hand a launch to threads and wait for the last.
        worth_threads: operations, in multiplies, from which on a launch over threads is faster
            than one thread (bench/launch.py).
        spill: to store a vector without a register to the stack and load it again.
        branch: operations of an element that is loaded behind a branch of its own: test, jump,
            load, and insert into a vector.
        shared_speed: the share of a core's speed that each of several has: they share memory and
            the last cache.
        exposed: the share of each shorter component of a time that does not overlap with the
            longest.
    """

    ports: int = 2
    load_ports: int = 2
    store_ports: int = 1
    width: int = 6
    latency: int = 4
    window: int = 320
    loop: float = 1.0
    byte: tuple[float, ...] = (1 / 128, 1 / 48, 1 / 12, 1 / 6)
    first_byte: tuple[int, ...] = (5, 15, 60, 300)
    page: float = 0.5
    page_ahead: float = 3.0
    crowded_line: float = 20.0
    stored_line: int = 2
    launch: int = 4000
    worth_threads: int = 9 << 15
    spill: float = 2.0
    branch: float = 4.0
    shared_speed: float = 0.9
    exposed: float = 0.2


@dataclass(frozen=True)
class Target:
    """Facts about hardware.

    Attributes:
        name: what messages and cache keys call it.
        vector_bytes: bytes of one vector register; 0 where arithmetic is scalar.
        memory_lanes: elements that one load or store may move at most, for targets with scalar
            arithmetic.
        registers: vector registers.
        shared_bytes: shared memory of a block; 0 where there are no blocks.
        most_shared_bytes: what a block may have at most, where its launch asks for it; 0: no more.
        has_locals: whether a launch has blocks of lanes.
        most_blocks: of one axis of a launch, where the kernel counts more of them in rows; 0: no
            limit.
        block_lanes: lanes of a block at most.
        most_buffers: buffers that one kernel may use; 0 where that is no limit.
        view_bytes: what the offset of a view into a buffer is a multiple of.
        threads: work items that run at once where a launch is split into chunks; 0 where it is not.
        cache_bytes: sizes of the caches from the nearest outward; the last is shared.
        cache_sets: sets of the nearest cache: lines that lie a multiple of as many lines apart
            share one (64 on x86, where a set is found by the address within a page).
        line_bytes: bytes of a line of the caches.
        sector_bytes: bytes in which lanes of a warp together read and write global memory (CUDA C++
            Programming Guide, device memory accesses).
        page_bytes, pages: bytes of a page, and how many of them the first translation buffer knows
            (72 on Zen 4, 96 on Golden Cove).
        prefetched_pages: pages of which lines are fetched ahead of their use at the same time.
        scratch_bytes: scratch of one thread; it lies on the stack, of which Linux gives 8 MiB.
        warp_lanes: lanes that run in step; 1 where there are no blocks.
        shuffle_lanes: lanes that exchange 32 bits without shared memory (SHUFFLE); 0 where none do.
        busy_blocks: blocks of 256 lanes that keep the device busy.
        timing: how long each of these takes.
        has_wide_access: whether one load or store moves 16 bytes of any dtype, also where that is
            more than `memory_lanes` elements.
        has_fragments: whether lanes load operands of 16 bits for a matrix unit from shared memory
            together (FRAGMENT).
        has_async_copies: whether a lane may copy 4, 8 or 16 bytes from global to shared memory and
            go on (COPY_ASYNC).
        has_mask: whether vector loads and stores take a gate per lane.
        has_scatter: whether one instruction stores the lanes of a vector apart from each other.
        gather_bytes: bytes of a vector whose lanes are taken out as addresses of loads; 0: any. A
            gather by 8-byte positions runs 1.1 to 1.8 times as fast with 32 bytes as with 64
            (Zen 4, bench/corpus.py, family indexing).
        has_fma: whether MULACC is one instruction, rounded once.
        has_scale: whether SCALE of a vector register, or of half or a quarter of one, is one.
        has_approximate_exp2: whether EXP2_APPROX is one.
        matrix_units: the units that TC may use.
        missing: ops that lower.decompose must replace.
        missing_dtypes: dtypes that values cannot have in registers.
        isa: names of instruction set extensions or the architecture, for the compiler.
    """

    name: str
    vector_bytes: int = 0
    memory_lanes: int = 1
    registers: int = 16
    shared_bytes: int = 0
    most_shared_bytes: int = 0
    has_locals: bool = False
    block_lanes: int = 1
    most_blocks: int = 0
    most_buffers: int = 0
    view_bytes: int = 64
    threads: int = 0
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20, 16 << 20)
    cache_sets: int = 64
    line_bytes: int = 64
    sector_bytes: int = 32
    page_bytes: int = 4 << 10
    pages: int = 72
    prefetched_pages: int = 32
    scratch_bytes: int = 4 << 20
    warp_lanes: int = 1
    shuffle_lanes: int = 0
    busy_blocks: int = 0
    timing: Timing = Timing()
    has_wide_access: bool = False
    has_fragments: bool = False
    has_async_copies: bool = False
    has_mask: bool = False
    has_scatter: bool = False
    gather_bytes: int = 0
    has_fma: bool = True
    has_scale: bool = False
    has_approximate_exp2: bool = False
    matrix_units: tuple[MatrixUnit, ...] = ()
    missing: frozenset[Ops] = frozenset()
    missing_dtypes: frozenset[DType] = frozenset()
    isa: str = ""

    def __repr__(self) -> str:
        """The same in every process, as keys on disk are made of it: sets in order."""
        values = {
            each.name: sorted(map(repr, value)) if isinstance(value, frozenset) else value
            for each in fields(self)
            for value in [getattr(self, each.name)]
        }
        return f"Target({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def lanes_of(self, dtype: DType) -> int:
        """How many elements of `dtype` one vector holds; 1 on a scalar target."""
        if self.vector_bytes:
            return max(1, self.vector_bytes // max(dtype.itemsize, 1))
        return self.memory_lanes

    def access_lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` one access of scalar arithmetic's targets may move."""
        fitting = max(16 // max(dtype.itemsize, 1), 1)
        return fitting if self.has_wide_access else min(fitting, self.memory_lanes)

    @property
    def short_products(self) -> frozenset[DType]:
        """The 16-bit dtypes that matrix units of a block multiply."""
        units = self.matrix_units if self.has_locals else ()
        return frozenset({unit.dtype_in for unit in units if unit.dtype_in.itemsize == 2})

    @property
    def block_bytes(self) -> int:
        """Shared memory that a block can have."""
        return max(self.shared_bytes, self.most_shared_bytes)

    @property
    def multiprocessors(self) -> int:
        """How many parts of the device run blocks by themselves; each runs eight of 256 lanes."""
        return self.busy_blocks // 8

    @property
    def busy_warps(self) -> int:
        """The warps that keep the device busy, where lanes of a warp exchange values: four in each
        block leave the others to hide latencies.
        """
        return 4 * self.busy_blocks if self.shuffle_lanes else 0

    @property
    def cores(self) -> int:
        """Cores that run chunks: each is given four, so that a slow one holds up few."""
        return max(self.threads // 4, 1)

    @property
    def accumulators(self) -> int:
        """Vectors of results that fit the registers: operands take a quarter of them."""
        return self.registers * 3 // 4

    @property
    def busy_accumulators(self) -> int:
        """Multiply-adds that start before the first of them has its result."""
        return self.timing.latency * self.timing.ports

    @property
    def second_bytes(self) -> int:
        """Bytes of the second cache; of the only one where there is one."""
        return self.cache_bytes[min(1, len(self.cache_bytes) - 1)]

    @property
    def has_vectors(self) -> bool:
        """Whether arithmetic works on whole vectors."""
        return self.vector_bytes > 0

    def cycles(self, op: Ops) -> float:
        """Issue cycles of one vector of results of `op`, by its price."""
        return op.definition.price / self.timing.ports

    @property
    def set_bytes(self) -> int:
        """Bytes between lines that share a set of the nearest cache."""
        return self.cache_sets * self.line_bytes

    @property
    def cache_ways(self) -> int:
        """Lines of a set of the nearest cache."""
        return max(self.cache_bytes[0] // self.set_bytes, 1)

    def level_of(self, nbytes: int) -> int:
        """The level of memory that `nbytes` used again and again fit: 0 is the nearest cache, 1 the
        second, 2 the last, 3 memory. Half of the last cache is left to other data.
        """
        first, last = self.cache_bytes[0], self.cache_bytes[-1]
        return (nbytes > first) + (nbytes > self.second_bytes) + (nbytes >= last // 2)

    def supports(self, dtype: DType) -> bool:
        return dtype.scalar not in self.missing_dtypes


# Compute capabilities without the dot (CUDA C++ Programming Guide, table of capabilities).
_CAPABILITIES = (
    50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121,
)  # fmt: skip
# Multiprocessors of the largest product of a compute capability, of 2,048 lanes or a little less
# (NVIDIA's architecture white papers: T4, A100, RTX 3090, L40S, H100 SXM, B200, RTX 5090).
_MULTIPROCESSORS = {75: 40, 80: 108, 86: 82, 89: 142, 90: 132, 100: 148, 120: 170}
# Compute units of the largest product (AMD's data sheets: MI250X, MI300X, RX 7900 XTX, RX 9070 XT),
# each of 2,048 lanes.
_COMPUTE_UNITS = {"gfx90a": 220, "gfx942": 304, "gfx1100": 96, "gfx1201": 64}
# From LLVM's user guide for AMDGPU: GCN 5 with its successors CDNA, and RDNA.
_AMD_ARCHITECTURES = (
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1011", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101",
    "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
)  # fmt: skip

# Python's division is lowered to C's everywhere: no instruction set has it.
_NO_FLOOR = frozenset({Ops.FLOORDIV, Ops.FLOORMOD})
_WARP = range(32)


def _mma(k: int, dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """PTX's `mma.m16n8k{k}` for 16-bit operands. Lane 4*g+t holds rows g and g+8 of a and c, and
    column g of b.

    An operand comes in pairs: two neighbours along k in a and b, two neighbouring columns in c;
    each 8 of k adds pairs.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        steps = [(step, pair) for step in range(0, k, 8) for pair in (0, 1)]
        a.append(
            tuple(
                (g + row, 2 * t + pair + step)
                for step in range(0, k, 8)
                for row in (0, 8)
                for pair in (0, 1)
            )
        )
        b.append(tuple((2 * t + pair + step, g) for step, pair in steps))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    name = f"mma.m16n8k{k}.{dtype_in.name}.{dtype_out.name}"
    return MatrixUnit(name, 16, 8, k, 32, dtype_in, dtype_out, tuple(a), tuple(b), tuple(c))


def _wgmma(n: int, dtype_in: DType) -> MatrixUnit:
    """PTX's `wgmma.mma_async.m64n{n}k16` for 16-bit operands in shared memory, on the 128 lanes of
    four warps (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts"). Lane 4*g+t of warp
    w holds of c the rows 16*w+g and 16*w+g+8, at pairs of columns 8 apart.

    Of a, each lane has a vector of 8 along k; of b, vectors of columns 64 or 128 apart.
    """
    a, b, c = [], [], []
    for lane in range(128):
        warp, (g, t) = lane // 32, divmod(lane % 32, 4)
        half, row = divmod(lane, 64)
        a.append(tuple((row, 8 * half + step) for step in range(8)))
        if n == 64:
            b.append(tuple((8 * half + step, row) for step in range(8)))
        else:
            columns = range(lane, n, 128)
            b.append(tuple((step, column) for column in columns for step in range(16)))
        c.append(
            tuple(
                (16 * warp + g + row, 2 * t + pair + column)
                for column in range(0, n, 8)
                for row in (0, 8)
                for pair in (0, 1)
            )
        )
    name = f"wgmma.m64n{n}k16.{dtype_in.name}"
    layouts = (tuple(a), tuple(b), tuple(c))
    return MatrixUnit(
        name, 64, n, 16, 128, dtype_in, dtypes.float32, *layouts, synchronous=False, row_bytes=128
    )


def _simdgroup(dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """Apple's `simdgroup_matrix<8,8>`: two neighbours in a row per lane, lanes in quads that tile 4
    rows by 4 columns.
    """
    layout = []
    for lane in _WARP:
        quad = lane // 4
        row, column = (quad & 4) + lane // 2 % 4, 2 * (quad & 2) + 2 * (lane % 2)
        layout.append(((row, column), (row, column + 1)))
    name = f"simdgroup.8x8.{dtype_in.name}.{dtype_out.name}"
    same = tuple(layout)
    return MatrixUnit(name, 8, 8, 8, 32, dtype_in, dtype_out, same, same, same)


def _mfma(k: int, dtype_in: DType) -> MatrixUnit:
    """CDNA's `v_mfma_f32_16x16x{k}` on 64 lanes ("AMD Instinct MI200 Instruction Set Architecture",
    matrix arithmetic). Lane 16*g+i holds row i of a and column i of b, at k/4 neighbours in depth
    from k/4*g on, and of column i of c the rows 4*g to 4*g+3.
    """
    a, b, c = [], [], []
    registers = k // 4
    for lane in range(64):
        group, i = divmod(lane, 16)
        a.append(tuple((i, registers * group + step) for step in range(registers)))
        b.append(tuple((registers * group + step, i) for step in range(registers)))
        c.append(tuple((4 * group + row, i) for row in range(4)))
    name = f"mfma.16x16x{k}.{dtype_in.name}"
    return MatrixUnit(name, 16, 16, k, 64, dtype_in, dtypes.float32, tuple(a), tuple(b), tuple(c))


def _wmma(generation: int, dtype_in: DType) -> MatrixUnit:
    """RDNA's `v_wmma_f32_16x16x16` on 32 lanes ("RDNA3 Instruction Set Architecture" and that of
    RDNA4). Lane 16*g+i has row i of a and column i of b: up to generation 11 whole, so that both
    halves of the lanes hold the same, from 12 on 8 neighbours in depth from 8*g on. Of column i of
    c it holds up to 11 every second row from g on, then the rows 8*g to 8*g+7.
    """
    a, b, c = [], [], []
    is_split = generation >= 12
    for lane in _WARP:
        group, i = divmod(lane, 16)
        depths = [8 * group + step for step in range(8)] if is_split else list(range(16))
        a.append(tuple((i, depth) for depth in depths))
        b.append(tuple((depth, i) for depth in depths))
        c.append(tuple((8 * group + row if is_split else 2 * row + group, i) for row in range(8)))
    name = f"wmma{generation}.16x16x16.{dtype_in.name}"
    return MatrixUnit(name, 16, 16, 16, 32, dtype_in, dtypes.float32, tuple(a), tuple(b), tuple(c))


def dot_unit(k: int, left: DType, right: DType, dtype_out: DType) -> MatrixUnit:
    """An instruction that adds `k` products to each lane of a vector: `vdpbf16ps` (two of bfloat16
    to a float32), `vpdpbusd` (four of uint8 by int8 to an int32).
    """
    row = (tuple((0, depth) for depth in range(k)),)
    column = (tuple((depth, 0) for depth in range(k)),)
    name = f"dot{k}.{left.name}.{right.name}.{dtype_out.name}"
    other = None if left is right else right
    return MatrixUnit(
        name, 1, 1, k, 1, left, dtype_out, row, column, (((0, 0),),), dtype_right=other
    )


def matrix_unit(
    name: str,
    m: int,
    n: int,
    k: int,
    lanes: int,
    dtype_in: DType,
    dtype_out: DType,
    synchronous: bool = True,
    dtype_right: DType | None = None,
    row_bytes: int = 0,
) -> MatrixUnit:
    """The unit whose text has these fields; its layouts follow from its kind."""
    del m, synchronous, row_bytes
    if name.startswith("wgmma"):
        return _wgmma(n, dtype_in)
    if name.startswith("mfma"):
        return _mfma(k, dtype_in)
    if name.startswith("wmma"):
        return _wmma(int(name[4:6]), dtype_in)
    if lanes == 1:
        return dot_unit(k, dtype_in, dtype_right or dtype_in, dtype_out)
    if name.startswith("mma"):
        return _mma(k, dtype_in, dtype_out)
    return _simdgroup(dtype_in, dtype_out)


def clang_target(vector_bytes: int = 16) -> Target:
    """The host through its C compiler: a portable guess, where `cpu_target` asks the machine."""
    return Target(
        "CLANG",
        vector_bytes=vector_bytes,
        has_fma=False,
        missing=_NO_FLOOR | {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.FMOD},
        missing_dtypes=frozenset({dtypes.bfloat16}),
    )


def cuda_target(arch: str) -> Target:
    """An NVIDIA GPU of compute capability `arch`, as "sm_90" or "sm_90a".

    Raises DeviceError if there is no such architecture.
    """
    found = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if found is None or int(found[1]) not in _CAPABILITIES:
        raise DeviceError(
            f"cuda: {arch!r} is no architecture",
            expected="sm_ and the compute capability, as sm_90",
            known=", ".join(f"sm_{number}" for number in _CAPABILITIES),
        )
    capability = int(found[1])
    units: tuple[MatrixUnit, ...] = ()
    if capability >= 80:
        halves = (
            (dtypes.half, dtypes.float),
            (dtypes.half, dtypes.half),
            (dtypes.bfloat16, dtypes.float),
        )
        units = tuple(_mma(16, *pair) for pair in halves)
    elif capability >= 75:
        units = (_mma(8, dtypes.half, dtypes.float), _mma(8, dtypes.half, dtypes.half))
    missing = ([dtypes.bfloat16] if capability < 80 else []) + (
        [dtypes.half] if capability < 53 else []
    )
    return Target(
        "CUDA",
        memory_lanes=4,
        registers=255,
        warp_lanes=32,
        shuffle_lanes=32,
        has_approximate_exp2=True,
        has_wide_access=True,
        has_fragments=capability >= 75,
        has_async_copies=capability >= 80,
        busy_blocks=_MULTIPROCESSORS.get(capability, 64) * 8,
        shared_bytes=48 << 10,
        has_locals=True,
        block_lanes=1024,
        cache_bytes=(128 << 10, 40 << 20),
        matrix_units=units,
        missing=_NO_FLOOR,
        missing_dtypes=frozenset(missing),
        isa=arch,
    )


def nvidia_units(arch: str) -> tuple[MatrixUnit, ...]:
    """The units beyond those of warps that PTX has for `arch`, the largest first. Those of sm_90a
    are in no later architecture (PTX ISA, "wgmma.mma_async", target notes).
    """
    if arch != "sm_90a":
        return ()
    kinds = (dtypes.half, dtypes.bfloat16)
    return tuple(_wgmma(n, kind) for n in (256, 128, 64) for kind in kinds)


def metal_target(has_matrix_units: bool = True) -> Target:
    """An Apple GPU; those in Intel machines have no matrix units."""
    pairs = ((dtypes.float, dtypes.float), (dtypes.half, dtypes.float), (dtypes.half, dtypes.half))
    return Target(
        "METAL",
        memory_lanes=4,
        registers=128,
        warp_lanes=32,
        shuffle_lanes=32,
        # Ten cores (Apple, M1 to M4) of 1,024 lanes and more.
        busy_blocks=80,
        shared_bytes=32 << 10,
        has_locals=True,
        block_lanes=1024,
        cache_bytes=(8 << 10, 8 << 20),
        matrix_units=tuple(_simdgroup(*pair) for pair in pairs) if has_matrix_units else (),
        # Its own is x - y * trunc(x / y), rounded.
        missing=_NO_FLOOR | {Ops.FMOD},
        missing_dtypes=frozenset({dtypes.double}),
    )


def opencl_target(*, has_half: bool = True, has_double: bool = True) -> Target:
    """What OpenCL 1.2 promises of any device: 32 KiB of local memory, and no dtype that is an
    extension if so told.
    """
    missing = (
        {dtypes.bfloat16}
        | (set() if has_half else {dtypes.half})
        | (set() if has_double else {dtypes.double})
    )
    return Target(
        "CL",
        memory_lanes=4,
        registers=64,
        warp_lanes=32,
        # A guess: what the device is, only the runtime knows.
        busy_blocks=128,
        shared_bytes=32 << 10,
        has_locals=True,
        block_lanes=256,
        # The alignment of the largest dtype, long16, which every device allows.
        view_bytes=128,
        cache_bytes=(16 << 10, 1 << 20),
        missing=_NO_FLOOR,
        missing_dtypes=frozenset(missing),
    )


def webgpu_target(
    *,
    has_half: bool = False,
    has_double: bool = False,
    block_lanes: int = 256,
    shared_bytes: int = 16 << 10,
    most_buffers: int = 8,
) -> Target:
    """What WebGPU promises of any adapter (W3C, WebGPU, limits), or what one has beyond. Its
    functions are too inexact, its fma may round twice, and there is no bfloat16.
    """
    missing = (
        {dtypes.bfloat16}
        | (set() if has_half else {dtypes.half})
        | (set() if has_double else {dtypes.double})
    )
    return Target(
        "WEBGPU",
        memory_lanes=4,
        registers=64,
        # A guess, as below: what the adapter is, only the runtime knows.
        warp_lanes=32,
        busy_blocks=128,
        shared_bytes=shared_bytes,
        has_locals=True,
        block_lanes=block_lanes,
        most_blocks=65535,
        most_buffers=most_buffers,
        view_bytes=256,
        cache_bytes=(16 << 10, 1 << 20),
        has_fma=False,
        missing=_NO_FLOOR | {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.FMOD},
        missing_dtypes=frozenset(missing),
    )


def hip_target(arch: str = "gfx1100") -> Target:
    """An AMD GPU.

    Raises DeviceError if there is no such architecture.
    """
    if arch not in _AMD_ARCHITECTURES:
        raise DeviceError(f"hip: {arch!r} is no architecture", known=", ".join(_AMD_ARCHITECTURES))
    return Target(
        "HIP",
        memory_lanes=4,
        registers=256,
        # RDNA runs 32 lanes in step, GCN and CDNA 64 (LLVM's user guide for AMDGPU).
        warp_lanes=64 if arch.startswith("gfx9") else 32,
        busy_blocks=_COMPUTE_UNITS.get(arch, 32) * 8,
        shared_bytes=64 << 10,
        has_locals=True,
        block_lanes=1024,
        cache_bytes=(32 << 10, 6 << 20),
        missing=_NO_FLOOR,
        missing_dtypes=frozenset({dtypes.bfloat16}),
        isa=arch,
    )


def amd_target(arch: str = "gfx1100") -> Target:
    """An AMD GPU through LLVM: what it has no instruction for is computed, as on a processor.

    Raises DeviceError if there is no such architecture.
    """
    found = hip_target(arch)
    units: tuple[MatrixUnit, ...] = ()
    if arch in ("gfx90a", "gfx942", "gfx950"):
        units = (_mfma(16, dtypes.half), _mfma(16, dtypes.bfloat16), _mfma(4, dtypes.float))
    elif arch.startswith(("gfx11", "gfx12")):
        generation = int(arch[3:5])
        units = (_wmma(generation, dtypes.half), _wmma(generation, dtypes.bfloat16))
    functions = {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.FMOD}
    return replace(
        found,
        name="AMD",
        matrix_units=units,
        missing=found.missing | functions,
        missing_dtypes=frozenset(),
    )
