"""Every rule, against central differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.grad.numeric import Array, check, evaluate, leaf, ones, total
from tilegrad.base.dtype import dtypes
from tilegrad.grad import gradients
from tilegrad.grad.loop_gradients import LOOPS
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

RANDOM = np.random.default_rng(0)


def draw(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RANDOM.uniform(low, high, shape)


def unary(op: Ops) -> Callable[[UOp], UOp]:
    return lambda x: UOp(op, x.dtype, (x,))


def move(op: Ops, arg: object) -> Callable[[UOp], UOp]:
    return lambda x: UOp(op, x.dtype, (x,), arg)


# Ops of kernels and programs that `Stage.ALL` lets stand anywhere.
CODE = "BARRIER DEFINE_ACC DEFINE_LOCAL END GEP LOAD RANGE REDUCE SINK SPECIAL STORE"


def test_every_op_of_the_tensor_graph_is_decided_upon() -> None:
    """An op is differentiable, or it is said that it is not."""
    ops = {op for op in Ops if Stage.TENSOR in op.definition.stages}
    assert {op.name for op in ops} - set(f"{CODE} VECTORIZE WMMA".split()) == {
        op.name for op in {*DERIVATIVES, *NO_DERIVATIVE, *LOOPS}
    }
    assert not set(DERIVATIVES) & NO_DERIVATIVE


@pytest.mark.parametrize(
    "op",
    [
        Ops.NEG,
        Ops.EXP,
        Ops.EXP2,
        Ops.LOG2,
        Ops.SIN,
        Ops.COS,
        Ops.SQRT,
        Ops.RECIP,
        Ops.TANH,
        Ops.SIGMOID,
    ],
    ids=lambda op: op.name,
)
def test_one_number_in(op: Ops) -> None:
    x = leaf(2, 3)
    check(unary(op)(x), {x: draw(2, 3, low=0.5)}, order=3)


@pytest.mark.parametrize(
    "op", [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.FLOORMOD], ids=lambda op: op.name
)
def test_two_numbers_in(op: Ops) -> None:
    x, y = leaf(2, 3), leaf(2, 3)
    check(x.alu(op, y), {x: draw(2, 3), y: draw(2, 3, low=0.5)}, order=2)


def test_a_source_used_twice_gets_both_parts() -> None:
    x = leaf(3)
    check(x * x * x, {x: draw(3)}, order=3)


def test_multiply_add() -> None:
    x, y, z = leaf(4), leaf(4), leaf(4)
    total = UOp(Ops.MULACC, x.dtype, (x * x, y, z))
    check(total * total, {each: draw(4) for each in (x, y, z)}, order=2)


def test_where() -> None:
    condition, x, y = leaf(4, dtype=dtypes.bool), leaf(4), leaf(4)
    values = {condition: np.array([True, False, True, False]), x: draw(4), y: draw(4)}
    check(condition.where(x * x, y * x), values, order=2)


def test_cosine_keeps_its_accuracy_for_large_numbers() -> None:
    x = leaf(1001, dtype=dtypes.float32)
    (found,) = gradients(unary(Ops.SIN)(x), ones(x), [x])
    assert found is not None
    at = np.linspace(9.0e4, 1.0e5, 1001, dtype=np.float32)
    wanted = np.cos(at.astype(np.float64))
    assert np.abs(evaluate(found, {x: at}) - wanted).max() < 1e-6


@pytest.mark.parametrize(
    ("op", "arg"),
    [
        (Ops.RESHAPE, (3, 4)),
        (Ops.PERMUTE, (1, 2, 0)),
        (Ops.PAD, ((1, 0), (0, 2), (3, 1))),
        (Ops.SHRINK, ((0, 1), (1, 3), (0, 2))),
        (Ops.FLIP, (False, True, True)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_movement(op: Ops, arg: object) -> None:
    x = leaf(2, 3, 2)
    check(move(op, arg)(x * x), {x: draw(2, 3, 2)}, order=2)


def test_expand_has_the_sum_of_its_copies() -> None:
    x = leaf(2, 1, 3, 1)
    check(move(Ops.EXPAND, (2, 4, 3, 2))(x * x), {x: draw(2, 1, 3, 1)}, order=2)


def test_expand_of_an_axis_that_stays_one() -> None:
    x = leaf(1, 3)
    check(move(Ops.EXPAND, (1, 3))(x), {x: draw(1, 3)})


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("function", [Ops.ADD, Ops.MUL, Ops.MAX], ids=lambda op: op.name)
def test_reduce(function: Ops, axes: tuple[int, ...]) -> None:
    x = leaf(3, 2, 4)
    order = 1 if function is Ops.MAX else 2
    check(move(Ops.REDUCE_AXIS, (function, axes))(x * x), {x: draw(3, 2, 4)}, order=order)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_product_with_zeros(zeros: int) -> None:
    """First and second derivatives are right where factors vanish: there is no division."""
    x = leaf(2, 4)
    values = draw(2, 4, low=0.5)
    values[0, :zeros] = 0.0
    check(move(Ops.REDUCE_AXIS, (Ops.MUL, (1,)))(x), {x: values}, order=2)


@pytest.mark.parametrize("size", [16, 17, 300])
def test_product_of_many(size: int) -> None:
    """Groups, and groups of groups, with a ragged end."""
    x = leaf(size)
    values = draw(size, low=0.9, high=1.1)
    values[5] = 0.0
    (found,) = gradients(move(Ops.REDUCE_AXIS, (Ops.MUL, (0,)))(x), ones(x), [x])
    assert found is not None
    wanted = np.zeros(size)
    wanted[5] = np.prod(np.delete(values, 5))
    np.testing.assert_allclose(evaluate(found, {x: values}), wanted, rtol=1e-12)


def test_equal_largest_elements_share() -> None:
    x = leaf(1, 5)
    (found,) = gradients(move(Ops.REDUCE_AXIS, (Ops.MAX, (1,)))(x), UOp.const(x.dtype, 6.0), [x])
    assert found is not None
    at = np.array([[3.0, 1.0, 3.0, 2.0, 3.0]])
    np.testing.assert_array_equal(evaluate(found, {x: at}), [[2.0, 0.0, 2.0, 0.0, 2.0]])


def test_maximum_of_70000_equal_halves() -> None:
    """The count of ties overflows half, where its reciprocal would be 0."""
    x = leaf(70_000, dtype=dtypes.half)
    (found,) = gradients(move(Ops.REDUCE_AXIS, (Ops.MAX, (0,)))(x), ones(x), [x])
    assert found is not None
    assert found.dtype is dtypes.half
    slopes = evaluate(found, {x: np.ones(70_000)})
    np.testing.assert_allclose(slopes, 1 / 70_000, rtol=2e-3)


def test_maximum_of_two_shares_ties() -> None:
    x, y = leaf(3), leaf(3)
    found = gradients(x.maximum(y), ones(x), [x, y])
    values = {x: np.array([1.0, 2.0, 3.0]), y: np.array([2.0, 2.0, 2.0])}
    slopes = [evaluate(part, values) for part in found if part is not None]
    np.testing.assert_array_equal(slopes, [[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])


def test_gather_adds_rows_and_reads_no_table() -> None:
    """The gradient scatters rows: the table's values and size do not enter its cost."""
    table, index = leaf(5, 2), leaf(2, 3, dtype=dtypes.int32)
    rows = UOp(Ops.GATHER, table.dtype, (table, index))
    check(rows * rows, {table: draw(5, 2), index: np.array([[0, 4, 4], [1, -1, 5]])}, order=2)
    (found,) = gradients(rows, ones(rows), [table])
    assert found is not None
    assert found.op is Ops.SCATTER_ADD
    assert table not in found.toposort()


