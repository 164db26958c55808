"""The other end of `engine.build.workers`: a process that takes kernel graphs and gives binaries.

It opens no device, since what a device generates can be described without one. For a device that it
does not know as the sender does, it gives None.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilegrad.base.config import Context
from tilegrad.base.errors import TilegradError
from tilegrad.base.trace import counters
from tilegrad.device.backend import Backend
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import kernel_key, make_kernel
from tilegrad.engine.child import Message, own_pipes, read_message, write_message
from tilegrad.ir.uop import UOp

__all__ = ["answer", "main"]


def main() -> None:
    """Answer until there is nothing more to read."""
    source, sink = own_pipes()
    # Graphs have no cycles.
    gc.disable()
    if (setup := read_message(source)) is not None:
        with Context(**setup[0]["switches"]), contextlib.suppress(BrokenPipeError):
            backends = _described(setup[0]["devices"])
            while (job := read_message(source)) is not None:
                write_message(sink, *answer(*job, backends))
    os._exit(0)


def _described(devices: Sequence[str]) -> dict[str, Backend]:
    """What can be known here of `devices`; the compiler is loaded before the first job comes."""
    import tilegrad.engine.program.estimate
    import tilegrad.engine.program.stages  # noqa: F401

    found: dict[str, Backend] = {}
    for name in devices:
        with contextlib.suppress(TilegradError, ImportError, OSError):
            found[name] = Device.describe(name, NullRuntime())
    return found


def answer(job: Mapping[str, Any], graph: bytes, backends: Mapping[str, Backend]) -> Message:
    """The fields of a kernel, the work that it took, and its binary; no fields if it cannot be made
    here as it would be there.
    """
    nodes: list[UOp] = []
    for op, dtype, positions, arg in pickle.loads(graph):
        nodes.append(UOp(op, dtype, tuple([nodes[position] for position in positions]), arg))
    backend = backends.get(job["device"])
    if backend is None or kernel_key(nodes[-1], backend) != job["key"]:
        return {}, b""
    before = asdict(counters)
    try:
        kernel = make_kernel(nodes[-1], backend, job["key"])
    except (TilegradError, ImportError, OSError):
        # The process that asked meets the same, and says where.
        return {}, b""
    work = {name: count - before[name] for name, count in asdict(counters).items()}
    return {"kernel": kernel.fields(), "work": work}, kernel.binary
