"""Projected LSTMs, fractional pooling and the adaptive softmax against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError

Array = npt.NDArray[Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def projected(layer: nn.LSTM, x: Array, suffix: str) -> tuple[Array, Array, Array]:
    """All projected states, and the last pair, in float64."""
    w_ih, w_hh, b_ih, b_hh, w_hr = (
        getattr(layer, f"{name}{suffix}").numpy().astype(np.float64)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    )
    h, c = np.zeros((x.shape[1], w_hr.shape[0])), np.zeros((x.shape[1], layer.hidden_size))
    states = []
    for row in x.astype(np.float64):
        i, f, g, o = np.split(row @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = (sigmoid(o) * np.tanh(c)) @ w_hr.T
        states.append(h)
    return np.stack(states), h, c


@pytest.mark.parametrize("steps", [3, 9])
def test_a_projected_lstm(steps: int) -> None:
    layer = nn.LSTM(3, 5, num_layers=2, proj_size=2)
    x = np.random.default_rng(0).normal(size=(steps, 4, 3)).astype(np.float32)
    y, (h, c) = layer(Tensor(x))
    below, h0, c0 = projected(layer, x, "_l0")
    above, h1, c1 = projected(layer, below, "_l1")
    np.testing.assert_allclose(y.numpy(), above, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(h.numpy(), [h0, h1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(c.numpy(), [c0, c1], rtol=1e-4, atol=1e-6)


def test_shapes_of_a_projection() -> None:
    layer = nn.LSTM(3, 5, bidirectional=True, proj_size=2)
    assert layer.weight_hh_l0.shape == (20, 2) and layer.weight_hr_l0_reverse.shape == (2, 5)
    state = Tensor.zeros(2, 4, 2), Tensor.zeros(2, 4, 5)
    assert layer(Tensor.ones(6, 4, 3), state)[0].shape == (6, 4, 4)
    with pytest.raises(ShapeError, match="the state does not fit"):
        layer(Tensor.ones(6, 4, 3), (state[1], state[1]))
    with pytest.raises(ConfigError, match="proj_size 5"):
        nn.LSTM(3, 5, proj_size=5)


def windows(size: int, window: int, count: int, sample: float) -> list[int]:
    """Where windows begin, as the paper's pseudo-random sequence has it."""
    ratio = (size - window) / (count - 1)
    begins = [int((i + sample) * ratio) - int(sample * ratio) for i in range(count - 1)]
    return [*begins, size - window]


def test_fractional_pooling_takes_the_largest_of_each_window() -> None:
    rng = np.random.default_rng(1)
    x, draws = rng.normal(size=(2, 3, 9, 11)), rng.random((2, 3, 2))
    options = {"output_size": (4, 5), "return_indices": True, "_random_samples": Tensor(draws)}
    values, places = nn.FractionalMaxPool2d((2, 3), **options)(Tensor(x))
    for n, c in itertools.product(range(2), range(3)):
        rows, columns = windows(9, 2, 4, draws[n, c, 1]), windows(11, 3, 5, draws[n, c, 0])
        for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
            expected = x[n, c, row : row + 2, column : column + 3].max()
            assert values[n, c, i, j].item() == expected
            assert x[n, c].reshape(-1)[places[n, c, i, j].item()] == expected


def test_fractional_pooling_in_volumes_has_gradients() -> None:
    x = Tensor(np.random.default_rng(2).normal(size=(2, 5, 6, 7)), requires_grad=True)
    y = nn.functional.fractional_max_pool3d(x, 2, output_ratio=0.5)
    assert y.shape == (2, 2, 3, 3)
    y.square().sum().backward()
    assert x.grad is not None
    hit = x.grad.numpy() != 0
    assert hit.sum() == len(np.unique(y.numpy()))
    np.testing.assert_allclose(np.unique(x.numpy()[hit]), np.unique(y.numpy()))


@pytest.mark.parametrize("options", [{}, {"output_size": 2, "output_ratio": 0.5}])
def test_fractional_pooling_needs_one_size(options: Any) -> None:
    with pytest.raises(ConfigError, match="output_size and output_ratio"):
        nn.FractionalMaxPool2d(2, **options)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        nn.FractionalMaxPool2d(2, output_ratio=1.5)
    with pytest.raises(ShapeError, match="2 windows of 5 do not fit 4"):
        nn.functional.fractional_max_pool2d(Tensor.ones(1, 4, 4), 5, 2)


def test_an_adaptive_softmax_is_a_softmax_of_softmaxes() -> None:
    rng = np.random.default_rng(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 7], div_value=2.0)
    x, wanted = rng.normal(size=(8, 6)).astype(np.float32), np.array([0, 2, 3, 6, 7, 9, 1, 8])

    def shares(z: Array) -> Array:
        exp = np.exp(z - z.max(-1, keepdims=True))
        found: Array = exp / exp.sum(-1, keepdims=True)
        return found

    head = shares(x @ layer.head.weight.numpy().T)
    parts = [head[:, :3]]
    for number, part in enumerate(layer.tail):
        inside = shares(x @ part[0].weight.numpy().T @ part[1].weight.numpy().T)
        parts.append(head[:, 3 + number, None] * inside)
    expected = np.concatenate(parts, 1)
    np.testing.assert_allclose(layer.log_prob(Tensor(x)).exp().numpy(), expected, rtol=1e-4)
    output, loss = layer(Tensor(x), Tensor(wanted))
    logs = np.log(expected[np.arange(8), wanted])
    np.testing.assert_allclose(output.numpy(), logs, rtol=1e-4)
    np.testing.assert_allclose(loss.item(), -logs.mean(), rtol=1e-5)
    assert layer.predict(Tensor(x)).tolist() == expected.argmax(1).tolist()
    assert layer.tail[1][0].weight.shape == (1, 6)


@pytest.mark.parametrize("cutoffs", [[], [3, 2], [0, 2], [5]])
def test_cutoffs_must_increase(cutoffs: list[int]) -> None:
    with pytest.raises(ConfigError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 5, cutoffs)
