"""Chains of random blocks that share parameters, among them checkpointed ones and functions with
gradients of their own, in every nesting: gradients of first and second order beside PyTorch's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours
from tilegrad import Context

Block = Callable[[Any], Any]
_PLAIN = ("product", "scaled", "squared", "sine")
_NESTED = (*_PLAIN, "residual", "checkpointed", "two")


def _functions(torch: Any) -> tuple[Any, Any]:
    class Squared(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x * x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return 2 * x * w * g, (x * x * g).sum(0)

    class Sine(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x.cos()

    return Squared, Sine


class _Program:
    """One program, drawn by a seed, with tensors of `torch`."""

    def __init__(self, torch: Any, checkpoint: Any, seed: int):
        self.torch, self.checkpoint, self.draw = torch, checkpoint, random.Random(seed)
        self.squared, self.sine = _functions(torch)
        grid = torch.arange(9.0).reshape(3, 3) / 9
        self.matrices = [(grid - 0.2 * (i + 1)).requires_grad_() for i in range(2)]
        self.rows = [(torch.arange(3.0) / 3 - 0.3 * i).requires_grad_() for i in range(2)]
        self.x = (torch.arange(6.0).reshape(2, 3) / 5 - 0.5).requires_grad_()
        self.blocks = [self.block(0) for _ in range(self.draw.randint(2, 4))]
        self.blocks.append(self.draw.choice(self.blocks))
        self.is_checkpointed = [self.draw.random() < 0.5 for _ in self.blocks]

    def block(self, depth: int) -> Block:
        kind = self.draw.choice(_NESTED if depth < 3 else _PLAIN)
        matrix, row = self.draw.choice(self.matrices), self.draw.choice(self.rows)
        if kind == "product":
            return lambda y: (y @ matrix).tanh()
        if kind == "scaled":
            return lambda y: y * row + y.sin()
        if kind == "squared":
            return lambda y: self.squared.apply(y, row).tanh()
        if kind == "sine":
            return lambda y: self.sine.apply(y)
        first = self.block(depth + 1)
        if kind == "residual":
            return lambda y: y + 0.5 * first(y)
        if kind == "checkpointed":
            return lambda y: self.checkpoint(first, y, use_reentrant=False)
        second = self.block(depth + 1)
        return lambda y: second(first(y))

    def gradients(self, order: int) -> list[Any]:
        """The gradients of a loss; of order 2 those of a loss to which gradients belong."""
        leaves = [*self.matrices, *self.rows, self.x]
        y = self.x
        for block, is_checkpointed in zip(self.blocks, self.is_checkpointed, strict=True):
            y = self.checkpoint(block, y, use_reentrant=False) if is_checkpointed else block(y)
        loss = (y * y).sum()
        if order == 2:
            found = self.torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
            for each in found:
                loss = loss if each is None else loss + 0.1 * (each * each).sum()
        for leaf in leaves:
            leaf.grad = None
        loss.backward()
        return [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


@pytest.mark.nightly
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", range(24))
def test_shared_parameters_of_checkpoints_and_functions(seed: int, order: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint as their_checkpoint

    from tilegrad.torch.utils.checkpoint import checkpoint as our_checkpoint

    theirs = _Program(torch, their_checkpoint, seed).gradients(order)
    mine = _Program(ours, our_checkpoint, seed)
    # The second and the third time have templates.
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(3):
            found = mine.gradients(order)
            for own, other in zip(found, theirs, strict=True):
                assert (own is None) == (other is None)
                if own is not None:
                    np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
