"""The node: equal means identical, and nothing recurses."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError, ShapeError
from tilegrad.base.trace import counters
from tilegrad.ir import Axis, Ops, UOp, Variable
from tilegrad.ir import uop as uop_module
from tilegrad.ir.args import BufferArg, KernelInfo
from tilegrad.ir.uop import prod, toposort

LONG = 100_000


def const(value: Any, dtype: DType = dtypes.float) -> UOp:
    return UOp.const(dtype, value)


def chain(length: int) -> UOp:
    node = const(1)
    for number in range(length):
        node = node * float(number % 5)
    return node


# printing


@pytest.mark.row("S1.7")
def test_print_names_a_shared_child_once() -> None:
    one = const(1.0)
    assert repr(one + one) == "\n".join(
        [
            "UOp(Ops.ADD, dtypes.float, arg=None, src=(",
            "  x0:=UOp(Ops.CONST, dtypes.float, arg=1.0, src=()),",
            "   x0,))",
        ]
    )


def test_print_without_shared_children() -> None:
    assert repr(const(1) + const(2)) == "\n".join(
        [
            "UOp(Ops.ADD, dtypes.float, arg=None, src=(",
            "  UOp(Ops.CONST, dtypes.float, arg=1.0, src=()),",
            "  UOp(Ops.CONST, dtypes.float, arg=2.0, src=())))",
        ]
    )
    assert repr(const(3, dtypes.int.vec(2))) == "UOp(Ops.CONST, dtypes.int.vec(2), arg=3, src=())"


# interning


@pytest.mark.row("R10.1")
def test_equal_is_identical() -> None:
    buffer = BufferArg(0, "CPU", 4)
    a = UOp(Ops.BUFFER, dtypes.float, (), buffer)
    assert UOp(Ops.BUFFER, dtypes.float, (), BufferArg(0, "CPU", 4)) is a
    assert a + 1.0 is a + 1.0
    assert a + 1.0 is not a + 2.0
    assert copy.copy(a) is a
    assert copy.deepcopy(a) is a
    assert pickle.loads(pickle.dumps(a * 2.0 + a)) is a * 2.0 + a


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("R10.1")
def test_dead_nodes_leave_the_table() -> None:
    gc.collect()
    before = len(uop_module._table)
    nodes = [const(float(number) + 0.123) for number in range(1000)]
    assert len(uop_module._table) >= before + 1000
    watched = weakref.ref(nodes[0])
    del nodes
    gc.collect()
    assert watched() is None
    assert len(uop_module._table) <= before


def test_constants_are_told_apart_by_their_bits() -> None:
    assert const(0.0) is not const(-0.0)
    assert math.copysign(1, const(-0.0).arg) == -1
    assert const(math.nan) is const(float("nan"))
    assert const(math.nan) is not const(math.inf)
    assert const(0.1) is const(0.1 + 1e-12)  # one float32
    assert const(0.1, dtypes.double) is not const(0.1 + 1e-12, dtypes.double)


def test_constants_take_the_form_of_their_dtype() -> None:
    one = const(1, dtypes.int)
    assert one is const(True, dtypes.int)
    assert one is const(1.0, dtypes.int)
    assert type(one.arg) is int
    assert one is not const(1, dtypes.bool)
    assert type(const(1, dtypes.bool).arg) is bool
    assert type(const(1).arg) is float
    assert const(300, dtypes.uchar).arg == 44
    assert const(2**31, dtypes.int).arg == -(2**31)
    assert const(1e-46).arg == 0.0


def test_arguments_are_told_apart_by_their_class() -> None:
    arguments = (1, True, 1.0, "1")
    nodes = [UOp(Ops.COPY, dtypes.float, (const(1),), argument) for argument in arguments]
    assert len(set(nodes)) == 4
    assert [type(node.arg) for node in nodes] == [int, bool, float, str]


def test_nodes_are_told_apart_by_everything() -> None:
    a, b = const(1), const(2)
    nodes = {
        UOp(Ops.ADD, dtypes.float, (a, b)),
        UOp(Ops.MUL, dtypes.float, (a, b)),
        UOp(Ops.ADD, dtypes.half, (a, b)),
        UOp(Ops.ADD, dtypes.float, (b, a)),
        UOp(Ops.ADD, dtypes.float, (a, b), 1),
    }
    assert len(nodes) == 5


def test_threads_share_nodes() -> None:
    """Several threads that build the same graph at once get the same objects."""
    results: list[list[UOp]] = []
    start = threading.Barrier(4)

    def build() -> None:
        start.wait()
        nodes = []
        for number in range(3000):
            nodes.append(const(number + 0.5) * const(number) + const(number + 0.25))
        results.append(nodes)

    threads = [threading.Thread(target=build) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert len(results) == 4
    for other in results[1:]:
        assert all(a is b for a, b in zip(results[0], other))


def test_threads_that_drop_nodes() -> None:
    """A dead entry is removed only if it is still itself: a node made anew in between stays."""
    failures: list[str] = []

    def churn() -> None:
        for number in range(4000):
            node = const(number % 7 + 0.75) + const(number % 3 + 0.5)
            again = const(number % 7 + 0.75) + const(number % 3 + 0.5)
            if node is not again:
                failures.append(f"{number}")

    threads = [threading.Thread(target=churn) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not failures


@pytest.mark.row("R10.2")
def test_tree_compare_is_identity() -> None:
    """Kernels that differ in their parameters alone are one once these are taken out."""

    def scaled(slot: int, by: float) -> UOp:
        pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), slot)
        return pointer.load(UOp.range(4)) * by

    def without_parameters(node: UOp) -> UOp:
        blank = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), -1)
        return node.substitute(
            {part: blank for part in node.toposort() if part.op is Ops.DEFINE_GLOBAL}
        )

    a, b, c = scaled(0, 2.0), scaled(1, 2.0), scaled(1, 3.0)
    assert [a is scaled(0, 2.0), a is b, b is c] == [True, False, False]
    assert without_parameters(a) is without_parameters(b)
    assert without_parameters(a) is not without_parameters(c)
    assert a.replace(src=b.src) is b
    assert a.replace(op=Ops.ADD).replace(op=Ops.MUL) is a


# graphs as large as they come


@pytest.mark.row("R7.5")
def test_long_chain() -> None:
    """100,000 nodes deep: built, walked, printed, digested, edited, deleted; no recursion."""
    node = chain(LONG)
    assert len(node.toposort()) == LONG + 5
    text = repr(node)
    assert text.count("Ops.MUL") == LONG
    assert len(text) < 300 * LONG
    assert len(node.key) == 16
    assert node.ranges == frozenset()
    assert node.bounds[0] <= node.bounds[1]
    other = node.substitute({const(1): const(7)})
    assert len(other.toposort()) >= LONG
    del node, other
    gc.collect()


def test_shared_graph_is_linear() -> None:
    """Doubling 200 times is 201 nodes, and every walk sees each once."""
    node = UOp.variable("x", 0, 1)
    for _ in range(200):
        node = node + node
    assert len(node.toposort()) == 201
    assert node.vmax == 2**200
    assert (node * 6).divisor == 6
    assert len(repr(node)) < 60_000


def test_the_divisor_of_an_index_that_a_comparison_of_floats_picks() -> None:
    number = UOp.variable("x", 0, 7).cast(dtypes.float32)
    for bound in (-math.inf, math.inf, math.nan, 0.5):
        is_less = UOp(Ops.CMPLT, dtypes.bool, (number, UOp.const(dtypes.float32, bound)))
        sizes = [UOp.const(dtypes.index, size) for size in (12, 8)]
        picked = UOp(Ops.WHERE, dtypes.index, (is_less, *sizes))
        assert picked.divisor == 4
        assert number.divisor == 1


def test_toposort_is_in_the_order_of_first_use() -> None:
    a, b = const(1), const(2)
    total = (a + b) * a
    assert list(total.toposort()) == [a, b, a + b, total]
    assert list(toposort([a + b, total], stop=lambda node: node.op is Ops.ADD)) == [a + b, a, total]


# keys


def test_key_is_stable_across_processes() -> None:
    script = (
        "from tilegrad.ir import UOp, Ops, Axis; from tilegrad.base.dtype import dtypes;"
        "a = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), 0);"
        "print((a.load(UOp.range(4, 0, Axis.LOCAL)) * 2.0).key.hex())"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), 0)
    assert keys == {(pointer.load(UOp.range(4, 0, Axis.LOCAL)) * 2.0).key.hex() + "\n"}


def test_key_tells_graphs_apart() -> None:
    a = UOp(Ops.BUFFER, dtypes.float, (), BufferArg(0, "CPU", 4))
    graphs = [a, a + 1.0, a + 2.0, a * 1.0, (a + 1.0) + 1.0, a + 0.0, a + -0.0, a.cast(dtypes.half)]
    assert len({graph.key for graph in graphs}) == len(graphs)


# building nodes


def test_operators() -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    two = UOp.const(dtypes.index, 2)
    assert (2 + x) is (x + 2)
    assert (2 * x) is (x * 2)
    assert (x - y) is x + y * -1
    assert (x - 2) is x + -2
    assert (2 - x) is x * -1 + 2
    assert -x is x * -1
    assert (7 // x).op is Ops.FLOORDIV
    assert (7 % x).src[1] is x
    assert (x > y) is (y < x)
    assert (x >= 2) is (x < 2).logical_not()
    assert (x <= 2) is (two < x).logical_not()
    assert (x < 2).dtype is dtypes.bool
    assert x.eq(2).op is Ops.CMPEQ
    assert x.ne(y).op is Ops.CMPNE
    assert (1 & x) is (x & 1)
    assert [(x | y).op, (x ^ y).op, (x << 1).op, (x >> 1).op] == [Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR]
    assert (x < 2).where(x, 0).dtype is dtypes.index
    assert (x < 2).where(0, x).src[1].arg == 0
    assert x.minimum(y) is -((-x).maximum(-y))
    assert x.maximum(3).vmin == 3
    assert (const(1) / 2.0).op is Ops.FDIV
    assert x.cast(dtypes.index) is x
    assert x.bitcast(dtypes.long).dtype is dtypes.long


def test_vectors() -> None:
    parts = [const(value) for value in (1, 2, 3, 4)]
    vector = UOp.stack(parts)
    assert vector.dtype is dtypes.float.vec(4)
    assert vector.gep(2) is parts[2]
    assert vector.gep(1, 0) is UOp.stack([parts[1], parts[0]])
    assert parts[0].broadcast(4) is UOp.const(dtypes.float.vec(4), 1)
    value = UOp(Ops.DEFINE_ACC, dtypes.float, (parts[0],), 0)
    assert value.broadcast(2).src == (value, value)
    assert value.broadcast(1) is value
    wide = UOp(Ops.DEFINE_ACC, dtypes.float.vec(2), (parts[0].broadcast(2),), 0)
    assert wide.gep(0, 1) is wide
    assert wide.gep(1).dtype is dtypes.float
    assert (wide < wide).dtype is dtypes.bool.vec(2)
    assert wide.cast(dtypes.half).dtype is dtypes.half.vec(2)


def test_ranges_are_those_still_open() -> None:
    i, j = UOp.range(4, 0), UOp.range(5, 1, Axis.REDUCE)
    pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(20), (), 0)
    value = pointer.load(i * 5 + j)
    assert value.ranges == {i, j}
    total = UOp(Ops.REDUCE, dtypes.float, (value, j), Ops.ADD)
    assert total.ranges == {i}
    store = pointer.store(i, total)
    assert store.end(i).ranges == frozenset()
    assert store.end() is store
    assert pointer.after(store.end(i)).load(j).ranges == {j}
    assert UOp.sink(store).ranges == frozenset()
    inner = UOp.range(i + 1, 2)
    assert inner.ranges == {i, inner}


def test_shapes() -> None:
    n = UOp.variable("n", 1, 8)
    a = UOp(Ops.BUFFER, dtypes.float, (), BufferArg(0, "CPU", 12))
    square = UOp(Ops.RESHAPE, dtypes.float, (a,), (3, 4))
    assert (square + 1.0).shape == (3, 4)
    assert UOp(Ops.PERMUTE, dtypes.float, (square,), (1, 0)).shape == (4, 3)
    assert UOp(Ops.PAD, dtypes.float, (square,), ((1, 0), (0, 2))).shape == (4, 6)
    assert UOp(Ops.SHRINK, dtypes.float, (square,), ((1, 3), (0, n))).shape == (2, n)
    assert UOp(Ops.REDUCE_AXIS, dtypes.float, (square,), (Ops.ADD, (1,))).shape == (3, 1)
    rows = UOp(Ops.BUFFER, dtypes.int, (), BufferArg(1, "CPU", 5))
    assert UOp(Ops.GATHER, dtypes.float, (square, rows)).shape == (5, 4)
    with pytest.raises(InternalError, match=r"infer: a Ops\.RANGE node has no shape"):
        _ = UOp.range(4).shape


def test_prod() -> None:
    n = UOp.variable("n", 1, 8)
    assert prod(()) == 1
    assert prod((2, 3)) == 6
    assert prod((1, n)) is n
    assert prod((2, n)) is n * 2


# symbolic integers


@pytest.mark.row("B1.3")
def test_variable_holds_name_and_range() -> None:
    n = Variable("n", 1, 8)
    assert (n.op, n.arg, n.bounds) == (Ops.DEFINE_VAR, ("n", 1, 8), (1, 8))
    assert UOp.range(n).src == (n,)
    assert UOp.range(n).bounds == (0, 7)


@pytest.mark.row("B1.4")
def test_bind_and_unbind() -> None:
    n = Variable("n", 1, 8)
    bound = n.bind(3)
    assert bound.unbind() == (n, 3) and bound.val == 3
    assert bound.bounds == (3, 3)
    assert n.bind(4).unbind() == (n, 4)
    size, values = (bound * 2 + 1).unbound()
    assert size is n * 2 + 1
    assert values == {n: 3}
    with pytest.raises(ShapeError, match="bind: 9 is outside the variable 'n'"):
        n.bind(9)
    with pytest.raises(ShapeError, match="bind: only a variable takes a value"):
        (n + 1).bind(2)
    with pytest.raises(ShapeError, match=r"unbind: a Ops\.DEFINE_VAR node has no bound value"):
        n.unbind()
    with pytest.raises(ShapeError, match="no integer lies between 4 and 3"):
        Variable("n", 4, 3)


@pytest.mark.parametrize(
    ("node", "bounds"),
    [
        (UOp.variable("x", -3, 5) // 2, (-2, 2)),
        (UOp.variable("x", -3, 5) % 4, (0, 3)),
        (UOp.variable("x", 8, 10) % 4, (0, 2)),
        (UOp.variable("x", -3, 5) * -2, (-10, 6)),
        (UOp.variable("x", 0, 5) < 6, (True, True)),
        (UOp.variable("x", 0, 5).eq(9), (False, False)),
        (UOp.variable("x", 0, 5) & 3, (0, 3)),
        (UOp.variable("x", 0, 5) << 2, (0, 20)),
        (UOp.variable("x", 0, 5) >> 1, (0, 2)),
        (UOp.variable("x", 0, 200, dtypes.uchar) + 100, (0, 255)),
        (UOp.variable("x", 0, 100, dtypes.uchar) + 100, (100, 200)),
        (UOp.variable("x", 0, 5).cast(dtypes.float), (-math.inf, math.inf)),
        (UOp.variable("x", 0, 99) // UOp.variable("y", 1, 9) * UOp.variable("y", 1, 9), (0, 99)),
        (UOp.variable("y", 1, 9) * (UOp.variable("x", 0, 99) // UOp.variable("y", 1, 9)), (0, 99)),
        (UOp.variable("x", -9, 9) // UOp.variable("y", 1, 9) * UOp.variable("y", 1, 9), (-81, 81)),
        (
            (UOp.variable("x", 0, 99) // UOp.variable("y", 1, 9)).cast(dtypes.long)
            * UOp.variable("y", 1, 9).cast(dtypes.long),
            (0, 99),
        ),
    ],
)
def test_bounds(node: UOp, bounds: tuple[Any, Any]) -> None:
    assert node.bounds == bounds
    assert (node.vmin, node.vmax) == bounds


def test_origin_stands_beside_the_key() -> None:
    a, b = const(11.5), const(11.5)
    a.origin = ("here",)
    assert b.origin == ("here",)
    assert const(12.5).origin == ()


def test_kernel_info_prints() -> None:
    sink = UOp.sink(arg=KernelInfo("r_4", (0,), ()))
    assert repr(sink) == (
        "UOp(Ops.SINK, dtypes.void, arg=KernelInfo(name='r_4', order=(0,), opts=()), src=())"
    )


def test_a_kernels_root_is_walked_once() -> None:
    """Each walk is a dictionary of its own, in the same order."""
    node = UOp.variable("n", 0, 9)
    for step in range(100):
        node = node * 3 + step
    root = UOp.sink(node, arg=KernelInfo("walked once"))
    first = root.toposort()
    before = counters.visits
    second = root.toposort()
    assert counters.visits == before
    assert list(first) == list(second)
    assert list(second)[-1] is root
    first.clear()
    assert len(root.toposort()) == len(second)


def test_a_node_that_is_set_apart_is_found_by_nobody() -> None:
    """And as it dies, the one that took its place is found still."""
    one = UOp.variable("n", 0, 9) * 3
    one.set_apart()
    other = UOp.variable("n", 0, 9) * 3
    assert other is not one
    assert (one + 1) is not (other + 1)
    del one
    assert UOp.variable("n", 0, 9) * 3 is other
