"""What a target lacks is made of what it has, with the same results: division of integers, masks,
and ops.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes, truncate
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.decompose import decompose
from tilegrad.lower.integers import choose_integers
from tilegrad.target import Target

INTEGERS = (*dtypes.signed, *dtypes.unsigned)


def given(dtype: DType, place: int = 0) -> UOp:
    """A value that is not known when compiling: an element of a buffer."""
    memory = UOp(Ops.DEFINE_GLOBAL, dtype.scalar.ptr(64), (), place)
    return UOp(Ops.LOAD, dtype, (memory, UOp.const(dtypes.int32, 0)))


def evaluate(root: UOp, values: Mapping[UOp, Any]) -> Any:
    """What arithmetic on scalars comes to, by the meaning of each op."""
    known = dict(values)
    for node in root.toposort():
        if node in known or node.op in (Ops.DEFINE_GLOBAL,):
            continue
        if node.op is Ops.CONST:
            known[node] = node.arg
        elif node.op is Ops.CAST:
            known[node] = truncate(known[node.src[0]], node.dtype)
        elif node.op.evaluate is not None:
            found = node.op.evaluate(*[known[source] for source in node.src])
            known[node] = truncate(found, node.dtype)
    return known[root]


def ops(root: UOp) -> set[Ops]:
    return {node.op for node in root.toposort()}


# division of integers


def extremes(dtype: DType) -> list[int]:
    low, high = int(dtype.min), int(dtype.max)
    near = {0, 1, 2, 3, 7, 8, 10, high, high - 1, high // 2, high // 2 + 1}
    if low:
        near |= {-1, -2, -3, -8, -10, low, low + 1, low // 2, low // 2 - 1}
    drawn = random.Random(dtype.name)
    return sorted(near | {drawn.randint(low, high) for _ in range(12)})


def python_divide(x: int, y: int) -> int:
    return x // y if y else 0


def python_modulo(x: int, y: int) -> int:
    return x % y if y else 0


DIVISIONS: list[tuple[Ops, Callable[[int, int], int]]] = [
    (Ops.FLOORDIV, python_divide),
    (Ops.FLOORMOD, python_modulo),
]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("op", "meaning"), DIVISIONS)
def test_division_is_pythons(op: Ops, meaning: Callable[[int, int], int], dtype: DType) -> None:
    x, y = given(dtype, 0), given(dtype, 1)
    made = choose_integers(x.alu(op, y))
    assert not {Ops.FLOORDIV, Ops.FLOORMOD} & ops(made)
    values = extremes(dtype)
    for a in values:
        for b in values:
            assert evaluate(made, {x: a, y: b}) == truncate(meaning(a, b), dtype), (a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("op", "meaning"), DIVISIONS)
def test_division_by_a_constant(op: Ops, meaning: Callable[[int, int], int], dtype: DType) -> None:
    x = given(dtype)
    for b in extremes(dtype):
        made = choose_integers(x.alu(op, UOp.const(dtype, b)))
        for a in extremes(dtype):
            assert evaluate(made, {x: a}) == truncate(meaning(a, b), dtype), (a, b)


def test_division_of_what_bounds_are_known_of() -> None:
    """Nothing negative needs no correction, and a power of two no division at all."""
    n = UOp.variable("n", 0, 1000)
    z = UOp.variable("z", -1000, 1000)
    assert Ops.WHERE not in ops(choose_integers(n // 7))
    assert not {Ops.IDIV, Ops.WHERE} & ops(choose_integers(z // 8))
    assert not {Ops.MOD, Ops.IDIV, Ops.WHERE} & ops(choose_integers(z % 8))
    # Either divisor traps on some machine.
    guarded = choose_integers(z // UOp.variable("d", -3, 3))
    assert {Ops.IDIV, Ops.WHERE} <= ops(guarded)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_all_pairs_of_bytes(dtype: Any) -> None:
    """65,536 quotients, remainders and C's quotients, as compiled."""
    every = np.arange(256, dtype=np.uint8).view(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(every, every))
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    kind = dtypes.from_name(np.dtype(dtype).name)
    left, right = Tensor(x), Tensor(y)
    for found, meaning in (
        (left // right, python_divide),
        (left % right, python_modulo),
        (left.div(right, rounding_mode="trunc"), lambda a, b: math.trunc(a / b) if b else 0),
    ):
        expected = [truncate(meaning(a, b), kind) for a, b in pairs]
        np.testing.assert_array_equal(found.numpy(), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_division_as_compiled(dtype: Any) -> None:
    values = np.array(extremes(dtypes.from_name(np.dtype(dtype).name)), dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((Tensor(x) // Tensor(y)).numpy(), x // y)
        np.testing.assert_array_equal((Tensor(x) % Tensor(y)).numpy(), x % y)


# ops that a target lacks


PLAIN = Target("plain")


def test_sums_and_products_take_the_form_that_machines_have() -> None:
    x, y = given(dtypes.int32, 0), given(dtypes.int32, 1)
    assert decompose(x + y * -1, PLAIN) is x.alu(Ops.SUB, y)
    assert decompose(x * -1, PLAIN) is x.alu(Ops.NEG)
    assert decompose(x * 8, PLAIN) is x.alu(Ops.SHL, UOp.const(dtypes.int32, 3))
    assert decompose(x * 6, PLAIN).op is Ops.MUL
    half = given(dtypes.float32) * 8.0
    assert decompose(half, PLAIN) is half


def test_a_maximum_of_comparisons() -> None:
    target = replace(PLAIN, missing=frozenset({Ops.MAX}))
    values = [0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45]
    x, y = given(dtypes.float32, 0), given(dtypes.float32, 1)
    made = decompose(x.maximum(y), target)
    assert Ops.MAX not in ops(made)
    for a in values:
        for b in values:
            found = evaluate(made, {x: a, y: b})
            np.testing.assert_equal(found, float(np.maximum(np.float32(a), np.float32(b))))
    x, y = given(dtypes.uint8, 0), given(dtypes.uint8, 1)
    made = decompose(x.maximum(y), target)
    assert [evaluate(made, {x: a, y: b}) for a, b in ((3, 200), (200, 3), (7, 7))] == [200, 200, 7]


def test_a_reciprocal_and_a_fused_product() -> None:
    x, y, z = (given(dtypes.float32, place) for place in range(3))
    made = decompose(x.alu(Ops.RECIP), replace(PLAIN, missing=frozenset({Ops.RECIP})))
    assert [evaluate(made, {x: a}) for a in (4.0, 3.0)] == [0.25, float(np.float32(1 / 3))]
    assert Ops.RECIP not in ops(made)
    fused = UOp(Ops.MULACC, dtypes.float32, (x, y, z))
    assert decompose(fused, PLAIN) is fused
    assert decompose(fused, replace(PLAIN, has_fma=False)) is x * y + z


def test_masks() -> None:
    """A gate per lane is a load or a store for each lane, where there are no masks."""
    memory = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(64), (), 0)
    index = UOp.const(dtypes.int32, 4)
    lanes = [given(dtypes.int32, 1 + lane) < 5 for lane in range(4)]
    gate = UOp.stack(lanes)
    other = UOp.const(dtypes.float32.vec(4), 0.5)
    load = UOp(Ops.LOAD, dtypes.float32.vec(4), (memory, index, other, gate))
    store = UOp.sink(UOp(Ops.STORE, dtypes.void, (memory, index, load, gate)))
    masked = replace(PLAIN, has_mask=True)
    assert decompose(store, masked) is store
    made = decompose(store, PLAIN)
    for op in (Ops.LOAD, Ops.STORE):
        found = [node for node in made.toposort() if node.op is op and memory in node.src]
        assert sorted(node.src[1].arg for node in found) == [4, 5, 6, 7]
        assert {node.src[3] for node in found} == set(lanes)
        assert all(node.src[2].dtype is dtypes.float32 for node in found)


def test_doubles_cannot_be_stored_in_less() -> None:
    target = replace(PLAIN, missing_dtypes=frozenset({dtypes.float64}))
    x = given(dtypes.float64)
    with pytest.raises(CompileError, match="plain: no values of float64") as caught:
        decompose(x + x, target)
    assert "cast to float32" in str(caught.value)
    narrow = given(dtypes.float32)
    assert decompose(narrow + narrow, target) is narrow + narrow


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_value_without_its_sign_takes_its_bits(dtype: Any) -> None:
    """No comparison is left, and zeros, infinities and subnormal numbers are right."""
    kind = dtypes.from_name(np.dtype(dtype).name)
    x = given(kind)
    sign = (x < 0.0).where(UOp.const(kind, -1.0), (UOp.const(kind, 0.0) < x).where(1.0, x))
    made = decompose(x * sign, Target("any"))
    assert not any(node.op in (Ops.WHERE, Ops.CMPLT, Ops.MUL) for node in made.toposort())
    values = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -1e-7], dtype)
    found = Tensor(values).abs().numpy()
    np.testing.assert_array_equal(found, np.abs(values))
    assert not np.signbit(found[~np.isnan(found)]).any()


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64])
def test_a_vector_is_in_a_range_by_one_comparison(dtype: DType) -> None:
    x = given(dtype.vec(4))
    for both in ((x < 0).ne(True) & (x < 7), (x < 7) & (x < 0).ne(True)):
        made = decompose(both, Target("any"))
        assert made.op is Ops.CMPLT
        assert made.src[0].op is Ops.CAST
        kind = made.src[0].dtype.scalar
        for value in extremes(dtype):
            assert (truncate(value, kind) < made.src[1].arg) is (0 <= value < 7)
    scalar = given(dtype)
    for test in ((scalar < 0).ne(True) & (scalar < 7), (x < 1).ne(True) & (x < 7)):
        assert Ops.AND in ops(decompose(test, Target("any")))


def test_gathered_positions_from_both_ends() -> None:
    numbers = np.random.default_rng(0)
    values = numbers.standard_normal((9, 40), dtype=np.float32)
    positions = numbers.integers(-40, 40, (9, 32))
    found = Tensor(values).gather(1, Tensor(positions)).numpy()
    np.testing.assert_array_equal(found, np.take_along_axis(values, positions, 1))
