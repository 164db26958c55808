"""`ptxas`, which assembles PTX to machine code. It is not required: a driver has one of its own.

It comes with the wheel `nvidia-cuda-nvcc` and with NVIDIA's toolkit.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilegrad.base.errors import CompileError
from tilegrad.base.failed import write_failed

__all__ = ["Usage", "assemble", "find_ptxas", "ptxas_release"]

_SECONDS = 300


@dataclass(frozen=True)
class Usage:
    """Counts that `ptxas -v` prints for a kernel: registers of a lane, bytes that it moves to the
    stack and back, and bytes of shared memory of a block.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int


@functools.cache
def find_ptxas() -> str | None:
    """The program, on the path or from the wheel; None where there is neither."""
    found = shutil.which("ptxas")
    if found is not None:
        return found
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*/bin/ptxas"), reverse=True):
            return str(path)
    return None


@functools.cache
def ptxas_release(program: str) -> tuple[int, int]:
    """The release of CUDA that `program` is from; (0, 0) where it does not say."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    found = re.search(r"release (\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def assemble(source: str, arch: str, program: str) -> tuple[bytes, Usage]:
    """The machine code of a module with one kernel, and its use of registers and memory.

    Raises CompileError with the first message, and the file that keeps the source.
    """
    with tempfile.TemporaryDirectory(prefix="tilegrad-ptxas-") as folder:
        text, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(source, encoding="utf-8")
        try:
            done = subprocess.run(
                [program, "-v", "-arch", arch, str(text), "-o", str(binary)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CompileError(f"ptxas: {error}", program=program) from None
        if done.returncode:
            raise CompileError(
                f"ptxas: {_message(done.stdout + done.stderr)}",
                kernel=_kernel(source),
                arch=arch,
                source=write_failed("failed.ptx", source),
            )
        return binary.read_bytes(), _usage(done.stdout + done.stderr)


def _kernel(source: str) -> str:
    found = re.search(r"\.entry (\w+)", source)
    return found[1] if found else "none"


def _message(said: str) -> str:
    """The first error, without the path of the temporary file."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if re.search(r"error|fatal", line)), "it failed")
    return re.sub(r"^ptxas (\S+, )?", "", first)


def _usage(said: str) -> Usage:
    def number(pattern: str) -> int:
        found = re.search(pattern, said)
        return int(found[1]) if found else 0

    return Usage(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes smem"),
    )
