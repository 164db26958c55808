"""Goldens: a small kernel before and after one pass, as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.optimize.kernels import CUDA
from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.lengths import length_variable
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp
from tilegrad.lower import lower
from tilegrad.lower.accumulators import use_accumulators
from tilegrad.lower.decompose import decompose
from tilegrad.lower.expand import unroll
from tilegrad.lower.grid import fix_launch, spread_shared, use_grid
from tilegrad.lower.integers import choose_integers, order_sums
from tilegrad.lower.join_accesses import join_accesses
from tilegrad.lower.lanes import use_lanes
from tilegrad.lower.launch_lengths import fit_lengths
from tilegrad.lower.levels import split_levels
from tilegrad.lower.linearize import linearize
from tilegrad.lower.load_merging import choose_loads, share_vectors
from tilegrad.lower.lower import PASSES
from tilegrad.lower.memory_accumulators import use_memory_accumulators
from tilegrad.lower.peel import peel
from tilegrad.lower.skip import skip_iterations, skip_products
from tilegrad.lower.transpose_accesses import transpose_loads, transpose_stores
from tilegrad.lower.warps import use_warps
from tilegrad.target import Target

TARGET = Target("vectors", vector_bytes=16, has_mask=True)
FLOAT, INDEX = dtypes.float32, dtypes.index
# Passes whose kernels are too long for a text: where their results are taken apart.
ELSEWHERE = {
    "lower.own_loops": "tests/lower/test_own_loops.py",
    "lower.exact_products": "tests/lower/test_exact_products.py",
    "lower.dot_operands": "tests/optimize/test_dot_units.py",
    "lower.copies": "tests/optimize/test_stage_shared.py",
    "lower.fragments": "tests/optimize/test_stage_shared.py",
    "lower.whole_sectors": "tests/lower/test_whole_sectors.py",
    "lower.async_copies": "tests/optimize/test_stage_shared.py",
    "lower.unroll_tiles": "tests/lower/test_unroll_tiles.py",
    "lower.units_behind": "tests/lower/test_units_behind.py",
    "lower.simplify": "tests/ir/test_rules.py",
}


def memory(number: int, size: int = 4096) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(size), (), number)


def at(value: int) -> UOp:
    return UOp.const(INDEX, value)


def total(value: UOp, *loops: UOp) -> UOp:
    return UOp(Ops.REDUCE, FLOAT, (value, *loops), Ops.ADD)


def kernel(*stores: UOp, order: tuple[int, ...] = ()) -> UOp:
    return UOp.sink(*stores, arg=KernelInfo("k", order))


def text(ast: UOp) -> str:
    """The effects of a kernel, first those that fill memory; vectors have names."""
    names: dict[UOp, str] = {}
    lines: list[str] = []
    for node in ast.toposort():
        if node.dtype.lanes > 1 and node.op in (Ops.LOAD, Ops.WHERE):
            lines.append(f"v{len(names)} = {render(node, names)}")
            names[node] = f"v{len(names)}"
        elif node.op is Ops.AFTER:
            lines += [render(effect, names) for effect in node.src[1:]]
    return "\n".join([*lines, *(render(effect, names) for effect in ast.src)])


def listing(program: Sequence[UOp]) -> str:
    """The loops, accumulators and effects of a program; floats with two users have names."""
    users = Counter(source for node in program for source in node.src)
    names: dict[UOp, str] = {}
    lines: list[str] = []
    depth = 0
    for node in program:
        if node.op is Ops.END:
            depth -= 1
            continue
        line = "  " * depth + render(node, names)
        if node.op is Ops.RANGE:
            lines.append(f"{line} < {render(node.extent)}:")
            depth += 1
        elif node.op is Ops.DEFINE_ACC:
            lines.append(f"{line} = {render(node.src[0])}")
        elif node.op in (Ops.STORE, Ops.ASSIGN):
            lines.append(line)
        elif node.op.is_alu and node.dtype.is_float and users[node] > 1:
            names[node] = f"v{len(names)}"
            lines.append("  " * depth + f"{names[node]} = {line.strip()}")
    return "\n".join(lines)


def test_memory_accumulators_in_the_output() -> None:
    k, j = UOp.range(4, 0, Axis.REDUCE), UOp.range(8, 1)
    ast = kernel(memory(0, 8).store(j, total(memory(1).load(k * 8 + j), k)), order=(0, 1))
    assert text(ast) == "data0[ridx1] = reduce(data1[((ridx0*8)+ridx1)], ridx0, Ops.ADD)"
    assert text(use_memory_accumulators(ast, TARGET)) == (
        "end(data0[ridx1] = ((0.0 if (ridx0==0) else data0[ridx1])+data1[((ridx0*8)+ridx1)]), "
        "ridx0)"
    )


def test_memory_accumulators_in_scratch_for_an_epilogue() -> None:
    k, j = UOp.range(4, 0, Axis.REDUCE), UOp.range(8, 1)
    sums = total(memory(1).load(k * 8 + j), k)
    ast = kernel(memory(0, 8).store(j, sums + 1.0), order=(0, 1))
    assert text(ast) == "data0[ridx1] = (reduce(data1[((ridx0*8)+ridx1)], ridx0, Ops.ADD)+1.0)"
    assert text(use_memory_accumulators(ast, TARGET)).split("\n") == [
        "end(local0[ridx1] = ((0.0 if (ridx0==0) else local0[ridx1])+data1[((ridx0*8)+ridx1)]), "
        "ridx0, ridx1)",
        "data0[ridx2] = (local0[ridx2]+1.0)",
    ]


def test_accumulators_that_do_not_fit_scratch_are_registers() -> None:
    k, j = UOp.range(4, 0, Axis.REDUCE), UOp.range(2 * TARGET.scratch_bytes // 8, 1)
    sums = total(memory(1).load(k * 8 + j), k)
    other = total(memory(2).load(k * 8 + j), k)
    ast = kernel(memory(0, 8).store(j, sums * other + 1.0), order=(0, 1))
    assert "local" in text(use_memory_accumulators(ast, replace(TARGET, scratch_bytes=8 << 20)))
    made = use_memory_accumulators(ast, TARGET)
    assert (text(made), made.arg.order) == (text(ast), (1, 0))


def test_memory_accumulators_of_a_scan() -> None:
    i, j = UOp.range(4, 0), UOp.range(8, 1)
    prefix = UOp(Ops.PREFIX, FLOAT, (memory(1).load(i * 8 + j), i), (Ops.MAX, 1))
    ast = kernel(memory(0).store(i * 8 + j, prefix), order=(0, 1))
    old = "(-inf if (ridx0==0) else local0[ridx1])"
    assert text(use_memory_accumulators(ast, TARGET)).split("\n") == [
        f"data0[((ridx0*8)+ridx1)] = max({old}, data1[((ridx0*8)+ridx1)])",
        f"local0[ridx1] = max({old}, data1[((ridx0*8)+ridx1)])",
    ]


def test_lanes_of_contiguous_and_uniform_loads() -> None:
    i, u = UOp.range(4, 0), UOp.range(4, 1, Axis.UPCAST)
    value = memory(1).load(i * 4 + u) * memory(2).load(i)
    ast = kernel(memory(0).store(i * 4 + u, value), order=(0, 1))
    assert text(ast) == "data0[((ridx0*4)+ridx1)] = (data1[((ridx0*4)+ridx1)]*data2[ridx0])"
    assert text(use_lanes(ast, TARGET)).split("\n") == [
        "v0 = data1[(ridx0*4)]",
        "data0[(ridx0*4)] = (v0*[data2[ridx0], data2[ridx0], data2[ridx0], data2[ridx0]])",
    ]


def test_lanes_of_a_stride_are_shuffled_loads() -> None:
    i, u = UOp.range(4, 0), UOp.range(4, 1, Axis.UPCAST)
    ast = kernel(memory(0).store(i * 4 + u, memory(1).load(i * 8 + u * 2)), order=(0, 1))
    assert text(use_lanes(ast, TARGET)).split("\n") == [
        "v0 = data1[(ridx0*8)]",
        "v1 = data1[((ridx0*8)+3)]",
        "v2 = (v0[0, 2, 3, 3] if [True, True, False, False] else v1[0, 0, 1, 3])",
        "data0[(ridx0*4)] = v2",
    ]


def test_lanes_of_a_reduction_are_reduced_by_a_tree() -> None:
    k, u = UOp.range(4, 0, Axis.REDUCE), UOp.range(4, 1, Axis.UNROLL)
    ast = kernel(memory(0).store(at(0), total(memory(1).load(k * 4 + u), k, u)), order=(0, 1))
    half = "(reduce(v0, ridx0, Ops.ADD)[0, 1]+reduce(v0, ridx0, Ops.ADD)[2, 3])"
    assert text(use_lanes(ast, TARGET)).split("\n") == [
        "v0 = data1[(ridx0*4)]",
        f"data0[0] = ({half}[0]+{half}[1])",
    ]


def test_unroll_copies_values_and_reduces_them_in_one_iteration() -> None:
    k, u = UOp.range(4, 0, Axis.REDUCE), UOp.range(2, 1, Axis.UPCAST)
    v = UOp.range(2, 2, Axis.UNROLL)
    sums = total(memory(1).load(u * 8 + k * 2 + v), k, v)
    ast = kernel(memory(0).store(u, sums), order=(0, 1, 2))
    assert text(unroll(ast)).split("\n") == [
        "data0[0] = reduce(data1[(ridx0*2)], data1[((ridx0*2)+1)], ridx0, Ops.ADD)",
        "data0[1] = reduce(data1[((ridx0*2)+8)], data1[((ridx0*2)+9)], ridx0, Ops.ADD)",
    ]


def test_transpose_stores() -> None:
    """Row r is the vector at 4*r; its lane l is stored at 16*l + r."""
    rows = [memory(1).load(at(4 * row), dtype=FLOAT.vec(4)) for row in range(4)]
    stores = [
        memory(0).store(at(16 * lane + row), vector.gep(lane))
        for row, vector in enumerate(rows)
        for lane in range(4)
    ]
    even = "[True, False, True, False]"
    assert text(transpose_stores(kernel(*stores), TARGET)).split("\n") == [
        "v0 = data1[0]",
        "v1 = data1[8]",
        f"v2 = (v0[0, 0, 1, 1] if {even} else v1[0, 0, 1, 1])",
        "v3 = data1[4]",
        "v4 = data1[12]",
        f"v5 = (v3[0, 0, 1, 1] if {even} else v4[0, 0, 1, 1])",
        f"v6 = (v2[0, 0, 1, 1] if {even} else v5[0, 0, 1, 1])",
        f"v7 = (v2[2, 2, 3, 3] if {even} else v5[2, 2, 3, 3])",
        f"v8 = (v0[2, 2, 3, 3] if {even} else v1[2, 2, 3, 3])",
        f"v9 = (v3[2, 2, 3, 3] if {even} else v4[2, 2, 3, 3])",
        f"v10 = (v8[0, 0, 1, 1] if {even} else v9[0, 0, 1, 1])",
        f"v11 = (v8[2, 2, 3, 3] if {even} else v9[2, 2, 3, 3])",
        "data0[0] = v6",
        "data0[16] = v7",
        "data0[32] = v10",
        "data0[48] = v11",
    ]


def test_transpose_loads() -> None:
    """Row r gathers the elements at 16*l + r: each lane's rows are one vector."""
    rows = [UOp.stack(memory(1).load(at(16 * lane + row)) for lane in range(4)) for row in range(4)]
    ast = kernel(*(memory(0).store(at(4 * row), vector) for row, vector in enumerate(rows)))
    assert text(ast).split("\n")[1] == "data0[4] = [data1[1], data1[17], data1[33], data1[49]]"
    low = "[True, True, False, False]"
    assert text(transpose_loads(ast, TARGET)).split("\n") == [
        "v0 = data1[0]",
        "v1 = data1[16]",
        f"v2 = (v0[0, 2, 0, 2] if {low} else v1[0, 2, 0, 2])",
        "v3 = data1[32]",
        "v4 = data1[48]",
        f"v5 = (v3[0, 2, 0, 2] if {low} else v4[0, 2, 0, 2])",
        f"v6 = (v2[0, 2, 0, 2] if {low} else v5[0, 2, 0, 2])",
        f"v7 = (v0[1, 3, 1, 3] if {low} else v1[1, 3, 1, 3])",
        f"v8 = (v3[1, 3, 1, 3] if {low} else v4[1, 3, 1, 3])",
        f"v9 = (v7[0, 2, 0, 2] if {low} else v8[0, 2, 0, 2])",
        f"v10 = (v2[1, 3, 1, 3] if {low} else v5[1, 3, 1, 3])",
        f"v11 = (v7[1, 3, 1, 3] if {low} else v8[1, 3, 1, 3])",
        "data0[0] = v6",
        "data0[4] = v9",
        "data0[8] = v10",
        "data0[12] = v11",
    ]


