"""Promises of a runtime that others wrote: bytes come back as they were written, slices begin where
they are asked to, reads wait for launches. Where one is not kept nothing is raised, and only
results are wrong. `python -m tilegrad devices` asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tilegrad.base.errors import TilegradError
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.tensor.tensor import Tensor

__all__ = ["broken_promises"]

# Bytes that are copied, and that the memory has more.
_BYTES, _MORE = 1024, 64
_UNTOUCHED = 0xEE
# Elements and launches of a chain that takes a queue longer than a copy.
_ELEMENTS, _LAUNCHES = 1 << 12, 8
_PATIENCE_S = 1.0


def broken_promises(name: str) -> list[str]:
    """A line for each promise that the device `name` does not keep."""
    found: list[str] = []
    try:
        found.extend(_of_memory(Device[name]))
        found.extend(_of_launches(name))
    except TilegradError as error:
        told = [error.details[key] for key in ("raised_in", "rule") if key in error.details]
        found += [error.headline, *map(str, told)]
    return found


def _of_memory(backend: Backend) -> Iterator[str]:
    runtime, written = backend.runtime, bytes(i * 7 % 251 for i in range(_BYTES))
    handle = runtime.allocate(_BYTES + _MORE)
    data = bytearray(written)
    runtime.copy_in(handle, memoryview(data))
    # It may change as soon as copy_in returns.
    data[:] = bytes(_BYTES)
    if (found := _read(backend, handle, _BYTES)) != written:
        yield _of_copies(backend, handle, found, written)
    else:
        yield from _of_slices(backend, handle, written)
    runtime.free(handle, _BYTES + _MORE)


def _of_copies(backend: Backend, handle: object, found: bytes, written: bytes) -> str:
    """The likely reason why other bytes were read than were written."""
    if set(found) == {_UNTOUCHED}:
        return "copy_out(data, handle) writes nothing into data"
    backend.runtime.synchronize()
    time.sleep(_PATIENCE_S)
    later = _read(backend, handle, _BYTES)
    if later == written:
        return "copy_out does not wait for the copies before it"
    if not any(later):
        return "copy_in(handle, data) reads data after it has returned"
    return "copy_out gives other bytes than copy_in was given"


def _of_slices(backend: Backend, handle: object, written: bytes) -> Iterator[str]:
    """A view is read, and written, where it is asked for."""
    first = backend.target.view_bytes
    count = min(first, _BYTES - first)
    if count <= 0:
        return
    view = backend.runtime.view(handle, first, count)
    if _read(backend, view, count) != written[first : first + count]:
        yield f"view({first}, {count}) is not the bytes from {first} on"
        return
    backend.runtime.copy_in(view, memoryview(bytes(count)))
    wanted = written[:first] + bytes(count) + written[first + count :]
    if _read(backend, handle, _BYTES) != wanted:
        yield f"what is written to view({first}, {count}) is not in the memory it is a view of"


def _read(backend: Backend, handle: object, count: int) -> bytes:
    found = bytearray([_UNTOUCHED]) * count
    backend.runtime.copy_out(memoryview(found), handle)
    return bytes(found)


def _of_launches(name: str) -> Iterator[str]:
    """A chain of launches has its value when it is read, and not only later."""
    chain = Tensor([0.0] * _ELEMENTS, device=name).realize()
    for _ in range(_LAUNCHES):
        chain = (chain + 1).realize()
    at_once = set(chain.tolist())
    if at_once == {float(_LAUNCHES)}:
        return
    Device[name].runtime.synchronize()
    time.sleep(_PATIENCE_S)
    later = set(chain.tolist())
    if later == {float(_LAUNCHES)}:
        yield "copy_out does not wait for the launches before it"
    else:
        shown = ", ".join(map(str, sorted(later)[:3]))
        yield f"{_LAUNCHES} launches that add 1 to 0 give {shown}"
