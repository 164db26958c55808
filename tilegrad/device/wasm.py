"""WebAssembly, through LLVM and `node`.

render    tilegrad.render.llvm            vectors of 16 bytes (SIMD128)
compile   tilegrad.compile.llvm           an object, whose code is that of the module
run       tilegrad.runtime.webassembly    one `node` process
"""

from __future__ import annotations

import shutil

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.processors import WASM, described, processor
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend"]


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the engine.

    Raises DeviceError where there is no `node`.
    """
    found = processor(name, WASM)
    if runtime is not None:
        return described(name, found, runtime)
    path = shutil.which("node")
    if path is None:
        raise DeviceError(
            "WASM: node is not on the path",
            remedy="on Debian: apt-get install nodejs; "
            "NULL:WASM compiles and runs nothing without it",
        )
    from tilegrad.runtime.webassembly import NodeRuntime

    return described(name, found, NodeRuntime(path), "under node")
