"""Random programs come to the same, however they are planned and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.conformance.drawn import programs
from tests.conformance.programs import Program, Step, Value, theirs
from tests.conformance.values import quantize, tensor
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.interpret import interpret
from tilegrad.ir.op import Ops

# A part of what the profile asks for: a program is compiled twice.
EXAMPLES = max(1, settings().max_examples // 3)


def leaves_of(program: Program) -> list[Tensor]:
    return [
        tensor(np.asarray(quantize(leaf.array, leaf.dtype)), leaf.dtype) for leaf in program.leaves
    ]


def agree(found: Any, expected: Value, how: str) -> None:
    """Equal where all was exact, else within the bound of the error."""
    array = np.asarray(found)
    assert array.shape == expected.shape, f"{how}: shape {array.shape}, expected {expected.shape}"
    if not expected.dtype.is_float:
        np.testing.assert_array_equal(array, expected.array, err_msg=how)
        return
    distance = np.abs(array.astype(np.float64) - expected.array)
    wrong = np.argwhere(~(distance <= expected.error))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        allowed = np.broadcast_to(expected.error, expected.shape)[at]
        raise AssertionError(
            f"{how}: {len(wrong)} of {array.size} differ; at {at} {array[at]!r}, expected "
            f"{expected.array[at]!r} within {allowed!r}"
        )


def interpreted(program: Program) -> list[Any]:
    """The graphs of the results, node by node in plain Python."""
    leaves = leaves_of(program)
    buffers: dict[int, list[Any]] = {}
    for leaf, value in zip(leaves, program.leaves, strict=True):
        for node in leaf.uop.toposort():
            if node.op is Ops.BUFFER:
                buffers[node.arg.slot] = quantize(value.array, value.dtype).ravel().tolist()
    found = []
    for result in program.build(leaves):
        values = np.array(interpret(result.uop, buffers))
        # A constant has one value for all elements.
        full = np.broadcast_to(values, (int(np.prod(result.shape)),))
        found.append(full.reshape(result.shape))
    return found


def computed(program: Program) -> list[Any]:
    """The results, made together."""
    results = program.build(leaves_of(program))
    results[0].realize(*results[1:])
    assert [result.dtype for result in results] == [value.dtype for value in program.results]
    return [result.numpy() for result in results]


@pytest.mark.row("P.10")
@given(programs())
@settings(max_examples=EXAMPLES)
def test_programs(program: Program) -> None:
    ways = {"by default": computed(program), "interpreted": interpreted(program)}
    with Context(NOOPT=1):
        ways["planned plainly"] = computed(program)
    for how, arrays in ways.items():
        for array, expected in zip(arrays, program.results, strict=True):
            agree(array, expected, how)


def test_the_bound_is_tight_enough_to_fail() -> None:
    """An error of a few units is seen, and a wrong integer is."""
    one = Value(np.array([1.0, 2.0]), dtypes.float32)
    third = theirs(Step("fraction", (0,)), [one])
    agree(np.array([0.5, 1 / 3], np.float32), third, "right")
    with pytest.raises(AssertionError, match="wrong: 1 of 2 differ"):
        agree(np.array([0.5, 1 / 3 + 1e-6]), third, "wrong")
    exact = theirs(Step("add", (0, 0)), [one, one])
    assert exact.is_exact
    with pytest.raises(AssertionError, match="wrong"):
        agree(np.array([2.0, 4.0 + 1e-15]), exact, "wrong")
