"""The host processor, through C and the C compiler of the machine.

    render    tilegrad.render.clang    one C function per kernel, and one that the thread pool calls
    compile   tilegrad.compile.clang   a shared object, by cc, gcc or clang
    run       memory and thread pool of the CPU device; the object is loaded into this process

For machines for which LLVM has no code generator here, and to read a kernel as C.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace

from tilegrad.base.config import config
from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, require_number
from tilegrad.device.cpu import CpuRuntime, cpu_target, processor_flags
from tilegrad.hardware import clang_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["ClangProgram", "ClangRuntime", "backend"]

_ENTRY = "entry_of_"


class ClangProgram:
    """A shared object in this process, and the address of its entry."""

    __slots__ = ("__weakref__", "address", "name")

    def __init__(self, name: str, binary: bytes):
        handle, path = tempfile.mkstemp(prefix="tilegrad-", suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(binary)
            library = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(f"CLANG: {name} cannot be loaded: {error}") from None
        finally:
            os.unlink(path)
        found = ctypes.cast(getattr(library, _ENTRY + name), ctypes.c_void_p).value
        assert found is not None
        self.address, self.name = found, name
        weakref.finalize(self, _ctypes.dlclose, library._handle).atexit = False


class ClangRuntime(CpuRuntime):
    """The CPU's memory and threads, with programs of another kind."""

    def load(self, name: str, binary: bytes) -> ClangProgram:  # type: ignore[override]
        return ClangProgram(name, binary)


def entry(name: str, program: Sequence[UOp]) -> str:
    """The function that the thread pool calls: arguments in a row of 64-bit words, and a chunk."""
    pointers = sorted(node.arg for node in program if node.op is Ops.DEFINE_GLOBAL)
    variables = [node for node in program if node.op is Ops.DEFINE_VAR]
    first = 1 + max(pointers, default=-1)
    words = [f"(void*)args[{slot}]" for slot in pointers]
    words += [f"args[{first + number}]" for number in range(len(variables))]
    words += ["chunk" for node in program if node.op is Ops.SPECIAL]
    return (
        f"void {_ENTRY}{name}(const long long* args, long long chunk) {{\n"
        f"  {name}({', '.join(words)});\n}}\n"
    )


def _no_compiler() -> DeviceError:
    return DeviceError(
        "CLANG: there is no C compiler on the path",
        looked_for="$CC, cc, gcc, clang",
        remedy="install one (on Debian: apt-get install gcc), or name one by CC=/path/to/cc",
    )


def _target(is_native: bool) -> Target:
    """Vectors are as wide as the CPU's, as the compiler's use of them depends on the processor. A
    compiler that makes code for this processor (`is_native`) has its fused multiply-add too: else
    that would be a call of the library for each lane.
    """
    cpu = cpu_target(config.CPU_TARGET)
    return replace(
        clang_target(max(cpu.vector_bytes, 16)),
        has_fma=cpu.has_fma and is_native,
        registers=cpu.registers,
        threads=cpu.threads,
        cache_bytes=cpu.cache_bytes,
        isa=cpu.isa,
    )


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The CPU through C; `runtime` stands for the machine.

    Raises DeviceError where there is no C compiler.
    """
    from tilegrad.compile.clang import compile_c, find_compiler

    require_number(name)
    compiler = find_compiler()
    if compiler is None and runtime is None:
        raise _no_compiler()
    target = _target(is_native=compiler is not None and bool(compiler.machine))

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.clang import ClangRenderer

        text = ClangRenderer(target).render(function, program)
        return f"{text}\n{entry(function, program)}"

    def compile_source(text: str) -> bytes:
        from tilegrad.render.clang import ClangRenderer

        if compiler is None:
            raise _no_compiler()
        return compile_c(text, compiler, ClangRenderer.flags)

    identity = repr(compiler) + " ".join(sorted(processor_flags()))
    return Backend(
        name,
        target,
        render,
        compile_source,
        runtime or ClangRuntime(),
        compiler=identity,
        hardware="" if compiler is None else compiler.version,
    )
