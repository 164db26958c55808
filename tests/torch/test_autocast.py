"""`torch.autocast("cpu")`: the dtypes of results, as PyTorch 2.13 has them on processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F

ROWS = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
SQUARE = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)
NARROW, WIDE = "bfloat16", "float32"


def kinds(found: Any) -> Any:
    """The names of the dtypes of tensors."""
    if isinstance(found, torch.Tensor):
        return str(found.dtype).removeprefix("torch.")
    if isinstance(found, nn.utils.rnn.PackedSequence):
        return kinds(found.data)
    return tuple(kinds(each) for each in found)


def steps(dtype: Any = torch.float32) -> Any:
    return torch.tensor(np.stack([ROWS] * 5)).to(dtype)


def packed(dtype: Any = torch.float32) -> Any:
    return nn.utils.rnn.pack_padded_sequence(steps(dtype), [5, 4, 2, 1])


def narrow(*shape: int) -> Any:
    """A product, in bfloat16."""
    array = np.random.default_rng(2).standard_normal((*shape[:-1], 3)).astype(np.float32)
    return torch.tensor(array) @ torch.ones(3, shape[-1])


RECURRENT: dict[str, tuple[Callable[[], Any], Any]] = {
    "LSTM": (lambda: nn.LSTM(6, 5)(steps()), (NARROW, (NARROW, NARROW))),
    "LSTM, two layers both ways": (
        lambda: nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True)(steps()),
        (NARROW, (NARROW, NARROW)),
    ),
    "LSTM of a narrow input": (
        lambda: nn.LSTM(6, 5)(steps(torch.bfloat16)),
        (NARROW, (NARROW, NARROW)),
    ),
    "LSTM with a state": (
        lambda: nn.LSTM(6, 5)(steps(), (torch.zeros(1, 4, 5), torch.zeros(1, 4, 5))),
        (NARROW, (NARROW, NARROW)),
    ),
    "LSTM with a projection": (
        lambda: nn.LSTM(6, 5, proj_size=3)(steps()),
        (NARROW, (NARROW, WIDE)),
    ),
    "LSTM of a packed sequence": (lambda: nn.LSTM(6, 5)(packed()), (WIDE, (WIDE, WIDE))),
    "LSTM of a narrow packed sequence": (
        lambda: nn.LSTM(6, 5)(packed(torch.bfloat16)),
        (NARROW, (NARROW, NARROW)),
    ),
    "GRU": (lambda: nn.GRU(6, 5)(steps()), (WIDE, WIDE)),
    "GRU of a narrow input": (lambda: nn.GRU(6, 5)(steps(torch.bfloat16)), (NARROW, NARROW)),
    "GRU of a narrow input, with a state": (
        lambda: nn.GRU(6, 5)(steps(torch.bfloat16), torch.zeros(1, 4, 5)),
        (WIDE, WIDE),
    ),
    "RNN": (lambda: nn.RNN(6, 5)(steps()), (NARROW, NARROW)),
    "RNN with a state": (
        lambda: nn.RNN(6, 5, nonlinearity="relu")(steps(), torch.zeros(1, 4, 5)),
        (NARROW, NARROW),
    ),
    "LSTMCell": (lambda: nn.LSTMCell(6, 5)(torch.tensor(ROWS)), (WIDE, WIDE)),
    "GRUCell": (lambda: nn.GRUCell(6, 5)(torch.tensor(ROWS)), WIDE),
    "GRUCell of a narrow input": (lambda: nn.GRUCell(6, 5)(narrow(4, 6)), NARROW),
    "RNNCell": (lambda: nn.RNNCell(6, 5)(torch.tensor(ROWS)), NARROW),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str) -> None:
    run, wanted = RECURRENT[name]
    with torch.autocast("cpu"):
        assert kinds(run()) == wanted


def test_an_lstm_is_as_exact_as_its_products_and_trains() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(6, 5)
    exact = layer(steps())[0].detach().numpy()
    with torch.autocast("cpu"):
        found, (h, c) = layer(steps())
        (found.float().sum() + h.float().sum() + c.float().sum()).backward()
    np.testing.assert_allclose(found.detach().float().numpy(), exact, atol=2e-2)
    gradient = layer.weight_hh_l0.grad
    assert gradient.dtype is torch.float32 and float(gradient.abs().sum()) > 0


KEPT: dict[str, tuple[Callable[[], Any], str]] = {
    "half precision in a product": (
        lambda: F.linear(torch.tensor(ROWS).half(), torch.tensor(SQUARE).half()),
        NARROW,
    ),
    "LayerNorm": (lambda: nn.LayerNorm(6)(narrow(4, 6)), NARROW),
    "RMSNorm": (lambda: nn.RMSNorm(6)(narrow(4, 6)), NARROW),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6)(narrow(4, 6)), NARROW),
    "PReLU": (lambda: nn.PReLU()(narrow(4, 6)), NARROW),
    "prod": (lambda: narrow(4, 6).prod(), WIDE),
    "trace": (lambda: torch.trace(narrow(6, 6)), WIDE),
    "quantile": (lambda: torch.quantile(narrow(4, 6), 0.5), WIDE),
    "vdot": (lambda: torch.vdot(torch.tensor(ROWS[0]), torch.tensor(ROWS[1])), WIDE),
    "bilinear": (lambda: F.bilinear(narrow(4, 6), narrow(4, 6), torch.ones(2, 6, 6)), WIDE),
    "avg_pool3d": (lambda: F.avg_pool3d(narrow(1, 4, 4, 4), 2), WIDE),
    "max_pool3d": (lambda: F.max_pool3d(narrow(1, 4, 4, 4), 2), WIDE),
    "avg_pool2d": (lambda: F.avg_pool2d(narrow(1, 4, 4), 2), NARROW),
    "pad by reflection": (lambda: F.pad(narrow(2, 4, 6), (1, 1), mode="reflect"), WIDE),
    "pad by zeros": (lambda: F.pad(narrow(2, 4, 6), (1, 1)), NARROW),
    "qr": (lambda: torch.linalg.qr(narrow(6, 6))[0], WIDE),
    "svd": (lambda: torch.linalg.svd(narrow(6, 6))[1], WIDE),
    "lstsq": (lambda: torch.linalg.lstsq(narrow(6, 6), torch.tensor(SQUARE))[0], WIDE),
    "pinv": (lambda: torch.linalg.pinv(torch.tensor(SQUARE)), NARROW),
}


@pytest.mark.parametrize("name", KEPT)
def test_results_of_functions(name: str) -> None:
    run, wanted = KEPT[name]
    with torch.autocast("cpu"):
        assert kinds(run()) == wanted


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: torch.linalg.inv(x), np.linalg.inv),
        (lambda x: torch.linalg.det(x), np.linalg.det),
        (lambda x: torch.linalg.solve(x, x + 1), lambda x: np.linalg.solve(x, x + 1)),
        (lambda x: torch.fft.fft(x).abs(), lambda x: np.abs(np.fft.fft(x))),
        (lambda x: torch.fft.rfft2(x).abs(), lambda x: np.abs(np.fft.rfft2(x))),
        (lambda x: torch.addmv(x[0], x, x[0]), lambda x: x[0] + x @ x[0]),
    ],
)
def test_what_is_made_of_products_here_is_not_rounded(ours: Any, theirs: Any) -> None:
    with torch.autocast("cpu"):
        found = ours(torch.tensor(SQUARE)).numpy()
    np.testing.assert_allclose(found, theirs(SQUARE.astype(np.float64)), rtol=1e-4, atol=1e-4)
