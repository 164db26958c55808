"""Devices that run the texts of CUDA, HIP and Metal on this processor: C++ with the headers of this
folder, compiled, and run lane by lane. Nothing of it is shared with the compiler or the emulator.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.device.collected import CLANG
from tilegrad import Context, Device
from tilegrad.base.errors import CompileError, InternalError
from tilegrad.device.backend import Backend
from tilegrad.device.host import HostMemory
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["SHIMS", "Shim", "shimmed"]

FOLDER = Path(__file__).parent
# No contraction, and memory may be read as another type, as the languages allow; no option says
# what a signed overflow gives.
FLAGS = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared")


@dataclass(frozen=True)
class Shim:
    """One language: the device whose texts it runs, the compiler, what stands above a text, and
    what in it says that lanes meet.
    """

    device: str
    compiler: str
    header: str
    meets: tuple[str, ...]

    @property
    def is_here(self) -> bool:
        return bool(self.compiler) and shutil.which(self.compiler) is not None


SHIMS = {
    "CUDA": Shim("CUDA:sm_80", "g++", "cuda.h", ("__syncthreads", "__shfl", "asm volatile")),
    "METAL": Shim(
        "METAL", "g++", "metal_stdlib", ("threadgroup_barrier", "simdgroup_matrix", "simd_shuffle")
    ),
    "HIP": Shim("HIP:gfx942", CLANG.replace("clang-", "clang++-"), "hip.h", ("s_barrier",)),
}
_HEAD = re.compile(r"^(?:extern|kernel) .*?(\w+)\(([^()]*(?:\[\[[^()]*)?)\) \{$", re.M)


class ShimRuntime(HostMemory):
    """Memory that no host view reaches, and launches through a library for each kernel."""

    is_timed = False

    def __init__(self, shim: Shim, folder: Path):
        self.shim, self.folder, self.made = shim, folder, 0

    def host_view(self, handle: Any, nbytes: int) -> memoryview | None:
        return None

    def wrap(self, memory: memoryview) -> Any:
        return None

    def compile(self, source: str) -> bytes:
        heads = _HEAD.findall(source)
        assert len(heads) == 1, source
        text = re.sub(
            r"^  __attribute__\(\(shared, ", "  static __attribute__((", source, flags=re.M
        )
        # Shared memory that a launch asks for, of the most bytes that a GPU has.
        text = re.sub(r"extern (__shared__ .*? asked)\[\];", r"\1[232448];", text)
        whole = f'#include "{self.shim.header}"\n{text}\nSHIM_ENTRY({heads[0][0]})\n'
        if self.shim.header == "metal_stdlib":
            # Where the lane is comes with the call.
            names = ", ".join(re.findall(r"(\w+)(?: \[\[|,|$)", heads[0][1])[:-2])
            whole = _metal(text, heads[0], names)
        path = self.folder / f"{hashlib.sha256(whole.encode()).hexdigest()[:24]}.so"
        done = subprocess.run(
            [self.shim.compiler, *FLAGS, f"-I{FOLDER}", "-x", "c++", "-", "-o", str(path)],
            input=whole, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CompileError(f"shim: {done.stderr[:3000]}", source=source)
        slots = [int(slot) for slot in re.findall(r"\bdata(\d+)", heads[0][1])]
        meets = any(word in source for word in self.shim.meets)
        return f"{path}\n{int(meets)}\n{' '.join(map(str, slots))}".encode()

    def load(self, name: str, binary: bytes) -> Any:
        path, meets, slots = binary.decode().split("\n")
        return name, ctypes.CDLL(path).shim_run, int(meets), [int(slot) for slot in slots.split()]

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        name, function, meets, slots = program
        memory = [ctypes.c_char.from_buffer(handles[slot]) for slot in slots]
        numbers = [ctypes.c_int64(value) for value in variables]
        pointers = [ctypes.addressof(each) for each in (*memory, *numbers)]
        sizes = [(ctypes.c_uint * 3)(*(*size, 1, 1)[:3]) for size in (global_size, local_size)]
        wrong = function((ctypes.c_void_p * max(len(pointers), 1))(*pointers), *sizes, meets)
        if wrong:
            raise InternalError(f"{name}: lane {wrong - 1} waits where lane 0 does not")
        return 0.0 if wait else None


def _metal(text: str, head: tuple[str, str], names: str) -> str:
    parameters = head[1].rsplit(", uint3 gid", 1)[0] if ", uint3 gid" in head[1] else ""
    call = ", ".join(filter(None, (names, "shim::block_position", "shim::thread_position")))
    return (
        f"{text}\nstatic void shim_kernel({parameters}) {{ {head[0]}({call}); }}\n"
        "SHIM_ENTRY(shim_kernel)\n"
    )


@contextmanager
def shimmed(kind: str) -> Iterator[str]:
    """The device that runs the texts of `kind`, which is the default meanwhile: its name."""
    name = f"SHIM{kind}"
    with tempfile.TemporaryDirectory() as folder:
        runtime = ShimRuntime(SHIMS[kind], Path(folder))

        def factory(called: str, given: Runtime | None = None) -> Backend:
            like = Device.describe(SHIMS[kind].device, runtime)
            # Binaries name files of this folder.
            return Backend(
                called, like.target, like.render, runtime.compile, runtime, compiler=folder
            )

        Device.register(name, factory)
        try:
            with Context(DEVICE=name, DISABLE_COMPILER_CACHE=1):
                yield name
        finally:
            Device.unregister(name)
