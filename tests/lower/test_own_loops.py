"""Reductions over one axis, where some are invariant in an outer loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loops_of, reductions_of
from tilegrad.ir.uop import UOp
from tilegrad.lower.own_loops import separate_loops
from tilegrad.target import Target

ROWS, COLUMNS, TERMS = 3, 20, 7


def sums(out: UOp, a: UOp, b: UOp) -> UOp:
    """out[i, j] = (sum of a[i, k] over k) * (sum of b[i, j, k] over k), by one loop k."""
    i, j = UOp.range(ROWS, 0, Axis.LOOP), UOp.range(COLUMNS, 1, Axis.LOOP)
    k = UOp.range(TERMS, 2, Axis.REDUCE)
    values = (a.load(i * TERMS + k), b.load((i * COLUMNS + j) * TERMS + k))
    first, second = (UOp(Ops.REDUCE, dtypes.float32, (value, k), Ops.ADD) for value in values)
    store = out.store(i * COLUMNS + j, first * second)
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo("sums", (0, 1, 2)))


def pointers() -> list[UOp]:
    return [UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(1000), (), slot) for slot in range(3)]


def test_each_depth_has_a_loop() -> None:
    before = sums(*pointers())
    after = separate_loops(before, Target("X"))
    (one,), (other,) = map(loops_of, reductions_of(before))
    assert one is other
    (one,), (other,) = map(loops_of, reductions_of(after))
    assert one is not other and one.extent is other.extent
    assert sorted(after.arg.order) == [0, 1, 2, 3]
    # Reductions at one depth go on sharing theirs.
    assert separate_loops(after, Target("X")) is after


@pytest.mark.parametrize("noopt", [0, 1])
def test_values(noopt: int) -> None:
    numbers = np.random.default_rng(5)
    a: Any = numbers.standard_normal((ROWS, TERMS), np.float32)
    b: Any = numbers.standard_normal((ROWS, COLUMNS, TERMS), np.float32)
    with Context(NOOPT=noopt):
        made = Tensor.empty(ROWS, COLUMNS).custom_kernel(Tensor(a), Tensor(b), fxn=sums)
        found = made[0].numpy()
    expected = a.astype("d").sum(1)[:, None] * b.astype("d").sum(2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("combine", ["sum", "prod", "max"])
def test_a_sum_that_does_not_need_an_outer_loop_beside_one_that_does(
    combine: str, noopt: int
) -> None:
    """One reads the same 33 elements twice, the other all 66: in one nest of loops, the first was
    both computed twice and multiplied by 2.
    """
    numbers = np.random.default_rng(6)
    a: Any = numbers.uniform(0.9, 1.1, 33).astype(np.float32)
    b: Any = numbers.uniform(0.9, 1.1, 66).astype(np.float32)
    with Context(NOOPT=noopt):
        twice = Tensor(a).reshape(1, 33).expand(2, 33).reshape(66)
        found = getattr(twice, combine)() / getattr(Tensor(b), combine)()
        expected = getattr(np.tile(a, 2).astype("d"), combine)() / getattr(b.astype("d"), combine)()
        assert found.item() == pytest.approx(expected, rel=1e-4)
