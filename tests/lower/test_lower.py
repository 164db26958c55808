"""Programs of kernels: which instructions, in which order, on which part of the launch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    INT,
    buffer,
    conv2d,
    expand,
    kernel,
    matmul,
    name,
    opt,
    permute,
    program,
    reduce,
    run,
    shaped,
    softmax,
    text,
)
from tilegrad import Context
from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.device.emulator import execute
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.spec import verify
from tilegrad.ir.uop import UOp, Variable
from tilegrad.lower import expand as writing
from tilegrad.lower.expand import unroll
from tilegrad.lower.grid import use_grid
from tilegrad.lower.join_accesses import join_accesses
from tilegrad.lower.lower import PASSES, lower
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.runtime.protocol import launch_dims
from tilegrad.target import Target

UPCAST, UNROLL, LOCAL, PADTO = OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL, OptOps.PADTO
SCALAR = replace(CUDA, memory_lanes=1)


def dot(size: int, dtype: DType = INT) -> UOp:
    return kernel(reduce(Ops.ADD, buffer(0, size, dtype=dtype) * buffer(1, size, dtype=dtype), 0))


def ops(found: list[UOp]) -> list[Ops]:
    return [node.op for node in found]


# instructions


@pytest.mark.row("F1.4", "F3.1")
def test_the_order_of_a_reduction() -> None:
    found = program(dot(2))
    assert ops(found) == [
        *[Ops.DEFINE_GLOBAL] * 3,
        Ops.CONST,
        Ops.DEFINE_ACC,
        Ops.CONST,
        Ops.RANGE,
        Ops.LOAD,
        Ops.LOAD,
        Ops.MUL,
        Ops.ADD,
        Ops.ASSIGN,
        Ops.END,
        Ops.AFTER,
        Ops.STORE,
        Ops.SINK,
    ]
    step = {node: number for number, node in enumerate(found)}
    assert all(step[source] < step[node] for node in found for source in node.src)


@pytest.mark.row("F3.1", "F3.4")
def test_what_a_loop_does_not_change_stands_outside() -> None:
    x = buffer(0, 8, 16)
    value = reduce(Ops.ADD, x * expand(buffer(1, 8, 1), 8, 16), 1) * buffer(2, 8, 1)
    found = ops(program(kernel(value)))
    loop, foot = found.index(Ops.RANGE), found.index(Ops.END)
    assert found[:loop].count(Ops.LOAD) >= 1
    assert found[loop:foot].count(Ops.LOAD) == 1
    assert found.index(Ops.DEFINE_ACC) < loop
    assert foot < found.index(Ops.STORE)


@pytest.mark.row("F3.2")
def test_equal_instructions_are_one() -> None:
    x = buffer(0, 16)
    found = program(kernel((x + 1.0) * (x + 1.0)))
    assert sum(node.op is Ops.ADD and node.dtype is FLOAT for node in found) == 1
    # Loops and accumulators are no values: two reductions of one extent have their own.
    twice = softmax(buffer(0, 64, 8))
    counts = Counter(ops(program(kernel(twice))))
    assert counts[Ops.DEFINE_ACC] == 2
    assert counts[Ops.RANGE] == counts[Ops.END] == 3


@pytest.mark.row("F3.3")
@pytest.mark.parametrize(
    ("fold", "dtype", "identity"),
    [
        (Ops.ADD, FLOAT, 0.0),
        (Ops.MUL, FLOAT, 1.0),
        (Ops.MAX, FLOAT, -np.inf),
        (Ops.ADD, INT, 0),
        (Ops.MAX, INT, -(2**31)),
        (Ops.MAX, dtypes.uint8, 0),
    ],
)
def test_an_accumulator_starts_at_the_identity(fold: Ops, dtype: DType, identity: Any) -> None:
    found = program(kernel(reduce(fold, buffer(0, 8, dtype=dtype), 0)))
    (accumulator,) = (node for node in found if node.op is Ops.DEFINE_ACC)
    assert accumulator.src[0].arg == identity


@pytest.mark.row("F3.5")
def test_nothing_is_computed_in_vain() -> None:
    for ast in (dot(64), kernel(softmax(buffer(0, 64, 8))), _conv()):
        for opts in ((), None):
            found = program(ast, opts)
            used = {source for node in found for source in node.src}
            effects = (Ops.STORE, Ops.ASSIGN, Ops.SINK, Ops.END, Ops.BARRIER)
            assert all(node in used or node.op in effects for node in found)
            for node in found:
                if node.op.is_alu and node.dtype is not FLOAT:
                    assert any(source.op is not Ops.CONST for source in node.src)


@pytest.mark.row("M10.2")
def test_written_out_the_loop_is_gone() -> None:
    assert Ops.RANGE in ops(program(dot(3), (), SCALAR))
    found = program(dot(3), [opt(UNROLL, 0, 0)], SCALAR)
    counts = Counter(ops(found))
    assert counts[Ops.LOAD] == 6
    assert counts[Ops.RANGE] == counts[Ops.DEFINE_ACC] == 0
    assert sorted(node.arg for node in found if node.op is Ops.CONST) == [0, 1, 2]
    # The notes list 20; they count one step of adding to 0 more, and no SINK.
    assert counts[Ops.MUL] == 3 and counts[Ops.ADD] == 2
    assert len(found) == 19


@pytest.mark.row("M10.8")
def test_a_loop_ends_before_its_extent() -> None:
    found = program(dot(11))
    (loop,) = (node for node in found if node.op is Ops.RANGE)
    assert (loop.vmin, loop.vmax) == (0, 10)
    assert loop.src[0].arg == 11
    assert "ridx0 = 0; ridx0 < 11; ridx0++" in text(dot(11))


@pytest.mark.row("R7.6")
def test_the_instructions_of_a_vector_sum() -> None:
    ast = kernel(buffer(0, 4, 4) + 1.0)
    counts = Counter(ops(program(ast, [opt(UPCAST, 0, 4), opt(LOCAL, 0, 4)])))
    # The notes' 21 hold an INDEX and a CAST to float.vec(4) for each access, and no SINK.
    assert counts == {
        Ops.DEFINE_GLOBAL: 2,
        Ops.SPECIAL: 1,
        Ops.CONST: 2,
        Ops.SHL: 1,
        Ops.LOAD: 1,
        Ops.GEP: 4,
        Ops.ADD: 4,
        Ops.VECTORIZE: 1,
        Ops.STORE: 1,
        Ops.SINK: 1,
    }
    assert counts.total() + 2 * 2 - 1 == 21


# writing out


def _as_numbers(index: UOp, written: UOp) -> list[tuple[int, float]]:
    """The values of `index` that unrolling stores at, and what it stores there."""
    pointer = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(64), (), 0)
    ast = UOp.sink(pointer.store(index, written.cast(FLOAT)), arg=KernelInfo("E", ()))
    return [tuple([simplify(each).arg for each in store.src[1:]]) for store in unroll(ast).src]


@pytest.mark.row("M10.7")
def test_an_index_is_written_out() -> None:
    three = UOp.range(3, 0, Axis.UPCAST)
    variable = Variable("x", 0, 10)
    assert _as_numbers(three + 5, three) == [(5, 0.0), (6, 1.0), (7, 2.0)]
    assert _as_numbers((three + 5) * 3, three) == [(15, 0.0), (18, 1.0), (21, 2.0)]
    pointer = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(64), (), 0)
    for alone in (UOp.const(dtypes.index, 42), variable):
        store = pointer.store(alone, pointer.load(alone))
        ast = UOp.sink(store, arg=KernelInfo("E", ()))
        assert unroll(ast) is ast


@pytest.mark.row("R7.7")
def test_what_does_not_depend_on_a_written_out_axis_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a row and a column one load is made four times, the other is taken as it is."""
    made: Counter[Ops] = Counter()
    copies = writing._copies

    def counted(node: UOp, *rest: Any) -> Any:
        found = copies(node, *rest)
        made[node.op] += len(found)
        return found

    monkeypatch.setattr(writing, "_copies", counted)
    product = buffer(0, 8, 4) * expand(buffer(1, 8, 1), 8, 4)
    unroll(shaped(kernel(product), [opt(UPCAST, 1, 4)]))
    assert (made[Ops.LOAD], made[Ops.MUL]) == (4, 4)


