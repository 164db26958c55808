"""`backward` and `gradient` from the user's side; the derivatives themselves are tests/grad's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, dtypes, no_grad
from tilegrad.base.errors import DTypeError, ShapeError, TilegradError
from tilegrad.base.trace import counters


def test_backward_fills_grad_of_leaves_and_adds_up() -> None:
    w, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([0.5], requires_grad=True)
    x = Tensor([3.0, 4.0])
    loss = (w * x + b).sum()
    assert loss.requires_grad
    loss.backward()
    assert w.grad is not None and b.grad is not None
    assert (w.grad.tolist(), b.grad.tolist(), x.grad) == ([3.0, 4.0], [2.0], None)
    (w * w).sum().backward()
    assert w.grad.tolist() == [5.0, 8.0]


def test_intermediate_tensors_get_no_grad_but_can_be_asked() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    loss = (y * y).sum()
    assert loss.gradient(y)[0].tolist() == [6.0, 12.0]
    loss.backward()
    assert y.grad is None


def test_a_realized_leaf_is_found_in_graphs_made_before() -> None:
    x = Tensor.rand(3, requires_grad=True)
    loss = (x * 2).sum()
    x.realize()
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    z = x * 5
    total = (z * z).sum()
    z.realize()
    close(total.gradient(z)[0], 2 * z.numpy())


def test_equal_constants_have_their_own_gradients() -> None:
    a, b = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=True)
    number = Tensor(1.0, requires_grad=True)
    loss = (a * 3 + b * b * 4 + number).sum()
    loss.backward()
    assert a.grad is not None and b.grad is not None and number.grad is not None
    assert (a.grad.tolist(), b.grad.tolist(), number.grad.item()) == ([3.0, 3.0], [8.0, 8.0], 2.0)


def test_second_derivatives() -> None:
    x = Tensor([2.0, 3.0])
    (first,) = (x**3).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    close(second, np.float32([12, 18]))


def test_detach_stops_and_requires_grad_false_does_not_ask() -> None:
    x = Tensor([2.0], requires_grad=True)
    (x * x.detach()).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0]
    assert x.detach().requires_grad is False


def test_a_gradient_may_be_passed() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).backward(gradient=Tensor([10.0, 1.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 4.0]


def test_what_is_not_needed_is_none_or_zeros() -> None:
    x, y = Tensor([1.0]), Tensor([[2.0, 3.0]])
    assert x.sum().gradient(y) == [None]
    assert x.sum().gradient(y, materialize_grads=True)[0].tolist() == [[0.0, 0.0]]


def test_a_network_learns() -> None:
    rng = np.random.default_rng(0)
    x, target = (
        Tensor(rng.normal(size=(16, 3)).astype(np.float32)),
        Tensor(rng.normal(size=(16, 1)).astype(np.float32)),
    )
    Tensor.manual_seed(0)
    w1, w2 = (
        Tensor.glorot_uniform(3, 8, requires_grad=True),
        Tensor.glorot_uniform(8, 1, requires_grad=True),
    )
    losses = []
    for _ in range(6):
        w1.grad = w2.grad = None
        loss = ((x @ w1).tanh() @ w2).mse_loss(target)
        loss.backward()
        for w in (w1, w2):
            assert w.grad is not None
            w.assign(w.detach() - w.grad * 0.1)
        losses.append(loss.item())
        w1.realize(w2)
    assert losses == sorted(losses, reverse=True)


def test_misuse_raises() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"backward: a loss is one number, the shape is \(2,\)"):
        (x * 2).backward()
    with pytest.raises(
        ShapeError, match=r"backward: the gradient has shape \(3,\), the tensor \(2,\)"
    ):
        (x * 2).backward(gradient=Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(TilegradError, match="nothing below this tensor requires a gradient"):
        Tensor([1.0]).sum().backward()
    with pytest.raises(DTypeError, match="requires_grad: an int32 tensor has no gradient"):
        Tensor([1], requires_grad=True)
    with pytest.raises(
        DTypeError, match="a leaf that requires a gradient cannot be written in part"
    ):
        x[0] = 1


def test_training_is_a_switch_of_the_block_and_the_thread() -> None:
    assert Tensor.training is True
    with Tensor.train(False):
        assert Tensor.training is False
        with Tensor.train():
            assert Tensor.training is True
        assert Tensor.training is False

    @Tensor.train(False)
    def step() -> bool:
        return Tensor.training

    assert step() is False
    assert Tensor.training is True
    Tensor.training = False
    assert Tensor.training is False
    Tensor.training = True


def test_gradients_of_integers_are_refused_where_the_loss_is_one() -> None:
    with pytest.raises(DTypeError, match="backward"):
        Tensor([1], dtype=dtypes.int).sum().gradient(Tensor([1.0]))
    numbers(1)


def test_what_is_computed_can_be_written_in_part() -> None:
    a = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = a * 2
    x[1] = x[0] * 5
    assert x.sum().gradient(a)[0].tolist() == [12, 0, 2]
    x = (a * 2).realize()
    x[1] = 5.0
    assert x.sum().gradient(a)[0].tolist() == [2, 0, 2]
    x += 1
    assert (x * x).sum().gradient(a)[0].tolist() == [12, 0, 28]


def test_a_computed_tensor_that_was_written_to_and_computed_again_keeps_its_way() -> None:
    a = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = (a * 2).realize()
    x += 1
    assert x.realize().tolist() == [3, 5, 7]
    x *= a
    assert x.tolist() == [3, 10, 21]
    x.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [5, 9, 13]


def test_a_write_that_gradients_do_not_see_changes_the_value_only() -> None:
    a = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = (a * 2).realize()
    with no_grad():
        x += 1
    assert x.realize().tolist() == [3, 5, 7]
    # x has the derivative 2.
    (x * a).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [5, 9, 13]
    (x.detach() * a).sum().backward()
    assert a.grad.tolist() == [8, 14, 20]


def test_a_loop_that_holds_a_value_of_the_step_before_does_not_grow() -> None:
    w = Tensor(numbers(6, 6, seed=1) * 0.3, requires_grad=True)
    weights = numbers(6, 6, seed=1) * 0.3
    visits, read = [], []
    for step in range(24):
        x = numbers(3, 6, seed=step)
        before = counters.visits
        # `hidden` lives until the next step has made another one.
        hidden = (Tensor(x) @ w).tanh()
        loss = ((hidden - 0.5) ** 2).mean()
        loss.backward()
        w.assign(w - 0.1 * w.grad)
        w.grad = None
        read.append(loss.item())
        visits.append(counters.visits - before)
        value = np.tanh(x @ weights)
        assert abs(read[-1] - ((value - 0.5) ** 2).mean()) < 1e-4
        weights = weights - 0.1 * x.T @ ((1 - value * value) * 2 * (value - 0.5) / 18)
    # The graphs of four steps are kept at most.
    assert max(visits[16:]) <= max(visits[8:16])
    assert hidden.shape == (3, 6)


def test_a_kept_graph_leads_to_a_parameter_that_was_updated_before_it() -> None:
    w = Tensor(numbers(4, 4, seed=1), requires_grad=True)
    w.assign(w * 0.5 + 1)
    w.realize()
    hidden = Tensor(numbers(2, 4)) @ w
    hidden.realize()
    (found,) = (hidden * 3).sum().gradient(w)
    close(found, np.repeat(3 * numbers(2, 4).sum(0)[:, None], 4, 1))
    for _ in range(6):
        (hidden * 2).sum().item()
    (found,) = (hidden * hidden).sum().gradient(w)
    now = numbers(4, 4, seed=1) * 0.5 + 1
    close(found, numbers(2, 4).T @ (2 * (numbers(2, 4) @ now)), 1e-4)


@pytest.mark.parametrize(
    "name", ["sign", "sgn", "round", "floor", "ceil", "trunc", "fix", "heaviside"]
)
def test_steps_are_flat(name: str) -> None:
    """Their gradient is zero, as in PyTorch, whether or not another one reaches the leaf."""
    for others in (0.0, 3.0):
        x = Tensor([1.5, -0.5, 2.0], requires_grad=True)
        made = x.heaviside(Tensor(0.5)) if name == "heaviside" else getattr(x, name)()
        total = made.sum() + (x * others).sum() if others else made.sum()
        total.backward()
        assert x.grad is not None
        assert x.grad.tolist() == [others] * 3
    x = Tensor([1.5], requires_grad=True)
    for cut in (x.detach() * 2, (x > 0).float(), x.int().float()):
        with pytest.raises(RuntimeError, match=r"no gradient reaches|requires a gradient"):
            cut.sum().backward()