def test_share_vectors_of_even_and_odd_elements() -> None:
    """Even elements of 0 to 6 and odd ones of 1 to 7: the vectors at 0 and 4 have them all."""
    low = UOp.stack([UOp.const(dtypes.bool, lane < 2) for lane in range(4)])

    def every_second(first: int) -> UOp:
        one, other = (memory(1).load(at(first + n), dtype=FLOAT.vec(4)) for n in (0, 3))
        return low.where(one.gep(0, 2, 3, 3), other.gep(0, 0, 1, 3))

    ast = kernel(memory(0).store(at(0), every_second(0) + every_second(1)))
    assert [line for line in text(ast).split("\n") if "data1" in line] == [
        "v0 = data1[0]", "v1 = data1[3]", "v3 = data1[1]", "v4 = data1[4]",
    ]  # fmt: skip
    half = "[True, True, False, False]"
    assert text(share_vectors(ast, TARGET)).split("\n") == [
        "v0 = data1[0]",
        "v1 = data1[4]",
        f"v2 = (v0[0, 2, 3, 3] if {half} else v1[0, 0, 0, 2])",
        f"v3 = (v0[1, 3, 3, 3] if {half} else v1[0, 0, 1, 3])",
        "data0[0] = (v2+v3)",
    ]


def test_share_vectors_leaves_what_would_need_more_vectors() -> None:
    """The window at 1 is one load; out of the vectors beside it, it would be two."""
    loads = [memory(1).load(at(first), dtype=FLOAT.vec(4)) for first in (0, 1, 2, 4)]
    ast = kernel(*(memory(0).store(at(4 * n), each) for n, each in enumerate(loads)))
    assert share_vectors(ast, TARGET) is ast


