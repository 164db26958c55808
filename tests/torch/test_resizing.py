"""`resize_` and `set_`, as PyTorch documents and does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch


def six() -> Any:
    return torch.arange(6.0)


def test_memory_is_looked_at_in_another_shape() -> None:
    x = six()
    part = x[2:4]
    assert x.resize_(2, 2) is x and x.tolist() == [[0, 1], [2, 3]] and x.stride() == (2, 1)
    x.fill_(9)
    assert part.tolist() == [9, 9]
    # What was not looked at for a while is there again.
    assert x.resize_((6,)).tolist() == [9, 9, 9, 9, 4, 5]
    assert x.resize_(0).shape == (0,)
    assert x.resize_as_(torch.zeros(3, 2)).tolist() == [[9, 9], [9, 9], [4, 5]]


def test_a_view_is_resized_over_what_it_is_a_view_of() -> None:
    x = six()
    part = x[2:4]
    assert part.resize_(2, 2).tolist() == [[2, 3], [4, 5]]
    part.zero_()
    assert x.tolist() == [0, 1, 0, 0, 0, 0]
    turned = six().reshape(2, 3).T
    assert turned.resize_(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_memory_grows() -> None:
    x = six()
    assert x.resize_(2, 4).shape == (2, 4) and x.flatten()[:6].tolist() == six().tolist()
    made = torch.empty(0, dtype=torch.long).resize_(4)
    assert made.copy_(torch.arange(4)).tolist() == [0, 1, 2, 3]
    held = six()
    part = held[1:]
    with pytest.raises(NotImplementedError, match="memory grows that other tensors look at"):
        held.resize_(8)
    assert part.tolist() == [1, 2, 3, 4, 5]


REFUSED: dict[str, Callable[[Any], Any]] = {
    "cannot resize variables that require grad": lambda x: x.requires_grad_().resize_(2),
    "negative size": lambda x: x.resize_(-1),
    "a leaf Variable that requires grad": lambda x: x.requires_grad_().set_(torch.ones(2)),
    "Could not set tensor of type int64": lambda x: x.set_(torch.ones(2, dtype=torch.long)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_pytorch_refuses(message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        REFUSED[message](six())


def test_the_memory_of_another_tensor() -> None:
    x, y = six(), torch.ones(2, 2)
    x.set_(y).fill_(5)
    assert x.shape == (2, 2) and y.tolist() == [[5, 5], [5, 5]]
    for source in (lambda z: z, lambda z: z.untyped_storage()):
        z = six()
        x.set_(source(z), 1, (2, 2), (2, 1))
        assert x.tolist() == [[1, 2], [3, 4]]
        x.zero_()
        assert z.tolist() == [0, 0, 0, 0, 0, 5]
    assert x.set_().shape == (0,)
    leaf = six().requires_grad_()
    with torch.no_grad():
        leaf.set_(torch.ones(2))
    assert leaf.requires_grad and leaf.is_leaf and leaf.tolist() == [1, 1]
