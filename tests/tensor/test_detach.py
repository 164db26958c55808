"""Assignment to a value that was detached: its place is that of the value."""

from __future__ import annotations

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
