"""HIP C++ -> a code object, by ROCm's run-time compiler (`libhiprtc`), through ctypes.

hiprtcCreateProgram, hiprtcCompileProgram, hiprtcGetCode      as ROCm's documentation has them
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import CompileError
from tilegrad.base.libraries import open_declared

__all__ = ["compile_hip", "open_compiler"]

_LIBRARIES = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5")
_SUCCESS = 0
_P = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "hiprtcCreateProgram": (_P, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, _P, _P),
    "hiprtcCompileProgram": (_P, ctypes.c_int, _P),
    "hiprtcGetProgramLogSize": (_P, _P),
    "hiprtcGetProgramLog": (_P, _P),
    "hiprtcGetCodeSize": (_P, _P),
    "hiprtcGetCode": (_P, _P),
    "hiprtcDestroyProgram": (_P,),
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
    program = ctypes.c_void_p()
    created = library.hiprtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.hip", 0, None, None
    )
    _check(created, "hiprtcCreateProgram")
    try:
        # Rounding is that of each operation, as on other devices.
        options = [f"--offload-arch={arch}", "-O3", "-ffp-contract=off", *flags]
        texts = (ctypes.c_char_p * len(options))(*[each.encode() for each in options])
        status = library.hiprtcCompileProgram(program, len(options), texts)
        if status != _SUCCESS:
            log = _read(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"hiprtc: the text for {arch} does not compile", message=log)
        return _read(library, program, "Code")
    finally:
        library.hiprtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library, f"hiprtcGet{what}Size")(program, ctypes.byref(size)), what)
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"hiprtcGet{what}")(program, data), what)
    return data.raw


def _check(status: int, what: str) -> None:
    if status != _SUCCESS:
        raise CompileError(f"hiprtc: {what} failed", status=status)