def test_skip_starts_the_loop_where_the_input_does() -> None:
    y, k = UOp.range(7, 0), UOp.range(3, 1, Axis.REDUCE)
    gate = at(0) < y + k
    value = memory(1).load(y + k - 1, UOp.const(FLOAT, 0.0), gate) * memory(2).load(k)
    ast = kernel(memory(0).store(y, total(value, k)), order=(0, 1))
    first = "max(((ridx0*-1)+1), 0)"
    found = skip_iterations(ast, TARGET)
    assert text(found) == (
        f"data0[ridx0] = reduce((data1[(ridx0+ridx1+{first}+-1)]*data2[(ridx1+{first})]), ridx1, "
        "Ops.ADD)"
    )
    (loop,) = (node for node in found.toposort() if node.op is Ops.RANGE and node.number == 1)
    assert render(loop.extent) == "((max(((ridx0*-1)+1), 0)*-1)+3)"


def test_skip_products_drops_closed_loads() -> None:
    k = UOp.range(4, 0, Axis.REDUCE)
    zero = UOp.const(FLOAT, 0.0)
    values = [
        memory(1).load(at(0), zero, UOp.const(dtypes.bool, is_open)) * memory(2).load(k + number)
        for number, is_open in enumerate((False, True))
    ]
    ast = kernel(memory(0).store(at(0), total(values[0], values[1], k)), order=(0,))
    assert text(skip_products(ast, TARGET)) == (
        "data0[0] = reduce(((data1[0] if True else 0.0)*data2[(ridx0+1)]), ridx0, Ops.ADD)"
    )


