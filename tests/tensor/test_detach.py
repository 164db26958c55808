"""Assignment to a value that was detached: its place is that of the value."""

from __future__ import annotations

import pytest

from tilegrad import Tensor


def test_a_detached_value_is_assigned() -> None:
    for make in (lambda w: w.detach(), lambda w: w.detach().reshape(2).detach()):
        weight = Tensor([1.0, 2.0], requires_grad=True).realize()
        apart = make(weight)
        apart.assign(apart * 2).realize()
        assert apart.tolist() == [2.0, 4.0]
        # A view of it, as a part of a detached value is.
        assert weight.tolist() == [2.0, 4.0]


def test_a_part_of_a_detached_value() -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()
    weight.detach()[1:] = 0
    assert weight.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("is_read", [False, True])
def test_the_gradient_of_a_leaf_that_was_written_in_part_counts_once(is_read: bool) -> None:
    """What was not written was counted for the leaf, and again for what the leaf was before."""
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    tail = x[1:]
    x.detach()[0:1] = 5
    if is_read:
        x.realize()
    ((x * x).sum() + tail.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [10.0, 5.0, 7.0]
