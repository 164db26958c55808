"""What tests of devices that a machine may lack share."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilegrad import Context, Device, Tensor
from tilegrad.device.backend import Backend
from tilegrad.hardware import webgpu_target
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = [
    "LEAST", "OPENCL_BLOCKS", "SMALL", "check_a_row_softmax", "check_threads_share_a_kernel",
    "needs", "registered", "with_least_adapter", "with_opencl_blocks", "with_small_bindings",
]  # fmt: skip

LEAST = "LEAST"
"""The device WEBGPU with the target that every adapter can run: without float16 and float64, with
8 buffers in a kernel.
"""

SMALL = "SMALL"
"""The device WEBGPU with 1024 bytes of a buffer in a binding."""

OPENCL_BLOCKS = "CLBLOCKS"
"""The first device of OpenCL with the kernels of a GPU, whatever it is."""


def needs(kind: str) -> pytest.MarkDecorator:
    """Skips a test where the device `kind` cannot be used, and says why."""
    why, remedy = Device.refusal(kind)
    return pytest.mark.skipif(bool(why), reason=f"{why}; {remedy}")


@contextlib.contextmanager
def with_least_adapter() -> Iterator[None]:
    """The device `LEAST` is known."""
    with _with_adapter(LEAST, webgpu_target()):
        yield


@contextlib.contextmanager
def with_small_bindings() -> Iterator[None]:
    """The device `SMALL` is known."""
    target = replace(webgpu_target(), most_buffers=32, bound_bytes=1024)
    with _with_adapter(SMALL, target):
        yield


@contextlib.contextmanager
def with_opencl_blocks() -> Iterator[None]:
    """The device `OPENCL_BLOCKS` is known."""
    from tilegrad.device.opencl import opened

    def factory(name: str) -> Backend:
        return replace(opened("CL", has_blocks=True), name=name)

    Device.register(OPENCL_BLOCKS, factory)
    try:
        yield
    finally:
        Device.unregister(OPENCL_BLOCKS)


@contextlib.contextmanager
def _with_adapter(called: str, target: Target) -> Iterator[None]:
    """The device WEBGPU is known as one that has a `target`."""
    from tilegrad.device import webgpu

    def factory(name: str) -> Backend:
        real = Device["WEBGPU"]
        render = functools.partial(webgpu._render_for, target)
        compiler = f"{real.compiler} {called}"
        return Backend(name, target, render, real.compile, real.runtime, compiler=compiler)

    Device.register(called, factory)
    try:
        yield
    finally:
        Device.unregister(called)


@contextlib.contextmanager
def registered(name: str, opened: Callable[[str], Backend]) -> Iterator[str]:
    """A device is known by `name`, and is the default meanwhile; nothing compiled is on disk."""

    def factory(called: str, given: Runtime | None = None) -> Backend:
        return opened(called)

    Device.register(name, factory)
    try:
        with Context(DEVICE=name, DISABLE_COMPILER_CACHE=1):
            yield name
    finally:
        Device.unregister(name)


def check_a_row_softmax() -> None:
    """A product and a softmax of its rows on the default device are those of NumPy."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 33)), rng.standard_normal((33, 50))
    found = (Tensor(a.astype(np.float32)) @ Tensor(b.astype(np.float32))).softmax(1).numpy()
    powers = np.exp(a @ b - (a @ b).max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), atol=1e-5)


def check_threads_share_a_kernel(inputs: Sequence[Tensor], times: int) -> None:
    """Threads that run one kernel at once, each on an input of its own that holds its number."""
    (inputs[0] * 2).realize()
    found: dict[int, bool] = {}

    def run(number: int) -> None:
        results = [(inputs[number] * 2).realize() for _ in range(times)]
        found[number] = all((each.numpy() == 2.0 * number).all() for each in results)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(len(inputs)), True)
