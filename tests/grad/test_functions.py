"""Gradients of what the ops are composed to, in float64, against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.grad.numeric import Array, check, evaluate
from tilegrad import Tensor, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

RANDOM = np.random.default_rng(0)


def draw(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RANDOM.uniform(low, high, shape)


def differentiate(
    function: Callable[..., Tensor], *arrays: Array, order: int = 1, rtol: float = 1e-5
) -> None:
    """The derivatives of `function` by each of its float arrays are right."""
    leaves = [Tensor.empty(*array.shape, dtype=array.dtype.name) for array in arrays]
    values = {leaf.uop: array for leaf, array in zip(leaves, arrays, strict=True)}
    check(function(*leaves).uop, values, order=order, rtol=rtol)


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"dilation": 2},
    {"groups": 2},
    {"stride": (1, 2), "padding": (1, 0), "groups": 2},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d(options: dict[str, Any]) -> None:
    weight = draw(4, 4 // options.get("groups", 1), 2, 3)
    differentiate(lambda x, w, b: x.conv2d(w, b, **options), draw(2, 4, 5, 6), weight, draw(4))


def test_conv2d_twice() -> None:
    differentiate(lambda x, w: x.conv2d(w, padding=1), draw(1, 2, 3, 3), draw(2, 2, 2, 2), order=2)


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_backward_of_conv2d_is_movement_products_and_sums(options: dict[str, Any]) -> None:
    """No scatter, and nothing that a forward pass would not have."""
    x, w = Tensor.empty(2, 4, 8, 8), Tensor.empty(4, 4 // options.get("groups", 1), 3, 3)
    movement = {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP}
    for gradient in x.conv2d(w, **options).square().sum().gradient(x, w):
        ops = {node.op for node in gradient.uop.toposort()}
        assert ops <= movement | {Ops.BUFFER, Ops.CONST, Ops.ADD, Ops.MUL, Ops.REDUCE_AXIS}


def longest_row_of_sums(root: UOp) -> int:
    """The most reductions that stand on one path to the leaves."""
    depth: dict[UOp, int] = {}
    for node in root.toposort():
        below = max((depth[source] for source in node.src), default=0)
        depth[node] = below + (node.op is Ops.REDUCE_AXIS)
    return depth[root]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_each_gradient_of_conv2d_is_one_sum(options: dict[str, Any]) -> None:
    """The sums over channels and over the places of the kernel are one, so that none is stored."""
    x, w = Tensor.empty(2, 4, 8, 8), Tensor.empty(4, 4 // options.get("groups", 1), 3, 3)
    y = x.conv2d(w, **options)
    for gradient in y.gradient(x, w, gradient=Tensor.empty(*y.shape)):
        assert longest_row_of_sums(gradient.uop) == 1


def test_conv_transpose2d() -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1}
    differentiate(lambda x, w: x.conv_transpose2d(w, **options), draw(1, 3, 3, 3), draw(3, 2, 3, 3))


POOLING: list[dict[str, Any]] = [
    {},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": (3, 2), "stride": 2},
]


@pytest.mark.parametrize("options", POOLING, ids=str)
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pooling(name: str, options: dict[str, Any]) -> None:
    differentiate(lambda x: getattr(x, name)(**options), draw(2, 2, 6, 6))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std", "logsumexp"])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_reductions(name: str, axis: Any) -> None:
    order = 1 if name in ("max", "min") else 2
    differentiate(lambda x: getattr(x, name)(axis), draw(2, 3, 2), order=order, rtol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layernorm"])
@pytest.mark.parametrize("axis", [0, -1])
def test_normalisations(name: str, axis: int) -> None:
    differentiate(lambda x: getattr(x, name)(axis), draw(3, 4), order=2, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "elu", "erf",
        "exp", "exp2", "expm1", "gelu", "hardswish", "leaky_relu", "log", "log10", "log1p", "log2",
        "logsigmoid", "mish", "quick_gelu", "reciprocal", "relu", "rsqrt", "selu", "sigmoid",
        "silu", "sin", "sinh", "softplus", "softsign", "sqrt", "square", "tan", "tanh",
    ],
)  # fmt: skip
def test_functions_of_one_element(name: str) -> None:
    low, high = {
        "acosh": (1.1, 3.0),
        "asin": (-0.9, 0.9),
        "acos": (-0.9, 0.9),
        "atanh": (-0.9, 0.9),
    }.get(
        name,
        (0.1, 3.0) if name in ("log", "log10", "log1p", "log2", "rsqrt", "sqrt") else (-3.0, 3.0),
    )
    differentiate(lambda x: getattr(x, name)(), draw(12, low=low, high=high), rtol=1e-4)


def test_the_slope_of_relu_at_zero_is_zero() -> None:
    x = Tensor.empty(3, dtype="float64")
    (slope,) = x.relu().sum().gradient(x)
    np.testing.assert_array_equal(
        evaluate(slope.uop, {x.uop: np.array([-1.0, 0.0, 2.0])}), [0, 0, 1]
    )


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, 1.5, 2.3])
def test_power_of_a_number(exponent: float) -> None:
    differentiate(lambda x: x**exponent, draw(6, low=0.2), rtol=1e-4)


def test_power_of_a_tensor() -> None:
    differentiate(lambda x, y: x**y, draw(6, low=0.2), draw(6), rtol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1],
        lambda x: x[:, 1:3, ::-2],
        lambda x: x[:, [2, 0, 0]],
        lambda x: x.pad(((0, 0), (1, 2), (0, 0)), value=3.0),
        lambda x: x.pad(((0, 0), (0, 0), (2, 1)), mode="reflect"),
        lambda x: x.permute(2, 0, 1).reshape(4, -1),
        lambda x: x.flip(0, 2),
        lambda x: x.cat(x * 2, dim=1),
        lambda x: x.stack(x.exp(), dim=0),
        lambda x: x.repeat(2, 1, 3),
        lambda x: x.roll(1, 1),
        lambda x: x.cumsum(1),
        lambda x: x.unfold(2, 2, 1),
        lambda x: x.tril(),
        lambda x: x.clip(-1.0, 1.0),
    ],
)  # fmt: skip
def test_movement_and_choice(function: Callable[[Tensor], Tensor]) -> None:
    differentiate(lambda x: function(x * x), draw(2, 3, 4))


def test_matmul() -> None:
    differentiate(lambda x, y: x @ y, draw(2, 3, 4), draw(4, 5), order=2)


def test_embedding_scatters_rows() -> None:
    index = np.array([[0, 2, 2], [4, 0, 1]], np.int32)
    differentiate(lambda w, i: w[i].square(), draw(5, 3), index, order=2)
    table, rows = Tensor.empty(1000, 4), Tensor.empty(3, dtype=dtypes.int32)
    (gradient,) = table[rows].sum().gradient(table)
    ops = [node.op for node in gradient.uop.toposort()]
    assert Ops.SCATTER_ADD in ops
    assert table.uop not in gradient.uop.toposort()


def test_attention() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=True)

    differentiate(attend, draw(1, 2, 3, 2), draw(1, 2, 3, 2), draw(1, 2, 3, 2), order=2, rtol=1e-4)


def test_cross_entropy() -> None:
    """The closed form: (softmax - one hot) / n."""
    x, y = Tensor.empty(4, 3, dtype="float64"), Tensor.empty(4, dtype=dtypes.int32)
    logits, classes = draw(4, 3), np.array([0, 2, 1, 2])
    (gradient,) = x.cross_entropy(y).gradient(x)
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    wanted = (exponentials / exponentials.sum(1, keepdims=True) - np.eye(3)[classes]) / 4
    found = evaluate(gradient.uop, {x.uop: logits, y.uop: classes})
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_binary_cross_entropy_with_logits_far_out() -> None:
    """sigmoid(x) - t, also where the logarithm of the sigmoid is -1000."""
    x = Tensor.empty(4, dtype="float64")
    at, target = np.array([-1000.0, -1.0, 1.0, 1000.0]), [1.0, 0.0, 1.0, 0.0]
    (gradient,) = x.binary_crossentropy_logits(Tensor(target, dtype="float64"), "sum").gradient(x)
    found = evaluate(gradient.uop, {x.uop: at})
    wanted = [-1.0, 1 / (1 + math.e), -1 / (1 + math.e), 1.0]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_gradient_of_a_gradient() -> None:
    """d/dx of the squared norm of the gradient: x^3 -> (3 x^2)^2 -> 36 x^3."""
    x = Tensor.empty(3, dtype="float64")
    (first,) = (x**3).sum().gradient(x)
    (second,) = first.square().sum().gradient(x)
    at = np.array([1.0, 2.0, -0.5])
    np.testing.assert_allclose(evaluate(second.uop, {x.uop: at}), 36 * at**3)
