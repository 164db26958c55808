"""What is kept of a device goes when another one takes its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad import Device, Tensor
from tilegrad.device import emulator
from tilegrad.device.backend import Backend


def test_a_name_that_is_registered_anew_runs_programs_of_its_own_driver() -> None:
    """Kernels are equal, and so are their keys."""
    loads: list[str] = []

    def driver(which: str) -> Callable[[str], Backend]:
        class Driver(emulator.EmulatorRuntime):
            def load(self, name: str, binary: bytes) -> Any:
                loads.append(which)
                return super().load(name, binary)

        def opened(name: str) -> Backend:
            return emulator.backend(name, Driver(emulator.TARGET))

        return opened

    for which in ("first", "second"):
        Device.register("AGAIN", driver(which))
        try:
            x = Tensor([1.0, 2.0], device="AGAIN").realize()
            assert (x + 1).tolist() == [2.0, 3.0]
        finally:
            Device.unregister("AGAIN")
    assert loads == ["first", "second"]
