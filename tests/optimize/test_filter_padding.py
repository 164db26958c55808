"""Filter windows with much padding: rows of several images, where iterations of zeros fall away."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.kernels import buffer, conv2d, kernel
from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.queries import stride_of
from tilegrad.optimize.generators.filter_padding import find_padding
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.target import Target

TARGET = Target(
    "rows", vector_bytes=64, registers=32, threads=8, has_mask=True,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
)  # fmt: skip


def fold_of(side: int, padding: int, taps: int = 3) -> tuple[UOp, list[UOp], list[Opt]]:
    """The sum of a convolution, what it loads of the pictures, and what shapes it."""
    x, w = buffer(0, 16, 64, side, side), buffer(1, 64, 64, taps, taps)
    ast = kernel(conv2d(x, w, padding=padding), target=TARGET)
    (fold,) = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    loads = [node for node in fold.toposort() if node.op is Ops.LOAD]
    return fold, [load for load in loads if len(load.src) == 4], heuristic(ast, TARGET)


@pytest.mark.parametrize(("side", "padding", "taps"), [(2, 1, 3), (4, 1, 3), (6, 2, 3), (5, 4, 5)])
def test_turns_that_read_zeros_are_counted(side: int, padding: int, taps: int) -> None:
    fold, loads, opts = fold_of(side, padding, taps)
    out = side + 2 * padding - taps + 1
    read = sum(0 <= y + k - padding < side for y in range(out) for k in range(taps))
    found = find_padding(fold, loads)
    assert found is not None
    assert found.share == pytest.approx((read / (out * taps)) ** 2)
    assert found.inner.vmax == taps - 1
    assert found.inner is fold.src[-1]
    assert found.inner.arg[1] is Axis.REDUCE
    lanes, rows = [each for each in opts if each.op is OptOps.UPCAST]
    # The second axis is the channels.
    assert lanes == Opt(OptOps.UPCAST, 1, 32)
    # The first one is the images. Eight pixels of an image are neighbours, and better rows where
    # not much more is left out beside several images.
    assert rows == Opt(OptOps.UPCAST, 3 if out >= 8 and found.share > 1 / 2 else 0, 8)
    if found.share < 1 / 2:
        # No copy is made but that of the filters.
        assert [each.arg for each in opts if each.op is OptOps.STAGE] == [2]


def test_few_zeros_change_nothing() -> None:
    fold, loads, opts = fold_of(14, 1)
    assert find_padding(fold, loads) is None
    assert Opt(OptOps.UPCAST, 0, 8) not in opts


def test_rows_are_neighbours_in_what_is_read() -> None:
    """The gradient of a strided convolution stores every second place, and reads all."""
    x, w = Tensor.empty(16, 64, 16, 16, requires_grad=True), Tensor.empty(128, 64, 3, 3)
    y = x.conv2d(w, stride=2, padding=1)
    (found,) = y.gradient(x, gradient=Tensor.empty(*y.shape))
    assert found is not None
    (item,) = kernels(plan(found))
    assert item.ast is not None
    tile = [each for each in heuristic(item.ast, TARGET) if each.op is OptOps.UPCAST]
    lanes, rows = (axes_of(item.ast)[each.axis or 0] for each in tile)
    loads = [node for node in item.ast.toposort() if node.op is Ops.LOAD]
    assert [stride_of(load.src[1], rows) for load in loads if rows in load.ranges] == [1]
    assert lanes.vmax == 63


@pytest.mark.parametrize("side", [2, 5])
def test_values_and_gradients(side: int) -> None:
    numbers = np.random.default_rng(side)
    x = numbers.normal(size=(9, 33, side, side))
    w, g = numbers.normal(size=(34, 33, 3, 3)), numbers.normal(size=(9, 34, side, side))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted, of_x = np.zeros_like(g), np.zeros_like(padded)
    for i, j in np.ndindex(3, 3):
        rows, columns = slice(i, i + side), slice(j, j + side)
        wanted += np.einsum("bcyx,oc->boyx", padded[:, :, rows, columns], w[:, :, i, j])
        of_x[:, :, rows, columns] += np.einsum("boyx,oc->bcyx", g, w[:, :, i, j])
    a, b, c = (Tensor(each.astype(np.float32)) for each in (x, w, g))
    y = a.conv2d(b, padding=1)
    (found,) = y.gradient(a, gradient=c)
    assert found is not None
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.numpy(), of_x[:, :, 1:-1, 1:-1], rtol=1e-4, atol=1e-4)