def test_peel_repeats_the_body_with_its_gates_after_the_loop() -> None:
    index = UOp.range(5, 0) * 4
    vector, lanes = FLOAT.vec(4), UOp.stack(at(lane) for lane in range(4))
    gate = index.broadcast(4) + lanes < UOp.const(INDEX.vec(4), 18)
    value = memory(1, 18).load(index, UOp.const(vector, 0.0), gate, dtype=vector)
    ast = kernel(memory(0, 18).store(index, value * 2.0, gate), order=(0,))
    program = linearize(choose_integers(ast))
    inside = "(([(ridx0*4), (ridx0*4), (ridx0*4), (ridx0*4)]+[0, 1, 2, 3])<18)"
    assert listing(program).split("\n") == [
        "ridx0 < 5:",
        f"  data0[(ridx0*4)] = ((data1[(ridx0*4)] if {inside} else 0.0)*2.0) if {inside}",
    ]
    last = inside.replace("ridx0", "4")
    assert listing(peel(program, TARGET)).split("\n") == [
        "ridx1 < 4:",
        "  data0[(ridx1*4)] = (data1[(ridx1*4)]*2.0)",
        f"data0[(4*4)] = ((data1[(4*4)] if {last} else 0.0)*2.0) if {last}",
    ]


def test_accumulators_of_a_reduction() -> None:
    k = UOp.range(8, 0, Axis.REDUCE)
    ast = kernel(memory(0).store(at(0), total(memory(1).load(k), k)), order=(0,))
    assert text(use_accumulators(ast, TARGET)).split("\n") == [
        "end(assign(acc0, (acc0+data1[ridx0])), ridx0)",
        "data0[0] = acc0",
    ]


