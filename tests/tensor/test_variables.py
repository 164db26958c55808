"""A bound Variable wherever a number is taken: the value that NumPy gives, or a clear error."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, Variable
from tilegrad.base.errors import DTypeError, ShapeError

X = np.array([2.7, 1.0, 5.0], "f4")
J = np.array([2, 7, 5], "i4")
M = np.arange(16, dtype="f4").reshape(4, 4)
V = Variable("v", 1, 4).bind(3)

SYMBOLS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
BITS = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift,
    "rshift": operator.rshift,
}  # fmt: skip


def check(found: Any, expected: Any) -> None:
    assert isinstance(found, Tensor)
    assert found.numpy().shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", SYMBOLS)
@pytest.mark.parametrize("array", [X, J], ids=["floats", "integers"])
def test_operators_take_a_variable_on_either_side(name: str, array: Any) -> None:
    symbol = SYMBOLS[name]
    check(symbol(V, Tensor(array)), symbol(3, array))
    check(symbol(Tensor(array), V), symbol(array, 3))


@pytest.mark.parametrize("name", BITS)
def test_operators_of_bits_take_a_variable_on_either_side(name: str) -> None:
    symbol = BITS[name]
    check(symbol(V, Tensor(J)), symbol(3, J))
    check(symbol(Tensor(J), V), symbol(J, 3))


def test_a_variable_times_one_element_is_a_tensor() -> None:
    check(V * Tensor([2.5]), [7.5])


def test_an_expression_of_variables_stands_on_the_left() -> None:
    check((V + 1) * Tensor(X), 4 * X)
    check(-V - Tensor(X), -3 - X)


# A call, and what it gives.
CALLS: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "pad": (lambda: Tensor(X).pad((1, 1), value=V), np.pad(X, 1, constant_values=3)),  # type: ignore[arg-type]
    "pad by": (lambda: Tensor(X).pad((V, 0)), np.pad(X, (3, 0))),
    "where": (lambda: (Tensor(X) > 2).where(V, Tensor(X)), np.where(X > 2, 3, X)),
    "clip": (lambda: Tensor(X).clip(0, V), np.clip(X, 0, 3)),
    "maximum": (lambda: Tensor(X).maximum(V), np.maximum(X, 3)),
    "masked_fill": (lambda: Tensor(X).masked_fill(Tensor(X) > 2, V), np.where(X > 2, 3, X)),
    "lerp": (lambda: Tensor(X).lerp(Tensor(X) * 2, V), 4 * X),
    "alpha": (lambda: Tensor(X).add(Tensor(X), alpha=V), 4 * X),
    "atan2": (lambda: Tensor(X).atan2(V), np.arctan2(X, 3)),
    "full": (lambda: Tensor.full((2,), V), [3, 3]),  # type: ignore[arg-type]
    "full of": (lambda: Tensor.full((V,), 2.0), [2, 2, 2]),
    "arange": (lambda: Tensor.arange(1, V), [1, 2]),
    "slice": (lambda: Tensor(M)[:V], M[:3]),
    "narrow": (lambda: Tensor(M).narrow(0, 0, V), M[:3]),
    "repeat": (lambda: Tensor(X).repeat(V), np.tile(X, 3)),
    "tril": (lambda: Tensor(M).tril(V - 3), np.tril(M)),
    "leaky_relu": (lambda: (-Tensor(X)).leaky_relu(V), -3 * X),
    "fill_": (lambda: Tensor(X).contiguous().realize().fill_(V), [3, 3, 3]),
    "matmul": (lambda: Tensor(M)[:V] @ Tensor(M), M[:3] @ M),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_take_a_variable(name: str) -> None:
    call, expected = CALLS[name]
    check(call(), expected)


REFUSED: dict[str, Callable[[], Any]] = {
    "linspace: stop must be a number, not a Variable": lambda: Tensor.linspace(0, V, 5),  # type: ignore[arg-type]
    "linspace: steps must be an integer": lambda: Tensor.linspace(0, 9, V),  # type: ignore[arg-type]
    "arange: step must be a number": lambda: Tensor.arange(0, 9, V),  # type: ignore[arg-type]
    "eye: n must be an integer": lambda: Tensor.eye(V),  # type: ignore[arg-type]
    "diagonal: an offset must be an integer": lambda: Tensor(M).diagonal(V),  # type: ignore[arg-type]
    "round: decimals must be an integer": lambda: Tensor(X).round(V),  # type: ignore[arg-type]
    "norm: p must be a number": lambda: Tensor(X).norm(V),  # type: ignore[arg-type]
    "var: correction must be a number": lambda: Tensor(X).var(correction=V),  # type: ignore[arg-type]
    "softplus: beta must be a number": lambda: Tensor(X).softplus(V),  # type: ignore[arg-type]
    "quantile: a share must be a number": lambda: Tensor(X).quantile(V),
    "sum: an axis must be an integer, not a Variable": lambda: Tensor(M).sum(V),  # type: ignore[arg-type]
    "int: a symbolic integer has a value only": lambda: int(V),
    "float: a symbolic integer has a value only": lambda: float(V),
    "bind: a value of the variable 'v' must be an integer, not 2.5": lambda: Variable(
        "v", 1, 4
    ).bind(2.5),  # type: ignore[arg-type]
    "bind: a value of the variable 'v' must be an integer, not 'x'": lambda: Variable(
        "v", 1, 4
    ).bind("x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_shapes_the_graph_is_no_variable(message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        REFUSED[message]()


def test_an_integer_of_numpy_binds() -> None:
    check(Tensor(M)[: Variable("v", 1, 4).bind(np.int64(2))], M[:2])  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["operand", "size"])
def test_a_variable_without_a_value_is_named_when_it_is_read(form: str) -> None:
    w = Variable("w", 1, 3)
    x = Tensor(X) * w if form == "operand" else Tensor(X)[:w].sum()
    with pytest.raises(ShapeError, match=r"the variable 'w' has no value") as found:
        x.tolist()
    assert "w.bind(3)" in str(found.value)
