"""Images of another size, against loops over NumPy arrays, and gradients by finite differences."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, TinyJit, dtypes, nn
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError


def cubic(x: float) -> float:
    x = abs(x)
    if x <= 1:
        return 1.25 * x**3 - 2.25 * x**2 + 1
    return -0.75 * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def line(row: Any, new: int, mode: str, *, aligned: bool, ratio: float | None = None) -> Any:
    """One axis resampled, element by element."""
    old = len(row)
    ratio = old / new if ratio is None else ratio
    result = np.zeros(new)
    for at in range(new):
        if mode == "area":
            result[at] = row[at * old // new : -(-(at + 1) * old // new)].mean()
            continue
        if mode.startswith("nearest"):
            half = 0.5 if mode == "nearest-exact" else 0.0
            result[at] = row[min(int((at + half) * ratio), old - 1)]
            continue
        spot = at * (old - 1) / max(new - 1, 1) if aligned else (at + 0.5) * ratio - 0.5
        if mode == "linear":
            result[at] = np.interp(spot, np.arange(old), row)
        else:
            low = math.floor(spot)
            result[at] = sum(
                cubic(spot - k) * row[min(max(k, 0), old - 1)] for k in range(low - 1, low + 3)
            )
    return result


MODES = [
    ("linear", False), ("linear", True), ("bicubic", False), ("bicubic", True),
    ("nearest", False), ("nearest-exact", False), ("area", False),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "aligned"), MODES)
def test_interpolate(mode: str, aligned: bool) -> None:
    array = numbers(2, 3, 5, 4).astype(np.float64)
    kind = "cubic" if mode == "bicubic" else mode
    for sizes in ((7, 3),) if aligned else ((7, 3), (1, 9)):
        expected = np.apply_along_axis(line, 2, array, sizes[0], kind, aligned=aligned)
        expected = np.apply_along_axis(line, 3, expected, sizes[1], kind, aligned=aligned)
        close(Tensor(array).interpolate(sizes, mode, aligned), expected, rtol=1e-10, atol=1e-12)


def test_interpolate_by_a_factor_and_other_dtypes() -> None:
    array = numbers(1, 1, 10)
    made = Tensor(array).interpolate(scale_factor=1.37)
    close(made[0, 0], line(array[0, 0], 13, "linear", aligned=False, ratio=1 / 1.37).astype("f4"))
    assert Tensor([[[0, 10, 255]]], dtype=dtypes.uint8).interpolate(2).tolist() == [[[2, 194]]]
    assert Tensor([[[1.0, 3.0]]], dtype=dtypes.half).interpolate(1).tolist() == [[[2.0]]]
    assert Tensor.zeros(0, 2, 3).interpolate(5).shape == (0, 2, 5)
    assert Tensor([[1.0, 2.0]]).interpolate(size=(2,), mode="nearest").tolist() == [[1.0, 2.0]]
    assert Tensor.zeros(1, 1, 2, 3, 4).interpolate((4, 6, 8), "trilinear").shape == (1, 1, 4, 6, 8)


@pytest.mark.parametrize("aligned", [False, True])
def test_positions_in_float32_images_are_rounded_as_pytorch_rounds_them(aligned: bool) -> None:
    """The step in float32, then one rounding of the position: a weight differs by 1e-4 from one
    that was computed exactly.
    """
    old, new = 500, 1333
    row = numbers(old)
    at = np.arange(new, dtype=np.float64)
    if aligned:
        spots = (at * np.float64(np.float32((old - 1) / (new - 1)))).astype(np.float32)
    else:
        step = np.float64(np.float32(old / new))
        spots = np.maximum(((at + 0.5) * step - 0.5).astype(np.float32), np.float32(0))
    low = np.minimum(spots.astype(int), old - 1)
    near = spots - low.astype(np.float32)
    wanted = row[low] * (1 - near) + row[np.minimum(low + 1, old - 1)] * near
    found = Tensor(row[None, None]).interpolate(new, "linear", aligned).numpy()[0, 0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-7)
    exact = Tensor(row[None, None].astype(np.float64)).interpolate(new, "linear", aligned)
    assert np.abs(exact.numpy()[0, 0] - wanted).max() > 2e-5


def test_a_scale_that_leaves_an_axis_its_size_copies_it() -> None:
    """As in PyTorch: where lines are drawn between elements, and the nearest of an image."""
    x = Tensor(np.arange(5, dtype=np.float32)[None, None])
    image = x.reshape(1, 1, 1, 5)
    assert x.interpolate(mode="linear", scale_factor=1.1).tolist() == x.tolist()
    assert image.interpolate(mode="nearest", scale_factor=(1, 1.1)).tolist() == image.tolist()
    assert x.interpolate(mode="nearest", scale_factor=1.1).tolist() == [[[0, 0, 1, 2, 3]]]


def fused(x: Any, y: Any, z: Any) -> Any:
    """x * y + z of float32 with one rounding."""
    return (np.float64(x) * np.float64(y) + np.float64(z)).astype(np.float32)


@pytest.mark.parametrize("aligned", [False, True])
def test_a_line_between_two_elements_is_rounded_as_a_fused_multiply_add(aligned: bool) -> None:
    """PyTorch's rule, bit for bit: the weights add up to one in float32, the later product is
    rounded, and the earlier one is added to it with one rounding.
    """
    one = np.float32(1)
    for old, new in ((5, 7), (7, 5), (500, 1333), (33, 64), (1000, 777)):
        row = numbers(old)
        at = np.arange(new)
        if aligned:
            spots = at.astype(np.float32) * (np.float32(old - 1) / np.float32(new - 1))
        else:
            spots = np.maximum(fused(at + 0.5, np.float32(old) / np.float32(new), -0.5), 0)
        low = np.minimum(spots.astype(int), old - 1)
        after = np.clip(spots - low.astype(np.float32), 0, 1)
        later = after * row[np.minimum(low + 1, old - 1)]
        wanted = fused(one - after, row[low], later)
        found = Tensor(row[None, None]).interpolate(new, "linear", aligned).numpy()[0, 0]
        np.testing.assert_array_equal(found, wanted)


def test_many_elements_are_averaged_by_area() -> None:
    array = numbers(1, 1, 12, 36)
    wanted = array.astype(np.float64).reshape(1, 1, 2, 6, 2, 18).mean((3, 5))
    np.testing.assert_allclose(Tensor(array).interpolate((2, 2), "area").numpy(), wanted, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_images_are_resampled_as_by_pytorch_bit_for_bit(kind: str) -> None:
    torch = pytest.importorskip("torch")
    shapes = [
        (2, 3, 4, 4), (2, 8, 5, 7), (1, 11, 1, 5), (2, 3, 33, 500), (2, 3, 19), (1, 2, 700),
        (1, 3, 4, 5, 6), (1, 9, 3, 7, 2),
    ]  # fmt: skip
    for shape in shapes:
        axes = len(shape) - 2
        array = numbers(*shape)
        modes = {1: ["linear", "nearest"], 2: ["bilinear", "bicubic", "nearest", "nearest-exact"]}
        sizes: list[dict[str, Any]] = [
            {"size": (8, 9, 7)[:axes]}, {"size": (7, 333, 4)[:axes]}, {"size": (3, 2, 1)[:axes]},
            {"scale_factor": 2}, {"scale_factor": (2.3, 1.1, 0.7)[:axes]},
            {"scale_factor": (1.7, 2.1, 1.3)[:axes], "recompute_scale_factor": True},
        ]  # fmt: skip
        for mode in modes.get(axes, ["trilinear"]):
            for how in sizes:
                for aligned in (None,) if mode.startswith("nearest") else (False, True):
                    image = torch.tensor(array, dtype=getattr(torch, kind))
                    wanted = torch.nn.functional.interpolate(
                        image, mode=mode, align_corners=aligned, **how
                    )
                    found = nn.functional.interpolate(
                        Tensor(array, dtype=getattr(dtypes, kind)),
                        mode=mode,
                        align_corners=aligned,
                        **how,
                    )
                    some, other = found.cast("float64").numpy(), wanted.double().numpy()
                    # The last bits of positions in float64, and of sums of small images in half
                    # types, follow no rule that experiments show.
                    close = {"float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2}.get(kind, 0.0)
                    np.testing.assert_allclose(some, other, rtol=close, atol=close)
                    allowed = {"float64": 0.2, "float32": 0.0}.get(kind, 0.02)
                    assert np.mean(some != other) <= allowed, (shape, mode, aligned, how)


@pytest.mark.nightly
def test_smoothed_images_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    array = numbers(2, 3, 33, 50)
    for mode in ("bilinear", "bicubic"):
        for size in ((8, 8), (60, 70), (13, 90), (1, 7)):
            for aligned in (False, True):
                options = {"size": size, "mode": mode, "align_corners": aligned, "antialias": True}
                wanted = torch.nn.functional.interpolate(torch.tensor(array), **options).numpy()
                found = nn.functional.interpolate(Tensor(array), **options).numpy()
                np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-7)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("mode", "antialias", "reach"),
    # What an old element reaches: the new ones whose window, of the old ones, holds it.
    [("area", False, [[0], [0, 1], [1, 2], [2]]), ("linear", True, [[0], [0, 1], [1, 2], [2]])],
)
def test_an_element_outside_of_a_window_is_not_in_its_sum(
    mode: str, antialias: bool, reach: list[list[int]], special: float
) -> None:
    for at, reached in enumerate(reach):
        row = np.arange(1, 5, dtype=np.float32)
        row[at] = special
        found = Tensor(row).reshape(1, 1, 4).interpolate((3,), mode, antialias=antialias)
        expected = np.array([special if new in reached else math.nan for new in range(3)])
        others = ~np.isin(np.arange(3), reached)
        assert np.isfinite(found.numpy()[0, 0][others]).all()
        np.testing.assert_array_equal(found.numpy()[0, 0][~others], expected[~others])


def test_the_gradient_of_interpolate_is_its_transpose() -> None:
    eye = np.eye(5)[None]
    weights = numbers(1, 1, 8)
    for mode, aligned in MODES:
        x = Tensor(numbers(1, 1, 5))
        (found,) = (x.interpolate(8, mode, aligned) * Tensor(weights)).sum().gradient(x)
        matrix = Tensor(eye).interpolate(8, mode, aligned).numpy()[0]
        close(found[0, 0], (matrix @ weights[0, 0]).astype(np.float32), rtol=1e-4)


def bicubic(place: Any, sizes: Any, padding: str, *, aligned: bool) -> list[Any]:
    """The sixteen elements around a place, those outside replaced, and their weights."""

    def inside(at: int, size: int) -> int:
        if padding == "border":
            return min(max(at, 0), size - 1)
        while padding == "reflection" and not 0 <= at < size:
            at = (-at if at < 0 else 2 * (size - 1) - at) if aligned else (
                -1 - at if at < 0 else 2 * size - 1 - at
            )  # fmt: skip
        return at

    axes = []
    for size, value in zip(sizes, place):
        spot = (value + 1) / 2 * (size - 1) if aligned else ((value + 1) * size - 1) / 2
        low = math.floor(spot)
        axes.append([(inside(low + k, size), cubic(spot - low - k)) for k in range(-1, 3)])
    return [([y, x], a * b) for (y, a), (x, b) in itertools.product(*axes)]


def sampled(x: Any, grid: Any, mode: str, padding: str, *, aligned: bool) -> Any:
    """`grid_sample`, element by element."""
    count, channels, *sizes = x.shape
    result = np.zeros((count, channels, *grid.shape[1:-1]))
    for at in np.ndindex(count, *grid.shape[1:-1]):
        spots = []
        for size, value in zip(sizes, grid[at][::-1]):
            spot = (value + 1) / 2 * (size - 1) if aligned else ((value + 1) * size - 1) / 2
            if padding == "reflection":
                low, high = (0, size - 1) if aligned else (-0.5, size - 0.5)
                while high > low and not low <= spot <= high:
                    spot = 2 * low - spot if spot < low else 2 * high - spot
                spot = spot if high > low else 0.0
            spots.append(spot if padding == "zeros" else min(max(spot, 0), size - 1))
        if mode == "bicubic":
            corners = bicubic(grid[at][::-1], sizes, padding, aligned=aligned)
        elif mode == "nearest":
            corners = [([round(spot) for spot in spots], 1.0)]
        else:
            corners = []
            for offset in itertools.product((0, 1), repeat=len(sizes)):
                place = [math.floor(spot) + o for spot, o in zip(spots, offset)]
                corners.append((place, math.prod(1 - abs(s - p) for s, p in zip(spots, place))))
        for place, weight in corners:
            if all(0 <= p < size for p, size in zip(place, sizes)):
                result[(at[0], slice(None), *at[1:])] += weight * x[(at[0], slice(None), *place)]
    return result


@pytest.mark.parametrize(
    ("mode", "padding", "aligned"),
    [
        ("bilinear", "zeros", False),
        ("bilinear", "border", True),
        ("bilinear", "reflection", False),
        ("nearest", "reflection", True),
        ("nearest", "zeros", True),
        ("bicubic", "zeros", False),
        ("bicubic", "border", True),
        ("bicubic", "reflection", False),
        pytest.param("bicubic", "zeros", True, marks=pytest.mark.nightly),
        pytest.param("bicubic", "border", False, marks=pytest.mark.nightly),
        pytest.param("bicubic", "reflection", True, marks=pytest.mark.nightly),
    ],
)
def test_grid_sample(mode: str, padding: str, aligned: bool) -> None:
    x = numbers(2, 3, 4, 5).astype(np.float64)
    grid = np.random.default_rng(2).uniform(-1.9, 1.9, (2, 3, 2, 2))
    made = Tensor(x).grid_sample(Tensor(grid), mode, padding, aligned)
    close(made, sampled(x, grid, mode, padding, aligned=aligned), rtol=1e-9, atol=1e-12)


def test_grid_sample_of_volumes_and_little() -> None:
    x = numbers(1, 2, 2, 3, 4).astype(np.float64)
    grid = np.random.default_rng(3).uniform(-1.2, 1.2, (1, 2, 1, 2, 3))
    made = Tensor(x).grid_sample(Tensor(grid))
    close(made, sampled(x, grid, "bilinear", "zeros", aligned=False), rtol=1e-9, atol=1e-12)
    one = Tensor([[[[7.0]]]])
    place = Tensor([[[[0.3, 0.0]]]])
    for aligned in (False, True):
        made = one.grid_sample(place, "bilinear", "reflection", aligned)
        assert made.tolist() == [[[[7.0]]]]
    assert one.grid_sample(Tensor.zeros(1, 0, 3, 2)).shape == (1, 1, 0, 3)


def test_bicubic_is_for_images() -> None:
    with pytest.raises(NotImplementedError, match="'bicubic' is for images"):
        Tensor.zeros(1, 1, 2, 2, 2).grid_sample(Tensor.zeros(1, 1, 1, 1, 3), "bicubic")


@pytest.mark.parametrize("aligned", [True, False])
def test_the_identity_map_hits_elements_as_pytorch_does(aligned: bool) -> None:
    """At an element the gradient depends on the last bit of the position, and training of a spatial
    transformer begins with the identity.
    """
    torch = pytest.importorskip("torch")
    image, weights = numbers(1, 1, 28, 19), numbers(1, 1, 28, 19, seed=1)
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]], requires_grad=True)
    grid = torch.nn.functional.affine_grid(theta, image.shape, align_corners=aligned)
    made = torch.nn.functional.grid_sample(torch.tensor(image), grid, align_corners=aligned)
    (made * torch.tensor(weights)).sum().backward()
    ours = Tensor([[[1.0, 0, 0], [0, 1, 0]]], requires_grad=True)
    ours_grid = nn.functional.affine_grid(ours, image.shape, align_corners=aligned)
    assert (ours_grid.numpy() == grid.detach().numpy()).all()
    (Tensor(image).grid_sample(ours_grid, align_corners=aligned) * Tensor(weights)).sum().backward()
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theta.grad.numpy(), rtol=1e-4, atol=1e-3)


def ties(size: int, dtype: Any, *, aligned: bool) -> Any:
    """Coordinates whose positions are halves and whole numbers, far outside too, and their next
    neighbours.
    """
    spots = np.arange(-6 * size, 8 * size) / 2
    exact = (2 * spots / (size - 1) - 1) if aligned else ((2 * spots + 1) / size - 1)
    middle = exact.astype(dtype)
    around = [np.nextafter(middle, dtype(far)) for far in (np.inf, -np.inf)]
    return np.concatenate([middle, *around])


def position(shifted: Any, size: int, *, aligned: bool, is_volume: bool) -> Any:
    """The position of a coordinate + 1: a product and a difference, of images rounded once."""
    half = (size - 1) / 2 if aligned else size / 2
    if aligned or is_volume:
        return shifted * shifted.dtype.type(half) - shifted.dtype.type(0 if aligned else 0.5)
    exact = [Fraction(float(each)) * Fraction(half) - Fraction(1, 2) for each in shifted]
    return np.array([float(each) for each in exact]).astype(shifted.dtype)


def nearest(spot: Any, size: int, padding: str, *, aligned: bool) -> Any:
    """The element, counted from 1, nearest to each position; 0 is outside."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    span, away = high - low, np.abs(spot - spot.dtype.type(low))
    rest, is_back = np.fmod(away, span), np.floor(away / span) % 2 == 1
    reflected = np.where(is_back, span - rest, rest) + spot.dtype.type(low)
    found = np.rint(
        spot
        if padding == "zeros"
        else (reflected if padding == "reflection" else spot).clip(0, size - 1)
    )
    return np.where((found >= 0) & (found < size), found + 1, 0)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_element_at_a_tie(dtype: Any, aligned: bool, padding: str) -> None:
    """The last bit of a position decides, so the order of roundings is PyTorch's."""
    for size, depth in ((3, 2), (6, 2), (7, 3), (6, 3)):
        coordinates = ties(size, dtype, aligned=aligned)
        grid = np.zeros((1, *[1] * (depth - 1), len(coordinates), depth), dtype)
        grid[..., 0] = coordinates
        image = np.arange(1, size + 1, dtype=dtype).reshape(1, *[1] * depth, size)
        made = Tensor(image).grid_sample(Tensor(grid), "nearest", padding, aligned)
        spot = position(coordinates + dtype(1), size, aligned=aligned, is_volume=depth == 3)
        expected = nearest(spot, size, padding, aligned=aligned)
        np.testing.assert_array_equal(made.numpy().ravel(), expected)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_reflection_of_what_is_far_outside(depth: int) -> None:
    """In images a position less whole periods is rounded once, in volumes the rest of a division by
    the size is exact: as PyTorch has them.
    """
    rng, size = np.random.default_rng(9), 7
    coordinates = (rng.choice([-1, 1], 400) * 10 ** rng.uniform(4, 7.5, 400)).astype(np.float32)
    grid = np.zeros((1, *[1] * (depth - 1), len(coordinates), depth), np.float32)
    grid[..., 0] = coordinates
    image = np.arange(1, size + 1, dtype=np.float32).reshape(1, *[1] * depth, size)
    made = Tensor(image).grid_sample(Tensor(grid), "nearest", "reflection", True)
    away = np.abs((coordinates + np.float32(1)) * np.float32((size - 1) / 2))
    if depth == 3:
        rest, wraps = np.fmod(away, np.float32(6)), np.floor(away / np.float32(6))
        spot = np.where(wraps % 2 == 1, np.float32(6) - rest, rest)
    else:
        periods = np.floor(away / np.float32(12)).astype(np.float64)
        rest = (away - periods * 12).astype(np.float32)
        spot = np.where(rest > 6, np.float32(12) - rest, rest)
    np.testing.assert_array_equal(made.numpy().ravel(), np.rint(spot).clip(0, 6) + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_affine_grid_rounds_each_product(dtype: Any) -> None:
    """x a + y b + c from the left, of coordinates that are exact; a matrix product may round
    otherwise, and a tie of the nearest element depends on it.
    """
    theta = np.random.default_rng(8).normal(size=(3, 2, 3)).astype(dtype)
    x, y = (np.arange(1 - n, n, 2).astype(dtype) / dtype(n) for n in (16, 8))
    a, b, c = (theta[:, None, None, :, k] for k in range(3))
    expected = (x[None, None, :, None] * a + y[None, :, None, None] * b) + c
    made = nn.functional.affine_grid(Tensor(theta), (3, 1, 8, 16), False)
    # 2 / 15 and 2 / 7 are rounded: elsewhere coordinates may be a bit away.
    exact = np.isin(
        nn.functional.affine_grid(Tensor(np.eye(2, 3, dtype=dtype)[None]), (1, 1, 8, 16)).numpy(),
        [*x, *y],
    ).all(-1)
    assert exact.sum() > 20
    np.testing.assert_array_equal(made.numpy()[:, exact[0]], expected[:, exact[0]])


def test_a_position_on_the_border_is_outside_of_it_for_gradients() -> None:
    """PyTorch passes no gradient to a coordinate that was moved to the border, or lies on it."""
    grid = Tensor([[[[-1.0, 0.0], [0.5, 0.0], [1.0, 0.0]]]], requires_grad=True)
    made = Tensor([[[[1.0, 5.0], [1.0, 5.0]]]]).grid_sample(grid, "bilinear", "border", True)
    (slope,) = made.sum().gradient(grid)
    assert slope is not None
    assert slope.tolist() == [[[[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]]]


def test_the_gradients_of_grid_sample() -> None:
    x = numbers(1, 2, 3, 4).astype(np.float64)
    grid = np.random.default_rng(5).uniform(-0.9, 0.9, (1, 2, 2, 2))
    weights = numbers(1, 2, 2, 2)

    def loss() -> float:
        return float((sampled(x, grid, "bilinear", "zeros", aligned=False) * weights).sum())

    a, b = Tensor(x), Tensor(grid)
    gradients = (a.grid_sample(b) * Tensor(weights)).sum().gradient(a, b)
    for array, found in zip((x, grid), gradients):
        assert found is not None
        numeric = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            kept, step, sides = array[at], 1e-6, []
            for change in (step, -step):
                array[at] = kept + change
                sides.append(loss())
            array[at] = kept
            numeric[at] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(found.numpy(), numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), ((3, 2), (1, 2), 0)]
)
def test_max_pool2d_says_where_and_max_unpool2d_puts_back(
    kernel: Any, stride: Any, padding: int
) -> None:
    generator = np.random.default_rng(0)
    array = generator.integers(-5, 0, (2, 2, 6, 6)).astype(np.float32)
    values, places = Tensor(array).max_pool2d(kernel, stride, padding=padding, return_indices=True)
    k = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    s = stride if isinstance(stride, tuple) else (stride,) * 2 if stride else k
    found, where = values.numpy(), places.numpy()
    back = np.zeros_like(array)
    for at in np.ndindex(found.shape):
        top, left = (at[2 + a] * s[a] - padding for a in range(2))
        best = [
            (y, x)
            for y in range(max(top, 0), min(top + k[0], 6))
            for x in range(max(left, 0), min(left + k[1], 6))
        ]
        y, x = max(best, key=lambda p: (array[at[0], at[1], p[0], p[1]], -p[0], -p[1]))
        assert (where[at], found[at]) == (y * 6 + x, array[at[0], at[1], y, x])
        back[at[0], at[1], y, x] = found[at]
    unpooled = values.max_unpool2d(places, kernel, stride, padding=padding, output_size=(6, 6))
    close(unpooled, back)


