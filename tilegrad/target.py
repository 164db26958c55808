"""Facts about a piece of hardware, as data. Stages read a `Target`, never a device's name.
`hardware.py` has those of known hardware.

A matrix unit is data too: its shape, its dtypes, and for each operand which element each lane
holds, so that one Opt and one emulator serve `mma`, `simdgroup` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tilegrad.base.dtype import DType
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops

__all__ = [
    "OTHER_REGISTERS", "SHARED_ROWS", "TILES", "MatrixUnit", "Position", "Target", "Timing",
]  # fmt: skip

Position = tuple[int, int]

# Tuning, worth shown by `gpu-report`, products with few rows.
# Rows up to which lanes that share a row of the other operand, along which the sum runs, are as
# quick as a matrix unit with a tile that is padding for the most.
SHARED_ROWS = 4
# Tiles of an operand in shared memory at a time, where nothing asks for more: one is copied while
# another is read.
TILES = 2
# Registers of a lane of attention beside sums, scores and operands: addresses, the largest scores,
# and the next slice on its way.
OTHER_REGISTERS = 64


@dataclass(frozen=True)
class MatrixUnit:
    """A matrix multiply `c[m,n] += a[m,k] @ b[k,n]` done by `lanes` lanes together.

    `a_layout[lane][i]` is the (row, column) of element i that this lane holds of a (M x K), and so
    for b (K x N) and c (M x N). `synchronous` is False for units whose result must be waited for
    (WAIT): until then they also read their operands. `dtype_right` is the dtype of b where it is
    another than that of a.

    A unit with `row_bytes` reads a and b from shared memory by itself, in rows of that length
    whose vectors of 16 bytes are swizzled: vector i of row r lies where vector i ^ r % 8 would.
    The layouts of a and b then only share the reading among the lanes, as an emulator does it. One
    that `takes_left` has the left operand in registers all the same, as `a_layout` says.

    A unit with `columns` adds in a memory of its own, where c takes that number of columns: one
    lane of the block begins it, and `c_layout` says what the lanes load from there behind the last
    product. One of two `blocks` is that of a pair: its lanes are those of both, and each block has
    half of the rows of a and c, and of the columns of b.

    A unit with `digits` takes operands in `dtype_in` whose fractions are rounded to that number of
    binary digits, ties away from zero: it is used where the switch TF32 allows it alone.

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
    digits: int = 0
    columns: int = 0
    takes_left: bool = False
    blocks: int = 1

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


