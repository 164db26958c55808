"""STAGE on the CPU: what is packed, and that no value changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.schedule import plans
from tilegrad import Device, Tensor
from tilegrad.base.dtype import Pointer, dtypes
from tilegrad.base.errors import OptError
from tilegrad.engine.build.pipeline import compile_kernel
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side, axes_of, loop_order
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

SEED = np.random.default_rng(5)
UPCAST, STAGE, SWAP, TILE, UNROLL = (
    OptOps.UPCAST,
    OptOps.STAGE,
    OptOps.SWAP,
    OptOps.TILE,
    OptOps.UNROLL,
)
# The same wherever the tests run.
WIDE = Target(
    "wide", vector_bytes=64, registers=32, threads=2, has_mask=True,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
)  # fmt: skip


def kernel_of(result: Tensor) -> UOp:
    """The one kernel that computes `result` on this machine."""
    return plans.kernel_of(result, Device["CPU"].target)


def run(ast: UOp, opts: list[Opt], shape: tuple[int, ...], *inputs: Any) -> Any:
    backend = Device["CPU"]
    kernel = compile_kernel(ast, backend, opts)
    program = backend.runtime.load(kernel.function, kernel.binary)
    result = np.full(shape, np.nan, np.float32)
    memory = [array.ctypes.data for array in (result, *inputs)]
    backend.runtime.launch(program, memory, (), kernel.global_size, kernel.local_size, wait=True)
    return result


def scratch_sizes(ast: UOp, opts: list[Opt]) -> list[int]:
    shaped = apply_opts(ast, opts, Device["CPU"].target)
    pointers = [node.dtype for node in shaped.toposort() if node.op is Ops.DEFINE_LOCAL]
    return [each.size for each in pointers if isinstance(each, Pointer)]


def correlate(
    x: Any, w: Any, padding: int = 0, stride: int = 1, dilation: int = 1, *, flipped: bool = False
) -> Any:
    """A convolution by its definition, in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    size = w.shape[2]
    reach = dilation * (size - 1)
    height, width = ((extent - reach - 1) // stride + 1 for extent in x.shape[2:])
    total = np.zeros((x.shape[0], w.shape[0], height, width))
    for row in range(size):
        for column in range(size):
            at = (size - 1 - row, size - 1 - column) if flipped else (row, column)
            part = x[:, :, row * dilation :, column * dilation :]
            part = part[:, :, : height * stride : stride, : width * stride : stride]
            total += np.einsum("nchw,oc->nohw", part[:, :, :height, :width], w[:, :, *at])
    return total


ROWS = [Opt(UPCAST, 1, 16), Opt(UPCAST, 3, 4), Opt(SWAP, 1, 2)]


@pytest.mark.parametrize(
    ("padding", "stride", "dilation"), [(0, 1, 1), (1, 1, 1), (2, 1, 2), (1, 2, 1), (0, 2, 1)]
)
def test_a_window_is_packed_once(padding: int, stride: int, dilation: int) -> None:
    size = 7 * stride + 2 * dilation + 1 - 2 * padding
    x = SEED.standard_normal((2, 5, size, size), np.float32)
    w = SEED.standard_normal((32, 5, 3, 3), np.float32)
    result = (
        Tensor(x)
        .realize()
        .conv2d(Tensor(w).realize(), padding=padding, stride=stride, dilation=dilation)
    )
    expected = correlate(x, w, padding, stride, dilation)
    ast = kernel_of(result)
    span = stride * 7 + dilation * 2 + 1
    lanes = Device["CPU"].target.lanes_of(result.dtype)
    for opts, rows in (
        ([*ROWS, Opt(STAGE, 1, 1)], 3),
        ([*ROWS, Opt(STAGE, 0, 1)], span),
        ([*ROWS, Opt(STAGE, -1, 2), Opt(STAGE, 1, 1), Opt(UNROLL, 2, 0)], 3),
    ):
        found = run(ast, opts, expected.shape, x, w)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        step = min(lanes, 1 << (span - 1).bit_length())
        assert 5 * rows * -(-span // step) * step in scratch_sizes(ast, opts)


def test_a_window_that_runs_backwards() -> None:
    x = SEED.standard_normal((2, 4, 8, 8), np.float32)
    w = SEED.standard_normal((32, 4, 3, 3), np.float32)
    result = Tensor(x).realize().conv2d(Tensor(w).realize().flip(2, 3), padding=1)
    expected = correlate(x, w, 1, flipped=True)
    ast = kernel_of(result)
    opts = [*ROWS, Opt(STAGE, 1, 1), Opt(STAGE, -1, 2)]
    np.testing.assert_allclose(run(ast, opts, expected.shape, x, w), expected, rtol=1e-4, atol=1e-4)


def test_a_tile_of_rows_shares_its_window() -> None:
    x = SEED.standard_normal((2, 4, 8, 8), np.float32)
    w = SEED.standard_normal((32, 4, 3, 3), np.float32)
    expected = correlate(x, w, 1)
    ast = kernel_of(Tensor(x).realize().conv2d(Tensor(w).realize(), padding=1))
    opts = [Opt(UPCAST, 1, 16), Opt(UPCAST, 3, 4), Opt(TILE, 2, 4), Opt(STAGE, 1, 1)]
    assert max(scratch_sizes(ast, opts)) == 4 * 6 * 16
    np.testing.assert_allclose(run(ast, opts, expected.shape, x, w), expected, rtol=1e-4, atol=1e-4)


def test_matrices_have_no_windows() -> None:
    # A depth of whole vectors for every width: a tile that is turned would be rounded up to them.
    a = SEED.standard_normal((8, 16), np.float32)
    b = SEED.standard_normal((16, 32), np.float32)
    ast = kernel_of(Tensor(a).realize() @ Tensor(b).realize())
    opts = [Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 4), Opt(STAGE, -1, 2), Opt(STAGE, 0, 1)]
    assert sorted(scratch_sizes(ast, opts)) == [4 * 16, 16 * 32]
    np.testing.assert_allclose(
        run(ast, opts, (8, 32), a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5
    )


def test_the_heuristic_leaves_no_gate_where_the_work_is() -> None:
    x, w = Tensor.empty(8, 64, 28, 28).realize(), Tensor.empty(64, 64, 3, 3).realize()
    ast = kernel_of(x.conv2d(w, padding=1))
    target = Device["CPU"].target
    opts = heuristic(ast, target)
    shaped = apply_opts(ast, opts, target)
    (fold,) = [node for node in shaped.toposort() if node.op is Ops.REDUCE]
    loads = [node for node in fold.src[0].toposort() if node.op is Ops.LOAD]
    assert [opt.arg for opt in opts if opt.op is STAGE] == [2, 1]
    assert all(load.src[0].op is Ops.AFTER for load in loads if set(fold.src[1:]) & load.ranges)


def test_seven_neighbours_are_better_rows_than_eight_pictures() -> None:
    """They share lines and windows, of which none is copied; and the weights of a block of channels
    are packed as a whole, where most of the second cache holds them.
    """
    x, w = Tensor.empty(8, 512, 7, 7).realize(), Tensor.empty(512, 512, 3, 3).realize()
    opts = heuristic(kernel_of(x.conv2d(w, padding=1)), WIDE)
    assert [opt.arg for opt in opts if opt.op is UPCAST] == [32, 7]
    assert [opt.arg for opt in opts if opt.op is STAGE] == [2]
    assert not any(opt.op is TILE for opt in opts)


@pytest.mark.parametrize(
    ("side", "stride", "channels", "tile", "staged"),
    [
        (9, 1, 64, [32, 9], [2]), (13, 1, 64, [16, 13], [2]), (28, 2, 64, [16, 14], [2]),
        (16, 1, 64, [32, 8], [2, 1]), (56, 1, 64, [32, 8], [2, 1]), (56, 1, 16, [16, 14], [2]),
    ],
)  # fmt: skip
def test_short_windows_are_written_out(
    side: int, stride: int, channels: int, tile: list[int], staged: list[int]
) -> None:
    """Beside rows that are the whole axis, or, where one vector has all channels, a large part of
    it, without a copy; beside others, of a copy, which all vectors of channels read.
    """
    x, w = Tensor.empty(8, 64, side, side).realize(), Tensor.empty(channels, 64, 3, 3).realize()
    opts = heuristic(kernel_of(x.conv2d(w, padding=1, stride=stride)), WIDE)
    assert [opt.arg for opt in opts if opt.op is UPCAST] == tile
    assert [opt.arg for opt in opts if opt.op is STAGE] == staged
    moves = [opt for opt in opts if opt.op is not OptOps.THREAD]
    assert moves[-1] == Opt(UNROLL, 2, 0), "after copies, before chunks"
    is_tiled = any(opt.op is TILE for opt in opts)
    assert is_tiled == (side == 56 and channels > 16), "rows that stay cached for all channels"


def test_few_registers_hold_no_windows() -> None:
    x, w = Tensor.empty(4, 64, 36, 36).realize(), Tensor.empty(64, 64, 3, 3).realize()
    few = replace(WIDE, vector_bytes=32, registers=16)
    opts = heuristic(kernel_of(x.conv2d(w, padding=1)), few)
    assert not any(opt.op is UNROLL for opt in opts)


@pytest.mark.parametrize(
    ("kind", "tile", "depth"),
    [("rows", [64, 6], 3 * 768), ("turned", [32, 8], 768), ("pixels", [64, 6], 64)],
)
def test_wide_tiles_where_vectors_are_copied(kind: str, tile: list[int], depth: int) -> None:
    """Four vectors by six rows load less than two by eight; and a copy is made for each group of
    lanes, also where there are several matrices too large to be copied as a whole.
    """

    def empty(*shape: int) -> Tensor:
        return Tensor.empty(*shape).realize()

    if kind == "pixels":
        result = empty(8, 64, 56, 56).conv2d(empty(256, 64, 1, 1))
    else:
        result = empty(256, 768) @ (empty(768, 3072) if kind == "rows" else empty(3072, 768).T)
    ast = kernel_of(result)
    target = replace(WIDE, threads=8)
    shaped = apply_opts(ast, heuristic(ast, target), target)
    assert [part.src[0].arg for part in axes_of(shaped) if part.arg[1] is Axis.UPCAST] == tile
    (scratch,) = [node.dtype for node in shaped.toposort() if node.op is Ops.DEFINE_LOCAL]
    assert isinstance(scratch, Pointer) and scratch.size == depth * tile[0]


@pytest.mark.parametrize(("cache", "panels"), [(1 << 20, 1), (2 << 20, 2), (4 << 20, 4)])
def test_rows_beyond_the_second_cache_pass_over_as_many_panels_as_it_holds(
    cache: int, panels: int
) -> None:
    ast = kernel_of(Tensor.empty(2048, 2048).realize() @ Tensor.empty(2048, 2048).realize())
    target = replace(WIDE, threads=8, cache_bytes=(48 << 10, cache, 256 << 20))
    shaped = apply_opts(ast, heuristic(ast, target), target)
    (scratch,) = [node.dtype for node in shaped.toposort() if node.op is Ops.DEFINE_LOCAL]
    assert isinstance(scratch, Pointer) and scratch.size == panels * 64 * 2048
    if panels > 1:
        loops = [part.src[0].arg for part in loop_order(shaped)]
        assert loops[-4:] == [panels, 2048, 64, 6], "a row tile meets all panels that are here"


@pytest.mark.parametrize(("depth", "rows"), [(1024, 6), (8192, 4)])
def test_rows_of_a_reduce_that_is_cut_divide_their_axis(depth: int, rows: int) -> None:
    """Results that are gathered in memory must not come twice, and padded rows would have gates."""
    ast = kernel_of(Tensor.empty(512, depth).realize() @ Tensor.empty(depth, 512).realize())
    target = replace(WIDE, threads=8, cache_bytes=(48 << 10, 2 << 20, 256 << 20))
    shaped = apply_opts(ast, heuristic(ast, target), target)
    written = [part.src[0].arg for part in axes_of(shaped) if part.arg[1] is Axis.UPCAST]
    assert written == [64, rows]


@pytest.mark.parametrize(("size", "copies"), [(256, 0), (384, 1)])
def test_operands_are_copied_unless_both_fit_half_the_second_cache(size: int, copies: int) -> None:
    ast = kernel_of(Tensor.empty(size, size).realize() @ Tensor.empty(size, size).realize())
    target = replace(WIDE, threads=8, cache_bytes=(48 << 10, 2 << 20, 256 << 20))
    assert sum(opt.op is STAGE for opt in heuristic(ast, target)) == copies


def test_few_steps_make_results_that_are_neighbours() -> None:
    """The weights' gradient of a convolution of small pictures: the places of a filter are the
    rows, as results apart would take longer to store than to compute.
    """
    x = SEED.standard_normal((4, 64, 4, 4), np.float32)
    g = SEED.standard_normal((4, 64, 4, 4), np.float32)
    weight = Tensor.empty(64, 64, 3, 3)
    (gradient,) = (
        Tensor(x).realize().conv2d(weight, padding=1).gradient(weight, gradient=Tensor(g).realize())
    )
    ast = kernel_of(gradient)
    opts = heuristic(ast, WIDE)
    assert [opt.arg for opt in opts if opt.op is UPCAST] == [32, 3, 3]
    assert [opt.axis for opt in opts if opt.op is STAGE] == [-1, -1]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), (2, 3))
    expected = np.einsum("ncklyx,noyx->ockl", windows, g)
    np.testing.assert_allclose(run(ast, opts, expected.shape, g, x), expected, rtol=1e-4, atol=1e-4)


