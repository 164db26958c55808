"""NVIDIA's GPUs through PTX of our own and the driver: no toolkit, no C++ compiler.

    render    tilegrad.render.ptx         PTX for the architecture
    compile   tilegrad.compile.ptxas      machine code, where `ptxas` is here, or the driver
    run       tilegrad.device.nv_runtime  memory, a stream, graphs, by `cuda-bindings`

`NV` is the first GPU, `NV:1` the next one. `NULL:NV:sm_90` compiles for an architecture without
one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.base.dtype import Pointer, dtypes
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.device import nv_driver
from tilegrad.device.backend import Backend, arch_of
from tilegrad.device.nv_runtime import NVRuntime, heading
from tilegrad.hardware import BYTE_FLOATS, cuda_target, nvidia_units
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.interface import block_of
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["backend", "find_device", "heading_of", "nv_target", "opened", "release"]

_DEFAULT_ARCH = "sm_80"
_LEAST = 75
# The first compute capability that copies tiles by tensor maps, to several blocks of a cluster too
# (PTX ISA, "cp.async.bulk.tensor").
_TILES = 90
# Ops that PTX has only as approximations, which miss the published bounds, or not at all.
_APPROXIMATE = frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.FMOD})
# Compute capabilities whose matrix units are in no later one (`nvidia_units`).
_OWN_UNITS = ((9, 0), (10, 0))
# The first release of CUDA whose drivers read a version of PTX (PTX ISA, "Release History").
_RELEASES = {
    "7.0": 11000, "7.1": 11010, "7.4": 11040, "7.8": 11080, "8.0": 12000, "8.4": 12040,
    "8.6": 12070, "8.7": 12080, "8.8": 12090, "9.0": 13000,
}  # fmt: skip


def nv_target(arch: str) -> Target:
    """A GPU of compute capability `arch`, as "sm_90" or "sm_90a".

    Raises DeviceError if there is no such architecture, or it is older than `ptxas` knows.
    """
    try:
        found = cuda_target(arch)
    except DeviceError as error:
        every = str(error.details["known"]).split(", ")
        known = ", ".join(each for each in every if _number(each) >= _LEAST)
        details = {**error.details, "known": known}
        raise DeviceError(error.headline.replace("cuda:", "nv:"), **details) from None
    if _number(arch) < _LEAST:
        raise DeviceError(
            f"nv: {arch} is too old",
            rule=f"sm_{_LEAST} (Turing) and newer",
            remedy="CL runs on older GPUs, by the OpenCL of NVIDIA's display driver",
        )
    return replace(
        found,
        name="NV",
        has_tile_copies=_number(arch) >= _TILES,
        has_clusters=_number(arch) >= _TILES,
        missing=found.missing | _APPROXIMATE,
        matrix_units=(*found.matrix_units, *nvidia_units(arch)),
    )


def _number(arch: str) -> int:
    return int("".join(letter for letter in arch if letter.isdigit()))


def asked_bytes(program: Sequence[UOp]) -> int:
    """Bytes of shared memory that a launch must ask for."""
    from tilegrad.render.shared_memory import shared_layout

    found = shared_layout(program)
    return found.nbytes if found.is_asked else 0


def heading_of(function: str, program: Sequence[UOp]) -> str:
    """The line above a kernel's code that says what a launch passes."""
    from tilegrad.render.tile_maps import blocks_together, map_text, maps_of

    slots = sorted(node.arg for node in program if node.op is Ops.DEFINE_GLOBAL)
    variables = sum(node.op is Ops.DEFINE_VAR for node in program)
    maps = [map_text(source.arg, _itemsize(source), matrix) for source, matrix in maps_of(program)]
    asked, together = asked_bytes(program), blocks_together(program)
    return heading(function, slots, variables, block_of(program), asked, maps, together)


def _itemsize(memory: UOp) -> int:
    assert isinstance(memory.dtype, Pointer)
    return memory.dtype.base.nbytes


def _render_for(target: Target, function: str, program: Sequence[UOp]) -> str:
    from tilegrad.render.ptx import PTXRenderer

    return f"{heading_of(function, program)}\n{PTXRenderer(target).render(function, program)}"


