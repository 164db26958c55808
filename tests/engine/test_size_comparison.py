"""`SIZES=2` compares plans for a range of sizes with plans for the size: no false alarm, and none
missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.fresh import forget
from tilegrad import Context, Tensor
from tilegrad.base.errors import InternalError
from tilegrad.engine.realize.explained import Explained

Step = Callable[[Tensor], Tensor]
# What is left of these is rounding.
CANCEL: dict[str, Step] = {
    "what is above and below a mean": lambda x: (x - x.mean()).sum(),
    "of columns": lambda x: (x - x.mean(0)).sum(0),
    "two orders of a sum": lambda x: x.sum() - x.sum(0).sum(),
    "two orders of squares": lambda x: (x * x).sum() - x.square().sum(0).sum(),
    "shares": lambda x: x.softmax(0).sum(0) - 1,
}


def _inputs(count: int) -> Iterator[Tensor]:
    random = np.random.default_rng(0)
    for length in range(21, 21 + 7 * count, 7):
        yield Tensor((random.standard_normal((length, 3)) * 10 + 100).astype("f4"))


@pytest.mark.parametrize("name", CANCEL)
def test_a_sum_that_cancels_is_no_alarm(name: str) -> None:
    forget()
    with Context(SIZES=2, TEMPLATES=1, SEGMENTS=1):
        for x in _inputs(56):
            assert abs(CANCEL[name](x).numpy()).max() < 1


@pytest.mark.parametrize(
    "step", [lambda x: x.sum(0) * 1.5, lambda x: (x - x.mean(0) * 0.5).square().sum()]
)
def test_a_plan_that_leaves_out_a_row_is_an_alarm(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget()
    found = Explained.values

    def fewer(self: Explained, sizes: tuple[int, ...]) -> list[int] | None:
        values = found(self, sizes)
        return None if values is None else [each - 1 for each in values]

    def all_sizes() -> None:
        with Context(SIZES=2, TEMPLATES=1, SEGMENTS=1):
            for x in _inputs(4):
                step(x).numpy()

    monkeypatch.setattr(Explained, "values", fewer)
    with pytest.raises(InternalError, match="a plan for many sizes gives"):
        all_sizes()
    forget()
