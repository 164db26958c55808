"""Random programs of views, writes in place, reads and blocks without gradients, beside PyTorch:
values, gradients, which tensors require one, and what was read on the way. PyTorch is the oracle;
what it refuses, and what it leaves undefined, is not compared.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad.torch as ours
from tilegrad.base.errors import TilegradError

# What makes a tensor of `x`, and of `x` and `y`; `M` is either library.
NEW = [
    "x * 2", "x.exp().clamp(max=4)", "x.relu()", "x + 1", "x.abs()", "x.sigmoid()", "x.clone()",
    "x * x", "-x", "x.cumsum(0)", "x.max(0, keepdim=True)[0] + x", "x.flip(0)",
    "x + y.sum()", "x * y.mean()", "x.sum() + y", "M.where(x > 0, x, y.sum())",
    "M.cat([x.reshape(-1), y.reshape(-1)])", "M.stack([x, x * 2])",
]  # fmt: skip
VIEWS = [
    "x.t()", "x[0:2]", "x[:, 0:2]", "x[1:]", "x.reshape(-1)", "x.view(x.shape)", "x[::2]",
    "x.unsqueeze(0)", "x.transpose(0, -1)", "x.select(0, 0)", "x[0]", "x.narrow(0, 0, 1)",
    "x.flatten()", "x.chunk(2)[0]", "x.unbind(0)[-1]", "x[...]",
]  # fmt: skip
WRITES = [
    "x.add_(1)", "x.mul_(2)", "x.relu_()", "x.clamp_(-1, 1)", "x.zero_()", "x.fill_(3)",
    "x.neg_()", "x.sigmoid_()", "x.copy_(y.reshape(-1)[0])", "x.add_(y.sum())", "x[0] = 5",
    "x[..., 0] = y.sum()", "x[0].mul_(2)", "x += 1", "x *= y.sum()", "x -= x.mean()",
    "x.masked_fill_(x > 0, 0.5)", "x[x > 0.2] = 0.1", "M.nn.functional.relu(x, inplace=True)",
    "x.detach().add_(1)", "x.fmod_(1)", "x.swapaxes(0, -1).mul_(3)", "x.fill_(y.sum())",
]  # fmt: skip
READS = ["x.sum().item()", "x.tolist()", "float(y.mean())", "bool((x > 0).any())"]


class Step(NamedTuple):
    """What is done with the tensors at two positions of the list that a program grows."""

    kind: str
    first: int
    second: int
    text: str


def drawn(rng: random.Random) -> list[Step]:
    """A program; it begins with three tensors."""
    steps: list[Step] = []
    count = 3
    for _ in range(rng.randint(3, 12)):
        kind = rng.choices(["new", "write", "read"], [45, 40, 15])[0]
        texts = {"new": NEW + VIEWS, "write": WRITES, "read": READS}[kind]
        steps.append(Step(kind, rng.randrange(count), rng.randrange(count), rng.choice(texts)))
        count += kind == "new"
    return steps


def outcome(library: Any, steps: list[Step], seed: int) -> tuple[Any, ...]:
    """What requires a gradient, what is a leaf, the values, the gradients, and what was read."""
    draw = np.random.default_rng(seed).standard_normal
    leaves = [
        library.tensor(draw(shape).astype(np.float32)).requires_grad_()
        for shape in [(3, 4), (2, 2)]
    ]
    tensors = [leaves[0], library.tensor(draw((3, 4)).astype(np.float32)), leaves[1] * 1]
    read: list[Any] = []
    for step in steps:
        names = {"x": tensors[step.first], "y": tensors[step.second], "M": library}
        if step.kind == "new":
            tensors.append(eval(step.text, names))
        elif step.kind == "read":
            read.append(eval(step.text, names))
        else:
            exec(step.text, names)
    kinds = [(each.requires_grad, each.is_leaf, tuple(each.shape)) for each in tensors]
    total = sum((each * 0.3).sum() for each in tensors if each.requires_grad)
    total.backward()
    values = [each.detach().numpy() for each in tensors]
    return kinds, values, [_gradient(leaf) for leaf in leaves], read


def _gradient(leaf: Any) -> np.ndarray:
    """Nothing that reaches a leaf is a gradient of zeros."""
    made: np.ndarray = np.zeros(tuple(leaf.shape)) if leaf.grad is None else leaf.grad.numpy()
    return made


def _close(mine: Any, theirs: Any) -> bool:
    return np.shape(mine) == np.shape(theirs) and np.allclose(mine, theirs, 2e-3, 2e-3, True)


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(16))
def test_random_programs_do_what_they_do_in_pytorch(block: int) -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for seed in range(block * 150, block * 150 + 150):
        steps = drawn(random.Random(seed))
        try:
            theirs = outcome(torch, steps, seed)
        except (RuntimeError, IndexError, ValueError):
            continue
        try:
            mine = outcome(ours, steps, seed)
        except TilegradError:
            # Refused with what to do; nothing is wrong without a word.
            continue
        compared += 1
        assert mine[0] == theirs[0], (seed, steps)
        for number in (1, 2, 3):
            pairs = zip(mine[number], theirs[number], strict=True)
            assert all(_close(a, b) for a, b in pairs), (seed, number, steps)
    assert compared > 20
