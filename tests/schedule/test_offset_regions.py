"""Kernels of slices that begin elsewhere are those that would have been built for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.plans import plan_nodes
from tilegrad import Tensor
from tilegrad.ir.slices import find_slices, with_variable_slices
from tilegrad.ir.uop import UOp
from tilegrad.schedule import kernel_items, kernel_regions
from tilegrad.schedule.items import Schedule

STEPS = 7


def memory(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


def both_ways(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[], Sequence[Tensor | UOp]]
) -> tuple[Schedule, int, int]:
    """The schedule, how many kernels were built for it, and how many where each is built; the two
    schedules are equal.
    """
    results = function()
    roots = [each if isinstance(each, UOp) else each.uop for each in results]
    built = 0
    build = kernel_items.KernelItems._build

    def counted(*given: object) -> None:
        nonlocal built
        built += 1
        build(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(kernel_items.KernelItems, "_build", counted)
        kernel_items._built.clear()
        found, fewer = plan_nodes(*roots), built
        kernel_items._built.clear()
        built = 0
        patch.setattr(kernel_items, "without_offsets", lambda region: None)
        patch.setattr(kernel_regions, "_own", lambda value, variables: value)
        wanted, all_of_them = plan_nodes(*roots), built
    assert found.items == wanted.items
    assert found.buffers == wanted.buffers and found.outputs == wanted.outputs
    return found, fewer, all_of_them


def test_a_schedule_of_a_graph_that_came_before_builds_no_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor one of other memory, or with more beside it."""
    x, w, y = memory(4, 8), memory(8, 8), memory(4, 8)
    kernel_items._built.clear()
    first = plan_nodes(((x @ w).tanh() + 1).sum(1).uop)
    with monkeypatch.context() as patch:
        patch.delattr(kernel_items.KernelItems, "_build")
        again = plan_nodes(((x @ w).tanh() + 1).sum(1).uop)
        other = plan_nodes(((y @ w).tanh() + 1).sum(1).uop)
    assert again.items == first.items and again.buffers == first.buffers
    assert [item.ast for item in other.items] == [item.ast for item in first.items]
    both = plan_nodes(((y @ w).tanh() + 1).sum(1).uop, y.exp().sum().uop)
    assert {item.ast for item in first.items} < {item.ast for item in both.items}


def recurrent() -> list[Tensor]:
    x, w, u = memory(STEPS, 4, 8), memory(8, 8), memory(8, 8)
    h, found = memory(4, 8), []
    for step in range(STEPS):
        h = (h @ w + x[step] @ u).tanh()
        found.append(h)
    return found


def gradients_of_a_stack() -> list[Tensor]:
    x, w = memory(4, 8), memory(8, 8)
    w.requires_grad_()
    h, found = x, []
    for _ in range(12):
        h = (h @ w).tanh()
        found.append(h)
    (gradient,) = (Tensor.stack(found).contiguous() ** 2).mean().gradient(w)
    return [gradient]


def windows_that_are_padded() -> list[Tensor]:
    x, y = memory(40), memory(12)
    return [x[2 * k + 1 : 2 * k + 9].pad(((2, 2),)) * y for k in range(STEPS)]


def slices_at_variables() -> list[UOp]:
    """As the engine has those of few slices: with variables for their offsets."""
    x, y = memory(STEPS, 4, 8), memory(4, 8)
    steps = [(x[k].exp2() * y + x[k].sum()).uop for k in range(STEPS)]
    nodes = list(UOp.sink(*steps).toposort())
    sink = with_variable_slices(nodes, find_slices(nodes))
    return list(sink.src)


def strided_slices() -> list[Tensor]:
    x = memory(40)
    return [x[k : k + 12].reshape(6, 2)[:, 0].flip(0) + 1 for k in range(STEPS)]


@pytest.mark.parametrize(
    ("function", "most"),
    [
        # The first step, the second, and the last, which nothing follows.
        (recurrent, 3),
        (gradients_of_a_stack, 8),
        # The first window may begin outside.
        (windows_that_are_padded, 2),
        (strided_slices, 2),
        (slices_at_variables, 2),
    ],
)
def test_one_kernel_is_built_for_all_steps(
    function: Callable[[], Sequence[Tensor | UOp]], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, built, all_of_them = both_ways(monkeypatch, function)
    assert built <= most < all_of_them


@pytest.mark.parametrize(
    "function",
    [
        # Two distances of one memory, which slices of slices have too; other accesses to it.
        lambda x: [x[k] + x[k + 1] for k in range(STEPS - 1)],
        lambda x: [x[k : k + 2][1] * x[k : k + 2][0] for k in range(STEPS - 1)],
        lambda x: [x[k] * x.sum(0) for k in range(STEPS)],
        lambda x: [x[k].permute(1, 0) + x[0].permute(1, 0) for k in range(STEPS)],
        # Where the slice begins decides what is there.
        lambda x: [x.pad(((1, 1), (0, 0), (0, 0)))[k] for k in range(STEPS + 2)],
        lambda x: [x.flip(0)[k] for k in range(STEPS)],
        lambda x: [x.permute(1, 2, 0)[..., k] for k in range(STEPS)],
        lambda x: [(x + Tensor.arange(STEPS).reshape(STEPS, 1, 1))[k] for k in range(STEPS)],
        lambda x: [x.reshape(STEPS * 4, 8)[3 * k : 3 * k + 4].sum(1) for k in range(STEPS)],
        lambda x: [x.sum(1)[k] for k in range(STEPS)],
        lambda x: [x.exp2().reshape(4, STEPS * 8)[:, 8 * k : 8 * k + 8] for k in range(STEPS)],
        lambda x: [x.permute(2, 0, 1).reshape(4, STEPS * 8)[1, k : k + 3] for k in range(STEPS)],
        lambda x: [x.cat(x * 2)[k] for k in range(2 * STEPS)],
        # From the last to the first, which reads in front of its memory.
        lambda x: [x[k : k + 2].pad(((2, 1), (0, 0), (0, 0))).sum(1) for k in range(5, -1, -1)],
        lambda x: [x[k:5].pad(((k, 0), (0, 0), (0, 0))) + x[2] for k in range(4)],
    ],
)
def test_schedules_are_equal(
    function: Callable[[Tensor], list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both_ways(monkeypatch, lambda: function(memory(STEPS, 4, 8)))


@settings(max_examples=40)
@given(data=st.data())
def test_random_slices_have_their_values(data: st.DataObject) -> None:
    """Many slices of a few arrays in one run, beside NumPy."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [rng.integers(-8, 8, (6, 8)).astype(np.float32) for _ in range(2)]
    tensors = [Tensor(array).realize() for array in arrays]
    size = data.draw(st.integers(1, 4))
    found: list[Any] = []
    wanted: list[Any] = []
    shape = data.draw(st.sampled_from([(6, 8), (12, 4), (8, 6)]))
    is_doubled = data.draw(st.booleans())
    steps = data.draw(
        st.lists(
            st.tuples(*[st.integers(0, shape[0] - 1)] * 2, st.integers(0, shape[1] - size)),
            min_size=3,
            max_size=6,
        )
    )
    for row, other, column in steps:
        sides: list[Any] = [(tensors, found), (arrays, wanted)]
        for source, results in sides:
            a, b = [each.reshape(shape) for each in source]
            whole = a * b + a if is_doubled else a
            columns = slice(column, column + size)
            results.append(whole[row, columns] - b[other, columns])
    Tensor.realize(*found)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
