"""A slice of a tensor that was computed, or copied, is on the way of its gradients: also where a
value of it was read before, and no leaf was marked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor

MADE: dict[str, tuple[Callable[[Any], Any], float]] = {
    "halves": (lambda x: x * 0.5, 0.5),
    "transposed": (lambda x: x.T, 1.0),
    "copied": (lambda x: x.contiguous(), 1.0),
    "copied in another order": (lambda x: x.T.contiguous(), 1.0),
    "cast": (lambda x: x.cast("float64"), 1.0),
}
PICKED: dict[str, Callable[[Any], Any]] = {
    "a row": lambda c: c[0],
    "rows": lambda c: c[0:1],
    "an element": lambda c: c[0, 1],
    "a column": lambda c: c[:, 1],
}


@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("picked", PICKED)
@pytest.mark.parametrize("made", MADE)
def test_the_gradient_of_squares(made: str, picked: str, is_read: bool, segments: int) -> None:
    make, factor = MADE[made]
    values = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    with Context(SEGMENTS=segments):
        x = Tensor(values).realize()
        computed = make(x)
        if is_read:
            computed.sum().item()
        part = PICKED[picked](computed)
        (found,) = (part * part).sum().gradient(x)
        # The squares of what is picked of `factor * values`.
        is_picked = np.zeros(computed.shape)
        is_picked[
            {"a row": 0, "rows": 0, "an element": (0, 1), "a column": np.s_[:, 1]}[picked]
        ] = 1
        if "order" in made or made == "transposed":
            is_picked = is_picked.T
        np.testing.assert_allclose(found.numpy(), 2 * factor**2 * values * is_picked, rtol=1e-5)