def test_accumulators_of_a_scan() -> None:
    i = UOp.range(4, 0)
    prefix = UOp(Ops.PREFIX, FLOAT, (memory(1).load(i), i), (Ops.MAX, 1))
    ast = kernel(memory(0).store(i, prefix), order=(0,))
    program = linearize(choose_integers(use_accumulators(ast, TARGET)))
    assert listing(program).split("\n") == [
        "acc0 = -inf",
        "ridx0 < 4:",
        "  v0 = max(acc0, data1[ridx0])",
        "  assign(acc0, v0)",
        "  data0[ridx0] = v0",
    ]


def test_levels_give_each_block_an_accumulator() -> None:
    k = UOp.range(4096, 0, Axis.REDUCE)
    ast = kernel(memory(0).store(at(0), total(memory(1).load(k), k)), order=(0,))
    program = linearize(choose_integers(use_accumulators(ast, TARGET)))
    assert listing(program).split("\n") == [
        "acc0 = 0.0",
        "ridx0 < 4096:",
        "  assign(acc0, (acc0+data1[ridx0]))",
        "data0[0] = acc0",
    ]
    assert listing(split_levels(program, TARGET)).split("\n") == [
        "acc0 = 0.0",
        "ridx1 < 32:",
        "  acc1 = 0.0",
        "  ridx2 < 128:",
        "    assign(acc1, (acc1+data1[((ridx1*128)+ridx2)]))",
        "  assign(acc0, (acc0+acc1))",
        "data0[0] = acc0",
    ]


def test_choose_loads_at_one_index() -> None:
    y, u = UOp.range(4, 0), UOp.range(4, 1, Axis.UPCAST)
    zero, is_first = UOp.const(FLOAT, 0.0), y < 2
    reflected = memory(1).load(at(9) - y * 4 + u, zero, is_first)
    plain = memory(1).load(y * 4 + u, zero, is_first.logical_not())
    ast = kernel(memory(0).store(y * 4 + u, is_first.where(reflected, plain)), order=(0, 1))
    assert text(ast) == (
        "data0[((ridx0*4)+ridx1)] = ((data1[(9+(ridx0*4*-1)+ridx1)] if (ridx0<2) else 0.0) "
        "if (ridx0<2) else (data1[((ridx0*4)+ridx1)] if (not (ridx0<2)) else 0.0))"
    )
    assert text(choose_loads(ast, TARGET)) == (
        "data0[((ridx0*4)+ridx1)] = data1[(ridx1+(((ridx0*-4)+9) if (ridx0<2) else (ridx0*4)))]"
    )


