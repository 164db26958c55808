"""Where several elements of a window are equal, the gradient goes to one, as in PyTorch: to the
first in row-major order, or the last NaN. The references are loops over windows in NumPy.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn
from tilegrad.func import jvp, vmap

F = nn.functional
INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(5)
Windows = list[tuple[tuple[int, ...], list[tuple[int, ...]]]]


def chosen(x: np.ndarray, window: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The index that PyTorch's kernels keep: of a larger element, or of a NaN, than that before."""
    best = window[0]
    for index in window:
        if x[index] > x[best] or np.isnan(x[index]):
            best = index
    return best


def pooled(
    sizes: tuple[int, ...], kernel: int, stride: int, padding: int, dilation: int, ceil: bool
) -> Windows:
    """Each result's index with the elements of its window that are inside."""
    rows = []
    for size in sizes:
        rest = size + 2 * padding - dilation * (kernel - 1) - 1
        count = (-(-rest // stride) if ceil else rest // stride) + 1
        count -= ceil and (count - 1) * stride >= size + padding
        starts = [place * stride - padding for place in range(count)]
        ends = [start + dilation * (kernel - 1) + 1 for start in starts]
        rows.append(
            [
                [at for at in range(start, end, dilation) if 0 <= at < size]
                for start, end in zip(starts, ends)
            ]
        )
    return windows_of(rows)


def adaptive(sizes: tuple[int, ...], out: tuple[int, ...]) -> Windows:
    rows = [
        [range(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]
        for size, count in zip(sizes, out)
    ]
    return windows_of(rows)


def windows_of(rows: Any) -> Windows:
    shape = [range(len(each)) for each in rows]
    return [
        (at, [*itertools.product(*(each[i] for each, i in zip(rows, at)))])
        for at in itertools.product(*shape)
    ]


def expected(x: np.ndarray, g: np.ndarray, windows: Windows) -> np.ndarray:
    total = np.zeros_like(x)
    for at, window in windows:
        total[chosen(x, window)] += g[at]
    return total


def tied(*shape: int) -> np.ndarray:
    """Zeros of both signs as a rectifier makes them, with infinities and NaN here and there."""
    values = np.array([0.0, -0.0, 1.0, INF, -INF, NAN], "f4")
    return RNG.choice(values, size=shape, p=[0.5, 0.1, 0.2, 0.05, 0.1, 0.05])


def gradient(pool: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    image = Tensor(x[None, None], requires_grad=True)
    y = pool(image)
    g = RNG.standard_normal(y.shape).astype("f4")
    return g[0, 0], y.gradient(image, gradient=Tensor(g))[0].numpy()[0, 0]


@pytest.mark.parametrize(
    ("axes", "kernel", "stride", "padding", "dilation", "ceil"),
    [
        (1, 4, 4, 0, 1, False),
        (2, 2, 2, 0, 1, False),
        (2, 3, 2, 1, 1, False),
        (2, 5, 1, 2, 1, False),
        (2, 2, 2, 1, 2, True),
        (2, 3, 2, 0, 1, True),
        (3, 2, 1, 1, 1, False),
    ],
)
def test_pooling(
    axes: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool
) -> None:
    sizes = (9, 7, 4)[3 - axes :] if axes > 1 else (13,)
    pool = getattr(F, f"max_pool{axes}d")
    windows = pooled(sizes, kernel, stride, padding, dilation, ceil)
    options = (kernel, stride, padding, dilation, ceil)
    for x in (tied(*sizes), np.zeros(sizes, "f4"), np.full(sizes, -INF, "f4")):
        g, found = gradient(lambda image: pool(image, *options), x)
        np.testing.assert_allclose(found, expected(x, g, windows), rtol=1e-5)
        places = pool(Tensor(x[None, None]), *options, return_indices=True)[1].numpy()[0, 0]
        flat = [int(np.ravel_multi_index(chosen(x, window), sizes)) for _, window in windows]
        assert places.ravel().tolist() == flat


@pytest.mark.parametrize("out", [(3,), (2,), (2, 2), (3, 2)])
def test_adaptive_pooling(out: tuple[int, ...]) -> None:
    sizes = (6, 5)[: len(out)]
    pool = getattr(F, f"adaptive_max_pool{len(out)}d")
    for x in (tied(*sizes), np.full(sizes, -INF, "f4")):
        windows = adaptive(sizes, out)
        for way in (lambda image: pool(image, out), lambda image: pool(image, out, True)[0]):
            g, found = gradient(way, x)
            np.testing.assert_allclose(found, expected(x, g, windows), rtol=1e-5)


def test_several_nans() -> None:
    """The last NaN of a window, whatever is around it; no other element has a gradient."""
    for window, place in [([NAN, 1, NAN, 2], 2), ([1, NAN, INF, 3], 1), ([NAN] * 4, 3)]:
        _, found = gradient(lambda image: F.max_pool1d(image, 4), np.array(window, "f4"))
        assert np.flatnonzero(found).tolist() == [place]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_over_an_axis(name: str, axis: int) -> None:
    """The position that PyTorch returns has the gradient: that of the first, or the first NaN."""
    numbers = tied(6, 5)
    x = Tensor(numbers, requires_grad=True)
    g = RNG.standard_normal(numbers.shape[1 - axis]).astype("f4")
    found = getattr(x, name)(axis).gradient(x, gradient=Tensor(g))[0].numpy()
    total = np.zeros_like(numbers)
    places = np.expand_dims(getattr(np, f"arg{name}")(numbers, axis), axis)
    np.put_along_axis(total, places, np.expand_dims(g, axis), axis)
    np.testing.assert_array_equal(found, total)


def test_other_ways_to_differentiate() -> None:
    """Forward mode takes the tangent of the same element; a map over examples changes nothing."""
    x, tangent = np.zeros((2, 1, 4, 4), "f4"), np.arange(32, dtype="f4").reshape(2, 1, 4, 4)
    _, pushed = jvp(lambda image: image.max_pool2d(2), (Tensor(x),), (Tensor(tangent),))
    np.testing.assert_array_equal(pushed.numpy(), tangent[..., ::2, ::2])
    image = Tensor(x, requires_grad=True)
    mapped = vmap(lambda one: one.max_pool2d(2))(image).sum().gradient(image)[0].numpy()
    one = np.array([[1, 0], [0, 0]], "f4")
    np.testing.assert_array_equal(mapped, np.tile(one, (2, 1, 2, 2)))


def gradient_of(function: Any, x: Any) -> list[Any]:
    tensor = Tensor(x, requires_grad=True)
    function(tensor).sum().backward()
    assert tensor.grad is not None
    found: list[Any] = tensor.grad.tolist()
    return found


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_a_nan_among_the_elements(name: str) -> None:
    """As in PyTorch the NaNs share the gradient of `max()`, and all elements of `amax()` have one
    that is NaN.
    """
    x = np.array([[1.0, NAN, 3.0], [4.0, 2.0, NAN]], "f4")
    whole = gradient_of(lambda t: getattr(t, name)(), x)
    if name in ("max", "min"):
        assert whole == [[0, 0.5, 0], [0, 0, 0.5]]
        return
    assert np.isnan(whole).all()
    rows = gradient_of(lambda t: getattr(t, name)(0), x)
    wanted = {"amax": [[0, NAN, NAN], [1, NAN, NAN]], "amin": [[1, NAN, NAN], [0, NAN, NAN]]}
    np.testing.assert_array_equal(rows, wanted[name])
    tangent = jvp(lambda t: getattr(t, name)(0), (Tensor(x),), (Tensor.ones(2, 3),))[1]
    assert np.isnan(tangent.numpy()[1:]).all() and tangent.numpy()[0] == 1


def test_the_larger_of_two_beside_a_nan() -> None:
    """Either may be the NaN that the result is; of `fmax` the NaN has no gradient, and of equal
    ones the first has it.
    """
    x, y = np.array([NAN, 1, 2, NAN], "f4"), np.array([1, NAN, 2, NAN], "f4")
    wanted = {
        "maximum": ([1, 1, 0.5, 1], [1, 1, 0.5, 1]),
        "fmax": ([0, 1, 1, 1], [1, 0, 0, 0]),
    }
    pairs = {"maximum": "minimum", "fmax": "fmin"}
    for name, gradients in wanted.items():
        for each in (name, pairs[name]):
            method = getattr(Tensor, each)
            mine = gradient_of(functools.partial(lambda m, t: m(t, Tensor(y)), method), x)
            theirs = gradient_of(functools.partial(method, Tensor(x)), y)
            assert (mine, theirs) == gradients, each
