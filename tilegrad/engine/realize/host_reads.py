"""Reads of memory by the host: which memory is read, and the rows and counters of its copies."""

from __future__ import annotations

import time
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.errors import ShapeError
from tilegrad.base.trace import GlobalCounters
from tilegrad.engine.run import report
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.engine.run.run import current_recording
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer

__all__ = ["expose", "looked_at", "read", "read_number", "view_of"]


def read(buffer: Buffer) -> memoryview:
    """The bytes of memory, in fresh memory of the host; shown as a copy."""
    # As `report.clock`, without its calls: an element is read in a microsecond.
    start = time.perf_counter() - report.waits.seconds
    data = buffer.copy_out()
    seconds = time.perf_counter() - report.waits.seconds - start
    if buffer.device != "HOST":
        report.count(0, buffer.nbytes, seconds, kernels=0)
        if current_config().DEBUG >= 2:
            report.show_copy("HOST", buffer.device, buffer.nbytes, seconds)
    return data


def read_number(buffer: Buffer) -> Any:
    """The number in memory of one element; None where the host cannot look at it in place, or its
    bytes make no number of Python. It counts as a copy.
    """
    allocator = buffer.allocator
    kind = allocator.runtime.number_types.get(buffer.dtype)
    if kind is None or current_config().DEBUG >= 2:
        return None
    handle = buffer._handle
    GlobalCounters.global_mem += buffer.nbytes
    return kind.from_address(buffer.handle if handle is None else handle).value


def view_of(leaf: UOp) -> memoryview | None:
    """The memory of a leaf, where the host can reach it."""
    return buffer_of(leaf).host_view()


def looked_at(node: UOp) -> Buffer:
    """The memory of a realized node, row-major, that the host is about to read."""
    base = below_reshapes(node)
    if base.op is not Ops.BUFFER:
        raise ShapeError(
            "read: the value is not stored as a whole",
            remedy="call contiguous() and realize() first",
        )
    record = current_recording()
    if record is not None and record.on_read is not None:
        record.on_read(node)
    return buffer_of(base)


def expose(node: UOp) -> None:
    """Say that the memory of a realized node goes to others who could write it unseen."""
    buffer_of(base_of(node)).expose()
