"""Long sums go in levels: what is rendered has no accumulator of many terms, and errors show it."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_heuristic_stages import one_kernel, run
from tests.schedule.plans import kernel_of, plan
from tilegrad import Context, Device, Tensor, Variable, dtypes
from tilegrad.base.errors import OptError
from tilegrad.engine.program.stages import lowered
from tilegrad.hardware import cuda_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.levels import MOST_TERMS, block_length
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opt, apply_opts, start
from tilegrad.optimize.search.actions import actions
from tilegrad.target import Target

CPU = Device["CPU"].target
# Half an ulp, relative: what one rounding may do.
UNIT = 2.0**-24
# A sum of up to 10^8 equal numbers, of which 512 in one accumulator round to one side at worst: 86
# were measured, whatever the length.
WORST = 128


def most_terms(program: list[UOp]) -> int:
    """How many terms the busiest accumulator takes, by the loops between it and its assignments."""
    loops: list[UOp] = []
    depth: dict[UOp, int] = {}
    found = 0
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
        elif node.op is Ops.END:
            loops.pop()
        elif node.op is Ops.DEFINE_ACC:
            depth[node] = len(loops)
        elif node.op is Ops.ASSIGN:
            inside = loops[depth[node.src[0]] :]
            found = max(found, math.prod(int(loop.src[0].vmax) for loop in inside))
    return found


def program_of(value: Tensor, opts: list[Opt] | None = None, target: Target = CPU) -> list[UOp]:
    return program_of_kernel(kernel_of(value, target), opts, target)


def program_of_kernel(ast: UOp, opts: list[Opt] | None, target: Target) -> list[UOp]:
    shaped = start(ast, target)
    return lowered(
        apply_opts(shaped, heuristic(shaped, target) if opts is None else opts, target), target
    )[1]


def off_by(found: Any, expected: Any) -> float:
    """The largest relative error, in roundings."""
    exact = np.asarray(expected, np.float64)
    return float(np.max(np.abs(np.asarray(found, np.float64) - exact) / np.abs(exact))) / UNIT


@pytest.mark.parametrize("terms", [513, 65_536, 65_537, 10**6, 10**8, 2**31])
def test_a_block_is_short_and_so_are_its_levels(terms: int) -> None:
    assert 128 <= block_length(terms) <= 256


@pytest.mark.parametrize("shape", [(100_000,), (100_003,), (40_000, 2), (7, 99_991)])
@pytest.mark.parametrize("is_plain", [True, False])
def test_no_accumulator_takes_many_terms(shape: tuple[int, ...], is_plain: bool) -> None:
    x = Tensor.empty(*shape)
    for axis in range(len(shape)):
        opts = [] if is_plain else None
        for target in (CPU, cuda_target("sm_80")):
            for item in plan(x.sum(axis), target=target).items:
                assert item.ast is not None
                assert most_terms(program_of_kernel(item.ast, opts, target)) <= MOST_TERMS


def test_a_product_of_long_rows_is_summed_in_levels() -> None:
    found = program_of(Tensor.empty(16, 100_000) @ Tensor.empty(100_000, 32))
    assert most_terms(found) <= MOST_TERMS


def test_a_short_sum_has_one_loop() -> None:
    found = program_of(Tensor.empty(4, MOST_TERMS).sum(1), [])
    assert sum(node.op is Ops.RANGE for node in found) == 2


def test_whole_numbers_have_one_accumulator() -> None:
    found = program_of(Tensor.empty(100_000, dtype=dtypes.int64).sum(), [])
    assert sum(node.op is Ops.DEFINE_ACC for node in found) == 1


@pytest.mark.parametrize("length", [1, 511, 513, 1_000, 99_991])
def test_a_symbolic_length(length: int) -> None:
    n = Variable("n", 1, 100_000).bind(length)
    x = Tensor(np.full((100_000, 2), 0.1, np.float32)).realize()
    found = x.shrink([(0, n), (0, 2)]).sum(0)
    assert off_by(found.numpy(), length * np.float64(np.float32(0.1))) < WORST


TALL = np.full((60_011, 6), 0.1, np.float32)
LEFT, RIGHT = np.full((8, 30_011), 0.1, np.float32), np.full((30_011, 12), 0.1, np.float32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["columns", "rows", "product"])
def test_whatever_the_opts(name: str, seed: int) -> None:
    """Random lists of Opts: tiles, whose accumulators are in memory, and packed operands."""
    inputs = {"columns": [TALL], "rows": [np.ascontiguousarray(TALL.T)], "product": [LEFT, RIGHT]}[
        name
    ]
    compute: Any = {
        "columns": lambda x: x.sum(0), "rows": lambda x: x.sum(1), "product": lambda x, y: x @ y
    }[name]  # fmt: skip
    wide = [each.astype(np.float64) for each in inputs]
    expected = {"columns": lambda: wide[0].sum(0), "rows": lambda: wide[0].sum(1),
                "product": lambda: wide[0] @ wide[1]}[name]()  # fmt: skip
    ast, arrays = one_kernel(compute, *inputs)
    shaped, chosen, draw = start(ast, CPU), list[Opt](), random.Random(seed)
    for _ in range(4):
        by_kind: dict[OptOps, list[Opt]] = {}
        for opt in actions(shaped, CPU):
            by_kind.setdefault(opt.op, []).append(opt)
        if not by_kind:
            break
        opt = draw.choice(by_kind[draw.choice(list(by_kind))])
        try:
            shaped = apply_opt(shaped, opt, CPU)
        except OptError:
            continue
        chosen.append(opt)
    assert off_by(run(ast, arrays, chosen), expected) < WORST, chosen


def test_a_sum_in_memory_goes_in_levels() -> None:
    """A tiled axis runs outside of the outputs, whose accumulators are an array."""
    ast, arrays = one_kernel(lambda x: x.sum(0), TALL[:60_000])
    reduced = [
        number for number, opt in enumerate(actions(start(ast, CPU), CPU)) if opt.op is OptOps.TILE
    ]
    assert reduced
    tiles = [opt for opt in actions(start(ast, CPU), CPU) if opt.op is OptOps.TILE]
    for opt in tiles:
        found = run(ast, [np.full(6, np.nan, np.float32), *arrays[1:]], [opt])
        assert off_by(found, TALL[:60_000].astype(np.float64).sum(0)) < WORST, opt


@pytest.mark.parametrize("switch", ["default", "NOOPT"])
def test_an_infinity_stays_one(switch: str) -> None:
    x = np.ones(100_000, np.float32)
    x[77_777] = np.inf
    with Context(NOOPT=int(switch == "NOOPT")):
        assert Tensor(x).sum().item() == np.inf
