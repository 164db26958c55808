"""The host processor, through LLVM.

    render    tilegrad.render.llvm     vectors and loops as LLVM IR text
    compile   tilegrad.compile.llvm    a relocatable object, no compiler on the machine needed
    run       here                     runtime.elf places the object, a native thread pool runs its
    chunks

The vectors are the machine's own, read from what the kernel says of the processor, so that a warm
start loads neither LLVM nor the renderer. `TILEGRAD_CPU_TARGET` limits them to AVX2 (x86-64-v3), to
SSE (x86-64-v2), or to scalars. Large buffers lie on huge pages where the system has them: a fresh
page costs more than the arithmetic on it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.forks import held_at_fork
from tilegrad.device.backend import Backend, require_number
from tilegrad.device.cpu_native import NativePool, native, native_code
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.matrix_units import dot_unit
from tilegrad.runtime import elf
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.target import MatrixUnit, Target, Timing

__all__ = [
    "CpuProgram", "CpuRuntime", "backend", "cpu_target", "installed_version", "processor_flags",
]  # fmt: skip

_HUGE = 2 << 20
_ADVISE_HUGE_PAGES = 14
_ALIGNMENT = 64
# Chunks wanted of a launch, more than there are cores, so that a slow core does not hold up the
# rest.
_CHUNKS = 8
# Functions that compiled code may call: LLVM turns loops that copy or clear into the first, and the
# oldest processors have no instruction for the last.
_EXTERNAL = ("memcpy", "memset", "memmove", "trunc", "truncf")


@functools.cache
def processor_flags() -> frozenset[str]:
    """The instruction set extensions that the operating system reports."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


