"""Loop peeling: the last iterations are apart where they alone need a mask, with equal results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.engine.build.kernel import Kernel, Opt, OptOps
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.spec import verify
from tilegrad.ir.uop import UOp
from tilegrad.lower.peel import peel
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opts import start
from tilegrad.target import Target

TARGET = replace(Device["CPU"].target, vector_bytes=32, has_mask=True)


def doubled(count: int) -> UOp:
    made, given = (UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(count), (), n) for n in (0, 1))
    loop = UOp.range(count, 0, Axis.LOOP)
    store = made.store(loop, given.load(loop) * 2.0)
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo("E", (0,)))


def program(count: int, target: Target, multiple: int = 8) -> list[UOp]:
    kernel = Kernel(doubled(count), target)
    opts = [Opt(OptOps.PADTO, 0, multiple), Opt(OptOps.UPCAST, 0, 8)]
    return kernel.apply_opts(opts).linearize()


def test_only_the_last_iteration_has_gates() -> None:
    found = program(29, TARGET)
    (loop,) = [node for node in found if node.op is Ops.RANGE]
    assert loop.src[0].arg == 3
    inside, behind = found[: found.index(end := found_end(found))], found[found.index(end) :]
    assert [len(node.src) for node in inside if node.op in (Ops.LOAD, Ops.STORE)] == [2, 3]
    assert [len(node.src) for node in behind if node.op in (Ops.LOAD, Ops.STORE)] == [4, 4]
    # Both have happened at the end.
    assert [node.op for node in found[-1].src] == [Ops.STORE, Ops.STORE]


def found_end(found: list[UOp]) -> UOp:
    (end,) = [node for node in found if node.op is Ops.END]
    return end


def test_several_iterations_with_gates_are_a_loop() -> None:
    found = program(197, TARGET, 64)
    assert [node.src[0].arg for node in found if node.op is Ops.RANGE] == [24, 8]
    stores = [node for node in found if node.op is Ops.STORE]
    assert [len(node.src) for node in stores] == [3, 4]
    assert found[-1].src == tuple(stores)


def test_short_loops_stay() -> None:
    found = program(13, TARGET)
    assert [node.src[0].arg for node in found if node.op is Ops.RANGE] == [2]


def test_without_masks_no_lane_has_a_branch_but_in_the_last_iteration() -> None:
    found = program(29, replace(TARGET, has_mask=False))
    (loop,) = [node for node in found if node.op is Ops.RANGE]
    assert loop.src[0].arg == 3
    inside, behind = found[: found.index(end := found_end(found))], found[found.index(end) :]
    assert not any(node.is_gated for node in inside if node.op in (Ops.LOAD, Ops.STORE))
    assert any(node.is_gated for node in behind if node.op in (Ops.LOAD, Ops.STORE))


def padded(columns: int, front: int, end: int) -> UOp:
    """Rows of a copy with zeros before and after them."""
    width = front + columns + end
    made, given = (UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(4 * n), (), slot)
                   for slot, n in ((0, width), (1, columns)))  # fmt: skip
    row, column = (UOp.range(n, at, Axis.LOOP) for at, n in enumerate((4, width)))
    gate = (column >= front) & (column < front + columns)
    load = given.load(row * columns + column - front, UOp.const(dtypes.float32, 0.0), gate)
    store = made.store(row * width + column, load)
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo("E", (0, 1)))


def test_without_masks_the_first_iteration_is_apart_too() -> None:
    kernel = Kernel(padded(53, 3, 4), replace(TARGET, has_mask=False))
    opts = [Opt(OptOps.OVERLAP, 1, 8), Opt(OptOps.UPCAST, 2, 0)]
    found = kernel.apply_opts(opts).linearize()
    loops = [node for node in found if node.op is Ops.RANGE]
    assert [loop.src[0].arg for loop in loops] == [4, 6]
    start = found.index(loops[1])
    inside = found[start : start + found[start:].index(found_end(found[start:-2]))]
    accesses = (Ops.LOAD, Ops.STORE)
    assert [node.is_gated for node in inside if node.op in accesses].count(True) == 0
    for part in (found[:start], found[start + len(inside) :]):
        assert any(node.is_gated for node in part if node.op in accesses)


def test_a_condition_that_the_loop_does_not_move_stands_once() -> None:
    """Rows above an image are padding as a whole, and lanes of the first and last vectors are."""
    x, w = Tensor.empty(2, 16, 56, 56).realize(), Tensor.empty(16, 1, 3, 3).realize()
    target = replace(TARGET, vector_bytes=16, registers=16, has_mask=False, threads=0)
    ast = start(kernel_of(x.conv2d(w, groups=16, padding=1), target), target)
    found = to_program(ast, target, heuristic(ast, target))[1]
    assert len(set(found)) == len(found)
    assert any(node.is_gated for node in found if node.op is Ops.LOAD)


@pytest.mark.parametrize("device", ["CPU", "EMU:CPU"])
def test_rows_that_no_vector_divides(device: str) -> None:
    x = np.random.default_rng(3).normal(size=(3, 53)).astype(np.float32)
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(1, keepdims=True))
    with Context(DEVICE=device):
        t = Tensor(x)
        found = [t.softmax(1), t.max(1), t.sum(1), t * 2 + 1, t.cumsum(1), t.layernorm()]
        found.append(Tensor(x.reshape(1, 3, 53)).expand(2, 3, 53).contiguous().max((0, 2)))
        deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        wanted = [
            power / power.sum(1, keepdims=True), wide.max(1), wide.sum(1), wide * 2 + 1,
            wide.cumsum(1), (wide - wide.mean(1, keepdims=True)) / deviation, wide.max(1),
        ]  # fmt: skip
        for result, exact in zip(found, wanted, strict=True):
            np.testing.assert_allclose(result.numpy(), exact, rtol=2e-5, atol=1e-5)


def test_loops_that_open_the_same_gates() -> None:
    """What two shorter loops make of their open gates is one node, and stands before both."""
    array = np.random.default_rng(0).normal(size=(33, 2, 2)).astype(np.float32)

    def gradient() -> np.ndarray:  # type: ignore[type-arg]
        x = Tensor(array)
        y = (x - x.mean(0, keepdim=True)).softmax(1).cumsum(0)
        (found,) = (y * y).sum().gradient(x)
        return found.numpy()  # type: ignore[no-any-return]

    made = gradient()
    with Context(NOOPT=1):
        np.testing.assert_allclose(made, gradient(), rtol=1e-4, atol=1e-4)


def two_loops() -> list[UOp]:
    """In each of three rows two loops of 32 elements by vectors of 8, with a gate of the first 29,
    and a selection by that and a flag of the row.
    """
    floats, lanes = dtypes.float32.vec(8), dtypes.int32.vec(8)
    kinds = (dtypes.float32.ptr(96), dtypes.float32.ptr(96), dtypes.float32.ptr(29))
    *made, given = [UOp(Ops.DEFINE_GLOBAL, kind, (), n) for n, kind in enumerate(kinds)]
    flags = UOp(Ops.DEFINE_GLOBAL, dtypes.bool.ptr(3), (), 3)
    number = {n: UOp.const(dtypes.int32, n) for n in (*range(9), 32)}
    most, zero, five = UOp.const(lanes, 29), UOp.const(floats, 0.0), UOp.const(floats, 5.0)
    steps = UOp(Ops.VECTORIZE, lanes, tuple(number[n] for n in range(8)))
    row = UOp(Ops.RANGE, dtypes.int32, (number[3],), (0, Axis.LOOP))
    flag = flags.load(row)
    wide = UOp(Ops.VECTORIZE, dtypes.bool.vec(8), (flag,) * 8)
    start = row * number[32]
    program = [*made, given, flags, *number.values(), most, zero, five, steps]
    program += [row, flag, wide, start]
    for at, target in enumerate(made, 1):
        loop = UOp(Ops.RANGE, dtypes.int32, (number[4],), (at, Axis.LOOP))
        first = loop * number[8]
        position = UOp(Ops.VECTORIZE, lanes, (first,) * 8) + steps
        inside = UOp(Ops.CMPLT, dtypes.bool.vec(8), (position, most))
        read = UOp(Ops.LOAD, floats, (given, first, zero, inside))
        both = UOp(Ops.AND, dtypes.bool.vec(8), (wide, inside))
        value = UOp(Ops.WHERE, floats, (both, read, five))
        index = start + first
        store = UOp(Ops.STORE, dtypes.void, (target, index, value))
        end = UOp(Ops.END, dtypes.void, (loop,))
        program += [loop, first, position.src[0], position, inside, read, both, value, index]
        program += [store, end]
    stores = [node for node in program if node.op is Ops.STORE]
    sink = UOp(Ops.SINK, dtypes.void, (*stores,), KernelInfo("E", (0,)))
    return [*program, UOp(Ops.END, dtypes.void, (row,)), sink]


def test_what_two_loops_make_of_their_gates_stands_in_the_program_once() -> None:
    found = peel(two_loops(), TARGET)
    verify(found, Stage.PROGRAM, "peel")
    assert [node.src[0].arg for node in found if node.op is Ops.RANGE] == [3, 3, 3]
    # Only the last iterations ask for more than the flag.
    assert sum(node.op is Ops.AND for node in found) == 1
