"""GROUP and GROUPTOP: texts, and values with the barriers in place and without them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    body,
    buffer,
    conv2d,
    expand,
    good_opts,
    kernel,
    name,
    opt,
    program,
    reduce,
    run,
    schedule,
    shaped,
    softmax,
    text,
)
from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.base.errors import InternalError, OptError
from tilegrad.device.emulator import execute
from tilegrad.hardware import opencl_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.target import Target

GROUP, GROUPTOP = OptOps.GROUP, OptOps.GROUPTOP
UPCAST, UNROLL, LOCAL = OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL
VALUE = reduce(Ops.ADD, buffer(0, 4, 4), 1)
ROW_SUM = kernel(VALUE)
X = np.arange(16, dtype=np.float32) - 5


def lines_of(ast: UOp) -> list[UOp]:
    return program(ast, None)


def reads_memory(load: UOp) -> bool:
    return load.src[0].op is Ops.DEFINE_GLOBAL


def positions(node: UOp) -> list[UOp]:
    return [part for part in node.toposort() if part.op is Ops.SPECIAL]


def stride(index: UOp, position: UOp) -> int:
    """By how much `index` grows with one position in the launch."""
    others = [part for part in index.toposort() if part.op in (Ops.SPECIAL, Ops.RANGE)]
    values = []
    for step in (0, 1):
        at = {part: UOp.const(part.dtype, step * (part is position)) for part in others}
        values.append(simplify(index.substitute(at)).arg)
    return int(values[1] - values[0])


def shared_bytes(found: list[UOp]) -> int:
    arrays = [node.dtype for node in found if node.op is Ops.DEFINE_LOCAL]
    return sum(
        array.size * array.base.itemsize
        for array in arrays
        if isinstance(array, Pointer) and array.space is AddressSpace.SHARED
    )


@pytest.mark.row("R4.6", "S0.4")
def test_lanes_meet_in_shared_memory() -> None:
    opts = [opt(GROUP, 0, 4)]
    source = text(ROW_SUM, opts)
    assert "__launch_bounds__(4)" in source
    lines = body(source)
    assert lines[0] == "__shared__ __align__(16) float temp0[4];"
    order = [
        next(number for number, line in enumerate(lines) if line.startswith(part))
        for part in (
            # What a lane only loads is copied.
            "__copy_4((temp0+lidx0), (data1+",
            "__wait_for_copies();",
            "__syncthreads();",
            "for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
            "float val0 = *(temp0+ridx0);",
            "if (lidx0==0) {",
            "*(data0+gidx0) = acc0;",
        )
    ]
    assert order == sorted(order)
    assert run(VALUE, {0: X}, opts).tolist() == X.reshape(4, 4).sum(1).tolist()


@pytest.mark.row("R4.6", "S0.4")
def test_a_missing_barrier_is_a_race() -> None:
    found = program(ROW_SUM, [opt(GROUP, 0, 4)])
    buffers = [np.zeros(4, np.float32), X]
    execute(found, [memoryview(each).cast("B") for each in buffers])
    broken = [node for node in found if node.op is not Ops.BARRIER]
    mapping: dict[UOp, UOp] = {}
    for place, node in enumerate(broken):
        src = [mapping.get(source, source) for source in node.src if source.op is not Ops.BARRIER]
        mapping[node] = broken[place] = node.replace(src=tuple(src))
    with pytest.raises(InternalError, match="since the last barrier"):
        execute(broken, [memoryview(each).cast("B") for each in buffers])


@pytest.mark.row("R4.7")
def test_neighbours_read_together_or_runs_apart() -> None:
    together, apart = [opt(GROUP, 0, 2)], [opt(GROUPTOP, 0, 2)]
    assert name(ROW_SUM, together) == name(ROW_SUM, apart) == "r_4_2_2"
    assert "*(data1+(gidx0<<2)+lidx0+(ridx0<<1))" in text(ROW_SUM, together)
    assert "*(data1+(gidx0<<2)+(lidx0<<1)+ridx0)" in text(ROW_SUM, apart)
    wanted = X.reshape(4, 4).sum(1).tolist()
    assert run(VALUE, {0: X}, together).tolist() == wanted
    assert run(VALUE, {0: X}, apart).tolist() == wanted


@pytest.mark.row("R4.8")
def test_both_are_one_where_all_of_the_axis_is_shared() -> None:
    texts = {
        text(ROW_SUM, [opt(kind, 0, amount)]) for kind in (GROUP, GROUPTOP) for amount in (0, 4)
    }
    assert len(texts) == 1


# with other Opts


@pytest.mark.parametrize(
    "moves",
    [
        [opt(GROUP, 0, 4), opt(LOCAL, 0, 2)],
        [opt(LOCAL, 0, 2), opt(GROUP, 0, 4)],
        [opt(GROUP, 0, 4), opt(UPCAST, 0, 2)],
        [opt(UPCAST, 0, 4), opt(GROUPTOP, 0, 8)],
        [opt(GROUP, 0, 8), opt(UNROLL, 0, 4)],
        [opt(GROUP, 0, 8), opt(UNROLL, 1, 2), opt(UNROLL, 2, 8)],
        [opt(GROUP, 0, 3), opt(LOCAL, 0, 2), opt(LOCAL, 0, 2), opt(UPCAST, 0, 2)],
        [opt(UNROLL, 0, 4), opt(GROUP, 0, 0)],
        [opt(OptOps.PADTO, 0, 5), opt(GROUP, 0, 8), opt(LOCAL, 0, 5)],
    ],
)
@pytest.mark.parametrize("fold", [Ops.ADD, Ops.MAX])
def test_other_moves_before_and_after(fold: Ops, moves: list[Opt]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (8, 48)).astype(np.float32)
    found = run(reduce(fold, buffer(0, 8, 48), 1), {0: x}, moves)
    assert found.tolist() == (x.sum(1) if fold is Ops.ADD else x.max(1)).tolist()


def test_written_out_rows_have_arrays_of_their_own_and_meet_once() -> None:
    found = program(ROW_SUM, [opt(GROUP, 0, 4), opt(UPCAST, 0, 2)])
    assert shared_bytes(found) == 2 * 4 * 4
    assert sum(node.op is Ops.BARRIER for node in found) == 1


def test_lanes_that_do_not_share_have_parts_of_one_array() -> None:
    found = program(ROW_SUM, [opt(GROUP, 0, 4), opt(LOCAL, 0, 2)])
    assert shared_bytes(found) == 2 * 4 * 4
    assert sum(node.op is Ops.DEFINE_LOCAL for node in found) == 1


def test_a_fold_over_several_axes() -> None:
    """One axis is shared, the others stay loops of each lane."""
    x = np.random.default_rng(0).integers(-3, 4, (1, 8, 6, 6)).astype(np.float32)
    w = np.random.default_rng(1).integers(-3, 4, (4, 8, 3, 3)).astype(np.float32)
    value = conv2d(buffer(0, 1, 8, 6, 6), buffer(1, 4, 8, 3, 3))
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", view, w).ravel().tolist()
    for axis, amount in ((0, 8), (0, 4), (1, 3), (2, 3)):
        for kind in (GROUP, GROUPTOP):
            assert run(value, {0: x, 1: w}, [opt(kind, axis, amount)]).tolist() == wanted
    moves = [opt(GROUP, 0, 4), opt(UNROLL, 1, 2), opt(UPCAST, 2, 4), opt(LOCAL, 0, 2)]
    assert run(value, {0: x, 1: w}, moves).tolist() == wanted


# several folds


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(1, keepdims=True))
    return (power / power.sum(1, keepdims=True)).ravel()


@pytest.mark.parametrize(("rows", "size"), [(64, 512), (70, 300), (65, 40), (64, 37)])
def test_a_softmax_row_is_one_block(rows: int, size: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, size)).astype(np.float32)
    value = softmax(buffer(0, rows, size))
    assert len(schedule(value).items) == 1
    assert np.allclose(run(value, {0: x}), _softmax(x.astype(np.float64)), rtol=1e-5)


def test_lanes_that_share_folds_share_the_loop_that_stores() -> None:
    ast = kernel(softmax(buffer(0, 64, 512)))
    opts = good_opts(ast)
    kinds = [axis.arg[1] for axis in axes_of(shaped(ast, opts))]
    assert kinds.count(Axis.GROUP) == 1
    assert Axis.LOOP not in kinds
    source = text(ast, opts)
    # Each lane keeps its slice of the row, stores its slice of the result, and none waits for lane
    # 0: a gate is only before what one lane of each warp leaves in shared memory.
    assert source.count("__syncthreads();") == 2
    assert source.count("*((float4*)((data1+") == 1
    lines = source.splitlines()
    gated = [lines[at + 1] for at, line in enumerate(lines) if "if (" in line]
    assert len(gated) == 2
    assert all("*(temp" in line for line in gated)


def test_a_row_that_lanes_do_not_divide_is_stored_by_the_first() -> None:
    x = np.random.default_rng(0).standard_normal((64, 24)).astype(np.float32)
    value = reduce(Ops.ADD, buffer(0, 64, 24), 1)
    wide = expand(value, 64, 20) + buffer(1, 64, 20)
    y = np.zeros((64, 20), np.float32)
    found = run(schedule(wide), {0: x, 1: y}, [opt(GROUP, 0, 8)])
    assert np.allclose(found.reshape(64, 20), x.sum(1, keepdims=True) + y, rtol=1e-5)


def test_every_fold_has_the_same_lanes() -> None:
    ast = kernel(softmax(buffer(0, 64, 48)))
    # The axes are now the lanes, what is left of the first fold, where they meet, the second fold.
    with pytest.raises(OptError, match="shared by other lanes"):
        shaped(ast, [opt(GROUP, 0, 8), opt(GROUP, 3, 16)])
    for axis in (1, 2):
        with pytest.raises(OptError, match="lanes share the reduction already"):
            shaped(ast, [opt(GROUP, 0, 8), opt(GROUP, axis, 2)])
    x = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    found = run(softmax(buffer(0, 64, 48)), {0: x}, [opt(GROUP, 0, 8), opt(GROUP, 3, 8)])
    assert np.allclose(found, _softmax(x.astype(np.float64)), rtol=1e-5)


# limits


def _limited(shared: int, lanes: int) -> Target:
    return Target("SMALL", shared_bytes=shared, has_locals=True, block_lanes=lanes, memory_lanes=4)


def test_limits_of_the_target_hold_whatever_comes_first() -> None:
    ast = kernel(reduce(Ops.ADD, buffer(0, 8, 64), 1))
    small = _limited(shared=128, lanes=32)
    shaped(ast, [opt(GROUP, 0, 32)], small)
    with pytest.raises(OptError, match="a block of 64 lanes, SMALL has at most 32"):
        shaped(ast, [opt(GROUP, 0, 64)], small)
    with pytest.raises(OptError, match="a block of 64 lanes"):
        shaped(ast, [opt(GROUP, 0, 32), opt(LOCAL, 0, 2)], small)
    with pytest.raises(OptError, match="256 bytes of shared memory, SMALL has 128"):
        shaped(ast, [opt(GROUP, 0, 32), opt(UPCAST, 0, 2)], small)
    with pytest.raises(OptError, match="256 bytes of shared memory"):
        shaped(ast, [opt(UPCAST, 0, 2), opt(GROUP, 0, 32)], small)
    with pytest.raises(OptError, match="SMALL has no shared memory"):
        shaped(ast, [opt(GROUP, 0, 2)], _limited(shared=0, lanes=32))


@pytest.mark.parametrize("amount", [3, 5, 8, 1])
def test_a_non_divisor_is_refused(amount: int) -> None:
    with pytest.raises(OptError, match=f"group: {amount} does not divide the reduce axis of 4"):
        shaped(ROW_SUM, [opt(GROUP, 0, amount)])


def test_only_a_fold_can_be_shared() -> None:
    with pytest.raises(OptError, match="a kernel with 0 axes to choose from"):
        shaped(kernel(buffer(0, 16) + 1.0), [opt(GROUP, 0, 4)])


# what the heuristic does


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 4096), 1), ((3, 1000), 1), ((200, 96), 0), ((5, 997), 1), ((64, 33), 1)],
)
def test_the_heuristic_shares_long_folds(shape: tuple[int, int], axis: int) -> None:
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    value = reduce(Ops.ADD, buffer(0, *shape), axis)
    kinds = {move.op for move in good_opts(kernel(value))}
    assert kinds & {GROUP, GROUPTOP}
    assert run(value, {0: x}).tolist() == x.sum(axis).tolist()


def test_columns_are_read_by_neighbouring_lanes() -> None:
    """The first axis of the block runs along memory; the lanes that share the fold are the next."""
    ast = kernel(reduce(Ops.ADD, buffer(0, 512, 64), 0))
    (load,) = (node for node in lines_of(ast) if node.op is Ops.LOAD and reads_memory(node))
    lanes = {part.arg[0]: stride(load.src[1], part) for part in positions(load)}
    assert lanes["lidx0"] == 1
    assert lanes["lidx1"] == 64 * 8


def test_a_device_with_smaller_blocks() -> None:
    target = opencl_target()
    ast = kernel(reduce(Ops.ADD, buffer(0, 2, 4096), 1), target=target)
    lanes = [
        axis.src[0].arg
        for axis in axes_of(shaped(ast, None, target))
        if axis.arg[1] in (Axis.LOCAL, Axis.GROUP)
    ]
    assert math.prod(lanes) <= target.block_lanes
