"""The LLVM text of AMD's kernels, run on this processor.

What only a GPU has is replaced in the text: address spaces by the one there is, the positions of a
lane by parameters, a barrier by a call that waits for all lanes of the block, each of which is a
thread. Everything else (indices, gates, atomics, shared memory, arithmetic) is what the GPU's
compiler reads. Matrix units are left out: no processor has them.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.conformance.case import Case
from tilegrad import Device
from tilegrad.base.dtype import dtypes
from tilegrad.compile.llvm import compile_ir, host_target
from tilegrad.device.backend import Backend
from tilegrad.device.cpu import CpuRuntime, processor_flags
from tilegrad.hardware import amd_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.amdgpu import AMDGPURenderer
from tilegrad.runtime import elf
from tilegrad.runtime.protocol import Dims
from tilegrad.target import Target

__all__ = [
    "BlockRuntime", "amd_on_cpu", "backend_on_cpu", "can_compile", "compiled_on_cpu", "on_cpu",
]  # fmt: skip

_POSITIONS = ("workgroup.id.x", "workgroup.id.y", "workgroup.id.z",
              "workitem.id.x", "workitem.id.y", "workitem.id.z")  # fmt: skip
_BARRIER = "shim_barrier"
# To the nearest, ties to even, NaN quiet. The instruction of x86-64 takes subnormals as zeros;
# those of AMD do not.
_TO_BFLOAT = """define internal bfloat @to_bfloat(float %x) {
  %bits = bitcast float %x to i32
  %above = lshr i32 %bits, 16
  %odd = and i32 %above, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %above, 64
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i32 %quiet, i32 %rounded
  %short = trunc i32 %chosen to i16
  %value = bitcast i16 %short to bfloat
  ret bfloat %value
}"""


def on_cpu(text: str) -> str:
    """The module with `@entry_NAME(ptr args, ptr positions)` beside the kernel, for a processor."""
    found = re.search(r"define amdgpu_kernel void @(\w+)\((.*)\) #0 !\w+ !1", text)
    assert found is not None
    name, parameters = found[1], [each for each in found[2].split(", ") if each]
    ids = [f"i32 %id{number}" for number in range(len(_POSITIONS))]
    head = f"define void @{name}({', '.join([*parameters, *ids])}) #0"
    text = text.replace(found[0], head)
    for number, position in enumerate(_POSITIONS):
        text = text.replace(f"call i32 @llvm.amdgcn.{position}()", f"add i32 %id{number}, 0")
    text = re.sub(r'fence syncscope\("workgroup"\) \w+\n', "fence seq_cst\n", text)
    text = text.replace("call void @llvm.amdgcn.s.barrier()", f"call void @{_BARRIER}()")
    text = re.sub(r"^declare .*@llvm\.amdgcn\..*\n", "", text, flags=re.M)
    text = re.sub(r" addrspace\(\d\)(?= global)", "", text)
    text = re.sub(r", addrspace\(\d\)", "", text).replace(' syncscope("agent")', "")
    text = re.sub(r"ptr addrspace\(\d\)", "ptr", text)
    text = re.sub(r"fptrunc float (\S+) to bfloat", r"call bfloat @to_bfloat(float \1)", text)
    text = re.sub(r"^(attributes #0|!).*\n", "", text, flags=re.M)
    entry = [f"define void @entry_{name}(ptr %args, ptr %positions) #0 {{"]
    given = []
    for number, parameter in enumerate(parameters):
        kind = "ptr" if parameter.startswith("ptr") else "i64"
        entry.append(f"  %p{number} = getelementptr i64, ptr %args, i64 {number}")
        entry.append(f"  %a{number} = load {kind}, ptr %p{number}")
        given.append(f"{kind} %a{number}")
    for number in range(len(_POSITIONS)):
        entry.append(f"  %q{number} = getelementptr i32, ptr %positions, i64 {number}")
        entry.append(f"  %i{number} = load i32, ptr %q{number}")
        given.append(f"i32 %i{number}")
    entry += [f"  call void @{name}({', '.join(given)})", "  ret void", "}"]
    if "bfloat" in text:
        entry.append(_TO_BFLOAT)
    declared = f"declare void @{_BARRIER}()\nattributes #0 = {{ nounwind }}\n"
    return text + "\n".join(entry) + "\n" + declared


def compiled_on_cpu(text: str) -> bytes:
    """The object of `on_cpu(text)`."""
    triple, cpu, features = host_target()
    return compile_ir(on_cpu(text), cpu=cpu, features=features, triple=triple)


class _Program:
    def __init__(self, name: str, binary: bytes):
        self.barrier = threading.Barrier(1)
        self.wait = ctypes.CFUNCTYPE(None)(lambda: self.barrier.wait() and None)
        waits = ctypes.cast(self.wait, ctypes.c_void_p).value or 0
        names = ("memcpy", "memset", "memmove", "trunc", "truncf", "fma", "fmaf")
        self.loaded = elf.load(binary, {**elf.libc_symbols(*names), _BARRIER: waits})
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self.entry = function(self.loaded.address(f"entry_{name}"))


class BlockRuntime(CpuRuntime):
    """Blocks one after the other; the lanes of a block as threads where they wait for each other,
    else one after the other.
    """

    def load(self, name: str, binary: bytes) -> Any:
        waits, _, rest = binary.partition(b"\0")
        program = _Program(name, rest)
        program.has_barrier = waits == b"waits"  # type: ignore[attr-defined]
        return program

    def sequence(self, launches: Any, is_small: bool) -> Any:
        return None

    def launch(
        self,
        program: Any,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        words = (ctypes.c_int64 * (len(handles) + len(variables)))(*handles, *variables)
        lanes = list(itertools.product(*(range(size) for size in local_size)))
        program.barrier = threading.Barrier(len(lanes))

        def run(block: tuple[int, ...], lane: tuple[int, ...]) -> None:
            program.entry(words, (ctypes.c_int32 * 6)(*block, *lane))

        for block in itertools.product(*(range(size) for size in global_size)):
            if program.has_barrier:
                threads = [threading.Thread(target=run, args=(block, lane)) for lane in lanes]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            else:
                for lane in lanes:
                    run(block, lane)
        return 0.0


def backend_on_cpu(name: str, target: Target) -> Backend:
    """A device whose kernels are those of the AMD GPU `target`, on this processor."""

    def render(function: str, program: Sequence[UOp]) -> str:
        assert all(node.op is not Ops.WMMA for node in program)
        return AMDGPURenderer(target).render(function, program)

    def compile_source(text: str) -> bytes:
        return (b"waits" if "s.barrier" in text else b"") + b"\0" + compiled_on_cpu(text)

    return Backend(name, target, render, compile_source, BlockRuntime(), compiler="amd on cpu")


@contextmanager
def amd_on_cpu() -> Iterator[str]:
    """The name of such a device, for gfx1100."""
    target = replace(amd_target("gfx1100"), matrix_units=())
    Device.register("AMDONCPU", lambda name, runtime=None: backend_on_cpu(name, target))
    try:
        yield "AMDONCPU"
    finally:
        Device.unregister("AMDONCPU")


def can_compile(case: Case) -> bool:
    """LLVM 22 ends the process on x86-64, not for AMD, at the sign bit of a bfloat16; on processors
    without its instructions that may be so of other ops.
    """
    if case.dtype is not dtypes.bfloat16:
        return True
    return "avx512_bf16" in processor_flags() and case.op not in ("signbit", "copysign")
