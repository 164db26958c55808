"""The first step of a training program is the graph of all steps: what it begins with is memory
before, so nothing is compiled for the second step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.errors import ShapeError
from tilegrad.base.trace import counters


@pytest.fixture(autouse=True)
def sizes_as_they_are() -> Iterator[None]:
    """Other tests may have had such graphs of other sizes: a plan for all of them would serve some
    steps, until the size has come so often that it has a plan of its own.
    """
    with Context(SIZES=0):
        yield


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
    done, settled = _work(), _work()
    with Tensor.train():
        for step in range(12):
            if step == 1:
                done = _work()
            if step == 4:
                settled = _work()
            loss = loss_of()
            if is_logged:
                losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    # Once calls wait, gradients of a loss that was read before go on below it: another plan.
    assert settled == done or (is_logged and settled[1] - done[1] == 1)
    assert _work() == settled
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("items", [64, 4096])
def test_the_second_step_over_one_large_array_with_running_statistics_compiles_nothing(
    items: int,
) -> None:
    """Data of any size is memory from the start, as are statistics that begin as constants."""
    x, labels = numbers(items, 6, 4), np.arange(items, dtype=np.int64) % 4
    norm, layer = nn.BatchNorm(6), nn.Linear(24, 4)
    optimizer = nn.optim.Adam(nn.state.get_parameters([norm, layer]), lr=0.01)
    data, wanted = Tensor(x), Tensor(labels)
    work = []
    mean, variance = np.zeros(6), np.ones(6)
    with Tensor.train():
        for _ in range(4):
            loss = layer(norm(data).relu().flatten(1)).cross_entropy(wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            work.append(_work())
            mean = 0.9 * mean + 0.1 * x.mean((0, 2), dtype=np.float64)
            variance = 0.9 * variance + 0.1 * x.var((0, 2), ddof=1, dtype=np.float64)
    assert work == work[:1] * 4
    assert norm.running_mean is not None and norm.running_var is not None
    assert norm.num_batches_tracked is not None
    close(norm.running_mean, mean, 1e-4)
    close(norm.running_var, variance, 1e-4)
    assert norm.num_batches_tracked.item() == 4


def test_the_second_step_of_updates_by_hand_compiles_nothing() -> None:
    first, second = numbers(6, 10, seed=1), numbers(10, 4, seed=2)
    a, b = first.astype(np.float64), second.astype(np.float64)
    w1, w2 = (Tensor(each.copy(), requires_grad=True) for each in (first, second))
    done, settled = _work(), _work()
    for step in range(12):
        if step == 1:
            done = _work()
        if step == 4:
            settled = _work()
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
    assert settled[1] - done[1] <= 1 and _work() == settled
    close(w1, a, 1e-3)
    close(w2, b, 1e-3)


@pytest.mark.parametrize("is_detached", [False, True])
def test_a_loss_that_is_read_after_the_update_has_one_plan(*, is_detached: bool) -> None:
    """The update runs with the loss from the first step on, in memory of its own, where calls
    wait for that read.
    """
    with Context(TEMPLATES=1, SEGMENTS=1):
        _read_after_the_update(is_detached)


def _read_after_the_update(is_detached: bool) -> None:
    start = numbers(6, 4, seed=3)
    expected, weight = start.astype(np.float64), Tensor(start.copy(), requires_grad=True)
    count, steps, done = Tensor([0.0]), 0.0, _work()
    for step in range(12):
        if step == 1:
            done = _work()
        out = _X @ expected
        loss = ((Tensor(_X) @ weight) ** 2).mean()
        loss.backward()
        assert weight.grad is not None
        new = weight - 0.01 * weight.grad
        weight.assign(new.detach() if is_detached else new)
        weight.grad = None
        count += 1
        steps += 1
        del new
        assert loss.item() == pytest.approx((out**2).mean(), rel=1e-3)
        expected = expected - 0.01 * _X.T @ out * 2 / out.size
    assert _work() == done
    close(weight, expected, 1e-3)
    assert count.tolist() == [steps]


@pytest.mark.parametrize("kind", [OverflowError, KeyError, ShapeError])
def test_the_error_of_an_assigned_value_is_its_own_readers(kind: type[Exception]) -> None:
    def refuse(values: np.ndarray) -> np.ndarray:
        raise kind("not this one")

    x, other = Tensor([1.0, 2.0]).realize(), Tensor([5.0]).realize()
    x.assign(x.apply(refuse) * 2)
    for _ in range(3):
        assert (other + 1).tolist() == [6.0]
    with pytest.raises(kind, match="not this one"):
        x.tolist()
    assert (other * 2).item() == 10.0


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_state_that_begins_with_zeros_takes_no_kernel(dtype: str) -> None:
    """A network has many sizes, and a kernel for each would be compiled. Each state is its own."""
    sizes = [(3,), (7, 5), (300, 300), ()]
    params = [Tensor(np.ones(size, np.float32)).cast(dtype).realize() for size in sizes]
    optimizer = nn.optim.Adam(params, lr=0.5)
    for param in params:
        param.grad = Tensor(np.full(param.shape, 2.0, np.float32)).cast(dtype).realize()
    before = GlobalCounters.kernel_count
    optimizer._settle()
    assert GlobalCounters.kernel_count == before
    states = [state for name in ("m", "v") for state in getattr(optimizer, name)]
    assert all(not state.numpy().any() and state.shape in sizes for state in states)
    optimizer.step()
    for param, m, v in zip(params, optimizer.m, optimizer.v, strict=True):
        close(param.cast("float32"), np.full(param.shape, 0.5), 1e-2, 1e-2)
        close(m.cast("float32"), np.full(param.shape, 0.2), 1e-2, 1e-2)
        close(v.cast("float32"), np.full(param.shape, 0.004), 1e-2, 1e-2)
