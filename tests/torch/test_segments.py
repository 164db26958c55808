"""`segment_reduce` and `fake_quantize_*` beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.base.errors import ShapeError

_random = np.random.default_rng(6)
# Equal elements among them.
_DATA = np.round(_random.normal(size=(2, 6, 3)) * 2).astype(np.float32)
_LENGTHS = np.array([[2, 0, 3, 1], [1, 4, 1, 0]])


def _weighted(library: Any, found: Any) -> Any:
    """A sum of what is finite, each element by a factor of its own."""
    factors = library.arange(1, found.numel() + 1).reshape(found.shape)
    return library.where(found.isfinite(), found * factors, 0.0).sum()


@pytest.mark.parametrize("initial", [None, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_rows_are_reduced_by_groups(reduce: str, axis: int, initial: float | None) -> None:
    theirs = pytest.importorskip("torch")
    data, lengths = (_DATA, _LENGTHS) if axis else (_DATA[0], _LENGTHS[0])
    ends = lengths.cumsum(-1)
    offsets = np.concatenate([np.zeros_like(ends[..., :1]), ends], -1)

    def reduced(library: Any, **groups: Any) -> tuple[Any, Any]:
        x = library.tensor(data, requires_grad=True)
        found = library.segment_reduce(x, reduce, axis=axis, initial=initial, **groups)
        _weighted(library, found).backward()
        return found.detach().numpy(), x.grad.numpy()

    expected = reduced(theirs, lengths=theirs.tensor(lengths))
    for groups in ({"lengths": torch.tensor(lengths)}, {"offsets": torch.tensor(offsets)}):
        for mine, other in zip(reduced(torch, **groups), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_lengths_that_do_not_fit_are_refused() -> None:
    x = torch.ones(4)
    with pytest.raises(ShapeError, match="add up to the 4 rows"):
        torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 2]))


@pytest.mark.parametrize("limits", [(0, 15), (-8, 7)])
def test_rounded_values_and_their_gradients(limits: tuple[int, int]) -> None:
    theirs = pytest.importorskip("torch")
    values = (_random.normal(size=(4, 5)) * 2).astype(np.float32)

    def rounded(library: Any) -> list[Any]:
        made: list[Any] = []
        scales, zeros = library.linspace(0.1, 0.5, 5), library.arange(5, dtype=library.int32)
        for call in (
            lambda x: library.fake_quantize_per_tensor_affine(x, 0.3, 2, *limits),
            lambda x: library.fake_quantize_per_channel_affine(x, scales, zeros, 1, *limits),
        ):
            x = library.tensor(values, requires_grad=True)
            found = call(x)
            (found * 2).sum().backward()
            made += [found.detach().numpy(), x.grad.numpy()]
        return made

    for mine, other in zip(rounded(torch), rounded(theirs), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


def test_hooks_of_what_is_saved_say_what_to_write() -> None:
    with pytest.raises(AttributeError, match="checkpoint"):
        torch.autograd.graph.saved_tensors_hooks  # noqa: B018
