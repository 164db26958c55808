"""Windows are movement; convolution and pooling are folds of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor
from tilegrad.base.errors import ShapeError


def convolved(
    x: Any,
    w: Any,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
) -> Any:
    """Convolution over any number of axes, straight from its definition, in float64."""
    count = w.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(p, p) for p in padding]])
    kernel = w.shape[2:]
    sizes = [
        (x.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(count)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *sizes))
    inputs, each = w.shape[1], w.shape[0] // groups
    for out, place in itertools.product(range(w.shape[0]), itertools.product(*map(range, sizes))):
        group = out // each
        cut = tuple(
            slice(p * s, p * s + d * (k - 1) + 1, d)
            for p, s, d, k in zip(place, stride, dilation, kernel)
        )
        window = x[(slice(None), slice(group * inputs, (group + 1) * inputs), *cut)]
        result[(slice(None), out, *place)] = (window * w[out]).reshape(x.shape[0], -1).sum(1)
    return result.astype(np.float32)


def windows_of(x: Any, kernel: Any, stride: Any, padding: Any = (0, 0), value: float = 0.0) -> Any:
    x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(p, p) for p in padding], constant_values=value)
    found = np.lib.stride_tricks.sliding_window_view(x, kernel, (-2, -1))
    return found[..., :: stride[0], :: stride[1], :, :]


@pytest.mark.row("R3.1")
def test_the_convolution_of_the_notes() -> None:
    x = Tensor.arange(16).reshape(1, 1, 4, 4).float()
    y = x.conv2d(Tensor.ones(1, 1, 3, 3))
    assert y.shape == (1, 1, 2, 2)
    assert y.tolist() == [[[[45, 54], [81, 90]]]]


@pytest.mark.row("R3.2")
def test_windows_of_the_notes() -> None:
    x = Tensor.arange(16).reshape(4, 4)
    assert x._patches("pool", (2, 2), (2, 2), (1, 1))[0, 0].tolist() == [[0, 1], [4, 5]]
    assert x._patches("pool", (2, 2), (1, 1), (2, 2))[0, 0].tolist() == [[0, 2], [8, 10]]
    assert x._patches("pool", (3, 3), (1, 1), (1, 1))[1, 1].tolist() == [
        [5, 6, 7],
        [9, 10, 11],
        [13, 14, 15],
    ]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("s", [1, 2, 3, 5])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_window_holds_its_elements(k: int, s: int, d: int) -> None:
    x = Tensor.arange(11)
    found = x._patches("pool", (k,), (s,), (d,)).numpy()
    count = (11 - d * (k - 1) - 1) // s + 1
    assert found.tolist() == [[p * s + i * d for i in range(k)] for p in range(count)]


def test_unfold() -> None:
    x = numbers(3, 7)
    close(Tensor(x).unfold(1, 3, 2), np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2])
    close(Tensor(x).unfold(0, 2, 1), np.lib.stride_tricks.sliding_window_view(x, 2, 0))


CONVOLUTIONS = [
    {},
    {"stride": (2, 1)},
    {"padding": (1, 2)},
    {"dilation": (2, 1)},
    {"stride": (2, 3), "padding": (2, 1), "dilation": (1, 2)},
]


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_convolution(options: Any) -> None:
    x, w = numbers(2, 3, 6, 7), numbers(4, 3, 3, 2, seed=1)
    close(Tensor(x).conv2d(Tensor(w), **options), convolved(x, w, **options), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("groups", [2, 4])
def test_grouped_convolution_with_bias(groups: int) -> None:
    x, w, b = numbers(2, 4, 5, 5), numbers(8, 4 // groups, 3, 3, seed=1), numbers(8, seed=2)
    expected = convolved(x, w, groups=groups) + b.reshape(1, -1, 1, 1)
    close(Tensor(x).conv2d(Tensor(w), Tensor(b), groups=groups), expected, rtol=2e-5, atol=2e-6)


def test_convolution_over_one_and_three_axes() -> None:
    x, w = numbers(2, 3, 8), numbers(4, 3, 3, seed=1)
    close(
        Tensor(x).conv2d(Tensor(w), stride=2, padding=1),
        convolved(x, w, (2,), (1,), (1,)),
        rtol=2e-5,
        atol=2e-6,
    )
    x, w = numbers(1, 2, 4, 4, 4), numbers(3, 2, 2, 2, 2, seed=1)
    close(
        Tensor(x).conv2d(Tensor(w)),
        convolved(x, w, (1,) * 3, (0,) * 3, (1,) * 3),
        rtol=2e-5,
        atol=2e-6,
    )


def test_padding_of_each_side() -> None:
    x, w = numbers(1, 1, 4, 4), numbers(1, 1, 3, 3, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))
    close(
        Tensor(x).conv2d(Tensor(w), padding=(2, 0, 0, 1)),
        convolved(padded, w),
        rtol=2e-5,
        atol=2e-6,
    )


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "extra", "groups"),
    [(1, 0, 1, 0, 1), (2, 0, 1, 0, 1), (2, 1, 1, 1, 1), (1, 1, 2, 0, 1), (3, 2, 1, 1, 2)],
)
def test_transposed_convolution_is_the_transpose(
    stride: int, padding: int, dilation: int, extra: int, groups: int
) -> None:
    """<y, conv(x)> = <conv_transpose(y), x> for the convolution with the same weight."""
    size = (4 - 1) * stride - 2 * padding + dilation * 2 + extra + 1
    y, x = numbers(2, 4, 4, 4), numbers(2, 2 * groups, size, size, seed=1)
    w = numbers(4, 2, 3, 3, seed=2)
    back = Tensor(y).conv_transpose2d(
        Tensor(w),
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=extra,
        groups=groups,
    )
    assert back.shape == x.shape
    options = {
        "stride": (stride,) * 2,
        "padding": (padding,) * 2,
        "dilation": (dilation,) * 2,
        "groups": groups,
    }
    forward = convolved(x, w, **options)[:, :, :4, :4]
    assert float((back.numpy().astype(np.float64) * x).sum()) == pytest.approx(
        float((forward.astype(np.float64) * y).sum()), rel=1e-4
    )


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 2), (1, 1)), ((3, 3), (2, 2), (1, 1))],
)
def test_pooling(kernel: Any, stride: Any, padding: Any) -> None:
    x = numbers(2, 3, 6, 7)
    highest = windows_of(x, kernel, stride, padding, -np.inf).max((-2, -1))
    close(Tensor(x).max_pool2d(kernel, stride, padding=padding), highest)
    close(
        Tensor(x).avg_pool2d(kernel, stride, padding=padding),
        windows_of(x, kernel, stride, padding).mean((-2, -1)),
    )
    inside = windows_of(np.ones_like(x), kernel, stride, padding).sum((-2, -1))
    expected = windows_of(x, kernel, stride, padding).sum((-2, -1)) / inside
    close(Tensor(x).avg_pool2d(kernel, stride, padding=padding, count_include_pad=False), expected)


def test_pooling_with_a_ceiling() -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    found = Tensor(x).max_pool2d((2, 2), ceil_mode=True)
    assert found.tolist() == [[[[6, 8, 9], [16, 18, 19], [21, 23, 24]]]]
    mean = Tensor(x).avg_pool2d((2, 2), ceil_mode=True)
    assert mean.tolist() == [[[[3, 5, 6.5], [13, 15, 16.5], [20.5, 22.5, 24]]]]


def test_integer_and_one_axis_pooling() -> None:
    x = np.arange(12, dtype=np.int32).reshape(1, 12)
    assert Tensor(x).max_pool2d((3,)).tolist() == [[2, 5, 8, 11]]
    assert Tensor(x).avg_pool2d((4,)).tolist() == [[1.5, 5.5, 9.5]]
    assert Tensor(np.ones((1, 1, 4, 4), np.float32)).adaptive_avg_pool2d(2).shape == (1, 1, 2, 2)


def test_what_does_not_fit_raises() -> None:
    x = Tensor.zeros(1, 3, 5, 5)
    with pytest.raises(ShapeError, match="conv2d: the input has 3 channels, the weight takes 4"):
        x.conv2d(Tensor.zeros(8, 4, 3, 3))
    with pytest.raises(ShapeError, match="conv2d: 8 outputs do not divide into 3 groups"):
        x.conv2d(Tensor.zeros(8, 1, 3, 3), groups=3)
    with pytest.raises(ShapeError, match="conv2d: a window of 7 is longer than its axis of 5"):
        x.conv2d(Tensor.zeros(8, 3, 7, 7))
    with pytest.raises(ShapeError, match="conv2d: the input needs as many axes as the weight"):
        Tensor.zeros(3, 5, 5).conv2d(Tensor.zeros(8, 3, 3, 3))
    with pytest.raises(
        ShapeError, match="max_pool2d: kernel 0, stride 1 and dilation 1 must be positive"
    ):
        x.max_pool2d((0, 2), stride=1)
    with pytest.raises(ShapeError, match="conv2d: stride has 3 values for 2 axes"):
        x.conv2d(Tensor.zeros(8, 3, 3, 3), stride=(1, 2, 3))
    check(lambda t: t, None, numbers(1))