@pytest.mark.row("R7.7")
def test_a_kernel_without_written_out_axes_is_left_alone() -> None:
    ast = shaped(dot(64))
    assert unroll(ast) is ast
    # What does not depend on the axis is not copied.
    found = program(kernel(buffer(0, 8, 4) * expand(buffer(1, 8, 1), 8, 4)), [opt(UPCAST, 1, 4)])
    assert sum(node.op is Ops.LOAD for node in found) == 2


def test_tiles_do_not_grow_beyond_their_size() -> None:
    """Two written-out axes copy each load once per axis that it needs."""
    ast = kernel(matmul(buffer(0, 64, 64), buffer(1, 64, 64)))
    found = program(ast, [opt(UPCAST, 0, 8), opt(UPCAST, 1, 8)], SCALAR)
    counts = Counter(ops(found))
    assert counts[Ops.LOAD] == 16
    assert counts[Ops.MULACC] == counts[Ops.DEFINE_ACC] == 64


def test_each_pass_has_a_name_and_leaves_a_legal_graph() -> None:
    seen: list[str] = []
    lower(shaped(_conv(), None), CUDA, lambda ast, name: seen.append(name))
    assert seen == [step.name for step in PASSES]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("level", [1, 2])
def test_a_pass_that_leaves_what_is_not_legal_is_named(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each pass is checked at once or only after the program was refused."""

    def bend(ast: UOp, target: Target) -> UOp:
        # A store has two operands and perhaps a gate: the value is lost.
        (store,) = (node for node in ast.toposort() if node.op is Ops.STORE)
        return ast.substitute({store: UOp(Ops.STORE, store.dtype, store.src[:1])})

    bent = [step._replace(apply=bend) if step.name == "lower.order" else step for step in PASSES]
    monkeypatch.setattr("tilegrad.lower.lower.PASSES", tuple(bent))
    ast = shaped(kernel(buffer(0, 8) + 1), None)
    with (
        Context(VERIFY=level),
        pytest.raises(InternalError, match=r"^lower\.order left a store in .*: 1 sources"),
    ):
        lower(ast, CUDA)


# gates


def _conv() -> UOp:
    return kernel(conv2d(buffer(0, 1, 12, 128, 256), buffer(1, 32, 12, 3, 3), stride=2, padding=1))


@pytest.mark.row("M11.5")
def test_a_padded_convolution_checks_low_edges_only() -> None:
    source = text(_conv())
    (load,) = (line for line in source.splitlines() if "*(data1+" in line)
    gate = load.split("?")[0]
    assert gate.count("<0") == 2
    assert gate.count("<") == 2
    assert "(-257)" in load


@pytest.mark.row("M11.5")
def test_the_checks_are_those_that_are_needed() -> None:
    """Over all positions the gate holds exactly where the element is inside the image."""
    (load,) = (n for n in _conv().toposort() if n.op is Ops.LOAD and len(n.src) == 4)
    gate, index = load.src[3], load.src[1]
    loops = {loop: loop.src[0].arg for loop in load.ranges}
    by_extent: dict[int, list[UOp]] = {}
    for loop, extent in loops.items():
        by_extent.setdefault(extent, []).append(loop)
    rows, columns = by_extent[64][0], by_extent[128][0]
    # Which of the two axes of 3 runs along rows: the one that moves a whole row.
    first, second = by_extent[3]
    channel = by_extent[12][0]
    step = {
        loop: simplify(index.substitute({loop: loop + 1}) - index).arg for loop in (first, second)
    }
    down, right = (first, second) if step[first] == 256 else (second, first)
    for y, x, i, j in itertools.product(range(64), (0, 1, 63, 127), range(3), range(3)):
        at = {rows: y, columns: x, down: i, right: j, channel: 0}
        values = {loop: UOp.const(dtypes.index, value) for loop, value in at.items()}
        inside = 0 <= 2 * y + i - 1 < 128 and 0 <= 2 * x + j - 1 < 256
        assert simplify(gate.substitute(values)).arg == inside
        if inside:
            assert simplify(index.substitute(values)).arg == (2 * y + i - 1) * 256 + 2 * x + j - 1


def test_a_gate_that_is_always_open_is_none() -> None:
    source = text(_conv(), None)
    assert "true" not in source and "false" not in source


# the launch


def grid(*axes: tuple[int | UOp, Axis]) -> dict[str, Any]:
    """The positions of a kernel with these ranges, by name."""
    loops = [UOp.range(extent, number, kind) for number, (extent, kind) in enumerate(axes)]
    size = 1
    index = UOp.const(dtypes.index, 0)
    for loop in reversed(loops):
        index = index + loop * size
        size = size * (loop.vmax + 1)
    store = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(size), (), 0).store(index, UOp.const(FLOAT, 1.0))
    ast = use_grid(UOp.sink(store, arg=KernelInfo("E", tuple(range(len(axes))))))
    return {node.arg[0]: node.arg[1] for node in ast.toposort() if node.op is Ops.SPECIAL}


def test_blocks_and_lanes() -> None:
    assert grid((16, Axis.GLOBAL)) == {"gidx0": 16}
    assert grid((4, Axis.GLOBAL), (5, Axis.GLOBAL), (6, Axis.GLOBAL)) == {
        "gidx0": 4,
        "gidx1": 5,
        "gidx2": 6,
    }
    # The innermost lanes are the first axis of the block.
    assert grid((4, Axis.LOCAL), (5, Axis.LOCAL), (6, Axis.GROUP)) == {
        "lidx0": 6,
        "lidx1": 5,
        "lidx2": 4,
    }


def test_more_axes_than_a_launch_has_share_one() -> None:
    kinds = [(size, Axis.GLOBAL) for size in (2, 3, 4, 5)]
    assert grid(*kinds) == {"gidx0": 6, "gidx1": 4, "gidx2": 5}
    lanes = [(2, Axis.LOCAL)] * 5
    assert grid(*lanes) == {"lidx0": 2, "lidx1": 2, "lidx2": 8}


def test_no_axis_of_a_launch_is_too_long() -> None:
    assert grid((8, Axis.GLOBAL), (100_000, Axis.GLOBAL)) == {"gidx0": 800_000}
    assert grid((100_000, Axis.GLOBAL), (8, Axis.GLOBAL)) == {"gidx0": 100_000, "gidx1": 8}
    deep = [(128, Axis.LOCAL), (2, Axis.LOCAL), (2, Axis.LOCAL)]
    assert grid(*deep) == {"lidx0": 512}


@pytest.mark.row("M8.2")
def test_a_position_is_a_name_and_an_extent() -> None:
    found = program(kernel(buffer(0, 3) + 1.0), [opt(LOCAL, 0, 0)])
    (special,) = (node for node in found if node.op is Ops.SPECIAL)
    assert special.arg == ("lidx0", 3)
    assert launch_dims(found).local_size == (3, 1, 1)


def test_symbolic_extents_reach_the_launch() -> None:
    size = Variable("n", 1, 8)
    assert grid((size, Axis.GLOBAL))["gidx0"] is size
    shared = grid((size, Axis.GLOBAL), *[(2, Axis.GLOBAL)] * 3)
    assert simplify(shared["gidx0"]) is simplify(size * 2)


def _doubled(size: UOp) -> UOp:
    """A kernel that doubles the first `size` elements."""
    loop = UOp.range(size, 0, Axis.LOOP)
    out, x = (UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(96), (), slot) for slot in (0, 1))
    return UOp.sink(out.store(loop, x.load(loop) * 2.0), arg=KernelInfo("E", (0,)))


@pytest.mark.parametrize("opts", [(), [opt(PADTO, 0, 32), opt(LOCAL, 0, 32)], None])
def test_one_launch_serves_every_size(opts: list[Opt] | None) -> None:
    """It has as many blocks as the largest needs; those beyond the size write nothing."""
    found = program(_doubled(Variable("n", 1, 96)), opts)
    dims = launch_dims(found, {})
    assert dims.global_size[0] * dims.local_size[0] == 96
    x = np.arange(96, dtype=np.float32)
    for size in (1, 31, 32, 95, 96):
        out = np.full(96, -1, np.float32)
        execute(found, [memoryview(each).cast("B") for each in (out, x)], {"n": size})
        assert out.tolist() == [*(2 * x[:size]).tolist(), *[-1] * (96 - size)]


def test_a_symbolic_size_stays_in_the_name() -> None:
    assert name(_doubled(Variable("n", 1, 8))) == "E_n"


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6), (7, 1, 2, 3, 4)])
def test_every_element_is_visited_once(shape: tuple[int, ...]) -> None:
    value = UOp(Ops.CONTIGUOUS, FLOAT, (permute(buffer(0, *shape), 4, 2, 0, 3, 1),))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    wanted = x.transpose(4, 2, 0, 3, 1).ravel().tolist()
    for opts in ((), None):
        assert run(value, {0: x}, opts).tolist() == wanted


def test_sums_of_positions_share_partial_sums() -> None:
    """One order of terms everywhere, so that equal sums are equal nodes."""
    ast = kernel(matmul(buffer(0, 64, 64), buffer(1, 64, 64)))
    moves = [opt(UPCAST, 0, 4), opt(UPCAST, 1, 4), opt(LOCAL, 0, 4), opt(LOCAL, 1, 4)]
    found = program(ast, moves)
    sums: Counter[frozenset[UOp]] = Counter()
    for node in found:
        if node.op is Ops.ADD and node.dtype.is_int and all(s.op is Ops.SHL for s in node.src):
            sums[frozenset(node.src)] += 1
    assert all(count == 1 for count in sums.values())


# joining


def _stores(offsets: Iterator[int] | range, size: int = 16) -> list[int]:
    """The lanes of the stores left of stores to these elements of a row of 16."""
    row = UOp.range(4, 0, Axis.GLOBAL)
    pointer = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(4 * size), (), 0)
    effects = [
        pointer.store(row * size + offset, UOp.const(FLOAT, float(offset))) for offset in offsets
    ]
    joined = join_accesses(UOp.sink(*effects, arg=KernelInfo("E", (0,))), CUDA)
    return [store.src[2].dtype.lanes for store in joined.src]


def test_neighbouring_stores_join_where_aligned() -> None:
    assert _stores(range(4)) == [4]
    assert _stores(range(8)) == [4, 4]
    assert _stores(range(1, 5)) == [1, 2, 1]
    assert _stores(range(6)) == [4, 2]
    assert _stores(range(4), size=6) == [2, 2]
    assert _stores(range(4), size=7) == [1, 1, 1, 1]
    assert sorted(_stores(iter([3, 1, 0, 2]))) == [4]


def test_only_scalar_targets_join() -> None:
    (step,) = (step for step in PASSES if step.name == "lower.join_accesses")
    assert step.has_work(replace(SCALAR, memory_lanes=4))
    assert not step.has_work(replace(SCALAR, memory_lanes=1))
    assert not step.has_work(replace(CUDA, vector_bytes=32))


def test_a_joined_store_writes_what_the_single_ones_would() -> None:
    value = buffer(0, 4, 16) * 2.0
    x = np.arange(64, dtype=np.float32)
    found = program(kernel(value), [opt(UPCAST, 0, 16)])
    memory = [np.zeros(64, np.float32), x]
    execute(found, [memoryview(each).cast("B") for each in memory])
    assert memory[0].tolist() == (2 * x).tolist()


def test_two_ways_to_say_that_one_loop_is_over_are_one() -> None:
    """Of two stores in one loop, a load waits for the first before the second, another for the
    second before the first: in the program both wait for the foot of the loop.
    """
    memory = UOp(Ops.DEFINE_LOCAL, FLOAT.ptr(16, AddressSpace.SCRATCH), (), 0)
    loop, source, target = UOp.range(8, 0), param(1, 16), param(0, 2)
    first = memory.store(loop, source.load(loop)).end(loop)
    second = memory.store(loop + 8, source.load(loop + 8)).end(loop)
    loads = [
        memory.after(*order).load(UOp.const(dtypes.index, place))
        for place, order in enumerate([(first, second), (second, first)])
    ]
    stores = [target.store(UOp.const(dtypes.index, n), load) for n, load in enumerate(loads)]
    found = lower(UOp.sink(*stores, arg=KernelInfo("r", (0,))), replace(CUDA, threads=0))
    verify(found, Stage.PROGRAM, "lower")
    assert Counter(ops(found))[Ops.AFTER] == 1
    assert Counter(ops(found))[Ops.END] == 1


def param(slot: int, size: int) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(size), (), slot)