def test_weights_that_lie_apart_are_packed() -> None:
    """The gradient by the input of few pixels: channels are lanes, as pictures would take a line of
    memory for each weight.
    """
    x, w = Tensor.empty(16, 256, 4, 4), Tensor.empty(256, 256, 3, 3).realize()
    (gradient,) = x.conv2d(w, padding=1).gradient(x, gradient=Tensor.empty(16, 256, 4, 4).realize())
    opts = heuristic(kernel_of(gradient), WIDE)
    assert [opt.arg for opt in opts if opt.op is UPCAST] == [32, 8]


def test_a_fold_along_columns_is_cut() -> None:
    """Each of its steps takes another line of a matrix whose rows are results: all rows see a part
    of the steps while their lines are near.
    """
    a = SEED.standard_normal((2, 384, 1024), np.float32)
    b = SEED.standard_normal((2, 384, 32), np.float32)
    product = Tensor(a).realize().transpose(1, 2) @ Tensor(b).realize()
    ast = kernel_of(product.relu())
    opts = heuristic(ast, WIDE)
    assert [opt.arg for opt in opts if opt.op is TILE] == [64, 1]
    expected = np.maximum(a.transpose(0, 2, 1).astype(np.float64) @ b, 0)
    np.testing.assert_allclose(run(ast, opts, expected.shape, a, b), expected, rtol=1e-4, atol=1e-4)
    straight = kernel_of(Tensor(a).realize() @ Tensor(b).realize().repeat(1, 3, 1)[:, :1024])
    assert not any(opt.op is TILE for opt in heuristic(straight, WIDE))
    # Lines that lie apart crowd each other out of the nearest cache, whatever the second one holds.
    for steps, m, n, cut in ((768, 512, 128, [64]), (400, 16, 16, []), (631, 512, 128, [])):
        gradient = Tensor.empty(steps, m).realize().transpose() @ Tensor.empty(steps, n).realize()
        found = [opt.arg for opt in heuristic(kernel_of(gradient), WIDE) if opt.op is TILE]
        assert found == cut, (steps, m, n)
    # Windows of which each step is the next element use up their lines.
    x, w = Tensor.empty(512, 1, 28, 28).realize(), Tensor.empty(32, 1, 5, 5)
    (gradient,) = x.conv2d(w).gradient(w, gradient=Tensor.empty(512, 32, 24, 24).realize())
    assert 1 not in [opt.arg for opt in heuristic(kernel_of(gradient), WIDE) if opt.op is TILE]


