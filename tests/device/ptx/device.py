"""Devices that run NV's kernels on the PTX interpreter: `NVSIM75`, `NVSIM80`, `NVSIM89`,
`NVSIM90` and `NVSIM100`, with the renderer, the runtime and all stages above of the real one.
"""

from __future__ import annotations

import functools

from tests.device.ptx.driver import FakeDriver
from tilegrad import Device
from tilegrad.device import nv
from tilegrad.device.backend import Backend

__all__ = ["SIMULATED", "driver_of", "simulated"]

SIMULATED = {
    "NVSIM75": (7, 5), "NVSIM80": (8, 0), "NVSIM89": (8, 9), "NVSIM90": (9, 0), "NVSIM100": (10, 0)
}  # fmt: skip
_drivers: dict[str, FakeDriver] = {}


def driver_of(name: str) -> FakeDriver:
    """The driver behind the device."""
    simulated(name)
    return _drivers[name]


def simulated(name: str) -> str:
    """The device's name; it is registered on first use."""
    if name not in Device:
        # One for all modules, as programs stay loaded when a module's devices go.
        _drivers.setdefault(name, FakeDriver(SIMULATED[name]))
        Device.register(name, functools.partial(_open, driver=_drivers[name]))
    return name


def _open(name: str, driver: FakeDriver) -> Backend:
    return nv.opened(name, driver, assembles=False)
