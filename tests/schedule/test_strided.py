"""The gradient of a strided convolution sums, for each element, only the terms whose remainder is
its own: half the terms of each axis, or a third, are not computed.
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
        # A stride that does not divide the size rounds it up; none leaves all terms.
        (9, 3, 2, 1, 1, 2 * 2),
        (11, 5, 3, 0, 1, 2 * 2),
        (8, 3, 1, 1, 1, 3 * 3),
        (8, 3, 2, 2, 2, 3 * 3),
    ],
)
def test_a_remainder_has_its_terms_alone(
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


@pytest.mark.parametrize(
    ("kind", "size", "kernel", "stride", "terms"),
    [
        ("avg_pool2d", 41, 5, 2, 3),
        ("avg_pool2d", 41, 5, 3, 2),
        ("avg_pool2d", 26, 3, 2, 2),
        ("max_pool2d", 42, 5, 2, 3),
        ("max_pool2d", 32, 5, 3, 2),
        # Also where the remainders of a row fill no vector.
        ("avg_pool2d", 8, 3, 2, 2),
    ],
)
def test_pools_are_split_by_their_remainders(
    kind: str, size: int, kernel: int, stride: int, terms: int
) -> None:
    """The gradient of a pooling; by the definition, each result adds its share to its window."""
    x = RNG.permutation(2 * size * size).reshape(1, 2, size, size).astype(np.float32)
    out = (size - kernel) // stride + 1
    g = RNG.standard_normal((1, 2, out, out)).astype(np.float32)
    image = Tensor(x).realize()
    pooled = getattr(image, kind)((kernel, kernel), stride=stride)
    found = pooled.gradient(image, gradient=Tensor(g).realize())[0]
    last = kernels(plan(found))[-1].ast
    assert last is not None
    (fold,) = [node for node in last.toposort() if node.op is Ops.REDUCE]
    assert [part.vmax + 1 for part in fold.src[1:]] == [terms, terms]
    expected = np.zeros(x.shape)
    for row, column in np.ndindex(out, out):
        at = np.s_[
            ..., row * stride : row * stride + kernel, column * stride : column * stride + kernel
        ]
        window = x[at]
        is_most = window == window.max((2, 3), keepdims=True)
        share = is_most if kind == "max_pool2d" else np.full(window.shape, 1 / kernel**2)
        expected[at] += share * g[:, :, row, column, None, None]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
