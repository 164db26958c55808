"""Transposes on targets with blocks: a tile of registers for each lane, by what it moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import CUDA, FLOAT, HALF, METAL, buffer, kernel, permute, program, run
from tilegrad.base.dtype import DType
from tilegrad.device.nv import nv_target
from tilegrad.hardware import opencl_target, webgpu_target
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count

NV = nv_target("sm_80")


@pytest.mark.row("S1.5")
@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        pytest.param(target, dtype, id=f"{target.name}-{dtype.name}")
        for target in (CUDA, NV, METAL, opencl_target(), webgpu_target())
        for dtype in (HALF, FLOAT)
        if target.supports(dtype)
    ],
)
def test_each_byte_is_moved_once_in_whole_sectors(target: Target, dtype: DType) -> None:
    """An image with its channels last: 6,272 pixels apart before."""
    value = permute(buffer(0, 2, 64, 6272, dtype=dtype), 0, 2, 1) + 1.0
    found = count(program(kernel(value, target=target), None, target), 3)
    assert found.sector_use == 1.0
    assert found.moved_bytes == found.touched_bytes
    assert found.lanes >= target.warp_lanes


def test_one_access_moves_16_bytes() -> None:
    found = count(
        program(kernel(permute(buffer(0, 256, 256, dtype=HALF), 1, 0) + 1.0, target=NV), None, NV),
        1,
    )
    # 64 elements a lane, 8 of them with each instruction.
    assert found.instructions["load global"] == found.instructions["store global"] == 8


@pytest.mark.parametrize("shape", [(3, 49, 64), (2, 64, 49), (5, 7, 11), (1, 40, 24), (2, 33, 130)])
@pytest.mark.parametrize("target", [CUDA, METAL], ids=lambda target: target.name)
def test_values(shape: tuple[int, ...], target: Target) -> None:
    x: Any = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    value = permute(buffer(0, *shape), 0, 2, 1) * 2.0 + buffer(1, shape[0], shape[2], shape[1])
    y = x.transpose(0, 2, 1)[::-1].copy()
    found = run(value, {0: x, 1: y}, None, target)
    assert found.tolist() == (x.transpose(0, 2, 1) * 2 + y).ravel().tolist()