def slices_of(nbytes: int, bound_bytes: int) -> int:
    """How many bindings a buffer is, if one holds `bound_bytes`, or any number if that is 0: slices
    of a power of two.
    """
    if not bound_bytes or nbytes <= bound_bytes:
        return 1
    return -(-nbytes // (1 << bound_bytes.bit_length() - 1))


@dataclass(frozen=True)
class Timing:
    """How long things take, in cycles of one core or multiprocessor.

    The defaults are a server core of today, between Zen 4 (Software Optimization Guide 57647,
    chapter 2) and Golden Cove (Intel's Optimization Reference Manual, chapter 2); bytes a cycle are
    those that a loop of vector loads reached on an Emerald Rapids: 46, 10 and 5; of other makers
    `device/cpu.py` knows more.

    Attributes:
        ports: vector operations that start in one cycle.
        load_ports, store_ports: loads and stores of whole vectors that start in one cycle.
        width: instructions of all kinds that start in one cycle (6 on both).
        latency: from a multiply-add to one that takes its result.
        window: vector instructions that wait for their operands while later ones start (128 on Zen
            4, in the two schedulers of its floating point unit and the queue before them; 97 in the
            scheduler of Golden Cove).
        loop: of an iteration of a loop by itself.
        byte: for a byte that streams from the nearest cache, the second, the last, and memory.
        masked_store: stores whose time a store by a mask takes (VMASKMOV 12 on Zen 4, masks of
            AVX-512 one).
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
        code: for an instruction of the text, which takes some 0.4 ms to lower and compile, over
            20,000 launches.
        first_code: the same over 100 launches, after which a first shape is replaced by a better
            one (engine.run.better_kernels).
    """

    ports: int = 2
    load_ports: int = 2
    store_ports: int = 1
    width: int = 6
    latency: int = 4
    window: int = 128
    loop: float = 1.0
    byte: tuple[float, ...] = (1 / 128, 1 / 48, 1 / 12, 1 / 6)
    masked_store: int = 1
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
    code: float = 64.0
    first_code: float = 12800.0


@dataclass(frozen=True)
class Target:
    """Facts about hardware.

    Attributes:
        name: its name in messages and cache keys.
        vector_bytes: bytes of one vector register; 0 where arithmetic is scalar.
        most_lanes: elements of a vector at most, where a language has no longer ones; 0: no limit.
        memory_lanes: elements that one load or store may move at most, for targets with scalar
            arithmetic.
        registers: vector registers.
        shared_bytes: shared memory of a block; 0 where there are no blocks.
        most_shared_bytes: the most shared memory of a block, where its launch asks for it; 0: no
            more.
        reserved_bytes: shared memory that a multiprocessor takes for each block besides.
        multiprocessor_registers: registers that the lanes of a multiprocessor share.
        has_locals: whether a launch has blocks of lanes.
        most_blocks: of one axis of a launch, where the kernel counts more of them in rows; 0: no
            limit.
        block_lanes: lanes of a block at most.
        most_buffers: buffers that one kernel may use; 0 where that is no limit.
        bound_bytes: bytes of a buffer that one binding of a kernel holds, where a larger buffer is
            several; 0 where that is no limit.
        most_iterations: iterations of all loops of a lane together, where a driver leaves its loops
            after that number; 0 where that is no limit.
        view_bytes: the divisor of the offset of a view into a buffer.
        threads: work items that run at once where a launch is split into chunks; 0 where it is not.
        cache_bytes: sizes of the caches from the nearest outward; the last is shared.
        cache_sets: sets of the nearest cache: lines that lie a multiple of as many lines apart
            share one (64 on x86, where a set is found by the address within a page).
        line_bytes: bytes of a line of the caches.
        sector_bytes: bytes in which lanes of a warp together read and write global memory (CUDA C++
            Programming Guide, device memory accesses).
        page_bytes, pages: bytes of a page, and how many of them the first translation buffer knows
            (72 on Zen 4, 96 on Golden Cove).
        prefetched_pages: pages whose lines the hardware fetches ahead, at the same time.
        scratch_bytes: scratch of one thread. It is on the stack, which has 8 MiB on Linux.
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
        has_tile_copies: whether a lane may copy a box of a matrix from global to shared memory and
            go on (COPY_TILE), in rows whose vectors are swizzled as matrix units read them.
        has_clusters: whether such a copy may go to two blocks, and these meet at barriers.
        tile_counts: tiles of an operand that such copies may fill ahead of their use, more than
            two, the most first.
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
    most_lanes: int = 0
    memory_lanes: int = 1
    registers: int = 16
    shared_bytes: int = 0
    most_shared_bytes: int = 0
    reserved_bytes: int = 0
    multiprocessor_registers: int = 0
    has_locals: bool = False
    block_lanes: int = 1
    most_blocks: int = 0
    most_buffers: int = 0
    bound_bytes: int = 0
    most_iterations: int = 0
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
    has_tile_copies: bool = False
    has_clusters: bool = False
    tile_counts: tuple[int, ...] = ()
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
            lanes = max(1, self.vector_bytes // max(dtype.itemsize, 1))
            return min(lanes, self.most_lanes) if self.most_lanes else lanes
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

    def registers_of(self, dtype: DType, lanes: int) -> int:
        """Vector registers that hold `lanes` values of `dtype`, at least one."""
        return max(-(-lanes * dtype.itemsize // max(self.vector_bytes, 1)), 1) if lanes > 1 else 1

    @property
    def second_bytes(self) -> int:
        """Bytes of the second cache; of the only one where there is one."""
        return self.cache_bytes[min(1, len(self.cache_bytes) - 1)]

    @property
    def has_vectors(self) -> bool:
        """Whether arithmetic works on whole vectors."""
        return self.vector_bytes > 0

    def lacks(self, op: Ops) -> bool:
        """Whether lower.decompose replaces an op, be it that no target has it."""
        return op in self.missing or not op.definition.stages & Stage.PROGRAM

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
