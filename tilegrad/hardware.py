"""Targets of known hardware, by architecture, and the layouts of its matrix units.

Of processors there is only a guess, for those that a C compiler knows: the host is asked and
measured (`device/cpu.py`), others stand beside their back end (`device/processors.py`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.ir.op import Ops
from tilegrad.target import MatrixUnit, Position, Target

__all__ = [
    "BYTE_FLOATS", "amd_target", "clang_target", "cuda_target", "dot_unit", "hip_target",
    "matrix_unit", "metal_target", "nvidia_units", "opencl_target", "webgpu_target",
]  # fmt: skip

# Compute capabilities without the dot (CUDA C++ Programming Guide, table of capabilities).
_CAPABILITIES = (
    50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121,
)  # fmt: skip
# Multiprocessors of the largest product of a compute capability, of 2,048 lanes or a little less
# (NVIDIA's architecture white papers: T4, A100, RTX 3090, L40S, H100 SXM, B200, RTX 5090).
_MULTIPROCESSORS = {75: 40, 80: 108, 86: 82, 89: 142, 90: 132, 100: 148, 120: 170}
# Shared memory of a block that a launch may ask for (CUDA C++ Programming Guide, table of technical
# specifications per compute capability).
_MOST_SHARED = {
    75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 88: 99 << 10, 89: 99 << 10,
    90: 227 << 10, 100: 227 << 10, 103: 227 << 10, 110: 227 << 10, 120: 99 << 10, 121: 99 << 10,
}  # fmt: skip
# Compute units of the largest product (AMD's data sheets: MI250X, MI300X, RX 7900 XTX, RX 9070 XT),
# each of 2,048 lanes.
_COMPUTE_UNITS = {"gfx90a": 220, "gfx942": 304, "gfx1100": 96, "gfx1201": 64}
# From LLVM's user guide for AMDGPU: GCN 5 with its successors CDNA, and RDNA.
_AMD_ARCHITECTURES = (
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1011", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101",
    "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
)  # fmt: skip

# The first version of PTX whose `mma` takes floats of 8 bits (PTX ISA, "mma", release history).
BYTE_FLOATS = "8.4"
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


def _mma_of_bytes(dtype_in: DType) -> MatrixUnit:
    """PTX's `mma.m16n8k32` for integers and floats of 8 bits, with sums of 32 (PTX ISA, "Matrix
    Fragments for mma.m16n8k32"). Lanes, rows and columns are those of `_mma`; an operand comes in
    fours along k.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        a.append(
            tuple(
                (g + row, 4 * t + four + step)
                for step in (0, 16)
                for row in (0, 8)
                for four in range(4)
            )
        )
        b.append(tuple((4 * t + four + step, g) for step in (0, 16) for four in range(4)))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    dtype_out = dtypes.float32 if dtype_in.is_float else dtypes.int32
    name = f"mma.m16n8k32.{dtype_in.name}.{dtype_out.name}"
    layouts = (tuple(a), tuple(b), tuple(c))
    return MatrixUnit(name, 16, 8, 32, 32, dtype_in, dtype_out, *layouts)


def _mma_of_tf32() -> MatrixUnit:
    """PTX's `mma.m16n8k8` for float32 with fractions of 10 digits (PTX ISA, "Matrix Fragments for
    mma.m16n8k8", type .tf32). Lanes, rows and columns are those of `_mma`; an operand has single
    elements, 4 apart along k.
    """
    a, b, c = [], [], []
    for lane in _WARP:
        g, t = divmod(lane, 4)
        a.append(tuple((g + row, t + step) for step in (0, 4) for row in (0, 8)))
        b.append(tuple((t + step, g) for step in (0, 4)))
        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))
    kind, layouts = dtypes.float32, (tuple(a), tuple(b), tuple(c))
    return MatrixUnit("mma.m16n8k8.tf32.float32", 16, 8, 8, 32, kind, kind, *layouts, digits=10)


def _wgmma(n: int, dtype_in: DType) -> MatrixUnit:
    """PTX's `wgmma.mma_async.m64n{n}k16` for 16-bit operands in shared memory, and `k32` for bytes,
    on the 128 lanes of four warps (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts").
    Lane 4*g+t of warp w holds of c the rows 16*w+g and 16*w+g+8, at pairs of columns 8 apart.

    Of a, each lane has a vector of 16 bytes along k; of b, vectors of columns 64 or 128 apart.
    """
    a, b, c = [], [], []
    vector = 16 // dtype_in.itemsize
    for lane in range(128):
        warp, (g, t) = lane // 32, divmod(lane % 32, 4)
        half, row = divmod(lane, 64)
        a.append(tuple((row, vector * half + step) for step in range(vector)))
        if n == 64:
            b.append(tuple((vector * half + step, row) for step in range(vector)))
        else:
            columns = range(lane, n, 128)
            b.append(tuple((step, column) for column in columns for step in range(2 * vector)))
        c.append(
            tuple(
                (16 * warp + g + row, 2 * t + pair + column)
                for column in range(0, n, 8)
                for row in (0, 8)
                for pair in (0, 1)
            )
        )
    k, dtype_out = 2 * vector, dtypes.float32 if dtype_in.is_float else dtypes.int32
    name = f"wgmma.m64n{n}k{k}.{dtype_in.name}"
    layouts = (tuple(a), tuple(b), tuple(c))
    return MatrixUnit(
        name, 64, n, k, 128, dtype_in, dtype_out, *layouts, synchronous=False, row_bytes=128
    )


