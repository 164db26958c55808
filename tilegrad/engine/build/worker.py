"""The other end of `engine.build.workers`: a process that takes kernel graphs and gives binaries.

It opens no device, since what a device generates can be described without one. For a device that it
does not know as the sender does, it gives None.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
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
from tilegrad.engine.build.workers import receive, send
from tilegrad.ir.uop import UOp

__all__ = ["answer", "main"]


def main() -> None:
    """Answer until there is nothing more to read."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What anything prints must not stand among the answers.
    os.dup2(2, 1)
    # Graphs have no cycles.
    gc.disable()
    try:
        switches, devices = receive(source)
        with Context(**switches):
            backends = _described(devices)
            while True:
                send(target, answer(receive(source), backends))
    except (EOFError, BrokenPipeError):
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


def answer(
    job: tuple[str, str, list[Any]], backends: Mapping[str, Backend]
) -> tuple[dict[str, Any], bytes, dict[str, int]] | None:
    """The fields of a kernel, its binary, and the work that it took; None if it cannot be made here
    as it would be there.
    """
    key, device, rows = job
    nodes: list[UOp] = []
    for op, dtype, positions, arg in rows:
        nodes.append(UOp(op, dtype, tuple([nodes[position] for position in positions]), arg))
    backend = backends.get(device)
    if backend is None or kernel_key(nodes[-1], backend) != key:
        return None
    before = asdict(counters)
    try:
        kernel, binary = make_kernel(nodes[-1], backend, key)
    except (TilegradError, ImportError, OSError):
        # The process that asked meets the same, and says where.
        return None
    work = {name: count - before[name] for name, count in asdict(counters).items()}
    return kernel.fields(), binary, work
