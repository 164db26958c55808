"""Optimizers against their equations in NumPy, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.errors import ConfigError, DTypeError
from tilegrad.base.trace import counters

Array = npt.NDArray[Any]
STEPS = 10
START = np.random.default_rng(0).normal(size=(4, 3))
GRADIENTS = np.random.default_rng(1).normal(size=(STEPS, 4, 3))


def run(make: Callable[[list[Tensor]], nn.optim.Optimizer], dtype: str = "float64") -> Array:
    """The parameter after ten steps along `GRADIENTS`."""
    p = Tensor(START.astype(dtype))
    optimizer = make([p])
    with Tensor.train():
        for g in GRADIENTS:
            optimizer.zero_grad()
            (p * Tensor(g.astype(dtype))).sum().backward()
            optimizer.step()
    found = p.numpy()
    assert isinstance(found, np.ndarray)
    return found


SCALED = "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD LAMB LARS"


@pytest.mark.parametrize("name", SCALED.split())
def test_a_number_is_trained_as_a_vector_of_one(name: str) -> None:
    found = []
    for start in (2.0, [2.0]):
        p = nn.Parameter(Tensor(start))
        optimizer = getattr(nn.optim, name)([p], lr=0.1)
        with Tensor.train():
            for _ in range(2):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
        assert p.shape == np.shape(start)
        found.append(p.item())
    assert found[0] == found[1] != 2.0


def sgd(
    lr: float, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
) -> Array:
    p, m = START.copy(), np.zeros_like(START)
    for gradient in GRADIENTS:
        g = gradient + weight_decay * p
        m = momentum * m + g
        p = p - lr * (g + momentum * m if nesterov else m)
    return p


def adam(
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Array:
    p, m, v = START.copy(), np.zeros_like(START), np.zeros_like(START)
    b1, b2 = betas
    for t, gradient in enumerate(GRADIENTS, start=1):
        g = gradient
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            g = g + weight_decay * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True},
    ],
    ids=str,
)
def test_sgd(options: dict[str, Any]) -> None:
    found = run(lambda params: nn.optim.SGD(params, lr=0.1, **options))
    np.testing.assert_allclose(found, sgd(0.1, **options), rtol=1e-12)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.9)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam(betas: tuple[float, float], weight_decay: float) -> None:
    found = run(lambda params: nn.optim.Adam(params, 0.1, betas, 1e-6, weight_decay))
    np.testing.assert_allclose(found, adam(0.1, betas, 1e-6, weight_decay), rtol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw(weight_decay: float) -> None:
    found = run(lambda params: nn.optim.AdamW(params, 0.1, weight_decay=weight_decay))
    wanted = adam(0.1, (0.9, 0.999), 1e-8, weight_decay, decoupled=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_bias_correction_keeps_its_digits_in_float32() -> None:
    """In the first steps 1 - b2^t is 0.001: taken from 1 in float32 it would be off by 1e-5."""
    found = run(lambda params: nn.optim.Adam(params, 0.1), "float32") - START
    wanted = adam(0.1, (0.9, 0.999), 1e-8) - START
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


def test_half_parameters_move_by_updates_in_float32() -> None:
    """Moments of 1e-9 would vanish in half."""
    p = Tensor.ones(3, dtype="float16")
    optimizer = nn.optim.Adam([p], lr=0.25)
    with Tensor.train():
        (p * 3e-5).sum().backward()
        optimizer.step()
    assert p.dtype.name == "float16"
    assert optimizer.v[0].dtype.name == "float32"
    np.testing.assert_allclose(p.numpy(), 0.75, atol=1e-3)


def test_a_step_of_many_parameters_is_one_schedule() -> None:
    """Parameters keep their memory, and the second step compiles nothing."""
    params = [Tensor.ones(8, 8) for _ in range(20)]
    optimizer = nn.optim.SGD(params, lr=0.1, momentum=0.9)
    kernels = []
    with Tensor.train():
        for _ in range(4):
            optimizer.zero_grad()
            sum((p.square().sum() for p in params), Tensor(0.0)).backward()
            compiles, before = counters.compiles, GlobalCounters.kernel_count
            optimizer.step()
            kernels.append((GlobalCounters.kernel_count - before, counters.compiles - compiles))
    assert kernels[-1][1] == 0
    # For each parameter its gradient, which stays readable, its momentum and itself.
    assert kernels[-1][0] <= 3 * len(params) + 1
    assert len({id(p) for p in optimizer.params}) == 20


def test_the_learning_rate_is_memory() -> None:
    """A schedule changes it without compiling: it is read by the kernel."""
    p = Tensor.ones(4)
    optimizer = nn.optim.SGD([p], lr=1.0)
    values = []
    with Tensor.train():
        for lr in (1.0, 0.5, 0.25, 0.125):
            optimizer.lr = lr
            optimizer.zero_grad()
            p.sum().backward()
            compiles = counters.compiles
            optimizer.step()
            values.append(p.numpy()[0])
    assert values == [0.0, -0.5, -0.75, -0.875]
    assert counters.compiles == compiles
    assert optimizer.lr.item() == 0.125


def test_gradients_add_up_until_they_are_forgotten() -> None:
    p = Tensor.ones(2)
    optimizer = nn.optim.SGD([p], lr=1.0)
    with Tensor.train():
        p.sum().backward()
        p.sum().backward()
        optimizer.step()
    np.testing.assert_array_equal(p.numpy(), [-1.0, -1.0])
    optimizer.zero_grad()
    assert p.grad is None


def test_a_parameter_without_a_gradient_stays() -> None:
    used, unused = Tensor.ones(2), Tensor.ones(2)
    optimizer = nn.optim.Adam([used, unused])
    with Tensor.train():
        used.sum().backward()
        optimizer.step()
    np.testing.assert_array_equal(unused.numpy(), [1.0, 1.0])
    assert not np.array_equal(used.numpy(), [1.0, 1.0])


def test_state_that_is_not_trained_is_computed_with_the_step() -> None:
    """Running statistics cannot grow into a graph of all batches."""
    model = [nn.Linear(3, 4), nn.BatchNorm(4)]
    optimizer = nn.optim.SGD(nn.state.get_parameters(model))
    assert len(optimizer.params) == 4
    assert len(optimizer.buffers) == 3
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            x = Tensor(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))
            x.sequential(model).square().sum().backward()
            optimizer.step()
            assert all(len(buffer.uop.toposort()) < 4 for buffer in optimizer.buffers)
    assert model[1].num_batches_tracked.item() == 3  # type: ignore[union-attr]


def test_a_parameter_that_is_passed_twice_moves_once() -> None:
    p = Tensor.ones(2)
    optimizer = nn.optim.SGD([p, p], lr=1.0)
    with Tensor.train():
        p.sum().backward()
        optimizer.step()
    np.testing.assert_array_equal(p.numpy(), [0.0, 0.0])


def test_a_small_network_learns() -> None:
    """XOR, by each optimizer."""
    x = Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = Tensor([0, 1, 1, 0])
    for make in (
        lambda params: nn.optim.SGD(params, lr=0.3, momentum=0.9),
        lambda params: nn.optim.Adam(params, lr=0.05),
        lambda params: nn.optim.AdamW(params, lr=0.05),
    ):
        Tensor.manual_seed(3)
        model = [nn.Linear(2, 16), Tensor.tanh, nn.Linear(16, 2)]
        optimizer = make(nn.state.get_parameters(model))
        with Tensor.train():
            for _ in range(60):
                optimizer.zero_grad()
                loss = x.sequential(model).cross_entropy(y).backward()
                optimizer.step()
        assert loss.item() < 0.1


# refusals


def test_a_step_asks_for_no_mode() -> None:
    """As in PyTorch: the mode is for layers such as dropout, not for the optimizer."""
    p = Tensor.ones(2)
    optimizer = nn.optim.SGD([p], lr=0.5)
    p.sum().backward()
    with Tensor.train(False):
        optimizer.step()
    assert p.tolist() == [0.5, 0.5]


def test_a_step_without_backward() -> None:
    optimizer = nn.optim.Adam([Tensor.ones(2), Tensor.ones(3)])
    with (
        Tensor.train(),
        pytest.raises(ConfigError, match="none of the 2 parameters has a gradient"),
    ):
        optimizer.step()
    assert optimizer.c1.item() == 0.0


def test_nothing_to_train() -> None:
    with pytest.raises(ConfigError, match="SGD: there is nothing to train"):
        nn.optim.SGD([])
    with pytest.raises(ConfigError, match="SGD: there is nothing to train"):
        nn.optim.SGD([Tensor.ones(2, requires_grad=False), Tensor([1, 2])])


def test_a_parameter_that_is_no_tensor() -> None:
    with pytest.raises(DTypeError, match="SGD: a Linear is no parameter"):
        nn.optim.SGD([nn.Linear(2, 2)])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: nn.optim.SGD(p, momentum=-0.1), "SGD: momentum must be at least 0"),
        (lambda p: nn.optim.SGD(p, nesterov=True), "SGD: nesterov needs a momentum"),
        (
            lambda p: nn.optim.Adam(p, betas=(0.9, 1.0)),
            "Adam: b2 must be at least 0 and below 1, not 1.0",
        ),
        (lambda p: nn.optim.AdamW(p, eps=-1e-8), "AdamW: eps must be at least 0"),
        (lambda p: nn.optim.SGD(p, lr=-1.0), "SGD: lr must be at least 0"),
    ],
)
def test_hyperparameters_out_of_range(make: Callable[[list[Tensor]], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make([Tensor.ones(2)])


# the others


def adagrad(p: Array, g: Array, s: dict[str, Any]) -> Array:
    s["v"] = s.get("v", 0.25) + g * g
    return p - 0.1 * g / (np.sqrt(s["v"]) + 1e-10)


def rmsprop(p: Array, g: Array, s: dict[str, Any]) -> Array:
    g = g + 0.1 * p
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    s["a"] = 0.9 * s.get("a", 0) + 0.1 * g
    s["b"] = 0.5 * s.get("b", 0) + g / (np.sqrt(s["v"] - s["a"] ** 2) + 1e-8)
    return p - 0.1 * s["b"]


def lion(p: Array, g: Array, s: dict[str, Any]) -> Array:
    m = s.get("m", np.zeros_like(p))
    s["m"] = 0.99 * m + 0.01 * g
    return p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * p)


def lamb(p: Array, g: Array, s: dict[str, Any]) -> Array:
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    u = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-6) + 0.1 * p
    return p - 0.1 * np.linalg.norm(p) / np.linalg.norm(u) * u


def lars(p: Array, g: Array, s: dict[str, Any]) -> Array:
    ratio = 0.01 * np.linalg.norm(p) / (np.linalg.norm(g) + 0.1 * np.linalg.norm(p))
    g = 0.1 * ratio * (g + 0.1 * p)
    s["m"] = 0.9 * s.get("m", 0) + g
    return p - s["m"]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda p: nn.optim.Adagrad(p, 0.1, initial_accumulator_value=0.25), adagrad),
        (lambda p: nn.optim.RMSprop(p, 0.1, 0.9, 1e-8, 0.1, 0.5, True), rmsprop),
        (lambda p: nn.optim.Lion(p, 0.1, weight_decay=0.1), lion),
        (lambda p: nn.optim.LAMB(p, 0.1, weight_decay=0.1), lamb),
        (lambda p: nn.optim.LARS(p, 0.1, 0.9, 0.1, tcoef=0.01), lars),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_rule(make: Any, rule: Callable[..., Array]) -> None:
    p, state = START, dict[str, Any]()
    for g in GRADIENTS:
        p = rule(p, g, state)
    np.testing.assert_allclose(run(make), p, rtol=1e-9)


def test_groups_have_options_of_their_own() -> None:
    a, b = Tensor.ones(2), Tensor.ones(2)
    groups = [{"params": [a], "weight_decay": 1.0}, {"params": b, "lr": 0.25}]
    optimizer = nn.optim.SGD(groups, lr=0.5)
    with Tensor.train():
        (a + b).sum().backward()
        optimizer.step()
        np.testing.assert_array_equal(a.numpy(), [0.0, 0.0])
        np.testing.assert_array_equal(b.numpy(), [0.75, 0.75])
        optimizer.param_groups[1]["lr"] = 1.0
        optimizer.step()
    np.testing.assert_array_equal(b.numpy(), [-0.25, -0.25])
    with pytest.raises(ConfigError, match="SGD: a group has unknown options: momentun"):
        nn.optim.SGD([{"params": [a], "momentun": 0.9}])


def test_a_loss_is_of_the_weights_before_the_step() -> None:
    """Whenever it is looked at."""
    p = Tensor.ones(2)
    optimizer = nn.optim.SGD([p], lr=0.5)
    with Tensor.train():
        loss = p.square().sum()
        loss.backward()
        optimizer.step()
    assert loss.item() == 2.0
    np.testing.assert_array_equal(p.numpy(), [0.0, 0.0])


@Context(SEGMENTS=1)
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_a_parameter_and_its_state_are_moved_by_one_kernel(name: str) -> None:
    """Segments that are compared with their nodes run both."""
    params = [Tensor.ones(3 + place).realize() for place in range(10)]
    optimizer = getattr(nn.optim, name)(params, lr=0.1)
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            loss = sum(((p * p).sum() for p in params), Tensor(0.0))
            loss.backward()
            Tensor.realize(loss, *[p.grad for p in params if p.grad is not None])
            before = GlobalCounters.kernel_count
            optimizer.step()
    assert GlobalCounters.kernel_count - before <= len(params) + 1
