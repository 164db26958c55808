"""Graphs whose kernels run on several devices: each is made for its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.device.helpers import needs
from tests.optimize.kernels import METAL
from tests.schedule.plans import plan
from tilegrad import Context, Device, Tensor
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.matrix import find_products
from tilegrad.optimize.opts.opts import start
from tilegrad.schedule.schedule import make_schedule


def attention() -> Tensor:
    """A product of rows that are scaled: on a processor, rows live in scratch."""
    scores, scale, values = (
        Tensor.empty(4, 96, 90).realize(),
        Tensor.empty(4, 96, 1).realize(),
        Tensor.empty(4, 90, 32).realize(),
    )
    return ((scores.exp() * scale) @ values).relu()


def many() -> Tensor:
    return sum((Tensor.empty(33).realize() for _ in range(40)), Tensor.empty(33).realize())


def gradient() -> Tensor:
    q, k, v = (Tensor.empty(2, 2, 96, 32).realize() for _ in range(3))
    q.requires_grad = True
    q.scaled_dot_product_attention(k, v).square().sum().backward()
    assert q.grad is not None
    return q.grad


def kernels(value: Tensor, device: str) -> list[UOp]:
    """Those of one device."""
    graph = normalise(UOp.sink(value.uop)).numbered()
    targets = {name: Device[name].target for name in (device, "CPU")}
    items = make_schedule(graph, targets, "CPU", plain=False).items
    return [item.ast for item in items if item.device == device and item.ast is not None]


@pytest.mark.parametrize("name", ["NULL:METAL", "NULL:WEBGPU", "NULL:NV:sm_80", "NULL:AMD"])
@pytest.mark.parametrize("value", [attention, many, gradient])
def test_a_value_that_is_moved_is_computed_by_the_same_kernels(
    value: Callable[[], Tensor], name: str
) -> None:
    with Context(DEVICE=name):
        made = value()
    found = kernels(made.to("CPU"), made.device)
    assert found and found == kernels(made, made.device)


@needs("WEBGPU")
def test_no_kernel_has_more_buffers_than_its_own_device_binds() -> None:
    values = [np.random.default_rng(seed).normal(size=33).astype(np.float32) for seed in range(40)]
    given = [Tensor(each, device="WEBGPU").realize() for each in values]
    found = sum(given[1:], given[0]).to("CPU") * 2
    wanted = 2 * np.sum(values, 0, np.float64)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_matrix_unit_takes_no_rows_that_a_lane_has_in_scratch() -> None:
    """As a processor's kernels have them."""
    ast = plan(attention(), target=Device["CPU"].target).items[-1].ast
    assert ast is not None and any(node.op is Ops.DEFINE_LOCAL for node in ast.toposort())
    started = start(ast, METAL)
    assert not any(find_products(started, unit) for unit in METAL.matrix_units)
