"""Templates number their nodes by what these are: equal nodes have one number."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.below import stand_in_node


def _of_lengths(one: int, two: int, *, apart: bool = False) -> Template:
    """Two vectors times a constant that is spread to their lengths."""
    sizes = enumerate((one, two))
    inputs = [stand_in_node(at, dtypes.float32, (size,), "CPU") for at, size in sizes]
    results = []
    for at, x in enumerate(inputs):
        factor = 3.0 if apart and at else 2.0
        constant = UOp(Ops.RESHAPE, dtypes.float32, (UOp.const(dtypes.float32, factor),), (1,))
        spread = UOp(Ops.EXPAND, dtypes.float32, (constant,), x.shape)
        results.append(UOp(Ops.MUL, dtypes.float32, (x, spread)))
    found = record(results, inputs)
    assert found is not None
    return found


def _results(template: Template, numbers: dict[Any, int]) -> list[int]:
    numbered = template.numbered(numbers)
    return [numbered[slot] for slot in template.results]


def test_equal_templates_have_equal_numbers() -> None:
    numbers: dict[Any, int] = {}
    assert _results(_of_lengths(5, 7), numbers) == _results(_of_lengths(5, 7), numbers)


def test_a_constant_that_stands_twice_has_one_number() -> None:
    """As in a template of any lengths that is made for two equal ones."""
    once = _of_lengths(5, 5)
    (constant,) = once.constants
    first, second = once.steps
    # Slots: the two inputs, the constant twice, the two products.
    steps: list[Any] = [
        (*first[:3], itemgetter(0, 2), *first[4:]),
        (*second[:3], itemgetter(1, 3), *second[4:]),
    ]
    twice = Template([constant, constant], steps, (4, 5), 2, is_view=False)
    assert not twice.is_equal(once)
    numbers: dict[Any, int] = {}
    assert _results(twice, numbers) == _results(once, numbers)


def test_other_constants_have_other_numbers() -> None:
    numbers: dict[Any, int] = {}
    assert _results(_of_lengths(5, 5), numbers) != _results(_of_lengths(5, 5, apart=True), numbers)
