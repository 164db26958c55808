"""Modules, containers, activations, pooling, padding: values, modes, names, print."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest

import tilegrad.nn
from tilegrad import Tensor, TinyJit, dtypes, nn
from tilegrad.base.errors import ConfigError, ShapeError

MODULES = [
    item.name
    for item in pkgutil.walk_packages(tilegrad.nn.__path__, "tilegrad.nn.")
    if item.name not in ("tilegrad.nn.datasets", "tilegrad.nn.checkpoint")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    globs = {"Tensor": Tensor, "dtypes": dtypes, "nn": nn}
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner()
    for kind in vars(module).values():
        if (inspect.isclass(kind) or inspect.isfunction(kind)) and kind.__module__ == name:
            for example in finder.find(kind, kind.__name__, module=module, globs=dict(globs)):
                runner.run(example)
    assert runner.failures == 0


class Net(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm(3), nn.ReLU(), nn.Dropout(0.5))
        self.heads = nn.ModuleList([nn.Linear(3, 1, bias=False)])
        self.register_buffer("scale", Tensor([2.0]))
        self.register_buffer("cache", Tensor([0.0]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for head in self.heads:
            return head(self.body(x)) * self.scale
        return x


def test_names_parameters_and_buffers() -> None:
    net = Net()
    assert list(net.state_dict()) == [
        "scale", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias",
        "body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked", "heads.0.weight",
    ]  # fmt: skip
    assert [name for name, _ in net.named_parameters()] == [
        "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "heads.0.weight",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()][:2] == ["scale", "cache"]
    net.requires_grad_(False).requires_grad_()
    assert all(p.requires_grad for p in net.parameters())
    assert [name for name, _ in net.named_children()] == ["body", "heads"]
    assert len(list(net.modules())) == 8


def test_modes_are_those_that_were_set_and_else_the_threads() -> None:
    net = Net()
    assert net.training and net.body[3].training
    with Tensor.train(False):
        assert not net.training and not net.body[3].training
    with Tensor.train():
        net.eval()
        assert not net.training
        x = Tensor.ones(4, 2)
        np.testing.assert_array_equal(net(x).numpy(), net(x).numpy())
        assert net.body[1].num_batches_tracked.item() == 0
    net.train()
    assert net.body[3].training
    net(Tensor([[1.0, 2.0], [3.0, 4.0]])).realize()
    assert net.body[1].num_batches_tracked.item() == 1


def test_a_program_that_says_nothing_of_modes_trains() -> None:
    net = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.0))
    assert net.training and net[1].training
    optimizer = nn.optim.SGD(net.parameters(), lr=0.5)
    before = net[0].bias.numpy().copy()
    net(Tensor.ones(1, 2)).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(net[0].bias.numpy(), before - 0.5)


def test_the_tree_in_print() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ModuleDict({"act": nn.GELU("tanh")}))
    assert repr(net) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): ModuleDict(\n    (act): GELU(approximate='tanh')\n  )\n)"
    )
    lines = nn.summary(Net()).splitlines()
    assert lines[0].split() == ["Net", "18"]
    assert lines[2].split()[-1] == "9"
    assert lines[-1] == "18 parameters, 18 of them trained; 9 elements of state"

    class Plain:
        def __init__(self) -> None:
            self.weight = Tensor.ones(2, 3)
            self.layers = [nn.Linear(3, 1)]

    assert nn.summary(Plain()).splitlines()[-1].startswith("10 parameters")
    assert "weight: Tensor (2, 3)" in nn.summary(Plain())


def test_sequential_is_a_list_with_names() -> None:
    first, second = nn.ReLU(), nn.Tanh()
    net = nn.Sequential({"a": first, "b": second})
    assert net.a is first and net[-1] is second and len(net[:1]) == 1
    numbered = nn.Sequential(first).append(second).insert(0, nn.Sigmoid())
    assert [type(layer).__name__ for layer in numbered] == ["Sigmoid", "ReLU", "Tanh"]
    assert numbered.pop(0) is not first and len(numbered) == 2
    numbered[0] = second
    assert list(numbered) == [second, second]
    with pytest.raises(ConfigError, match="Sequential: an int cannot be called, at '0'"):
        nn.Sequential(3)
    with pytest.raises(ConfigError, match="a layer cannot be called 'forward'"):
        nn.Sequential({"forward": first})


def test_a_new_forward_is_what_a_call_runs() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.Linear.__call__(self, x) * 2

    layer = Doubled(2, 2)
    x = Tensor.ones(1, 2)
    expected = (layer.weight.numpy().sum(1) + layer.bias.numpy()) * 2
    np.testing.assert_allclose(layer(x).numpy()[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(nn.ReLU().forward(Tensor([-1.0])).numpy(), [0.0])
    with pytest.raises(ConfigError, match="Empty: there is no forward to call"):
        type("Empty", (nn.Module,), {})()(x)


X = np.array([-4.0, -1.0, -0.25, 0.0, 0.25, 2.0, 7.0])
ACTIVATIONS: list[tuple[nn.Module, Any]] = [
    (nn.ReLU(), np.maximum(X, 0)),
    (nn.ReLU6(), np.clip(X, 0, 6)),
    (nn.LeakyReLU(0.1), np.where(X < 0, 0.1 * X, X)),
    (nn.PReLU(), np.where(X < 0, 0.25 * X, X)),
    (nn.RReLU(0.1, 0.3).eval(), np.where(X < 0, 0.2 * X, X)),
    (nn.ELU(2.0), np.where(X < 0, 2 * np.expm1(X), X)),
    (nn.CELU(2.0), np.where(X < 0, 2 * np.expm1(X / 2), X)),
    (nn.SiLU(), X / (1 + np.exp(-X))),
    (nn.Mish(), X * np.tanh(np.log1p(np.exp(X)))),
    (nn.Sigmoid(), 1 / (1 + np.exp(-X))),
    (nn.LogSigmoid(), -np.log1p(np.exp(-X))),
    (nn.Hardsigmoid(), np.clip(X / 6 + 0.5, 0, 1)),
    (nn.Tanh(), np.tanh(X)),
    (nn.Hardtanh(-2.0, 0.5), np.clip(X, -2, 0.5)),
    (nn.Hardswish(), X * np.clip(X / 6 + 0.5, 0, 1)),
    (nn.Hardshrink(0.3), np.where(np.abs(X) > 0.3, X, 0)),
    (nn.Softshrink(0.2), np.sign(X) * np.maximum(np.abs(X) - 0.2, 0)),
    (nn.Tanhshrink(), X - np.tanh(X)),
    (nn.Threshold(0.1, 9.0), np.where(X > 0.1, X, 9.0)),
    (nn.Softplus(2.0), np.log1p(np.exp(2 * X)) / 2),
    (nn.Softsign(), X / (1 + np.abs(X))),
    (nn.Softmax(0), np.exp(X) / np.exp(X).sum()),
    (nn.Softmin(0), np.exp(-X) / np.exp(-X).sum()),
    (nn.LogSoftmax(0), X - np.log(np.exp(X).sum())),
    (nn.QuickGELU(), X / (1 + np.exp(-1.702 * X))),
]


def test_activations() -> None:
    """All in one schedule."""
    x = Tensor(X)
    found = [module(x) for module, _ in ACTIVATIONS]
    Tensor.realize(*found)
    for (module, expected), tensor in zip(ACTIVATIONS, found):
        np.testing.assert_allclose(
            tensor.numpy(), expected, rtol=1e-6, atol=1e-7, err_msg=repr(module)
        )


def test_adaptive_pools_take_uneven_windows() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    mean, most = nn.AdaptiveAvgPool2d((3, 2))(Tensor(x)), nn.AdaptiveMaxPool2d((3, None))(Tensor(x))
    Tensor.realize(mean, most)
    assert most.shape == (2, 3, 7)
    for i in range(3):
        rows = slice(i * 5 // 3, -(-(i + 1) * 5 // 3))
        np.testing.assert_array_equal(most.numpy()[:, i], x[:, rows].max(1))
        for j in range(2):
            columns = slice(j * 7 // 2, -(-(j + 1) * 7 // 2))
            np.testing.assert_allclose(
                mean.numpy()[:, i, j], x[:, rows, columns].mean((1, 2)), rtol=1e-5, atol=1e-6
            )


def test_shuffled_pixels_come_back() -> None:
    x = Tensor.arange(2 * 8 * 6).reshape(2, 8, 3, 2)
    shuffled = nn.PixelShuffle(2)(x)
    assert shuffled.numpy()[0, 0, :2, :2].tolist() == [[0, 6], [12, 18]]
    np.testing.assert_array_equal(nn.PixelUnshuffle(2)(shuffled).numpy(), x.numpy())
    with pytest.raises(ShapeError, match="PixelShuffle: 8 channels are no multiple of 9"):
        nn.PixelShuffle(3)(x)


def test_channels_are_dropped_whole() -> None:
    layer = nn.Dropout2d(0.5).train()
    Tensor.manual_seed(1)
    found = layer(Tensor.ones(8, 16, 3)).numpy()
    assert ((found == found[..., :1]).all(-1)).all()
    assert set(np.unique(found)) == {0.0, 2.0}


def test_running_statistics_go_on_in_replays() -> None:
    norm = nn.BatchNorm(2)
    optimizer = nn.optim.SGD(nn.state.get_parameters(norm), lr=0.0)
    batches = np.random.default_rng(0).normal(size=(5, 4, 2)).astype(np.float32)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = norm(x).square().sum().backward()
        optimizer.step()
        return loss.realize()

    mean = np.zeros(2)
    for batch in batches:
        step(Tensor(batch).realize())
        mean = 0.9 * mean + 0.1 * batch.mean(0)
    assert norm.num_batches_tracked is not None and norm.running_mean is not None
    assert norm.num_batches_tracked.item() == 5
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-5, atol=1e-6)
