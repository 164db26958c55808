"""A chain of functions that a processor has no instructions for is cut into kernels by the length
of their programs: a sine is one node of a graph and a hundred instructions.

Counted, not timed: nodes that making a plan went through, and instructions of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.scale.test_growing_graphs import square
from tests.scale.test_large_graphs import MOST, shallow
from tests.schedule.plans import CPU, plan, plan_nodes
from tilegrad import Tensor, dtypes
from tilegrad.base.dtype import DType
from tilegrad.base.trace import counters
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.schedule.cost import MOST_INSTRUCTIONS, instructions_of

LACKING = (
    Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.FMOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.RECIP,
)  # fmt: skip
PROCESSOR = replace(CPU, missing=frozenset(LACKING), missing_dtypes=frozenset({dtypes.bfloat16}))

Step = Callable[[Tensor], Tensor]
STEPS: dict[str, Step] = {
    "sin": lambda x: (x * 1.0001).sin(),
    "cos": lambda x: (x * 1.0001).cos(),
    "exp": lambda x: (x * -0.5).exp(),
    "log": lambda x: (x.abs() + 1.5).log(),
    "erf": lambda x: x.erf(),
    "gelu": lambda x: x.gelu() + 1,
    "softplus": lambda x: x.softplus(),
    "tanh": lambda x: x.tanh(),
    "pow": lambda x: (x.abs() + 0.1) ** 1.3,
    "atan": lambda x: x.atan(),
    "residual sin": lambda x: x + x.sin() * 0.1,
    "residual gelu": lambda x: x + x.gelu() * 0.1,
    "residual erf": lambda x: x + x.erf() * 0.1,
}
# These are one node for each function; the others are many.
SHORT = ["sin", "exp", "log", "residual sin"]


def gradient(step: Step, steps: int, dtype: DType = dtypes.float32) -> Tensor:
    """That of the input of a chain."""
    x = square().cast(dtype).realize().requires_grad_()
    value: Tensor = x
    for _ in range(steps):
        value = step(value)
    value.sum().backward()
    assert x.grad is not None
    return x.grad


def lengths(value: Tensor) -> list[int]:
    """The instructions of each kernel, about."""
    with shallow(140):
        schedule = plan(value, target=PROCESSOR)
    return [
        sum(instructions_of(node, PROCESSOR) for node in item.ast.toposort())
        for item in schedule.items
        if item.ast is not None
    ]


def visits(step: Step, steps: int) -> int:
    """Nodes that making a plan went through. Each step is computed about twice, and not as often
    as there are kernels.
    """
    value = gradient(step, steps)
    before = counters.visits
    found = lengths(value)
    count = counters.visits - before
    each = [instructions_of(node, PROCESSOR) for node in value.uop.toposort()]
    assert sum(found) < 3 * sum(each)
    return count


def assert_in_proportion(step: Step, few: int, many: int) -> None:
    assert visits(step, many) <= MOST * visits(step, few)


@pytest.mark.parametrize("name", SHORT)
def test_a_gradient_takes_work_in_proportion_to_its_steps(name: str) -> None:
    assert_in_proportion(STEPS[name], 20, 200)


@pytest.mark.nightly
@pytest.mark.parametrize("name", STEPS)
def test_a_gradient_of_many_steps_takes_work_in_proportion(name: str) -> None:
    assert_in_proportion(STEPS[name], 20, 200)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHORT)
def test_a_gradient_of_two_thousand_steps_takes_work_in_proportion(name: str) -> None:
    assert_in_proportion(STEPS[name], 200, 2000)


@pytest.mark.parametrize("name", [*SHORT, "cos", "tanh", "pow", "atan"])
def test_no_kernel_of_a_gradient_is_long(name: str) -> None:
    """One value more than fills a kernel may be in it, and what is stored for another kernel."""
    assert max(lengths(gradient(STEPS[name], 40))) < 2 * MOST_INSTRUCTIONS


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float64])
def test_no_kernel_of_another_dtype_is_long(dtype: DType) -> None:
    found = lengths(gradient(STEPS["sin"], 40, dtype))
    assert max(found) < 2 * MOST_INSTRUCTIONS
    # Each step's sine and cosine, and the sine once more where it is computed again.
    sine = instructions_of(UOp.const(dtype, 0.5).alu(Ops.SIN), PROCESSOR)
    assert sum(found) < 40 * 4 * sine


def test_no_kernel_of_constants_is_long() -> None:
    value = Tensor.arange(64) * 0.01
    for _ in range(100):
        value = STEPS["sin"](value)
    assert max(lengths(value)) < 2 * MOST_INSTRUCTIONS


def test_equal_steps_have_equal_kernels() -> None:
    """They are compiled once: of many steps, no more kernels than of half as many."""
    few, many = [
        {item.ast for item in plan(gradient(STEPS["sin"], steps), target=PROCESSOR).items}
        for steps in (100, 200)
    ]
    assert len(many) <= len(few) + 2


@pytest.mark.parametrize("op", LACKING, ids=lambda op: op.name)
def test_an_op_has_about_as_many_instructions_as_its_definition_says(op: Ops) -> None:
    is_integer = op in (Ops.FLOORDIV, Ops.FLOORMOD)
    start = Tensor(np.arange(1, 65, dtype=np.int32 if is_integer else np.float32)).realize()

    def length(times: int) -> int:
        node = start.uop
        for _ in range(times):
            node = node.alu(op, *[start.uop] * ((op.definition.arity or 0) - 1))
        (item,) = plan_nodes(node, target=PROCESSOR).items
        assert item.ast is not None
        return len(lower(item.ast, PROCESSOR))

    each = (length(5) - length(1)) / 4
    assert each / 1.6 <= op.definition.instructions <= 1.6 * each


@pytest.mark.parametrize("steps", [5, 60])
def test_the_gradient_of_sines_has_the_value_of_numpy(steps: int) -> None:
    """The product of the cosines on the way."""
    value, slope = np.linspace(-1, 1, 64).reshape(8, 8), np.ones((8, 8))
    for _ in range(steps):
        value = value * 1.0001
        slope *= np.cos(value) * 1.0001
        value = np.sin(value)
    np.testing.assert_allclose(gradient(STEPS["sin"], steps).numpy(), slope, rtol=1e-4)
