"""Random programs of views, writes in place, reads and blocks without gradients, beside PyTorch:
values, gradients, which tensors require one, and what was read on the way. PyTorch is the oracle;
what it refuses, and what it leaves undefined, is not compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad.torch as ours
from tilegrad.base.errors import TilegradError

# What makes a tensor of `x`, and of `x` and `y`; `M` is either library, `I` two positions.
NEW = [
    "x * 2", "x.exp().clamp(max=4)", "x.relu()", "x + 1", "x.abs()", "x.sigmoid()", "x.clone()",
    "x * x", "-x", "x.cumsum(0)", "x.max(0, keepdim=True)[0] + x", "x.flip(0)",
    "x + y.sum()", "x * y.mean()", "x.sum() + y", "M.where(x > 0, x, y.sum())",
    "M.cat([x.reshape(-1), y.reshape(-1)])", "M.stack([x, x * 2])", "x.clone().requires_grad_()",
    "x.detach().clone().requires_grad_()", "x[x > 0]", "x[I]", "x.index_select(0, I[:1])",
    "M.where(x > y.mean(), x, 0.5)", "x.masked_fill(x < 0, 0.25)", "x.amax(0)", "x.min()",
    "x.relu().max(0)[0]", "x.softmax(-1)", "x.sort(0)[0]", "M.cat([x, x], -1)",
    "x.gather(0, x.argmax(0, keepdim=True))", "M.maximum(x, y.mean())", "x.double().float()",
    "x.long()", "x > 0", "x.argmax(0)", "M.stack([x[0], x[-1]])[0]", "x.contiguous()",
    "x.index_put((I,), y.sum())", "x.T.contiguous()", "M.stack([x, x]).unbind(0)[1]",
]  # fmt: skip
VIEWS = [
    "x.t()", "x[0:2]", "x[:, 0:2]", "x[1:]", "x.reshape(-1)", "x.view(x.shape)", "x[::2]",
    "x.unsqueeze(0)", "x.transpose(0, -1)", "x.select(0, 0)", "x[0]", "x.narrow(0, 0, 1)",
    "x.flatten()", "x.chunk(2)[0]", "x.unbind(0)[-1]", "x[...]", "x.T", "x[1:][..., :1]",
    "x.view(-1)[1:]", "x.squeeze()", "x.diagonal()", "x.movedim(0, -1)",
    "x.expand(2, *x.shape)[0]", "x[None]", "x.split(1)[-1]", "x.expand_as(x)",
]  # fmt: skip
WRITES = [
    "x.add_(1)", "x.mul_(2)", "x.relu_()", "x.clamp_(-1, 1)", "x.zero_()", "x.fill_(3)",
    "x.neg_()", "x.sigmoid_()", "x.copy_(y.reshape(-1)[0])", "x.add_(y.sum())", "x[0] = 5",
    "x[..., 0] = y.sum()", "x[0].mul_(2)", "x += 1", "x *= y.sum()", "x -= x.mean()",
    "x.masked_fill_(x > 0, 0.5)", "x[x > 0.2] = 0.1", "M.nn.functional.relu(x, inplace=True)",
    "x.detach().add_(1)", "x.fmod_(1)", "x.swapaxes(0, -1).mul_(3)", "x.fill_(y.sum())",
    "x.T[0] = 1.5", "x[1:][..., :1] += 1", "x[0:1] *= 2", "x[x > 0] += 1", "x[x > 0] *= y.mean()",
    "x.index_put_((x > 0.5,), M.tensor(0.3))", "x.index_put_((I,), y.mean(), accumulate=True)",
    "x[1:] = x[:-1].clone()", "x.copy_(x.flip(0))", "x.unbind(0)[0].add_(1)", "x[I] = y.mean()",
    "x.chunk(2)[0].mul_(2)", "x.index_add_(0, I[:1], x[:1] * 2)", "x.index_fill_(0, I, 0.75)",
    "x.diagonal().add_(1)", "x[:, 1:] = 0.5", "x.view(-1)[1:].mul_(0.5)",
    "x.detach().mul_(y.sum())",
    "x.detach()[0] = y.sum()",
    "with M.no_grad(): x.add_(1)", "with M.no_grad(): x[0].zero_()", "x.requires_grad_(False)",
    "with M.no_grad(): x.T.mul_(2)", "with M.no_grad(): x.copy_(y.reshape(-1)[0])",
    "with M.no_grad(): x.view(-1)[0] = 4", "with M.no_grad(): x[x > 0] *= 2",
    "x.lerp_(y.mean(), 0.5)", "x.add_(x)", "x.mul_(x)", "x[0] += x[-1]",
    "x.masked_scatter_(x > 0, x * 2)", "x.where(x > 0, y.mean()).mul_(2)", "x ^= 3", "x //= 2",
]  # fmt: skip
STEPS = [
    "(x * 0.3).sum().backward(retain_graph=True)", "x.mean().backward(retain_graph=True)",
    "optimizer.step()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)",
    "x.retain_grad()", "x.grad.zero_()", "leaf.register_hook(lambda g: g * 2)", "x.grad = None",
    "leaf.grad.mul_(0.5)", "x.grad.add_(1)",
]  # fmt: skip
IN_LOOPS = [
    "x.detach().mul_(0.5)", "x.detach().flatten().mul_(0.5)", "x.detach()[0] = 0.5",
    "with M.no_grad(): x.mul_(0.5)", "with M.no_grad(): x -= x.mean()",
]  # fmt: skip
LOSS = "(x * 0.7).sum()"
READS = ["x.sum().item()", "x.tolist()", "float(y.mean())", "bool((x > 0).any())", "x.grad is None"]


# What stands for a step that PyTorch refuses.
_OTHERS = {"new": "x.reshape(-1)[:1] * 1", "read": "x.ndim"}


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
        kind = rng.choices(["new", "write", "step", "read"], [42, 38, 8, 12])[0]
        texts = {"new": NEW + VIEWS, "write": WRITES, "step": STEPS, "read": READS}[kind]
        steps.append(Step(kind, rng.randrange(count), rng.randrange(count), rng.choice(texts)))
        count += kind == "new"
    return steps


def drawn_loop(rng: random.Random) -> list[Step]:
    """A program that ends in an unrolled loop: it gathers losses, writes without gradients, and
    looks at what it made last.
    """
    steps = drawn(rng)[: rng.randint(0, 4)]
    count = 3 + sum(step.kind == "new" for step in steps)
    texts = {
        "new": NEW + VIEWS, "write": WRITES + IN_LOOPS, "step": STEPS, "read": READS,
        "loss": [LOSS],
    }  # fmt: skip

    def position() -> int:
        return -rng.randint(1, 3) if rng.random() < 0.4 else rng.randrange(count)

    body: list[Step] = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.choices(list(texts), [34, 30, 12, 10, 14])[0]
        of = "new" if kind == "loss" else kind
        body.append(Step(of, position(), position(), rng.choice(texts[kind])))
    return steps + body * rng.randint(2, 7)


def outcome(
    library: Any, steps: list[Step], seed: int, reached: list[int] | None = None
) -> tuple[Any, ...]:
    """What requires a gradient, what is a leaf, the values, the gradients, and what was read. The
    number of the step that runs is in `reached`.
    """
    reached = [] if reached is None else reached
    draw = np.random.default_rng(seed).standard_normal
    leaves = [
        library.tensor(draw(shape).astype(np.float32)).requires_grad_()
        for shape in [(3, 4), (2, 2)]
    ]
    tensors = [leaves[0], library.tensor(draw((3, 4)).astype(np.float32)), leaves[1] * 1]
    optimizer = library.optim.SGD(leaves, lr=0.1, momentum=0.5)
    rest = {"M": library, "I": library.tensor([0, 1]), "optimizer": optimizer, "leaf": leaves[0]}
    read: list[Any] = []
    for place, step in enumerate(steps):
        reached[:] = [place]
        names = {"x": tensors[step.first], "y": tensors[step.second], **rest}
        if step.kind == "new":
            tensors.append(eval(step.text, names))
        elif step.kind == "read":
            read.append(eval(step.text, names))
        else:
            exec(step.text, names)
    reached.clear()
    kinds = [
        (each.requires_grad, each.is_leaf, tuple(each.shape), each.element_size())
        for each in tensors
    ]
    total = sum((each * 0.3).sum() for each in tensors if each.requires_grad)
    if not isinstance(total, int):
        total.backward()
    values = [each.detach().numpy() for each in tensors]
    return kinds, values, [_gradient(each) for each in (*leaves, *tensors) if each.is_leaf], read


def accepted(library: Any, steps: list[Step], seed: int) -> tuple[list[Step], tuple[Any, ...]]:
    """The program with others instead of the steps that `library` refuses, and its outcome.

    Raises RuntimeError for a program whose gradients are refused.
    """
    while True:
        reached: list[int] = []
        try:
            return steps, outcome(library, steps, seed, reached)
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError) as error:
            # Not even another step may do where a view has become none.
            if not reached or steps[reached[0]].text in _OTHERS.values():
                raise RuntimeError("the gradients are refused") from error
            (place,) = reached
            text = _OTHERS.get(steps[place].kind, "x.ndim")
            steps = [*steps[:place], steps[place]._replace(text=text), *steps[place + 1 :]]


def _gradient(leaf: Any) -> np.ndarray:
    """Nothing that reaches a leaf is a gradient of zeros."""
    made: np.ndarray = np.zeros(tuple(leaf.shape)) if leaf.grad is None else leaf.grad.numpy()
    return made


def _close(mine: Any, theirs: Any) -> bool:
    return np.shape(mine) == np.shape(theirs) and np.allclose(mine, theirs, 2e-3, 2e-3, True)


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(16))
def test_random_programs_do_what_they_do_in_pytorch(block: int) -> None:
    _compare(drawn, range(block * 150, block * 150 + 150))


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(8))
def test_random_loops_do_what_they_do_in_pytorch(block: int) -> None:
    _compare(drawn_loop, range(block * 150, block * 150 + 150))


def _compare(draw: Callable[[random.Random], list[Step]], seeds: range) -> None:
    """Compare the programs drawn with `seeds`; those that tilegrad refuses are left out, as nothing
    is wrong there without a word.
    """
    torch = pytest.importorskip("torch")
    compared = 0
    for seed in seeds:
        steps = draw(random.Random(seed))
        try:
            steps, theirs = accepted(torch, steps, seed)
        except RuntimeError:
            continue
        if not all(np.isfinite(each).all() for each in (*theirs[1], *theirs[2])):
            continue
        try:
            mine = outcome(ours, steps, seed)
        except TilegradError:
            continue
        compared += 1
        assert mine[0] == theirs[0], (seed, steps)
        for number in (1, 2, 3):
            pairs = zip(mine[number], theirs[number], strict=True)
            assert all(_close(a, b) for a, b in pairs), (seed, number, steps)
    assert compared > 20