@pytest.mark.parametrize(
    ("size", "stride", "is_plain"), [(3, 2, True), (4, 3, True), (3, 2, False)]
)
def test_strided_windows_are_picked_from_a_copy(size: int, stride: int, is_plain: bool) -> None:
    """Where the windows reach over the border: no gate is left where they are folded."""
    x = SEED.standard_normal((16, 4, 67, 64), np.float32)
    padding = size // 2
    given = Tensor(x).realize()
    given = given if is_plain else given.relu()
    ast = kernel_of(given.max_pool2d((size, size), stride=stride, padding=padding))
    opts = heuristic(ast, Device["CPU"].target)
    assert [opt.arg for opt in opts if opt.op is STAGE] == [1]
    (fold,) = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    is_load = fold.src[0].op is Ops.LOAD
    assert is_load is is_plain, "what stands for the border is what the load gives"
    seen = x if is_plain else np.maximum(x, 0)
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(seen, around, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    expected = windows[:, :, ::stride, ::stride].max((4, 5))
    np.testing.assert_array_equal(run(ast, opts, expected.shape, x), expected)


@pytest.mark.parametrize(
    ("size", "stride", "shape"),
    [
        (5, 2, (2, 6, 19, 23)),
        (5, 1, (1, 9, 15, 13)),
        (7, 1, (1, 4, 14, 14)),
        (4, 2, (1, 3, 21, 40)),
        (7, 2, (1, 5, 9, 7)),
        (5, 3, (2, 3, 33, 5)),
    ],
)
def test_a_long_filter_of_one_channel_reads_a_copy_with_its_padding(
    size: int, stride: int, shape: tuple[int, int, int, int]
) -> None:
    """A depthwise convolution: no gate is left in the reduce, unless it is unrolled as a whole."""
    x = SEED.standard_normal(shape, np.float32)
    w = SEED.standard_normal((shape[1], 1, size, size), np.float32)
    padding = size // 2
    given = Tensor(x).realize()
    ast = kernel_of(
        given.conv2d(Tensor(w).realize(), padding=padding, stride=stride, groups=shape[1])
    )
    opts = heuristic(ast, Device["CPU"].target)
    if Device["CPU"].target.has_vectors:
        assert [opt.arg for opt in opts if opt.op is STAGE] == ([1] if size > 4 else [])
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x.astype(np.float64), around)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    expected = np.einsum("bcyxij,cij->bcyx", windows[:, :, ::stride, ::stride], w[:, 0])
    np.testing.assert_allclose(run(ast, opts, expected.shape, x, w), expected, rtol=1e-4, atol=1e-4)


