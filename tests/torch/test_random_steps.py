"""Random training programs give what PyTorch gives, in a process where their steps come again and
again: values, gradients, what layers and optimizers hold, and what was read on the way.
"""

from __future__ import annotations

import pytest

from tests.torch.random_steps import difference_of, made


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore")
def test_values_and_gradients_are_those_of_pytorch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    for number in range(150):
        program = made(torch, 1_000_003 * seed + number)
        difference = difference_of(torch, program)
        # What tilegrad refuses aloud is no difference.
        assert difference is None or difference[0] == "refused", f"{difference}\n{program.text()}"


def test_a_program_is_known_by_its_seed() -> None:
    torch = pytest.importorskip("torch")
    first, second = made(torch, 7), made(torch, 7)
    assert first == second and made(torch, 8) != first
    assert difference_of(torch, first) is None
