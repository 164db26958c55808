"""Targets of known hardware, by architecture; the layouts of its matrix units are in
`tilegrad.matrix_units`.

The data of processors is only a guess, for those that a C compiler knows: the host is asked and
measured (`device/cpu.py`), others stand beside their back end (`device/processors.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.ir.op import Ops
from tilegrad.matrix_units import (
    mfma,
    mma,
    mma_of_bytes,
    mma_of_tf32,
    simdgroup,
    tcgen05,
    wgmma,
    wmma,
)  # fmt: skip
from tilegrad.target import MatrixUnit, Target

__all__ = [
    "BYTE_FLOATS", "amd_target", "clang_target", "cuda_target", "hip_target", "metal_target",
    "nvidia_units", "opencl_processor", "opencl_target", "webgpu_target",
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
            expected="sm_ and the compute capability, as sm_90; sm_90a and sm_100a have more units",
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
        units = tuple(mma(16, *pair) for pair in halves)
    elif capability >= 75:
        units = (mma(8, dtypes.half, dtypes.float), mma(8, dtypes.half, dtypes.half))
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


@lru_cache(maxsize=32)
def nvidia_units(arch: str) -> tuple[MatrixUnit, ...]:
    """The units that PTX has for `arch` beyond those of CUDA C++ here: products of bytes, of floats
    of 8 bits and of shortened float32, and those that read shared memory, the largest first. The
    latter of sm_90a and of sm_100a are in no later architecture (PTX ISA, "wgmma.mma_async", "mma"
    and "tcgen05.mma", target notes).
    """
    number = int("".join(letter for letter in arch if letter.isdigit()))
    units: tuple[MatrixUnit, ...] = ()
    if number >= 80:
        units = (mma_of_bytes(dtypes.int8), mma_of_tf32())
    if number >= 89:
        kinds = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
        units = (*units, *map(mma_of_bytes, kinds))
    makers: dict[str, Callable[[int, DType], MatrixUnit]] = {"sm_90a": wgmma, "sm_100a": tcgen05}
    maker = makers.get(arch)
    if maker is None:
        return units
    each = (dtypes.half, dtypes.bfloat16, dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
    widths = (256, 128, 64)
    units = (*units, *(maker(n, kind) for n in widths for kind in each))
    if arch == "sm_90a":
        units += tuple(wgmma(n, kind, takes_left=True) for n in (128, 64) for kind in each[:2])
    return (*units, *(maker(n, dtypes.float32) for n in widths))


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
        # Below the 31 entries of a kernel's argument table (Metal feature set tables); each of its
        # integers takes one, too.
        most_buffers=24,
        cache_bytes=(8 << 10, 8 << 20),
        matrix_units=tuple(simdgroup(*pair) for pair in pairs) if has_matrix_units else (),
        # Its own is x - y * trunc(x / y), rounded.
        missing=_NO_FLOOR | {Ops.FMOD},
        missing_dtypes=frozenset({dtypes.double}),
    )


def opencl_target(*, has_half: bool = True, has_double: bool = True) -> Target:
    """The least that OpenCL 1.2 promises of any device: 32 KiB of local memory, and no dtype that
    is an extension if so told.
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
        # A guess: only the runtime knows the device.
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


def opencl_processor(described: Target, threads: int) -> Target:
    """A processor through OpenCL; `described` is the driver's report. A block shares only what the
    cache holds anyway, and a barrier makes loops over lanes of the rest of a kernel. So a work item
    runs loops over vectors, as on any processor, and each of its `threads` has one of them.
    """
    return replace(
        described,
        vector_bytes=32,
        most_lanes=8,
        has_locals=False,
        shared_bytes=0,
        block_lanes=1,
        warp_lanes=1,
        busy_blocks=0,
        registers=16,
        # Four chunks for each, so that a slow one holds up few.
        threads=4 * threads,
        cache_bytes=Target.cache_bytes,
        # PoCL's of vectors are wrong for subnormal numbers: sin(1e-40) is 0.008.
        missing=described.missing | {Ops.SIN, Ops.COS},
    )


def webgpu_target(
    *,
    has_half: bool = False,
    has_double: bool = False,
    block_lanes: int = 256,
    shared_bytes: int = 16 << 10,
    most_buffers: int = 8,
    bound_bytes: int = 128 << 20,
    most_iterations: int = 0,
) -> Target:
    """The least that WebGPU promises of any adapter (W3C, WebGPU, limits), or the limits of one
    that has more. Its functions are too inexact, its fma may round twice, and there is no bfloat16.
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
        # A guess, as below: only the runtime knows the adapter.
        warp_lanes=32,
        busy_blocks=128,
        shared_bytes=shared_bytes,
        has_locals=True,
        block_lanes=block_lanes,
        most_blocks=65535,
        most_buffers=most_buffers,
        bound_bytes=bound_bytes,
        most_iterations=most_iterations,
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
    """An AMD GPU through LLVM: ops without an instruction are computed, as on a processor.

    Raises DeviceError if there is no such architecture.
    """
    found = _amd_gpu("AMD", arch)
    units: tuple[MatrixUnit, ...] = ()
    if arch in ("gfx90a", "gfx942", "gfx950"):
        units = (mfma(16, dtypes.half), mfma(16, dtypes.bfloat16), mfma(4, dtypes.float))
    elif arch.startswith(("gfx11", "gfx12")):
        generation = int(arch[3:5])
        units = (wmma(generation, dtypes.half), wmma(generation, dtypes.bfloat16))
    functions = {Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.FMOD}
    return replace(
        found,
        matrix_units=units,
        missing=found.missing | functions,
        missing_dtypes=frozenset(),
    )
