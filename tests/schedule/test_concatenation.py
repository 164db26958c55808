"""What was cut into gates or halves is concatenated again with a store for each slice, and none of
the arithmetic of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Context, Tensor
from tilegrad.ir.op import Ops

RNG = np.random.default_rng(3)


def gates(x: Tensor) -> Tensor:
    """Four functions of four slices of the last axis."""
    i, f, g, o = x.chunk(4, -1)
    return (i.sigmoid() * g.tanh() + f.exp()) * o.sigmoid()


def gradient(x: Tensor, size: int) -> Any:
    return gates(x).gradient(x, gradient=Tensor.ones(3, size // 4))[0]


def stores(*tensors: Tensor, plain: bool = False) -> tuple[int, int]:
    """How many stores the one kernel has, and how many exponentials."""
    (item,) = kernels(plan(*tensors, plain=plain))
    assert item.ast is not None
    nodes = item.ast.toposort()
    return len(item.ast.src), sum(node.op in (Ops.EXP2, Ops.EXP) for node in nodes)


def test_each_slice_has_a_store() -> None:
    """All four together have about the exponentials that every element had."""
    x = Tensor(RNG.standard_normal((3, 64)).astype(np.float32)).realize()
    count, exponentials = stores(gradient(x, 64))
    assert count == 4
    assert exponentials <= stores(gradient(x, 64), plain=True)[1]


@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_values(device: str) -> None:
    """By differences in float64."""
    array = RNG.standard_normal((3, 64))
    with Context(DEVICE=device):
        found = gradient(Tensor(array.astype(np.float32)), 64).numpy()

    def of(x: Any) -> Any:
        i, f, g, o = np.split(x, 4, -1)
        return ((np.tanh(g) / (1 + np.exp(-i)) + np.exp(f)) / (1 + np.exp(-o))).sum()

    expected = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        step = np.zeros_like(array)
        step[index] = 1e-6
        expected[index] = (of(array + step) - of(array - step)) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_stays_one_store() -> None:
    """Pieces of unequal sizes, and of more than there are registers for."""
    x = Tensor(RNG.standard_normal((3, 70)).astype(np.float32)).realize()
    first, second = x.split([33, 37], 1)
    uneven = first.exp().sum() + second.tanh().sum()
    assert stores(uneven.gradient(x)[0])[0] == 1
    wide = x[:, :64].contiguous().realize()
    parts = wide.chunk(16, 1)
    many = sum((part.sigmoid() * n).sum() for n, part in enumerate(parts))
    assert stores(many.gradient(wide)[0])[0] == 1
    assert stores(x.cat(wide, dim=1))[0] == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_equal_parts_are_put_together_without_gates(axis: int) -> None:
    x = Tensor(RNG.standard_normal((3, 64)).astype(np.float32)).realize()
    (item,) = kernels(plan(x.cat(x + 1, dim=axis)))
    assert item.ast is not None
    loads = [node for node in item.ast.toposort() if node.op is Ops.LOAD]
    assert len(item.ast.src) == 2
    assert all(len(load.src) == 2 for load in loads)
    both = np.concatenate([x.numpy(), x.numpy() + 1], axis)
    np.testing.assert_array_equal(x.cat(x + 1, dim=axis).numpy(), both)
    # A scan goes on from operand to operand.
    running = x.cat(x + 1, dim=axis).cumsum(axis).numpy()
    np.testing.assert_allclose(running, both.cumsum(axis), rtol=1e-4, atol=1e-4)
