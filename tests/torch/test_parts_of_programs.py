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
