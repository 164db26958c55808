"""What a kernel is said to cost: closed forms, and nothing for index arithmetic.

Work is operations on values, a multiply-add counted as two; bytes are distinct elements that are
read or written, each once however often it is used.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.schedule.plans import kernels, loops, plan
from tilegrad import GlobalCounters, Tensor, dtypes
from tilegrad.engine.program.estimate import estimate
from tilegrad.ir.op import Axis, Ops
from tilegrad.schedule.cost import elements, flops_of, nbytes
from tilegrad.schedule.items import Item


def cost(item: Item) -> tuple[int, int]:
    assert item.ast is not None
    return estimate(item.ast)


def only(value: Tensor) -> Item:
    (item,) = kernels(plan(value))
    return item


def indices(*shape: int) -> Tensor:
    return Tensor.empty(*shape, dtype=dtypes.int)


@pytest.mark.row("F3.6")
def test_adding_one_to_a_million() -> None:
    assert cost(only(Tensor.empty(10**6) + 1)) == (10**6, 8 * 10**6)


M, K, N = 7, 11, 13
CLOSED: dict[str, tuple[Callable[[], Tensor], int, int]] = {
    # multiply and add for each of m*n*k; both operands and the result once
    "product": (
        lambda: Tensor.empty(M, K) @ Tensor.empty(K, N),
        2 * M * N * K,
        4 * (M * K + K * N + M * N),
    ),
    "product of transposed": (
        lambda: Tensor.empty(K, M).T @ Tensor.empty(N, K).T,
        2 * M * N * K,
        4 * (M * K + K * N + M * N),
    ),
    # the epilogue adds and limits each of m*n
    "product, bias, relu": (
        lambda: (Tensor.empty(M, K) @ Tensor.empty(K, N) + Tensor.empty(N)).relu(),
        2 * M * N * K + 2 * M * N,
        4 * (M * K + K * N + N + M * N),
    ),
    "batched product": (
        lambda: Tensor.empty(3, M, K) @ Tensor.empty(3, K, N),
        3 * 2 * M * N * K,
        3 * 4 * (M * K + K * N + M * N),
    ),
    "sum": (lambda: Tensor.empty(100, 50).sum(1), 100 * 50, 4 * (100 * 50 + 100)),
    "sum of all": (lambda: Tensor.empty(100, 50).sum(), 100 * 50, 4 * (100 * 50 + 1)),
    "max": (lambda: Tensor.empty(100, 50).max(0), 100 * 50, 4 * (100 * 50 + 50)),
    # a square before the fold, a division by a constant after it
    "mean of squares": (
        lambda: Tensor.empty(100, 50).square().mean(1),
        2 * 100 * 50 + 100,
        4 * (100 * 50 + 100),
    ),
    "elementwise": (
        lambda: Tensor.empty(64) * Tensor.empty(64) + Tensor.empty(64),
        2 * 64,
        4 * 4 * 64,
    ),
    "a value used twice": (lambda: _twice(Tensor.empty(64)), 64, 2 * 4 * 64),
    # what is broadcast is read once, however often it is used
    "broadcast": (
        lambda: Tensor.empty(100, 1) + Tensor.empty(1, 50),
        100 * 50,
        4 * (100 + 50 + 100 * 50),
    ),
    "half": (lambda: Tensor.empty(64, dtype=dtypes.half) * 2, 64, 2 * 2 * 64),
    "window": (lambda: Tensor.empty(100)[10:20] + 1, 10, 2 * 4 * 10),
    "convolution": (
        lambda: Tensor.empty(2, 3, 8, 8).conv2d(Tensor.empty(4, 3, 3, 3)),
        2 * (2 * 4 * 6 * 6) * (3 * 3 * 3),
        4 * (2 * 3 * 8 * 8 + 4 * 3 * 3 * 3 + 2 * 4 * 6 * 6),
    ),
    "transposed": (lambda: Tensor.empty(8, 64).T.contiguous(), 0, 2 * 4 * 8 * 64),
    # rows, first folded for the mean, then subtracted from, folded, squared and folded
    "variance": (
        lambda: Tensor.empty(8, 64).var(1, correction=0),
        5 * 8 * 64 + 10 * 8,
        4 * (8 * 64 + 8),
    ),
}


def _twice(x: Tensor) -> Tensor:
    return x * x


@pytest.mark.row("F3.6")
@pytest.mark.parametrize("name", CLOSED)
def test_closed_form(name: str) -> None:
    make, ops, mem = CLOSED[name]
    assert cost(only(make())) == (ops, mem)


def test_what_runs_is_counted_by_the_same_numbers() -> None:
    a, b = Tensor.ones(M, K).contiguous().realize(), Tensor.ones(K, N).contiguous().realize()
    GlobalCounters.reset()
    (a @ b).realize()
    assert GlobalCounters.global_ops == 2 * M * N * K
    assert GlobalCounters.global_mem == 4 * (M * K + K * N + M * N)
    assert GlobalCounters.kernel_count == 1


@pytest.mark.row("R3.6")
def test_counting_takes_no_work_for_an_element() -> None:
    assert cost(only(Tensor.arange(10**6))) == (0, 4 * 10**6)
    assert cost(only(Tensor.arange(5, 5 * 10**6, 3)))[0] == 0
    assert cost(only(Tensor.ones(10**6).cumsum()))[0] == 0


@pytest.mark.row("R3.6", "R3.7")
@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda table, rows: table[rows], id="index"),
        pytest.param(lambda table, rows: table[rows] * 2 + 1, id="index, then work"),
        pytest.param(lambda table, rows: table[rows].sum(0), id="index, then sum"),
        pytest.param(lambda table, rows: table[:, :3][rows], id="index of a window"),
    ],
)
def test_a_table_is_not_scanned(take: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A hundred times the rows: the same loops, the same work, the same bytes."""
    small, large = [only(take(Tensor.empty(size, 4), indices(8))) for size in (100, 10000)]
    assert loops(small) == loops(large)
    assert cost(small) == cost(large)


