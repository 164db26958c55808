"""`vmap` against a loop over the examples, evaluated by NumPy or run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.grad.numeric import Array, evaluate
from tests.grad.programs import PROGRAMS, SECOND
from tilegrad import Tensor, dtypes, nn, scan
from tilegrad.base.errors import DTypeError, ShapeError, TilegradError, TransformError
from tilegrad.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vmap,
)
from tilegrad.grad import batch, lifted
from tilegrad.ir.definition import Stage
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

RANDOM = np.random.default_rng(5)
SIZE = 3


def leaves(name: str, mapped: tuple[bool, ...]) -> tuple[list[Tensor], dict[UOp, Array]]:
    tensors = [
        Tensor.empty(*((SIZE, *shape) if is_mapped else shape), dtype="float64")
        for shape, is_mapped in zip(PROGRAMS[name][1], mapped)
    ]
    return tensors, {tensor.uop: RANDOM.uniform(-2, 2, tensor.shape) for tensor in tensors}


def loop(function: Callable[..., Tensor], tensors: list[Tensor], dims: tuple[int | None, ...],
         values: dict[UOp, Array]) -> Array:  # fmt: skip
    """One example after the other."""
    found = []
    for number in range(SIZE):
        parts = [x if dim is None else x.movedim(dim, 0)[number] for x, dim in zip(tensors, dims)]
        found.append(evaluate(function(*parts).uop, values))
    return np.stack(found)


def same(function: Callable[..., Tensor], tensors: list[Tensor], dims: tuple[int | None, ...],
         values: dict[UOp, Array]) -> None:  # fmt: skip
    found = evaluate(vmap(function, in_dims=dims)(*tensors).uop, values)
    expected = loop(function, tensors, dims, values)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program(name: str) -> None:
    """All arguments mapped, and each one alone."""
    function, shapes = PROGRAMS[name]
    ways = [(True,) * len(shapes)]
    ways += [(True, False), (False, True)] if len(shapes) == 2 else []
    for mapped in ways:
        tensors, values = leaves(name, mapped)
        same(function, tensors, tuple(0 if is_mapped else None for is_mapped in mapped), values)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_inside(name: str) -> None:
    """vmap of a gradient: the gradient of each example."""
    function, shapes = PROGRAMS[name]

    def slope(*args: Tensor) -> Tensor:
        return grad(lambda *args: function(*args).square().sum())(*args)

    tensors, values = leaves(name, (True,) * len(shapes))
    same(slope, tensors, (0,) * len(shapes), values)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "constant"])
def test_gradients_outside(name: str) -> None:
    """The gradient of a mapped function: that of its loop."""
    function, shapes = PROGRAMS[name]
    mapped = (True, False)[: len(shapes)]
    tensors, values = leaves(name, mapped)
    dims = tuple(0 if is_mapped else None for is_mapped in mapped)

    def by_map(*args: Tensor) -> Tensor:
        return vmap(function, in_dims=dims)(*args).square().sum()

    def by_loop(*args: Tensor) -> Tensor:
        parts = [args[0].unbind(0), [args[-1]] * SIZE][: len(args)]
        return Tensor.stack(*[function(*each) for each in zip(*parts)]).square().sum()

    every = tuple(range(len(shapes)))
    for one, other in zip(grad(by_map, every)(*tensors), grad(by_loop, every)(*tensors)):
        np.testing.assert_allclose(
            evaluate(one.uop, values), evaluate(other.uop, values), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("name", SECOND)
def test_vmap_of_vmap(name: str) -> None:
    function, shapes = PROGRAMS[name]
    tensors = [Tensor.empty(2, SIZE, *shape, dtype="float64") for shape in shapes]
    values = {tensor.uop: RANDOM.uniform(-2, 2, tensor.shape) for tensor in tensors}
    found = evaluate(vmap(vmap(function))(*tensors).uop, values)
    for number in range(2):
        parts = [tensor[number] for tensor in tensors]
        expected = loop(function, parts, (0,) * len(parts), values)
        np.testing.assert_allclose(found[number], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SECOND)
def test_jvp_of_vmap(name: str) -> None:
    function, shapes = PROGRAMS[name]
    primals, at = leaves(name, (True,) * len(shapes))
    tangents, along = leaves(name, (True,) * len(shapes))
    _, outside = jvp(vmap(function), tuple(primals), tuple(tangents))
    count = len(shapes)
    inside = vmap(lambda *x: jvp(function, x[:count], x[count:])[1])(*primals, *tangents)
    values = {**at, **along}
    np.testing.assert_allclose(
        evaluate(outside.uop, values), evaluate(inside.uop, values), rtol=1e-10
    )


@pytest.mark.parametrize(
    ("is_table_mapped", "is_index_mapped"), [(True, True), (True, False), (False, True)]
)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_rows_that_each_example_names(
    is_table_mapped: bool, is_index_mapped: bool, dtype: str
) -> None:
    """Inside and outside of the table: what is outside stays so, in a batch too."""
    numbers = [[[0, 3], [9, 1]], [[2, 2], [0, 1]], [[4, 3], [1, 7]]]
    if dtype != "uint8":
        numbers[0][0][0] = -9
    index = np.array(numbers, dtype)[slice(None) if is_index_mapped else 0]
    table = RANDOM.uniform(-1, 1, (3, 4, 2))[slice(None) if is_table_mapped else 0]
    dims = (0 if is_table_mapped else None, 0 if is_index_mapped else None)
    x, i = Tensor.empty(*table.shape, dtype="float64"), Tensor.empty(*index.shape, dtype=dtype)
    values = {x.uop: table, i.uop: index}
    same(lambda x, i: x[i], [x, i], dims, values)
    rows = Tensor.empty(3, 2, 2, 2, dtype="float64")
    values[rows.uop] = RANDOM.uniform(-1, 1, rows.shape)

    def added(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        node = UOp(Ops.SCATTER_ADD, dtypes.float64, (x.uop, i.uop, y.uop))
        return x._joined(node, i, y)

    same(added, [x, i, rows], (*dims, 0), values)
    same(added, [x, i, rows[0]], (*dims, None), values)


def test_dimensions() -> None:
    x, y = Tensor.arange(6).reshape(2, 3), Tensor.arange(3)
    a, b = x.numpy(), y.numpy()
    assert vmap(lambda r: r * 2, in_dims=1)(x).tolist() == (a.T * 2).tolist()
    assert vmap(lambda r: r * 2, in_dims=-1, out_dims=-1)(x).tolist() == (a * 2).tolist()
    assert vmap(lambda r, s: r + s, (1, 0))(x, y).tolist() == (a.T + b[:, None]).tolist()
    assert (
        vmap(lambda r, s: r + s, in_axes=(0, None), out_axes=1)(x, y).tolist() == (a + b).T.tolist()
    )
    tree = vmap(lambda p: {"sum": p["a"].sum() + p["b"], "b": p["b"]}, ({"a": 0, "b": None},),
                {"sum": 0, "b": None})({"a": x, "b": Tensor(5)})  # fmt: skip
    assert (tree["sum"].tolist(), tree["b"].tolist()) == ([8, 17], 5)
    assert vmap(lambda r, n: r * n)(x, 3).tolist() == (a * 3).tolist()
    assert vmap(lambda r, *, by: r * by)(x, by=y).tolist() == (a * b).tolist()
    assert vmap(lambda r: Tensor([1, 2]))(x).tolist() == [[1, 2], [1, 2]]
    assert vmap(lambda r: r.sum())(Tensor.zeros(0, 3)).shape == (0,)


def test_random_numbers() -> None:
    """Each example has its own; those drawn outside are the same for all; a seed repeats them."""
    x, outside = Tensor.zeros(64, 50), Tensor.rand(50)

    def noisy(row: Tensor) -> Tensor:
        return row + Tensor.rand(50) + outside

    found = []
    for _ in range(2):
        Tensor.manual_seed(7)
        found.append(vmap(noisy)(x).numpy())
    assert (found[0] == found[1]).all()
    noise = found[0] - outside.numpy()
    assert len(np.unique(noise.round(5))) > 3000
    assert abs(noise.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.5
    equal = vmap(noisy, randomness="same")(x).numpy()
    assert (equal == equal[0]).all()
    with pytest.raises(TransformError, match="vmap: the function draws random numbers"):
        vmap(noisy, randomness="error")(x)
    with Tensor.train():
        dropped = vmap(lambda row: (row + 1).dropout(0.5))(x).numpy()
    assert 0.4 < (dropped == 0).mean() < 0.6
    assert (dropped[0] != dropped[1]).any()


def test_random_numbers_in_nested_maps() -> None:
    found = vmap(vmap(lambda x: x + Tensor.rand(()), randomness="same"))(Tensor.zeros(8, 4)).numpy()
    assert (found == found[:, :1]).all()
    assert len(np.unique(found)) == 8
    both = vmap(vmap(lambda x: x + Tensor.rand(())))(Tensor.zeros(8, 4)).numpy()
    assert len(np.unique(both)) == 32


def test_kernels_written_by_hand() -> None:
    """Sorting, factorisations, writes by index: one loop more around the kernel."""
    a = RANDOM.uniform(-1, 1, (4, 3, 3)) + 3 * np.eye(3)
    b = RANDOM.uniform(-1, 1, (4, 3))
    both = vmap(lambda a, b: a.solve(b))(Tensor(a), Tensor(b)).numpy()
    np.testing.assert_allclose(both, np.linalg.solve(a, b[..., None])[..., 0], rtol=1e-10)
    one = vmap(lambda b: Tensor(a[0]).solve(b))(Tensor(b)).numpy()
    np.testing.assert_allclose(one, np.linalg.solve(a[0], b.T).T, rtol=1e-10)
    values, places = vmap(lambda row: row.sort(descending=True))(Tensor(b))
    assert (values.numpy() == -np.sort(-b)).all()
    assert (places.numpy() == np.argsort(-b)).all()
    signs = vmap(lambda a: a.det())(Tensor(a)).numpy()
    np.testing.assert_allclose(signs, np.linalg.det(a), rtol=1e-10)
    written = vmap(lambda row, at: row.scatter(0, at, 9.0))(Tensor(b), Tensor([[0], [2], [1], [0]]))
    expected = b.copy()
    expected[range(4), [0, 2, 1, 0]] = 9
    assert (written.numpy() == expected).all()


def test_gradients_through_kernels() -> None:
    a, b = RANDOM.uniform(-1, 1, (4, 3, 3)) + 3 * np.eye(3), RANDOM.uniform(-1, 1, (4, 3))
    back = np.linalg.solve(a.transpose(0, 2, 1), np.ones((4, 3, 1)))
    expected = -back @ np.linalg.solve(a, b[..., None]).transpose(0, 2, 1)

    def total(a: Tensor, b: Tensor) -> Tensor:
        return vmap(lambda a, b: a.solve(b))(a, b).sum()

    outside = grad(total)(Tensor(a), Tensor(b))
    np.testing.assert_allclose(outside.numpy(), expected, rtol=1e-9)
    inside = vmap(grad(lambda a, b: a.solve(b).sum()))(Tensor(a), Tensor(b))
    np.testing.assert_allclose(inside.numpy(), expected, rtol=1e-9)
    shared = grad(lambda a: vmap(lambda b: a.solve(b))(Tensor(b)).sum())(Tensor(a[0])).numpy()
    every = [-back[0] @ np.linalg.solve(a[0], row[:, None]).T for row in b]
    np.testing.assert_allclose(shared, sum(every), rtol=1e-9)


def test_steps_of_a_scan() -> None:
    """Carries, rows and what all steps share, mapped or not; and the gradient of each example."""
    first, rows = RANDOM.uniform(-1, 1, (4, 2)), RANDOM.uniform(-1, 1, (4, 5, 2))
    weight = RANDOM.uniform(-1, 1, (2, 2))

    def function(first: Tensor, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        def step(hidden: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return (hidden @ weight + x).tanh(), (hidden * x).sum()

        last, made = scan(step, first, rows)
        return last, made

    def plain(first: Array, rows: Array, weight: Array) -> tuple[Array, Array]:
        made = []
        for x in rows:
            made.append((first * x).sum())
            first = np.tanh(first @ weight + x)
        return first, np.array(made)

    for dims, given in (
        ((0, 0, None), (first, rows, weight)),
        ((None, 0, None), (first[0], rows, weight)),
        ((None, None, 0), (first[0], rows[0], np.stack([weight, -weight, weight * 2, weight * 3]))),
    ):
        found = vmap(function, in_dims=dims)(*[Tensor(each) for each in given])
        Tensor.realize(*found)
        for number in range(4):
            parts = [part if dim is None else part[number] for part, dim in zip(given, dims)]
            for one, expected in zip(found, plain(*parts)):
                np.testing.assert_allclose(one[number].numpy(), expected, rtol=1e-12)

    def loss(weight: Tensor, first: Tensor, rows: Tensor) -> Tensor:
        last, made = function(first, rows, weight)
        return last.sum() + made.square().sum()

    each = vmap(grad(loss), in_dims=(None, 0, 0))(Tensor(weight), Tensor(first), Tensor(rows))
    one = grad(loss)(Tensor(weight), Tensor(first[1]), Tensor(rows[1]))
    np.testing.assert_allclose(each[1].numpy(), one.numpy(), rtol=1e-10)


def test_every_op_is_decided_upon() -> None:
    """Elementwise ops and movement by their kind, all others by a rule, but for leaves."""
    tensors = {op for op in Ops if Stage.TENSOR in op.definition.stages}
    known = (
        {op for op in tensors if op.is_alu or op.is_movement}
        | lifted._SAME
        | {Ops.REDUCE_AXIS}
        | set(batch._RULES)
    )
    leaves = {Ops.CONST, Ops.BUFFER, Ops.RAND, Ops.DEFINE_VAR, Ops.BIND, Ops.SINK}
    assert tensors == known | leaves
    made = UOp(Ops.SINK, dtypes.void, (Tensor.empty(3).uop,))
    with pytest.raises(ShapeError, match="vmap: SINK has no rule for a batch"):
        batch.batched([made], {made.src[0]: Tensor.empty(2, 3).uop}, 2, lambda: made)


def test_python_functions() -> None:
    b = RANDOM.uniform(-1, 1, (4, 3))
    found = vmap(lambda row, add: row.apply(lambda x, y: np.sort(x) + y, add), (0, None))(
        Tensor(b), Tensor([10.0, 20.0, 30.0], dtype="float64")
    )
    np.testing.assert_allclose(found.numpy(), np.sort(b) + np.array([10, 20, 30]))


def test_assignment_inside() -> None:
    """Each example has a state of its own; what is realized stays a graph."""

    def function(x: Tensor) -> Tensor:
        state = Tensor.zeros(2).contiguous()
        state.assign(state + x).realize()
        state += x * 2
        return state

    assert vmap(function)(Tensor([1.0, 2.0])).tolist() == [[3.0, 3.0], [6.0, 6.0]]


def test_parts_written_inside() -> None:
    """By slices and by tensors, of a clone and of a new tensor; with derivatives."""

    def function(x: Tensor, at: Tensor) -> Tensor:
        one, two = x.clone(), Tensor.zeros(4)
        one[1:3] = x[0] * 2
        one[3] = one[1] * x[3]
        two[::2] = x[:2].flip(0)
        two[at] = x[3] * 10
        return one + two

    x, at = RANDOM.uniform(-1, 1, (3, 4)).astype("float32"), np.array([0, 3, 1], "int32")
    expected = np.zeros((3, 4), np.float32)
    for row, place, found in zip(x, at, expected):
        one = np.array([row[0], 2 * row[0], 2 * row[0], 2 * row[0] * row[3]])
        two = np.array([row[1], 0, row[0], 0])
        two[place] = row[3] * 10
        found[:] = one + two
    values = vmap(function)(Tensor(x), Tensor(at)).numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    slopes = vmap(jacrev(lambda x: function(x, Tensor([0]))))(Tensor(x)).numpy()
    others = vmap(jacfwd(lambda x: function(x, Tensor([0]))))(Tensor(x)).numpy()
    for row, slope in zip(x, slopes):
        wanted = np.zeros((4, 4))
        wanted[0, 0], wanted[0, 3], wanted[1, 0], wanted[2, 0] = 1, 10, 2, 3
        wanted[3, 0], wanted[3, 3] = 2 * row[3], 2 * row[0]
        np.testing.assert_allclose(slope, wanted, rtol=1e-6)
    np.testing.assert_allclose(others, slopes, rtol=1e-6)


def test_per_sample_gradients_of_layers() -> None:
    """Those of a batch of one, for each sample."""
    Tensor.manual_seed(1)
    first, second = nn.Linear(3, 4), nn.Linear(4, 2)
    x, y = Tensor(RANDOM.uniform(-1, 1, (5, 3)).astype("float32")), Tensor([0, 1, 1, 0, 1])
    weights = {"w": first.weight.detach(), "b": first.bias.detach()}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        hidden = (x @ weights["w"].T + weights["b"]).tanh()
        return -second(hidden).log_softmax()[y]

    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    assert {name: part.shape for name, part in found.items()} == {"w": (5, 4, 3), "b": (5, 4)}
    each = [grad(loss)(weights, x[number], y[number]) for number in (0, 4)]
    for number, one in zip((0, 4), each):
        for name, part in one.items():
            np.testing.assert_allclose(
                found[name][number].numpy(), part.numpy(), rtol=1e-4, atol=1e-6
            )


def test_models_of_many_weights() -> None:
    """Per sample and per model, by weights given from outside; the model stays as it was."""
    Tensor.manual_seed(2)
    models = [nn.Linear(2, 2) for _ in range(3)]
    Tensor.realize(*nn.state.get_parameters(models))
    kept = models[0].weight.uop
    x = Tensor([[1.0, -1.0], [0.5, 2.0]])
    weights = stack_module_state(models)
    found = vmap(functional_call, in_dims=(None, 0, None))(models[0], weights, x)
    np.testing.assert_allclose(
        found.numpy(), np.stack([model(x).numpy() for model in models]), rtol=1e-5, atol=1e-6
    )
    assert models[0].weight.uop is kept
    for message, wrong in (
        ("the model has no tensor 'w'", {"w": x}),
        (r"'weight' has shape \(2, 2\), not \(3, 2, 2\)", weights),
        ("'bias' is float32, not int32", {"bias": Tensor([1, 2])}),
    ):
        with pytest.raises(TilegradError, match=message):
            functional_call(models[0], wrong, x)
    assert models[0].weight.uop is kept
    for message, several in (("there is no model", []), ("different", [models[0], nn.ReLU()])):
        with pytest.raises(TilegradError, match=message):
            stack_module_state(several)


def test_second_derivatives_of_examples() -> None:
    x = RANDOM.uniform(-1, 1, (4, 2))
    found = vmap(hessian(lambda x: (x[0] * x[1]).sin()))(Tensor(x)).numpy()
    u, v = x.T
    s, c = np.sin(u * v), np.cos(u * v)
    mixed = c - u * v * s
    expected = np.stack([np.stack([-v * v * s, mixed], 1), np.stack([mixed, -u * u * s], 1)], 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    blocks = vmap(jacrev(lambda x: x * x))(Tensor(x)).numpy()
    np.testing.assert_allclose(blocks, 2 * x[:, :, None] * np.eye(2), rtol=1e-12)


def test_errors() -> None:
    x, outside = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([0.0]).contiguous().realize()
    kept = outside.uop

    def leaking(row: Tensor) -> Tensor:
        outside.assign(row[:1])
        return row

    def writing(row: Tensor) -> Tensor:
        row += 1
        return row

    add = Tensor.add
    refused: list[tuple[type[TilegradError], str, Callable[[], object]]] = [
        (DTypeError, "vmap: a Tensor is no function", lambda: vmap(x)),  # type: ignore[arg-type]
        (ShapeError, "vmap: nothing is mapped", lambda: vmap(Tensor.sin, None)(x)),
        (ShapeError, "vmap: nothing is mapped", lambda: vmap(abs)(3)),
        (ShapeError, "vmap: mapped sizes differ: 2 and 1", lambda: vmap(add)(x, outside)),
        (ShapeError, r"vmap: in_dims \(0, 0\) does not fit", lambda: vmap(Tensor.sin, (0, 0))(x)),
        (ShapeError, "vmap: an output that differs between", lambda: vmap(Tensor.sin, 0, None)(x)),
        (
            IndexError,
            r"vmap: argument 0 of shape \(2, 2\) has no axis 2",
            lambda: vmap(add, 2)(x, x),
        ),  # type: ignore[list-item]
        (IndexError, r"shape \(2,\) has no place 5", lambda: vmap(Tensor.sin, 0, 5)(x)),  # type: ignore[list-item]
        (DTypeError, "in_dims holds 'a', which is no axis", lambda: vmap(Tensor.sin, "a")(x)),
        (DTypeError, "vmap: the function gave an int", lambda: vmap(lambda row: 3)(x)),
        (TransformError, "randomness is 'own'", lambda: vmap(Tensor.sin, randomness="own")),
        (TransformError, "vmap: .* needs the value", lambda: vmap(lambda r: r[0].item())(x)),
        (TransformError, "vmap: .* needs the value", lambda: vmap(lambda r: r[r > 1])(x)),
        (TransformError, "vmap: .* needs the value", lambda: vmap(lambda r: np.sin(r.numpy()))(x)),
        (TransformError, "vmap: the function assigns to its arg", lambda: vmap(writing)(x)),
        (TransformError, "assigns what differs between exampl", lambda: vmap(leaking)(x)),
    ]
    for kind, message, action in refused:
        with pytest.raises(kind, match=message) as caught:
            action()
        assert "test_vmap.py" in str(caught.value)
    assert outside.uop is kept
    whole = Tensor([0.0, 0.0, 0.0]).realize()
    view = whole[1:]
    with pytest.raises(TransformError, match="assigns what differs between examples"):
        vmap(lambda row: whole.__setitem__(0, row[0]) or row)(x)  # type: ignore[func-returns-value]
    whole[1] = 5.0
    assert (whole.tolist(), view.tolist()) == ([0.0, 5.0, 0.0], [5.0, 0.0])
    kept_row: list[Tensor] = []
    vmap(lambda row: kept_row.append(row * 2) or row)(x)  # type: ignore[func-returns-value]
    with pytest.raises(TransformError, match="stood for a tensor while a function was mapped"):
        kept_row[0].tolist()
