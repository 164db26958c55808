"""State: what a captured function assigns to, and what still needs the old values."""

from __future__ import annotations

import gc
import types
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tests.guarded import guard_pages
from tilegrad import Context, GlobalCounters, Tensor, jit, nn
from tilegrad.base.trace import counters
from tilegrad.engine.realize import known_graphs

# assignment


def test_state_that_is_assigned_advances() -> None:
    state = full(0, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        return state.assign(state + x) * 10

    for n in range(6):
        assert step(full(1, 2)).tolist() == [10 * (n + 1)] * 2
        assert state.tolist() == [n + 1] * 2
    assert step.captures == 1


def test_assignment_that_is_not_returned() -> None:
    state = full(0, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return x + 1

    for n in range(5):
        step(full(1, 2))
        assert state.tolist() == [n + 1] * 2


def test_pending_readers_get_the_old_value() -> None:
    """What was computed between calls keeps what it saw; views see the new value."""
    state = full(0, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        return x * 2

    lazy: list[Tensor] = []
    views: list[Tensor] = []
    for _ in range(6):
        lazy.append(state * 10)
        views.append(state[0:1])
        step(full(1, 2))
    assert [each.tolist() for each in lazy] == [[10 * n] * 2 for n in range(6)]
    assert [each.tolist() for each in views] == [[6]] * 6
    assert state.tolist() == [6, 6]
    assert step.captures == 1


def test_state_is_changed_between_calls() -> None:
    state = full(0, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        return state.assign(state + x) + 0

    for n in range(5):
        step(full(1, 2))
        if n % 2:
            state.assign(full(100 * n, 2)).realize()
        else:
            state.assign(state * 2)
    expected = 0.0
    for n in range(5):
        expected += 1
        expected = 100 * n if n % 2 else expected * 2
    assert state.tolist() == [expected] * 2
    assert step.captures == 1


def test_state_gets_other_memory() -> None:
    holder = types.SimpleNamespace(w=full(1, 2))

    @jit
    def step(x: Tensor) -> Tensor:
        holder.w.assign(holder.w + x).realize()
        return x + 1

    for _ in range(3):
        step(full(1, 2))
    old = holder.w
    holder.w = full(10, 2)
    for _ in range(2):
        step(full(1, 2))
    assert (old.tolist(), holder.w.tolist()) == ([4, 4], [12, 12])
    holder.w.replace(full(50, 2))
    step(full(1, 2))
    assert holder.w.tolist() == [51, 51]
    assert step.captures == 1


def test_an_argument_is_assigned() -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return x.assign(x + 1)

    states = [full(10 * n, 2) for n in range(3)]
    for _ in range(3):
        for state in states:
            result = step(state)
            assert result is state
    assert [each.tolist() for each in states] == [[10 * n + 3] * 2 for n in range(3)]
    assert step.captures == 1


def test_a_lazy_argument_is_assigned() -> None:
    step = jit(lambda x: x.assign(x + 1).realize())
    for n in range(4):
        x = full(n, 2) * 2
        assert step(x).tolist() == [2 * n + 1] * 2
        assert x.tolist() == [2 * n + 1] * 2
    for n in range(4):
        for x in (Tensor([float(n)]), Tensor(float(n)).reshape(1), Tensor.full((1,), float(n))):
            assert step(x).tolist() == [n + 1]
            assert x.tolist() == [n + 1]
    assert Tensor(2.0).realize().item() == 2 and Tensor.full((1,), 2.0).realize().item() == 2


def test_an_argument_that_is_state_too() -> None:
    """Memory that is written under two names has a capture of its own."""
    state = full(1, 2)
    step = jit(lambda x: state.assign(state + x).realize() * 1)
    for _ in range(3):
        step(full(1, 2))
    assert state.tolist() == [4, 4]
    for _ in range(3):
        step(state)
    assert state.tolist() == [32, 32]
    step(full(1, 2))
    assert state.tolist() == [33, 33]


def test_setitem_is_seen_by_views() -> None:
    cache = full(0, 4)
    view = cache.reshape(2, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        cache[1:3] = x
        return cache.sum()

    for n in range(5):
        assert step(full(n, 2)).item() == 2 * n
        assert cache.tolist() == [0, n, n, 0]
        assert view.tolist() == [[0, n], [n, 0]]


def test_setitem_at_a_variable_place() -> None:
    """A cache that is filled token by token, with one capture for all places."""
    from tilegrad import Variable

    cache = Tensor.zeros(8).contiguous().realize()
    place = Variable("place", 0, 7)

    @jit
    def step(x: Tensor, at: Any) -> Tensor:
        cache[at : at + 1].assign(x).realize()
        return cache.sum()

    for n in range(8):
        found = step(full(n + 1, 1), place.bind(n)).item()
        assert found == sum(range(1, n + 2))
    assert cache.tolist() == list(range(1, 9))
    assert step.captures == 1


def test_two_tensors_exchange_values() -> None:
    a, b = full(1, 2), full(2, 2)

    @jit
    def step() -> None:
        old = a.clone().realize()
        a.assign(b).realize()
        b.assign(old).realize()

    for n in range(6):
        step()
        assert (a.tolist()[0], b.tolist()[0]) == ((2, 1) if n % 2 == 0 else (1, 2))
    assert step.captures == 1


# tensors in other places


def test_an_attribute_takes_another_tensor() -> None:
    """`self.h = f(self.h, x)`: each replay sets the attribute, as the function would."""

    class Cell:
        def __init__(self) -> None:
            self.h = full(0, 2)

        @jit
        def step(self, x: Tensor) -> Tensor:
            self.h = self.h * 2 + x
            return self.h + 0

    cell = Cell()
    expected, held = 0.0, []
    for n in range(6):
        expected = expected * 2 + n
        assert cell.step(full(n, 2)).tolist() == [expected] * 2
        held.append((cell.h, expected))
        assert cell.h.tolist() == [expected] * 2
    assert all(tensor.tolist() == [value] * 2 for tensor, value in held)
    assert cell.step.captures == 1
    cell.h = full(100, 2)
    assert cell.step(full(1, 2)).tolist() == [201] * 2


def test_an_attribute_that_is_only_set() -> None:
    holder = types.SimpleNamespace(last=None)

    @jit
    def step(x: Tensor) -> Tensor:
        holder.last = x * 3
        return x + 1

    for n in range(5):
        step(full(n, 2))
        assert holder.last.tolist() == [3 * n] * 2


def test_items_and_variables_take_other_tensors() -> None:
    store = {"h": full(0, 2)}
    pair = (full(0, 2), full(0, 2))

    @jit
    def step(x: Tensor) -> None:
        nonlocal pair
        store["h"] = store["h"] + x
        pair = (pair[1], pair[0] + x)

    expected = (0.0, 0.0)
    for n in range(6):
        step(full(n, 2))
        expected = (expected[1], expected[0] + n)
        assert store["h"].tolist() == [sum(range(n + 1))] * 2
        assert (pair[0].tolist()[0], pair[1].tolist()[0]) == expected
    assert step.captures == 1


def test_attributes_are_exchanged() -> None:
    holder = types.SimpleNamespace(a=full(1, 2), b=full(2, 2))

    @jit
    def step(x: Tensor) -> Tensor:
        holder.a, holder.b = holder.b, holder.a
        return x + holder.a

    assert [step(full(0, 2)).tolist()[0] for _ in range(6)] == [2, 1, 2, 1, 2, 1]


def test_lazy_state_is_computed_once() -> None:
    weight = Tensor.rand(4, 4)
    step = jit(lambda x: x @ weight)
    results = [step(full(1, 2, 4)).tolist() for _ in range(4)]
    assert results[0] == results[1] == results[2] == results[3]
    expected = (full(1, 2, 4) @ weight).tolist()
    assert results[0] == expected
    assert "RAND" not in step.explain() and "draws: 0" in step.explain()
    weight.assign(weight * 0)
    assert step(full(1, 2, 4)).tolist() == [[0] * 4] * 2


def test_what_was_computed_before_is_captured_too() -> None:
    """A value that is known from elsewhere is no constant of the capture."""
    weight = full(3, 2)
    double = weight * 2
    user = double.sum()
    double.realize()
    step = jit(lambda x: (weight * 2) + x)
    for _ in range(3):
        assert step(full(1, 2)).tolist() == [7, 7]
    weight.assign(full(10, 2)).realize()
    assert step(full(1, 2)).tolist() == [21, 21]
    assert user.item() == 12


# random numbers


def test_draws_are_those_of_a_run_without_capture() -> None:
    def draw(x: Tensor) -> list[Tensor]:
        return [Tensor.rand(3) + x, Tensor.randn(2), Tensor.randint(4, high=100)]

    found = []
    for function in (draw, jit(draw)):
        Tensor.manual_seed(7)
        sequence = []
        for n in range(5):
            sequence.append([each.tolist() for each in function(full(0, 3))])
            if n == 3:
                sequence.append(Tensor.rand(2).tolist())
        found.append(sequence)
    assert found[0] == found[1]


def test_another_seed_between_calls() -> None:
    function = jit(lambda: Tensor.rand(3) * 1)
    for _ in range(3):
        function()
    Tensor.manual_seed(5)
    first = function().tolist()
    second = function().tolist()
    Tensor.manual_seed(5)
    assert (Tensor.rand(3) * 1).tolist() == first
    assert (Tensor.rand(3) * 1).tolist() == second


def test_a_draw_made_before_is_fixed() -> None:
    noise = Tensor.rand(3)
    function = jit(lambda x: x + noise + Tensor.rand(3) * 0)
    results = [function(full(0, 3)).tolist() for _ in range(4)]
    assert results[0] == results[1] == results[2] == results[3] == noise.tolist()


def test_unused_draws_count() -> None:
    def draw() -> Tensor:
        Tensor.rand(5)
        return Tensor.rand(3) * 1

    Tensor.manual_seed(1)
    plain = [draw().tolist() for _ in range(4)]
    Tensor.manual_seed(1)
    function = jit(draw)
    assert [function().tolist() for _ in range(4)] == plain


# memory


@pytest.mark.row("M4.16")
def test_a_replay_looks_at_no_graph() -> None:
    """What a call costs in Python is mostly the walk over its graph."""
    weights = [full(0.5, 16, 16) for _ in range(4)]

    def function(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).relu().realize()
        return x

    def visits(run: Any, calls: int) -> int:
        x = full(1, 4, 16)
        for _ in range(calls):
            run(x)
        before = counters.visits
        run(x)
        return counters.visits - before

    # Equal calls, and graphs that came often, walk over no graph either.
    known_graphs._known.clear()
    with Context(SEGMENTS=0):
        assert visits(jit(function), 3) * 10 < visits(function, 0)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("M4.10")
def test_temporaries_are_held_and_given_back() -> None:
    function = jit(lambda x: ((x * 2).contiguous() + 1).sum())
    x = full(1, 32, 32)
    for _ in range(4):
        function(x)
    held = GlobalCounters.mem_used
    function.reset()
    assert 4096 <= held - GlobalCounters.mem_used <= 4400


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("M4.10")
def test_no_memory_waits_for_the_collector() -> None:
    """What the first calls need is free when they end: weights, momenta, and one set of gradients
    stay, and what the capture holds.
    """
    size = 4 * 256 * 256
    layer = nn.Linear(256, 256, bias=False)
    optimizer = nn.optim.SGD([layer.weight], lr=0.1, momentum=0.9)
    x = full(1, 64, 256)

    @jit
    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = (layer(x).relu() + x).square().sum().backward()
            optimizer.step()
            return loss.realize()

    used = []
    gc.collect()
    gc.disable()
    try:
        before = GlobalCounters.mem_used
        for _ in range(5):
            step(x)
            used.append(GlobalCounters.mem_used - before)
    finally:
        gc.enable()
    assert used[0] < 3.1 * size
    assert used[2] == used[3] == used[4] < 3.1 * size + 3 * 4 * 64 * 256
    assert step.captures == 1


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("M4.10")
def test_what_was_there_at_the_capture_can_be_freed() -> None:
    function = jit(lambda x: (x * 2).contiguous())
    other, x = full(1, 512, 512), full(1, 4)
    for _ in range(3):
        function(x)
    before = GlobalCounters.mem_used
    del other
    assert before - GlobalCounters.mem_used == 4 * 512 * 512


def _trained_by_replays(weights: list[Tensor]) -> None:
    """Train two leaves, of ones and of twos, by captured steps; their gradients are equal."""
    optimizer = nn.optim.SGD(weights, lr=0.5, momentum=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = ((weights[0] + weights[1]) * x).sum().backward()
            optimizer.step()
            return loss.realize()

    expected, speed = [1.0, 2.0], 0.0
    for n in range(1, 5):
        step(full(n, 8))
        speed = speed * 0.5 + n
        expected = [value - 0.5 * speed for value in expected]
        assert [weight[3].item() for weight in weights] == expected
    assert step.captures == 1


def test_states_of_equal_value_part_before_the_capture() -> None:
    """Two gradients of one value are one piece of memory, and so are the momenta after one step."""
    weights = [full(1, 8), full(2, 8)]
    for weight in weights:
        weight.requires_grad = True
    _trained_by_replays(weights)


def test_leaves_whose_elements_were_read_often_are_trained() -> None:
    """A view of memory that was there before has no graph of its own: it would be below itself."""
    weights = [Tensor(np.full(8, value, np.float32), requires_grad=True) for value in (1, 2)]
    for _ in range(6):
        assert [weight[3].item() for weight in weights] == [1.0, 2.0]
    _trained_by_replays(weights)


@pytest.mark.skipif(guard_pages.is_installed(), reason="plans share nothing beside guard pages")
def test_plans_share_one_block() -> None:
    @jit
    def function(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (
                ((x * 2).contiguous().sum(1, keepdim=True).expand(32, 32) + x)
                .contiguous()
                .realize()
            )
        return x.sum()

    for _ in range(3):
        function(full(1, 32, 32))
    held = int(function.explain().split("memory: ")[1].split()[0])
    assert held <= 3 * 4096 + 4096 + 1024
