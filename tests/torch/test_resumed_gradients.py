"""Writes to a part of a tensor that an earlier write changed without gradients: the gradient of the
elements that are not written goes on to what the tensor was computed from, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilegrad.torch as torch

W = [1.0, 2.0, 3.0, 4.0]


def computed() -> Any:
    w = torch.tensor(W, requires_grad=True)
    return w, w * 2


def gradient(w: Any, y: Any) -> Any:
    """That of y . (1, 2, 3, 4)."""
    (y * torch.tensor(W)).sum().backward()
    return w.grad.tolist()


@pytest.mark.parametrize("is_read", [False, True])
def test_an_element_after_a_write_without_gradients(is_read: bool) -> None:
    w, y = computed()
    with torch.no_grad():
        y[0] = 5
    if is_read:
        assert y.tolist() == [5.0, 4.0, 6.0, 8.0]
    y[1] = w[0] * 3
    assert y.tolist() == [5.0, 3.0, 6.0, 8.0]
    # Element 0 passes 2 * 1 on, although it was written; element 1 has 3 * 2 of the new value.
    assert gradient(w, y) == [2.0 + 6.0, 0.0, 6.0, 8.0]


@pytest.mark.parametrize("read", [(), ("y",), ("view",), ("y", "view")])
def test_a_view_and_what_it_views(read: tuple[str, ...]) -> None:
    w, y = computed()
    view = y[0:1]
    with torch.no_grad():
        y.mul_(2)
    for name in read:
        {"y": y, "view": view}[name].tolist()
    view.mul_(3.0)
    assert y.tolist() == [12.0, 8.0, 12.0, 16.0]
    # The factor without gradients does not count: 2 of the product, and 3 of the view.
    assert gradient(w, y) == [6.0, 4.0, 6.0, 8.0]


def test_writes_in_turns() -> None:
    w, y = computed()
    with torch.no_grad():
        y[0] *= 2
    y[1] *= 3
    y.tolist()
    with torch.no_grad():
        y[1:].add_(1)
    y[2:] *= w[1].detach()
    assert y.tolist() == [4.0, 13.0, 14.0, 18.0]
    assert gradient(w, y) == [2.0, 2 * 3 * 2.0, 2 * 2 * 3.0, 2 * 2 * 4.0]


def test_through_data() -> None:
    w, y = computed()
    y.data.clamp_(0, 5)
    y[1] = 7.0
    assert y.tolist() == [2.0, 7.0, 5.0, 5.0]
    assert gradient(w, y) == [2.0, 0.0, 6.0, 8.0]
