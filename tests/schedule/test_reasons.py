"""Why two kernels are two: every edge has its reason, and the bytes that one kernel would save.

The closed form: moving a value into its only reader saves writing and reading it; where several
kernels read it, joining one of them saves that one's reading. What is stored because of its meaning
(asked for, copied, contiguous, assigned) has no such number: it would be in memory anyway.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedule.plans import CPU, edges, kernels, plan, sizes
from tilegrad import Tensor, Variable, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.items import Edge, Reason

ROWS, COLUMNS = 8, 64


def image() -> Tensor:
    return Tensor.empty(ROWS, COLUMNS)


@pytest.mark.row("F2.6")
def test_requested() -> None:
    x = image()
    powers = x.exp()
    assert edges(plan(powers, powers.sum(1))) == [(0, 1, Reason.REQUESTED, 0)]
    assert edges(plan(powers.sum(1))) == []


@pytest.mark.row("F2.6")
def test_copied() -> None:
    moved = (image() + 1).to("CPU:1") * 2
    assert edges(plan(moved)) == [(0, 1, Reason.COPIED, 0), (1, 2, Reason.COPIED, 0)]


@pytest.mark.row("F2.6")
def test_a_copied_window_is_made_whole_first() -> None:
    schedule = plan(image()[1:3].to("CPU:1"))
    assert [item.is_copy for item in schedule.items] == [False, True]
    assert edges(schedule) == [(0, 1, Reason.COPIED, 0)]
    assert sizes(schedule) == [2 * COLUMNS, 2 * COLUMNS]
    # A whole buffer is copied as it is.
    (copy,) = plan(Tensor.empty(COLUMNS).to("CPU:1")).items
    assert copy.is_copy
    assert [item.is_copy for item in plan(image().T.to("CPU:1")).items] == [False, True]


@pytest.mark.row("F2.6", "R9.4")
def test_contiguous() -> None:
    schedule = plan((image() + 1).contiguous() * 2)
    assert edges(schedule) == [(0, 1, Reason.CONTIGUOUS, 0)]


@pytest.mark.row("R9.4")
@pytest.mark.usefixtures("by_nodes")
def test_every_mark_is_a_store_here_and_a_load_there() -> None:
    """Requested, contiguous and assigned values: each buffer is written by its kernel, and read by
    those that name it.
    """
    x, state = image(), image()
    cut = (x + 1).contiguous()
    after = state.assign(state + cut)
    result = after * 2
    schedule = plan(cut * 3, result)
    stores: dict[int, list[int]] = {}
    loads: dict[int, list[int]] = {}
    for step, item in enumerate(schedule.items):
        assert item.ast is not None
        for node in item.ast.toposort():
            if node.op in (Ops.STORE, Ops.LOAD):
                table = stores if node.op is Ops.STORE else loads
                table.setdefault(item.buffers[node.src[0].arg], []).append(step)
    spec = dict(enumerate(schedule.buffers))
    inputs = [number for number, found in spec.items() if found.source is not None]
    made = [number for number, found in spec.items() if found.source is None]
    assert len(inputs) == 2
    assert len(made) == 3
    assert {edge.reason for edge in schedule.edges} == {Reason.CONTIGUOUS, Reason.ASSIGNED}
    for number in made:
        assert len(stores[number]) == 1
    for edge in schedule.edges:
        written = [number for number, steps in stores.items() if edge.producer in steps]
        assert any(edge.consumer in loads[number] for number in written)
    # The assigned buffer is an input that is stored to; the other input is not.
    assert [number in stores for number in inputs].count(True) == 1
    assert not any(number in loads for number in schedule.outputs)


@pytest.mark.usefixtures("by_nodes")
def test_assigned() -> None:
    state = image()
    assert edges(plan(state.assign(state + 1) * 2)) == [(0, 1, Reason.ASSIGNED, 0)]


@pytest.mark.usefixtures("by_nodes")
def test_overlapping() -> None:
    """What an assignment reads elsewhere than where it writes is computed aside."""
    line = Tensor.empty(COLUMNS)
    schedule = plan(line.assign(line.flip(0) + 1))
    assert edges(schedule) == [(0, 1, Reason.OVERLAPPING, 0)]
    assert sizes(schedule) == [COLUMNS]
    # At one place only, nothing is put aside.
    line = Tensor.empty(COLUMNS)
    assert edges(plan(line.assign(line * 2 + 1))) == []


def test_scattered() -> None:
    table = Tensor.empty(100, 4, requires_grad=True)
    table[Tensor.empty(8, dtype=dtypes.int)].sum().backward()
    assert table.grad is not None
    last = plan(table.grad * 2).edges[-1]
    assert (last.reason, last.bytes_saved) == (Reason.SCATTERED, 0)


def test_shared() -> None:
    """Each of two readers reads the rows' sums."""
    total = image().sum(1)
    schedule = plan(total + 1, total.reshape(ROWS, 1) * image())
    saved = 4 * ROWS
    assert edges(schedule) == [(0, 1, Reason.SHARED, saved), (0, 2, Reason.SHARED, saved)]
    assert {edge.flops_recomputed for edge in schedule.edges} == {0}


