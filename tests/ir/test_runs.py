"""Which axes a reshape mixes."""

from __future__ import annotations

import pytest

from tilegrad.ir.runs import runs_of
from tilegrad.ir.uop import UOp

N = UOp.variable("n", 1, 8)
M = UOp.variable("m", 1, 8)


@pytest.mark.parametrize(
    ("old", "new", "runs"),
    [
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((6, 4), (4, 6), [([0, 1], [0, 1])]),
        ((1, 5, 1), (5,), [([1], [0])]),
        ((0, 3), (3, 0), [([0, 1], [0, 1])]),
        ((12, N, 64), (1, 12, N, 8, 8), [([0], [1]), ([1], [2]), ([2], [3, 4])]),
        ((12, N, 64), (12, N * 64), [([0], [0]), ([1, 2], [1])]),
        ((4, N, M, 6), (2, 2, M, N, 3, 2), [([0], [0, 1]), ([3], [4, 5]), ([1, 2], [2, 3])]),
        ((2, N), (N * 2,), [([0, 1], [0])]),
        ((N, 3), (3, N), [([0, 1], [0, 1])]),
        ((N,), (1, N), [([0], [1])]),
    ],
)
def test_runs(
    old: tuple[object, ...], new: tuple[object, ...], runs: list[tuple[list[int], list[int]]]
) -> None:
    assert runs_of(old, new) == runs
