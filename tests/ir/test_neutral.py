"""Values that are known to be zero or minus infinity, held against their meaning."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tilegrad.base.dtype import dtypes
from tilegrad.ir.neutral import Neutral, is_always
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp

FLOAT = dtypes.float32
ZERO, LEAST = (UOp.const(FLOAT, value) for value in (0.0, -math.inf))
X, Y, HIDDEN = (
    UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(4), (), slot).load(UOp.const(dtypes.index, 0))
    for slot in range(3)
)
CONDITION = X < Y
CASES = {
    "product": X * ZERO,
    "sum of zeros": X * ZERO + ZERO * Y,
    "sum with another": X * ZERO + Y,
    "exponential": (X + LEAST).alu(Ops.EXP2) * Y,
    "exponential of another": X.alu(Ops.EXP2),
    "hidden": HIDDEN + X,
    "hidden, scaled": HIDDEN * 0.5,
    "hidden, negated": HIDDEN * -0.5,
    "largest of hidden": HIDDEN.maximum(LEAST),
    "largest with another": HIDDEN.maximum(X),
    "chosen": CONDITION.where(X * ZERO, ZERO),
    "chosen from one": CONDITION.where(X * ZERO, Y),
}


def value_of(node: UOp, given: dict[UOp, float]) -> float:
    """What a node means for numbers in place of the loads; a zero that a gate put there makes any
    product zero, and minus infinity any sum.
    """
    if node in given:
        return given[node]
    if node.op is Ops.CONST:
        return float(node.arg)
    values = [value_of(source, given) for source in node.src]
    if node.op is Ops.MUL and 0 in values:
        return 0.0
    if node.op is Ops.ADD and -math.inf in values:
        return -math.inf
    operations: dict[Ops, Any] = {
        Ops.MUL: np.multiply, Ops.ADD: np.add, Ops.MAX: np.maximum, Ops.EXP2: np.exp2,
        Ops.CMPLT: np.less, Ops.WHERE: np.where,
    }  # fmt: skip
    return float(operations[node.op](*values))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("nothing", [0.0, -math.inf])
def test_what_is_always_so_is_so_for_all_operands(name: str, nothing: float) -> None:
    node = CASES[name]
    found = Neutral([HIDDEN]).is_always(node, nothing)
    samples = itertools.product([-2.5, 0.0, 1.0, math.inf, -math.inf], repeat=2)
    values = {value_of(node, {X: x, Y: y, HIDDEN: -math.inf}) for x, y in samples}
    assert found == (values == {nothing})


def test_nothing_is_hidden_unless_it_is_said() -> None:
    assert is_always(X * ZERO, 0) and not is_always(HIDDEN + X, -math.inf)


def test_a_deep_sum_needs_no_stack() -> None:
    total = X * ZERO
    for _ in range(5000):
        total = total + Y * ZERO
    assert is_always(total, 0)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("is_negated", [False, True])
def test_a_load_is_neutral_where_a_decided_condition_closes_it(
    flag: bool, is_negated: bool
) -> None:
    i, j = (UOp.range(8, number) for number in range(2))
    condition = i < 5
    gate = (condition ^ True if is_negated else condition) & (j < 3)
    memory = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(8), (), 3)
    value = UOp(Ops.LOAD, FLOAT, (memory, i, ZERO, gate)) * X
    found = Neutral((), condition, flag=flag).is_always(value, 0)
    assert found == (flag is is_negated)
    decided = simplify(value, {condition: UOp.const(dtypes.bool, flag)})
    assert is_always(decided, 0) == found
    assert not Neutral((), j < 4, flag=flag).is_always(value, 0)