def test_groups_of_a_convolution_are_a_loop_of_their_own() -> None:
    x = SEED.standard_normal((2, 32, 9, 16), np.float32)
    w = SEED.standard_normal((32, 8, 3, 3), np.float32)
    ast = kernel_of(Tensor(x).realize().conv2d(Tensor(w).realize(), padding=1, groups=4))
    assert not any(node.op in (Ops.FLOORDIV, Ops.FLOORMOD) for node in ast.toposort())
    opts = heuristic(ast, Device["CPU"].target)
    assert [opt.op for opt in opts][:2] == [UPCAST, UPCAST], "a tile of two axes"
    expected = np.concatenate(
        [correlate(x[:, g : g + 8], w[g : g + 8], 1) for g in range(0, 32, 8)], 1
    )
    np.testing.assert_allclose(run(ast, opts, expected.shape, x, w), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [33, 48, 96, 250])
def test_small_products_are_packed_where_their_lanes_lie_apart(size: int) -> None:
    """What fits the second cache is read where it lies; but a column of it is never read element
    by element, however little there is to do; and chunks do not pack the same.
    """
    a, b = SEED.standard_normal((2, size, size), np.float32)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    for result, expected, is_packed in (
        (x @ y, a.astype(np.float64) @ b, False),
        (x.T @ y, a.T.astype(np.float64) @ b, False),
        (x @ y.T, a.astype(np.float64) @ b.T, True),
    ):
        ast = kernel_of(result)
        opts = heuristic(ast, WIDE)
        assert any(opt.op is STAGE for opt in opts) is is_packed, opts
        found = run(ast, opts, (size, size), a, b)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_follows_a_product_may_read_its_operands() -> None:
    """Of a parameter that is loaded at two places, the side of the product is packed."""
    a, b = SEED.standard_normal((2, 128, 128), np.float32)
    for result, expected in (
        (Tensor(b) - Tensor(a) @ Tensor(b), b - a.astype(np.float64) @ b),
        (Tensor(b) * (Tensor(a) @ Tensor(b)), b * (a.astype(np.float64) @ b)),
        (Tensor(a) + Tensor(a) @ Tensor(b), a + a.astype(np.float64) @ b),
        (Tensor(a) @ Tensor(a), a.astype(np.float64) @ a),
    ):
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_few_vectors_of_a_window_are_written_out() -> None:
    """Rows at the border of a small image are known to be zeros, and no loop asks for each."""
    x, w = Tensor.empty(2, 8, 7, 7).realize(), Tensor.empty(32, 8, 3, 3).realize()
    ast = kernel_of(x.conv2d(w, padding=1))
    # A row of nine is one vector of sixteen lanes.
    shaped = apply_opts(ast, [Opt(OptOps.STAGE, 0, 1)], WIDE)
    (nest,) = [node for node in shaped.toposort() if node.op is Ops.END]
    assert [part.arg[1] for part in nest.src[1:] if part.arg[1] is not Axis.UPCAST] == [Axis.STAGE]


