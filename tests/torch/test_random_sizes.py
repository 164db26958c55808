"""Random programs of one structure at several sizes give what PyTorch gives, in a process that
knows the plans of the sizes before, and nothing else. RANDOM_SIZES=5000 runs as many programs.
"""

from __future__ import annotations

import os

import pytest

from tests.torch.random_sizes import difference_of, made

_PROGRAMS = int(os.environ.get("RANDOM_SIZES", "640"))
_BLOCKS = 16


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(_BLOCKS))
@pytest.mark.filterwarnings("ignore")
def test_values_and_gradients_are_those_of_pytorch(block: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(block, _PROGRAMS, _BLOCKS):
        program = made(torch, seed)
        difference = difference_of(torch, program)
        assert difference is None, f"{difference}\n{program.text()}"


def test_a_program_is_known_by_its_seed() -> None:
    torch = pytest.importorskip("torch")
    first = made(torch, 7)
    assert first == made(torch, 7) != made(torch, 8)
    assert difference_of(torch, first) is None
