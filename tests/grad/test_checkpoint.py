"""Gradients that compute anew: equal values, less memory, in every nesting."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy as np
import pytest

from tests.grad.numeric import Array, evaluate
from tests.grad.programs import PROGRAMS
from tilegrad import Device, GlobalCounters, Tensor, jit, nn
from tilegrad.base.errors import DTypeError, TransformError
from tilegrad.func import checkpoint, grad, hessian, jvp, vmap
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.memory_plan import plan_memory
from tilegrad.schedule.schedule import make_schedule

RANDOM = np.random.default_rng(9)
WIDTH, ROWS, LAYERS = 16, 64, 6


def peak_bytes(tensors: Sequence[Tensor]) -> int:
    """The memory that computing `tensors` would take, theirs included; nothing is compiled."""
    sink = UOp.sink(*[tensor.uop for tensor in tensors])
    targets = {name: Device[name].target for name in ("CPU", "HOST")}
    schedule = make_schedule(sink, targets, "CPU", plain=False)
    block = plan_memory(schedule, schedule.outputs).blocks["CPU"]
    return block + sum(schedule.buffers[number].nbytes for number in schedule.outputs)


def weights(count: int = LAYERS) -> list[Tensor]:
    return [
        Tensor((RANDOM.normal(size=(WIDTH, 4 * WIDTH)) / 4).astype("float32"), requires_grad=True)
        for _ in range(count)
    ]


def layer(x: Tensor, weight: Tensor) -> Tensor:
    """Wide on the way, and as narrow as its argument at the end."""
    wide = (x @ weight).contiguous()
    return x + (wide.sin().contiguous() @ weight.T * 0.1).tanh()


def losses(x: Tensor, layers: list[Tensor], how: str) -> list[Tensor]:
    """The loss and its gradients."""
    for weight in layers:
        if how == "plain":
            x = layer(x, weight)
        elif how == "as an argument":
            x = checkpoint(layer, x, weight)
        else:
            x = checkpoint(lambda x, weight=weight: layer(x, weight), x)
    loss = x.square().mean()
    return [loss, *loss.gradient(*layers)]


def test_memory_goes_down() -> None:
    """What all layers keep on the way is kept for one at a time."""
    layers, x = weights(), Tensor.empty(ROWS, WIDTH)
    peaks = {
        how: peak_bytes(losses(x, layers, how)) for how in ("plain", "as an argument", "outer")
    }
    wide, narrow, weight = 4 * ROWS * 4 * WIDTH, 4 * ROWS * WIDTH, 4 * WIDTH * 4 * WIDTH
    kept = LAYERS * (narrow + weight)
    # Two wide values of each layer, or of one layer and its gradient, beside what comes out.
    assert peaks["plain"] >= 2 * LAYERS * wide
    for how in ("as an argument", "outer"):
        assert peaks[how] <= kept + 4 * wide + 5 * narrow
        assert peaks[how] < peaks["plain"] / 2


def test_each_value_is_computed_twice() -> None:
    """Once forward and once for the gradient, whatever else happens."""
    (weight,), x = weights(1), Tensor.empty(ROWS, WIDTH)
    for how, count in (("plain", 1), ("outer", 2)):
        graph = UOp.sink(*[tensor.uop for tensor in losses(x, [weight], how)])
        sines = [node for node in graph.toposort() if node.op is Ops.SIN]
        assert len(sines) == count
    assert checkpoint(layer, x, weight).uop is layer(x, weight).uop


@pytest.mark.parametrize("name", ["divide", "softmax", "matrix product", "gather", "scatter add"])
def test_gradients_are_those_of_the_plain_call(name: str) -> None:
    function, shapes = PROGRAMS[name]
    tensors = [Tensor.empty(*shape, dtype="float64") for shape in shapes]
    values: dict[UOp, Array] = {x.uop: RANDOM.uniform(-2, 2, x.shape) for x in tensors}
    every = tuple(range(len(tensors)))

    def plain(*args: Tensor) -> Tensor:
        return function(*args).sin().sum()

    def twice(*args: Tensor) -> Tensor:
        found: Tensor = checkpoint(plain, *args)
        return found

    for one, other in zip(grad(plain, every)(*tensors), grad(twice, every)(*tensors)):
        copies = {
            node: evaluate(node.src[0], values)
            for node in other.uop.toposort()
            if node.op is Ops.CUSTOM
        }
        assert copies
        np.testing.assert_allclose(
            evaluate(other.uop, {**values, **copies}), evaluate(one.uop, values), rtol=1e-12
        )


def test_structures_and_several_outputs() -> None:
    """Outputs that share work are computed anew together, and one may be unused."""

    def function(
        pair: dict[str, Tensor], scale: float, *, by: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        shared = (pair["a"] * by).exp()
        return shared * scale, [shared.sin(), shared + pair["b"]]

    a, b, c = Tensor([0.5, 1.0]), Tensor([2.0, 3.0]), Tensor([1.0, -1.0])

    def total(a: Tensor, b: Tensor, c: Tensor, *, is_kept: bool) -> Tensor:
        call = (lambda f, *x, **y: f(*x, **y)) if is_kept else checkpoint
        one, (two, _) = call(function, {"a": a, "b": b}, 3.0, by=c)
        return (one * two).sum()

    plain = grad(total, (0, 1, 2))(a, b, c, is_kept=True)
    again = grad(total, (0, 1, 2))(a, b, c, is_kept=False)
    made = again[0].uop.toposort()
    # Forward, to give the outputs' gradients, and once more for both of them.
    assert len([node for node in made if node.op is Ops.EXP]) == 2
    for one, other in zip(plain, again):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-6)


def test_backward_fills_grad_of_what_the_function_knows() -> None:
    Tensor.manual_seed(3)
    model = nn.Linear(4, 4)
    x = Tensor(RANDOM.normal(size=(3, 4)).astype("float32"), requires_grad=True)
    found = []
    for call in (lambda f, x: f(x), checkpoint):
        for tensor in (model.weight, model.bias, x):
            tensor.grad = None
            tensor.requires_grad = True
        call(lambda x: model(x).relu(), x).sum().backward()
        found.append([tensor.grad.numpy() for tensor in (model.weight, model.bias, x)])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_random_numbers_are_the_same_twice() -> None:
    x = Tensor.ones(1000)
    with Tensor.train():
        gradient, value = jvp_and_grad(lambda x: checkpoint(lambda x: (x * x).dropout(0.5), x), x)
    assert set(np.unique(value)) == {0.0, 2.0}
    assert (gradient == 2 * value).all()


def jvp_and_grad(function: object, x: Tensor) -> tuple[Array, Array]:
    value = function(x)  # type: ignore[operator]
    (gradient,) = value.sum().gradient(x)
    return gradient.numpy(), value.numpy()


def test_nested() -> None:
    """A checkpoint in a checkpoint, in reverse and twice, forward, mapped, and in a capture."""

    def inner(x: Tensor) -> Tensor:
        return x.sin() * x

    def outer(x: Tensor) -> Tensor:
        found: Tensor = checkpoint(lambda x: checkpoint(inner, x.exp()) + x, x)
        return found.sum()

    def plain(x: Tensor) -> Tensor:
        return (inner(x.exp()) + x).sum()

    rows = Tensor(RANDOM.uniform(-1, 1, (3, 4)))
    x = rows[0]
    pairs = [
        (grad(plain)(x), grad(outer)(x)),
        (grad(lambda x: grad(plain)(x).sum())(x), grad(lambda x: grad(outer)(x).sum())(x)),
        (jvp(plain, (x,), (x,))[1], jvp(outer, (x,), (x,))[1]),
        (hessian(plain)(x), hessian(outer)(x)),
        (vmap(grad(plain))(rows), vmap(grad(outer))(rows)),
        (grad(lambda x: vmap(plain)(x).sum())(rows), grad(lambda x: vmap(outer)(x).sum())(rows)),
    ]
    copies = [
        [node for node in found.uop.toposort() if node.op is Ops.CUSTOM] for _, found in pairs
    ]
    # The outer one's argument, and again for the inner one inside of it; forward there are none.
    assert [len(copies[number]) for number in (0, 2)] == [2, 0]
    assert {node.shape for node in copies[5]} == {(3, 4)}
    Tensor.realize(*[tensor for pair in pairs for tensor in pair])
    for one, other in pairs:
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-12)


def test_a_training_step_that_is_captured() -> None:
    """Replays give what the plain step gives."""
    start = [weight.numpy() for weight in weights(2)]
    data = RANDOM.normal(size=(4, 4, WIDTH)).astype("float32")
    found = []
    for how in ("plain", "outer"):
        layers = [Tensor(each, requires_grad=True) for each in start]
        optimizer = nn.optim.SGD(layers, lr=0.1)

        @jit
        def step(x: Tensor) -> Tensor:
            with Tensor.train():
                optimizer.zero_grad()  # noqa: B023
                loss = losses(x, layers, how)[0]  # noqa: B023
                loss.backward()
                optimizer.step()  # noqa: B023
                return loss.realize()

        found.append([step(Tensor(batch).realize()).item() for batch in data])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    assert found[0][0] != found[0][-1]


def test_what_is_computed_plainly_too_has_gradients() -> None:
    """Equal graphs are one, whether a checkpoint made them or not."""
    x = Tensor([1.0, 2.0])
    kept = checkpoint(lambda x: (x * 3).square().exp(), x)
    middle = x * 3
    plain = middle.square().exp()
    assert plain.uop is kept.uop
    ones = Tensor([1.0, 1.0])
    by_middle, by_x = plain.gradient(middle, x, gradient=ones)
    expected = 2 * middle.numpy() * np.exp(middle.numpy() ** 2)
    np.testing.assert_allclose(by_middle.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(by_x.numpy(), 3 * expected, rtol=1e-5)
    np.testing.assert_allclose(kept.gradient(x, gradient=ones)[0].numpy(), 3 * expected, rtol=1e-5)


def test_realized_inside() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = checkpoint(lambda x: (x * x).realize() * x, x)
    assert y.sum().gradient(x)[0].tolist() == [3.0, 12.0]


@pytest.mark.usefixtures("nothing_known")
def test_memory_is_given_back() -> None:
    """A region keeps nothing alive but what its outputs' graph does."""
    x = Tensor.ones(1000).contiguous().realize()
    # What tests before this one left in cycles.
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(3):
        checkpoint(lambda x: x.exp().contiguous() * 2, x).realize()
    assert GlobalCounters.mem_used <= before


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_parameter_of_several_regions_has_the_gradient_of_each_once(count: int) -> None:
    """y = w^n x: 2 n w^(2n-1) x^2 is the slope of y^2, and n w^(n-1) that of the slope by x."""
    w, x = Tensor(1.25, requires_grad=True), Tensor(0.5, requires_grad=True)
    y = x
    for _ in range(count):
        y = checkpoint(lambda y: y * w, y)
    by_w, by_x = (y * y).gradient(w, x)
    assert by_w.item() == pytest.approx(2 * count * 1.25 ** (2 * count - 1) * 0.25, rel=1e-6)
    assert by_x.item() == pytest.approx(2 * 1.25 ** (2 * count) * 0.5, rel=1e-6)
    (slope,) = y.gradient(x)
    assert slope.gradient(w)[0].item() == pytest.approx(count * 1.25 ** (count - 1), rel=1e-6)


def test_a_region_inside_of_another_that_uses_the_same_parameter() -> None:
    w, x = Tensor(1.25, requires_grad=True), Tensor(0.5, requires_grad=True)

    def inner(y: Tensor) -> Tensor:
        return y * w

    def outer(y: Tensor) -> Tensor:
        return checkpoint(inner, checkpoint(inner, y) * w) * w

    y = checkpoint(outer, checkpoint(outer, x))
    # y = w^8 x
    by_w, by_x = y.gradient(w, x)
    assert by_w.item() == pytest.approx(8 * 1.25**7 * 0.5, rel=1e-6)
    assert by_x.item() == pytest.approx(1.25**8, rel=1e-6)


def test_errors() -> None:
    x = Tensor([1.0])

    def writing(x: Tensor) -> Tensor:
        x += 1
        return x

    with pytest.raises(DTypeError, match="checkpoint: a Tensor is no function"):
        checkpoint(x, x)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="checkpoint: the function gave a NoneType"):
        checkpoint(lambda x: None, x)
    with pytest.raises(TransformError, match="checkpoint: the function assigns to its argument"):
        checkpoint(writing, x)