def test_what_lanes_read_is_packed_by_vectors() -> None:
    """The gradient of a first layer: few rows, and beside them no second part of the lanes."""
    target = Device["CPU"].target
    if not target.has_mask:
        pytest.skip("vectors of this processor take no gate per lane")
    x, g = Tensor.empty(512, 1, 28, 28).realize(), Tensor.empty(512, 32, 24, 24).realize()
    w = Tensor.empty(32, 1, 5, 5).realize()
    (found,) = x.conv2d(w).gradient(w, gradient=g)
    _, program = to_program(kernel_of(found), target, None)
    stores = [node for node in program if node.op is Ops.STORE]
    packed = [node.src[2].dtype.lanes for node in stores if node.src[0].op is Ops.DEFINE_LOCAL]
    assert packed
    assert set(packed) == {target.lanes_of(dtypes.float32)}


@pytest.mark.parametrize("is_turned", [False, True])
def test_picked_elements_are_packed(is_turned: bool) -> None:
    """Where each element says where it is read from, beyond the end neither is read; and no tile of
    neighbours is turned, as they are none.
    """
    x = SEED.standard_normal((64, 33), np.float32)
    places = SEED.integers(0, 64, (64, 33))
    picked = Tensor(x).realize().gather(0, Tensor(places).realize())
    theirs = np.take_along_axis(x, places, 0).astype(np.float64)
    result = Tensor(x).realize() @ picked.T if is_turned else picked @ Tensor(x).realize().T
    expected = x @ theirs.T if is_turned else theirs @ x.T
    ast = kernel_of(result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)
    opts = [
        Opt(UPCAST, 1, 16),
        Opt(UPCAST, 0, 4),
        Opt(STAGE, 0, ReduceOperand(Side.RIGHT if is_turned else Side.LEFT)),
    ]
    shaped = apply_opts(ast, opts, WIDE)
    (nest,) = [n for n in shaped.toposort() if n.op is Ops.END and n.src[0].op is Ops.STORE]
    written = [part for part in nest.src[0].ranges if part.arg[1] is Axis.UPCAST]
    assert int(np.prod([part.vmax + 1 for part in written])) <= 16


