"""C text to a shared object, by the C compiler of the machine: gcc or clang.

The compiler is looked for once: what the environment variable CC names, else `cc`, `gcc` or
`clang`. A compiler that knows no `-march=native` does without.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegrad.base.errors import CompileError
from tilegrad.base.failed import write_failed

__all__ = ["Compiler", "compile_c", "find_compiler"]

_NAMES = ("cc", "gcc", "clang")
_NATIVE = "-march=native"
_SECONDS = 600


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command, its version text, and the options for this machine."""

    command: tuple[str, ...]
    version: str
    machine: tuple[str, ...]


def find_compiler() -> Compiler | None:
    """The C compiler, or None if there is none."""
    return _found(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.cache
def _found(asked: str, path: str) -> Compiler | None:
    names = [shlex.split(asked)] if asked else [[name] for name in _NAMES]
    for name, *options in names:
        program = shutil.which(name, path=path)
        if program is None:
            continue
        command = (program, *options)
        version = _run([*command, "--version"], "")
        if version.returncode:
            continue
        test = _run([*command, _NATIVE, "-xc", "-c", "-", "-o", os.devnull], "int x;\n")
        machine = () if test.returncode else (_NATIVE,)
        return Compiler(command, version.stdout.partition("\n")[0], machine)
    return None


def _run(command: Sequence[str], source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=source, capture_output=True, text=True, check=False, timeout=_SECONDS
    )


def compile_c(source: str, compiler: Compiler, flags: Sequence[str]) -> bytes:
    """The shared object of C text.

    Raises CompileError with the compiler's first error; the source is then kept in a file.
    """
    with tempfile.TemporaryDirectory(prefix="tilegrad-") as folder:
        output = Path(folder) / "kernels.so"
        options = ["-std=gnu17", "-O2", "-fPIC", "-shared", "-w", *compiler.machine, *flags]
        try:
            done = _run([*compiler.command, *options, "-xc", "-", "-o", str(output), "-lm"], source)
        except subprocess.TimeoutExpired:
            raise CompileError(
                f"clang: {compiler.command[0]} took longer than {_SECONDS} s",
                source=write_failed("failed.c", source),
            ) from None
        if done.returncode or not output.is_file():
            raise _refusal(done.stderr, source, compiler)
        return output.read_bytes()


def _refusal(messages: str, source: str, compiler: Compiler) -> CompileError:
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
    kernel = re.search(r"^void (\w+)\(", source, re.MULTILINE)
    return CompileError(
        f"clang: {first.rpartition('error:')[2].strip()}",
        kernel=kernel[1] if kernel else "",
        compiler=compiler.version,
        source=write_failed("failed.c", source),
    )