def test_launch_has_the_largest_size_and_chunks() -> None:
    size = UOp.variable("n", 1, 8)
    block, chunk = UOp(Ops.RANGE, INDEX, (size,), (0, Axis.GLOBAL)), UOp.range(4, 1, Axis.THREAD)
    index = block * 4 + chunk
    ast = fix_launch(kernel(memory(0).store(index, memory(1).load(index)), order=(0, 1)))
    assert text(ast) == (
        "data0[((ridx0*4)+chunk)] = (data1[((ridx0*4)+chunk)] if (ridx0<n) else 0.0) if (ridx0<n)"
    )
    (loop,) = (node for node in ast.toposort() if node.op is Ops.RANGE)
    assert render(loop.extent) == "8"


def test_warps_exchange_and_one_lane_of_each_stores() -> None:
    lane, k = UOp.range(8, 0, Axis.GROUP), UOp.range(8, 1, Axis.REDUCE)
    shared = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(8, AddressSpace.SHARED), (), 0)
    filled = UOp(Ops.BARRIER, dtypes.void, (shared.store(lane, memory(1).load(lane)),))
    ast = kernel(memory(0).store(at(0), total(shared.after(filled).load(k), k)), order=(0, 1))
    assert text(ast).split("\n") == [
        "barrier(local0[ridx0] = data1[ridx0])",
        "data0[0] = reduce(local0[ridx1], ridx1, Ops.ADD)",
    ]
    pair = "(data1[ridx0]+shuffle(data1[ridx0], 2))"
    made = use_warps(ast, replace(CUDA, shuffle_lanes=4))
    assert text(made).split("\n") == [
        f"barrier(local0[(ridx0//4)] = ({pair[1:-1]}+shuffle({pair}, 1)) if ((ridx0%4)==0))",
        "data0[0] = reduce(local0[ridx2], ridx2, Ops.ADD)",
    ]
    (loop,) = (node for node in made.toposort() if node.op is Ops.RANGE and node.number == 2)
    assert render(loop.extent) == "2"


def test_shared_memory_of_each_lane_is_a_slice_of_one_array() -> None:
    lane, i, j = UOp.range(32, 0, Axis.LOCAL), UOp.range(4, 1), UOp.range(4, 2)
    shared = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(4, AddressSpace.SHARED), (lane,), 0)
    filled = shared.store(i, memory(1).load(lane * 4 + i)).end(i)
    reversed_row = shared.after(filled).load(at(3) - j)
    ast = spread_shared(kernel(memory(0).store(lane * 4 + j, reversed_row), order=(0, 1, 2)))
    assert text(ast).split("\n") == [
        "end(local0[(ridx1+(ridx0*4))] = data1[((ridx0*4)+ridx1)], ridx1)",
        "data0[((ridx0*4)+ridx2)] = local0[((ridx2*-1)+(ridx0*4)+3)]",
    ]
    (array,) = (node for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL)
    assert array.dtype is FLOAT.ptr(32 * 4, AddressSpace.SHARED)


def test_join_accesses_of_scalars() -> None:
    i = UOp.range(8, 0)
    stores = [memory(0).store(i * 4 + k, memory(1).load(i * 4 + k) * 2.0) for k in range(4)]
    ast = kernel(*stores, order=(0,))
    assert text(ast).split("\n")[3] == "data0[((ridx0*4)+3)] = (data1[((ridx0*4)+3)]*2.0)"
    assert text(join_accesses(ast, CUDA)).split("\n") == [
        "v0 = data1[(ridx0*4)]",
        "data0[(ridx0*4)] = [(v0[0]*2.0), (v0[1]*2.0), (v0[2]*2.0), (v0[3]*2.0)]",
    ]