def test_what_fills_a_copy_is_copied_by_no_other() -> None:
    """It is read along the axes of that copy, which are no loops of the kernel."""
    ast = kernel_of((Tensor(SEED.standard_normal((3, 128), np.float32)).realize() + 1).sum())
    row = Opt(UNROLL, 0, 128)
    with pytest.raises(OptError, match="fill another copy"):
        apply_opts(ast, [row, Opt(STAGE, 0, 1), Opt(STAGE, -1, 1)], WIDE)


def test_all_panels_of_a_loop_fit_the_second_cache() -> None:
    """The input's gradient of a convolution of 4x4 pixels: its last loop has two panels in all."""
    target = replace(Device["CPU"].target, cache_bytes=(32 << 10, 1 << 20, 32 << 20), threads=8)
    x = Tensor.empty(16, 256, 4, 4, requires_grad=True)
    w = Tensor.empty(512, 256, 3, 3, requires_grad=True)
    gradient = x.conv2d(w, stride=2, padding=1).square().sum().gradient(x, w)[0]
    kernels = [item.ast for item in plans.plan(gradient).items if item.ast is not None]
    lists = [heuristic(ast, target) for ast in kernels]
    assert any(opt.op is OptOps.STAGE for opts in lists for opt in opts)


def test_copies_of_unrolled_rows_fit_the_stack_together() -> None:
    """Each of the rows has a copy of 48 elements."""
    a, b = (Tensor(np.zeros(shape, np.float32)).realize() for shape in ((64, 48), (48, 32)))
    target = replace(WIDE, scratch_bytes=4096)
    staged = apply_opts(kernel_of(a @ b), [Opt(STAGE, 0, ReduceOperand(Side.LEFT))], target)
    apply_opts(staged, [Opt(UPCAST, 0, 16)], target)
    with pytest.raises(OptError, match="upcast: 6144 bytes of scratch, wide has 4096"):
        apply_opts(staged, [Opt(UPCAST, 0, 32)], target)
