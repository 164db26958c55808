"""A state that a training loop carries from step to step past its gradient: a step holds nothing of
the one before, whichever way the state is cut off, and whether or not calls wait.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context
from tilegrad.ir.uop import toposort
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.waiting import Call, Value, this_thread

_SETTLED, _STEPS = 60, 200
Carry = Callable[[Any], Any]


def _without_grad(change: Carry) -> Carry:
    def carry(new: Any) -> Any:
        with torch.no_grad():
            return change(new)

    return carry


def _data_of_another(new: Any) -> Any:
    other = torch.zeros(3, 6)
    other.data = new.data
    return other


_CARRIES: dict[str, Carry] = {
    "detach": lambda new: new.detach(),
    "detach_": lambda new: new.detach_(),
    "data": lambda new: new.data,
    "assigned data": _data_of_another,
    "clone": lambda new: new.clone().detach(),
    "copy": lambda new: new.detach().clone(),
    "twice": lambda new: new.detach().detach(),
    "no_grad": _without_grad(lambda new: new * 1.0),
    "view without gradients": _without_grad(lambda new: new.view(3, 6)),
    "reshape": lambda new: new.reshape(18).detach().reshape(3, 6),
    "permute": lambda new: new.t().detach().t(),
    "slice": lambda new: new[:, :].detach(),
    "flip": lambda new: new.detach().flip(0),
    "expand": lambda new: new[:1].expand(3, 6).detach(),
    "stack": lambda new: torch.stack([new, new]).detach()[1],
    "cheap": lambda new: new.detach() * 0.5,
    "kept rows": lambda new: torch.stack([new[row].detach() for row in range(3)]),
}


def _objects() -> int:
    gc.collect()
    return sum(type(each) in (Call, Value, Buffer) for each in gc.get_objects())


def _steps(carry: Carry, *, is_read_first: bool) -> tuple[list[int], float, float]:
    """How many objects live after each half of the steps, and the last loss, ours and NumPy's."""
    random = np.random.default_rng(3)
    mine = random.normal(size=(6, 6)).astype(np.float32) / 4
    weight = torch.tensor(mine, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    hidden: Any = torch.zeros(3, 6)
    counts: list[int] = []
    for step in range(_SETTLED + _STEPS):
        x = torch.tensor(random.normal(size=(3, 6)).astype(np.float32))
        old_weight, old_hidden = weight.detach().numpy().copy(), None
        if step == _SETTLED + _STEPS - 1:
            old_hidden = hidden.numpy().astype(np.float64)
        new = torch.tanh(hidden @ weight + x)
        loss = (new * new).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item() if is_read_first else 0.0
        hidden = carry(new)
        value = value if is_read_first else loss.item()
        if step in (_SETTLED, _SETTLED + _STEPS - 1):
            counts.append(_objects())
    assert old_hidden is not None
    expected = (np.tanh(old_hidden @ old_weight + x.numpy()) ** 2).mean()
    return counts, value, float(expected)


@pytest.mark.parametrize("is_read_first", [False, True], ids=["carried first", "read first"])
@pytest.mark.parametrize("name", _CARRIES)
def test_a_step_holds_nothing_of_the_one_before(name: str, is_read_first: bool) -> None:
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        counts, value, expected = _steps(_CARRIES[name], is_read_first=is_read_first)
    # Some leave a few objects each eight or sixty-four runs, until these are looked through.
    assert counts[1] - counts[0] < _STEPS / 4
    assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["detach", "data", "view without gradients", "cheap"])
def test_a_graph_of_nodes_ends_at_the_state_of_a_step_before(name: str) -> None:
    """The values that a step overwrites weights of are computed before: their graphs go."""
    states: list[Any] = [None]
    lengths: list[int] = []

    def carry(new: Any) -> Any:
        states[0] = _CARRIES[name](new)
        lengths.append(len(toposort([states[0].uop])))
        return states[0]

    with Context(TEMPLATES=1, SEGMENTS=0):
        _, value, expected = _steps(carry, is_read_first=False)
    assert max(lengths[_SETTLED:]) <= max(lengths[:_SETTLED])
    assert value == pytest.approx(expected, rel=1e-4)


def test_a_graph_of_nodes_ends_at_an_average_of_weights() -> None:
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    average = weight.detach().clone()
    mine, expected = np.array([0.5, 2.0]), np.array([0.5, 2.0])
    lengths = []
    with Context(TEMPLATES=1, SEGMENTS=0):
        for _ in range(_SETTLED):
            loss = (weight * weight).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                average = average * 0.9 + weight * 0.1
            loss.item()
            lengths.append(len(toposort([average.uop])))
            mine = mine - 0.1 * 2 * mine
            expected = expected * 0.9 + mine * 0.1
    assert max(lengths[_SETTLED // 2 :]) <= max(lengths[: _SETTLED // 2])
    assert average.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "LSTMCell", "GRUCell"])
def test_states_of_layers_hold_nothing(layer: str) -> None:
    network = getattr(torch.nn, layer)(4, 5)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    random, is_layer = np.random.default_rng(3), layer in ("LSTM", "GRU")
    state: Any = None
    counts = []
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        for step in range(_SETTLED + _STEPS):
            drawn = random.normal(size=(3, 2, 4) if is_layer else (2, 4)).astype(np.float32)
            found = network(torch.tensor(drawn), state)
            state = found[1] if is_layer else found
            states = state if isinstance(state, tuple) else (state,)
            loss = sum([(each * each).sum() for each in states])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            detached = tuple([each.detach() for each in states])
            state = detached if isinstance(state, tuple) else detached[0]
            loss.item()
            if step in (_SETTLED, _SETTLED + _STEPS - 1):
                counts.append(_objects())
    assert counts[1] - counts[0] < _STEPS / 4


def _carried() -> tuple[Any, Any, Any]:
    """A weight, a value computed from it, and that detached; both after a read."""
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    new = weight * weight + 1.0
    hidden = new.detach()
    new.sum().item()
    hidden.sum().item()
    return weight, new, hidden


@pytest.mark.parametrize("times", [1, 3, 12])
def test_the_gradient_goes_on_through_what_was_not_detached(times: int) -> None:
    """The view has the memory alone, and the value its graph."""
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(times):
            weight, new, hidden = _carried()
            (new * hidden + hidden * hidden).sum().backward()
            assert weight.grad.tolist() == [1.25, 20.0]


@pytest.mark.parametrize("times", [1, 3, 12])
def test_what_is_written_to_a_detached_state_is_written_to_the_value(times: int) -> None:
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(times):
            _, new, hidden = _carried()
            hidden.mul_(2)
            assert new.tolist() == hidden.tolist() == [2.5, 10.0]
            _, new, hidden = _carried()
            hidden[0] = 7
            assert new.tolist() == hidden.tolist() == [7.0, 5.0]
            _, new, hidden = _carried()
            new.data.add_(1)
            assert new.tolist() == hidden.tolist() == [2.25, 6.0]


def test_a_tensor_that_is_detached_in_place_takes_no_gradient_of_what_it_was() -> None:
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(12):
            weight = torch.tensor([0.5, 2.0], requires_grad=True)
            new = weight * 3.0
            loss = (new * new).sum()
            new.detach_()
            new.requires_grad_()
            (loss + (new * 5.0).sum()).backward()
            assert new.grad.tolist() == [5.0, 5.0]
            assert weight.grad.tolist() == [9.0, 36.0]
