"""A new kind of graph that resembles one whose sizes are explained: what its sizes would be at
another length, and that it has one plan for all lengths at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.resembling import EarlierKind, sizes_elsewhere
from tilegrad.engine.realize.skeleton import split, twins_of
from tilegrad.engine.realize.unknowns import explain
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

_W, _TABLE = numbers(6, 6, seed=70), numbers(50, 6, seed=71)


def attended(x: Tensor) -> Tensor:
    """Rows of six numbers, mixed by attention."""
    weights = Tensor(_W).contiguous()
    scores = ((x @ weights) @ x.T * 0.3).softmax(-1)
    y = scores @ (x + 1.5).relu()
    return (y * y.sigmoid() + x).sum(1) / (y.abs().sum(1) + 1.0)


def attended_by_numpy(x: np.ndarray) -> np.ndarray:
    scores = x @ _W @ x.T * 0.3
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ np.maximum(x + 1.5, 0)
    mixed: np.ndarray = (y / (1 + np.exp(-y)) + x).sum(1) / (np.abs(y).sum(1) + 1.0)
    return mixed


def memory(*shape: int, seed: int = 72) -> Tensor:
    return Tensor(numbers(*shape, seed=seed)).realize()


LEAVES: dict[str, Callable[[int], Tensor]] = {
    "transposed": lambda n: memory(6, n).T,
    "in three axes": lambda n: memory(n, 3, 2).reshape(n, 6),
    "one more": lambda n: memory(n - 1, 6).cat(memory(1, 6, seed=73), dim=0),
    "a slice of a table": lambda n: Tensor(_TABLE).realize()[:n] * memory(n, 6),
    "rows of a table": lambda n: Tensor(_TABLE).realize()[memory(n).abs().cast("int32")],
    "spread": lambda n: memory(n, 1).expand(n, 6),
    "a sum": lambda n: memory(n, 6) + memory(6).reshape(1, 6).expand(n, 6),
}  # fmt: skip


def request_of(x: Tensor) -> Request:
    request = Request(lambda node: None)
    request.want([attended(x).uop])
    return request


def parts_of(request: Request) -> tuple[tuple[object, ...], tuple[int, ...]]:
    found = split(request)
    assert found is not None
    return found


@pytest.fixture
def known() -> EarlierKind:
    """Rows that are memory, at lengths 9 and 11."""
    first, second = (request_of(memory(length, 6)) for length in (9, 11))
    (signature, before), (_, sizes) = parts_of(first), parts_of(second)
    explained = explain(second, [before, sizes], 1024)
    assert explained is not None
    return EarlierKind.of(("a family",), signature, second, explained)


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES.keys())
def test_sizes_are_those_of_the_graph_at_that_length(
    leaf: Callable[[int], Tensor], known: EarlierKind
) -> None:
    request = request_of(leaf(14))
    signature, sizes = parts_of(request)
    assert signature != known.signature
    found = sizes_elsewhere(request, signature, known)
    lengths = range(5, 40)
    elsewhere = [parts_of(request_of(leaf(length))) for length in lengths]
    assert all(other == signature for other, _ in elsewhere)
    assert found != sizes
    assert found in [sizes for _, sizes in elsewhere]


def test_what_grew_may_be_unknown(known: EarlierKind) -> None:
    """The rows, or the two more behind them."""
    request = request_of(memory(11, 6).pad(((1, 2), (0, 0))))
    assert sizes_elsewhere(request, parts_of(request)[0], known) is None


def test_what_is_too_different_has_none(known: EarlierKind) -> None:
    request = Request(lambda node: None)
    request.want([(memory(14, 6) @ Tensor(_W).contiguous()).relu().uop])
    assert sizes_elsewhere(request, parts_of(request)[0], known) is None


def written_twice(length: int, row: int, again: int) -> Request:
    """A request for two writes to a table: of a row of something, and of row `again` of the same
    over a value that was computed to its memory.
    """
    table, x = memory(64, 6)[:1].uop, memory(length, 6)
    computed = Tensor(numbers(length, 6, seed=75)) * 2
    values = [(below + 1.5)[at : at + 1].uop for below, at in ((x, row), (computed, again))]
    computed.uop.stored = x.uop
    request = Request({computed.uop: x.uop}.get)
    request.want([UOp(Ops.ASSIGN, value.dtype, (table, value)) for value in values])
    return request


def test_what_is_one_write_is_one_at_all_lengths() -> None:
    """Two writes to one version of memory have no order: no plan is made where they would part."""
    here = written_twice(9, 8, 8)
    others = written_twice(12, 11, 11), written_twice(12, 11, 8)
    sizes, equal, parted = (parts_of(each)[1] for each in (here, *others))
    first, second = here.assigns
    assert twins_of(here)[second] == first
    assert explain(here, [equal, sizes], 1024) is not None
    assert explain(here, [parted, sizes], 1024) is None


def test_a_number_that_changes_with_a_size_is_an_input() -> None:
    """It may be no size: only the length explains the others."""
    requests = []
    for length, number in ((9, 30), (14, 35)):
        rows = Tensor(np.arange(length, dtype=np.int32)).realize()
        request = Request(lambda node: None)
        request.want([(rows + number).uop])
        requests.append(request)
    (_, before), (_, sizes) = map(parts_of, requests)
    explained = explain(requests[1], [before, sizes], 1024)
    assert explained is not None
    assert explained.sizes[sizes.index(35)] is None
    assert explained.values(sizes) == [14]


@pytest.mark.row("M4.1")
def test_a_new_kind_has_one_plan_for_all_lengths(nothing_known: None) -> None:
    """The second kind of graph comes at four lengths, with one plan."""
    with Context(DISABLE_COMPILER_CACHE=1, TEMPLATES=0, SEGMENTS=0, SIZES=1):
        for length in (9, 11, 14):
            x = numbers(length, 6, seed=length)
            close(attended(Tensor(x)), attended_by_numpy(x), rtol=1e-4)
        arrays = [
            (numbers(length - 1, 6, seed=length), numbers(1, 6, seed=length + 1))
            for length in (15, 16, 23, 40)
        ]
        there = [(Tensor(x).realize(), Tensor(y).realize()) for x, y in arrays]
        before = counters.schedules
        for (x, y), (many, one) in zip(arrays, there, strict=True):
            wanted = attended_by_numpy(np.concatenate([x, y]))
            close(attended(many.cat(one, dim=0)), wanted, rtol=1e-4)
        assert counters.schedules - before == 1


@pytest.mark.parametrize("segments", [0, 1])
def test_a_wrong_guess_costs_no_value(segments: int, nothing_known: None) -> None:
    """Of the second kind of graph a size that was the length by chance stays."""
    with Context(DISABLE_COMPILER_CACHE=1, TEMPLATES=1, SEGMENTS=segments, SIZES=1):
        for length in (9, 11, 14):
            x = numbers(length, 6, seed=length)
            close(attended(Tensor(x)), attended_by_numpy(x), rtol=1e-4)
        for length in (15, 15, 7, 30, 12):
            x, y = numbers(length, 6, seed=length), numbers(15, 1, seed=length + 1)
            shift = (Tensor(y).realize() * 2).sum()
            result = attended(Tensor(x).realize() + shift)
            close(result, attended_by_numpy(x + 2 * y.sum()), rtol=1e-3)
