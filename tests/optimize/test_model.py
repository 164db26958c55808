"""The estimate of a kernel's time: its parts, and the line that explains a shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.optimize.kernels import buffer, permute
from tests.optimize.test_search import CPU, MATMUL, SUM, of_cpu
from tests.schedule.plans import kernel_of
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.hardware import hip_target
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import lane_axes
from tilegrad.lower.lower import lower
from tilegrad.optimize.analysis.accesses import access_of
from tilegrad.optimize.analysis.footprint import chunks_of, step_of
from tilegrad.optimize.model.explain_opts import explain
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start

UPCAST, THREAD = OptOps.UPCAST, OptOps.THREAD
SWAPPED = Opt(OptOps.SWAP, 0, 1)


def test_a_slower_memory_moves_only_its_own_part() -> None:
    slow = replace(CPU, timing=replace(CPU.timing, byte=(1 / 128, 1 / 48, 1 / 12, 100.0)))
    graph = of_cpu(buffer(0, 1 << 24) * 2.0)
    before, after = estimate(graph, CPU), estimate(graph, slow)
    assert after.binds == "memory" and after.cycles > 10 * before.cycles
    assert {**before.components, "memory": 0} == {**after.components, "memory": 0}


def test_ports_divide_the_issue_of_operations() -> None:
    graph = of_cpu(buffer(0, 1 << 12).alu(Ops.SIN))
    one = replace(CPU, timing=replace(CPU.timing, ports=1))
    assert estimate(graph, one).issue == pytest.approx(2 * estimate(graph, CPU).issue, rel=0.2)


def test_a_launch_over_threads_costs_what_the_target_says() -> None:
    shaped = apply_opts(MATMUL, [Opt(UPCAST, 1, 16), Opt(THREAD, 0, 8)], CPU)
    assert estimate(shaped, CPU).launch == CPU.timing.launch
    assert estimate(MATMUL, CPU).launch == 0


def test_the_line_names_the_opt_that_earns_least() -> None:
    opts = [Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 4)]
    line = explain(MATMUL, opts, CPU)
    least = min(estimate(apply_opts(MATMUL, [each], CPU), CPU).cycles for each in opts)
    assert line.startswith(f"estimate {estimate(apply_opts(MATMUL, opts, CPU), CPU)}; without ")
    assert line.endswith(f" {least:,.0f}")
    assert "without" not in explain(SUM, [], CPU)


def test_cdna_runs_wider_warps_than_rdna() -> None:
    assert hip_target("gfx90a").warp_lanes == 64
    assert hip_target("gfx1100").warp_lanes == 32


def test_a_loop_whose_last_chunk_begins_earlier_steps_by_a_chunk() -> None:
    chunk, inside = UOp.range(4, 0, Axis.LOOP), UOp.range(16, 1, Axis.LOOP)
    index = simplify(((chunk * 16).minimum(37) + inside) * 100)
    assert (step_of(index, chunk), step_of(index, inside)) == (1600, 100)
    assert step_of(chunk * chunk, chunk) is None
    assert chunks_of(index, chunk) == 37 / 16 + 1 and chunks_of(index, inside) == 16
    # Padding that repeats the first element is no chunk: all but the first iterations move on.
    assert chunks_of((chunk - 1).maximum(0), chunk) == 4


def test_threads_share_the_last_cache_alone() -> None:
    """Each has a second cache of its own; what the last does not hold is in memory for all."""
    target = replace(CPU, cache_bytes=(32 << 10, 1 << 20, 32 << 20), threads=2)
    for nbytes, levels in ((1536 << 10, [True, False, False]), (24 << 20, [True, True, True])):
        found = estimate(of_cpu(buffer(0, nbytes // 8) * 2.0), target)
        assert [cycles > 0 for cycles in found.levels] == levels


def test_pages_tell_orders_of_a_transpose_apart() -> None:
    """Rows of 16 KiB: with the loop along the columns inside, each load finds its page anew."""
    graph = of_cpu(permute(buffer(0, 4096, 4096), 1, 0))
    along, across = estimate(graph, CPU), estimate(apply_opts(graph, [SWAPPED], CPU), CPU)
    pages = CPU.timing.page * 4096 * 4096
    # Every load or every store, by the order; both orders cost as much.
    assert along.pages > pages and across.pages > pages
    tiled = apply_opts(graph, [Opt(UPCAST, 0, 16), Opt(UPCAST, 1, 16)], CPU)
    assert estimate(tiled, CPU).pages < along.pages / 8
    contiguous = of_cpu(buffer(0, 4096, 4096) * 2.0)
    assert estimate(contiguous, CPU).pages < along.pages / 100


def test_pages_of_a_tile_wait_once_for_each_line_from_memory() -> None:
    """Eight columns of 64 rows at a time: 64 pages, whose lines are read again from a cache."""
    weights = Tensor.empty(8, 1024, 1024).realize()
    values = Tensor.empty(8, 1024, 64).realize()
    product = start(kernel_of(weights.transpose(1, 2) @ values, CPU), CPU)
    shape = [Opt(UPCAST, 2, 32), Opt(UPCAST, 1, 8), Opt(OptOps.TILE, 3, 64), Opt(OptOps.TILE, 0, 1)]
    found = estimate(apply_opts(product, [*shape, Opt(OptOps.STAGE, 0, 2)], CPU), CPU)
    lines = found.traffic[-1] / CPU.line_bytes
    assert found.pages < 1.1 * CPU.timing.page_ahead * lines


@pytest.mark.parametrize(
    ("rows", "columns", "amount"), [(64, 30, 32), (64, 24, 32), (64, 25, 8), (3, 250, 8), (9, 7, 8)]
)
def test_only_vectors_that_are_partly_open_are_masked_stores(
    rows: int, columns: int, amount: int
) -> None:
    """Vectors of eight along padded rows, none across lines; the loop over a long row has its last
    iteration apart.
    """
    target = replace(CPU, vector_bytes=32, has_mask=True)
    slow = replace(target, timing=replace(target.timing, masked_store=12))
    i, j = UOp.range(rows, 0), UOp.range(columns, 1)
    out, x = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(rows * 256), (), n) for n in range(2))
    store = out.store(i * 256 + j, x.load(i * 256 + j) * 2.0)
    graph = UOp.sink(store, arg=KernelInfo("E", (0, 1)))
    shaped = apply_opts(graph, [Opt(OptOps.PADTO, 1, amount), Opt(UPCAST, 1, amount)], target)
    padded = -(-columns // amount) * amount
    opened = [min(max(columns - at, 0), 8) for at in range(0, padded, 8)]
    masked = rows * sum(0 < count < 8 for count in opened)
    before, after = (estimate(shaped, each).issue for each in (target, slow))
    # What else an iteration starts may hide some of a store, but not of twelve.
    assert after - before <= 11 * masked
    assert after - before >= 10 * masked


def test_values_wider_than_a_register_take_several() -> None:
    assert CPU.registers_of(dtypes.float, CPU.lanes_of(dtypes.float)) == 1
    assert CPU.registers_of(dtypes.long, CPU.lanes_of(dtypes.float)) == 2
    assert CPU.registers_of(dtypes.long, 1) == 1


def test_lines_that_are_stored_beside_each_other_crowd_no_set() -> None:
    """Four lines in each iteration are those between the first lines of two iterations."""
    graph = of_cpu(buffer(0, 1 << 16) * 2.0)
    wide = apply_opts(graph, [Opt(UPCAST, 0, 64)], CPU)
    assert estimate(wide, CPU).pages == estimate(graph, CPU).pages


@pytest.mark.parametrize("is_along", [False, True])
def test_elements_that_are_stored_lines_apart_wait_one_by_one(is_along: bool) -> None:
    """Every second column of rows of 8 KiB, by tiles of 16 rows and 16 columns. Lanes along a row
    store two lines at a time, lanes along the columns a line of each row, whose set is full.
    """
    i, j, k = UOp.range(16, 0), UOp.range(1024, 1), UOp.range(64, 2, Axis.REDUCE)
    out, x, w = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1 << 16), (), slot) for slot in range(3))
    lanes, others = (j, i) if is_along else (i, j)
    terms = x.load(k * 1024 + lanes) * w.load(k + others * 64)
    store = out.store(i * 2048 + j * 2, UOp(Ops.REDUCE, dtypes.float, (terms, k), Ops.ADD))
    graph = UOp.sink(store, arg=KernelInfo("r", (0, 1, 2)))
    tile = apply_opts(graph, [Opt(UPCAST, 0, 0), Opt(UPCAST, 0, 16)], CPU)
    # 16 rows of 128 lines, or 16 x 1,024 elements, in one set.
    stored = 16 * 128 if is_along else 16 * 1024
    pages = estimate(tile, CPU).pages
    assert pages == pytest.approx(CPU.timing.crowded_line * stored, rel=0.1)


def test_a_gather_from_a_row_stays_in_its_row() -> None:
    """Rows of 4 KiB stay in the nearest cache, whatever elements are taken."""
    x, ids = Tensor.empty(256, 1024).realize(), Tensor.zeros(256, 2048, dtype=dtypes.int64)
    graph = start(kernel_of(x.gather(1, ids.contiguous().realize()), CPU), CPU)
    second, *_ = estimate(graph, CPU).traffic
    moved = 256 * (1024 * 4 + 2048 * 8 + 2 * 2048 * 4)
    assert moved <= second < 1.2 * moved


@pytest.mark.parametrize("window", [2, 3])
def test_columns_of_a_window_load_their_vectors_once(window: int) -> None:
    """As many vectors as the lowering loads (lower.share_vectors)."""
    x = Tensor.empty(64, 16 * window).realize()
    graph = start(kernel_of(x.reshape(64, 16, window).sum(2), CPU), CPU)
    graph = apply_opts(graph, [Opt(OptOps.UNROLL, 0, 0), Opt(UPCAST, 0, 16)], CPU)
    (load,) = [node for node in graph.toposort() if node.op is Ops.LOAD]
    lanes = lane_axes(graph, CPU.lanes_of, CPU.gather_bytes)
    program = lower(graph, CPU)
    loads = [node for node in program if node.op is Ops.LOAD]
    assert access_of(load, lanes, CPU, 1, None).memory == len(loads) == window


def test_straight_code_waits_for_what_its_window_does_not_hide() -> None:
    """Three vectors of nine terms are more than the window has, and their chain less than it."""
    pooled = kernel_of(Tensor.empty(8, 50, 72).realize().max_pool2d(3, 3))
    unroll = [Opt(OptOps.UNROLL, 0, 0), Opt(OptOps.UNROLL, 0, 0), Opt(UPCAST, 2, 24)]
    target = replace(CPU, vector_bytes=32)
    shaped = apply_opts(start(pooled, target), unroll, target)
    assert estimate(shaped, target).latency == 0
    narrow = replace(target, timing=replace(target.timing, window=16))
    assert estimate(shaped, narrow).latency > 0


def test_straight_code_holds_what_all_steps_load() -> None:
    """Operands that several results share are loaded before the first step."""
    product = kernel_of(Tensor.empty(64, 16).realize() @ Tensor.empty(16, 64).realize())
    tile = [Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 8)]
    target = replace(CPU, vector_bytes=64, registers=16)
    looped = estimate(apply_opts(start(product, target), tile, target), target)
    unrolled = [*tile, Opt(OptOps.UNROLL, 0, 0)]
    straight = estimate(apply_opts(start(product, target), unrolled, target), target)
    assert (looped.registers, looped.spill) == (8 + 2, 0)
    assert straight.registers == 8 + 1 + 16
    assert straight.spill > 0
