"""Reductions, rowwise functions and scans on each device with blocks that this machine runs: in the
emulator, as PTX in the interpreter of the tests, as OpenCL on PoCL, as WGSL on lavapipe. Values are
held against float64, sizes are odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.device.helpers import OPENCL_BLOCKS, with_opencl_blocks
from tests.device.ptx.device import SIMULATED, simulated
from tilegrad import Device, Tensor
from tilegrad.base.errors import DeviceError

# The longest rows that each runs in time. On a processor, the kernels of CL itself have loops.
DEVICES = {"EMU": 700, "NVSIM80": 5000, OPENCL_BLOCKS: 5000, "WEBGPU": 5000}
SHAPES = [(70, 100), (3, 1500), (40, 16), (33, 37), (2, 2052), (5, 4099)]


@pytest.fixture(autouse=True, scope="module")
def _opencl_has_blocks() -> Iterator[None]:
    with with_opencl_blocks():
        yield


def on(device: str, values: Any) -> Tensor:
    if device in SIMULATED:
        simulated(device)
    try:
        Device[device]
    except DeviceError as error:
        pytest.skip(f"no {device} here: {error.headline}")
    return Tensor(values, device=device).realize()


def sample(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def layernorm(x: Any) -> Any:
    distance = x - x.mean(1, keepdims=True)
    return distance / np.sqrt((distance**2).mean(1, keepdims=True) + 1e-5)


def logsumexp(x: Any) -> Any:
    return x.max(1) + np.log(np.exp(x - x.max(1, keepdims=True)).sum(1))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "softmax": (lambda x: x.softmax(1), softmax),
    "log_softmax": (lambda x: x.log_softmax(1), lambda x: x - logsumexp(x)[:, None]),
    "layernorm": (lambda x: x.layernorm(), layernorm),
    "rmsnorm": (
        lambda x: x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt(),
        lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5),
    ),
    "sum": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "max": (lambda x: x.max(1), lambda x: x.max(1)),
    "mean of all": (lambda x: x.mean(), lambda x: x.mean()),
}
# These two say most in little time; PoCL compiles a kernel for a second.
SHORT = {("EMU", "softmax"), ("NVSIM80", "layernorm"), ("EMU", "sum")}
CASES = [
    pytest.param(device, name, marks=[] if (device, name) in SHORT else pytest.mark.nightly)
    for device in DEVICES
    for name in FUNCTIONS
]


@pytest.mark.parametrize(("device", "name"), CASES)
def test_values(device: str, name: str) -> None:
    ours, exact = FUNCTIONS[name]
    for shape in SHAPES:
        if shape[1] <= DEVICES[device]:
            x = sample(*shape)
            found = ours(on(device, x)).numpy()
            assert np.allclose(found, exact(x.astype(np.float64)), rtol=1e-4, atol=3e-5), shape


COMPILED = [
    "NVSIM80",
    pytest.param(OPENCL_BLOCKS, marks=pytest.mark.nightly),
    pytest.param("WEBGPU", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("device", COMPILED)
def test_a_sum_over_many_blocks(device: str) -> None:
    """A second kernel adds what the blocks have added."""
    x = sample((1 << 18) + 5)
    found = float(on(device, x).sum().numpy())
    assert abs(found - x.astype(np.float64).sum()) < 1e-2


@pytest.mark.parametrize("device", COMPILED)
def test_the_error_of_a_long_sum_is_small(device: str) -> None:
    """Equal numbers round to one side; in one accumulator, 300,001 of them were off by 500 ulps."""
    x = np.full(300_001, 1.1, np.float32)
    exact = float(np.float64(x[0]) * len(x))
    assert abs(float(on(device, x).sum().numpy()) / exact - 1) < 32 * 2.0**-24


@pytest.mark.parametrize("device", ["NVSIM80", *COMPILED[1:]])
def test_a_plan_for_a_range_of_sizes_launches_the_blocks_of_each(device: str) -> None:
    on(device, [1.0])
    runtime = Device[device].runtime
    plain, launched = runtime.launch, []

    def launch(
        program: Any, handles: Any, variables: Any, blocks: Any, *rest: Any, **more: Any
    ) -> Any:
        launched.append((len(variables), int(np.prod(blocks))))
        return plain(program, handles, variables, blocks, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "launch", launch)
        for size in (40, 41, 300, 77, 43):
            x = sample(size, 70)
            assert np.allclose(on(device, x).softmax(1).numpy(), softmax(x), rtol=1e-4)
    blocks = [count for variables, count in launched if variables]
    assert len(blocks) >= 2
    # Of 77 rows, and of 43: not of the largest size of the range.
    assert blocks[-1] < blocks[-2] < 300
