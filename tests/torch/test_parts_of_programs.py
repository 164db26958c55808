"""Parts that programs use: modules that hold modules, tables that move by rows, fused layers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn


class Row(nn.ModuleList):
    def __init__(self) -> None:
        super().__init__([nn.Linear(1, 1)])
        self.last = nn.ReLU()


class Named(nn.ModuleDict):
    def __init__(self) -> None:
        super().__init__({"first": nn.Linear(1, 1)})
        self.last = nn.ReLU()


def test_modules_among_the_attributes_are_among_those_of_a_list() -> None:
    row = Row()
    assert len(row) == 2 and [type(each).__name__ for each in row] == ["Linear", "ReLU"]
    assert list(row.state_dict()) == ["0.weight", "0.bias"]
    assert repr(row).count("(last): ReLU()") == 1


def test_modules_among_the_attributes_are_among_those_of_a_dict() -> None:
    named = Named()
    assert list(named) == ["first", "last"] and named["last"] is named.last
    named.last = nn.Tanh()
    assert repr(named["last"]) == "Tanh()"
    del named.last
    assert len(named) == 1


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Softmin"])
def test_a_softmax_without_an_axis(name: str) -> None:
    """Of 1 and 3 axes the first, of 2 and 4 the second."""
    layer = getattr(nn, name)()
    assert repr(layer) == f"{name}(dim=None)"
    for shape, axis in (((3,), 0), ((2, 3), 1), ((2, 3, 2), 0), ((2, 3, 1, 2), 1)):
        x = torch.tensor(np.random.default_rng(0).normal(size=shape))
        np.testing.assert_allclose(layer(x).numpy(), getattr(nn, name)(axis)(x).numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.Linear(2, 2)([1.0, 2.0]),
        lambda: nn.LSTM(2, 2)([1.0, 2.0]),
        lambda: nn.CrossEntropyLoss()([1.0], torch.tensor([0])),
        lambda: nn.CrossEntropyLoss()(torch.ones(1, 2), [0]),
        lambda: torch.ones(1, 2, 2).bmm(3),
        lambda: torch.ones(2).masked_fill([True, False], 0),
        lambda: torch.ones(2, 2).index_add_(0, [0], torch.ones(1, 2)),
        lambda: torch.ones(2, 2).scatter_(0, [0], 1.0),
        lambda: torch.ones(2).outer(3),
        lambda: torch.std([1.0, 2.0]),
        lambda: torch.var_mean("x"),
    ],
)
def test_what_is_no_tensor_is_a_type_error(call: Any) -> None:
    with pytest.raises(TypeError):
        call()


def test_only_rows_asked_for_move() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    assert repr(table) == "Embedding(4, 2, sparse=True)"
    p = table.weight.detach().numpy().astype(np.float64)
    m, v = np.zeros_like(p), np.zeros_like(p)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for step, row in enumerate((1, 1, 3), 1):
        optimizer.zero_grad()
        (table(torch.tensor([row])) ** 2).sum().backward()
        optimizer.step()
        g = 2 * p[row]
        m[row] = 0.9 * m[row] + 0.1 * g
        v[row] = 0.999 * v[row] + 0.001 * g * g
        c1, c2 = 1 - 0.9**step, 1 - 0.999**step
        p[row] -= 0.1 * np.sqrt(c2) / c1 * m[row] / (np.sqrt(v[row]) + 1e-8)
    np.testing.assert_allclose(table.weight.detach().numpy(), p, rtol=2e-5)
    other = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SparseAdam([other])
    other.sum().backward()
    with pytest.raises(RuntimeError, match="consider Adam instead"):
        optimizer.step()


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
def test_a_convolution_and_its_norm_become_one_layer(kind: str) -> None:
    fusion = importlib.import_module("tilegrad.torch.nn.utils.fusion")
    layer, norm = getattr(nn, kind)(2, 3, 2).eval(), nn.BatchNorm2d(3).eval()
    rng = np.random.default_rng(0)
    for name in ("running_mean", "running_var", "weight", "bias"):
        getattr(norm, name).data = torch.tensor(rng.random(3).astype(np.float32) + 0.5)
    fused = fusion.fuse_conv_bn_eval(layer, norm, transpose=kind == "ConvTranspose2d")
    x = torch.tensor(rng.normal(size=(1, 2, 4, 4)).astype(np.float32))
    np.testing.assert_allclose(
        fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    assert isinstance(fused.weight, nn.Parameter) and isinstance(fused.bias, nn.Parameter)


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_mixed_precision_for_a_gpu_does_nothing_without_one() -> None:
    amp = importlib.import_module("tilegrad.torch.cuda.amp")
    with pytest.warns(UserWarning, match="there is no GPU"):
        scaler = amp.GradScaler()
    assert scaler.get_scale() == 1.0 and not scaler.is_enabled()
    with pytest.warns(UserWarning, match="there is no GPU"):
        mode = amp.autocast()
    with mode:
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_parameters_of_a_plain_dict_are_sorted() -> None:
    parameters = nn.ParameterDict({"b": torch.ones(1), "a": torch.zeros(1)})
    parameters.update({"d": torch.ones(1), "c": torch.zeros(1)})
    assert list(parameters) == ["a", "b", "c", "d"]
    assert all(isinstance(each, nn.Parameter) for each in parameters.values())


def test_a_transposed_convolution_is_told_its_output_size() -> None:
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
    x = torch.ones(1, 1, 4, 4)
    assert layer(x, output_size=[8, 7]).shape == (1, 1, 8, 7)
    assert layer(x, output_size=torch.ones(1, 1, 7, 8).size()).shape == (1, 1, 7, 8)
    for size in ([9, 9], [5]):
        with pytest.raises(ValueError, match=r"output.size"):
            layer(x, output_size=size)


def test_one_cycle_ends() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    # One step behind the end: half a cosine from 1 to 4e-6 between steps 0.2 and 3, at 4.
    expected = 4e-6 + (1 - 4e-6) * (1 + np.cos(np.pi * 3.8 / 2.8)) / 2
    np.testing.assert_allclose(schedule.get_last_lr(), [expected], rtol=1e-5)
    with pytest.raises(ValueError, match="Tried to step 5 times"):
        schedule.step()


def test_losses_have_weights() -> None:
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 5.0, 4.5])
    w = torch.tensor([1.0, 0.5, 2.0])
    F = nn.functional
    np.testing.assert_allclose(F.mse_loss(a, b, weight=w).item(), 10 / 3.5, rtol=1e-6)
    np.testing.assert_allclose(F.l1_loss(a, b, weight=w, reduction="sum").item(), 5.5)
    np.testing.assert_allclose(F.huber_loss(a, b, weight=w).item(), 1.25)


def test_layers_take_their_input_by_name() -> None:
    assert nn.Linear(2, 3)(input=torch.ones(1, 2)).shape == (1, 3)
    table = nn.Embedding(2, 3, _weight=torch.ones(2, 3), _freeze=True)
    assert table(input=torch.tensor([1])).tolist() == [[1.0] * 3]
    assert not table.weight.requires_grad
    norm = nn.RMSNorm(normalized_shape=2)
    # Where the input is small, eps counts: that of float32.
    x = torch.tensor([[3e-4, 3e-4]])
    expected = 3e-4 / np.sqrt(9e-8 + 2**-23)
    np.testing.assert_allclose(norm(x).detach().numpy(), [[expected] * 2], rtol=1e-5)


def test_the_largest_of_normalised_rows_that_are_cut_off_below_has_a_gradient() -> None:
    """Its kernels load a mask at the position of the largest element of each row."""
    theirs = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    image = random.normal(size=(8, 16, 40)).astype(np.float32)
    weights = random.normal(size=(32, 16, 1)).astype(np.float32)

    def gradients(library: Any) -> list[Any]:
        convolution, norm = library.nn.Conv1d(16, 32, 1, bias=False), library.nn.BatchNorm1d(32)
        convolution.weight.data = library.tensor(weights)
        cut = library.nn.functional.relu(norm(convolution(library.tensor(image))))
        values, _ = library.max(cut, dim=2)
        values.square().sum().backward()
        return [each.grad.numpy() for each in (convolution.weight, norm.weight, norm.bias)]

    for mine, other in zip(gradients(torch), gradients(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)
