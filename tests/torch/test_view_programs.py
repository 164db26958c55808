"""Random programs of views, writes in place, blocks without gradients and reads, by PyTorch and by
tilegrad, thrice each in one process: the second and third time equal steps are known. What
tilegrad refuses aloud is no difference; other values, and other gradients, are.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad.torch as ours
from tests.torch.program_lines import VALUES, VIEWS, WRITES
from tilegrad.base.errors import TilegradError


class _Line(NamedTuple):
    text: str
    first: int
    second: int
    is_write: bool
    is_recorded: bool


class _Program(NamedTuple):
    shape: tuple[int, ...]
    is_trained: bool
    lines: list[_Line | int]


def _program(chance: random.Random) -> _Program:
    lines: list[_Line | int] = []
    count = 1
    for _ in range(chance.randint(3, 9)):
        pick, first, second = chance.random(), chance.randrange(count), chance.randrange(count)
        if pick < 0.05:
            lines.append(first)
            continue
        kinds = VIEWS if pick < 0.42 else VALUES if pick < 0.72 else WRITES
        is_write = kinds is WRITES
        is_recorded = chance.random() > (0.4 if is_write else 0.25)
        lines.append(_Line(chance.choice(kinds), first, second, is_write, is_recorded))
        count += not is_write
    shape = chance.choice([(3, 3), (2, 4), (4,), (2, 3, 2)])
    return _Program(shape, chance.random() < 0.7, lines)


def _run(torch: Any, program: _Program, number: int) -> list[Any]:
    """What was read, the values at the end, and the gradient of the leaf."""
    array = np.random.default_rng(1).normal(size=program.shape).astype(np.float32) + number
    leaf = torch.tensor(array, requires_grad=program.is_trained)
    tensors, found = [leaf], []
    for line in program.lines:
        if isinstance(line, int):
            found.append(tensors[line].tolist())
            continue
        names = {"torch": torch, "x": tensors[line.first], "y": tensors[line.second]}
        with contextlib.nullcontext() if line.is_recorded else torch.no_grad():
            if line.is_write:
                exec(line.text, names)
            else:
                tensors.append(eval(line.text, names))
    found += [each.detach().tolist() for each in tensors]
    trained = [each for each in tensors if each.requires_grad]
    if trained:
        sum((each * each).sum() for each in trained).backward()
    found.append(None if leaf.grad is None else leaf.grad.tolist())
    return found


def _differs(torch: Any, program: _Program) -> str | None:
    for number in range(3):
        try:
            theirs = _run(torch, program, number)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        try:
            mine = _run(ours, program, number)
        except (TilegradError, RuntimeError, IndexError, ValueError, TypeError) as error:
            # What is refused in tilegrad, and nothing else, says so.
            return str(error) if "InternalError" in type(error).__name__ else None
        for one, other in zip(mine, theirs, strict=True):
            if (one is None) is not (other is None) or (
                one is not None
                and not np.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)
            ):
                return f"time {number}: {one} for {other}"
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore")
def test_values_and_gradients_are_those_of_pytorch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    for number in range(250):
        program = _program(random.Random(1_000_003 * seed + number))
        difference = _differs(torch, program)
        assert difference is None, (seed, number, program, difference)
