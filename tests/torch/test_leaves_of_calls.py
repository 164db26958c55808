"""Leaves that begin as `x.detach().requires_grad_()` while x is still held: steps of samplers and
of attacks on inputs. They are aliases of x, and their gradients wait like those of any leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours
from tests.torch.nodes_made import noted_expansions


def _write_to_the_leaf(torch: Any, y: Any, x: Any) -> None:
    with torch.no_grad():
        x.add_(1)


def _write_to_what_it_looks_at(torch: Any, y: Any, x: Any) -> None:
    y.mul_(3)


def _write_an_element(torch: Any, y: Any, x: Any) -> None:
    x.data[0] = 100.0
    y[1] = 50.0


def _train_the_leaf(torch: Any, y: Any, x: Any) -> None:
    (x**3).sum().backward()
    torch.optim.SGD([x], lr=0.1).step()


def _another_leaf_of_a_part(torch: Any, y: Any, x: Any) -> None:
    part = y[1:3].detach().requires_grad_()
    (part**3).sum().backward()
    y.add_(part.grad.sum())
    part.data.mul_(2)


def _a_leaf_in_another_shape(torch: Any, y: Any, x: Any) -> None:
    other = y.view(2, 2).t().detach().requires_grad_()
    (other * torch.arange(4.0).view(2, 2)).sum().backward()
    other.data.add_(other.grad)


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        _write_to_the_leaf, _write_to_what_it_looks_at, _write_an_element, _train_the_leaf,
        _another_leaf_of_a_part, _a_leaf_in_another_shape,
    ],
)  # fmt: skip
def test_a_leaf_is_an_alias_of_what_it_was_detached_from(
    write: Callable[[Any, Any, Any], None], *, is_read: bool
) -> None:
    peer = pytest.importorskip("torch")
    found: list[list[Any]] = []
    for torch in (peer, ours):
        seen: list[Any] = []
        for step in range(6):
            y = torch.arange(4.0) * 2 + step
            if is_read:
                y.sum().item()
            x = y.detach().requires_grad_()
            write(torch, y, x)
            x.grad = None
            (x**2).sum().backward()
            seen += [x.grad.tolist(), y.tolist(), x.tolist(), x.data_ptr() == y.data_ptr()]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_gradients_by_such_leaves_make_no_nodes() -> None:
    """Five steps of an attack within each step of the loop."""
    made = noted_expansions()
    weight = ours.nn.Parameter(ours.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)))
    start = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    counts = []
    for _ in range(12):
        x = ours.tensor(start) * 1.0
        for _ in range(5):
            x = x.detach().requires_grad_()
            (gradient,) = ours.autograd.grad(((x @ weight.T) ** 2).sum(), x)
            x = x + 0.01 * gradient
        x.sum().item()
        counts.append(len(made))
        made.clear()
    wide = np.linspace(-1, 1, 12).reshape(3, 4)
    expected = start.astype(np.float64)
    for _ in range(5):
        expected = expected + 0.02 * expected @ wide.T @ wide
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert counts[-4:] == [0, 0, 0, 0]
