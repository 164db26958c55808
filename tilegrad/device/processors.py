"""Processors that are not the host's, as data, and the back end that they share.

    render    tilegrad.render.llvm     vectors and loops as LLVM IR text
    compile   tilegrad.compile.llvm    an object for the processor
    run       by the device: device/aarch64.py, riscv.py, wasm.py

The kernels are those of the CPU, shaped by other facts: `NULL:AARCH64:SVE` shows them anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, arch_of
from tilegrad.device.cpu import installed_version
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["AARCH64", "RISCV", "WASM", "Processor", "described", "processor"]

_MISSING = frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.RECIP, Ops.FMOD})


@dataclass(frozen=True)
class Processor:
    """A processor, as LLVM is told of it and as the compiler's stages read it.

    Attributes:
        target: the facts.
        triple, cpu, features: the processor, in LLVM's words.
        attributes: of every function.
        emulator: what `qemu-user` calls a processor that has these features.
    """

    target: Target
    triple: str
    cpu: str
    features: str
    attributes: str = ""
    emulator: str = ""

    def compile(self, text: str) -> bytes:
        from tilegrad.compile.llvm import compile_ir

        return compile_ir(text, cpu=self.cpu, features=self.features, triple=self.triple)

    def assembly(self, text: str) -> str:
        from tilegrad.compile.llvm import assembly

        return assembly(text, cpu=self.cpu, features=self.features, triple=self.triple)


def _target(
    name: str,
    isa: str,
    vector_bytes: int,
    missing_dtypes: frozenset[DType],
    *,
    has_mask: bool = False,
    has_fma: bool = True,
    registers: int = 32,
    threads: int = 8,
    cache_bytes: tuple[int, ...] = (64 << 10, 512 << 10, 16 << 20),
) -> Target:
    return Target(
        name,
        vector_bytes=vector_bytes,
        registers=registers,
        threads=threads,
        cache_bytes=cache_bytes,
        has_mask=has_mask,
        has_fma=has_fma,
        missing=_MISSING,
        missing_dtypes=missing_dtypes,
        isa=isa,
    )


_BFLOAT = frozenset({dtypes.bfloat16})
# Without instructions that convert halves they are computed through integers (lower.decompose).
_SHORT = _BFLOAT | {dtypes.float16}


def _sve(bits: int) -> Processor:
    """Vectors of at least `bits` bits, whose lanes have predicates. "Arm Architecture Reference
    Manual": 32 registers of a length that the processor chooses, 128 to 2048 bits.
    """
    return Processor(
        _target("AARCH64", f"sve{bits}", bits // 8, _BFLOAT, has_mask=True),
        "aarch64-linux-gnu",
        "generic",
        "+neon,+sve,+fullfp16",
        f"vscale_range({bits // 128},16)",
        f"max,sve{bits}=on,sve-default-vector-length={bits // 8}",
    )


def _rvv(bits: int) -> Processor:
    """RVA23's instructions without half arithmetic, and vectors of at least `bits` bits ("RISC-V V
    extension" 1.0: 32 registers, a mask for any instruction).
    """
    vectors = ",".join(f"+zvl{size}b" for size in (128, 256, 512) if size <= bits)
    return Processor(
        _target("RISCV", f"rvv{bits}", bits // 8, _SHORT, has_mask=True),
        "riscv64-linux-gnu",
        "generic-rv64",
        f"+m,+a,+f,+d,+c,+v,+zba,+zbb,+zbs,{vectors}",
        f"vscale_range({bits // 64},1024)",
        f"rv64,v=true,vext_spec=v1.0,vlen={bits},zba=true,zbb=true,zbs=true",
    )


AARCH64: Mapping[str, Processor] = {
    # 32 registers of 16 bytes and a fused multiply-add, on every processor of the architecture.
    "neon": Processor(
        _target("AARCH64", "neon", 16, _BFLOAT),
        "aarch64-linux-gnu",
        "generic",
        "+neon",
        emulator="max",
    ),
    "sve": _sve(256),
    "sve128": _sve(128),
    "sve512": _sve(512),
}
RISCV: Mapping[str, Processor] = {
    "rvv": _rvv(128),
    "rvv256": _rvv(256),
    "rvv512": _rvv(512),
}
WASM: Mapping[str, Processor] = {
    # Vectors of 16 bytes, neither masks nor fused multiply-adds ("WebAssembly Core Specification"
    # 2.0). Locals are without number; engines keep them in the host's registers, 16 on x86-64.
    "simd128": Processor(
        _target(
            "WASM",
            "simd128",
            16,
            _SHORT,
            has_fma=False,
            registers=16,
            threads=0,
            cache_bytes=(32 << 10, 1 << 20, 16 << 20),
        ),
        "wasm32-unknown-unknown",
        "generic",
        "+simd128,+bulk-memory,+bulk-memory-opt,+sign-ext,+nontrapping-fptoint,+mutable-globals",
    ),
}


def processor(name: str, table: Mapping[str, Processor]) -> Processor:
    """The processor that the device `name` asks for; the table's first without an architecture.

    Raises DeviceError if there is no such architecture.
    """
    asked = arch_of(name, next(iter(table)))
    if asked not in table:
        kind = name.split(":")[0]
        raise DeviceError(f"{kind.lower()}: {asked!r} is no architecture", known=", ".join(table))
    return table[asked]


def described(name: str, found: Processor, runtime: Runtime, hardware: str = "") -> Backend:
    """The back end of a processor over a runtime."""

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.llvm import LLVMRenderer

        renderer = LLVMRenderer(found.target.vector_bytes, attributes=found.attributes)
        return renderer.render(function, list(program))

    def spills(text: str) -> int:
        from tilegrad.compile.llvm import inner_spills

        return inner_spills(found.assembly(text))

    return Backend(
        name,
        found.target,
        render,
        found.compile,
        runtime,
        compiler=f"llvmlite {installed_version('llvmlite')} {found}",
        spills=spills,
        hardware=hardware,
        assembly=found.assembly,
    )
