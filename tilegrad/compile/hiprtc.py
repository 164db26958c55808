"""HIP C++ -> a code object, by ROCm's run-time compiler (`libhiprtc`), through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from tilegrad.base.libraries import open_declared
from tilegrad.compile.rtc import RunTimeCompiler

__all__ = ["compile_hip", "open_compiler"]

_LIBRARIES = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5")
_P = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "hiprtcCreateProgram": (_P, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, _P, _P),
    "hiprtcCompileProgram": (_P, ctypes.c_int, _P),
    "hiprtcGetProgramLogSize": (_P, _P),
    "hiprtcGetProgramLog": (_P, _P),
    "hiprtcGetCodeSize": (_P, _P),
    "hiprtcGetCode": (_P, _P),
    "hiprtcDestroyProgram": (_P,),
    "hiprtcGetErrorString": (ctypes.c_int,),
}


@functools.cache
def open_compiler() -> Any:
    """The library with the used functions declared.

    Raises DeviceError where there is none, or an old one.
    """
    return open_declared(
        "HIP",
        _LIBRARIES,
        _FUNCTIONS,
        "install ROCm's run-time compiler (hiprtc); AMD needs no compiler, "
        "NULL:HIP compiles and runs nothing without it",
    )


def compile_hip(library: Any, source: str, arch: str, flags: Sequence[str] = ()) -> bytes:
    """The code object of `source` for `arch`, such as "gfx1100".

    Raises CompileError with what the compiler says.
    """
    # Rounding is that of each operation, as on other devices.
    options = [f"--offload-arch={arch}", "-O3", "-ffp-contract=off", *flags]
    return RunTimeCompiler(library, "hiprtc").compile(source, "kernel.hip", arch, options, "Code")[
        0
    ]
