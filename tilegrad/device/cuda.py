"""NVIDIA's GPUs through CUDA C++, as text so far.

render    tilegrad.render.cuda   for the architecture behind the colon: NULL:CUDA:sm_90
run       not yet: NULL:CUDA compiles, EMU:CUDA runs it in Python
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.device.backend import Backend, arch_of, text_only
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import cuda_target

__all__ = ["backend"]

_DEFAULT_ARCH = "sm_80"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The code generator; `runtime` stands for the hardware."""
    arch = arch_of(name, _DEFAULT_ARCH)

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.cuda import CUDARenderer

        return CUDARenderer(arch).render(function, program)

    return text_only(name, cuda_target(arch), render, runtime)
