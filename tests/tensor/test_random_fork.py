"""Random numbers after a fork: each child goes on in a stream of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

# Each child writes its numbers, then its parent writes its own.
PROGRAM = """
import os
from tilegrad import Tensor
{seed}
{before}
def numbers():
    return Tensor.random_bits(4, device="NULL").uop.arg, Tensor.rand(4).tolist()
def child(work):
    if os.fork() == 0:
        work()
        os._exit(0)
    os.wait()
def grandchild():
    print(numbers(), flush=True)
    child(lambda: print(numbers(), flush=True))
for _ in range(3):
    child(grandchild)
print(numbers())
"""


def lines(seed: str = "", before: str = "") -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(seed=seed, before=before)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return found.stdout.splitlines()


@pytest.mark.parametrize("before", ["", "numbers = Tensor.rand(5).tolist()"])
def test_children_differ_from_each_other_and_from_their_parent(before: str) -> None:
    found = lines(before=before)
    assert len(found) == 7
    assert len({line.partition("[")[2] for line in found}) == 7


@pytest.fixture(scope="module")
def of_seed_7() -> list[str]:
    return lines("Tensor.manual_seed(7)")


def test_a_seed_makes_the_same_children_again(of_seed_7: list[str]) -> None:
    assert lines("Tensor.manual_seed(7)") == of_seed_7
    assert len(set(of_seed_7)) == 7
    assert lines("Tensor.manual_seed(8)") != of_seed_7


def test_forks_leave_the_parents_numbers_as_they_are(of_seed_7: list[str]) -> None:
    """And what was drawn before the fork is part of what the children get."""
    code = "from tilegrad import Tensor\nTensor.manual_seed(7)\nTensor.random_bits(4)\n"
    alone = subprocess.run(
        [sys.executable, "-c", f"{code}print(Tensor.rand(4).tolist())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert of_seed_7[-1].endswith(alone.stdout.strip() + ")")
    moved = lines("Tensor.manual_seed(7)", "Tensor.random_bits(1)")
    assert moved[0] != of_seed_7[0]


def test_a_child_may_choose_its_seed() -> None:
    code = (
        "import os\nfrom tilegrad import Tensor\n"
        "def show():\n    Tensor.manual_seed(3)\n    print(Tensor.rand(3).tolist(), flush=True)\n"
        "if os.fork() == 0:\n    show()\n    os._exit(0)\n"
        "os.wait()\nshow()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    child, parent = found.stdout.splitlines()
    assert child == parent
