"""Random episodes and sequences beside PyTorch, in a process that knows nothing of the program: its
first steps run in another way than later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours
from tests.fresh import forget
from tests.torch.random_episodes import policy, sequences
from tests.torch.random_loops import loops

Program = Callable[[Any, int], list[float]]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "seeds"),
    [(policy, range(100)), (sequences, range(24)), (loops, range(24))],
    ids=["policy", "sequences", "loops"],
)
def test_reads_and_gradients_are_those_of_torch(program: Program, seeds: range) -> None:
    torch = pytest.importorskip("torch")
    for seed in seeds:
        expected = program(torch, seed)
        forget()
        found = program(ours, seed)
        message = f"seed {seed} of {program.__name__}"
        np.testing.assert_allclose(found, expected, rtol=3e-3, atol=3e-3, err_msg=message)