@functools.cache
def _vendor() -> str:
    """The maker of an x86 processor, as it says itself; empty where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = (line for line in file if line.startswith("vendor_id"))
            return next(lines, ":").split(":", 1)[1].strip()
    except OSError:
        return ""


@functools.cache
def _cache_sizes() -> tuple[int, ...]:
    """Bytes of the data caches, nearest first."""
    sizes: list[int] = []
    root = "/sys/devices/system/cpu/cpu0/cache"
    units = {"K": 1 << 10, "M": 1 << 20}
    try:
        for entry in sorted(os.listdir(root)):
            if not entry.startswith("index"):
                continue
            with open(f"{root}/{entry}/type", encoding="ascii") as file:
                if file.read().strip() == "Instruction":
                    continue
            with open(f"{root}/{entry}/size", encoding="ascii") as file:
                text = file.read().strip()
            sizes.append(int(text[:-1]) * units[text[-1]])
    except (OSError, KeyError, ValueError):
        return (32 << 10, 1 << 20, 16 << 20)
    return tuple(sorted(sizes)) or (32 << 10, 1 << 20, 16 << 20)


@dataclass(frozen=True)
class InstructionSet:
    """An instruction set that `CPU_TARGET` names: facts that every processor with it shares.

    Attributes:
        flags: the extensions that the system reports of a processor with it.
        vector_bytes: bytes of a register of floats; 0 where only scalars are used.
        registers: how many of them.
        cpu: the level of x86-64 that has no more than this, in LLVM's words.
        has_mask: whether loads and stores of vectors take a gate per lane.
        has_scatter: whether one instruction stores lanes apart from each other.
        has_fma: whether a product and a sum are one instruction, rounded once.
        has_scale: whether a vector is multiplied by powers of two in one instruction.
        has_halves: whether an instruction converts float16.
    """

    flags: frozenset[str]
    vector_bytes: int
    registers: int = 16
    cpu: str = ""
    has_mask: bool = False
    has_scatter: bool = False
    has_fma: bool = False
    has_scale: bool = False
    has_halves: bool = False


# Registers and their bytes: Intel's Software Developer's Manual, volume 1, sections 3.2.1 (sixteen
# XMM), 14.1 (YMM) and 15.1 (thirty-two ZMM); Arm's Architecture Reference Manual for NEON. Levels
# and their extensions: System V ABI for AMD64, table 3.1. Masks are VMASKMOV and AVX-512's, scatter
# VSCATTERDPS, scale VSCALEFPS, halves VCVTPH2PS; FMA3 came with AVX2.
_INSTRUCTION_SETS = {
    "avx512": InstructionSet(
        frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
        64,
        32,
        has_mask=True,
        has_scatter=True,
        has_fma=True,
        has_scale=True,
        has_halves=True,
    ),
    "avx2": InstructionSet(
        frozenset({"avx2", "fma"}),
        32,
        cpu="x86-64-v3",
        has_mask=True,
        has_fma=True,
        has_halves=True,
    ),
    "sse": InstructionSet(frozenset({"sse4_2"}), 16, cpu="x86-64-v2"),
    "neon": InstructionSet(frozenset(), 16, 32, has_fma=True, has_halves=True),
    "scalar": InstructionSet(frozenset(), 0, cpu="x86-64"),
}


def _isa(limit: str) -> str:
    if limit == "scalar":
        return limit
    if not _is_x86():
        return "neon" if platform.machine().lower() in ("aarch64", "arm64") else "sse"
    names = ["avx512", "avx2"]
    names = names[names.index(limit) :] if limit in names else [] if limit == "sse" else names
    flags = processor_flags()
    # Every x86-64 has vectors of 16 bytes.
    return next((name for name in names if _INSTRUCTION_SETS[name].flags <= flags), "sse")


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _level(limit: str, isa: str) -> str:
    """The level that LLVM compiles for; empty for all that the machine has, which is no level on
    other architectures, and for a machine without AVX2 unless `limit` says so.
    """
    found = _INSTRUCTION_SETS[isa]
    is_own = not _is_x86() or not found.flags <= processor_flags()
    return "" if is_own or (isa == "sse" and limit != isa) else found.cpu


def _dot_units(isa: str) -> tuple[MatrixUnit, ...]:
    """Instructions that add several products of short numbers to each lane, as found."""
    if isa != "avx512":
        return ()
    flags = processor_flags()
    units = []
    if "avx512_bf16" in flags:
        units.append(dot_unit(2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32))
    if "avx512_vnni" in flags:
        units.append(dot_unit(4, dtypes.uint8, dtypes.int8, dtypes.int32))
    return tuple(units)


def _timing(isa: str) -> Timing:
    """How long things take on processors of this machine's maker. Bytes a cycle of AMD's are those
    that a loop of vector loads reached on a Zen 4: 53, 32, 27 and 6, as a last cache belongs to few
    cores; a store by VMASKMOV took 12 cycles there, one by a mask of AVX-512 no more than others.
    The exposed share is the one that orders shapes best (bench/results/corpus-estimate.json).
    """
    if _vendor() != "AuthenticAMD":
        return Timing()
    masked_store = 12 if isa == "avx2" else 1
    return Timing(byte=(1 / 64, 1 / 32, 1 / 27, 1 / 6), masked_store=masked_store, exposed=0.1)


def cpu_target(limit: str = "") -> Target:
    """This machine's processor; `limit` is 'scalar', 'sse', 'avx2', 'avx512' or empty."""
    isa = _isa(limit)
    found = _INSTRUCTION_SETS[isa]
    return Target(
        name="cpu",
        vector_bytes=found.vector_bytes,
        registers=found.registers,
        threads=_CHUNKS,
        cache_bytes=_cache_sizes(),
        timing=_timing(isa),
        has_mask=found.has_mask,
        has_scatter=found.has_scatter,
        gather_bytes=32,
        has_fma=found.has_fma,
        has_scale=found.has_scale,
        matrix_units=_dot_units(isa),
        missing=frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.FMOD}),
        # Before AVX, a conversion of a half is a call of a library that is not there.
        missing_dtypes=frozenset(
            {dtypes.bfloat16} if found.has_halves else {dtypes.bfloat16, dtypes.float16}
        ),
        isa=isa,
    )


