"""What a line picks under `no_grad`, after it has picked of other tensors at other positions."""

from __future__ import annotations

from typing import Any

import tilegrad.torch as torch


def _pick(x: Any) -> Any:
    return x[0]


def test_a_pick_under_no_grad_requires_no_gradient_whatever_was_picked_before() -> None:
    for step in range(3):
        x = torch.tensor([[[1.0 + step, 2.0]] * 3] * 2)
        ordered = x.sort(0)[0]
        later = ordered[1:]
        assert all(each.tolist() for each in (x, ordered, later, _pick(later)))
    for step in range(3):
        leaf = torch.tensor([[[1.0, 2.0 + step]] * 3] * 2, requires_grad=True)
        with torch.no_grad():
            picked = _pick(leaf)
        assert not picked.requires_grad
        (leaf * leaf).sum().backward()
        assert leaf.grad.tolist() == (leaf.detach() * 2).tolist()