def test_reduced_again() -> None:
    schedule = plan(image().sum(1).exp().sum())
    assert edges(schedule) == [(0, 1, Reason.REDUCED_AGAIN, 2 * 4 * ROWS)]


def test_expanded() -> None:
    """Column sums are read anew by every row, and a fold over columns has no loop of its own for
    them.
    """
    scaled = image() * image().sum(0)
    schedule = plan(scaled.sum(1))
    assert edges(schedule) == [(0, 1, Reason.EXPANDED, 2 * 4 * COLUMNS)]


def test_expanded_in_the_plain_plan() -> None:
    schedule = plan(image().softmax(1), plain=True)
    saved = 2 * 4 * ROWS
    assert {(edge.reason, edge.bytes_saved) for edge in schedule.edges} == {
        (Reason.EXPANDED, saved)
    }
    assert [(edge.producer, edge.consumer) for edge in schedule.edges] == [(0, 1), (0, 2), (1, 2)]


def test_costly() -> None:
    """One power per column, not one per column and row; cheap work is done again instead."""
    weights = Tensor.empty(COLUMNS)
    schedule = plan((weights.exp() * image()).sum(1))
    assert edges(schedule) == [(0, 1, Reason.COSTLY, 2 * 4 * COLUMNS)]
    assert edges(plan(((weights + 1) * image()).sum(1))) == []


def test_no_parallelism() -> None:
    """Two long rows: eight iterations would keep the target busy, two would not."""
    length = 1 << 16
    schedule = plan(Tensor.empty(2, length).softmax(1), target=replace(CPU, threads=8))
    assert edges(schedule)[-1] == (1, 2, Reason.NO_PARALLELISM, 2 * 4 * 2)
    assert len(kernels(plan(Tensor.empty(8, length).softmax(1)))) == 1
    # Short rows are not worth a second launch.
    assert len(kernels(plan(Tensor.empty(2, 64).softmax(1)))) == 1


def test_what_a_tile_would_gather_is_stored() -> None:
    """How often the largest of a window occurs, as a pooling's gradient asks, beside a product."""
    x, w, y = Tensor.empty(512, 64), Tensor.empty(64, 1024), Tensor.empty(512, 1024, 4)
    counts = y.eq(1.0).sum(2, dtype=dtypes.int32)
    schedule = plan((x @ w) / counts)
    assert edges(schedule) == [(0, 1, Reason.GATHERED, 2 * 4 * 512 * 1024)]
    # By itself it is part of what divides; and so is one that is no larger than its results.
    assert len(plan(x.reshape(512, 64, 1).sum(2)[:, :1] / counts).items) == 1
    assert edges(plan((x @ w) / y[:, :, :1].eq(1.0).sum(2, dtype=dtypes.int32))) == []


def test_too_deep() -> None:
    value = Tensor.empty(COLUMNS)
    for _ in range(150):
        value = value * 2 + 1
    schedule = plan(value)
    assert {edge.reason for edge in schedule.edges} == {Reason.TOO_LARGE}
    assert len(schedule.items) == 2


def test_what_was_computed_long_before_makes_no_kernel_large() -> None:
    """A number that many updates share stands before the first of them."""
    shared = (Tensor.empty(()) + 1).contiguous()
    values: list[Tensor] = []
    for _ in range(12):
        value = Tensor.empty(COLUMNS) * shared
        for _ in range(90):
            value = value * 2 + 1
        values.append(value)
    assert len(plan(*values).items) == 1 + len(values)


def test_too_many_buffers() -> None:
    value = Tensor.empty(COLUMNS)
    for _ in range(99):
        value = value + Tensor.empty(COLUMNS)
    schedule = plan(value)
    assert {edge.reason for edge in schedule.edges} == {Reason.TOO_LARGE}
    assert all(len(item.buffers) <= 50 for item in schedule.items)
    assert len(schedule.items) == 3


