"""Two tensors of one memory, written in any order without gradients and then with them, beside
PyTorch: which of them require a gradient, what it is, and what they hold. What PyTorch refuses is
not compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

ALIASES: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x[...],
    "view": lambda x: x.view(3, 4),
    "flat": lambda x: x.view(-1),
    "rows": lambda x: x[1:],
    "transposed": lambda x: x.T,
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "flat, detached": lambda x: x.detach().view(12),
    "leaf": lambda x: x.detach().requires_grad_(),
}
ORDERS = [each for count in range(3) for each in itertools.product("xy", repeat=count)]


def outcome(
    library: Any, alias: str, writes: Sequence[str], grads: Sequence[str], *, is_read: bool
) -> tuple[Any, ...]:
    w = library.ones(3, 4).requires_grad_()
    x = library.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    both = {"x": x, "y": ALIASES[alias](x)}
    for name in writes:
        target = both[name]
        with library.no_grad():
            target -= target.mean()
        if is_read:
            target.tolist()
    for name in grads:
        both[name].lerp_(w.mean(), 0.5)
        if is_read:
            both[name].tolist()
    kinds = [(each.requires_grad, each.is_leaf, tuple(each.shape)) for each in both.values()]
    loss = (both["x"] * both["x"]).sum() + (both["y"] * both["y"]).sum() * 2
    if loss.requires_grad:
        loss.backward()
    leaves = [each for each in (w, *both.values()) if each.is_leaf and each.grad is not None]
    return (
        kinds,
        *[each.grad.numpy() for each in leaves],
        *[each.detach().numpy() for each in both.values()],
    )


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("alias", ALIASES)
def test_any_writes_give_what_they_give_in_pytorch(alias: str, is_read: bool) -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for writes, grads in itertools.product(ORDERS, ORDERS):
        try:
            theirs = outcome(torch, alias, writes, grads, is_read=is_read)
        except RuntimeError:
            continue
        mine = outcome(ours, alias, writes, grads, is_read=is_read)
        assert mine[0] == theirs[0], (writes, grads)
        for one, other in zip(mine[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-4, err_msg=str((writes, grads)))
        compared += 1
    assert compared > 20
