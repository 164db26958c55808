"""Kernels that are told of before the schedule is whole are among its steps as they were told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tensor.helpers import numbers
from tilegrad import Device, Tensor
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.schedule import make_schedule


def _layer() -> list[Tensor]:
    """A layer with a normalisation, and its gradients: one pass computes several of the sums."""
    x = Tensor(numbers(32, 24, seed=1)).realize()
    weight = Tensor(numbers(24, 16, seed=2)).realize().requires_grad_()
    scale, shift = (Tensor(numbers(16, seed=n)).realize().requires_grad_() for n in (3, 4))
    y = x @ weight
    centred = y - y.mean(0)
    y = centred / ((centred * centred).mean(0) + 1e-5).sqrt() * scale + shift
    (y.relu() ** 2).mean().backward()
    found = [each.grad for each in (weight, scale, shift)]
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


def _convolutions() -> list[Tensor]:
    image = Tensor(numbers(2, 3, 12, 12, seed=5)).realize()
    filters = [Tensor(numbers(4, 3, 3, 3, seed=n)).realize() for n in (6, 7)]
    return [image.conv2d(filters[0]).relu().sum((2, 3)), image.conv2d(filters[1]).mean(0)]


@pytest.mark.parametrize("made", [_layer, _convolutions])
def test_what_is_told_is_a_step(made: Callable[[], list[Tensor]]) -> None:
    graph = normalise(UOp.sink(*[each.uop for each in made()])).numbered()
    told: list[tuple[UOp, str]] = []
    targets = {"CPU": Device["CPU"].target}
    schedule = make_schedule(
        graph, targets, "CPU", plain=False, begin=lambda ast, device: told.append((ast, device))
    )
    steps = [(item.ast, item.device) for item in schedule.items]
    assert told
    assert all(each in steps for each in told)
    assert len(set(told)) == len(told)
    # Sums that share a pass may yet be joined, products not.
    reducing = [ast for ast, _ in steps if ast and any(n.op is Ops.REDUCE for n in ast.toposort())]
    assert len(told) < len(reducing)
