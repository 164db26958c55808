"""Queries about graphs."""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import (
    base_of,
    below_reshapes,
    below_views,
    buffer_below,
    device_of,
    memory_of,
    stride_of,
)  # fmt: skip
from tilegrad.ir.uop import UOp

BUFFER = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(0, "NULL", 12))


def above(op: Ops, node: UOp, arg: object = None) -> UOp:
    return UOp(op, node.dtype, (node,), arg)


def test_what_is_below_a_chain() -> None:
    shaped = above(Ops.RESHAPE, BUFFER, (3, 4))
    detached = above(Ops.DETACH, shaped)
    view = above(Ops.PERMUTE, detached, (1, 0))
    assert base_of(view) is detached
    assert below_views(view) is BUFFER
    assert below_reshapes(shaped) is BUFFER
    assert buffer_below(view) is BUFFER


def test_memory_behind_effects() -> None:
    memory = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(4), (), 0)
    zero = UOp.const(dtypes.index, 0)
    once = memory.after(memory.store(zero, UOp.const(dtypes.float32, 1.0)))
    assert memory_of(once.after(once.store(zero, once.load(zero)))) is memory


def test_the_stride_of_a_loop_is_known_where_it_is_constant() -> None:
    i, j = UOp.range(8, 0), UOp.range(4, 1)
    assert stride_of(i * 4 + j, i) == 4
    assert stride_of(i * 4 + j, j) == 1
    assert stride_of(j * 2, i) == 0
    assert stride_of(i // 2 + j, i) is None


def test_the_device_is_that_of_memory_of_a_copy_or_of_a_stored_constant() -> None:
    one = UOp.const(dtypes.float32, 1.0)
    assert device_of(one) is None
    assert device_of(above(Ops.EXP2, BUFFER)) == "NULL"
    assert device_of(above(Ops.COPY, BUFFER, "CPU")) == "CPU"
    assert device_of(above(Ops.CONTIGUOUS, one, "CPU")) == "CPU"
    assert device_of(above(Ops.CONTIGUOUS, BUFFER, ("a", "mark"))) == "NULL"
