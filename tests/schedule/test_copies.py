"""A copy moves bytes: what is stored in their order needs no kernel before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close
from tilegrad import Tensor
from tilegrad.engine.run.run import recording

CASES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "whole": (lambda x: x, 0),
    "reshaped": (lambda x: x.reshape(4, 8), 0),
    "window": (lambda x: x[1:3], 1),
    "window, reshaped": (lambda x: x[1:3].reshape(8), 1),
    "transposed": (lambda x: x.T, 1),
    "folded": (lambda x: x.sum(1), 1),
    "computed, reshaped": (lambda x: (x + 1).reshape(32), 1),
}


@pytest.mark.row("F2.6")
@pytest.mark.parametrize("name", CASES)
def test_kernels_before_a_copy(name: str) -> None:
    make, count = CASES[name]
    x = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).realize()
    with recording() as record:
        moved = make(x).to("CPU:1").realize()
    assert [launch.kernel is None for launch in record] == [False] * count + [True]
    close(moved, make(x).numpy())


def test_a_value_that_is_kept_and_copied() -> None:
    x = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).realize()
    total = x.sum(1)
    moved, other = total.to("CPU:1"), total.reshape(2, 4).to("CPU:1")
    Tensor.realize(total, moved, other)
    close(moved, total.numpy())
    close(other, total.numpy().reshape(2, 4))
