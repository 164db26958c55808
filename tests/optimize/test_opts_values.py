"""Values are the same whatever Opts shape a kernel."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.optimize.kernels import (
    FLOAT,
    HALF,
    buffer,
    conv2d,
    expand,
    matmul,
    opt,
    pad,
    reduce,
    run,
    running,
    schedule,
    shaped,
    shrink,
    softmax,
)
from tests.optimize.test_opts import GROUP, GROUPTOP, LOCAL, PADTO, SWAP, TC, UNROLL, UPCAST
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, axes_of, reduce_axes


def _integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


CASES = {
    "row sum": (reduce(Ops.ADD, buffer(0, 8, 16), 1), {0: _integers(8, 16)}),
    "column max": (reduce(Ops.MAX, buffer(0, 16, 6), 0), {0: _integers(16, 6)}),
    "add": (
        buffer(0, 16, 3) + expand(buffer(1, 1, 3), 16, 3),
        {0: _integers(16, 3), 1: _integers(3)},
    ),
    "matmul": (
        matmul(buffer(0, 8, 12), buffer(1, 12, 16)),
        {0: _integers(8, 12), 1: _integers(12, 16, seed=1)},
    ),
    "conv": (
        conv2d(buffer(0, 1, 4, 8, 8), buffer(1, 4, 4, 3, 3), padding=1),
        {0: _integers(1, 4, 8, 8), 1: _integers(4, 4, 3, 3)},
    ),
    "padded": (
        pad(shrink(buffer(0, 9, 7), (1, 9), (0, 6)), (0, 0), (1, 1)) * 2.0,
        {0: _integers(9, 7)},
    ),
    "softmax": (softmax(buffer(0, 64, 8)), {0: _integers(64, 8)}),
    "half matmul": (
        matmul(buffer(0, 32, 32, dtype=HALF), buffer(1, 32, 16, dtype=HALF), total=FLOAT),
        {0: _integers(32, 32), 1: _integers(32, 16, seed=1)},
    ),
    "running sum": (running(Ops.ADD, buffer(0, 6, 12), 1), {0: _integers(6, 12)}),
    "running maximum": (running(Ops.MAX, buffer(0, 12, 10), 0) * 2.0, {0: _integers(12, 10)}),
    "two sums": (
        reduce(Ops.ADD, buffer(0, 4, 16), 1) * reduce(Ops.MAX, buffer(1, 4, 8), 1),
        {0: _integers(4, 16), 1: _integers(4, 8)},
    ),
}


def _actions() -> list[Opt]:
    """The moves of the notes' search: 129 of them."""
    found = [opt(UPCAST, axis, arg) for axis in range(6) for arg in (0, 2, 3, 4, 5, 7)]
    found += [opt(UNROLL, axis, arg) for axis in range(5) for arg in (0, 4, 7)]
    found += [opt(LOCAL, axis, arg) for axis in range(6) for arg in (2, 3, 4, 8, 13, 16, 29)]
    tops = (13, 16, 28, 29, 32, 49, 64, 256)
    found += [opt(GROUPTOP, axis, arg) for axis in range(3) for arg in tops]
    return found + [opt(GROUP, axis, arg) for axis in range(3) for arg in (0, 4, 8, 16)]


@pytest.mark.row("R4.10")
@pytest.mark.parametrize("case", CASES)
def test_every_legal_action_keeps_the_values(case: str) -> None:
    value, inputs = CASES[case]
    plan = schedule(value)
    wanted = run(plan, inputs, ())
    actions = _actions()
    assert len(actions) == 129
    legal = 0
    for action in actions:
        try:
            found = run(plan, inputs, [action])
        except OptError:
            continue
        legal += 1
        assert np.allclose(found, wanted, rtol=1e-5), action
    assert legal >= 3


def _next_moves(ast: UOp) -> list[Opt]:
    """Moves that may be legal on a kernel."""
    moves = [opt(TC, choice, (0, mode)) for choice in (0, 1) for mode in (1, 2)] * 8
    for axis, loop in enumerate(axes_of(ast)):
        extent = loop.src[0].arg
        amounts = [amount for amount in (2, 3, 4, 8) if extent % amount == 0 and amount <= extent]
        moves += [opt(kind, axis, amount) for kind in (UPCAST, LOCAL) for amount in amounts]
        moves += [opt(PADTO, axis, amount) for amount in (4, 5) if extent % amount]
        moves += [opt(SWAP, axis, other) for other in range(axis)]
    for axis, loop in enumerate(reduce_axes(ast)):
        extent = loop.src[0].arg
        amounts = [amount for amount in (2, 3, 4, 8) if extent % amount == 0 and amount <= extent]
        kinds = (UNROLL, GROUP, GROUPTOP)
        moves += [opt(kind, axis, amount) for kind in kinds for amount in amounts]
    return moves


def _check_random_moves(case: str, seed: int, length: int) -> None:
    value, inputs = CASES[case]
    plan = schedule(value)
    wanted = run(plan, inputs, ())
    choice = random.Random(seed)
    (item,) = plan.items
    taken: list[Opt] = []
    for _ in range(length):
        assert item.ast is not None
        moves = _next_moves(shaped(item.ast, taken))
        choice.shuffle(moves)
        for move in moves:
            try:
                ast = shaped(item.ast, [*taken, move])
            except OptError:
                continue
            written = [axis for axis in axes_of(ast) if axis.arg[1] in (Axis.UPCAST, Axis.UNROLL)]
            if np.prod([axis.src[0].arg for axis in written]) <= 64:
                taken.append(move)
                break
    found = run(plan, inputs, taken)
    assert np.allclose(found, wanted, rtol=1e-5), taken


@pytest.mark.parametrize(("case", "seed"), list(itertools.product(CASES, range(3))))
def test_random_moves_keep_the_values(case: str, seed: int) -> None:
    _check_random_moves(case, seed, 5)


@pytest.mark.nightly
@pytest.mark.parametrize(("case", "seed"), list(itertools.product(CASES, range(97, 160))))
def test_many_random_moves_keep_the_values(case: str, seed: int) -> None:
    _check_random_moves(case, seed, 8)
