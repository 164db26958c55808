"""Gradients of `autograd.grad` in equal steps, and those of gradients, against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Tensor
from tilegrad.base.config import config
from tilegrad.tensor.calls import gradients

_random = np.random.default_rng(11)
_X = _random.normal(size=(5, 3)).astype(np.float32)


def _drawn(*shape: int) -> Any:
    return _random.normal(size=shape).astype(np.float32)


def _close(ours: Any, theirs: Any, rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=rtol, atol=1e-5)


def test_a_number_that_changes_is_in_a_constant_gradient() -> None:
    weight = torch.nn.Parameter(torch.tensor(_X))
    for step in range(1, 9):
        rate = step * 0.37
        weight.grad = None
        (weight * rate).sum().backward()
        _close(weight.grad, np.full((5, 3), rate))
        (found,) = torch.autograd.grad((weight * rate + step).sum(), weight)
        _close(found, np.full((5, 3), rate))


def test_a_gradient_that_is_the_other_operand_is_a_copy() -> None:
    weight, x = torch.nn.Parameter(torch.tensor(_X)), torch.tensor(_X * 2)
    for _ in range(6):
        weight.grad = None
        (weight * x).sum().backward()
        _close(weight.grad, 2 * _X)
        weight.grad += 1
        _close(x, 2 * _X)


@pytest.mark.parametrize("by", ["memory", "a clone", "what was computed"])
def test_derivatives_of_derivatives(by: str) -> None:
    scale = torch.nn.Parameter(torch.tensor(2.0))
    for step in range(8):
        array = _drawn(4)
        x = torch.tensor(array)
        x = {"memory": x, "a clone": x.clone(), "what was computed": x * 1.5}[by]
        wide = array.astype(np.float64) * (1.5 if by == "what was computed" else 1.0)
        x.requires_grad_()
        assert x.is_leaf
        y = (scale * x**4).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        assert first.requires_grad and second.requires_grad
        loss = (second**2).sum() + (first[0] * step).sum()
        scale.grad = x.grad = None
        loss.backward()
        _close(first, 4 * 2 * wide**3)
        _close(second, 12 * 2 * wide**2)
        _close(scale.grad, (2 * 24 * wide**2 * 12 * wide**2).sum() + 4 * wide[0] ** 3 * step)
        expected = 2 * 24 * wide**2 * 48 * wide
        expected[0] += 24 * wide[0] ** 2 * step
        _close(x.grad, expected)


def test_inputs_on_which_nothing_depends() -> None:
    x, other = (torch.tensor(_X).requires_grad_() for _ in range(2))
    for _ in range(5):
        first, second = torch.autograd.grad((x * x).sum(), [x, other], allow_unused=True)
        _close(first, 2 * _X)
        assert second is None
        with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
            torch.autograd.grad((x * x).sum(), [x, other])


def test_the_gradient_by_a_value_between() -> None:
    x = torch.tensor(_X).requires_grad_()
    for _ in range(5):
        between = x * 3
        by_x, by_between = torch.autograd.grad((between**2).sum(), [x, between])
        _close(by_x, 18 * _X)
        _close(by_between, 6 * _X)
        seeds = torch.tensor(_X)
        (found,) = torch.autograd.grad(x * x, x, grad_outputs=seeds)
        _close(found, 2 * _X * _X)


@pytest.mark.parametrize("second_order", [True, False])
def test_steps_of_an_inner_loop(second_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that a step has made are differentiated by in the next: in full, or with gradients as
    constants. w -> w - r (a w - b) three times, for the loss (c w' - d)**2.
    """
    calls = []
    found = gradients.waiting_gradients

    def noted(loss: Any, targets: Any) -> Any:
        calls.append(found(loss, targets))
        return calls[-1]

    monkeypatch.setattr("tilegrad.tensor.tensor.waiting_gradients", noted)
    weight = torch.nn.Parameter(torch.tensor(_X))
    for _ in range(6):
        a, b, c, d = (_drawn(5, 3) for _ in range(4))
        fast = [weight]
        for _ in range(3):
            inner = (torch.tensor(a) * fast[0] ** 2 / 2 - torch.tensor(b) * fast[0]).sum()
            steps = torch.autograd.grad(inner, fast, create_graph=second_order)
            fast = [each - 0.1 * step for each, step in zip(fast, steps)]
        weight.grad = None
        ((torch.tensor(c) * fast[0] - torch.tensor(d)) ** 2).sum().backward()
        wanted = _X.astype(np.float64)
        for _ in range(3):
            wanted = wanted - 0.1 * (a * wanted - b)
        _close(fast[0], wanted)
        way = (1 - 0.1 * a) ** 3 if second_order else 1.0
        _close(weight.grad, 2 * (c * wanted - d) * c * way, 1e-3)
    if config.TEMPLATES == 1 and config.SEGMENTS:
        # No nodes were made for them.
        assert all(each is not None for each in calls[-3:])


