"""Gradients of values that were computed, and looked at, before backward is called."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.base.errors import TilegradError
from tilegrad.tensor.storage.graphs import graphs


def test_a_loss_that_was_printed() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    assert loss.item() == 5.0
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_what_is_made_of_a_realized_value() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = (x * x).T.realize()
    z = (y * y).sum().realize()
    of_x, of_y = z.gradient(x, y)
    np.testing.assert_array_equal(of_x.numpy(), [[4.0, 32.0], [108.0, 256.0]])
    np.testing.assert_array_equal(of_y.numpy(), [[2.0, 18.0], [8.0, 32.0]])


def test_a_value_used_before_and_after_it_was_computed() -> None:
    x = Tensor([3.0], requires_grad=True)
    y = x * x
    before = y * 2
    y.realize()
    loss = (before + y * 5).sum()
    (of_y,) = loss.gradient(y)
    assert of_y.tolist() == [7.0]
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [42.0]


def test_second_derivatives_across_memory() -> None:
    x = Tensor([2.0], requires_grad=True)
    y = (x * x * x).realize()
    (first,) = y.sum().gradient(x)
    assert first.sum().gradient(x)[0].tolist() == [12.0]
    assert first.tolist() == [12.0]


def test_backward_reads_the_value_it_needs() -> None:
    """The derivative of exp is its value, which is in memory: it is not computed again."""
    x = Tensor.zeros(64, 64).contiguous().realize().requires_grad_()
    y = (x @ x).exp().realize()
    GlobalCounters.reset()
    y.sum().gradient(y)[0].realize()
    (grad,) = y.sum().gradient(x)
    GlobalCounters.reset()
    grad.realize()
    # Two products of the backward pass, and none of the forward one.
    assert GlobalCounters.global_ops < 3 * 2 * 64**3


def test_detached_and_integer_values_keep_no_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    kept = len(graphs)
    hits = (x > 1).sum().float().realize()
    apart = (x * 2).detach().realize()
    assert len(graphs) == kept
    assert hits.item() == 1.0
    assert apart.tolist() == [2.0, 4.0]


def test_graphs_go_with_their_values() -> None:
    weight = Tensor([0.5], requires_grad=True)
    gc.collect()
    before, most = len(graphs), 0
    for _ in range(6):
        loss = ((weight - 3) ** 2).sum()
        loss.item()
        weight.grad = None
        loss.backward()
        assert weight.grad is not None
        weight.assign(weight.detach() - 0.1 * weight.grad).realize()
        gc.collect()
        most = max(most, len(graphs))
    # That of one loss: a loss whose calls wait has its graph by these.
    assert most <= before + 1
    del loss
    weight.grad = None
    gc.collect()
    assert len(graphs) <= before


def test_parts_that_were_written_and_then_looked_at() -> None:
    """Also over each other, by places, and where the rest is computed of it and looked at."""
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = Tensor.zeros(5)
    y[1:4] = w * 2
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 0.0]
    y[Tensor([0, 1])] = w[:2].exp()
    loss = (y * y).sum()
    loss.item()
    loss.backward()
    assert w.grad is not None and y.requires_grad and not y.is_leaf
    of_exp = 2 * np.exp(2 * np.arange(1.0, 3.0))
    np.testing.assert_allclose(w.grad.numpy(), [of_exp[0], of_exp[1] + 16, 24], rtol=1e-6)


def test_a_view_is_computed_before_what_it_views() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for w in (Tensor(array, requires_grad=True), Tensor.ones(2, 3, requires_grad=True) * array):
        y = w.permute(1, 0).pad((1, 0))
        y.realize()
        (found,) = (y * y).sum().gradient(w)
        np.testing.assert_array_equal(found.numpy(), 2 * array)


def test_what_a_gradient_needs_was_overwritten() -> None:
    w, z = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0]).realize()
    # Where assignments wait, a small tensor takes other memory; what the gradient needs is there.
    with Context(TEMPLATES=1, SEGMENTS=1):
        y = (w * z).realize()
        z.assign(z * 2).realize()
        assert y.sum().gradient(w)[0].tolist() == [3.0, 4.0]
        z[:1] = 7
        y = (w * z).realize()
        z[1:] = 9
        z.realize()
        assert y.sum().gradient(w)[0].tolist() == [7.0, 8.0]
    # One that a view looks at is written in place.
    view = z[:1]
    z[:1] = 7
    y = (w * z).realize()
    z[1:] = 9
    assert view.tolist() == [7.0]
    with pytest.raises(TilegradError, match="needed was overwritten in place after its use"):
        y.sum().gradient(w)[0].realize()