def test_gradients_of_a_row_picked_often_are_summed_in_float32() -> None:
    table, index = leaf(2, 1, dtype=dtypes.half), leaf(5000, dtype=dtypes.int32)
    rows = UOp(Ops.GATHER, table.dtype, (table, index))
    (found,) = gradients(rows, ones(rows), [table])
    assert found is not None
    slopes = evaluate(found, {table: np.zeros((2, 1)), index: np.ones(5000)})
    np.testing.assert_array_equal(slopes, [[0.0], [5000.0]])


def test_scatter_add() -> None:
    table, index, rows = leaf(4, 2), leaf(3, dtype=dtypes.int32), leaf(3, 2)
    made = UOp(Ops.SCATTER_ADD, table.dtype, (table, index, rows * rows))
    check(made, {table: draw(4, 2), index: np.array([1, 3, 1]), rows: draw(3, 2)}, order=2)


@pytest.mark.parametrize("op", [Ops.CONTIGUOUS, Ops.COPY], ids=lambda op: op.name)
def test_passes(op: Ops) -> None:
    x = leaf(3)
    check(move(op, "CPU:1" if op is Ops.COPY else None)(x * x), {x: draw(3)})


def test_copy_goes_back_to_where_it_came_from() -> None:
    x = leaf(3, device="CPU:2")
    (found,) = gradients(move(Ops.COPY, "CPU:1")(x), ones(x), [x])
    assert found is not None
    assert (found.op, found.arg) == (Ops.COPY, "CPU:2")


