"""`__torch_function__`: classes that take functions of `torch` over, as its documentation says."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import tilegrad.torch as torch


class Logged(torch.Tensor):
    """A tensor that notes which functions it is an argument of."""

    log: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Never(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Scalar:
    """n times the identity, which is no tensor."""

    def __init__(self, size: int, value: float):
        self.size, self.value = size, value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.mean:
            return args[0].value / args[0].size
        if func is torch.add:
            return "sum"
        return NotImplemented


def logged() -> Any:
    Logged.log = []
    return torch.tensor([1.0, -2.0]).as_subclass(Logged)


@pytest.mark.parametrize(
    ("call", "name", "expected"),
    [
        (lambda x: x + 1, "add", [2.0, -1.0]),
        (lambda x: 1 + x, "add", [2.0, -1.0]),
        (lambda x: torch.ones(2) + x, "add", [2.0, -1.0]),
        (lambda x: torch.add(torch.ones(2), x), "add", [2.0, -1.0]),
        (lambda x: x / 2, "div", [0.5, -1.0]),
        (lambda x: x @ torch.ones(2), "matmul", -1.0),
        (lambda x: x.exp(), "exp", np.exp([1.0, -2.0])),
        (lambda x: torch.where(torch.tensor([True, False]), x, torch.ones(2)), "where", [1.0, 1.0]),
        (lambda x: torch.cat([torch.ones(1), x]), "cat", [1.0, 1.0, -2.0]),
        (lambda x: torch.nn.functional.relu(x), "relu", [1.0, 0.0]),
        (lambda x: x[0], "__getitem__", 1.0),
    ],
)
def test_a_class_of_tensors_is_asked(call: Any, name: str, expected: Any) -> None:
    x = logged()
    made = call(x)
    assert Logged.log == [name] and type(made) is Logged
    with torch._C.DisableTorchFunctionSubclass():
        np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)
    assert Logged.log == [name]


def test_what_a_call_is_made_of_asks_nothing() -> None:
    x = logged()
    x.softmax(0).sum()
    assert Logged.log == ["softmax", "sum"]
    assert x.shape == (2,) and x.dtype is torch.float32 and Logged.log == ["softmax", "sum"]


def test_writes_ask_and_gradients_flow() -> None:
    x = logged()
    x[0] = 5
    x += 1
    assert Logged.log == ["__setitem__", "add_"]
    w = torch.tensor([3.0], requires_grad=True)
    (w.as_subclass(Logged) * 2).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2.0]


def test_tensors_of_no_such_class_are_as_they_were() -> None:
    """A class was made that takes functions over."""
    z = torch.tensor([[1 + 2j, 3.0], [4j, 5.0]])
    assert torch.Tensor.view(z, 4).tolist() == [1 + 2j, 3, 4j, 5]
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.sum(x, dim=()).item() == x.sum(dim=()).item() == 10
    assert logged().sum(dim=()).item() == -1


def test_methods_and_attributes_of_a_class_are_its_own() -> None:
    class Own(torch.Tensor):
        exp = "no method"

    assert Own.exp == "no method"
    name = "log"
    setattr(Own, name, lambda self: "its own")
    assert torch.ones(2).as_subclass(Own).log() == "its own"
    z = torch.tensor([1j])
    np.testing.assert_allclose(torch.Tensor.exp(z).numpy(), np.exp([1j]), rtol=1e-6)
    np.testing.assert_allclose(torch.Tensor.log(z).numpy(), np.log([1j]), rtol=1e-6)


def test_all_say_no() -> None:
    x = torch.ones(2).as_subclass(Never)
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'exp'.*Never"):
        torch.exp(x)
    # One of two answers.
    assert type(torch.ones(2).as_subclass(Logged)) is Logged
    assert torch.overrides.has_torch_function((torch.ones(1), x))
    assert not torch.overrides.has_torch_function_unary(torch.ones(1))


def test_a_class_that_is_no_tensor() -> None:
    one = Scalar(4, 2.0)
    assert torch.mean(one) == 0.5
    assert torch.add(torch.ones(2), one) == "sum"
    assert torch.overrides.is_tensor_like(one)
    with pytest.raises(TypeError, match="Multiple dispatch failed for 'exp'"):
        torch.exp(one)


def test_functions_of_a_library_hand_over() -> None:
    def area(shape: Any) -> Any:
        if torch.overrides.has_torch_function_unary(shape):
            return torch.overrides.handle_torch_function(torch.mean, (shape,), shape)
        return shape.sum()

    assert area(Scalar(4, 6.0)) == 1.5
    assert area(torch.ones(3)).item() == 3


class Beside:
    """An object with operators of its own on the right."""

    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmatmul__(self, other: Any) -> str:
        return "rmatmul"

    def __gt__(self, other: Any) -> str:
        return "gt"


def test_an_object_on_the_right_has_its_operator() -> None:
    x = torch.ones(2)
    assert (x + Beside(), x @ Beside(), x < Beside()) == ("radd", "rmatmul", "gt")
    for operation in (lambda: x - Beside(), lambda: x + object(), lambda: x + "a"):
        with pytest.raises(TypeError, match="cannot use"):
            operation()
