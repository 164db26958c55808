"""What is decided of a run once, and looked up when an equal graph comes over other memory: such
graphs share it, all others do not, and it holds nobody's memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.trace import counters
from tilegrad.engine.plans import plans
from tilegrad.engine.realize import bindings
from tilegrad.engine.realize.realize import _known
from tilegrad.engine.realize.request import Request


def full(value: float, *shape: int) -> Tensor:
    return Tensor(np.full(shape, value, np.float32)).realize()


def signature(*tensors: Tensor) -> tuple[Any, ...]:
    request = Request(_known.get)
    request.want([tensor.uop for tensor in tensors])
    return request.signature()


def twice(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return (a * b + 1) * (c * d + 1)


def test_graphs_share_a_form_if_they_differ_in_memory_only() -> None:
    a, b, c = (full(value, 3) for value in (1, 2, 3))
    assert signature(a + b) == signature(b + c) != signature(a + a) == signature(c + c)
    # The same leaves, first met in the same order.
    assert signature(twice(a, b, a, b)) != signature(twice(a, b, b, a))
    assert signature(a + b, a * b) != signature(a + b) != signature(a * b)
    assert signature(a + 1) != signature(a + 2) and signature(a * 0.0) != signature(a * -0.0)
    assert signature(a * math.nan) == signature(b * math.nan)
    assert signature(a + full(1, 1, 3)[0]) != signature(a + full(1, 2, 3)[0])


def test_what_was_computed_counts_as_memory() -> None:
    a, b = full(1, 3), full(2, 3)
    lazy = a * 2
    above = lazy + b
    before = signature(above)
    lazy.realize()
    assert signature(above) == signature(a + b) != before


@pytest.mark.parametrize(
    ("graph", "value"),
    [
        (lambda x: (x * 0.0).signbit(), lambda x: np.signbit(x * 0.0)),
        (lambda x: (x * -0.0).signbit(), lambda x: np.signbit(x * -0.0)),
        (lambda x: (x + 3).cast("bool"), lambda x: (x + 3) != 0),
        (lambda x: x.reshape(2, 3).T.contiguous(), lambda x: x.reshape(2, 3).T),
        (lambda x: x.flip(0) - x, lambda x: x[::-1] - x),
        (lambda x: x[1:4].sum() * x[2:5].sum(), lambda x: x[1:4].sum() * x[2:5].sum()),
    ],
)
def test_a_form_gives_each_its_own_values(
    graph: Callable[[Tensor], Tensor], value: Callable[[Any], Any]
) -> None:
    for start in (1.0, -3.0, 8.0):
        values = np.arange(start, start + 6, dtype=np.float32)
        assert graph(Tensor(values).realize()).tolist() == value(values).tolist()


def test_equal_graphs_of_other_functions_call_their_own() -> None:
    def named(factor: float) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            return x * factor

        return function

    x = full(1, 3)
    assert [x.apply(named(factor))[0].item() for factor in (2.0, 3.0, 5.0)] == [2.0, 3.0, 5.0]
    pair = x.apply(named(2.0)) - x.apply(named(7.0))
    assert pair.tolist() == [-5.0] * 3


def test_draws_differ_and_windows_move() -> None:
    draws = [Tensor.rand(4).tolist() for _ in range(4)]
    assert len({tuple(draw) for draw in draws}) == 4
    x = Tensor(np.arange(40, dtype=np.float32).reshape(8, 5)).realize()
    for row in (0, 3, 7, 3):
        # Two windows of one memory at the same place, then at two.
        assert (x[row] * x[row, 2]).sum().item() == sum(5 * row + k for k in range(5)) * (
            5 * row + 2
        )
        assert (x[row] - x[7 - row]).tolist() == [5.0 * (2 * row - 7)] * 5


def test_a_reader_of_the_old_value_is_seen_each_time() -> None:
    """Whether one waits is no part of what was asked for."""
    for waits in (False, True, False, True):
        x = full(1, 4)
        old = x * 10 if waits else None
        x += 1
        assert x.tolist() == [2.0] * 4
        assert old is None or old.tolist() == [10.0] * 4


def training() -> tuple[Callable[[], Tensor], int]:
    """A step of a small network, and the nodes that it makes about."""
    layers = [nn.Linear(6, 8), nn.Linear(8, 3)]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=0.01)
    x, y = full(0.5, 4, 6), Tensor([0, 1, 2, 0]).realize()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = layers[1](layers[0](x).relu()).cross_entropy(y).backward()
        optimizer.step()
        return loss

    return step, 240


def test_a_training_step_walks_its_graph_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loop without `jit` costs in Python; no plan is looked for after the first steps."""
    # With TEMPLATES=2 the nodes of templates are compared, which walks more.
    with Tensor.train(), Context(TEMPLATES=1):
        step, nodes = training()
        for _ in range(3):
            step()
        # What earlier tests left to the collector is nobody's tensor.
        gc.collect()
        step()
        monkeypatch.setattr(bindings, "plan_for", None)
        monkeypatch.setattr(plans, "normalise", None)
        kept, before = len(bindings._bindings), counters.visits
        step()
        # The request, the loss that waits and is put into the index of users, and what stands on
        # the parameters; whatever other tensors live.
        assert counters.visits - before < 4 * nodes
        assert len(bindings._bindings) == kept


@pytest.mark.usefixtures("nothing_known")
def test_a_form_holds_no_memory() -> None:
    def run() -> None:
        x = full(1, 1024)
        y = ((x + 1).contiguous() * x).sum()
        y.realize()
        z = x.apply(lambda values: values + x.numpy()) * 2
        z.realize()

    gc.collect()
    before = GlobalCounters.mem_used
    run()
    gc.collect()
    assert GlobalCounters.mem_used <= before
