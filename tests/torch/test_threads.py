"""The threads that kernels run on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import tilegrad.torch as torch


def threads_of_process() -> int:
    """The threads that the system counts."""
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def before() -> Iterator[None]:
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@pytest.mark.usefixtures("before")
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="asks Linux for its threads")
def test_the_number_of_threads_is_changed_while_kernels_run() -> None:
    x = np.random.default_rng(1).normal(size=(700, 700)).astype("f4")
    expected = x.astype("f8") @ x
    counts = []
    for count in (1, 4, 2, 1):
        torch.set_num_threads(count)
        assert torch.get_num_threads() == count
        found = torch.tensor(x) @ torch.tensor(x)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-3)
        counts.append(threads_of_process())
    assert counts[1] == counts[0] + 3 == counts[2] + 2 == counts[3] + 3


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("count", [0, -1, 1 << 20])
def test_what_is_no_number_of_threads(count: int) -> None:
    with pytest.raises(RuntimeError, match=str(count)):
        torch.set_num_threads(count)
