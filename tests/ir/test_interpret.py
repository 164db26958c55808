"""The meaning of tensor graphs, against NumPy and published vectors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.ir.args import BufferArg, RandArg
from tilegrad.ir.interpret import evaluate_size, interpret, random_word, threefry
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, Variable, prod

FULL = 2**32 - 1


def buffer(slot: int, shape: tuple[Any, ...], dtype: DType = dtypes.float32) -> UOp:
    size = prod(shape)
    leaf = UOp(Ops.BUFFER, dtype, (), BufferArg(slot, "HOST", size))
    return UOp(Ops.RESHAPE, dtype, (leaf,), shape)


def reduced(u: UOp, op: Ops, *axes: int) -> UOp:
    return UOp(Ops.REDUCE_AXIS, u.dtype, (u,), (op, axes))


def moved(op: Ops, u: UOp, arg: Any) -> UOp:
    return UOp(op, u.dtype, (u,), arg)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((FULL, FULL), (FULL, FULL), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(
    counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    """The known-answer vectors of Random123, `threefry 2 20`."""
    assert threefry(counter, key) == expected


def test_words_pair_up_and_use_both_halves_of_seed_and_position() -> None:
    seed, position = 5 << 32 | 7, (3 << 32 | 9) * 2
    assert (random_word(seed, position), random_word(seed, position + 1)) == threefry(
        (9, 3), (7, 5)
    )


def test_a_draw_is_the_stream_from_its_offset_on() -> None:
    whole = interpret(UOp(Ops.RAND, dtypes.uint32, (), RandArg((9,), 42, 0, "CPU")), {})
    part = interpret(UOp(Ops.RAND, dtypes.uint32, (), RandArg((2, 2), 42, 3, "CPU")), {})
    assert part == whole[3:7]


def test_a_sum_rounds_after_every_step() -> None:
    """2**24 + 1 + 1 in float is 2**24 when each 1 is lost, in index order."""
    x = buffer(0, (3,))
    values = {0: [2.0**24, 1.0, 1.0]}
    assert interpret(reduced(x, Ops.ADD, 0), values) == [2.0**24]
    assert interpret(reduced(x, Ops.ADD, 0), {0: [1.0, 1.0, 2.0**24]}) == [2.0**24 + 2]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize(("op", "name"), [(Ops.ADD, "sum"), (Ops.MUL, "prod"), (Ops.MAX, "max")])
def test_reductions_match_numpy(op: Ops, name: str, axes: tuple[int, ...]) -> None:
    data = np.arange(24).reshape(2, 3, 4) % 7 + 1
    found = interpret(
        reduced(buffer(0, (2, 3, 4), dtypes.int64), op, *axes), {0: data.ravel().tolist()}
    )
    assert found == getattr(data, name)(axis=axes).ravel().tolist()


def test_an_empty_reduction_is_the_identity() -> None:
    empty = moved(Ops.SHRINK, buffer(0, (3, 2)), ((0, 0), (0, 2)))
    assert interpret(reduced(empty, Ops.ADD, 0), {0: [1.0] * 6}) == [0.0, 0.0]
    assert interpret(reduced(empty, Ops.MAX, 0), {0: [1.0] * 6}) == [-math.inf, -math.inf]


@st.composite
def chains(draw: st.DrawFn) -> tuple[UOp, np.ndarray[Any, Any]]:
    """A few movement ops on a 2 x 3 x 2 buffer, and what NumPy makes of them."""
    array = np.arange(1, 13, dtype=np.int32).reshape(2, 3, 2)
    u = buffer(0, (2, 3, 2), dtypes.int32)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from([op for op in Ops if op.is_movement]))
        shape = array.shape
        if kind is Ops.PERMUTE:
            arg: Any = tuple(draw(st.permutations(range(array.ndim))))
            array = array.transpose(arg)
        elif kind is Ops.FLIP:
            arg = tuple(draw(st.booleans()) for _ in shape)
            array = array[tuple(slice(None, None, -1 if flip else 1) for flip in arg)]
        elif kind is Ops.PAD:
            arg = tuple((draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in shape)
            array = np.pad(array, arg)
        elif kind is Ops.SHRINK:
            starts = [draw(st.integers(0, size - 1)) for size in shape]
            arg = tuple((i, draw(st.integers(i + 1, n))) for i, n in zip(starts, shape))
            array = array[tuple(slice(*window) for window in arg)]
        elif kind is Ops.EXPAND:
            arg = tuple(draw(st.integers(1, 2)) if n == 1 else n for n in shape)
            array = np.broadcast_to(array, arg)
        else:
            arg = (*shape[:-2], shape[-2] * shape[-1]) if len(shape) > 1 else (1, *shape)
            array = array.reshape(arg)
        u = moved(kind, u, arg)
    return u, array


@given(chains())
def test_movement_chains_match_numpy(case: tuple[UOp, np.ndarray[Any, Any]]) -> None:
    u, expected = case
    assert u.shape == expected.shape
    assert interpret(u, {0: list(range(1, 13))}) == expected.ravel().tolist()


def test_padding_has_the_type_of_its_elements() -> None:
    padded = moved(Ops.PAD, buffer(0, (1,)), ((1, 1),))
    assert [type(value) for value in interpret(padded, {0: [3.0]})] == [float, float, float]


def test_constants_go_with_any_shape() -> None:
    x = buffer(0, (2, 2))
    doubled = UOp(Ops.MUL, dtypes.float32, (x, UOp.const(dtypes.float32, 2.0)))
    assert interpret(doubled, {0: [1.0, 2.0, 3.0, 4.0]}) == [2.0, 4.0, 6.0, 8.0]


def test_each_op_rounds_to_its_dtype() -> None:
    half = buffer(0, (1,), dtypes.float16)
    tenth = UOp.const(dtypes.float16, 0.1)
    total = UOp(Ops.ADD, dtypes.float16, (half, tenth))
    assert interpret(total, {0: [1.0]}) == [float(np.float16(1.0) + np.float16(0.1))]
    byte = buffer(0, (1,), dtypes.uint8)
    wrapped = UOp(Ops.ADD, dtypes.uint8, (byte, UOp.const(dtypes.uint8, 10)))
    assert interpret(wrapped, {0: [250]}) == [4]


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (dtypes.float32, dtypes.int32, -2.7, -2),
        (dtypes.float32, dtypes.int32, math.nan, 0),
        (dtypes.float32, dtypes.int8, math.inf, 127),
        (dtypes.float32, dtypes.bool, 0.5, True),
        (dtypes.int32, dtypes.uint8, -1, 255),
        (dtypes.bool, dtypes.float32, True, 1.0),
        (dtypes.float64, dtypes.float32, 0.1, float(np.float32(0.1))),
    ],
)
def test_casts(source: DType, target: DType, value: Any, expected: Any) -> None:
    assert interpret(UOp(Ops.CAST, target, (buffer(0, (1,), source),)), {0: [value]}) == [expected]


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (dtypes.float32, dtypes.uint32, 1.0, 0x3F800000),
        (dtypes.uint32, dtypes.float32, 0x40490FDB, float(np.float32(math.pi))),
        (dtypes.float16, dtypes.int16, -2.0, -0x4000),
        (dtypes.bfloat16, dtypes.uint16, 1.0, 0x3F80),
        (dtypes.uint16, dtypes.bfloat16, 0x4049, 3.140625),
        (dtypes.float64, dtypes.int64, 1.0, 0x3FF << 52),
    ],
)
def test_bitcasts(source: DType, target: DType, value: Any, expected: Any) -> None:
    cast = UOp(Ops.BITCAST, target, (buffer(0, (1,), source),))
    assert interpret(cast, {0: [value]}) == [expected]


def test_gather_picks_rows_and_zero_outside() -> None:
    table, index = buffer(0, (3, 2)), buffer(1, (2, 2), dtypes.int32)
    found = UOp(Ops.GATHER, dtypes.float32, (table, index))
    assert found.shape == (2, 2, 2)
    rows = {0: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 1: [2, 0, -1, 3]}
    assert interpret(found, rows) == [4.0, 5.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_scatter_add_gathers_repeats_and_drops_outside() -> None:
    table, index, rows = buffer(0, (3, 2)), buffer(1, (4,), dtypes.int32), buffer(2, (4, 2))
    added = UOp(Ops.SCATTER_ADD, dtypes.float32, (table, index, rows))
    values = {0: [0.0] * 6, 1: [1, 1, 5, -1], 2: [1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0]}
    assert interpret(added, values) == [0.0, 0.0, 4.0, 6.0, 0.0, 0.0]


def test_assignment_and_copies_keep_the_value() -> None:
    x, y = buffer(0, (2,)), buffer(1, (2,))
    for op, arg in ((Ops.CONTIGUOUS, None), (Ops.DETACH, None), (Ops.COPY, "CPU")):
        assert interpret(UOp(op, dtypes.float32, (x,), arg), {0: [1.0, 2.0]}) == [1.0, 2.0]
    assigned = UOp(Ops.ASSIGN, dtypes.float32, (x, y))
    assert interpret(assigned, {0: [1.0, 2.0], 1: [3.0, 4.0]}) == [3.0, 4.0]


@pytest.mark.parametrize("length", [1, 3, 4])
def test_symbolic_sizes_take_the_value_of_the_launch(length: int) -> None:
    n = Variable("n", 1, 4)
    window = moved(Ops.SHRINK, buffer(0, (4, 2)), ((0, n), (0, 2)))
    total = reduced(moved(Ops.RESHAPE, window, (n * 2,)), Ops.ADD, 0)
    values = [float(i) for i in range(8)]
    assert interpret(total, {0: values}, {"n": length}) == [sum(values[: length * 2])]


def test_variables_are_numbers_too() -> None:
    n = Variable("n", 1, 8)
    scaled = UOp(Ops.CAST, dtypes.float32, (n,)) * buffer(0, (2,))
    assert interpret(scaled, {0: [1.0, 2.0]}, {"n": 3}) == [3.0, 6.0]
    assert evaluate_size((n * 3 + 1) // 2 % 4, {"n": 3}) == 1
    with pytest.raises(InternalError, match="variable 'n' has no value"):
        interpret(scaled, {0: [1.0, 2.0]})


def test_a_missing_buffer_is_named() -> None:
    with pytest.raises(InternalError, match="buffer 3 needs 2 elements"):
        interpret(buffer(3, (2,)), {})
    with pytest.raises(InternalError, match="RANGE node in a tensor graph"):
        interpret(UOp.range(3), {})


def test_a_long_chain_needs_no_recursion() -> None:
    u = buffer(0, (1,), dtypes.int64)
    for step in range(20_000):
        u = u + (1 + step % 2)
    assert interpret(u, {0: [0]}) == [30_000]


def test_elementwise_ops_follow_their_definitions() -> None:
    values = [-3, -1, 0, 1, 4]
    x, y = buffer(0, (25,), dtypes.int32), buffer(1, (25,), dtypes.int32)
    pairs = list(itertools.product(values, values))
    columns = {0: [a for a, _ in pairs], 1: [b for _, b in pairs]}
    for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR):
        assert op.evaluate is not None
        expected = [op.evaluate(a, b) for a, b in pairs]
        assert interpret(UOp(op, dtypes.int32, (x, y)), columns) == expected
    for op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ):
        assert op.evaluate is not None
        expected = [op.evaluate(a, b) for a, b in pairs]
        assert interpret(UOp(op, dtypes.bool, (x, y)), columns) == expected
