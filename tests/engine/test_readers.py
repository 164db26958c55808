"""Before memory is overwritten, whoever still needs its old value is computed."""

from __future__ import annotations

from tilegrad import Tensor


def test_what_stands_between_two_assignments_of_one_run() -> None:
    """A parameter is first written by its initialisation, then by an update, in one run."""
    weight = Tensor.full((2,), 3.0, requires_grad=True)
    loss = (weight * weight).sum().backward()
    assert weight.grad is not None
    weight.assign(weight.detach() - weight.grad.detach()).realize()
    assert weight.tolist() == [-3, -3]
    assert loss.item() == 18
    assert weight.grad.tolist() == [6, 6]
