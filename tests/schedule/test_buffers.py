"""Kernels respect the number of buffers that a target binds to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.schedule.plans import CPU, kernels, plan
from tilegrad import Tensor
from tilegrad.target import Target

LEAST = 8


def limited(most: int = LEAST) -> Target:
    return replace(CPU, most_buffers=most)


def operands(count: int, *shape: int) -> list[Tensor]:
    return [Tensor.empty(*(shape or (64,))) for _ in range(count)]


def chain(xs: list[Tensor]) -> Tensor:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def tree(xs: list[Tensor]) -> Tensor:
    while len(xs) > 1:
        xs = [a * b for a, b in zip(xs[::2], xs[1::2], strict=True)]
    return xs[0]


def moved_tree(xs: list[Tensor]) -> Tensor:
    while len(xs) > 1:
        xs = [a + b.flip(0) for a, b in zip(xs[::2], xs[1::2], strict=True)]
    return xs[0]


def reduced(xs: list[Tensor]) -> Tensor:
    return (tree(xs) * 2).sum()


def chosen(xs: list[Tensor]) -> Tensor:
    return (chain(xs[:10]) < chain(xs[10:20])).where(chain(xs[20:30]), xs[30])


@pytest.mark.parametrize("most", [4, LEAST, 17])
@pytest.mark.parametrize("build", [chain, tree, moved_tree, reduced, chosen])
def test_no_kernel_has_more_buffers_than_there_may_be(
    build: Callable[[list[Tensor]], Tensor], most: int
) -> None:
    found = kernels(plan(build(operands(32)), target=limited(most)))
    assert max(len(item.buffers) for item in found) <= most
    assert len(kernels(plan(build(operands(32))))) < len(found)


def test_a_chain_has_as_few_kernels_as_can_be() -> None:
    """The first takes 7 operands, each other 6 and the sum so far."""
    assert len(kernels(plan(chain(operands(32)), target=limited()))) == 6


def test_updates_are_joined_only_as_far_as_there_are_buffers() -> None:
    """Five parameters with a gradient each: ten buffers in all."""
    parameters = [Tensor.zeros(64).contiguous().realize() for _ in range(5)]
    slopes = [Tensor.empty(64) for _ in parameters]
    for parameter, slope in zip(parameters, slopes, strict=True):
        parameter.assign(parameter - slope * 0.1)
    found = kernels(plan(*parameters, target=limited()))
    assert max(len(item.buffers) for item in found) <= LEAST
    assert len(found) > len(kernels(plan(*parameters)))


def test_what_fits_is_one_kernel() -> None:
    assert len(kernels(plan(chain(operands(7)), target=limited()))) == 1


def test_a_buffer_that_is_bound_in_slices_counts_for_each() -> None:
    """A buffer has 256 bytes, and a binding takes 100, so slices of 64: four for each buffer."""
    target = replace(limited(16), bound_bytes=100)
    for build in (chain, tree, moved_tree):
        found = kernels(plan(build(operands(32)), target=target))
        assert max(len(item.buffers) for item in found) <= 4
    few = kernels(plan(chain(operands(32)), target=replace(target, bound_bytes=256)))
    assert max(len(item.buffers) for item in few) == 16


def test_updates_are_joined_only_as_far_as_slices_are_bound() -> None:
    parameters = [Tensor.zeros(64).contiguous().realize() for _ in range(6)]
    slopes = [Tensor.empty(64) for _ in parameters]
    for parameter, slope in zip(parameters, slopes, strict=True):
        parameter.assign(parameter - slope * 0.1)
    target = replace(limited(16), bound_bytes=128)
    found = kernels(plan(*parameters, target=target))
    assert max(len(item.buffers) for item in found) * 2 <= 16
    assert len(found) < len(parameters)
