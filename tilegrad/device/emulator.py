"""The reference device: programs for any target run lane by lane in Python.

    render    tilegrad.render.python   one function that a lane runs
    compile   nothing: the source is the binary
    run       tilegrad.runtime.simt    blocks, lanes, barriers, matrix units

`EMU` looks like a GPU: scalar arithmetic, blocks of lanes with shared memory, a matrix unit.
`EMU:CPU` runs code that is compiled for the target of another device. Its memory is its own, so
that a missing copy fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.host import HostMemory
from tilegrad.device.registry import Device
from tilegrad.hardware import cuda_target
from tilegrad.ir.uop import UOp
from tilegrad.render.python import render_python
from tilegrad.runtime.protocol import Dims, Runtime, launch_dims, variable_names
from tilegrad.runtime.simt import SimtProgram
from tilegrad.target import Target

__all__ = ["TARGET", "EmulatorRuntime", "backend", "check_limits", "execute"]


TARGET = replace(cuda_target("sm_80"), name="EMU", isa="")


class EmulatorRuntime(HostMemory):
    """Memory that no host view reaches, and launches in Python."""

    is_timed = False

    def __init__(self, target: Target):
        self.target = target

    def host_view(self, handle: Any, nbytes: int) -> memoryview | None:
        return None

    def wrap(self, memory: memoryview) -> Any:
        return None

    def load(self, name: str, binary: bytes) -> Any:
        return SimtProgram(name, binary.decode())

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        check_limits(program, local_size, self.target)
        began = time.perf_counter()
        program.run(handles, variables, global_size, local_size)
        return time.perf_counter() - began if wait else None


def check_limits(program: SimtProgram, local_size: Dims, target: Target) -> None:
    """Raise DeviceError if a block asks for more than the target has."""
    lanes = math.prod(local_size)
    if lanes > target.block_lanes:
        raise DeviceError(
            f"{program.name}: {lanes} lanes in a block, local size {tuple(local_size)}",
            limit=f"{target.block_lanes} on {target.name}",
        )
    if program.shared_bytes > target.block_bytes:
        raise DeviceError(
            f"{program.name}: {program.shared_bytes} bytes of shared memory in a block",
            limit=f"{target.block_bytes} on {target.name}",
        )


def execute(
    program: Sequence[UOp],
    buffers: Sequence[bytearray | memoryview],
    variables: Mapping[str, int] | None = None,
    name: str = "rendered",
) -> None:
    """Run a linear program on the bytes of its buffers, by slot."""
    values = variables or {}
    dims = launch_dims(program, values)
    SimtProgram(name, render_python(name, program)).run(
        [memoryview(data) for data in buffers],
        [values[variable] for variable in variable_names(program)],
        dims.global_size,
        dims.local_size,
    )


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    _, _, like = name.partition(":")
    target = TARGET
    if like and not like.isdecimal():
        found = Device.describe(like, runtime or HostMemory()).target
        target = replace(found, name=f"EMU {found.name}")
    return Backend(name, target, render_python, str.encode, runtime or EmulatorRuntime(target))