def test_what_meets_itself_elsewhere() -> None:
    """Computed where it is read, every second such step would read four times as many places."""
    value = Tensor.empty(COLUMNS)
    for step in range(12):
        value = value.maximum(value.roll(1 << step))
    schedule = plan(value)
    assert {edge.reason for edge in schedule.edges} <= {Reason.TOO_LARGE, Reason.SHARED}
    asts = [item.ast for item in kernels(schedule) if item.ast is not None]
    loads = [sum(node.op is Ops.LOAD for node in ast.toposort()) for ast in asts]
    assert len(loads) < 12
    assert max(loads) <= 128


@pytest.mark.parametrize("plain", [True, False])
def test_every_value_between_two_kernels_has_an_edge(plain: bool) -> None:
    """A buffer that one step writes and another reads is an edge between the two, with a reason."""
    query, key, value = [Tensor.empty(2, 4, 16, 8) for _ in range(3)]
    mixed = query.scaled_dot_product_attention(key, value)
    state = Tensor.empty(2, 4, 16, 8)
    written = state.assign(mixed.layernorm())
    schedule = plan(written * 2, (mixed + 1).contiguous().to("CPU:1"), plain=plain)
    found: set[tuple[int, int]] = set()
    writer: dict[int, int] = {}
    for step, item in enumerate(schedule.items):
        for number in item.buffers[1:]:
            if number in writer:
                found.add((writer[number], step))
        writer[item.buffers[0]] = step
    told = {(edge.producer, edge.consumer) for edge in schedule.edges}
    assert found
    assert found == told
    assert all(isinstance(edge, Edge) and edge.bytes_saved >= 0 for edge in schedule.edges)
    assert all(edge.producer < edge.consumer for edge in schedule.edges)


def test_what_is_stored_is_fused_or_refused() -> None:
    """Each value that was stored for profit either moved into a kernel, or has a refusal with its
    numbers.
    """
    x = image()
    value = (x.softmax(1) * x.exp().sum(0)).sum(1)
    fusion = fuse(UOp.sink(value.uop), lambda _: CPU, plain=False)
    profit = (Reason.EXPANDED, Reason.REDUCED_AGAIN, Reason.SHARED, Reason.COSTLY)
    for node, reason in fusion.stored.items():
        if reason in profit:
            assert node in fusion.refused
    assert not set(fusion.joined) & set(fusion.stored)
    assert len(kernels(plan(value))) == len(fusion.stored)


def test_no_kernel_is_cut_between_products_and_their_sum() -> None:
    """However deep the network: what is larger than all it is made of is not stored."""
    x = Tensor.empty(ROWS, COLUMNS)
    for _ in range(40):
        w = Tensor.empty(COLUMNS, COLUMNS)
        x = ((x @ w).gelu() + x).layernorm()
    assert max(sizes(plan(x))) == ROWS * COLUMNS


def test_two_sums_of_products_are_two_kernels() -> None:
    """Where both are large: each wants the registers for a tile of its own operands."""
    x, y = Tensor.empty(64, 128), Tensor.empty(64, 512)
    a, b = Tensor.empty(128, 256), Tensor.empty(512, 256)
    schedule = plan((x @ a + y @ b).relu())
    assert edges(schedule) == [(0, 1, Reason.BESIDE, 2 * 4 * 64 * 256)]
    small = plan(x[:4] @ a[:, :8] + y[:4] @ b[:, :8])
    assert edges(small) == []


def test_a_sum_of_products_among_zeros_is_a_kernel() -> None:
    """It would be computed for the zeros too; a few of them are worth no kernel."""
    product = Tensor.empty(64, 256) @ Tensor.empty(256, 128)
    assert edges(plan(product.pad((0, 0, 0, 64)))) == [(0, 1, Reason.PADDED, 2 * 4 * 64 * 128)]
    assert edges(plan(product.pad((0, 0, 0, 8)))) == []


def test_parts_put_together_are_stored_before_a_product() -> None:
    """Each element would take the gates of all parts again, for every column of the product."""
    parts = [Tensor.empty(32, 64) for _ in range(3)]
    joined = Tensor.cat(*parts, dim=1)
    schedule = plan(joined @ Tensor.empty(192, 48))
    assert edges(schedule) == [(0, 1, Reason.COSTLY, 2 * 4 * 32 * 192)]


def test_sizes_that_are_not_known_leave_the_others_alone() -> None:
    """A head's part of a window of a cache: no index is divided."""
    n = Variable("n", 1, 16).bind(5)
    keys, query = Tensor.empty(4, 16, 8), Tensor.empty(4, 1, 8)
    for item in kernels(plan(query @ keys[:, :n].transpose(1, 2))):
        assert item.ast is not None
        assert not any(node.op in (Ops.FLOORDIV, Ops.FLOORMOD) for node in item.ast.toposort())
