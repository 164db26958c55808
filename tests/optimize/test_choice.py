"""Of several proposals the cheapest is taken, where it is clearly cheaper."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from functools import partial

import pytest

from tests.optimize.kernels import buffer, matmul, permute
from tests.optimize.test_search import CPU, MATMUL, of_cpu
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.accesses import open_share
from tilegrad.optimize.generators.choice import choose
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start

ONE, TILE = [Opt(OptOps.UPCAST, 0, 2)], [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.UPCAST, 0, 8)]


def chosen(lists: list[list[Opt]], **limits: float) -> tuple[Opt, ...]:
    shaper = Shaper(MATMUL, CPU)

    def apply(opts: list[Opt]) -> None:
        shaper.ast = apply_opts(shaper.ast, opts, CPU)

    choose(shaper, [partial(apply, opts) for opts in lists], **limits)
    found: tuple[Opt, ...] = shaper.ast.arg.opts
    return found


def test_the_least_estimate_is_taken() -> None:
    assert chosen([ONE, TILE, []]) == tuple(TILE)
    assert chosen([TILE, ONE]) == tuple(TILE)


def test_the_first_stays_where_none_is_clearly_better() -> None:
    found = [estimate(apply_opts(MATMUL, opts, CPU), CPU) for opts in (ONE, TILE)]
    prices = [each.cycles + each.code * CPU.timing.code for each in found]
    share = prices[1] / prices[0]
    assert chosen([ONE, TILE], share=0.99 * share) == tuple(ONE)
    assert chosen([ONE, TILE], share=1.01 * share) == tuple(TILE)


def test_what_is_soon_compiled_is_taken_where_it_is_nearly_as_fast() -> None:
    """A tile saves cycles of each launch, and costs instructions that are compiled once."""
    tile, row = TILE, [TILE[0]]
    large, small = (estimate(apply_opts(MATMUL, opts, CPU), CPU) for opts in (tile, row))
    assert large.code > 3 * small.code
    saved, spent = small.cycles - large.cycles, large.code - small.code
    for code, expected in ((0.5 * saved / spent, tile), (2 * saved / spent, row)):
        target = replace(CPU, timing=replace(CPU.timing, code=code))
        shaper = Shaper(MATMUL, target)

        def apply(opts: list[Opt], shaper: Shaper = shaper) -> None:
            shaper.ast = apply_opts(shaper.ast, opts, shaper.target)

        choose(shaper, [partial(apply, opts) for opts in (tile, row)], share=1.0)
        assert shaper.ast.arg.opts == tuple(expected)


def test_a_first_one_that_is_as_good_as_any_is_taken_unseen() -> None:
    cycles = estimate(apply_opts(MATMUL, ONE, CPU), CPU).cycles
    assert chosen([ONE, TILE], least=0.9 * cycles) == tuple(ONE)


def test_a_copy_is_read_from_memory_too() -> None:
    """16 MB, as they lie and through a copy of some at a time."""
    graph = of_cpu(buffer(0, 1 << 22) * 2.0)
    copied = apply_opts(graph, [Opt(OptOps.TILE, 0, 1 << 12), Opt(OptOps.STAGE, 0, 1)], CPU)
    assert estimate(copied, CPU).traffic[2] >= estimate(graph, CPU).traffic[2]


@pytest.mark.parametrize("seed", range(20))
def test_open_copies_are_counted(seed: int) -> None:
    """As by trying all positions."""
    choice = random.Random(seed)
    axes = [UOp.range(choice.randint(2, 9), n, Axis.UPCAST) for n in range(choice.randint(1, 3))]
    steps = [choice.choice([-3, -2, -1, 1, 2, 5]) for _ in axes]
    low, high = sorted(choice.sample(range(-12, 20), 2))
    at = sum((axis * step for axis, step in zip(axes, steps)), UOp.const(dtypes.index, 0))
    extents = [int(axis.vmax) + 1 for axis in axes]
    values = [
        sum(map(math.prod, zip(steps, each))) for each in itertools.product(*map(range, extents))
    ]
    expected = sum(low <= value < high for value in values) / len(values)
    assert open_share((at >= low) & (at < high), {}) == pytest.approx(expected)
    # Vectors along the first axis: one is left out where all of its lanes are closed.
    width = next(number for number in (4, 3, 2, 1) if extents[0] % number == 0)
    lanes = itertools.product(range(0, extents[0], width), *map(range, extents[1:]))
    spans = [
        [sum(map(math.prod, zip(steps, (first + lane, *rest)))) for lane in range(width)]
        for first, *rest in lanes
    ]
    expected = sum(max(each) >= low and min(each) < high for each in spans) / len(spans)
    found = open_share((at >= low) & (at < high), {axes[0]: width})
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("extents", [(768, 8192, 800), (800, 768, 8192), (3, 1 << 20, 1 << 20)])
def test_the_open_share_of_a_long_sum_is_not_counted_one_by_one(extents: tuple[int, ...]) -> None:
    """Axes that count on from each other are one, in whatever order the longest stands."""
    axes = [UOp.range(extent, number) for number, extent in enumerate(extents)]
    at, total = UOp.const(dtypes.index, 0), 1
    for axis, extent in zip(axes, extents, strict=True):
        at, total = at * extent + axis, total * extent
    assert open_share(at < total - total // 4, {}) == pytest.approx(0.75, rel=1e-9)


def test_a_product_that_is_summed_is_one_instruction() -> None:
    plain = estimate(MATMUL, CPU)
    (total,) = [node for node in MATMUL.toposort() if node.op is Ops.REDUCE]
    assert plain.flops == math.prod(loop.vmax + 1 for loop in (*total.ranges, *total.src[1:]))


def product(m: int, k: int, n: int) -> UOp:
    """The kernel of `x @ w.T`, with parameters 1 and 2."""
    return of_cpu(matmul(buffer(0, m, k), permute(buffer(1, n, k), 1, 0)))


def test_a_contraction_tile_needs_few_rows() -> None:
    """With many, its operands come from a farther cache for each tile."""
    for rows, is_contraction in ((4, True), (256, False)):
        opts = heuristic(start(product(rows, 3072, 768), CPU), CPU)
        unrolled = [opt.arg for opt in opts if opt.op is OptOps.UNROLL]
        assert (max(unrolled, default=0) >= CPU.lanes_of(dtypes.float)) is is_contraction


def test_copies_that_are_made_beforehand_cost_nothing() -> None:
    kernel = start(product(8, 768, 3072), CPU)
    assert not any(opt.op is OptOps.STAGE for opt in heuristic(kernel, CPU))
    assert [opt.arg for opt in heuristic(kernel, CPU, {2}) if opt.op is OptOps.STAGE] == [2]


def test_accumulators_in_memory_are_loaded_and_stored() -> None:
    """A reduce loop around the outputs adds to all of them in each iteration."""
    kernel = product(512, 1024, 512)
    plain, tiled = (
        estimate(apply_opts(kernel, opts, CPU), CPU)
        for opts in (
            [Opt(OptOps.UPCAST, 1, 16)],
            [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.TILE, 2, 32)],
        )
    )
    steps, vectors = 1024 // 32, 512 * 512 // 16
    assert tiled.instructions - plain.instructions >= 3 * (steps - 1) * vectors


def test_of_what_is_a_little_too_much_for_a_cache_most_stays() -> None:
    """A vector is used by all rows. These pass once: 4 bytes of each for an element of it."""
    half = CPU.second_bytes // 2 // 4
    near, far = (
        estimate(product(256, count, 1), CPU).traffic[1] / count - 4 * 256
        for count in (half * 21 // 40, 8 * half)
    )
    assert near < far / 4


def test_a_mask_of_the_last_iteration_is_no_mask_of_the_others() -> None:
    """The last iteration is peeled (lower.peel). Vectors of rows of 4,000 bytes cross lines, which
    counts; two comparisons for each would double the instructions.
    """
    whole, padded = (
        estimate(apply_opts(product(8, count, 300), opts, CPU), CPU).instructions
        for count, opts in (
            (1008, [Opt(OptOps.UNROLL, 0, 16)]),
            (1000, [Opt(OptOps.PADTO, 2, 16), Opt(OptOps.UNROLL, 0, 16)]),
        )
    )
    assert padded < whole * 1.5


@pytest.mark.parametrize("device", ["NULL:AARCH64", "NULL:RISCV"])
def test_a_gate_that_counts_over_lanes_is_one_for_all_of_them(device: str) -> None:
    """Sorting a permutation stores behind such a gate; the price of the branches was asked of no
    lanes where vectors have no masks.
    """
    with Context(DEVICE=device, DISABLE_COMPILER_CACHE=1):
        Tensor.randperm(17).sort()[0].cast("int32").realize()
