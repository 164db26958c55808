"""A network trained end to end: what the tutorial's scripts do, in a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor, TinyJit, nn
from tilegrad.nn.datasets import digits


class Net:
    """Convolution, normalisation, pooling, dropout and a head."""

    def __init__(self) -> None:
        self.layers = [
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            Tensor.relu,
            Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3, padding=1),
            Tensor.relu,
            Tensor.max_pool2d,
            lambda x: x.flatten(1),
            nn.Dropout(0.1),
            nn.Linear(64, 10),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


class Training:
    """A fresh network, seeded, and its step: a random batch picked on the device."""

    def __init__(self) -> None:
        self.data = data = digits()
        self.x = Tensor(data.x_train.reshape(-1, 1, 8, 8).astype(np.float32) / data.peak).realize()
        self.y = Tensor(data.y_train).realize()
        Tensor.manual_seed(0)
        self.net = Net()
        self.optimizer = nn.optim.Adam(nn.state.get_parameters(self.net), lr=5e-3)

    @Tensor.train()
    def step(self) -> Tensor:
        samples = Tensor.randint(64, high=self.x.shape[0])
        self.optimizer.zero_grad()
        loss = self.net(self.x[samples]).sparse_categorical_crossentropy(self.y[samples])
        loss.backward()
        self.optimizer.step()
        return loss.realize()

    @Tensor.train(False)
    def accuracy(self) -> float:
        images = self.data.x_test.reshape(-1, 1, 8, 8).astype(np.float32) / self.data.peak
        found = self.net(Tensor(images)).argmax(axis=1).numpy()
        return float((found == self.data.y_test).mean())


@pytest.mark.row("P.15")
@pytest.mark.row("X.3")
def test_a_convolutional_network_learns_digits() -> None:
    """The loss falls, and the test images are told apart."""
    training = Training()
    losses = [training.step().item() for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:5])
    assert training.accuracy() > 0.9


@pytest.mark.row("M4.14")
def test_a_captured_step_gives_the_same_losses() -> None:
    """Optimizer, random batch, dropout and running statistics, replayed, from the same seed."""
    plain = Training()
    expected = [plain.step().item() for _ in range(12)]
    captured = Training()
    step = TinyJit(captured.step)
    assert [step().item() for _ in range(12)] == expected
    ours, theirs = (nn.state.get_state_dict(each.net) for each in (captured, plain))
    for name, tensor in ours.items():
        np.testing.assert_array_equal(tensor.numpy(), theirs[name].numpy(), err_msg=name)


@pytest.mark.parametrize("mode", [Tensor.train(False), Context(TRAINING=0)])
def test_a_mode_before_a_function_or_around_a_block(mode: Any) -> None:
    """Either spelling, either use: dropout keeps all."""
    ones = Tensor.ones(100)

    @mode
    def dropped() -> Tensor:
        """A half of them."""
        return ones.dropout(0.5)

    assert dropped().tolist() == [1.0] * 100 and dropped.__doc__ == "A half of them."
    assert Tensor.training and 0.0 in ones.dropout(0.5).tolist()
    with mode:
        assert not Tensor.training
    assert Tensor.training
