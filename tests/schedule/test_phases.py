"""The gradient of a strided window meets only the places of its phase: half the terms of each axis,
or a third, are not computed.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.ir.op import Ops

RNG = np.random.default_rng(7)


def gradient(x: Tensor, w: Tensor, g: Tensor, stride: int, padding: int, dilation: int) -> Tensor:
    out = x.conv2d(w, stride=stride, padding=padding, dilation=dilation)
    return out.gradient(x, gradient=g)[0]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation", "steps"),
    [
        (8, 3, 2, 1, 1, 2 * 2),
        (8, 4, 2, 1, 1, 2 * 2),
        (8, 5, 2, 2, 1, 3 * 3),
        (9, 3, 3, 0, 1, 1),
        # A stride that does not divide the size leaves all places; so does none.
        (9, 3, 2, 1, 1, 3 * 3),
        (8, 3, 1, 1, 1, 3 * 3),
        (8, 3, 2, 2, 2, 3 * 3),
    ],
)
def test_a_phase_has_its_places(
    size: int, kernel: int, stride: int, padding: int, dilation: int, steps: int
) -> None:
    """By the definition of the gradient: each result adds its share to the inputs it came from."""
    channels = 8
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    x = RNG.standard_normal((1, 2, size, size))
    w = RNG.standard_normal((channels, 2, kernel, kernel))
    g = RNG.standard_normal((1, channels, out, out))
    image, filters, outer = [Tensor(each, dtype="float32").realize() for each in (x, w, g)]
    found = gradient(image, filters, outer, stride, padding, dilation)
    (item,) = kernels(plan(found))
    assert item.ast is not None
    (fold,) = [node for node in item.ast.toposort() if node.op is Ops.REDUCE]
    assert prod(part.vmax + 1 for part in fold.src[1:]) == channels * steps
    around = np.zeros((1, 2, size + 2 * padding, size + 2 * padding))
    for row in range(out):
        for column in range(out):
            end = dilation * (kernel - 1) + 1
            rows = slice(row * stride, row * stride + end, dilation)
            columns = slice(column * stride, column * stride + end, dilation)
            around[:, :, rows, columns] += np.einsum("no,ocyx->ncyx", g[:, :, row, column], w)
    expected = around[:, :, padding : padding + size, padding : padding + size]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_windows_alone_stay_as_they_are() -> None:
    """The gradient of a pooling: nine places, written out side by side."""
    x, g = Tensor.empty(2, 4, 8, 8), Tensor.empty(2, 4, 4, 4)
    pooled = x.avg_pool2d((3, 3), stride=2, padding=1)
    schedule = plan(pooled.gradient(x, gradient=g)[0])
    folds = [
        node
        for item in kernels(schedule)
        if item.ast is not None
        for node in item.ast.toposort()
        if node.op is Ops.REDUCE
    ]
    assert all(part.vmax + 1 == 3 for fold in folds for part in fold.src[1:])
