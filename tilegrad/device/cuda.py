"""NVIDIA's GPUs through CUDA C++ and NVIDIA's run-time compiler; no toolkit is needed.

    render    tilegrad.render.cuda        CUDA C++
    compile   tilegrad.compile.nvrtc      machine code for the architecture
    run       tilegrad.device.nv_runtime  as NV does

`CUDA` is the first GPU, `CUDA:1` the next one. `NV` takes PTX of our own and no compiler of
NVIDIA's; CUDA C++ is what there is to compare it with, and to read. `NULL:CUDA:sm_90` compiles for
an architecture without a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.compile import nvrtc
from tilegrad.device import nv_driver
from tilegrad.device.backend import Backend, arch_of
from tilegrad.device.nv import find_device, heading_of, release
from tilegrad.device.nv_runtime import NVRuntime
from tilegrad.hardware import cuda_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.interface import compiled_below_heading
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend", "opened"]

_DEFAULT_ARCH = "sm_80"
Compile = Callable[[str, str], bytes]


def _render_for(arch: str, function: str, program: Sequence[UOp]) -> str:
    from tilegrad.render.cuda import CUDARenderer

    return CUDARenderer(arch).render(function, program)


def _render_headed(arch: str, function: str, program: Sequence[UOp]) -> str:
    """The text, below a line that says what a launch passes."""
    return f"{heading_of(function, program)}\n{_render_for(arch, function, program)}"


def _cubin(source: str, arch: str) -> bytes:
    from tilegrad.render.cuda import CUDARenderer

    return nvrtc.compile_cuda(source, arch, CUDARenderer.flags).binary


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where cuda-bindings, a driver, the compiler or the device is not there.
    """
    asked = arch_of(name, "")
    if runtime is not None:
        arch = asked or _DEFAULT_ARCH
        render = functools.partial(_render_for, arch)
        return Backend(name, cuda_target(arch), render, str.encode, runtime, compiler="text")
    nv_driver.number_of(name)
    module = nv_driver.bindings("CUDA")
    if reason := nvrtc.why_not():
        headline, _, remedy = reason.partition("; ")
        raise DeviceError(f"CUDA: {headline}", remedy=remedy)
    return opened(name, module, _cubin, nvrtc.release())


def opened(name: str, module: Any, compile_source: Compile, made_by: tuple[int, int]) -> Backend:
    """The device `name` of the driver whose functions `module` has. `compile_source` makes machine
    code of a text for an architecture; it is of the release `made_by` of CUDA.

    Raises DeviceError where there is no such device, or the driver is too old for it.
    """
    driver = nv_driver.Driver(module, "CUDA")
    device, arch, title = find_device(driver, name)
    if driver.version // 1000 < made_by[0]:
        raise DeviceError(
            f"CUDA: the driver of {title} is too old for the compiler",
            found=f"it loads what CUDA {release(driver.version)} makes",
            needed=f"CUDA {made_by[0]}.0, for NVRTC {made_by[0]}.{made_by[1]}",
            remedy="install a newer NVIDIA driver, or an older nvidia-cuda-nvrtc; or use NV, which "
            "needs neither",
        )
    return Backend(
        name,
        cuda_target(arch),
        functools.partial(_render_headed, arch),
        functools.partial(compiled_below_heading, "cuda", "cu", arch, compile_source),
        NVRuntime(driver, device, title),
        compiler="NVRTC {}.{}".format(*made_by),
        hardware=title,
    )
