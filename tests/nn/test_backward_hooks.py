"""Hooks on gradients: of tensors, and of a module's inputs and outputs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import DTypeError, ShapeError, TilegradError


def test_a_hook_sees_and_changes_the_gradient_of_a_tensor() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    seen: list[Any] = []
    first = y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    second = y.register_hook(lambda gradient: gradient + 1)
    y.square().sum().backward()
    assert seen == [[6.0, 12.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [21.0, 39.0]
    first.remove()
    second.remove()
    assert y.square().sum().gradient(x)[0].tolist() == [18.0, 36.0]
    assert len(seen) == 1


def test_what_a_hook_may_not_do() -> None:
    x = Tensor([1.0, 2.0])
    handle = x.register_hook(lambda gradient: gradient.sum())
    with pytest.raises(ShapeError, match=r"the hook gave \(\), the gradient is \(2,\)"):
        x.sum().gradient(x)
    handle.remove()
    with pytest.raises(DTypeError, match="register_hook: an int32 tensor has no gradient"):
        Tensor([1]).register_hook(lambda gradient: None)


def test_a_gradient_is_kept() -> None:
    x = Tensor([3.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    for times in (1, 2):
        y.square().sum().backward()
        assert y.grad is not None
        assert y.grad.tolist() == [12.0 * times]


def test_a_module_between_others() -> None:
    """Of the input, what flows out of this module alone: not what goes by it."""
    layer, seen = nn.Linear(2, 2, bias=False), []
    layer.weight = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)

    def hook(module: Any, grad_input: Any, grad_output: Any) -> None:
        seen.append((module is layer, grad_input[0].tolist(), grad_output[0].tolist()))

    handle = layer.register_full_backward_hook(hook)
    x = Tensor([[5.0, 6.0]], requires_grad=True)
    (layer(x).sum() + (x * 10).sum()).backward()
    assert seen == [(True, [[4.0, 6.0]], [[1.0, 1.0]])]
    assert x.grad is not None
    assert x.grad.tolist() == [[14.0, 16.0]]
    handle.remove()
    layer(x).sum().gradient(x)
    assert len(seen) == 1


def test_the_output_is_what_a_forward_hook_made_of_it() -> None:
    """As in PyTorch: the gradient of what the caller got, whichever hook was there first."""
    layer, seen = nn.Linear(2, 2, bias=False), []
    layer.weight = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    layer.register_full_backward_hook(
        lambda module, made, given: seen.append((made[0].tolist(), given[0].tolist()))
    )
    layer.register_forward_hook(lambda module, args, output: output * 10)
    layer(Tensor([[5.0, 6.0]], requires_grad=True)).sum().backward()
    assert seen == [([[40.0, 60.0]], [[1.0, 1.0]])]


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    layer, seen = nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda module, made, given: seen.append(made))
    layer(Tensor([[1.0, 2.0]])).sum().gradient(layer.weight)
    assert seen == [(None,)]


def test_several_inputs_and_outputs() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x * y, x + y

    both, seen = Both(), []
    both.register_full_backward_hook(
        lambda module, made, given: seen.append(
            [[part.tolist() for part in parts] for parts in (made, given)]
        )
    )
    x, y = Tensor([2.0]), Tensor([5.0])
    product, total = both(x, y)
    (product * 10 + total).sum().gradient(x, y)
    assert seen == [[[[51.0], [21.0]], [[10.0], [1.0]]]]
    other = Both()
    other.register_full_backward_hook(lambda module, made, given: made)
    product, _ = other(x, y)
    with pytest.raises(TilegradError, match="Both: a hook gave 2 gradients for 2"):
        product.sum().gradient(x, y)


def test_a_hook_before() -> None:
    layer = nn.ReLU()
    layer.register_full_backward_pre_hook(lambda module, given: (given[0] * 2,))
    layer.register_full_backward_hook(lambda module, made, given: (made[0] + given[0],))
    x = Tensor([1.0, -1.0])
    assert layer(x).sum().gradient(x)[0].tolist() == [4.0, 2.0]


def test_hooks_hold_no_graph() -> None:
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda module, made, given: None)
    y = layer(Tensor([1.0]) * 2)
    y.register_hook(lambda gradient: None)
    node = weakref.ref(y.uop)
    del y
    gc.collect()
    assert node() is None
