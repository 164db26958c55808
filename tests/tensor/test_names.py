"""Smaller methods: sizes, constants, sums of many, rearranging."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, Variable, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.ir import Ops


def test_largest_sizes() -> None:
    n = Variable("n", 1, 6)
    x = Tensor.ones(6, 2)[: n.bind(3)]
    assert (x.max_shape, x.max_numel()) == ((6, 2), 12)
    assert x.reshape(n.bind(3) * 2).max_shape == (12,)
    assert (Tensor(1.0).max_shape, Tensor(1.0).max_numel()) == ((), 1)


def test_constants() -> None:
    assert Tensor.const(dtypes.half, 3).item() == 3
    assert Tensor.const("int32", 3, shape=(2, 1)).tolist() == [[3], [3]]
    like = Tensor.zeros(2, 0, dtype=dtypes.int8).const_like(7)
    assert (like.shape, like.dtype) == ((2, 0), dtypes.int8)


def test_ops_by_name() -> None:
    x, y = Tensor([1.5, -2.0]), Tensor([0.5, 4.0])
    assert x.alu(Ops.MAX, y).tolist() == [1.5, 4.0]
    assert x.alu(Ops.TRUNC).tolist() == [1.0, -2.0]
    assert (x > 0).alu(Ops.WHERE, x, y).tolist() == [1.5, 4.0]
    assert x.alu(Ops.MULACC, y, 1.0).tolist() == [1.75, -7.0]
    assert x.usum().tolist() == x.uprod().tolist() == [1.5, -2.0]
    assert x.usum(y, 1, y).tolist() == [3.5, 7.0]
    assert x.uprod(y, 2).tolist() == [1.5, -16.0]
    assert x.ufix(2).dtype is dtypes.float32
    assert x.ufix(y) is y
    with pytest.raises(DTypeError, match=r"alu: Ops\.RESHAPE is no elementwise op"):
        x.alu(Ops.RESHAPE)
    with pytest.raises(ShapeError, match="alu: ADD takes 2 operands, 1 are given"):
        x.alu(Ops.ADD)


def test_padding_and_shrinking_to_a_shape() -> None:
    array = numbers(2, 3)
    x = Tensor(array)
    close(x.pad_to(3, None), np.pad(array, ((0, 1), (0, 0))))
    close(x.pad_to((2, 5), value=2.0), np.pad(array, ((0, 0), (0, 2)), constant_values=2))
    close(x.shrink_to(1, 3), array[:1])
    close(x.shrink_to((None, 0)), array[:, :0])
    with pytest.raises(ShapeError, match=r"pad_to: \(2, 2\) is smaller than \(2, 3\)"):
        x.pad_to(2, 2)
    with pytest.raises(ShapeError, match="shrink_to: 1 sizes for 2 axes"):
        x.shrink_to(1)
    with pytest.raises(ShapeError, match=r"shrink: slice \(0, 4\) of axis 1"):
        x.shrink_to(2, 4)


def test_softmin_and_its_gradient() -> None:
    array = numbers(2, 3)
    e = np.exp(-array)
    expected = e / e.sum(-1, keepdims=True)
    x = Tensor(array)
    made = x.softmin()
    (found,) = made[:, 0].sum().gradient(x)
    first = np.eye(3)[0]
    close(found, (expected * (expected[:, :1] - first)).astype(np.float32))
    close(made, expected)
    assert Tensor(5.0).reshape(1).softmin().tolist() == [1.0]


def test_a_border_of_the_backward_pass() -> None:
    x = Tensor([1.0, 2.0])
    for y in (x, x[0]):
        z = y.contiguous_backward()
        (found,) = (z * z).sum().gradient(x)
        assert found.tolist() == ([2.0, 4.0] if y is x else [2.0, 0.0])
    (found,) = (x.contiguous_backward() * 3).exp().sum().gradient(x)
    assert Ops.CONTIGUOUS in {node.op for node in found.uop.toposort()}


def test_parameters() -> None:
    x = Tensor([1.0])
    assert not x.is_param
    assert x.is_param_() is x
    assert (x.is_param, x.requires_grad) == (True, True)
    assert not x.is_param_(False).is_param
    with pytest.raises(DTypeError, match="requires_grad: an int32 tensor has no gradient"):
        Tensor([1]).is_param_()


REARRANGED: list[tuple[str, dict[str, int], Any]] = [
    ("a b c -> c a b", {}, lambda x: x.transpose(2, 0, 1)),
    ("a (b d) c -> a d (b c)", {"d": 2},
     lambda x: x.reshape(2, 2, 2, 5).transpose(0, 2, 1, 3).reshape(2, 2, 10)),
    ("... c -> c ...", {}, lambda x: x.transpose(2, 0, 1)),
    ("a ... -> (a ...)", {}, lambda x: x.reshape(-1)),
    ("a ... c -> a (...) 1 c", {}, lambda x: x.reshape(2, 4, 1, 5)),
    ("(a z) b c -> z a 1 (b c)", {"z": 1}, lambda x: x.reshape(1, 2, 1, 20)),
    ("a b c ... -> (a b) c ...", {}, lambda x: x.reshape(8, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "sizes", "expected"), REARRANGED)
def test_rearrange(formula: str, sizes: dict[str, int], expected: Any) -> None:
    array = numbers(2, 4, 5)
    close(Tensor(array).rearrange(formula, **sizes), expected(array))


@pytest.mark.parametrize(
    ("formula", "sizes", "message"),
    [
        ("a b c", {}, "a formula has one ->"),
        ("a b -> b a", {}, "2 axes in the formula, 3 in the tensor"),
        ("a b c -> a b d", {}, "'c', 'd' stands on one side only"),
        ("a a c -> a c", {}, "'a' stands twice on one side"),
        ("a (b d) c -> a b c d", {}, "the sizes of 'b', 'd' are not known"),
        ("a (b d) c -> a b c d", {"d": 3}, "an axis of 4 has no parts of 3"),
        ("a b c -> b a c", {"b": 3}, "an axis of 4 is to be 3"),
        ("a b c -> (b a c", {}, "a parenthesis is not closed"),
        ("a b c -> b) a c", {}, "a parenthesis is closed that was not opened"),
        ("a ((b)) c -> a b c", {}, "parentheses in parentheses"),
        ("a b ? -> a b", {}, r"'\?' is no name"),
        ("a b c -> c b a", {"q": 1}, "'q' has a size and does not occur"),
        ("... b ... -> b ...", {}, r"\.\.\. stands twice"),
    ],
)
def test_formulas_that_say_nothing_raise(formula: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError, match=f"rearrange: {message}"):
        Tensor.zeros(2, 4, 5).rearrange(formula, **sizes)


def test_the_page_of_the_class_names_all_folders_that_it_is_made_of() -> None:
    folders = {kind.__module__.split(".")[2] for kind in Tensor.__mro__[1:-1]}
    page = str(inspect.getdoc(sys.modules[Tensor.__module__]))
    named = set(re.findall(r"^    (\w+)  ", page, re.MULTILINE))
    assert len(folders) > 10
    assert folders <= named
