"""An error that somebody keeps, as an interactive session keeps the last one, keeps the tensors in
its frames: no later run asks for their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import nn


def trained(late: dict[str, float] | None = None) -> Any:
    """A weight after three steps of Adagrad; before the second its options become `late`."""
    weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0, 0.5]]))
    optimizer = torch.optim.Adagrad([weight], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        ((weight - 1) ** 2).sum().backward()
        if late and step == 1:
            optimizer.param_groups[0].update(late)
        optimizer.step()
    return weight.detach().numpy()


def test_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained()

    def failing(*_: Any) -> None:
        raise KeyError("of its own")

    with monkeypatch.context() as patched:
        patched.setattr(nn.optim.Optimizer, "_count", failing)
        with pytest.raises(KeyError) as kept:
            trained({"lr_decay": 0.1})
    assert kept.value.__traceback__ is not None
    np.testing.assert_array_equal(trained(), expected)


@pytest.mark.parametrize("transform", ["vmap", "grad", "jacrev"])
def test_of_a_function_that_is_transformed(transform: str) -> None:
    expected = trained()

    def failing(x: Any) -> Any:
        own = x * 2
        own.add_(x)
        raise KeyError("of its own")

    with pytest.raises(KeyError) as kept:
        getattr(torch.func, transform)(failing)(torch.ones(3))
    assert kept.value.__traceback__ is not None
    np.testing.assert_array_equal(trained(), expected)
