"""Mapped functions in captures, captures in mapped functions, and what is computed of them."""

from __future__ import annotations

import numpy as np

from tilegrad import Tensor, Variable, jit
from tilegrad.func import grad, vmap
from tilegrad.ir.op import Ops


def test_in_a_capture() -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return vmap(grad(lambda row: (row * row).sum() * row[0]))(x).realize()

    for number in range(4):
        x = np.array([[1.0 + number, 2.0], [3.0, number]], np.float32)
        expected = 2 * x * x[:, :1]
        expected[:, 0] += (x * x).sum(1)
        np.testing.assert_allclose(step(Tensor(x).realize()).numpy(), expected, rtol=1e-6)


def test_random_numbers_in_a_capture() -> None:
    """A replay draws anew, as many numbers as the mapped function does."""

    @jit
    def step(x: Tensor) -> Tensor:
        return vmap(lambda row: row + Tensor.rand(2))(x).realize()

    x = Tensor.zeros(3, 2).contiguous().realize()
    found = np.stack([step(x).numpy().copy() for _ in range(5)])
    assert len(np.unique(found)) == 30


def test_captures_inside() -> None:
    """A captured function that is mapped or differentiated is called, not replayed."""
    double = jit(lambda x: (x * 2).realize())
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for _ in range(3):
        double(Tensor([1.0, 1.0]).realize())
    assert vmap(double)(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert grad(lambda x: double(x).sum())(x[0]).tolist() == [2.0, 2.0]


def test_symbolic_sizes() -> None:
    """Of what is mapped, and of each example."""
    x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)).realize()
    n = Variable("n", 1, 3).bind(2)
    found = vmap(lambda row: row.sum() * row)(x[:n])
    assert found.shape[0] is x[:n].shape[0]
    assert found.tolist() == [[0, 3, 6], [36, 48, 60]]
    assert vmap(lambda row: row[:n].sum())(x).tolist() == [1, 7, 13, 19]


def test_nothing_is_computed_per_example() -> None:
    """What all examples share has no axis, and the mapped graph no more ops than the function's."""
    x, w = Tensor.empty(100, 4), Tensor.empty(4, 4)

    def function(row: Tensor) -> Tensor:
        return (row @ (w @ w).exp()).relu()

    mapped = vmap(function)(x).uop.toposort()
    plain = function(x[0]).uop.toposort()
    count = [
        sum(node.op.is_alu or node.op is Ops.REDUCE_AXIS for node in nodes)
        for nodes in (mapped, plain)
    ]
    assert count[0] == count[1]
    assert [node.shape for node in mapped if node.op is Ops.EXP] == [(4, 4)]


def test_provenance() -> None:
    """What is made of a node names the line that made it."""
    found = vmap(lambda row: row.exp().sum())(Tensor.empty(3, 2)).uop
    (made,) = [node for node in found.toposort() if node.op is Ops.EXP]
    assert made.shape == (3, 2)
    assert made.origin
