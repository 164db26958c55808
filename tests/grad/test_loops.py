"""A loop under the transformations of functions: tangents, batches, and both with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import GlobalCounters, Tensor, func, scan
from tilegrad.ir import Ops, UOp

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


def loops_of(*tensors: Tensor) -> list[UOp]:
    nodes = UOp.sink(*[tensor.uop for tensor in tensors]).toposort()
    return [node for node in nodes if node.op is Ops.LOOP]


def test_a_matrix_has_its_gradient_after_the_loop() -> None:
    """No step adds to a sum as large as the matrix; of many examples, where what each step leaves
    is larger than that, one does.
    """
    w = Tensor.randn(8, 8, requires_grad=True).realize()
    for examples, is_later in ((3, True), (64, False)):
        c = Tensor.ones(examples, 8).contiguous().realize()
        last, _ = scan(lambda c, _: ((c @ w).tanh(), None), c, length=5)
        (found,) = last.sum().gradient(w)
        _, backward = loops_of(found)
        values = backward.arg.body.src
        carried = [value.shape for value in values[: backward.arg.carries]]
        assert ((8, 8) not in carried) is is_later
        h: list[Array] = [np.ones((examples, 8))]
        flow, wanted = np.ones((examples, 8)), np.zeros((8, 8))
        for _ in range(5):
            h.append(np.tanh(h[-1] @ w.numpy()))
        for step in reversed(range(5)):
            flow = flow * (1 - h[step + 1] ** 2)
            wanted = wanted + h[step].T @ flow
            flow = flow @ w.numpy().T
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)


def test_a_dear_sum_is_computed_once() -> None:
    """The way back reads the products of the way there: it has those of its own gradient alone."""
    w = Tensor.randn(32, 32, requires_grad=True).realize()
    c, xs = Tensor.ones(2, 32).contiguous(), Tensor.ones(6, 2, 32).contiguous()
    last, _ = scan(lambda c, x: ((c @ w).tanh() + x, None), c, xs)
    (found,) = last.sum().gradient(c)
    sums = [
        sum(node.op is Ops.REDUCE_AXIS for node in loop.arg.body.toposort())
        for loop in loops_of(found)
    ]
    assert sums == [1, 1]


def test_a_step_reads_matrices_along_their_rows() -> None:
    """h @ w.T reads w turned, and its gradient by h, which multiplies with w, reads w itself."""
    w = Tensor.randn(8, 32).realize()
    c = Tensor.ones(2, 32).contiguous().realize()
    last, _ = scan(lambda c, _: ((c @ w.T).tanh().cat(c[:, :24], dim=1), None), c, length=5)
    forward, backward = loops_of(*last.sum().gradient(c))
    assert [source.op for source in forward.src[1:]] == [Ops.CONTIGUOUS]
    assert forward.src[1].shape == (32, 8)
    assert w.uop in backward.src
    assert forward.src[1] not in backward.src


def test_what_is_stacked_is_written_once() -> None:
    """A sum that a later step needs is written to its row, and read there: no copy is launched."""
    w = Tensor.randn(32, 32, requires_grad=True).realize()
    c = Tensor.ones(2, 32).contiguous().realize()
    last, _ = scan(lambda c, _: ((c @ w).tanh(), None), c, length=8)
    found = last.sum().gradient(w)[0]
    GlobalCounters.reset()
    found.realize()
    # Forward the product and tanh; back the flow and its product; each 8 times.
    assert GlobalCounters.kernel_count <= 4 * 8 + 4
