"""Functions of `torch` that programs seldom name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)

COPIES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "alias": ((), X), "detach": ((), X), "diagonal": ((1,), np.diagonal(X, 1)),
    "expand": (((2, 3, 4),), np.broadcast_to(X, (2, 3, 4))), "narrow": ((1, 1, 2), X[:, 1:3]),
    "permute": (((1, 0),), X.T), "select": ((0, 2), X[2]), "slice": ((1, 0, 4, 2), X[:, ::2]),
    "split": ((2,), [X[:2], X[2:]]), "split_with_sizes": (([1, 2],), [X[:1], X[1:]]),
    "squeeze": ((), X), "t": ((), X.T), "transpose": ((0, 1), X.T), "unbind": ((), list(X)),
    "unfold": ((1, 2, 2), X.reshape(3, 2, 2)), "unsqueeze": ((0,), X[None]),
    "view": (((4, 3),), X.reshape(4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("is_complex", [False, True])
def test_copies_of_views(name: str, is_complex: bool) -> None:
    args, expected = COPIES[name]
    x = torch.tensor(X * (1 + 1j) if is_complex else X)
    found = getattr(torch, f"{name}_copy")(x, *args)
    assert isinstance(found, list) is isinstance(expected, list)
    found, expected = (each if isinstance(each, list) else [each] for each in (found, expected))
    x.zero_()
    factor = 1 + 1j if is_complex else 1
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other * factor)


def test_older_names() -> None:
    x = torch.tensor(X)
    assert torch.fill(x, 2).tolist() == [[2.0] * 4] * 3
    assert x.tolist() == X.tolist()
    np.testing.assert_array_equal(
        torch.constant_pad_nd(x, (1, 0), 5).numpy(), np.pad(X, ((0, 0), (1, 0)), constant_values=5)
    )
    assert [each.tolist() for each in torch.unsafe_chunk(x, 2, 1)] == [
        X[:, :2].tolist(), X[:, 2:].tolist(),
    ]  # fmt: skip
    assert [len(each) for each in torch.unsafe_split(x, 2)] == [2, 1]
    assert [len(each) for each in torch.unsafe_split_with_sizes(x, [1, 2])] == [1, 2]


def test_grids_by_numbers() -> None:
    x = torch.tensor(X).reshape(1, 1, 3, 4)
    # Corners and the middle.
    grid = torch.tensor([[[[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]]])
    assert torch.grid_sampler_2d(x, grid, 0, 0, True).flatten().tolist() == [0.0, 11.0, 5.5]
    assert torch.grid_sampler(x, grid, 1, 1, True).flatten().tolist()[:2] == [0.0, 11.0]
    with pytest.raises(ValueError, match="padding_mode"):
        torch.grid_sampler_2d(x, grid, 0, 3, True)


@pytest.mark.parametrize("density", [False, True])
def test_histograms_of_several_axes(density: bool) -> None:
    points = np.random.default_rng(2).normal(size=(50, 2))
    weight = np.arange(50.0)
    found = torch.histogramdd(
        torch.tensor(points), [3, 4], range=[-1.0, 1.0, -2.0, 2.0], weight=torch.tensor(weight),
        density=density,
    )  # fmt: skip
    expected = np.zeros((3, 4))
    for (a, b), each in zip(points, weight):
        i, j = int((a + 1) // (2 / 3)), int((b + 2) // 1)
        if 0 <= i < 3 and 0 <= j < 4:
            expected[i, j] += each
    if density:
        expected /= expected.sum() * (2 / 3) * 1.0
    np.testing.assert_allclose(found.hist.numpy(), expected)
    np.testing.assert_allclose(found.bin_edges[1].numpy(), [-2, -1, 0, 1, 2])
    alone = torch.histogramdd(torch.tensor(points), bins=2)
    assert alone.hist.sum().item() == 50