class CpuProgram:
    """A kernel in memory, ready to be called."""

    __slots__ = ("address", "loaded", "name")

    def __init__(self, name: str, binary: bytes):
        self.loaded = elf.load(binary, elf.libc_symbols(*_EXTERNAL))
        self.address = self.loaded.address(name)
        self.name = name


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.free.restype = None
    return libc


_loading = held_at_fork(threading.Lock(), 85)


def _load_compiler() -> None:
    """Load it, in one thread at a time: of two, the second would be given the module half loaded
    if the first one's load fails, and would not say what is missing.
    """
    with _loading:
        importlib.import_module("tilegrad.compile.llvm")


def _build_native(text: str) -> bytes:
    """The pool's code, for the plainest processor of this kind; only reached when the cache has
    none. The least effort makes it in a quarter of the time, and a launch over two chunks takes
    39 ns instead of 35 (bench/launch.py).
    """
    _load_compiler()
    from tilegrad.compile.llvm import compile_ir

    generic = "x86-64" if _is_x86() else "generic"
    return compile_ir(text, cpu=generic, features="", opt=0)


def prepare() -> None:
    """Compile the pool's code, if the cache has none."""
    native_code(_build_native)


class CpuRuntime(Runtime):
    """Host memory and the thread pool; a handle is an address."""

    number_types: Mapping[DType, Any] = {
        dtypes.bool: ctypes.c_bool,
        dtypes.int8: ctypes.c_int8,
        dtypes.int16: ctypes.c_int16,
        dtypes.int32: ctypes.c_int32,
        dtypes.int64: ctypes.c_int64,
        dtypes.uint8: ctypes.c_uint8,
        dtypes.uint16: ctypes.c_uint16,
        dtypes.uint32: ctypes.c_uint32,
        dtypes.uint64: ctypes.c_uint64,
        dtypes.float32: ctypes.c_float,
        dtypes.float64: ctypes.c_double,
    }

    def __init__(self) -> None:
        self._pool: NativePool | None = None
        self._lock = threading.Lock()

    @property
    def pool(self) -> NativePool:
        if self._pool is None:
            with self._lock:
                self._pool = native(_build_native)
        return self._pool

    def preparation(self) -> Callable[[], None] | None:
        return None if self._pool is not None else self._prepare

    def _prepare(self) -> None:
        # The pool's code is compiled, or read from disk.
        _ = self.pool

    def allocate(self, nbytes: int) -> int:
        address = ctypes.c_void_p()
        is_large = nbytes >= 2 * _HUGE
        if (
            _libc().posix_memalign(ctypes.byref(address), _HUGE if is_large else _ALIGNMENT, nbytes)
            or not address.value
        ):
            raise MemoryError(nbytes)
        if is_large and hasattr(_libc(), "madvise"):
            # A system that refuses keeps small pages; nothing depends on it.
            _libc().madvise(address, ctypes.c_size_t(nbytes), _ADVISE_HUGE_PAGES)
        return address.value

    def free(self, handle: int, nbytes: int) -> None:
        _libc().free(handle)

    def copy_in(self, handle: int, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        whole = source.obj
        if whole.__class__ is bytes and len(whole) == source.nbytes:
            # To ask for the address takes as long as ten small copies.
            ctypes.memmove(handle, whole, source.nbytes)
        else:
            ctypes.memmove(handle, address_of(source), source.nbytes)

    def copy_out(self, data: memoryview, handle: int) -> None:
        data[:] = memoryview((ctypes.c_char * data.nbytes).from_address(handle)).cast("B")

    def load(self, name: str, binary: bytes) -> CpuProgram:
        return CpuProgram(name, binary)

    def launch(
        self,
        program: CpuProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        block = (ctypes.c_int64 * (len(handles) + len(variables)))(*handles, *variables)
        pool = self.pool
        start = time.perf_counter()
        pool.launch(program.address, ctypes.addressof(block), global_size[0])
        return time.perf_counter() - start

    def sequence(
        self, launches: Sequence[tuple[CpuProgram, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[int]], None]:
        """The arguments of all launches lie in one block, which each call fills: one call at a
        time.
        """
        words = (ctypes.c_int64 * sum(count for _, count, _ in launches))()
        pointer = ctypes.addressof(words)
        table = array("q")
        for program, count, global_size in launches:
            chunks = global_size[0]
            table.extend((program.address, pointer, -chunks if is_small else chunks))
            pointer += 8 * count
        # Made once: to convert a number takes as long as a small kernel.
        address, number = ctypes.c_void_p(table.buffer_info()[0]), ctypes.c_int64(len(launches))
        run_graph: Any = self.pool.run_graph

        def run(values: Sequence[int]) -> None:
            words[:] = values  # type: ignore[call-overload]
            run_graph(address, number)

        # Memory at these addresses lives as long as the function.
        run.holds = table, [program for program, _, _ in launches]  # type: ignore[attr-defined]
        return run

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    def host_view(self, handle: int, nbytes: int) -> memoryview | None:
        return memoryview((ctypes.c_char * nbytes).from_address(handle)).cast("B")

    def bytes_at(self, handle: int, nbytes: int) -> bytes | None:
        return ctypes.string_at(handle, nbytes)

    def wrap(self, memory: memoryview) -> int | None:
        return address_of(memory)

    def transfer(self, target: int, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        if isinstance(source_runtime, CpuRuntime):
            ctypes.memmove(target, source, nbytes)
            return True
        return False


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The CPU device `name`; several of them share the processor but no memory.

    Raises DeviceError for an architecture: CPU_TARGET names one.
    """
    require_number(name)
    limit = config.CPU_TARGET
    target = cpu_target(limit)

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.llvm import LLVMRenderer

        cache_bytes = target.cache_bytes[-1] if target.cache_bytes else 0
        renderer = LLVMRenderer(
            max(target.vector_bytes, 16), cache_bytes, line_bytes=target.line_bytes
        )
        return renderer.render(function, list(program))

    def sooner(text: str) -> str:
        from tilegrad.render.llvm import with_opaque_counters

        return with_opaque_counters(text)

    def processor() -> tuple[str, str, str]:
        _load_compiler()
        from tilegrad.compile.llvm import host_target

        triple, cpu, features = host_target()
        level = _level(limit, target.isa)
        return (triple, level, "") if level else (triple, cpu, features)

    def compile_source(text: str) -> bytes:
        triple, cpu, features = processor()
        from tilegrad.compile.llvm import compile_ir

        return compile_ir(text, cpu=cpu, features=features, triple=triple)

    def listing(text: str) -> str:
        triple, cpu, features = processor()
        from tilegrad.compile.llvm import assembly

        return assembly(text, cpu=cpu, features=features, triple=triple)

    def spills(text: str) -> int:
        from tilegrad.compile.llvm import inner_spills

        return inner_spills(listing(text))

    return Backend(
        name,
        target,
        render,
        compile_source,
        runtime or CpuRuntime(),
        compiler=_identity(),
        spills=spills,
        assembly=listing,
        compiles_unlocked=True,
        sooner=sooner,
    )


def installed_version(package: str) -> str:
    """The version of a package by the name of the folder that describes it, "none" without one.
    The standard library's function for it takes a tenth of a warm start to load.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    root = os.path.dirname(os.path.dirname(found.origin))
    names = [name for name in os.listdir(root) if name.startswith(f"{package}-")]
    versions = [name[len(package) + 1 : -10] for name in names if name.endswith(".dist-info")]
    if len(versions) == 1:
        return versions[0]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@functools.cache
def _identity() -> str:
    """Identity of the compiled code beside the target: the processor's extensions and LLVM's
    version.
    """
    llvm = installed_version("llvmlite")
    return f"llvmlite {llvm} {platform.machine()} {' '.join(sorted(processor_flags()))}"
