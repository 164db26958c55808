"""NVIDIA's GPUs through PTX of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilegrad.device.backend import Backend, arch_of, text_only
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target, cuda_target

__all__ = ["backend"]

_DEFAULT_ARCH = "sm_80"
# What PTX has only as approximations, which miss the published bounds.
_APPROXIMATE = frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.FMOD})


def nv_target(arch: str) -> Target:
    found = cuda_target(arch)
    return replace(found, name="NV", missing=found.missing | _APPROXIMATE)


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The code generator; `runtime` stands for the hardware."""
    target = nv_target(arch_of(name, _DEFAULT_ARCH))

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.ptx import PTXRenderer

        return PTXRenderer(target).render(function, program)

    return text_only(name, target, render, runtime)
