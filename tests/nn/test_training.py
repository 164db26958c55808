"""A network trained end to end: what the tutorial's scripts do, in a step."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Tensor, nn
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


@pytest.mark.row("X.3")
def test_a_convolutional_network_learns_digits() -> None:
    """Random batches picked on the device; the loss falls and the test images are told apart."""
    data = digits()
    x = Tensor(data.x_train.reshape(-1, 1, 8, 8).astype(np.float32) / data.peak)
    y = Tensor(data.y_train)
    Tensor.manual_seed(0)
    net = Net()
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=5e-3)

    @Tensor.train()
    def step() -> Tensor:
        samples = Tensor.randint(64, high=x.shape[0])
        optimizer.zero_grad()
        loss = net(x[samples]).sparse_categorical_crossentropy(y[samples]).backward()
        optimizer.step()
        return loss.realize()

    losses = [step().item() for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:5])
    images = Tensor(data.x_test.reshape(-1, 1, 8, 8).astype(np.float32) / data.peak)
    found = net(images).argmax(axis=1).numpy()
    assert (found == data.y_test).mean() > 0.9
