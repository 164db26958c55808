"""Folds whose every step is looked at, on a processor: any order of loops gives the same values."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.kernels import buffer, kernel, opt, run, running, schedule, shaped
from tilegrad import Device
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of

CPU = replace(Device["CPU"].target, threads=2)
UPCAST, TILE, THREAD, PADTO = OptOps.UPCAST, OptOps.TILE, OptOps.THREAD, OptOps.PADTO
OVERLAP = OptOps.OVERLAP
CASES = {
    "rows": (running(Ops.ADD, buffer(0, 6, 24), 1), (6, 24)),
    "columns": (running(Ops.ADD, buffer(0, 24, 12), 0), (24, 12)),
    "between": (running(Ops.MAX, buffer(0, 3, 10, 8), 1), (3, 10, 8)),
}


def _moves(ast: UOp) -> list[Opt]:
    moves: list[Opt] = []
    for axis, loop in enumerate(axes_of(ast)):
        amounts = [each for each in (2, 3, 4, 8, 12) if loop.src[0].arg % each == 0]
        moves += [opt(kind, axis, each) for kind in (UPCAST, TILE, THREAD) for each in amounts]
        moves += [opt(PADTO, axis, each) for each in (5, 8)]
        moves += [opt(OptOps.SWAP, axis, other) for other in range(axis)]
        moves.append(opt(TILE, axis, 1))
    return moves


@pytest.mark.parametrize(("case", "seed"), list(itertools.product(CASES, range(8))))
def test_random_moves_keep_the_values(case: str, seed: int) -> None:
    value, shape = CASES[case]
    inputs = {0: np.random.default_rng(0).integers(-4, 5, shape)}
    plan = schedule(value, target=CPU)
    (item,) = plan.items
    assert item.ast is not None
    choice = random.Random(seed)
    taken: list[Opt] = []
    for _ in range(5):
        moves = _moves(shaped(item.ast, taken, CPU))
        choice.shuffle(moves)
        for move in moves:
            try:
                ast = shaped(item.ast, [*taken, move], CPU)
            except OptError:
                continue
            written = [axis.src[0].arg for axis in axes_of(ast) if axis.arg[1] is Axis.UPCAST]
            if np.prod(written) <= 64:
                taken.append(move)
                break
    np.testing.assert_array_equal(run(plan, inputs, taken, CPU), run(plan, inputs, (), CPU))


def test_what_would_change_the_order_is_refused() -> None:
    rows = kernel(running(Ops.ADD, buffer(0, 6, 24), 1), target=CPU)
    with pytest.raises(OptError, match="each iteration of axis 1 follows from the one before"):
        shaped(rows, [opt(THREAD, 1, 2)], CPU)
    with pytest.raises(OptError, match="a scan would combine it twice"):
        shaped(rows, [opt(OVERLAP, 1, 16)], CPU)
    with pytest.raises(OptError, match="a scan in another order"):
        shaped(rows, [opt(TILE, 1, 4), opt(UPCAST, 0, 2)], CPU)