def test_assign_hands_on_to_the_value() -> None:
    held, x = leaf(3), leaf(3)
    values = {held: draw(3), x: draw(3)}
    assigned = UOp(Ops.ASSIGN, x.dtype, (held, x * x))
    assert gradients(assigned, ones(x), [held]) == [None]
    (found,) = gradients(assigned, ones(x), [x])
    assert found is not None
    np.testing.assert_allclose(evaluate(found, values), 2 * values[x])


def test_cast_between_floats() -> None:
    x = leaf(3, dtype=dtypes.half)
    (found,) = gradients(x.cast(dtypes.float32) * 3.0, UOp.const(dtypes.float32, 1.0), [x])
    assert found is not None
    assert found.dtype is dtypes.half
    np.testing.assert_array_equal(evaluate(found, {x: np.zeros(3)}), [3.0, 3.0, 3.0])


def test_narrowed_terms_are_summed_unrounded() -> None:
    """A half tensor that is expanded and widened: its gradient is summed before it is narrowed."""
    x, y = leaf(1, dtype=dtypes.half), leaf(2048, dtype=dtypes.float32)
    (found,) = gradients(
        move(Ops.EXPAND, (2048,))(x).cast(dtypes.float32) * y, UOp.const(dtypes.float32, 1.0), [x]
    )
    assert found is not None
    # Each term rounds to 1 in half.
    slopes = evaluate(found, {x: np.zeros(1), y: np.full(2048, 1.0004)})
    np.testing.assert_array_equal(slopes, np.array([2048 * 1.0004]).astype(np.float16))


@pytest.mark.parametrize(
    "stop",
    [
        lambda x: UOp(Ops.DETACH, x.dtype, (x,)),
        lambda x: UOp(Ops.TRUNC, x.dtype, (x,)),
        lambda x: x.bitcast(dtypes.int64).bitcast(dtypes.float64),
        lambda x: x.cast(dtypes.int32).cast(dtypes.float64),
        lambda x: (x < 0.5).cast(dtypes.float64),
        lambda x: x.alu(Ops.FLOORDIV, UOp.const(x.dtype, 2.0)),
    ],
)
def test_no_gradient(stop: Callable[[UOp], UOp]) -> None:
    x = leaf(3)
    assert gradients(stop(x), ones(x), [x]) == [None]
    values = {x: np.array([0.25, 1.5, 5.0])}
    (found,) = gradients(stop(x) * x, ones(x), [x])
    assert found is not None
    np.testing.assert_array_equal(evaluate(found, values), evaluate(stop(x), values))


def test_one_number_beside_a_tensor() -> None:
    """A node of shape () may stand next to any shape; its gradient is the sum."""
    x, y = leaf(2, 3), leaf()
    check(x * y + y, {x: draw(2, 3), y: draw()}, order=2)


def test_constants_stand_beside_tensors() -> None:
    x = leaf(2, 3)
    check((x * 3.0 + 1.0).maximum(0.25) / 7.0, {x: draw(2, 3)})


def test_sum_of_squares() -> None:
    x = leaf(2, 3)
    check(total(x * x), {x: draw(2, 3)}, order=2)
