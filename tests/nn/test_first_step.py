"""The first step of a training program is the graph of all steps: what it begins with is memory
before, so nothing is compiled for the second step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, nn
from tilegrad.base.trace import counters

_X, _Y = numbers(8, 6), np.arange(8, dtype=np.int32) % 4


def _work() -> tuple[int, int]:
    return counters.compiles, counters.schedules


def _model() -> tuple[list[nn.Linear], Callable[[], Tensor]]:
    layers = [nn.Linear(6, 10), nn.Linear(10, 4)]

    def loss() -> Tensor:
        hidden = layers[0](Tensor(_X)).relu()
        return layers[1](hidden).cross_entropy(Tensor(_Y))

    return layers, loss


@pytest.mark.parametrize(
    "make",
    [
        lambda params: nn.optim.SGD(params, lr=0.1),
        lambda params: nn.optim.SGD(params, lr=0.1, momentum=0.9),
        lambda params: nn.optim.Adam(params, lr=0.01),
        lambda params: nn.optim.AdamW(params, lr=0.01),
    ],
    ids=["sgd", "momentum", "adam", "adamw"],
)
@pytest.mark.parametrize("is_logged", [False, True])
def test_the_second_step_of_an_optimizer_compiles_nothing(
    make: Callable[[list[Tensor]], nn.optim.Optimizer], *, is_logged: bool
) -> None:
    layers, loss_of = _model()
    optimizer = make(nn.state.get_parameters(layers))
    losses = []
    done = _work()
    with Tensor.train():
        for step in range(4):
            if step == 1:
                done = _work()
            loss = loss_of()
            if is_logged:
                losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert _work() == done
    assert losses == sorted(losses, reverse=True)


def test_the_second_step_of_updates_by_hand_compiles_nothing() -> None:
    first, second = numbers(6, 10, seed=1), numbers(10, 4, seed=2)
    a, b = first.astype(np.float64), second.astype(np.float64)
    w1, w2 = (Tensor(each.copy(), requires_grad=True) for each in (first, second))
    done = _work()
    for step in range(4):
        if step == 1:
            done = _work()
        loss = (((Tensor(_X) @ w1).relu() @ w2) ** 2).mean()
        hidden = np.maximum(_X @ a, 0)
        out = hidden @ b
        assert loss.item() == pytest.approx((out**2).mean(), rel=1e-3)
        loss.backward()
        for each in (w1, w2):
            assert each.grad is not None
            each.assign(each - 0.01 * each.grad)
            each.grad = None
        Tensor.realize(w1, w2)
        flow = out * 2 / out.size
        b, a = b - 0.01 * hidden.T @ flow, a - 0.01 * _X.T @ ((flow @ b.T) * (hidden > 0))
    assert _work() == done
    close(w1, a, 1e-3)
    close(w2, b, 1e-3)


def test_state_that_begins_equal_is_memory_of_its_own() -> None:
    w = Tensor.ones(3)
    optimizer = nn.optim.Adam([w], lr=0.1)
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            (w * Tensor([1.0, 2.0, 3.0])).sum().backward()
            optimizer.step()
    state = optimizer.state_dict()["state"][0]
    close(state["exp_avg"], np.array([1.0, 2.0, 3.0]) * (1 - 0.9**2), 1e-4)
    close(state["exp_avg_sq"], np.array([1.0, 4.0, 9.0]) * (1 - 0.999**2), 1e-3)
