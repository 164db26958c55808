"""Which axis the lanes of a reduce run along."""

from __future__ import annotations

import numpy as np

from tests.optimize.test_rows import loop
from tests.schedule.plans import kernel_of, kernels, plan
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import recording
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.args import KernelInfo
from tilegrad.optimize.analysis.stream_facts import asks_position, score
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import start
from tilegrad.target import Target


def test_no_number_of_small_rows_makes_up_for_a_gather() -> None:
    """The mean of embedded rows, normalised by numbers of each row: features are neighbours in
    memory, the rows of the table are anywhere.
    """
    i, j, k = loop(32, 0), loop(64, 1), loop(32, 2, Axis.REDUCE)
    words = UOp(Ops.DEFINE_GLOBAL, dtypes.int.ptr(1024), (), 1)
    word = UOp(Ops.CAST, dtypes.index, (UOp(Ops.LOAD, dtypes.int, (words, i * 32 + k)),))
    table = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(2000 * 64), (), 2)
    value = UOp(Ops.LOAD, dtypes.float, (table, word * 64 + j))
    for slot in range(3, 9):
        rows = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1024), (), slot)
        value = value * UOp(Ops.LOAD, dtypes.float, (rows, i * 32 + k))
    fold = UOp(Ops.REDUCE, dtypes.float, (value, k), Ops.ADD)
    assert score(fold, j) > score(fold, k)


def test_gathered_rows_are_not_copied_first() -> None:
    """A sum of 64 embedded rows, each index checked against the table: a gate that depends on data
    is no padding, and a copy would be of elements that nobody uses twice.
    """
    table = Tensor(np.zeros((500, 64), np.float32)).realize()
    index = Tensor(np.zeros((32, 64), np.int64)).realize()
    with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
        table[index].sum(1).realize()
    texts = [each.after for each in record if each.name == "render"]
    assert texts and not any("scratch" in text for text in texts)


def test_lanes_that_gather_are_those_of_half_a_wide_vector() -> None:
    """Positions of 8 bytes are taken out of vectors of 4, however wide the machine's vectors are;
    the values that they load do not change.
    """
    i = loop(64, 0)
    out, words, table = (
        UOp(Ops.DEFINE_GLOBAL, dtype.ptr(64), (), slot)
        for slot, dtype in enumerate((dtypes.float, dtypes.long, dtypes.float))
    )
    word = UOp(Ops.CAST, dtypes.index, (words.load(i),))
    ast = UOp(Ops.SINK, arg=KernelInfo("E", (0,)), src=(out.store(i, table.load(word % 64)),))
    widest = {}
    for gather_bytes in (0, 32):
        target = Target("cpu", vector_bytes=64, gather_bytes=gather_bytes)
        _, program = to_program(ast, target, (Opt(OptOps.UPCAST, 0, 32),))
        loads = [node for node in program if node.op is Ops.LOAD]
        widest[gather_bytes] = max(load.dtype.lanes for load in loads)
    assert widest == {0: 8, 32: 4}


def test_a_short_row_that_vectors_do_not_divide_is_one_iteration() -> None:
    """Reversed rows of 39 elements on vectors of four without masks. A loop over chunks whose last
    one begins earlier would compute the start of each.
    """
    target = Target("plain", vector_bytes=16, threads=1)
    kernel = start(kernel_of(Tensor.empty(5000, 39).realize().flip(1) + 0.0, target), target)
    program = to_program(kernel, target, heuristic(kernel, target))[1]
    assert [node.extent.arg for node in program if node.op is Ops.RANGE] == [5000]
    stores = [node for node in program if node.op is Ops.STORE]
    assert [node.value.dtype.lanes for node in stores] == [4] * 10


def test_a_few_columns_are_unrolled_without_lanes() -> None:
    """Poolings of 9x9 to 3x3: three columns are no vector, and a loop over them takes longer."""
    target = Target("wide", vector_bytes=64, registers=32, threads=1, has_mask=True)
    x = Tensor.empty(4, 66, 9, 9).realize()
    kernel = start(kernel_of(x.avg_pool2d(2, 3), target), target)
    program = to_program(kernel, target, heuristic(kernel, target))[1]
    assert [node.extent.arg for node in program if node.op is Ops.RANGE] == [4 * 66 * 3]


