"""A value that can never be computed, as memory below it was overwritten: its own reader hears of
it, and nobody else.
"""

import numpy as np
import pytest

import tilegrad
from tilegrad import Tensor
from tilegrad.base.errors import TilegradError


def _doubled(tensor: Tensor) -> None:
    with tilegrad.no_grad():
        tensor.assign(tensor * 2).realize()


def test_others_go_on_beside_what_is_lost() -> None:
    # Too large to take other memory instead.
    weight = Tensor(np.full((600, 600), 1.0, np.float32), requires_grad=True).realize()
    loss = (weight * weight * 3).exp().sum()
    loss.item()
    _doubled(weight)
    loss.backward()
    assert weight.grad is not None
    # Needs the weight before the write, and after it.
    lost = (weight.grad + 1) * weight
    with pytest.raises(TilegradError, match="needed was overwritten in place after its use"):
        lost.tolist()
    # Other tensors that need the next old value get it.
    kept = weight.detach() + 1
    for times in (4, 8, 16):
        _doubled(weight)
        assert weight[0, 0].item() == times
    assert kept[3, 5].item() == 3
    with pytest.raises(TilegradError, match="needed was overwritten in place after its use"):
        lost.tolist()
    with pytest.raises(TilegradError, match="needed was overwritten in place after its use"):
        (lost + kept).tolist()
