"""Aliases that become leaves: each has a gradient of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad
from tilegrad import Context, Tensor, torch
from tilegrad.base.trace import counters

Alias = Callable[[Tensor], Tensor]


@pytest.mark.parametrize("is_memory", [False, True])
@pytest.mark.parametrize(
    "alias",
    [lambda x: x.detach(), lambda x: x.view(2, 1), lambda x: x[1:], lambda x: x[1:].detach()],
    ids=["detach", "view", "slice", "slice, detached"],
)
def test_two_aliases_are_two_leaves(alias: Alias, is_memory: bool) -> None:
    x = Tensor([1.0, 2.0])
    if is_memory:
        x.realize()
    first, second, third = (alias(x).requires_grad_() for _ in range(3))
    fourth = alias(x)
    values = fourth.numpy()
    (first * 3 + second * 5 + third * second + fourth * 7).sum().backward()
    for leaf, expected in ((first, 3 + 0 * values), (second, 5 + values), (third, values)):
        assert leaf.grad is not None
        np.testing.assert_array_equal(leaf.grad.numpy(), expected)
    assert fourth.grad is None and x.grad is None


@pytest.mark.parametrize(
    "alias",
    [lambda x: x.detach(), lambda x: x.view(1, 3).detach(), lambda x: x[:2]],
    ids=["detach", "view", "slice"],
)
def test_a_leaf_that_is_gone_is_not_the_next_one(alias: Alias) -> None:
    """What was computed from it lives on: its gradient is not that of a leaf made after it."""
    x = Tensor([0.5, 1.5, -0.5]).realize()
    values = alias(x).numpy()

    def step(h: Tensor) -> tuple[Tensor, Tensor]:
        leaf = alias(x).requires_grad_()
        h = (h * leaf).sin()
        return h, h.sum().gradient(leaf)[0]

    h, expected = alias(x), values
    for _ in range(4):
        h, slope = step(h)
        slopes = np.cos(expected * values) * expected
        expected = np.sin(expected * values)
        np.testing.assert_allclose(slope.numpy(), slopes, rtol=1e-5)


def test_what_was_detached_before_is_no_part_of_the_leaf() -> None:
    x = Tensor([1.0, 2.0]).realize()
    leaf, other = x.detach(), x.detach()
    leaf.requires_grad_()
    (leaf * 3 + other * 5 + leaf.detach() * 7).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [3.0, 3.0] and other.grad is None


def test_a_write_to_one_is_seen_by_all() -> None:
    x = Tensor([1.0, 2.0]).realize()
    first, second = x.detach().requires_grad_(), x.detach().requires_grad_()
    with tilegrad.no_grad():
        first *= 3
    assert x.tolist() == first.tolist() == second.tolist() == [3.0, 6.0]
    (first * first + second * 5).sum().backward()
    assert first.grad is not None and first.grad.tolist() == [6.0, 12.0]
    assert second.grad is not None and second.grad.tolist() == [5.0, 5.0]


def test_a_loop_that_cuts_its_graph_compiles_once() -> None:
    """Truncated backpropagation: the state of a step is a leaf of the next one."""
    w = Tensor([0.5, -0.25], requires_grad=True).realize()
    h, state, total = Tensor.ones(2).contiguous(), np.ones(2), np.zeros(2)
    compiles = 0
    for step in range(12):
        h = h.detach().requires_grad_()
        before = h
        h = (h * w).tanh()
        (h * h).sum().backward()
        after = np.tanh(state * [0.5, -0.25])
        slope = 2 * after * (1 - after**2)
        assert before.grad is not None and w.grad is not None
        np.testing.assert_allclose(before.grad.numpy(), slope * [0.5, -0.25], rtol=1e-5)
        total += slope * state
        np.testing.assert_allclose(w.grad.numpy(), total, rtol=1e-5)
        state = after
        if step == 5:
            compiles = counters.compiles
    assert counters.compiles == compiles


@pytest.mark.parametrize("computed", ["nothing", "the result", "the second leaf", "both"])
@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("is_memory", [False, True])
def test_a_leaf_that_took_a_value_is_not_the_one_that_took_it_before(
    templates: int, is_memory: bool, computed: str
) -> None:
    values = np.array([0.5, 1.5, -0.75], "f4")
    x = Tensor(values * 2)
    if is_memory:
        x.realize()

    def leaf() -> Tensor:
        made = Tensor(values).requires_grad_()
        with tilegrad.no_grad():
            made.assign(x)
        return made

    def slope_of_second() -> Tensor:
        # The first leaf is gone, what was computed from it is not.
        h = (lambda first: (first * 3).sin())(leaf())
        if computed in ("the result", "both"):
            h.realize()
        second = leaf()
        if computed in ("the second leaf", "both"):
            second.realize()
        (slope,) = (h * second).sum().gradient(second)
        return slope

    with Context(TEMPLATES=templates):
        # From the third time on, the run is a known segment, which makes no nodes.
        for _ in range(4):
            np.testing.assert_allclose(slope_of_second().numpy(), np.sin(values * 6), rtol=1e-5)


def test_leaves_of_equal_copies_beside_a_hook() -> None:
    """A hook asks for nodes: the copies were one node before they became leaves."""

    def gradients() -> list[np.ndarray]:
        w = torch.ones(3, 4).requires_grad_()
        h = torch.ones(2, 2).requires_grad_() * 1
        with torch.no_grad():
            h.add_(1)
        copies = []
        for _ in range(3):
            copies.append(h.detach().clone().requires_grad_())
            w.register_hook(lambda gradient: gradient * 2)
        torch.stack([(each * 0.5).sum() for each in (w, h, *copies)]).sum().backward()
        return [each.grad.numpy() for each in (w, *copies)]

    # The second time the graphs are known.
    for _ in range(3):
        of_w, *of_copies = gradients()
        np.testing.assert_array_equal(of_w, np.full((3, 4), 4.0))
        for each in of_copies:
            np.testing.assert_array_equal(each, np.full((2, 2), 0.5))
