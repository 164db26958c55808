"""The texts of the kernels that a device without hardware compiles, and vendors' compilers that
take them. Nothing runs: what is read back are zeros.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tilegrad import Context, Device
from tilegrad.base.errors import CompileError
from tilegrad.compile.nvrtc import compile_cuda
from tilegrad.device.backend import Backend
from tilegrad.device.null import NullRuntime
from tilegrad.render.cstyle import CUDARenderer, HIPRenderer
from tilegrad.runtime.protocol import Runtime

__all__ = ["CLANG", "amdgpu_errors", "collected", "nvrtc_errors"]

# The first that has LLVM's target for the newest of AMD's architectures.
CLANG = next(filter(shutil.which, ("clang-19", "clang-20", "clang-21", "clang++-19")), "")
_KIND = "COLLECTED"
# Kernels that one call of a compiler takes: its start and the headers cost more than a kernel.
_BATCH = 40
_NAME = re.compile(
    r"void (?:__launch_bounds__\(\d+\) |__attribute__\(\(amdgpu\S+ \d+\)\)\) )?(\w+)\("
)


@contextmanager
def collected(device: str) -> Iterator[list[str]]:
    """What is compiled for `device` meanwhile, each text once, while it is the default device."""
    texts: dict[str, None] = {}

    def factory(name: str, runtime: Runtime | None = None) -> Backend:
        like = Device.describe(device, NullRuntime())

        def keep(source: str) -> bytes:
            texts[source] = None
            return source.encode()

        return Backend(
            name, like.target, like.render, keep, NullRuntime(), compiler=f"collected {id(texts)}"
        )

    found: list[str] = []
    Device.register(_KIND, factory)
    try:
        with Context(DEVICE=_KIND, DISABLE_COMPILER_CACHE=1):
            yield found
    finally:
        Device.unregister(_KIND)
        found += texts


def joined(texts: Iterable[str]) -> str:
    """Several kernels as one source: each in a namespace, under a number, below all headers."""
    headers: dict[str, None] = {}
    bodies = []
    for number, text in enumerate(texts):
        lines = text.splitlines()
        headers |= dict.fromkeys(line for line in lines if line.startswith("#"))
        body = "\n".join(line for line in lines if not line.startswith("#"))
        name = _NAME.search(body)
        assert name is not None, text
        body = f"{body[: name.start(1)]}k{number}{body[name.end(1) :]}"
        bodies.append(f"namespace n{number} {{\n{body}\n}}")
    return "\n".join([*headers, *bodies])


def _errors(texts: list[str], compile_all: object) -> list[str]:
    """What the compiler says of the texts that it refuses; a batch that it refuses is tried one by
    one.
    """
    assert callable(compile_all)
    found = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        if compile_all(joined(batch)):
            alone = [(text, compile_all(text)) for text in batch]
            found += [f"{text}\n{error}" for text, error in alone if error]
    return found


def nvrtc_errors(texts: list[str], arch: str) -> list[str]:
    """The texts that do not become a cubin for `arch`, and why."""

    def compiled(source: str) -> str:
        try:
            found = compile_cuda(source, arch, CUDARenderer.flags)
        except CompileError as error:
            return str(error)
        return "" if found.binary.startswith(b"\x7fELF") else "no cubin"

    return _errors(texts, compiled)


def amdgpu_errors(texts: list[str], arch: str) -> list[str]:
    """The texts that do not become an object for `arch`, and why. Nothing is linked: the functions
    of the device library stay undefined.
    """

    def compiled(source: str) -> str:
        done = subprocess.run(
            [
                CLANG, "-x", "hip", f"--offload-arch={arch}", "--offload-device-only", "-nogpuinc",
                "-nogpulib", "-S", "-O2", *HIPRenderer.flags, "-o", "/dev/null", "-",
            ],
            input=source, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stderr if done.returncode else ""

    return _errors(texts, compiled)