def _tcgen05(n: int, dtype_in: DType) -> MatrixUnit:
    """PTX's `tcgen05.mma.cta_group::1` with 128 rows and n columns (PTX ISA, "Matrix Shape"): row i
    of the results is lane i of tensor memory ("Data Path Layout Organization", M = 128). A warp
    loads from the 32 lanes that its number modulo 4 says; where there are eight warps, the last
    four have the second half of the columns. A load of 16 lanes by 256 bits gives lane 4*g+t of a
    warp of the rows g and g+8 pairs of columns 8 apart ("Data Movement Shape", .16x256b).

    Of an operand, each lane has a row, or one half of its terms where that has two lanes.
    """
    lanes = 256 if n >= 128 else 128
    k, vector = 32 // dtype_in.itemsize, 16 // dtype_in.itemsize

    def share(lane: int, rows: int) -> tuple[Position, ...]:
        half, row = divmod(lane, rows)
        terms = k if lanes == rows else vector
        return tuple((row, terms * half + step) for step in range(terms))

    columns = n * 128 // lanes
    a = tuple(share(lane, 128) for lane in range(lanes))
    b = tuple(tuple((term, row) for row, term in share(lane, n)) for lane in range(lanes))
    c = tuple(
        tuple(
            (lane // 32 % 4 * 32 + g + row, lane // 128 * columns + column + 2 * t + pair)
            for half in (0, 16)
            for column in range(0, columns, 8)
            for row in (half, half + 8)
            for pair in (0, 1)
        )
        for lane in range(lanes)
        for g, t in [divmod(lane % 32, 4)]
    )
    dtype_out = dtypes.float32 if dtype_in.is_float else dtypes.int32
    name = f"tcgen05.m128n{n}k{k}.{dtype_in.name}"
    return MatrixUnit(
        name, 128, n, k, lanes, dtype_in, dtype_out, a, b, c,
        synchronous=False, row_bytes=128, columns=n,
    )  # fmt: skip


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
    digits: int = 0,
    columns: int = 0,
) -> MatrixUnit:
    """The unit whose text has these fields; its layouts follow from its kind."""
    del m, synchronous, row_bytes, columns
    if digits:
        return _mma_of_tf32()
    if name.startswith("wgmma"):
        return _wgmma(n, dtype_in)
    if name.startswith("tcgen05"):
        return _tcgen05(n, dtype_in)
    if name.startswith("mfma"):
        return _mfma(k, dtype_in)
    if name.startswith("wmma"):
        return _wmma(int(name[4:6]), dtype_in)
    if lanes == 1:
        return dot_unit(k, dtype_in, dtype_right or dtype_in, dtype_out)
    if name.startswith("mma"):
        return _mma_of_bytes(dtype_in) if k == 32 else _mma(k, dtype_in, dtype_out)
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
        tile_counts=(4, 3) if capability >= 80 else (),
        busy_blocks=_MULTIPROCESSORS.get(capability, 64) * 8,
        shared_bytes=48 << 10,
        most_shared_bytes=_MOST_SHARED.get(capability, 0),
        # CUDA C++ Programming Guide, table of technical specifications per compute capability.
        reserved_bytes=(1 << 10) if capability >= 80 else 0,
        multiprocessor_registers=64 << 10,
        has_locals=True,
        block_lanes=1024,
        cache_bytes=(128 << 10, 40 << 20),
        matrix_units=units,
        missing=_NO_FLOOR,
        missing_dtypes=frozenset(missing),
        isa=arch,
    )


def nvidia_units(arch: str) -> tuple[MatrixUnit, ...]:
    """The units that PTX has for `arch` beyond those of CUDA C++ here: products of bytes, of floats
    of 8 bits and of shortened float32, and those that read shared memory, the largest first. The
    latter of sm_90a and of sm_100a are in no later architecture (PTX ISA, "wgmma.mma_async", "mma"
    and "tcgen05.mma", target notes).
    """
    number = int("".join(letter for letter in arch if letter.isdigit()))
    units: tuple[MatrixUnit, ...] = ()
    if number >= 80:
        units = (_mma_of_bytes(dtypes.int8), _mma_of_tf32())
    if number >= 89:
        kinds = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
        units = (*units, *map(_mma_of_bytes, kinds))
    maker = {"sm_90a": _wgmma, "sm_100a": _tcgen05}.get(arch)
    if maker is None:
        return units
    each = (dtypes.half, dtypes.bfloat16, dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
    return (*units, *(maker(n, kind) for n in (256, 128, 64) for kind in each))


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
    bound_bytes: int = 128 << 20,
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
        bound_bytes=bound_bytes,
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
    return _amd_gpu("HIP", arch)


def _amd_gpu(kind: str, arch: str) -> Target:
    """An AMD GPU for the device `kind`."""
    if arch not in _AMD_ARCHITECTURES:
        raise DeviceError(
            f"{kind.lower()}: {arch!r} is no architecture", known=", ".join(_AMD_ARCHITECTURES)
        )
    return Target(
        kind,
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
    found = _amd_gpu("AMD", arch)
    units: tuple[MatrixUnit, ...] = ()
    if arch in ("gfx90a", "gfx942", "gfx950"):
        units = (_mfma(16, dtypes.half), _mfma(16, dtypes.bfloat16), _mfma(4, dtypes.float))
    elif arch.startswith(("gfx11", "gfx12")):
        generation = int(arch[3:5])
        units = (_wmma(generation, dtypes.half), _wmma(generation, dtypes.bfloat16))
    functions = {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.FMOD}
    return replace(
        found,
        matrix_units=units,
        missing=found.missing | functions,
        missing_dtypes=frozenset(),
    )
