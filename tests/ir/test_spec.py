"""verify: legal graphs pass, and each way of being wrong is refused with the pass named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.ir.values import accept
from tilegrad.base import cache
from tilegrad.base.config import Context
from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.ir import Axis, Ops, Stage, UOp
from tilegrad.ir.args import BufferArg, KernelInfo, RandArg
from tilegrad.ir.spec import TABLES, verify
from tilegrad.ir.text import parse

Graph = UOp | Sequence[UOp]

ZERO = UOp.const(dtypes.float, 0)
INT_ZERO = UOp.const(dtypes.int, 0)


def buffer(size: int = 16, slot: int = 0, dtype: DType = dtypes.float) -> UOp:
    return UOp(Ops.BUFFER, dtype, (), BufferArg(slot, "CPU", size))


def pointer(slot: int, size: int = 16, dtype: DType = dtypes.float) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def local(size: int, place: AddressSpace = AddressSpace.SHARED, *ranges: UOp) -> UOp:
    return UOp(Ops.DEFINE_LOCAL, dtypes.float.ptr(size, place), ranges, 0)


def special(name: str, extent: int, dtype: DType = dtypes.int) -> UOp:
    return UOp(Ops.SPECIAL, dtype, (), (name, extent))


def loop(extent: int, number: int = 0) -> UOp:
    """A range of a program, whose indices are machine integers."""
    return UOp(Ops.RANGE, dtypes.int, (UOp.const(dtypes.int, extent),), (number, Axis.LOOP))


def program(*last: UOp) -> list[UOp]:
    """What `last` need, in an order without loops."""
    return list(UOp.sink(*last).toposort())[:-1]


def kernel(*effects: UOp) -> UOp:
    return UOp.sink(*effects, arg=KernelInfo("kernel"))


OUT, A = pointer(0), pointer(1)
I = UOp.range(16, 0, Axis.GLOBAL)  # noqa: E741
J, K = UOp.range(4, 1, Axis.LOCAL), UOp.range(8, 2, Axis.REDUCE)


def total(value: UOp, *ranges: UOp) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, *ranges), Ops.ADD)


# good graphs


def matmul() -> UOp:
    a, b, out = pointer(1, 32), pointer(2, 64), pointer(0, 32)
    i, j = UOp.range(4, 0, Axis.GLOBAL), UOp.range(8, 1, Axis.UPCAST)
    product = a.load(i * 8 + K) * b.load(K * 8 + j)
    return kernel(out.store(i * 8 + j, total(product, K)))


def padded() -> UOp:
    """Row and column are gated, and the index is one sum of both."""
    i, j = UOp.range(6, 0, Axis.GLOBAL), UOp.range(6, 1, Axis.LOCAL)
    inside = (i * -1 < 0) & (i < 5) & (j * -1 < 0) & (j < 5)
    value = A.load(i * 4 + j - 5, ZERO, inside)
    return kernel(pointer(0, 36).store(i * 6 + j, value))


def windowed() -> UOp:
    """The gate bounds sums of two ranges, as in a padded convolution."""
    i, k = UOp.range(4, 0, Axis.GLOBAL), UOp.range(3, 1, Axis.REDUCE)
    j, m = UOp.range(4, 2, Axis.LOCAL), UOp.range(3, 3, Axis.REDUCE)
    inside = (i + k < 1).logical_not() & (i + k < 5) & (j + m < 1).logical_not() & (j + m < 5)
    value = A.load((i + k) * 4 + j + m - 5, ZERO, inside)
    return kernel(OUT.store(i * 4 + j, total(value, k, m)))


def grouped() -> UOp:
    """Lanes share a reduction: each stores its partial result, and lane 0 combines them."""
    lane, again = UOp.range(4, 1, Axis.GROUP), UOp.range(4, 2, Axis.REDUCE)
    k = UOp.range(4, 3, Axis.REDUCE)
    shared = local(4)
    part = total(pointer(1, 256).load(I * 16 + k * 4 + lane), k)
    written = shared.after(UOp(Ops.BARRIER, dtypes.void, (shared.store(lane, part),)))
    value = total(written.load(again), again)
    return kernel(OUT.store(I, value, lane.eq(0)))


def staged() -> UOp:
    """A row is copied to scratch, in parallel rows, and read twice."""
    i = UOp.range(4, 0, Axis.THREAD)
    copy, j, again = (UOp.range(4, number, Axis.LOOP) for number in (1, 2, 3))
    memory = local(4, AddressSpace.SCRATCH, i)
    filled = memory.after(memory.store(copy, A.load(i * 4 + copy)).end(copy))
    row = total(filled.load(again), UOp.range(4, 3, Axis.LOOP))
    return kernel(OUT.store(i * 4 + j, filled.load(j) * row))


def scattered() -> UOp:
    """Rows are added where data says; the gate keeps them inside."""
    r = UOp.range(5, 0, Axis.REDUCE)
    row = pointer(1, 5, dtypes.int).load(r).cast(dtypes.index)
    inside = (row < 0).logical_not() & (row < 16)
    return kernel(OUT.store(row, pointer(2, 5).load(r), inside, combine=Ops.ADD))


def symbolic() -> UOp:
    n = UOp.variable("n", 1, 4)
    i, k = UOp.range(4, 0, Axis.GLOBAL), UOp.range(n, 1, Axis.REDUCE)
    return kernel(OUT.store(i, total(A.load(i * n + k), k)))


def swizzled() -> UOp:
    """Places that no sum of terms tells apart, but that are all different."""
    return kernel(OUT.store((I % 4) * 4 + I // 4, A.load(I)))


@pytest.mark.parametrize(
    "make", [matmul, padded, windowed, grouped, staged, scattered, symbolic, swizzled]
)
def test_good_kernels(make: Callable[[], UOp]) -> None:
    accept(make(), Stage.KERNEL, "schedule")


def test_good_tensor_graph() -> None:
    n = UOp.variable("n", 1, 16)
    a = buffer()
    square = UOp(Ops.RESHAPE, dtypes.float, (a,), (4, 4))
    turned = UOp(Ops.PERMUTE, dtypes.float, (square,), (1, 0))
    summed = UOp(Ops.REDUCE_AXIS, dtypes.float, (turned * square * 2.0,), (Ops.ADD, (1,)))
    wide = UOp(Ops.EXPAND, dtypes.float, (summed,), (4, 4)).maximum(square)
    window = UOp(Ops.SHRINK, dtypes.float, (wide,), ((0, 2), (1, 4)))
    around = UOp(Ops.PAD, dtypes.float, (window,), ((0, 1), (0, 0)))
    flipped = UOp(Ops.FLIP, dtypes.float, (around,), (True, False))
    some = UOp(Ops.SHRINK, dtypes.float, (a,), ((0, n),))
    rows = UOp(Ops.GATHER, dtypes.float, (square, buffer(3, 1, dtypes.int)))
    words = UOp(Ops.RAND, dtypes.uint, (), RandArg((4,), 0, 0, "CPU"))
    written = UOp(Ops.ASSIGN, dtypes.float, (a, a + 1.0))
    roots = [flipped < 1.0, some * n.cast(dtypes.float), rows, words, written]
    accept(UOp.sink(*roots), Stage.TENSOR, "tensor")


def summing_loop() -> list[UOp]:
    """acc = 0; for k < 8: acc += a[g*8 + k]; out[g] = acc."""
    g, k, a, out = special("gidx0", 4), loop(8), pointer(1, 32), pointer(0, 4)
    acc = UOp(Ops.DEFINE_ACC, dtypes.float, (ZERO,), 0)
    value = a.load(g * 8 + k)
    assign = UOp(Ops.ASSIGN, dtypes.float, (acc, acc + value))
    end = UOp(Ops.END, dtypes.void, (k,))
    result = acc.after(assign, end)
    store = out.store(g, result)
    index = value.src[1]
    return [
        *(out, a, g, ZERO, UOp.const(dtypes.int, 8), acc, k, index.src[0], index, value),
        *(acc + value, assign, end, result, store, UOp.sink(store)),
    ]


def test_good_programs() -> None:
    accept(summing_loop(), Stage.PROGRAM, "lower")
    # written by hand, without a sink
    accept(program(OUT.store(INT_ZERO, UOp.const(dtypes.float, 199))), Stage.PROGRAM, "hand")
    unsized = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(), (), 0)
    fill = unsized.store(special("gidx0", 16), UOp.const(dtypes.float, 1))
    accept(program(fill), Stage.PROGRAM, "hand")
    accept([], Stage.PROGRAM, "hand")


@pytest.mark.row("R7.3")
def test_hand_written_fill() -> None:
    g, one, out = special("gidx0", 16), UOp.const(dtypes.float, 1), pointer(0)
    two = one + one
    accept([one, out, g, two, out.store(g, two)], Stage.PROGRAM, "hand")


def test_vector_gate_is_taken_lane_by_lane() -> None:
    """The tail of 10 elements in vectors of 4: each lane has its own bound."""
    a, out = pointer(1, 10), pointer(0, 10)
    start = special("gidx0", 3) * 4
    lanes = UOp.stack([UOp.const(dtypes.int, lane) for lane in range(4)])
    wide = UOp.stack([start] * 4)
    inside = (wide + lanes) < 10
    value = a.load(start, ZERO.broadcast(4), inside, dtype=dtypes.float.vec(4))
    good = out.store(start, value, inside)
    verify(program(good), Stage.PROGRAM, "lower.lanes")
    with pytest.raises(InternalError, match=r"load in a PROGRAM graph: its index .* not below 10"):
        verify(program(a.load(start, dtype=dtypes.float.vec(4))), Stage.PROGRAM, "lower.lanes")
    late = (wide + lanes) < 11
    wrong = a.load(start, ZERO.broadcast(4), late, dtype=dtypes.float.vec(4))
    with pytest.raises(InternalError, match=r"not below 10|outside"):
        verify(program(out.store(start, wrong, inside)), Stage.PROGRAM, "lower.lanes")


def test_index_after_decompose_is_accepted() -> None:
    """x - (x // 4) * 4 is within 0..3, which intervals alone do not see."""
    x = special("gidx0", 16)
    rest = UOp(Ops.SUB, dtypes.int, (x, (x >> 2) << 2))
    accept(program(pointer(0, 4).load(rest)), Stage.PROGRAM, "lower.decompose")


# wrong graphs: (name, graph, stage, what the message says)


def kernel_case(name: str, effect: UOp, says: str) -> tuple[str, Graph, Stage, str]:
    return name, kernel(effect), Stage.KERNEL, says


def tensor_case(name: str, node: UOp, says: str) -> tuple[str, Graph, Stage, str]:
    return name, UOp.sink(node), Stage.TENSOR, says


def program_case(name: str, nodes: Sequence[UOp], says: str) -> tuple[str, Graph, Stage, str]:
    return name, nodes, Stage.PROGRAM, says


def edited(at: int, *nodes: UOp) -> list[UOp]:
    """The summing loop with the instruction at `at` replaced by `nodes`."""
    lines = summing_loop()
    return [*lines[:at], *nodes, *lines[at + 1 :]]


def moved(source: int, to: int) -> list[UOp]:
    lines = summing_loop()
    lines.insert(to, lines.pop(source))
    return lines


F = A.load(I)
HALF = F.cast(dtypes.half)
N = A.load(I).cast(dtypes.int)
SQUARE = UOp(Ops.RESHAPE, dtypes.float, (buffer(),), (4, 4))
RESHAPED = UOp(Ops.RESHAPE, dtypes.float, (F,), (4, 4))
LANE = special("lidx0", 4)
EIGHT = UOp.range(8, 0, Axis.GLOBAL)
VECTOR = UOp.stack([ZERO] * 4)

WRONG: list[tuple[str, Graph, Stage, str]] = [
    # ops at the wrong stage
    kernel_case("stage-reshape", OUT.store(I, RESHAPED), "a reshape in a KERNEL graph"),
    kernel_case("stage-buffer", OUT.store(I, buffer()), "a buffer in a KERNEL graph"),
    tensor_case("stage-load", F, "a define_global in a TENSOR graph"),
    tensor_case("stage-range", I.cast(dtypes.float), "a range in a TENSOR graph"),
    program_case("stage-reduce", [ZERO, total(ZERO)], "a reduce in a PROGRAM graph"),
    tensor_case("stage-bind", UOp.variable("n", 1, 4).bind(2), "a bound value stands beside"),
    # number of sources
    kernel_case("arity-add", OUT.store(I, UOp(Ops.ADD, dtypes.float, (F,))), "1 sources, not 2"),
    kernel_case("arity-neg", OUT.store(I, UOp(Ops.NEG, dtypes.float, (F, F))), "2 sources, not 1"),
    kernel_case("arity-load", OUT.store(I, UOp(Ops.LOAD, dtypes.float, (A, I, ZERO))), "3 sources"),
    kernel_case("arity-store", UOp(Ops.STORE, dtypes.void, (OUT, I)), "2 sources, not 3 or 4"),
    kernel_case("arity-vectorize", OUT.store(I, UOp.stack([F, F]).replace(src=(F,))), "1 sources"),
    # dtypes
    kernel_case(
        "dtype-add", OUT.store(I, F + HALF), "an add in a KERNEL graph: float of float and"
    ),
    kernel_case("dtype-mod", OUT.store(I, F % F), "it is not defined for float"),
    kernel_case(
        "dtype-exp2", OUT.store(I, N.alu(Ops.EXP2).cast(dtypes.float)), "not defined for int"
    ),
    kernel_case("dtype-and", OUT.store(I, F & F), "it is not defined for float"),
    kernel_case(
        "dtype-compare", OUT.store(I, (F < HALF).cast(dtypes.float)), "a cmplt .*of float and half"
    ),
    kernel_case(
        "dtype-compare-result",
        OUT.store(I, UOp(Ops.CMPLT, dtypes.float, (F, F))),
        "float, not bool",
    ),
    kernel_case(
        "dtype-where", OUT.store(I, UOp(Ops.WHERE, dtypes.float, (N, F, F))), "its condition is int"
    ),
    kernel_case(
        "dtype-where-values",
        OUT.store(I, UOp(Ops.WHERE, dtypes.float, (I < 3, F, HALF))),
        "a where .*float of float and half",
    ),
    kernel_case("dtype-shift", OUT.store(I, F << F), "it is not defined for float"),
    kernel_case(
        "dtype-load", OUT.store(I, A.load(I, dtype=dtypes.int)), "int in a buffer of float"
    ),
    kernel_case("dtype-store", OUT.store(I, N), "a store .*int in a buffer of float"),
    kernel_case("dtype-index", OUT.store(F, F), "its index is float"),
    kernel_case("dtype-gate", OUT.store(I, F, N), "its gate is int, not bool"),
    kernel_case(
        "dtype-alternative", OUT.store(I, A.load(I, INT_ZERO, I < 3)), "its alternative is int"
    ),
    kernel_case("dtype-pointer", ZERO.store(I, F), "its buffer is float, no pointer"),
    kernel_case("dtype-global", OUT.replace(dtype=dtypes.float).store(I, F), "float is no pointer"),
    kernel_case(
        "dtype-store-value", OUT.store(I, F).replace(dtype=dtypes.float), "float, not void"
    ),
    kernel_case(
        "dtype-lanes",
        OUT.store(I, VECTOR.cast(dtypes.half).replace(dtype=dtypes.half)),
        "4 lanes to 1",
    ),
    kernel_case("dtype-bitcast", OUT.store(I, HALF.bitcast(dtypes.float)), "half to float"),
    kernel_case(
        "dtype-gep", OUT.store(I, UOp(Ops.GEP, dtypes.float, (VECTOR,), (4,))), r"lanes \(4,\)"
    ),
    kernel_case("dtype-vectorize", OUT.store(I, UOp.stack([F, F]).replace(src=(F, N))), "of int"),
    kernel_case(
        "dtype-reduce", OUT.store(I, total(HALF, K).replace(dtype=dtypes.float)), "float of half"
    ),
    kernel_case("fold-op", OUT.store(I, total(F, K).replace(arg=Ops.SUB)), "reduces with Ops.SUB"),
    kernel_case("combine-op", OUT.store(I, F, combine=Ops.FDIV), "combines with Ops.FDIV"),
    kernel_case("range-extent", OUT.store(I, F).end(I.replace(src=(INT_ZERO,))), "index up to int"),
    kernel_case("accumulator", UOp(Ops.ASSIGN, dtypes.float, (F, F)), "its target is a load"),
    kernel_case("end-nothing", UOp(Ops.END, dtypes.void, (OUT.store(I, F),)), "it closes no range"),
    kernel_case("local-size", OUT.store(I, local(-1).load(I)), "of a known size"),
    # loops of a kernel
    kernel_case("open-reduce", OUT.store(I, A.load(K)), "nothing closes the reduce loop ridx2"),
    kernel_case("open-unroll", OUT.store(I, A.load(UOp.range(4, 5, Axis.UNROLL))), "loop ridx5"),
    # indices outside
    kernel_case(
        "bounds-high", OUT.store(I, A.load(I + 1)), r"\(ridx0\+1\) is not below 16 where ridx0 = 15"
    ),
    kernel_case("bounds-low", OUT.store(I, A.load(I - 1)), r"is not below 16 where ridx0 = 0"),
    kernel_case("bounds-store", pointer(0, 8).store(I, F), "a store .*ridx0 is not below 8"),
    kernel_case("bounds-gate", OUT.store(I, A.load(I + 4, ZERO, I < 13)), "where ridx0 = 12"),
    kernel_case(
        "bounds-data",
        OUT.store(I, A.load(pointer(2, 16, dtypes.int).load(I).cast(dtypes.index))),
        "is not below 16",
    ),
    kernel_case(
        "bounds-symbolic",
        OUT.store(I, A.load(UOp.range(UOp.variable("n", 1, 20), 1))),
        "is not below 16",
    ),
    # lanes that write to one element
    kernel_case("race-global", OUT.store(J, A.load(I)), "two lanes write to ridx1"),
    kernel_case(
        "race-constant", OUT.store(UOp.const(dtypes.index, 0), A.load(I)), "two lanes write to 0"
    ),
    kernel_case("race-overlap", OUT.store(I // 2, A.load(I)), r"two lanes write to \(ridx0//2\)"),
    kernel_case(
        "race-sum",
        OUT.store(EIGHT + J, A.load(EIGHT) * A.load(J)),
        "ridx0 = 0, ridx1 = 1 and ridx0 = 1, ridx1 = 0",
    ),
    kernel_case("race-combine", OUT.store(J, ZERO, I < 9, combine=Ops.ADD), "two lanes"),
    kernel_case(
        "race-upcast",
        OUT.store(UOp.const(dtypes.index, 3), A.load(UOp.range(4, 0, Axis.UPCAST))),
        "two lanes write to 3",
    ),
    program_case(
        "race-shared",
        program(local(4).store(INT_ZERO, LANE.cast(dtypes.float))),
        "two lanes write to 0",
    ),
    program_case(
        "race-chunk",
        program(OUT.store(INT_ZERO, special("chunk", 4).cast(dtypes.float))),
        "two lanes write to 0",
    ),
    program_case(
        "race-vector",
        program(OUT.store(LANE, LANE.cast(dtypes.float).broadcast(4), LANE < 9)),
        "lidx0 = 0 and lidx0 = 1",
    ),
    # order of a program
    program_case("use-before-definition", moved(9, 12), "it uses a load that comes later or never"),
    program_case("undefined", edited(1), "it uses a define_global that comes later or never"),
    program_case(
        "unclosed", edited(12)[:12], "a range in a PROGRAM graph: nothing closes the loop"
    ),
    program_case(
        "end-of-unopened",
        [summing_loop()[12]],
        "an end .*it uses a range that comes later or never",
    ),
    program_case(
        "loop-closed-twice",
        [*summing_loop()[:13], summing_loop()[12]],
        "it stands in the program twice",
    ),
    program_case("twice", [ZERO, ZERO], "it stands in the program twice"),
    program_case(
        "after-the-sink", [*summing_loop(), UOp.const(dtypes.int, 99)], "it comes after the sink"
    ),
    program_case(
        "index-dtype", program(UOp.variable("n", 1, 3)), "index arithmetic is still unbounded"
    ),
    # the tensor graph
    tensor_case("shape-add", SQUARE + buffer(), r"an add .*of shapes \(4, 4\) and \(16,\)"),
    tensor_case(
        "shape-reshape", UOp(Ops.RESHAPE, dtypes.float, (SQUARE,), (4, 5)), "has 16 elements"
    ),
    tensor_case(
        "shape-permute", UOp(Ops.PERMUTE, dtypes.float, (SQUARE,), (0, 0)), "does not name each"
    ),
    tensor_case(
        "shape-expand", UOp(Ops.EXPAND, dtypes.float, (SQUARE,), (4, 8)), r"\(4, 4\) to \(4, 8\)"
    ),
    tensor_case(
        "shape-pad", UOp(Ops.PAD, dtypes.float, (SQUARE,), ((0, -1), (0, 0))), r"by \(\(0, -1\)"
    ),
    tensor_case(
        "shape-shrink", UOp(Ops.SHRINK, dtypes.float, (SQUARE,), ((0, 5), (0, 4))), r"to \(\(0, 5\)"
    ),
    tensor_case("shape-flip", UOp(Ops.FLIP, dtypes.float, (SQUARE,), (True,)), r"by \(True,\)"),
    tensor_case(
        "axes", UOp(Ops.REDUCE_AXIS, dtypes.float, (SQUARE,), (Ops.ADD, (2,))), r"\(2,\)\) of"
    ),
    tensor_case(
        "gather-rows", UOp(Ops.GATHER, dtypes.float, (SQUARE, buffer())), "of float and float"
    ),
    tensor_case("assign-shape", UOp(Ops.ASSIGN, dtypes.float, (SQUARE, buffer())), "of shapes"),
    tensor_case(
        "rand-dtype", UOp(Ops.RAND, dtypes.float, (), RandArg((4,), 0, 0, "CPU")), "a rand"
    ),
    tensor_case("buffer-argument", UOp(Ops.BUFFER, dtypes.float, (), 3), "its argument is 3"),
]


@pytest.mark.row("M8.9")
@pytest.mark.parametrize(
    ("graph", "stage", "says"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_graphs_are_refused(graph: Graph, stage: Stage, says: str) -> None:
    with pytest.raises(InternalError, match=says) as caught:
        verify(graph, stage, "lower.somewhere")
    headline, *details = str(caught.value).splitlines()
    assert headline.startswith("lower.somewhere left a")
    assert f"in a {stage.label} graph" in headline
    assert any(line.lstrip().startswith("node:") for line in details)
    assert any("--from lower.somewhere" in line for line in details)


def test_message() -> None:
    """The example of the style guide, with the graph saved where the message says."""
    graph = kernel(OUT.store(I, RESHAPED))
    with pytest.raises(InternalError) as caught:
        verify(graph, Stage.KERNEL, "schedule.index")
    path = cache.folder() / "failed.ir"
    assert str(caught.value).splitlines() == [
        "schedule.index left a reshape in a KERNEL graph",
        "  node:       reshape(load: float): float arg=(4, 4)",
        "  allowed_in: TENSOR",
        f"  reproduce:  python -m tilegrad replay {path} --from schedule.index",
    ]
    assert parse(path.read_text()) is graph


def test_message_without_a_cache_folder(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Context(CACHE=str(blocked)), pytest.raises(InternalError, match=r"replay failed\.ir"):
        verify(kernel(OUT.store(I, SQUARE)), Stage.KERNEL, "schedule.index")


def test_program_loops_nest() -> None:
    i, j = loop(4), loop(5, 1)
    four, five = i.src[0], j.src[0]
    ends = [UOp(Ops.END, dtypes.void, (part,)) for part in (i, j)]
    verify([four, five, i, j, ends[1], ends[0]], Stage.PROGRAM, "lower")
    with pytest.raises(InternalError, match="it closes the loop ridx0 inside ridx1"):
        verify([four, five, i, j, ends[0], ends[1]], Stage.PROGRAM, "lower")
    double = UOp(Ops.END, dtypes.void, (i, j))
    with pytest.raises(InternalError, match="it closes more than one loop"):
        verify([four, five, i, j, double], Stage.PROGRAM, "lower")


def test_values_stay_in_their_loop() -> None:
    """A value of a loop's body is gone after the loop; an accumulator is not."""
    k, out = loop(8), pointer(0, 8)
    value = pointer(1, 8).load(k)
    end = UOp(Ops.END, dtypes.void, (k,))
    lines = [out, value.src[0], k.src[0], INT_ZERO, k, value, end, out.store(INT_ZERO, value)]
    with pytest.raises(InternalError, match=r"a store .*it uses a load outside the loop ridx0"):
        verify(lines, Stage.PROGRAM, "lower.linearize")


def test_switched_off() -> None:
    wrong = kernel(OUT.store(I, SQUARE))
    with pytest.raises(InternalError):
        verify(wrong, Stage.KERNEL, "schedule.index")
    with Context(VERIFY=0):
        verify(wrong, Stage.KERNEL, "schedule.index")


def test_every_op_has_a_check() -> None:
    """A new op is refused everywhere until the table knows it."""
    for stage, table in TABLES.items():
        assert {op for op in Ops if stage & op.definition.stages} == set(table), stage