def test_values_between_of_which_one_is_computed_from_the_other() -> None:
    x = torch.tensor(_X).requires_grad_()
    for _ in range(6):
        first = x * 2
        second, third = first.sin(), first.cos()
        loss = (second * first * third).sum()
        by_first, by_second = torch.autograd.grad(loss, [first, second])
        wide = 2 * _X.astype(np.float64)
        whole = np.sin(wide) * np.cos(wide)
        _close(by_first, whole + wide * np.cos(2 * wide), 1e-3)
        _close(by_second, wide * np.cos(wide), 1e-3)
        by_second, by_third = torch.autograd.grad((second * third).sum(), [second, third])
        _close(by_second, np.cos(wide), 1e-3)
        _close(by_third, np.sin(wide), 1e-3)


def test_a_leaf_that_was_written_since() -> None:
    x = torch.tensor(_X).requires_grad_()
    now = _X.copy()
    for _ in range(6):
        y = (x**3).sum()
        (found,) = torch.autograd.grad(y, x)
        with torch.no_grad():
            x -= 0.01 * found
        _close(found, 3 * now**2)
        now -= 0.01 * 3 * now**2
        _close(x, now)


def test_hooks_see_it() -> None:
    x = torch.tensor(_X).requires_grad_()
    for step in range(6):
        handle = x.register_hook(lambda gradient: gradient * 10) if step % 2 else None
        (found,) = torch.autograd.grad((x * x).sum(), x)
        _close(found, 2 * _X * (10 if handle else 1))
        if handle is not None:
            handle.remove()


def test_in_tilegrad_itself() -> None:
    x = Tensor(_X, requires_grad=True)
    for _ in range(6):
        y = (x**3).sum()
        (first,) = y.gradient(x)
        (second,) = first.sum().gradient(x)
        np.testing.assert_allclose(first.numpy(), 3 * _X**2, rtol=1e-5)
        np.testing.assert_allclose(second.numpy(), 6 * _X, rtol=1e-5)


def test_an_attack_draws_its_gradient_at_the_input() -> None:
    weight = _drawn(3)
    for _ in range(8):
        array = _drawn(5, 3)
        x = torch.tensor(array).clone().requires_grad_()
        (x @ torch.tensor(weight)).sigmoid().sum().backward()
        moved = (x + 0.1 * x.grad.sign()).detach()
        _close(moved, array + 0.1 * np.sign(weight))


def test_a_state_that_goes_from_step_to_step_makes_no_longer_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    cell, head = torch.nn.LSTM(3, 4, 2, batch_first=True), torch.nn.Linear(4, 1)
    params = [*cell.parameters(), *head.parameters()]
    lengths: list[int] = []
    plain = gradients.Below

    class Counted(plain):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any):
            super().__init__(*args)
            lengths.append(len(self.calls))

    monkeypatch.setattr(gradients, "Below", Counted)
    state: Any = None
    for _ in range(9):
        out, state = cell(torch.tensor(_X[None]), state)
        state = tuple(each.detach() for each in state)
        for each in params:
            each.grad = None
        head(out).square().mean().backward()
        with torch.no_grad():
            for each in params:
                assert each.grad is not None
                each -= 0.1 * each.grad
        assert np.isfinite(float(out.detach().sum().item()))
    assert len(set(lengths[-5:])) == 1


def test_leaves_that_took_equal_values_have_gradients_of_their_own() -> None:
    for _ in range(5):
        z = torch.tensor([1.0, 2.0, 3.0])
        leaves = [torch.nn.Parameter(torch.tensor([5.0, 6.0, 7.0])) for _ in range(4)]
        with torch.no_grad():
            leaves[0].copy_(z * 2)
            leaves[1].copy_(z * 2)
            leaves[2].fill_(1.0)
            leaves[3].fill_(1.0)
        total: Any = sum((each * factor).sum() for each, factor in zip(leaves, (2, 3, 5, 7)))
        total.backward()
        for each, factor in zip(leaves, (2, 3, 5, 7)):
            assert each.grad is not None and each.grad.tolist() == [factor] * 3
        assert leaves[1].tolist() == [2, 4, 6] and leaves[3].tolist() == [1, 1, 1]


def test_a_view_that_is_read_and_written_keeps_its_way_to_the_leaf() -> None:
    for step in range(5):
        x = torch.tensor(_X + step).requires_grad_()
        view = x.flatten()
        assert len(view.tolist()) == 15
        with torch.no_grad():
            view.add_(view)
        ((x * x).sum() + (view * view).sum()).backward()
        _close(x.grad, 4 * 2 * (_X + step))
