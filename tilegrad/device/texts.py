"""GPUs whose programs are written as text and not launched from here: CUDA, HIP.

    render    the renderer of the row, for the architecture behind the colon: NULL:CUDA:sm_90
    run       not here: NULL:CUDA compiles, EMU:CUDA runs it in Python

A device of this kind is a row of `TEXTS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, arch_of, text_only
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target, cuda_target, hip_target

__all__ = ["TEXTS", "TextDevice", "backend"]


@dataclass(frozen=True)
class TextDevice:
    """One row.

    Attributes:
        module, renderer: where the renderer's class is, imported with the first kernel.
        target: the facts, of an architecture where there are several.
        arch: the architecture of a name that gives none; empty where there is one for all.
    """

    module: str
    renderer: str
    target: Callable[..., Target]
    arch: str = ""

    def arguments(self, name: str) -> tuple[str, ...]:
        """What target and renderer are called with: the architecture that the device's name gives.

        Raises DeviceError if it gives one where there is none to choose.
        """
        arch = arch_of(name, self.arch)
        if arch and not self.arch:
            kind = name.split(":")[0]
            raise DeviceError(
                f"{kind.lower()}: {arch!r} is no architecture", rule=f"{kind} has one for all"
            )
        return (arch,) if self.arch else ()


TEXTS = {
    "CUDA": TextDevice("tilegrad.render.cuda", "CUDARenderer", cuda_target, "sm_80"),
    "HIP": TextDevice("tilegrad.render.hip", "HIPRenderer", hip_target, "gfx1100"),
}


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The code generator; `runtime` stands for the hardware.

    Raises DeviceError where there is no other runtime.
    """
    row = TEXTS[name.split(":")[0]]
    arguments = row.arguments(name)

    def render(function: str, program: Sequence[UOp]) -> str:
        renderer: Any = getattr(importlib.import_module(row.module), row.renderer)
        return str(renderer(*arguments).render(function, program))

    return text_only(name, row.target(*arguments), render, runtime)
