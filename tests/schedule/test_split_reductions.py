"""Large folds to one number: in parts, so that threads share them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.ir.op import Ops
from tilegrad.schedule.items import Reason

LARGE = 1 << 18


def test_a_large_fold_is_two_kernels() -> None:
    large, small = Tensor.empty(LARGE), Tensor.empty(LARGE // 2)
    assert len(kernels(plan(large.sum()))) == 2
    assert len(kernels(plan(large.reshape(512, 512).max()))) == 2
    assert len(kernels(plan(small.sum()))) == 1
    assert len(kernels(plan(Tensor.empty(LARGE + 1).sum()))) == 1
    assert len(kernels(plan(large.sum(), plain=True))) == 1
    # Rows are shared as they are.
    assert len(kernels(plan(large.reshape(512, 512).sum(1)))) == 1


def test_the_parts_are_stored_for_a_reason() -> None:
    schedule = plan(Tensor.empty(LARGE).sum())
    assert [edge.reason for edge in schedule.edges] == [Reason.REDUCED_AGAIN]
    first, second = kernels(schedule)
    extents = [
        [int(node.src[0].arg) for node in item.ast.toposort() if node.op is Ops.RANGE]
        for item in (first, second)
    ]
    assert sorted(extents[0]) == [8, LARGE // 8]
    assert extents[1] == [8]


@pytest.mark.parametrize("noopt", [0, 1])
def test_values(noopt: int) -> None:
    numbers = np.random.RandomState(0)
    x = numbers.randn(640, 512).astype(np.float32)
    whole = numbers.randint(-1000, 1000, x.shape).astype(np.int32)
    tensor, integers = Tensor(x).realize(), Tensor(whole).realize()
    with Context(NOOPT=noopt):
        wide = x.astype(np.float64)
        assert tensor.sum().item() == pytest.approx(wide.sum(), abs=0.05)
        assert tensor.T.square().mean().item() == pytest.approx((wide**2).mean(), rel=2e-4)
        assert tensor.var().item() == pytest.approx(wide.var(ddof=1), rel=1e-4)
        assert tensor.max().item() == x.max()
        assert integers.sum().item() == whole.sum()
        assert integers.min().item() == whole.min()


def test_gradients_go_through() -> None:
    x = Tensor(np.ones(LARGE, np.float32), requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.full(LARGE, 2, np.float32))


def test_the_work_is_counted_once() -> None:
    x = Tensor.ones(LARGE).contiguous().realize()
    GlobalCounters.reset()
    x.sum().realize()
    assert LARGE <= GlobalCounters.global_ops <= LARGE + 16