def test_added_rows_go_all_along_their_pages_before_the_next() -> None:
    """Eight rows of 4 KiB at a time, or as many as divide their number, instead of a vector of each
    of all 220: with masks, and without them where vectors do not divide a row.
    """
    rows = Tensor(np.arange(220) % 400).realize()
    for columns, has_mask in ((1024, True), (1021, True), (1021, False)):
        nbytes = 64 if has_mask else 16
        target = Target("wide", vector_bytes=nbytes, registers=16, threads=0, has_mask=has_mask)
        x, y = (Tensor.empty(n, columns).realize() for n in (400, 220))
        ast = kernels(plan(x.index_add(0, rows, y), target=target))[-1].ast
        assert ast is not None
        opts = heuristic(start(ast, target), target)
        assert [opt.arg for opt in opts if opt.op is OptOps.TILE] == [5]
        lanes = max(opt.arg for opt in opts if opt.op is OptOps.UPCAST)
        assert lanes >= nbytes // 4
        assert (opts[0].op is OptOps.PADTO) == (columns % lanes > 0)


def test_rows_are_added_in_order_whatever_their_tile() -> None:
    """Sums by row, with rows that come more than once and columns that vectors do not divide."""
    random = np.random.default_rng(3)
    x, y = (random.standard_normal((n, 301), dtype=np.float32) for n in (24, 352))
    rows = random.integers(0, 24, 352)
    expected = x.copy()
    np.add.at(expected, rows, y)
    found = Tensor(x).realize().index_add(0, Tensor(rows).realize(), Tensor(y).realize())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_reductions_that_share_their_loops_have_lanes_along_one() -> None:
    """One reads along rows, the other along columns as well: unrolled along both, each term would
    be computed by itself.
    """
    target = Target(name="wide", vector_bytes=64, registers=32, has_fma=True, has_mask=True)
    i, j = loop(64, 0), loop(16, 1, Axis.REDUCE)
    k = loop(16, 2, Axis.REDUCE)
    out, total, a, b = (
        UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(size), (), slot)
        for slot, size in enumerate((64, 64, 64 * 256, 64 * 256))
    )
    down, along = a.load(i * 256 + k * 16 + j), b.load(i * 256 + j * 16 + k)
    first = UOp(Ops.REDUCE, dtypes.float, (down, j, k), Ops.ADD)
    second = UOp(Ops.REDUCE, dtypes.float, (down * along, j, k), Ops.ADD)
    stores = out.store(i, first), total.store(i, second)
    ast = UOp.sink(*stores, arg=KernelInfo("r", (0, 1, 2)))
    found = [opt for opt in heuristic(start(ast, target), target) if opt.op is OptOps.UNROLL]
    assert len(found) == 1


def test_conditions_on_loaded_values_unroll_no_row() -> None:
    """A row of 256 labels that are compared with a limit: no iteration knows them before it runs,
    but each knows whether it is beyond half of the row.
    """
    target = Target("lanes", vector_bytes=64, has_mask=True)
    i = loop(256, 0)
    out, words, table = (
        UOp(Ops.DEFINE_GLOBAL, dtype.ptr(256), (), slot)
        for slot, dtype in enumerate((dtypes.float, dtypes.long, dtypes.float))
    )
    word = UOp(Ops.CAST, dtypes.index, (words.load(i),))
    other = UOp.const(dtypes.float, 0)
    loads = {
        condition: UOp(Ops.LOAD, dtypes.float, (table, i, other, gate))
        for condition, gate in (("value", word < 10), ("position", i < 128))
    }
    assert not asks_position(loads["value"], i)
    assert asks_position(loads["position"], i)
    shapes = {
        condition: start(
            UOp(Ops.SINK, arg=KernelInfo("E", (0,)), src=(out.store(i, load),)), target
        )
        for condition, load in loads.items()
    }
    unrolled = {
        condition: [opt.arg for opt in heuristic(ast, target) if opt.op is OptOps.UPCAST]
        for condition, ast in shapes.items()
    }
    assert unrolled["position"] == [256]
    assert unrolled["value"] and max(unrolled["value"]) <= 64