def test_max_pool2d_of_a_nan_and_the_gradient_of_max_unpool2d() -> None:
    x = Tensor([[[[1.0, float("nan")], [2.0, 3.0]]]])
    assert x.max_pool2d(2, return_indices=True)[1].tolist() == [[[[1]]]]
    y = Tensor([[[[5.0]]]])
    made = y.max_unpool2d(Tensor([[[[2]]]]), 2)
    (found,) = (made * Tensor([[[[1.0, 2], [3, 4]]]])).sum().gradient(y)
    assert (made.tolist(), found.tolist()) == ([[[[0.0, 0.0], [5.0, 0.0]]]], [[[[3.0]]]])


def test_what_does_not_fit_raises() -> None:
    x = Tensor.zeros(1, 1, 2, 2)
    with pytest.raises(DTypeError, match="interpolate: unknown mode 'cube'"):
        x.interpolate(3, "cube")
    with pytest.raises(ConfigError, match="interpolate: mode 'area' has no corners to align"):
        x.interpolate(3, "area", align_corners=True)
    with pytest.raises(ShapeError, match="interpolate: pass either size or scale_factor"):
        x.interpolate()
    with pytest.raises(ShapeError, match="interpolate: a size is 0"):
        x.interpolate(scale_factor=0.1)
    with pytest.raises(ConfigError, match="grid_sample: unknown padding_mode 'wrap'"):
        x.grid_sample(Tensor.zeros(1, 1, 1, 2), padding_mode="wrap")
    with pytest.raises(
        ShapeError, match=r"grid_sample: places \(1, 1, 1, 3\) do not fit \(1, 1, 2, 2\)"
    ):
        x.grid_sample(Tensor.zeros(1, 1, 1, 3))
    with pytest.raises(ShapeError, match=r"max_unpool2d: \(1,\) indices for \(1, 1, 2, 2\)"):
        x.max_unpool2d(Tensor([1]))


def test_captured() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return x.interpolate((3, 5)).realize()

    for seed in range(4):
        array = numbers(1, 1, 2, 3, seed=seed)
        close(step(Tensor(array).realize()), Tensor(array).interpolate((3, 5)).numpy())
