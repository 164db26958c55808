"""`grad_fn` has PyTorch's names, and leads to what came before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad import Context
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: x * 2, "MulBackward0"),
        (lambda x: 1 - x, "RsubBackward1"),
        (lambda x: 2**x, "PowBackward2"),
        (lambda x: x**x, "PowBackward1"),
        (lambda x: x.sum(0), "SumBackward1"),
        (lambda x: x.max(), "MaxBackward1"),
        (lambda x: x.max(0).values, "MaxBackward0"),
        (lambda x: x.sort().values, "SortBackward0"),
        (lambda x: x.view(2, 1), "ViewBackward0"),
        (lambda x: x[0], "SelectBackward0"),
        (lambda x: x[None], "UnsqueezeBackward0"),
        (lambda x: x[torch.tensor([1, 0])], "IndexBackward0"),
        (lambda x: x @ x, "DotBackward0"),
        (lambda x: torch.stack([x, x]), "StackBackward0"),
        (lambda x: x.softmax(0), "SoftmaxBackward0"),
        (lambda x: x.double(), "ToCopyBackward0"),
        (lambda x: x.clone().mul_(2), "MulBackward0"),
        (lambda x: F.gelu(x), "GeluBackward0"),
        (lambda x: F.mse_loss(x, x * 2), "MseLossBackward0"),
        (lambda x: nn.MSELoss()(x, x * 2), "MseLossBackward0"),
        (lambda x: F.linear(x[None], torch.ones(3, 2), torch.ones(3)), "AddmmBackward0"),
        (lambda x: nn.LayerNorm(2)(x), "NativeLayerNormBackward0"),
        (lambda x: torch.linalg.inv(x.diag()), "LinalgInvExBackward0"),
    ],
)
def test_a_result_names_what_computed_it(make: Callable[[Any], Any], name: str) -> None:
    made = make(torch.tensor([1.0, 2.0], requires_grad=True))
    assert type(made.grad_fn).__name__ == made.grad_fn.name() == name


def test_only_what_has_a_gradient_has_a_step() -> None:
    x = torch.ones(2, requires_grad=True)
    assert x.grad_fn is None
    assert (torch.ones(2) * 2).grad_fn is None
    assert (x * 2).detach().grad_fn is None
    assert (x > 0).grad_fn is None


def test_a_step_prints_with_the_tensor() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x * 3) == "tensor([3., 6.], grad_fn=<MulBackward0>)"
    y = x * 1
    y[0] = 5.0
    assert repr(y) == "tensor([5., 2.], grad_fn=<CopySlices>)"


def test_steps_lead_back_to_the_leaves() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    step = nn.MSELoss()(model(torch.ones(1, 2)), torch.zeros(1, 1)).grad_fn
    (last, _), (target, _) = step.next_functions
    names = [type(each).__name__ for each, _ in last.next_functions]
    assert names[:2] == ["AccumulateGrad", "ReluBackward0"]
    assert target is None
    assert last.next_functions[0][0].variable is model[2].bias


def test_a_step_holds_no_tensor() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    seen = weakref.ref(y)
    z = y + 1
    del y
    gc.collect()
    assert seen() is None and z.grad_fn.next_functions[0][0].name() == "MulBackward0"


def test_a_function_of_ones_own_has_its_name() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * 2 + y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            assert ctx.needs_input_grad == (True, False)
            return gradient * 2, gradient

    x = torch.ones(2, requires_grad=True)
    assert Twice.apply(x, torch.ones(2)).grad_fn.name() == "TwiceBackward"


def test_values_of_what_has_a_gradient_are_not_handed_out() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
        x.numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        (x * 2).numpy()
    assert x.detach().numpy().tolist() == x.numpy(force=True).tolist() == [1.0, 1.0]


def test_a_whole_slice_is_a_view_and_no_leaf() -> None:
    w = torch.ones(3, requires_grad=True)
    for view in (w[:], w[...], w.view(3)):
        assert view is not w and not view.is_leaf and view.requires_grad
    plain = torch.zeros(3)
    view = plain[:]
    view[0] = 9
    assert plain.tolist() == [9.0, 0.0, 0.0] and view.is_leaf
    (w[:] ** 2).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["sign", "sgn", "floor", "ceil", "trunc", "round"])
def test_steps_of_a_staircase_pass_zeros_on(name: str) -> None:
    x = torch.tensor([1.5, -2.5], requires_grad=True)
    getattr(x, name)().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0]


def test_a_hook_sees_the_gradient_that_was_added() -> None:
    x = torch.ones(2, requires_grad=True)
    seen: list[Any] = []
    handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    (x * 3).sum().backward()
    (x * 1).sum().backward()
    handle.remove()
    (x * 5).sum().backward()
    assert seen == [[3.0, 3.0], [4.0, 4.0]]
    with pytest.raises(RuntimeError, match="leaves"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_views_inside_methods_are_as_those_of_templates() -> None:
    """`expand` or `reshape` to the same shape is a tensor of its own, and no leaf where nothing
    requires a gradient, as what templates make.
    """
    x = torch.tensor([[3.0, 1.0, 2.0], [6.0, 4.0, 5.0]])
    rows = torch.tensor([1, 0])
    with Context(TEMPLATES=2):
        for _ in range(3):
            picked, (largest, where) = x[rows], x.topk(2)
    assert picked.tolist() == [[6.0, 4.0, 5.0], [3.0, 1.0, 2.0]]
    assert largest.tolist() == [[3.0, 2.0], [6.0, 5.0]]
    assert where.tolist() == [[0, 2], [0, 2]]
