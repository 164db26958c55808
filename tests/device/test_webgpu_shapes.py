"""Kernels of WEBGPU, shaped by what an adapter is and what it binds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.helpers import LEAST, SMALL, needs, with_least_adapter, with_small_bindings
from tilegrad import Context, Device, Tensor
from tilegrad.base.trace import recording
from tilegrad.device.webgpu import WebGPURuntime

pytestmark = needs("WEBGPU")


def on(values: Any, device: str) -> Tensor:
    return Tensor(values, device=device).realize()


@pytest.fixture
def runtime() -> WebGPURuntime:
    found = Device["WEBGPU"].runtime
    assert isinstance(found, WebGPURuntime)
    return found


def test_a_processor_has_lanes_that_meet_nowhere(runtime: WebGPURuntime) -> None:
    """A barrier there makes loops over lanes; the adapter that `LEAST` describes has some."""
    if runtime.adapter.info["adapter_type"] != "CPU":
        pytest.skip("the adapter is no processor")
    values = np.random.default_rng(7).standard_normal((96, 160)).astype(np.float32)
    wide = values.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    with with_least_adapter():
        for device, meets in (("WEBGPU", False), (LEAST, True)):
            with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
                x = on(values, device)
                found = (x @ x.T).numpy(), x.softmax(1).numpy(), x.sum().item()
            texts = [each.after for each in record if each.name == "render"]
            assert any("workgroupBarrier" in text for text in texts) == meets
            np.testing.assert_allclose(found[0], wide @ wide.T, atol=1e-3)
            np.testing.assert_allclose(found[1], powers / powers.sum(1, keepdims=True), atol=1e-6)
            assert abs(found[2] - wide.sum()) < 1e-2


def test_a_kernel_whose_slices_are_more_than_an_adapter_binds_is_split(
    runtime: WebGPURuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve operands of four slices each, of 32 that a kernel may bind, and an update of six."""
    monkeypatch.setattr(
        runtime, "limits", {**runtime.limits, "max-storage-buffer-binding-size": 1024}
    )
    values = np.random.default_rng(5).standard_normal((12, 1024)).astype(np.float32)
    with with_small_bindings():
        xs = [on(row, SMALL).realize() for row in values]
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        np.testing.assert_allclose(total.numpy(), values.sum(0), atol=1e-5)
        for weight, slope in zip(xs[:6], xs[6:]):
            weight.assign(weight - slope * 0.5)
        Tensor.realize(*xs[:6])
        found = np.stack([x.numpy() for x in xs[:6]])
    np.testing.assert_allclose(found, values[:6] - values[6:] * 0.5, atol=1e-6)