def test_one_hot_compares_and_does_not_fold() -> None:
    """It writes all its columns, and reads each index once."""
    for columns in (100, 10000):
        item = only(indices(8).one_hot(columns))
        assert loops(item) == sorted([(8, Axis.LOOP), (columns, Axis.LOOP)], key=str)
        assert cost(item) == (0, 4 * (8 + 8 * columns))


def test_the_gradient_of_rows_scans_no_table() -> None:
    """The table is filled with zeros; then only the rows that were read are added to."""
    added = []
    for size in (100, 10000):
        table = Tensor.empty(size, 4, requires_grad=True)
        (table[indices(8)] * Tensor.empty(8, 4)).sum().backward()
        assert table.grad is not None
        *fills, last = kernels(plan(table.grad))
        assert last.ast is not None
        assert last.ast.src[0].arg is Ops.ADD
        assert loops(last) == sorted([(8, Axis.REDUCE), (4, Axis.LOOP)], key=str)
        added.append(cost(last))
        for fill in fills:
            assert cost(fill)[0] == 0
            assert all(axis is Axis.LOOP for _, axis in loops(fill))
    assert added[0] == added[1]


def chosen(index: Tensor, rows: Tensor, size: int) -> Tensor:
    flags = index.reshape(-1, 1, 1) == Tensor.arange(size).reshape(1, size, 1)
    return flags.where(rows.unsqueeze(1), 0).sum(0)


def contracted(index: Tensor, rows: Tensor, size: int) -> Tensor:
    return Tensor.einsum("nv,nd->vd", index.one_hot(size).float(), rows)


@pytest.mark.parametrize(
    "add",
    [
        pytest.param(lambda index, rows, n: index.one_hot(n).float().T @ rows, id="product"),
        pytest.param(lambda index, rows, n: index.one_hot(n).half().T @ rows.half(), id="halves"),
        contracted,
        chosen,
    ],
)
def test_rows_added_by_a_one_hot_scan_no_table(
    add: Callable[[Tensor, Tensor, int], Tensor],
) -> None:
    """As those of `table[index]` in the backward pass."""
    for size in (100, 10000):
        fill, last = kernels(plan(add(indices(8), Tensor.empty(8, 4), size)))[:2]
        assert loops(last) == sorted([(8, Axis.REDUCE), (4, Axis.LOOP)], key=str)
        assert cost(fill)[0] == 0


def test_few_places_are_a_product_of_matrices() -> None:
    found = kernels(plan(indices(8).one_hot(10).float().T @ Tensor.empty(8, 4)))
    assert len(found) == 1


def test_units_of_cost() -> None:
    x = Tensor.empty(3, 5, dtype=dtypes.half)
    assert elements(x.uop) == 15
    assert nbytes(x.uop) == 30
    total = (x + 1).uop
    assert total.op is Ops.ADD
    assert flops_of(total) == 1
    assert flops_of(x.uop) == flops_of(x.reshape(15).uop) == 0
    # What a polynomial takes is worth storing sooner than what one instruction takes.
    slow = [node for node in x.float().exp2().uop.toposort() if node.op is Ops.EXP2]
    assert flops_of(slow[0]) > 3
