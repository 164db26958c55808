"""Directional derivatives: forward mode against central differences, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grad.numeric import Array, evaluate
from tests.grad.programs import PROGRAMS, SECOND
from tilegrad import Tensor, dtypes, jit, scan
from tilegrad.base.errors import DTypeError, ShapeError, TilegradError, TransformError
from tilegrad.func import grad, jvp, vjp, vmap
from tilegrad.grad import forward
from tilegrad.grad.loop_gradients import LOOPS
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

RANDOM = np.random.default_rng(3)


def leaves(name: str) -> tuple[list[Tensor], dict[UOp, Array]]:
    """Arguments of a program, without memory, and values for them."""
    tensors = [Tensor.empty(*shape, dtype="float64") for shape in PROGRAMS[name][1]]
    return tensors, {tensor.uop: RANDOM.uniform(-2, 2, tensor.shape) for tensor in tensors}


@pytest.mark.parametrize("name", PROGRAMS)
def test_jvp_is_the_slope_along_the_tangent(name: str) -> None:
    function = PROGRAMS[name][0]
    primals, at = leaves(name)
    tangents, along = leaves(name)
    value, slope = jvp(function, tuple(primals), tuple(tangents))
    assert (slope.shape, slope.dtype) == (value.shape, value.dtype)
    plain = function(*primals).uop
    # The function itself is the graph that it builds without a transform; a clone has memory.
    assert value.uop is plain or name == "clone"
    step = 1e-6
    ways = list(zip(at.items(), along.values()))
    sides = [
        evaluate(plain, {node: value + sign * step * way for (node, value), way in ways})
        for sign in (1, -1)
    ]
    expected = (sides[0] - sides[1]) / (2 * step)
    found = evaluate(slope.uop, {**at, **along})
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_and_reverse_are_transposed(name: str) -> None:
    """<u, J t> and <J^T u, t> are one number."""
    function = PROGRAMS[name][0]
    primals, at = leaves(name)
    tangents, along = leaves(name)
    value, slope = jvp(function, tuple(primals), tuple(tangents))
    _, pull = vjp(function, *primals)
    down = Tensor.empty(*value.shape, dtype="float64")
    weights = RANDOM.uniform(-2, 2, value.shape)
    values = {**at, **along, down.uop: weights}
    one = (evaluate(slope.uop, values) * weights).sum()
    gradients = [evaluate(part.uop, values) for part in pull(down)]
    other = sum((part * way).sum() for part, way in zip(gradients, along.values()))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SECOND)
def test_jvp_of_a_gradient(name: str) -> None:
    """Forward over reverse against differences of the gradient."""
    function = PROGRAMS[name][0]
    primals, at = leaves(name)
    tangents, along = leaves(name)

    def slope(x: Tensor) -> Tensor:
        return grad(lambda x: function(x, *primals[1:]).sin().sum())(x)

    gradient, second = jvp(slope, (primals[0],), (tangents[0],))
    first, step, way = primals[0].uop, 1e-6, along[tangents[0].uop]
    sides = [
        evaluate(gradient.uop, {**at, first: at[first] + sign * step * way}) for sign in (1, -1)
    ]
    found = evaluate(second.uop, {**at, **along})
    np.testing.assert_allclose(found, (sides[0] - sides[1]) / (2 * step), rtol=1e-5, atol=1e-6)


def test_equal_arguments_are_apart() -> None:
    """One tensor as two arguments, and known to the function besides."""
    x, t = Tensor([2.0, 3.0]), Tensor([1.0, 1.0])
    _, slope = jvp(lambda a, b: a * b * x, (x, x), (t, Tensor([0.0, 0.0])))
    assert slope.tolist() == [4.0, 9.0]


def test_values_may_be_asked_for_on_the_way() -> None:
    """A branch by a value; the derivative goes on through what is in memory."""

    def function(x: Tensor) -> Tensor:
        y = x * x
        return y * x if y.sum().item() > 1 else y

    x = Tensor([2.0, 3.0])
    value, slope = jvp(function, (x,), (Tensor([1.0, 1.0]),))
    assert (value.tolist(), slope.tolist()) == ([8.0, 27.0], [12.0, 27.0])
    assert grad(lambda x: function(x).sum())(x).tolist() == [12.0, 27.0]
    assert x.tolist() == [2.0, 3.0]


def test_realized_copies_keep_their_derivative() -> None:
    """What is computed on the way, also a copy in memory of its own, written to in part."""

    def function(x: Tensor) -> Tensor:
        y = (x * x).clone().realize()
        y[0] = x[1] * 3
        assert y.tolist() == [9.0, 9.0]
        z = (y * x).contiguous().realize()
        return z + y.clone().realize().sum().item()

    x = Tensor([2.0, 3.0])
    value, slope = jvp(function, (x,), (Tensor([1.0, 1.0]),))
    (outside,) = value.gradient(x, gradient=Tensor([1.0, 1.0]))
    assert (value.tolist(), slope.tolist()) == ([36.0, 45.0], [15.0, 27.0])
    inside = grad(lambda x: function(x).sum())(x)
    assert inside.tolist() == outside.tolist() == [9.0, 33.0]


def test_detached_values_are_constants() -> None:
    x = Tensor([2.0, 3.0])
    _, slope = jvp(lambda x: x * x.detach() + x.detach(), (x,), (Tensor([1.0, 1.0]),))
    assert slope.tolist() == [2.0, 3.0]


def test_structures() -> None:
    def function(state: dict[str, Tensor], pair: tuple[Tensor, Tensor]) -> dict[str, list[Tensor]]:
        return {"out": [state["w"] * pair[0], pair[1] + 1]}

    one, two = Tensor([2.0]), Tensor([3.0])
    primals = ({"w": one}, (two, two))
    value, slope = jvp(function, primals, ({"w": 1.0}, (0.0, 2.0)))
    assert [x.tolist() for x in value["out"]] == [[6.0], [4.0]]
    assert [x.tolist() for x in slope["out"]] == [[3.0], [2.0]]
    _, pull = vjp(function, *primals)
    state, pair = pull({"out": [Tensor([1.0]), Tensor([10.0])]})
    assert (state["w"].tolist(), [x.tolist() for x in pair]) == ([3.0], [[2.0], [10.0]])


def test_auxiliary_output() -> None:
    x = Tensor([1.0, 2.0])
    gradient, aux = grad(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(x)
    assert (gradient.tolist(), aux["twice"].tolist()) == ([2.0, 4.0], [2.0, 4.0])
    _, _, aux = jvp(lambda x: (x, "name"), (x,), (x,), has_aux=True)
    assert aux == "name"


def test_what_the_function_assigns_keeps_values() -> None:
    """Running statistics, as a layer keeps them."""
    mean = Tensor([0.0, 0.0]).contiguous().realize()

    def function(x: Tensor) -> Tensor:
        mean.assign(mean * 0.5 + x.detach() * 0.5)
        return (x * x).sum()

    x = Tensor([2.0, 4.0])
    assert grad(function)(x).tolist() == [4.0, 8.0]
    assert mean.tolist() == [1.0, 2.0]


def test_kernels_forward_by_their_gradient() -> None:
    """A kernel written by hand says how gradients go back; forward follows from that."""
    a = RANDOM.uniform(-1, 1, (2, 3, 3)) + 3 * np.eye(3)
    b, t = RANDOM.uniform(-1, 1, (2, 3, 2)), RANDOM.uniform(-1, 1, (2, 3, 3))
    _, slope = jvp(lambda a: a.solve(Tensor(b)), (Tensor(a),), (Tensor(t),))
    expected = -np.linalg.solve(a, t @ np.linalg.solve(a, b))
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-9)
    mapped = vmap(lambda a, b, t: jvp(lambda a: a.solve(b), (a,), (t,))[1])
    np.testing.assert_allclose(mapped(Tensor(a), Tensor(b), Tensor(t)).numpy(), expected, rtol=1e-9)


def test_a_kernel_without_a_gradient_passes_nothing_on() -> None:
    x = Tensor([3.0, 1.0])
    value, slope = jvp(lambda x: x.apply(np.sort) + x, (x,), (Tensor([1.0, 0.0]),))
    assert (value.tolist(), slope.tolist()) == ([4.0, 4.0], [1.0, 0.0])


def test_in_a_capture() -> None:
    @jit
    def step(x: Tensor, t: Tensor) -> Tensor:
        return jvp(lambda x: (x * x).sin(), (x,), (t,))[1].realize()

    for number in range(4):
        x, t = Tensor([0.5, 1.0 + number]).realize(), Tensor([1.0, 2.0]).realize()
        expected = 2 * x.numpy() * t.numpy() * np.cos(x.numpy() ** 2)
        np.testing.assert_allclose(step(x, t).numpy(), expected, rtol=1e-5)


def test_half_sums_are_wide() -> None:
    """70,000 tangents of 1 add up to more than half can hold on the way, and their mean is 1."""
    x = Tensor.ones(70000, dtype=dtypes.half)
    _, slope = jvp(lambda x: x.mean(), (x,), (x,))
    assert slope.dtype is dtypes.half
    assert slope.item() == pytest.approx(1.0, abs=1e-3)


def test_errors() -> None:
    x, whole = Tensor([1.0, 2.0]), Tensor([1, 2])
    refused: list[tuple[type[TilegradError], str, object]] = [
        (DTypeError, "jvp: an int is no function", lambda: jvp(3, (x,), (x,))),  # type: ignore[arg-type]
        (DTypeError, "jvp: the primals are a Tensor", lambda: jvp(Tensor.sin, x, (x,))),  # type: ignore[arg-type]
        (DTypeError, "jvp: primal 0 is int32, which has", lambda: jvp(Tensor.sin, (whole,), (x,))),
        (DTypeError, "grad: argument 0 is an int, not", lambda: grad(lambda x: x)(3)),
        (ShapeError, "jvp: 1 primals and 2 tangents", lambda: jvp(Tensor.sin, (x,), (x, x))),
        (ShapeError, r"tangent 0 has shape \(1,\), its", lambda: jvp(Tensor.sin, (x,), (x[:1],))),
        (
            DTypeError,
            "tangent 0 is float16, its value float32",
            lambda: jvp(Tensor.sin, (x,), (x.half(),)),
        ),
        (ShapeError, r"grad: a loss is one number, .* \(2,\)", lambda: grad(Tensor.sin)(x)),
        (DTypeError, "jvp: the function gave a float", lambda: jvp(lambda x: 1.0, (x,), (x,))),
        (IndexError, "grad: there is no argument 1", lambda: grad(Tensor.sum, 1)(x)),  # type: ignore[list-item]
        (TransformError, "grad: the function assigns to its", lambda: grad(_assigning)(x)),
        (ShapeError, "vjp: the cotangents have another", lambda: vjp(Tensor.sin, x)[1]((x, x))),
    ]
    for kind, message, action in refused:
        with pytest.raises(kind, match=message) as caught:
            action()  # type: ignore[operator]
        assert "test_forward.py" in str(caught.value)


def _assigning(x: Tensor) -> Tensor:
    x += 1
    return x.sum()


def test_every_op_is_decided_upon() -> None:
    """What reverse mode knows, forward mode knows: by its own rule, or as an elementwise op."""
    tensors = {op for op in Ops if Stage.TENSOR in op.definition.stages}
    assert tensors <= set(DERIVATIVES) | NO_DERIVATIVE | LOOPS | {Ops.SINK}
    whole = {op for op in DERIVATIVES if not op.is_alu}
    assert whole <= set(forward._RULES)


def test_steps_of_a_scan() -> None:
    """Of carries, rows and what all steps share; what starts without a tangent may get one."""
    values = [RANDOM.uniform(-1, 1, shape) for shape in ((3,), (5, 3), (3, 3))]
    ways = [RANDOM.uniform(-1, 1, each.shape) for each in values]

    def function(first: Tensor, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            hidden, total = carry
            hidden = (hidden @ weight + x).tanh()
            return (hidden, total + hidden.sum()), hidden * x

        zero = Tensor.zeros((), dtype="float64")
        (_, total), made = scan(step, (first, zero), rows)
        return total, made

    def plain(first: Array, rows: Array, weight: Array) -> tuple[Array, Array]:
        made, total, hidden = [], np.zeros(()), first
        for x in rows:
            hidden = np.tanh(hidden @ weight + x)
            total = total + hidden.sum()
            made.append(hidden * x)
        return total, np.array(made)

    primals = tuple(Tensor(each) for each in values)
    found, slopes = jvp(function, primals, tuple(Tensor(way) for way in ways))
    step = 1e-6
    sides = [
        plain(*[value + sign * step * way for value, way in zip(values, ways)]) for sign in (1, -1)
    ]
    Tensor.realize(*found, *slopes)
    for value, expected, slope, high, low in zip(found, plain(*values), slopes, *sides):
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(slope.numpy(), (high - low) / (2 * step), rtol=1e-6, atol=1e-8)
