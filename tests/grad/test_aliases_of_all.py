"""Aliases of all of a tensor, written without gradients first and with them then: each of them has
the gradient of what was written, and one that was detached has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Context, torch

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    "writes", [each for count in (1, 2) for each in itertools.product("xy", repeat=count)]
)
@pytest.mark.parametrize("alias", [lambda x: x[...], lambda x: x.view(3, 4)], ids=["all", "view"])
def test_gradients_of_both_go_to_what_was_written(
    alias: Callable[[torch.Tensor], torch.Tensor],
    writes: tuple[str, ...],
    is_read: bool,
    templates: int,
) -> None:
    with Context(TEMPLATES=templates):
        for last in "xy":
            w = torch.ones(3, 4).requires_grad_()
            x = torch.tensor(VALUES)
            y = alias(x)
            assert y is not x
            expected = VALUES.astype("f8")
            for name in writes:
                with torch.no_grad():
                    target = {"x": x, "y": y}[name]
                    target -= target.mean() + 1
                    expected = expected - (expected.mean() + 1)
                    if is_read:
                        np.testing.assert_allclose(target.numpy(), expected, rtol=1e-6)
            # Half of what is there, and half of the mean of w.
            {"x": x, "y": y}[last].lerp_(w.mean(), 0.5)
            expected = (expected + 1) / 2
            assert x.requires_grad and y.requires_grad
            assert not (x.is_leaf or y.is_leaf)
            ((x * x).sum() + 2 * (y * y).sum()).backward()
            assert w.grad is not None
            slope = (6 * expected * 0.5 / 12).sum()
            np.testing.assert_allclose(w.grad.numpy(), np.full((3, 4), slope), rtol=1e-5)
            np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("written", ["x", "y"])
def test_a_detached_alias_takes_no_part(written: str) -> None:
    w = torch.ones(3, 4).requires_grad_()
    x = torch.tensor(VALUES)
    y = x.detach()
    with torch.no_grad():
        target = {"x": x, "y": y}[written]
        target -= target.mean()
    x.lerp_(w.mean(), 0.5)
    assert x.requires_grad and not y.requires_grad
    expected = (VALUES - VALUES.mean() + 1) / 2
    ((x * x).sum() + 2 * (y * y).sum()).backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), np.full((3, 4), (expected / 12).sum()), rtol=1e-5)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
