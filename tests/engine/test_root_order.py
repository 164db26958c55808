"""The order of the roots of a request: one graph is one signature, whichever root a read asks."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.tensor.helpers import numbers
from tilegrad import Tensor
from tilegrad.engine.realize.realize import memory_of
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.root_order import in_order
from tilegrad.ir.uop import UOp


def _ordered(wanted: list[UOp]) -> tuple[Request, list[UOp]]:
    request = Request(memory_of)
    request.want(wanted)
    return in_order(request, wanted, memory_of)


def _values() -> list[UOp]:
    """Three values of one memory: a deep one, one on its way, and one beside it."""
    x = Tensor(numbers(4, 6)).realize()
    inner = (x * 2 + 1).exp().sum(1)
    return [(inner.sqrt() + x.max(1)).uop, inner.uop, (x[0] > 0.5).uop]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_graph_is_one_signature_whichever_root_is_asked_first(order: tuple[int, ...]) -> None:
    values = _values()
    first, _ = _ordered(values)
    request, wanted = _ordered([values[position] for position in order])
    assert request.signature() == first.signature()
    assert request.nodes == first.nodes
    assert {*wanted} == {*values}
    for node, number in zip(wanted, request.roots, strict=True):
        assert request.nodes[number] is node


def test_a_request_that_writes_keeps_its_order() -> None:
    x = Tensor(numbers(4)).realize()
    flag = x[0] > 0.5
    y = (x.exp() + 1).log()
    request = Request(memory_of)
    request.want([flag.uop, y.uop])
    request.assigns.append(0)
    assert in_order(request, [flag.uop, y.uop], memory_of)[0] is request
