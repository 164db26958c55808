"""A launch is cut into chunks by what it computes, not by how often its loops run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Device, Tensor
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import OptOps


@pytest.mark.parametrize(
    ("make", "is_cut"),
    [
        (lambda: Tensor.empty(1 << 14) + 1.0, False),
        (lambda: Tensor.empty(1 << 15) + 1.0, True),
        # A hundred operations for each number.
        (lambda: Tensor.rand(1 << 12), True),
        (lambda: Tensor.rand(1 << 10), False),
        # The product of its five loops says nothing.
        (lambda: Tensor.empty(8, 16).softmax(1), False),
        (lambda: Tensor.empty(512, 64).softmax(1), True),
        (lambda: Tensor.empty(32, 32) @ Tensor.empty(32, 32), False),
        (lambda: Tensor.empty(128, 128) @ Tensor.empty(128, 128), True),
    ],
    ids=[
        "sum of 16K", "sum of 32K", "4K random numbers", "1K random numbers", "small softmax",
        "softmax", "small product", "product",
    ],
)  # fmt: skip
def test_chunks(make: Callable[[], Tensor], is_cut: bool) -> None:
    target = replace(Device["CPU"].target, threads=8)
    asts = [item.ast for item in kernels(plan(make())) if item.ast is not None]
    opts = [opt for ast in asts for opt in heuristic(ast, target)]
    assert any(opt.op is OptOps.THREAD for opt in opts) == is_cut
