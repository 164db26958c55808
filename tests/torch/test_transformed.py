"""Transformed functions of `torch.func` whose arguments require gradients."""

from __future__ import annotations

from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import func

# Of w -> sum(w^3): the transform, and the gradient by w of the sum of what it gives.
CASES: dict[str, Any] = {
    "grad": (lambda w: func.grad(lambda v: (v**3).sum())(w), lambda w: 6 * w),
    "jvp": (
        lambda w: func.jvp(lambda v: (v**3).sum(), (w,), (torch.ones(3),))[1],
        lambda w: 6 * w,
    ),
    "vjp": (lambda w: func.vjp(lambda v: v**3, w)[1](torch.ones(3))[0], lambda w: 6 * w),
    "hessian": (lambda w: func.hessian(lambda v: (v**3).sum())(w), lambda w: 0 * w + 6),
    "vmap of grad": (
        lambda w: func.vmap(func.grad(lambda v, x: (v**3 * x).sum()), in_dims=(None, 0))(
            w, torch.ones(2, 3)
        ),
        lambda w: 12 * w,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_require_gradients_and_have_them(name: str) -> None:
    run, wanted = CASES[name]
    w = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    for _ in range(4):
        w.grad = None
        made = run(w)
        assert made.requires_grad and not made.is_leaf
        made.sum().backward()
        assert w.grad.tolist() == wanted(w.detach()).tolist()
    with torch.no_grad():
        assert not run(w).requires_grad
    assert not run(w.detach()).requires_grad


def test_a_jacobian_is_the_same_whatever_the_size_of_its_chunks() -> None:
    x = torch.tensor([1.0, -2.0, 0.5])
    for size in (None, 1, 2):
        found = func.jacrev(lambda v: v**2, chunk_size=size)(x)
        assert found.tolist() == [[2.0, 0.0, 0.0], [0.0, -4.0, 0.0], [0.0, 0.0, 1.0]]