def test_grid_names_blocks_and_lanes() -> None:
    block, lane = UOp.range(16, 0, Axis.GLOBAL), UOp.range(32, 1, Axis.LOCAL)
    index = block * 96 + lane * 3 + UOp.range(3, 2)
    ast = kernel(memory(0).store(index, memory(1).load(index)), order=(0, 1, 2))
    assert text(use_grid(ast)) == (
        "data0[((gidx0*96)+(lidx0*3)+ridx2)] = data1[((gidx0*96)+(lidx0*3)+ridx2)]"
    )


def test_order_puts_outer_loops_first() -> None:
    i, j, k = UOp.range(8, 0), UOp.range(64, 1), UOp.range(4, 2, Axis.REDUCE)
    value = total(memory(1).load(k + (i * 64 + j)), k)
    ast = kernel(memory(0).store(i * 64 + j, value), order=(0, 1, 2))
    start = "data0[((ridx0*64)+ridx1)] = reduce"
    assert text(ast) == f"{start}(data1[(ridx2+(ridx0*64)+ridx1)], ridx2, Ops.ADD)"
    assert text(order_sums(ast)) == f"{start}(data1[((ridx0*64)+ridx1+ridx2)], ridx2, Ops.ADD)"


def test_integers_are_as_wide_as_their_bounds() -> None:
    i, j = UOp.range(6, 0), UOp.range(1 << 20, 1)
    index = j * 4096 + i
    ast = kernel(memory(0).store(i // 4 * 2 + i % 4, memory(1).load(index)), order=(0, 1))
    assert text(ast) == "data0[(((ridx0//4)*2)+(ridx0%4))] = data1[((ridx1*4096)+ridx0)]"
    made = choose_integers(ast)
    assert text(made) == (
        "data0[(((ridx0>>2)*2)+(ridx0&3))] = data1[((long(ridx1)*4096)+long(ridx0))]"
    )
    assert {node.dtype for node in made.toposort() if node.op is Ops.RANGE} == {dtypes.int32}


def test_decompose_replaces_what_the_target_lacks() -> None:
    value = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(8), (), 1).load(at(0))
    result = value * 8 + value.maximum(UOp.const(dtypes.int32, 3))
    ast = kernel(UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(8), (), 0).store(at(0), result))
    assert text(ast) == "data0[0] = ((data1[0]*8)+max(data1[0], 3))"
    assert text(decompose(ast, TARGET)) == "data0[0] = ((data1[0]<<3)+max(data1[0], 3))"
    assert text(decompose(ast, replace(TARGET, missing=frozenset({Ops.MAX})))) == (
        "data0[0] = ((data1[0]<<3)+(3 if (data1[0]<3) else data1[0]))"
    )


def test_lengths_end_where_their_gate_shuts() -> None:
    size = length_variable(0, 1, 2048)
    index = UOp.range(64, 0, Axis.GLOBAL) * 32 + UOp.range(32, 1, Axis.LOCAL)
    value = memory(1).load(index, UOp.const(FLOAT, 0.0), index < size)
    ast = kernel(memory(0).store(index, value, index < size), order=(0, 1))
    made = fit_lengths(ast, CUDA)
    inside = "(((ridx0*32)+ridx1)<_length0)"
    assert text(made) == (
        f"data0[((ridx0*32)+ridx1)] = (data1[((ridx0*32)+ridx1)] if {inside} else 0.0) if {inside}"
    )
    extents = [render(node.extent) for node in made.toposort() if node.op is Ops.RANGE]
    assert extents == ["((_length0+31)//32)", "32"]


def test_every_pass_has_a_golden_or_tests_elsewhere() -> None:
    """The functions that a golden calls: those of a pass, or the one of its lambda."""
    root = Path(__file__).parents[2]
    lines = re.findall(r'ListedPass\("(lower\.\w+)", (.*)\),\n', Path(lower.__file__).read_text())
    assert [name for name, _ in lines] == [step.name for step in PASSES]
    called = set(re.findall(r"\b\w+(?=\()", Path(__file__).read_text().partition("\ndef test_")[2]))
    without = [name for name, code in lines if not called & set(re.findall(r"\w+", code))]
    assert set(without) == set(ELSEWHERE)
    assert all((root / file).exists() for file in ELSEWHERE.values())
