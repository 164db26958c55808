"""What is made in a block without gradients has none, whatever it is a view of, in the first call
and in equal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F

_VALUES = np.random.default_rng(3).uniform(0.1, 0.9, size=(3, 3)).astype(np.float32)
_MADE: dict[str, Callable[[Any], Any]] = {
    "expand": lambda x: x.expand(3, 3),
    "more rows": lambda x: x[:1].expand(4, 3),
    "expand_as": lambda x: x.expand_as(torch.ones(3, 3)),
    "broadcast_to": lambda x: x.broadcast_to((2, 3, 3)),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.ones(2, 3, 3))[0],
    "view_as": lambda x: x.view_as(torch.ones(3, 3)),
    "reshape_as": lambda x: x.reshape_as(torch.ones(3, 3)),
    "view": lambda x: x.view(9),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(0, 3, 3),
    "squeeze": lambda x: x.squeeze(),
    "chunk": lambda x: x.chunk(1)[0],
    "gelu": lambda x: F.gelu(x),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x, 3),
    "interpolate": lambda x: F.interpolate(x[None], (3,)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[None], 1),
}


@pytest.mark.parametrize("name", _MADE)
def test_no_gradient_goes_through_what_was_made_without_gradients(name: str) -> None:
    parameter = nn.Parameter(torch.tensor(_VALUES))
    for _ in range(4):
        parameter.grad = None
        with torch.no_grad():
            made = _MADE[name](parameter)
        assert not made.requires_grad
        ((made * 2).sum() + parameter.square().sum()).backward()
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), 2 * _VALUES, rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.adaptive_max_pool2d(x, 2),
        lambda x: F.interpolate(x, (2, 2)), lambda x: F.interpolate(x, scale_factor=1.0),
        lambda x: F.pixel_shuffle(x, 1), lambda x: F.pixel_shuffle(x[..., :1, :1], 2),
        lambda x: F.pixel_unshuffle(x, 1), lambda x: F.channel_shuffle(x, 1),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_a_copy_all_the_same(call: Callable[[Any], Any]) -> None:
    x = torch.zeros(1, 4, 2, 2)
    call(x).add_(1)
    assert not x.any()


@pytest.mark.parametrize("make", ["nn.Parameter(x)", "x.detach().requires_grad_()"])
@pytest.mark.parametrize("how", ["data", "detach()"])
def test_a_part_is_written_to_without_gradients_again_and_again(how: str, make: str) -> None:
    """Gradients take no notice of what is written through `data`, be it the second time, and be
    the leaf an alias of another tensor: the view keeps its way to the leaf.
    """
    peer = pytest.importorskip("torch")
    found = []
    for library in (peer, torch):
        base = library.tensor(_VALUES)
        parameter = eval(make, {"nn": library.nn, "x": base})
        for _ in range(4):
            row = parameter.narrow(0, 0, 1)
            eval(f"row.{how}", {"row": row}).add_(1)
            (row.square().sum() + (parameter * 3).sum()).backward()
            found.append((row.tolist(), parameter.tolist(), base.tolist(), parameter.grad.tolist()))
    for theirs, mine in zip(found[:4], found[4:], strict=True):
        for one, other in zip(theirs, mine, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5)
