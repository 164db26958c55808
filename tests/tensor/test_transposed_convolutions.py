"""Transposed convolutions, and their gradients, against a loop that adds each element's window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor


def windows(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int,
    dilation: int,
    padding: int,
    more: int,
) -> Any:
    """Which outputs each element reaches with each element of the window, as a matrix of 0 and 1:
    (elements of the window, inputs, outputs).
    """
    out = [
        (n - 1) * stride - 2 * padding + dilation * (k - 1) + more + 1 for n, k in zip(size, kernel)
    ]
    found = np.zeros((math.prod(kernel), math.prod(size), math.prod(out)))
    for tap, offset in enumerate(np.ndindex(*kernel)):
        for number, at in enumerate(np.ndindex(*size)):
            to = [i * stride + o * dilation - padding for i, o in zip(at, offset)]
            if all(0 <= t < n for t, n in zip(to, out)):
                found[tap, number, np.ravel_multi_index(to, out)] = 1
    return found, out


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "padding", "more", "groups"),
    [
        ((7,), (4,), 2, 1, 1, 1, 1),
        ((5, 6), (3, 3), 2, 1, 0, 0, 1),
        ((5, 6), (3, 3), 2, 1, 1, 1, 2),
        ((4, 5), (5, 2), 3, 1, 1, 2, 1),
        ((4, 3), (2, 3), 2, 2, 1, 0, 2),
        ((3, 2, 4), (3, 2, 3), 2, 1, 0, 0, 1),
    ],
)
def test_each_element_adds_its_window(
    size: Any, kernel: Any, stride: int, dilation: int, padding: int, more: int, groups: int
) -> None:
    reached, out = windows(size, kernel, stride, dilation, padding, more)
    x, w = numbers(2, 4, *size), numbers(4, 3, *kernel, seed=1)
    slopes = numbers(2, 3 * groups, *out, seed=2)
    each = x.reshape(2, groups, 4 // groups, -1)
    taps = w.reshape(groups, 4 // groups, 3, -1)
    outer = slopes.reshape(2, groups, 3, -1)
    a, b = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
    made = a.conv_transpose2d(
        b, stride=stride, dilation=dilation, padding=padding, output_padding=more, groups=groups
    )
    (made * Tensor(slopes)).sum().backward()
    expected = np.einsum("bgci,gcot,tij->bgoj", each, taps, reached, optimize=True)
    close(made, expected.reshape(slopes.shape).astype(np.float32), rtol=1e-4, atol=1e-4)
    by_input = np.einsum("bgoj,gcot,tij->bgci", outer, taps, reached, optimize=True)
    by_weight = np.einsum("bgoj,bgci,tij->gcot", outer, each, reached, optimize=True)
    assert a.grad is not None and b.grad is not None
    close(a.grad, by_input.reshape(x.shape).astype(np.float32), rtol=1e-4, atol=1e-4)
    close(b.grad, by_weight.reshape(w.shape).astype(np.float32), rtol=1e-4, atol=1e-4)
