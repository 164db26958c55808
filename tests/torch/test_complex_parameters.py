"""Parameters of complex numbers: their modules, their optimizers, their files."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn

_random = np.random.default_rng(4)


def _values(*shape: int) -> Any:
    return (_random.normal(size=shape) + 1j * _random.normal(size=shape)).astype(np.complex64)


_WEIGHT, _INPUT = _values(3, 2), _values(4, 2)
_OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda library, given: library.optim.SGD(given, lr=0.1, momentum=0.9),
    "Adam": lambda library, given: library.optim.Adam(given, lr=0.1),
    "AdamW": lambda library, given: library.optim.AdamW(given, lr=0.1, amsgrad=True),
    "RMSprop": lambda library, given: library.optim.RMSprop(given, lr=0.01),
}


def _model(library: Any) -> Any:
    class Model(library.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = library.nn.Parameter(library.from_numpy(_WEIGHT))
            self.scale = library.nn.Parameter(library.ones(3))
            self.register_buffer("shift", library.zeros(3, dtype=library.complex64))

        def forward(self, x: Any) -> Any:
            return (x @ self.weight.T + self.shift).abs() * self.scale

    return Model()


def test_a_complex_parameter_is_one() -> None:
    model = _model(torch)
    assert [name for name, _ in model.named_parameters()] == ["weight", "scale"]
    assert list(model.state_dict()) == ["weight", "scale", "shift"]
    weight = model.weight
    assert isinstance(weight, nn.Parameter) and weight.requires_grad and weight.is_leaf
    assert weight.dtype == torch.complex64 and weight.numel() == 6
    assert repr(weight).startswith("Parameter containing:\n")


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_complex_parameters_are_trained_as_by_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch")

    def train(library: Any) -> tuple[list[float], Any, Any]:
        model, x = _model(library), library.from_numpy(_INPUT)
        optimizer = _OPTIMIZERS[name](library, model.parameters())
        seen: list[float] = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            norm = library.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += [loss.item(), norm.item()]
        kinds = {
            number: [str(each.dtype) for each in state.values() if hasattr(each, "dtype")]
            for number, state in optimizer.state_dict()["state"].items()
        }
        return seen, model.weight.detach().numpy(), kinds

    (mine, weight, kinds), (others, expected, expected_kinds) = train(torch), train(theirs)
    np.testing.assert_allclose(mine, others, rtol=1e-4)
    np.testing.assert_allclose(weight, expected, rtol=1e-3, atol=1e-4)
    assert kinds == expected_kinds


def test_a_checkpoint_of_complex_parameters_is_taken_up() -> None:
    model, x = _model(torch), torch.from_numpy(_INPUT)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(model: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    step(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    ahead = [step(model, optimizer) for _ in range(2)]
    file.seek(0)
    saved = torch.load(file)
    other = _model(torch)
    other.load_state_dict(saved["model"])
    again = torch.optim.Adam(other.parameters(), lr=0.1)
    again.load_state_dict(saved["optimizer"])
    np.testing.assert_allclose([step(other, again) for _ in range(2)], ahead, rtol=1e-6)