def _compile_for(arch: str, program: str | None, source: str) -> bytes:
    """Machine code where there is a `ptxas`, else the text."""
    if program is None:
        return source.encode()
    from tilegrad.compile.ptxas import assemble

    head, _, text = source.partition("\n")
    return head.encode() + b"\n" + assemble(text, arch, program)[0]


def find_device(driver: nv_driver.Driver, name: str) -> tuple[Any, str, str]:
    """The device that a name asks for, its architecture, and its maker's name for it.

    Raises DeviceError where it is not there.
    """
    count = int(driver.call("cuDeviceGetCount"))
    number = nv_driver.number_of(name)
    if number >= count:
        others = [f"{driver.kind}:{other}" for other in range(1, count)]
        raise DeviceError(
            f"{driver.kind}: there is no device {number}",
            found=", ".join([driver.kind, *others]) if count else "no NVIDIA GPU",
            **nv_driver.visible(),
        )
    device = driver.call("cuDeviceGet", number)
    title = bytes(driver.call("cuDeviceGetName", 128, device)).split(b"\0")[0].decode().strip()
    major, minor = (
        driver.attribute(f"COMPUTE_CAPABILITY_{half}", device) for half in ("MAJOR", "MINOR")
    )
    # The code for this architecture alone has units that are in no other.
    arch = f"sm_{major}{minor}{'a' if (major, minor) in _OWN_UNITS else ''}"
    return device, arch, title


def _require_release(version: int, arch: str, title: str) -> None:
    """Raise DeviceError if a driver cannot read PTX for `arch`."""
    from tilegrad.render.ptx_code import ptx_version

    try:
        needed = _RELEASES[ptx_version(_number(arch))]
    except CompileError:
        return  # nv_target says what is wrong
    if version < needed:
        raise DeviceError(
            f"NV: the driver of {title} is too old",
            found=f"it reads what CUDA {release(version)} makes",
            needed=f"CUDA {release(needed)}, for {arch}",
            remedy="install a newer NVIDIA driver",
        )


def release(version: int) -> str:
    """The release of CUDA that a driver's version is of."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _ptxas_for(version: int) -> str | None:
    """A `ptxas` whose machine code the driver can load: not of a later major release."""
    from tilegrad.compile.ptxas import find_ptxas, ptxas_release

    found = find_ptxas()
    return found if found is not None and 0 < ptxas_release(found)[0] <= version // 1000 else None


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where cuda-bindings, a driver or the device is not there.
    """
    asked = arch_of(name, "")
    if runtime is not None:
        target = nv_target(asked or _DEFAULT_ARCH)
        render = functools.partial(_render_for, target)
        return Backend(name, target, render, str.encode, runtime, compiler="text")
    nv_driver.number_of(name)
    return opened(name, nv_driver.bindings())


def opened(name: str, module: Any, *, assembles: bool = True) -> Backend:
    """The device `name` of the driver whose functions `module` has. Where it `assembles`, a `ptxas`
    that is here makes the machine code.

    Raises DeviceError where there is no such device, or the driver is too old for it.
    """
    driver = nv_driver.Driver(module)
    device, arch, title = find_device(driver, name)
    _require_release(driver.version, arch, title)
    target = nv_target(arch)
    program, compiler = _ptxas_for(driver.version) if assembles else None, "PTX"
    if program is None and driver.version < _RELEASES[BYTE_FLOATS]:
        # The driver reads no text that multiplies floats of 8 bits.
        units = tuple(
            unit
            for unit in target.matrix_units
            if unit.dtype_in not in dtypes.fp8s or unit.row_bytes
        )
        target = replace(target, matrix_units=units)
    if program is not None:
        from tilegrad.compile.ptxas import ptxas_release

        compiler = "ptxas {}.{}".format(*ptxas_release(program))
    return Backend(
        name,
        target,
        functools.partial(_render_for, target),
        functools.partial(_compile_for, arch, program),
        NVRuntime(driver, device, title),
        compiler=compiler,
        hardware=title,
    )
