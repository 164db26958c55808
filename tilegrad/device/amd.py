"""AMD's GPUs, through LLVM: no compiler of the vendor is needed.

    render    tilegrad.render.amdgpu        LLVM IR for the architecture of the GPU
    compile   tilegrad.compile.llvm         an object, which runtime.code_object makes loadable
    run       tilegrad.runtime.hip          `libamdhip64`, by ctypes
              tilegrad.runtime.kfd          `AMD:KFD`: the kernel's driver alone, without a library

`NULL:AMD:gfx942` compiles for an architecture that is not here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, arch_of
from tilegrad.device.cpu import installed_version
from tilegrad.hardware import amd_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend"]

_DEFAULT_ARCH = "gfx1100"
_TRIPLE = "amdgcn-amd-amdhsa"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`, as AMD, AMD:1 or AMD:KFD; `runtime` stands for the hardware, and then an
    architecture may follow the colon.

    Raises DeviceError where there is no GPU, or not what runs it.
    """
    arch = arch_of(name, _DEFAULT_ARCH)
    if runtime is None:
        arch, runtime = _opened(name)
    target = amd_target(arch)

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.amdgpu import AMDGPURenderer

        return AMDGPURenderer(target).render(function, program)

    def compile_source(text: str) -> bytes:
        from tilegrad.compile.llvm import compile_ir
        from tilegrad.runtime.code_object import code_object

        return code_object(compile_ir(text, cpu=arch, features="", triple=_TRIPLE))

    def assembly(text: str) -> str:
        from tilegrad.compile.llvm import assembly

        return assembly(text, cpu=arch, features="", triple=_TRIPLE)

    return Backend(
        name,
        target,
        render,
        compile_source,
        runtime,
        compiler=f"llvmlite {installed_version('llvmlite')} {arch}",
        assembly=assembly,
    )


def _opened(name: str) -> tuple[str, Runtime]:
    """The GPU that `name` asks for: its architecture, and its runtime."""
    from tilegrad.runtime.hip import HipRuntime, open_library, visible_architectures

    rest = name.partition(":")[2]
    if rest == "KFD":
        return _opened_by_driver()
    if rest.startswith("KFD"):
        raise DeviceError(f"AMD: {name!r} is no device", rule="AMD:KFD is the first GPU")
    if rest and not rest.isdecimal():
        raise DeviceError(
            f"AMD: {name!r} names an architecture, not a GPU",
            rule="AMD, or AMD:1 for the second GPU",
            remedy=f"NULL:{name} compiles for it and runs nothing",
        )
    number, library = int(rest or 0), open_library()
    found = visible_architectures(library)
    if number >= len(found):
        raise DeviceError(
            f"AMD: there is no GPU number {number}",
            found=", ".join(found) or "none",
            remedy="load the kernel's driver, amdgpu, and join the groups render and video",
        )
    return found[number], HipRuntime(library, number)


def _opened_by_driver() -> tuple[str, Runtime]:
    """The first GPU, through the kernel's driver."""
    from tilegrad.runtime.hip import gpu_architectures
    from tilegrad.runtime.kfd import KfdRuntime, KfdSystem, Node
    from tilegrad.runtime.pm4 import command_processor_of

    found = gpu_architectures()
    if not found:
        raise DeviceError(
            "AMD:KFD: the kernel's driver lists no GPU",
            remedy="load amdgpu; NULL:AMD compiles and runs nothing without it",
        )
    number, arch = next(iter(found.items()))
    return arch, KfdRuntime(Node.read(number), KfdSystem(), command_processor_of(arch))
