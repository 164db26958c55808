"""CUDA C++ -> cubin, by NVIDIA's run-time compiler, which needs no GPU and no driver.

The library is that of the wheel `nvidia-cuda-nvrtc`, whose headers for half precision come with
`nvidia-cuda-runtime`, or that of an installed toolkit. Nothing is loaded before it is asked for.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.compile.rtc import RunTimeCompiler

__all__ = ["Cubin", "compile_cuda", "find_tool", "release", "why_not"]

_REMEDY = "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and the compiler's log."""

    binary: bytes
    log: str


def _roots() -> Iterator[Path]:
    """Folders that may hold `lib`, `include` and `bin`: of wheels, then of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(filter(Path.is_dir, Path(folder).iterdir()), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value)
    yield Path("/usr/local/cuda")


@functools.cache
def _library() -> Any:
    names = ("libnvrtc.so.[0-9]*", "libnvrtc.so", "nvrtc64_*_0.dll")
    folders = [root / name for root in _roots() for name in ("lib", "lib64", "bin", "bin/x86_64")]
    found = [str(file) for folder in folders for name in names for file in folder.glob(name)]
    found += [name] if (name := ctypes.util.find_library("nvrtc")) else []
    old = []
    for path in found:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        # CUDA 11.2 and newer.
        if hasattr(library, "nvrtcGetCUBIN"):
            return library
        old.append(path)
    if old:
        raise DeviceError(f"nvrtc: {old[0]} is too old: it gives no machine code", remedy=_REMEDY)
    raise DeviceError("nvrtc: NVIDIA's run-time compiler is not here", remedy=_REMEDY)


@functools.cache
def _includes() -> tuple[str, ...]:
    folders = [root / "include" for root in _roots()]
    return tuple(f"-I{folder}" for folder in folders if (folder / "cuda_fp16.h").is_file())


def find_tool(name: str) -> str | None:
    """The path of a program of the toolkit, such as `nvdisasm`, if there is one."""
    for root in _roots():
        path = root / "bin" / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def why_not() -> str:
    """Why nothing can be compiled here; empty if it can."""
    try:
        _library()
    except DeviceError as error:
        return f"{error.headline}; {_REMEDY}"
    return "" if _includes() else f"nvrtc: there is no cuda_fp16.h; {_REMEDY}"


def release() -> tuple[int, int]:
    """The release of CUDA that the compiler is of.

    Raises DeviceError where there is no compiler.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    _compiler().call("Version", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_cuda(source: str, arch: str, flags: Sequence[str] = ()) -> Cubin:
    """Compile `source` for `arch`, such as "sm_90a".

    Raises CompileError with what the compiler says, DeviceError where there is no compiler.
    """
    options = [f"--gpu-architecture={arch}", "--std=c++17", *_includes(), *flags]
    return Cubin(*_compiler().compile(source, "kernel.cu", arch, options, "CUBIN"))


def _compiler() -> RunTimeCompiler:
    return RunTimeCompiler(_library(), "nvrtc")
