"""What is kept of a device goes when another one takes its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tilegrad import Device, Tensor, jit
from tilegrad.base.errors import DeviceError
from tilegrad.device import emulator
from tilegrad.device.backend import Backend
from tilegrad.device.host import HostMemory
from tilegrad.render.python import render_python
from tilegrad.runtime.simt import SimtProgram
from tilegrad.target import Target


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


class Interpreted(HostMemory):
    """Host memory, and programs in Python."""

    def load(self, name: str, binary: bytes) -> Any:
        return SimtProgram(name, binary.decode())

    def launch(
        self,
        program: Any,
        handles: Any,
        variables: Any,
        global_size: Any,
        local_size: Any,
        wait: bool = False,
    ) -> float | None:
        program.run(handles, variables, global_size, local_size)
        return 0.0 if wait else None


@contextmanager
def registered(vector_bytes: int, replaced: str, by: str) -> Iterator[None]:
    """The device AGAIN, whose renderer writes `by` for `replaced`."""

    def opened(name: str) -> Backend:
        def render(function: str, program: Any) -> str:
            return render_python(function, program).replace(replaced, by)

        target = Target("AGAIN", has_fma=False, vector_bytes=vector_bytes)
        return Backend(name, target, render, str.encode, Interpreted())

    Device.register("AGAIN", opened)
    try:
        yield
    finally:
        Device.unregister("AGAIN")


def given() -> Tensor:
    return Tensor([1.0, 4.0, 9.0], device="AGAIN").realize()


@pytest.mark.parametrize("vector_bytes", [0, 16])
def test_code_is_that_of_the_renderer_that_is_registered_now(vector_bytes: int) -> None:
    """Of equal graphs, with a target that is equal or not; of captured functions too."""
    root = jit(lambda x: x.sqrt().contiguous())
    with registered(0, "op_sqrt", "op_sqrt"):
        for _ in range(3):
            assert root(given()).tolist() == given().sqrt().tolist() == [1.0, 2.0, 3.0]
    with registered(vector_bytes, "op_sqrt", "float"):
        for _ in range(3):
            assert root(given()).tolist() == given().sqrt().tolist() == [1.0, 4.0, 9.0]


def test_memory_of_the_device_that_had_the_name_is_refused_and_was_readable_until_then() -> None:
    with registered(0, "", ""):
        x = given()
        y = x[1:].realize()
    assert x.tolist() == [1.0, 4.0, 9.0]
    with registered(0, "", ""):
        assert (given() + 1).tolist() == [2.0, 5.0, 10.0]
        for use in (lambda: x.tolist(), lambda: y.numpy(), lambda: (x + given()).tolist()):
            with pytest.raises(DeviceError, match=r"AGAIN: .* before this name was"):
                use()
