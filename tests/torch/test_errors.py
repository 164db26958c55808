"""What PyTorch 2.13 raises is caught here by its class. The classes were read off PyTorch once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.base.errors import TilegradError, article
from tilegrad.torch import nn
from tilegrad.torch.nn import functional as F
from tilegrad.torch.optim import lr_scheduler


def _leaf() -> Any:
    return torch.ones(1, requires_grad=True)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: nn.MultiheadAttention(5, 2), AssertionError, "2 heads do not divide embed_dim 5"),
        (lambda: nn.TransformerEncoderLayer(5, 2), AssertionError, "2 heads do not divide"),
        (lambda: nn.Sequential(3), TypeError, "int is not a Module subclass"),
        (lambda: lr_scheduler.StepLR(3, 1), TypeError, "StepLR: an int is no optimizer"),
        (lambda: lr_scheduler.OneCycleLR(3, 1.0, 3), TypeError, "an int is no optimizer"),
        (lambda: lr_scheduler.CyclicLR(3, 1.0, 2.0), TypeError, "an int is no optimizer"),
        (lambda: lr_scheduler.ReduceLROnPlateau(3), TypeError, "an int is no optimizer"),
        (lambda: torch.iinfo(torch.float32), TypeError, "float32 is no integer"),
        (lambda: torch.iinfo(torch.bool), TypeError, "bool is no integer"),
        (lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1), RuntimeError, "weight is -1"),
        (lambda: torch.tensor([1.0, float("nan")]).multinomial(1), RuntimeError, "weight is nan"),
        (lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 1), RuntimeError, "weights are 0"),
        (lambda: F.interpolate(torch.ones(2, 3), scale_factor=2), NotImplementedError, "2 axes"),
        (
            lambda: F.interpolate(torch.ones(2, 3, 4), scale_factor=2, mode="bilinear"),
            NotImplementedError,
            "3 axes, mode 'bilinear' resamples 4",
        ),
        (lambda: torch.autograd.grad(torch.ones(1).sum(), _leaf()), RuntimeError, "output 0"),
        (lambda: torch.autograd.grad(_leaf().sum(), torch.ones(1)), RuntimeError, "input 0"),
    ],
)  # fmt: skip
def test_errors_are_of_pytorchs_class(call: Callable[[], Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        call()
    assert isinstance(caught.value, TilegradError)


def test_weights_that_are_good_are_drawn_from() -> None:
    assert torch.multinomial(torch.tensor([0.0, 2.0]), 1).tolist() == [1]


@pytest.mark.parametrize(
    ("name", "spoken"),
    [("int", "an int"), ("Adam", "an Adam"), ("dict", "a dict"), ("uint8", "a uint8")],
)
def test_a_name_has_the_article_that_it_is_spoken_with(name: str, spoken: str) -> None:
    assert article(name) == spoken


def test_the_gradient_of_values_that_a_parameter_had_before() -> None:
    for _ in range(4):
        first, second = (nn.Parameter(torch.ones(3)) for _ in range(2))
        optimizer = torch.optim.SGD([first, second], lr=0.1)
        made = (first * second).exp()
        with torch.no_grad():
            first.add_(1.0)
        assert first.sum().item() == 6
        made.sum().backward()
        optimizer.step()
        assert second.tolist() == pytest.approx([1 - 0.1 * math.e] * 3)
        assert first.tolist() == pytest.approx([2 - 0.1 * math.e] * 3)


def test_other_tensors_are_computed_after_one_could_not_be() -> None:
    """A gradient of what was overwritten is an error for who reads it, and for nobody else."""
    # More than 1 MiB is written in place.
    first, second = (nn.Parameter(torch.ones(300_000)) for _ in range(2))
    optimizer = torch.optim.SGD([first, second], lr=0.1)
    made = (first * second).exp()
    with torch.no_grad():
        first.add_(1.0)
    assert first.sum().item() == 600_000

    def train() -> None:
        made.sum().backward()
        optimizer.step()
        second.tolist()

    with pytest.raises(RuntimeError, match="overwritten in place"):
        train()
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.ones(parameter.shape))
    assert layer(torch.ones(1, 2)).tolist() == [[3.0, 3.0]]
