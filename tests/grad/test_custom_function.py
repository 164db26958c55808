"""`func.Function`: gradients that an author says, and where they reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.errors import ConfigError, ShapeError, TransformError
from tilegrad.func import Function, checkpoint, grad, jvp, vmap

X = np.arange(1.0, 7.0).reshape(2, 3)


class Half(Function):
    """The value itself, and half of the gradient: what no plain graph has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.factor, None


class Product(Function):
    """Two outputs; the gradient of the second argument is tripled."""

    @staticmethod
    def forward(a: Tensor, w: Tensor) -> Any:
        return a @ w, a.sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, of_product: Tensor, of_sum: Tensor) -> Any:
        a, w = ctx.saved_tensors
        return of_product @ w.T + of_sum, 3 * (a.T @ of_product)


def loss(x: Tensor) -> Tensor:
    return Half.apply(x, 0.5).square().sum()


def test_the_gradient_is_that_of_backward() -> None:
    x = Tensor(X, requires_grad=True)
    y = Half.apply(x, 0.5)
    assert y.tolist() == X.tolist() and y.requires_grad
    (y * y).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), X)
    # An equal graph elsewhere has the usual gradient.
    np.testing.assert_array_equal((x * x).sum().gradient(x)[0].numpy(), 2 * X)


def test_several_outputs_of_which_one_is_used() -> None:
    a, w = Tensor(X, requires_grad=True), Tensor(X.T + 1, requires_grad=True)
    product, total = Product.apply(a, w)
    of_a, of_w = (product.sum() + 2 * total).gradient(a, w)
    np.testing.assert_array_equal(of_a.numpy(), np.ones((2, 2)) @ (X + 1) + 2)
    np.testing.assert_array_equal(of_w.numpy(), 3 * X.T @ np.ones((2, 2)))
    (alone,) = total.gradient(w)
    assert alone.tolist() == np.zeros((3, 2)).tolist()


def test_within_other_transforms() -> None:
    x = Tensor(X)
    for found in (
        grad(loss)(x),
        vmap(grad(loss))(x),
        grad(lambda x: vmap(loss)(x).sum())(x),
        grad(lambda x: checkpoint(loss, x))(x),
    ):
        np.testing.assert_array_equal(found.numpy(), X)
    with pytest.raises(TransformError, match="has no derivative forwards"):
        jvp(loss, (x,), (x,))


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 1), (1, 1)])
def test_a_gradient_of_the_broadcast_shape_is_summed_to_the_argument(shape: Any) -> None:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(x, scale)
            return x * scale

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            x, scale = ctx.saved_tensors
            return gradient * scale, gradient * x

    scale = Tensor(np.full(shape, 0.5, np.float32), requires_grad=True)
    Scaled.apply(Tensor(X), scale).sum().backward()
    axes = tuple(axis for axis in range(-2, 0) if -axis > len(shape) or shape[axis] == 1)
    assert scale.grad is not None
    np.testing.assert_allclose(scale.grad.numpy(), X.sum(axes).reshape(shape), rtol=1e-6)


def test_what_is_refused() -> None:
    class Short(Half):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return gradient

    class Flat(Half):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return gradient.sum(0), None

    with pytest.raises(ConfigError, match="backward gave 1 gradients for 2 arguments"):
        Short.apply(Tensor(X), 1.0)
    with pytest.raises(ShapeError, match=r"backward gave \(3,\) for argument 0 of shape \(2, 3\)"):
        Flat.apply(Tensor(X), 1.0)
