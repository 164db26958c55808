"""A loop under the transformations of functions: tangents, batches, and both with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, func, scan

Array = npt.NDArray[Any]


def recurrence(c: Tensor, xs: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    last, ys = scan(lambda c, x: ((w @ c).tanh() + x, (c * x, x + 1)), c, xs)
    return last, ys[0]


def by_hand(c: Array, xs: Array, w: Array) -> tuple[Array, Array]:
    ys = []
    for x in xs:
        ys.append(c * x)
        c = np.tanh(w @ c) + x
    return c, np.stack(ys)


def test_tangents() -> None:
    """Along a direction in every input, by central differences in float64."""
    rng = np.random.default_rng(0)
    at = [rng.normal(size=shape) for shape in ((2,), (4, 2), (2, 2))]
    along = [rng.normal(size=each.shape) for each in at]
    _, found = func.jvp(
        recurrence,
        tuple(Tensor(each.astype(np.float32)) for each in at),
        tuple(Tensor(each.astype(np.float32)) for each in along),
    )
    ahead = by_hand(*[x + 1e-6 * v for x, v in zip(at, along)])
    behind = by_hand(*[x - 1e-6 * v for x, v in zip(at, along)])
    for ours, a, b in zip(found, ahead, behind, strict=True):
        np.testing.assert_allclose(ours.numpy(), (a - b) / 2e-6, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 1, None), (None, None, 0)])
def test_batches(axes: tuple[int | None, ...]) -> None:
    """Whatever has the axis of examples, in front or elsewhere."""
    rng = np.random.default_rng(1)
    given = [rng.normal(size=shape).astype(np.float32) for shape in ((2,), (4, 2), (2, 2))]
    many = [
        x if axis is None else np.stack([x, x * 2, x - 1], axis) for x, axis in zip(given, axes)
    ]
    found = func.vmap(recurrence, in_axes=axes)(*[Tensor(x) for x in many])
    for example in range(3):
        one: list[Array] = [
            x if axis is None else np.take(x, example, axis) for x, axis in zip(many, axes)
        ]
        for ours, wanted in zip(found, by_hand(*one), strict=True):
            np.testing.assert_allclose(ours.numpy()[example], wanted, rtol=1e-4, atol=1e-5)


def test_a_row_that_is_the_same_for_all_examples() -> None:
    def run(c: Tensor) -> tuple[Tensor, Tensor]:
        last, rows = scan(lambda c, x: (c * x, x * 10), c, Tensor([2.0, 3.0]))
        return last, rows

    last, rows = func.vmap(run)(Tensor([1.0, 2.0]))
    assert last.tolist() == [6.0, 12.0]
    assert rows.tolist() == [[20.0, 30.0], [20.0, 30.0]]


def test_gradients_of_each_example() -> None:
    """vmap(grad): the rows' gradients by the closed form c x1 x2 / x."""

    def loss(c: Tensor, xs: Tensor) -> Tensor:
        last, _ = scan(lambda c, x: (c * x, None), c, xs)
        return last

    c, xs = np.array([2.0, 3.0], np.float32), np.array([[2.0, 5.0], [7.0, 0.5]], np.float32)
    found = func.vmap(func.grad(loss, argnums=1))(Tensor(c), Tensor(xs))
    np.testing.assert_allclose(found.numpy(), c[:, None] * xs.prod(1)[:, None] / xs, rtol=1e-5)


def test_hessian() -> None:
    """Forward over reverse: c**4 by two squarings."""
    square = func.hessian(lambda c: scan(lambda c, _: (c * c, None), c, length=2)[0].sum())
    np.testing.assert_allclose(
        square(Tensor([2.0, 3.0])).numpy(), np.diag([12.0 * 4, 12.0 * 9]), rtol=1e-5
    )
