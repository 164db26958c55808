"""AMD's GPUs through HIP C++ and ROCm's run-time compiler.

    render    tilegrad.render.hip         HIP C++ for the architecture of the GPU
    compile   tilegrad.compile.hiprtc     a code object
    run       tilegrad.runtime.hip        `libamdhip64`, as AMD does

`AMD` takes LLVM IR of our own and no compiler of the vendor's; HIP C++ is what there is to compare
it with, and to read. `NULL:HIP:gfx942` compiles for an architecture that is not here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, arch_of
from tilegrad.hardware import hip_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.hip import HipSourceRuntime, open_library, visible_architectures
from tilegrad.runtime.interface import compiled_below_heading, heading
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend", "opened"]

_DEFAULT_ARCH = "gfx1100"


def _render_for(arch: str, function: str, program: Sequence[UOp]) -> str:
    from tilegrad.render.hip import HIPRenderer

    return HIPRenderer(arch).render(function, program)


def _render_headed(arch: str, function: str, program: Sequence[UOp]) -> str:
    """The text, below the line that says what a launch passes."""
    return f"{heading(function, program)}\n{_render_for(arch, function, program)}"


def _code_object(compiler: Any, text: str, arch: str) -> bytes:
    from tilegrad.compile.hiprtc import compile_hip
    from tilegrad.render.hip import HIPRenderer

    return compile_hip(compiler, text, arch, HIPRenderer.flags)


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where there is no GPU, or not what runs it.
    """
    asked = arch_of(name, "")
    if runtime is not None:
        arch = asked or _DEFAULT_ARCH
        render = functools.partial(_render_for, arch)
        return Backend(name, hip_target(arch), render, str.encode, runtime, compiler="text")
    if asked:
        raise DeviceError(
            f"HIP: {name!r} names an architecture, not a GPU",
            rule="HIP, or HIP:1 for the second GPU",
            remedy=f"NULL:{name} compiles for it and runs nothing",
        )
    from tilegrad.compile.hiprtc import open_compiler

    library = open_library("HIP")
    return opened(name, library, open_compiler(), visible_architectures(library))


def opened(name: str, library: Any, compiler: Any, architectures: Sequence[str]) -> Backend:
    """The device `name` among GPUs of these `architectures`, through ROCm's library and its
    compiler.

    Raises DeviceError where there is no such GPU.
    """
    number = int(name.partition(":")[2] or 0)
    if number >= len(architectures):
        raise DeviceError(
            f"HIP: there is no GPU number {number}",
            found=", ".join(architectures) or "none",
            remedy="load the kernel's driver, amdgpu, and join the groups render and video",
        )
    arch = architectures[number]
    return Backend(
        name,
        hip_target(arch),
        functools.partial(_render_headed, arch),
        functools.partial(
            compiled_below_heading, "hip", "hip", arch, functools.partial(_code_object, compiler)
        ),
        HipSourceRuntime(library, number),
        compiler="hiprtc",
        hardware=arch,
    )
