"""Run-time compilers of C++ for GPUs: NVRTC and hipRTC have the same functions, but for a prefix.

xCreateProgram, xCompileProgram, xGetProgramLog, x = nvrtc, hiprtc    as their documentations say
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import CompileError

__all__ = ["RunTimeCompiler"]


class RunTimeCompiler:
    """The compiler of a `library` whose functions begin with `prefix`."""

    def __init__(self, library: Any, prefix: str):
        self._library, self._prefix = library, prefix

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name without the prefix.

        Raises CompileError where it fails.
        """
        status = getattr(self._library, self._prefix + name)(*arguments)
        if status:
            text = getattr(self._library, self._prefix + "GetErrorString")
            text.restype = ctypes.c_char_p
            raise CompileError(f"{self._prefix}: {name}: {text(status).decode()}", status=status)

    def compile(
        self, source: str, file: str, arch: str, options: Sequence[str], result: str
    ) -> tuple[bytes, str]:
        """The binary that the compiler calls `result`, such as "CUBIN", of a text for `arch`, and
        the compiler's log. The log calls the text `file`.

        Raises CompileError with what the compiler says.
        """
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(options))(*[each.encode() for each in options])
        create = (ctypes.byref(program), source.encode(), file.encode(), 0, None, None)
        self.call("CreateProgram", *create)
        try:
            compile_program = getattr(self._library, self._prefix + "CompileProgram")
            status = compile_program(program, len(options), texts)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                headline = f"{self._prefix}: the text for {arch} does not compile"
                raise CompileError(headline, message=log)
            return self._read(program, result), log
        finally:
            self.call("DestroyProgram", ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, data)
        return data.raw
