"""`inplace=True`: the input takes the result, as in PyTorch, whoever else looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tilegrad import Context
from tilegrad.torch import nn

VALUES = np.float32([[-2.0, -0.5, 0.25], [1.0, 3.0, -4.0]])
LAYERS: dict[str, tuple[Callable[[], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (lambda: nn.ReLU(inplace=True), lambda x: np.maximum(x, 0)),
    "relu6": (lambda: nn.ReLU6(True), lambda x: np.clip(x, 0, 6)),
    "leaky": (lambda: nn.LeakyReLU(0.1, inplace=True), lambda x: np.where(x > 0, x, x * 0.1)),
    "hardtanh": (lambda: nn.Hardtanh(inplace=True), lambda x: np.clip(x, -1, 1)),
    "silu": (lambda: nn.SiLU(inplace=True), lambda x: x / (1 + np.exp(-x))),
    "threshold": (lambda: nn.Threshold(0.5, 7, True), lambda x: np.where(x > 0.5, x, 7)),
    "functional": (lambda: lambda x: F.relu(x, True), lambda x: np.maximum(x, 0)),
    "functional elu": (
        lambda: lambda x: F.elu(x, inplace=True),
        lambda x: np.where(x > 0, x, np.expm1(x)),
    ),
}


@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("kind", ["memory", "value", "view", "seen"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_input_takes_the_result(name: str, kind: str, segments: int) -> None:
    """Of memory, of what was never computed, of a slice, and of what has a view."""
    make, reference = LAYERS[name]
    with Context(SEGMENTS=segments), torch.no_grad():
        for _ in range(3):
            whole = torch.from_numpy(VALUES.copy())
            x = {"memory": whole, "value": whole * 1, "view": whole[0], "seen": whole + 0}[kind]
            before = x.detach().clone().numpy() if kind == "memory" else VALUES[: len(x)]
            before = VALUES[0] if kind == "view" else before
            view = x.reshape(-1) if kind == "seen" else None
            again = x * 1
            y = make()(x)
            assert y is x
            expected = reference(before.astype(np.float64))
            np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
            # What was computed from it before keeps the old value.
            np.testing.assert_array_equal(again.numpy(), before)
            if view is not None:
                np.testing.assert_allclose(view.numpy(), expected.reshape(-1), rtol=1e-6)
            if kind == "view":
                np.testing.assert_allclose(whole[0].numpy(), expected, rtol=1e-6)
                np.testing.assert_array_equal(whole[1].numpy(), VALUES[1])


@pytest.mark.parametrize("segments", [0, 1])
def test_gradients_go_through_what_was_written(segments: int) -> None:
    """A block whose input is read again after its rectifier wrote to it."""
    with Context(SEGMENTS=segments):
        for _ in range(4):
            w = torch.from_numpy(VALUES.copy()).requires_grad_()
            x = w * 3
            out = nn.ReLU(inplace=True)(x) * 2
            out += x
            assert x.requires_grad and not x.is_leaf
            out.sum().backward()
            assert np.array_equal(w.grad.numpy(), np.where(VALUES > 0, 9.0, 0.0))


def test_sums_in_place_that_nobody_reads_between() -> None:
    """A residual network as it is written: `out += identity`, then the rectifier in place."""
    w = torch.from_numpy(VALUES.copy()).requires_grad_()
    relu, out = nn.ReLU(inplace=True), w * 1
    reference, slope = VALUES.astype(np.float64), np.ones_like(VALUES)
    for _ in range(5):
        identity = out
        out = out * 0.5
        out += identity
        out = relu(out)
        slope = np.where(1.5 * reference > 0, 1.5 * slope, 0)
        reference = np.maximum(1.5 * reference, 0)
    out.sum().backward()
    np.testing.assert_allclose(out.detach().numpy(), reference, rtol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), slope, rtol=1e-6)


def test_a_leaf_that_requires_a_gradient_is_refused() -> None:
    w = torch.tensor([-1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="in place"):
        nn.ReLU(inplace=True)(w)
    assert w.tolist() == [-1, 2]


def test_a_layer_can_be_told_later() -> None:
    layer, x = nn.ReLU(inplace=True), torch.tensor([-1.0, 2.0])
    assert layer.inplace and not nn.ReLU().inplace
    layer.inplace = False
    assert layer(x).tolist() == [0, 2] and x.tolist() == [-1, 2]


def test_dropout_writes_to_its_input_in_training_alone() -> None:
    layer, x = nn.Dropout(0.5, inplace=True), torch.ones(64)
    layer(x)
    assert set(x.tolist()) == {0.0, 2.0}
    layer.eval()
    kept = x.tolist()
    assert layer(x) is x and x.tolist() == kept


def test_what_no_leaf_is_keeps_its_gradient() -> None:
    h = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="leaf"):
        h.requires_grad_(False)
    assert not h.detach_().requires_grad and h.is_leaf


def test_a_value_that_fills_has_its_gradient() -> None:
    w, x = torch.ones(3, requires_grad=True), torch.zeros(4)
    x.fill_(w.sum())
    assert x.requires_grad
    x.sum().backward()
    assert w.grad.tolist() == [4, 4, 4]


def test_columns_and_diagonals_are_not_contiguous() -> None:
    x = torch.zeros(4, 3)
    views = [x[:, 1], x[..., 0], x.diagonal(), x.t(), x[:, :2], x.hsplit(3)[0]]
    assert not any(view.is_contiguous() for view in views)
    assert all(view.is_contiguous() for view in (x, x[1], x[1:3], x.view(-1), x[:0], x[:, :, None]))
