"""Modules of PyTorch's that say where a program runs, or give windows and former names."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from scipy.signal import windows as reference

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.signal import windows

OPTIONS: dict[str, dict[str, Any]] = {
    "exponential": {"tau": 2.0}, "gaussian": {"std": 2.0}, "general_cosine": {"a": [0.5, 0.3, 0.2]},
    "general_hamming": {"alpha": 0.6}, "kaiser": {"beta": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("name", windows.__all__)
@pytest.mark.parametrize("size", [1, 5, 8])
def test_windows_are_those_of_scipy(name: str, size: int) -> None:
    options = OPTIONS.get(name, {})
    for sym in (True, False):
        found = getattr(windows, name)(size, sym=sym, dtype=torch.float64, **options).numpy()
        expected = getattr(reference, name)(size, sym=sym, **options)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_where_a_program_runs() -> None:
    accelerator = torch.accelerator.current_accelerator()
    assert torch.accelerator.is_available() == (accelerator is not None)
    assert torch.version.cuda is None and not torch.compiler.is_compiling()
    assert torch.compiler.disable(len)([1]) == 1


def test_attention_is_computed_whichever_kernel_is_asked_for() -> None:
    attention = importlib.import_module("tilegrad.torch.nn.attention")
    q = torch.ones(1, 1, 2, 4)
    with attention.sdpa_kernel([attention.SDPBackend.MATH, attention.SDPBackend.FLASH_ATTENTION]):
        assert nn.functional.scaled_dot_product_attention(q, q, q).tolist() == q.tolist()


def test_former_names() -> None:
    assert nn.init.constant(torch.zeros(2), 3.0).tolist() == [3.0, 3.0]
    assert torch.ShortTensor([1]).dtype is torch.int16
    assert isinstance(nn.LSTM(1, 1), nn.RNNBase) and not isinstance(nn.Linear(1, 1), nn.RNNBase)
    assert isinstance(nn.GRUCell(1, 1), nn.RNNCellBase)
    x = torch.zeros(2)
    assert torch.fill_(x, 2.0) is x and x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("symeig", "eigh"), ("package", "torch.save")],
)
def test_names_that_are_absent_say_what_to_do(name: str, text: str) -> None:
    with pytest.raises(AttributeError, match=text):
        getattr(torch, name)


def test_a_frozen_weight_stays_frozen_without_its_parametrization() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    plain = nn.Linear(2, 2)
    parametrize = nn.utils.parametrize
    parametrize.register_parametrization(plain, "weight", nn.Tanh())
    plain.parametrizations.weight.original.requires_grad_(False)
    parametrize.remove_parametrizations(plain, "weight")
    assert isinstance(plain.weight, nn.Parameter) and not plain.weight.requires_grad
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight.requires_grad
