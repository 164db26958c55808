"""Queries about graphs."""

from __future__ import annotations

import re
import weakref
from pathlib import Path

import tilegrad
from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    base_of,
    below_casts,
    below_reshapes,
    below_views,
    buffer_below,
    device_of,
    memory_of,
    next_number,
    stride_of,
)  # fmt: skip
from tilegrad.ir.rules import terms_of
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


def test_what_is_below_casts() -> None:
    wide = BUFFER.cast(dtypes.float64)
    assert below_casts(wide.cast(dtypes.float16)) is BUFFER
    assert below_casts(above(Ops.NEG, wide)).op is Ops.NEG


def test_the_next_number_of_a_kind_of_node() -> None:
    loops = [UOp.range(8, 4), UOp.range(8, 0)]
    shared = dtypes.float32.ptr(4, AddressSpace.SHARED)
    memory = UOp(Ops.DEFINE_LOCAL, shared, (), 1)
    assert next_number([*loops, memory]) == 5
    assert next_number([*loops, memory], Ops.DEFINE_LOCAL) == 2
    assert next_number([*loops, memory], Ops.DEFINE_ACC) == 0


def test_fields_name_what_a_node_holds() -> None:
    loop = UOp.range(8, 4, Axis.REDUCE)
    assert (loop.number, loop.axis, loop.extent.arg) == (4, Axis.REDUCE, 8)
    memory = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(8), (), 0)
    zero, gate = UOp.const(dtypes.float32, 0.0), loop < 4
    plain, gated = memory.load(loop), memory.load(loop, zero, gate)
    assert not plain.is_gated
    assert gated.is_gated
    assert (gated.index, gated.other, gated.gate) == (loop, zero, gate)
    store = memory.store(loop, gated, gate)
    assert (store.index, store.value, store.gate) == (loop, gated, gate)
    assert not memory.store(loop, gated).is_gated
    assert UOp.variable("n", 1, 8).name == "n"
    total = UOp(Ops.REDUCE_AXIS, dtypes.float32, (BUFFER,), (Ops.ADD, (0,)))
    assert (total.combine, total.axes) == (Ops.ADD, (0,))


# Accesses of a node's argument or source by its position where the position has a name.
BY_POSITION = re.compile(
    r"\b(?:loop|axis|node|each|reduce|variable)\.arg\[[01]\]|\w\.src\[3\]"
    r"|len\((?:load|store|node)\.src\) (?:==|!=|<|>) [34]"
)
# The number of values of a scan that an iteration already has; the extent of a launch position; the
# axes of a tensor op of several kinds.
WITHOUT_A_NAME = {
    "engine/program/blocks.py": 1,
    "engine/realize/unknowns.py": 1,
    "lower/memory_accumulators.py": 1,
    "optimize/opts/shared_scan.py": 1,
}


def test_passes_ask_nodes_by_field() -> None:
    root = Path(tilegrad.__file__).parent
    folders = ("schedule", "optimize", "lower", "engine", "capture", "grad")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    found = {
        file.relative_to(root).as_posix(): len(BY_POSITION.findall(file.read_text()))
        for file in files
    }
    assert {file: count for file, count in found.items() if count} == WITHOUT_A_NAME


def test_the_terms_of_a_sum_are_kept_as_long_as_it_lives() -> None:
    loops = [UOp.range(7, number) for number in (901, 902)]
    total = loops[0] * 3 + loops[1] + 5
    found = terms_of(total)
    assert found == ({loops[0]: 3, loops[1]: 1}, 5)
    assert terms_of(total) is found
    dead = [weakref.ref(each) for each in (total, *loops)]
    terms_of(loops[0])
    terms_of(loops[1] * 3)
    del total, found, loops
    assert all(each() is None for each in dead)
