"""A Parameter is an alias of the tensor that it is made of, and a leaf of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

_VALUES = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)


def _twice(torch: Any) -> list[Any]:
    data = torch.tensor(_VALUES)
    return [data, torch.nn.Parameter(data), torch.nn.Parameter(data)]


def _of_a_parameter(torch: Any) -> list[Any]:
    first = torch.nn.Parameter(torch.tensor(_VALUES))
    return [first, torch.nn.Parameter(first)]


def _of_a_row(torch: Any) -> list[Any]:
    data = torch.tensor(_VALUES)
    return [data, torch.nn.Parameter(data[1])]


def _of_data(torch: Any) -> list[Any]:
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(_VALUES))
    return [layer.weight, torch.nn.Parameter(layer.weight.data)]


def _of_zeros(torch: Any) -> list[Any]:
    data = torch.zeros(2, 3)
    return [data, torch.nn.Parameter(data), torch.nn.Parameter(torch.zeros(2, 3))]


def _frozen(torch: Any) -> list[Any]:
    data = torch.tensor(_VALUES)
    return [data, torch.nn.Parameter(data, requires_grad=False), torch.nn.Parameter(data)]


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("make", [_twice, _of_a_parameter, _of_a_row, _of_data, _of_zeros, _frozen])
def test_a_write_to_one_is_a_write_to_the_other(
    make: Callable[[Any], list[Any]], *, is_read: bool
) -> None:
    peer = pytest.importorskip("torch")
    found: list[list[Any]] = []
    for torch in (peer, ours):
        tensors = make(torch)
        trained = [each for each in tensors if each.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
        seen: list[Any] = []
        for number in range(5):
            if is_read:
                seen += [each.tolist() for each in tensors]
            optimizer.zero_grad()
            sum(((each * (at + 1)) ** 2).sum() for at, each in enumerate(tensors)).backward()
            optimizer.step()
            tensors[number % len(tensors)].data.mul_(0.5)
            with torch.no_grad():
                tensors[-1].add_(0.25)
            seen += [each.tolist() for each in tensors]
            seen += [each.grad.tolist() for each in trained]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_view_that_was_read_is_written_to_in_equal_steps() -> None:
    """The memory that it was computed to is not what the write is to."""
    for _ in range(5):
        weight = ours.nn.Parameter(ours.tensor(_VALUES))
        with ours.no_grad():
            weight.copy_(ours.tensor(_VALUES))
        expected = _VALUES.copy()
        for _ in range(3):
            row = weight[0]
            assert row.tolist() == expected[0].tolist()
            assert weight.tolist() == expected.tolist()
            with ours.no_grad():
                row.add_(1)
            expected[0] += 1
            assert row.tolist() == expected[0].tolist()
            assert weight.tolist() == expected.tolist()


@pytest.mark.parametrize("has_inverse", [False, True])
def test_an_optimizer_trains_what_was_parametrized_after_it_was_made(*, has_inverse: bool) -> None:
    """What is trained is the parameter itself, also once the parametrization is removed."""
    peer = pytest.importorskip("torch")
    found: list[list[Any]] = []
    for torch in (peer, ours):
        parametrize, layer = torch.nn.utils.parametrize, torch.nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(_VALUES))
            layer.bias.fill_(0.5)

        class Squared(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return x * x

        class Exponential(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return x.exp()

            def right_inverse(self, x: Any) -> Any:
                return x.abs().log()

        weight, inputs = layer.weight, torch.tensor(_VALUES)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        made = Exponential() if has_inverse else Squared()
        parametrize.register_parametrization(layer, "weight", made)
        seen: list[Any] = [layer.parametrizations.weight.original is weight]
        for number in range(7):
            if number == 4:
                parametrize.remove_parametrizations(layer, "weight", has_inverse)
                seen.append(layer.weight is weight)
            optimizer.zero_grad()
            layer(inputs).square().mean().backward()
            optimizer.step()
            seen += [layer.weight.tolist(), weight.tolist()]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
