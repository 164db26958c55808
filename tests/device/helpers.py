"""What tests of devices that a machine may lack share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import pytest

from tilegrad import Device
from tilegrad.device.backend import Backend
from tilegrad.hardware import webgpu_target

__all__ = ["LEAST", "needs", "with_least_adapter"]

LEAST = "LEAST"
"""The device WEBGPU with the target that every adapter can run: without float16 and float64, with
8 buffers in a kernel.
"""


def needs(kind: str) -> pytest.MarkDecorator:
    """Skips a test where the device `kind` cannot be used, and says why."""
    why, remedy = Device.refusal(kind)
    return pytest.mark.skipif(bool(why), reason=f"{why}; {remedy}")


@contextlib.contextmanager
def with_least_adapter() -> Iterator[None]:
    """The device `LEAST` is known."""
    from tilegrad.device import webgpu

    def factory(name: str) -> Backend:
        real, target = Device["WEBGPU"], webgpu_target()
        render = functools.partial(webgpu._render_for, target)
        return Backend(
            name, target, render, real.compile, real.runtime, compiler=f"{real.compiler} least"
        )

    Device.register(LEAST, factory)
    try:
        yield
    finally:
        Device.unregister(LEAST)
