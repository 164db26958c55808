"""Who holds a gradient, or a view of it, sees what is added to it, and how it is clipped, unscaled
and cleared, as in PyTorch; in the first step and in equal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

_VALUES = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)
_HELD: dict[str, Callable[[Any], Any]] = {
    "itself": lambda gradient: gradient,
    "flat": lambda gradient: gradient.view(-1),
    "row": lambda gradient: gradient[1],
    "detached": lambda gradient: gradient.detach(),
    "data": lambda gradient: gradient.data,
}


def _clip(torch: Any, p: Any, optimizer: Any) -> None:
    torch.nn.utils.clip_grad_norm_([p], 0.5)


def _limit(torch: Any, p: Any, optimizer: Any) -> None:
    torch.nn.utils.clip_grad_value_([p], 0.25)


def _add(torch: Any, p: Any, optimizer: Any) -> None:
    (p * p * p).sum().backward()


def _add_to_inputs(torch: Any, p: Any, optimizer: Any) -> None:
    (p * p * p).sum().backward(inputs=[p])


def _add_with_graph(torch: Any, p: Any, optimizer: Any) -> None:
    (p * p * p).sum().backward(create_graph=True)


def _clear(torch: Any, p: Any, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=False)


def _forget(torch: Any, p: Any, optimizer: Any) -> None:
    optimizer.zero_grad()


def _unscale(torch: Any, p: Any, optimizer: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.tensor(1.0))
    scaler.unscale_(optimizer)


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", _HELD)
@pytest.mark.parametrize(
    "change", [_clip, _limit, _add, _add_to_inputs, _add_with_graph, _clear, _forget, _unscale]
)
@pytest.mark.filterwarnings("ignore")
def test_who_holds_a_gradient_sees_what_becomes_of_it(
    change: Callable[..., None], name: str, *, is_read: bool
) -> None:
    peer = pytest.importorskip("torch")
    found: list[list[Any]] = []
    for torch in (peer, ours):
        p = torch.nn.Parameter(torch.tensor(_VALUES))
        optimizer = torch.optim.SGD([p], lr=0.1)
        seen: list[Any] = []
        for _ in range(4):
            optimizer.zero_grad()
            p.sin().sum().backward()
            held = _HELD[name](p.grad)
            if is_read:
                seen.append(held.tolist())
            change(torch, p, optimizer)
            seen += [held.tolist(), None if p.grad is None else p.grad.tolist()]
            (p * 2).sum().backward()
            optimizer.step()
            seen += [held.tolist(), p.grad.tolist(), p.tolist()]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        assert (theirs is None) is (mine is None)
        if theirs is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_gradient_stays_the_same_tensor() -> None:
    p = ours.nn.Parameter(ours.tensor(_VALUES))
    p.sum().backward()
    gradient = p.grad
    p.sum().backward()
    assert p.grad is gradient
    p.grad = None
    p.sum().backward()
    assert p.grad is not gradient and gradient.tolist() == [[2.0] * 3] * 2


def test_gradients_that_are_views_of_one_buffer_are_added_there() -> None:
    peer = pytest.importorskip("torch")
    found: list[list[Any]] = []
    for torch in (peer, ours):
        a, b = (torch.nn.Parameter(torch.tensor(each)) for each in (_VALUES, _VALUES[0]))
        flat, seen = torch.zeros(9), []
        a.grad, b.grad = flat[:6].view_as(a), flat[6:].view_as(b)
        optimizer = torch.optim.SGD([a, b], lr=0.1, momentum=0.9)
        for number in range(5):
            flat.zero_()
            ((a * a).sum() * (number + 1) + (b * b * b).sum()).backward()
            seen.append(flat.tolist())
            flat.mul_(0.5)
            optimizer.step()
            seen += [a.tolist(), b.tolist(), a.grad.tolist()]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
