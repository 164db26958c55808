"""Captured steps over several devices: they do what those of one device do, with copies between
peers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.apart import apart
from tilegrad import Context, Tensor, jit, nn
from tilegrad.base.trace import counters
from tilegrad.engine.run.run import recording

TWO = ("CPU", "CPU:1")


class Network:
    """Two layers, with what training has beside them: batch statistics and dropout."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, is_rich: bool):
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
        self.norm = nn.BatchNorm(hidden) if is_rich else None
        self.is_rich = is_rich

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.norm is not None:
            hidden = self.norm(hidden).dropout(0.2)
        return self.second(hidden.relu())


class Training:
    """A step of a network on `devices`; with `split`, the weights are spread and not the batch."""

    def __init__(
        self, devices: tuple[str, ...] | None, *, split: bool = False, is_rich: bool = False
    ):
        Tensor.manual_seed(3)
        self.devices, self.split = devices, split
        self.network = Network(64, 32, 10, is_rich=is_rich)
        if devices is not None:
            first, second = self.network.first, self.network.second
            axes = {id(first.weight): 0, id(first.bias): 0, id(second.weight): 1} if split else {}
            for tensor in nn.state.get_state_dict(self.network).values():
                tensor.shard_(devices, axes.get(id(tensor)))
        parameters = nn.state.get_parameters(self.network)
        self.optimizer = nn.optim.Adam(parameters, lr=0.01)
        self.step = jit(self._step)

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.network(x).cross_entropy(y)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, count: int, size: int = 32) -> list[float]:
        images, labels = digits()
        found = []
        Tensor.manual_seed(4)
        with Tensor.train():
            for number in range(count):
                picked = np.random.RandomState(number).randint(0, len(images), size)
                x, y = Tensor(images[picked]), Tensor(labels[picked])
                if self.devices is not None:
                    axis = None if self.split else 0
                    x, y = x.shard(self.devices, axis), y.shard(self.devices, axis)
                found.append(float(self.step(x, y).item()))
        return found


def digits() -> tuple[Any, Any]:
    """Images of ten classes: a picture of each class, with noise."""
    random = np.random.RandomState(1)
    labels = random.randint(0, 10, 512)
    images = random.rand(10, 64)[labels] + random.randn(512, 64) * 0.3
    return images.astype(np.float32), labels.astype(np.int32)


@pytest.mark.row("M6.9")
@pytest.mark.parametrize("devices", [TWO, (*TWO, "CPU:2")])
def test_data_parallel_training_is_that_of_one_device(devices: tuple[str, ...]) -> None:
    one, several = Training(None), Training(devices)
    wanted, found = one.losses(12), several.losses(12)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert wanted[-1] < wanted[0] * 0.8
    for tensor in nn.state.get_parameters(several.network):
        assert tensor.grad is not None
        first, *others = [each.numpy() for each in tensor.grad.shards()]
        for other in others:
            np.testing.assert_array_equal(other, first)
    for ours, theirs in zip(*[nn.state.get_parameters(each.network) for each in (one, several)]):
        np.testing.assert_allclose(theirs.numpy(), ours.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.row("M6.9")
def test_statistics_and_dropout_are_those_of_the_whole_batch() -> None:
    one, several = Training(None, is_rich=True), Training(TWO, is_rich=True)
    np.testing.assert_allclose(several.losses(8), one.losses(8), rtol=1e-4, atol=1e-4)


@pytest.mark.row("P.4")
def test_layers_whose_weights_are_spread_are_trained_as_those_of_one_device() -> None:
    one, several = Training(None), Training(TWO, split=True)
    np.testing.assert_allclose(several.losses(8), one.losses(8), rtol=1e-4, atol=1e-4)
    weight = several.network.first.weight
    assert weight.sharding is not None and weight.sharding.bounds == ((0, 16), (16, 32))


@pytest.mark.row("P.4")
@pytest.mark.parametrize("split", [False, True])
def test_each_of_two_devices_does_half_of_the_work(split: bool) -> None:
    def operations(training: Training) -> dict[str, int]:
        found: dict[str, int] = {}
        training.losses(1, size=64)
        x, y = (Tensor(each[:64]) for each in digits())
        if training.devices is not None:
            axis = None if split else 0
            x, y = x.shard(training.devices, axis), y.shard(training.devices, axis)
        x.realize(y)
        with Tensor.train(), recording() as record:
            training._step(x, y).realize()
        for each in record:
            if each.kernel is not None:
                found[each.device] = found.get(each.device, 0) + each.kernel.ops
        return found

    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        (whole,) = operations(Training(None)).values()
        halves = operations(Training(TWO, split=split))
    assert sorted(halves) == ["CPU", "CPU:1"]
    for each in halves.values():
        # Beside the products, each device updates what both have.
        assert 0.45 * whole < each < 0.6 * whole


@pytest.mark.row("M6.10")
def test_copies_between_peers_are_transfers(capsys: pytest.CaptureFixture[str]) -> None:
    @jit
    def total(x: Tensor) -> Tensor:
        return (x * 2).sum(0)

    with Context(DEBUG=2):
        for number in range(4):
            x = Tensor(np.full((4, 3), number, np.float32)).shard(TWO, 0)
            assert total(x).tolist() == [8.0 * number] * 3
    rows = capsys.readouterr().out.splitlines()
    assert any("xfer       12,   CPU:1 <- CPU" in row for row in rows)
    assert any("xfer       12,     CPU <- CPU:1" in row for row in rows)
    assert any("copy       48,     CPU <- HOST" in row for row in rows)
    assert not any("xfer" in row and "HOST" in row for row in rows)


def test_a_replay_takes_the_memory_of_each_device() -> None:
    """Arguments, state that is written in place, and results, on devices that only reach their
    own.
    """
    with apart():
        devices = ("APART", "APART:1")
        state = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).shard(devices, 0).realize()

        @jit
        def step(x: Tensor) -> Tensor:
            state.assign(state + x)
            return state.sum(0) * x.sum()

        wanted = state.numpy().copy()
        for number in range(5):
            given = np.full((3, 2), number, np.float32)
            result = step(Tensor(given).shard(devices, 0).realize())
            wanted = wanted + given
            np.testing.assert_allclose(result.numpy(), wanted.sum(0) * given.sum(), rtol=1e-5)
            np.testing.assert_allclose(state.numpy(), wanted)
        given = Tensor(np.ones((3, 2), np.float32)).shard(devices, 0).realize()
        before = counters.visits
        step(given)
        # A replay looks at no graph.
        assert counters.visits == before


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_another_placement_is_captured_anew(axis: int | None) -> None:
    @jit
    def double(x: Tensor) -> Tensor:
        return x * 2

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for place in (0, 0, 0, axis, axis, axis, 0):
        result = double(Tensor(values).shard(TWO, place).realize())
        np.testing.assert_array_equal(result.numpy(), values * 2)
        assert result.sharding is not None and result.sharding.axis == place
