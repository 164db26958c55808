"""Whole matrices of derivatives: both modes against differences, closed forms and each other."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from tests.grad.numeric import Array, evaluate
from tests.grad.programs import PROGRAMS, SECOND
from tilegrad import Tensor, Variable, jit
from tilegrad.base.errors import ShapeError
from tilegrad.func import grad, hessian, jacfwd, jacobian, jacrev, vmap
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

RANDOM = np.random.default_rng(11)
CUSTOM_FREE = [name for name in PROGRAMS if name != "constant"]


def leaves(name: str) -> tuple[list[Tensor], dict[UOp, Array]]:
    tensors = [Tensor.empty(*shape, dtype="float64") for shape in PROGRAMS[name][1]]
    return tensors, {tensor.uop: RANDOM.uniform(-2, 2, tensor.shape) for tensor in tensors}


def differences(node: UOp, by: UOp, values: dict[UOp, Array], step: float = 1e-6) -> Array:
    """The Jacobian by central differences."""
    at = values[by]
    columns = []
    for index in np.ndindex(at.shape):
        way = np.zeros_like(at)
        way[index] = step
        sides = [evaluate(node, {**values, by: at + sign * way}) for sign in (1, -1)]
        columns.append((sides[0] - sides[1]) / (2 * step))
    return np.stack(columns, -1).reshape((*node.shape, *at.shape))


@pytest.mark.parametrize("name", CUSTOM_FREE)
def test_both_modes_give_all_derivatives(name: str) -> None:
    function = PROGRAMS[name][0]
    tensors, values = leaves(name)
    every = tuple(range(len(tensors)))
    value = function(*tensors)
    for made, other, by in zip(
        jacrev(function, every)(*tensors), jacfwd(function, every)(*tensors), tensors
    ):
        assert made.shape == other.shape == (*value.shape, *by.shape)
        expected = differences(value.uop, by.uop, values)
        for one in (made, other):
            found = evaluate(one.uop, values)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SECOND)
def test_hessians(name: str) -> None:
    """Symmetric, and the differences of the gradient."""
    function, shapes = PROGRAMS[name]
    tensors, values = leaves(name)

    def loss(*args: Tensor) -> Tensor:
        return function(*args).sin().sum()

    slope = grad(loss)(*tensors)
    found = evaluate(hessian(loss)(*tensors).uop, values)
    assert found.shape == shapes[0] * 2
    expected = differences(slope.uop, tensors[0].uop, values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    size = tensors[0].uop.shape
    square = found.reshape(int(np.prod(size)), -1)
    np.testing.assert_allclose(square, square.T, rtol=1e-9, atol=1e-12)


def test_hessian_of_a_small_network() -> None:
    """Of the mean loss of a layer and a softmax, by its weights, compiled: closed form."""
    x = RANDOM.normal(size=(6, 3))
    y = RANDOM.integers(0, 2, 6)
    w = RANDOM.normal(size=(3, 2))

    def loss(w: Tensor) -> Tensor:
        scores = Tensor(x) @ w
        return scores.sparse_categorical_crossentropy(Tensor(y.astype("int32")))

    found = hessian(loss)(Tensor(w)).numpy()
    p = np.exp(x @ w)
    p /= p.sum(1, keepdims=True)
    middle = p[:, :, None] * np.eye(2) - p[:, :, None] * p[:, None, :]
    expected = np.einsum("bi,bj,bkl->ikjl", x, x, middle) / 6
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_hessian_of_two_layers() -> None:
    """Structured arguments: blocks by pairs of weights, each the transpose of its mirror image."""
    weights = {
        "first": Tensor(RANDOM.normal(size=(2, 3))),
        "second": Tensor(RANDOM.normal(size=(3,))),
    }
    x = Tensor(RANDOM.normal(size=(4, 2)))

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return ((x @ weights["first"]).tanh() @ weights["second"]).square().mean()

    blocks = hessian(loss)(weights)
    values: dict[str, Array] = {
        f"{one} {other}": blocks[one][other].numpy() for one in blocks for other in blocks[one]
    }
    assert {name: block.shape for name, block in values.items()} == {
        "first first": (2, 3, 2, 3),
        "first second": (2, 3, 3),
        "second first": (3, 2, 3),
        "second second": (3, 3),
    }
    mixed = values["second first"].transpose(1, 2, 0)
    np.testing.assert_allclose(values["first second"], mixed, rtol=1e-9)
    hidden = np.tanh(x.numpy() @ weights["first"].numpy())
    np.testing.assert_allclose(values["second second"], hidden.T @ hidden / 2, rtol=1e-9)


def test_through_factorisations() -> None:
    """Kernels written by hand, in both modes: d(A^-1) = -A^-1 dA A^-1."""
    a = RANDOM.uniform(-1, 1, (2, 2)) + 2 * np.eye(2)
    inverse = np.linalg.inv(a)
    expected = -np.einsum("ik,lj->ijkl", inverse, inverse)
    for mode in (jacrev, jacfwd):
        found = mode(lambda a: a.inv())(Tensor(a)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_second_derivatives_of_spectra() -> None:
    """The sum of squares of eigenvalues, or of singular values, is that of the elements."""
    a = RANDOM.uniform(-1, 1, (2, 2))
    same = np.einsum("ik,jl->ijkl", np.eye(2), np.eye(2))
    for function, expected in (
        (lambda a: (a + a.T).eigh()[0].square().sum(), 4 * (same + same.transpose(0, 1, 3, 2))),
        (lambda a: a.svd()[1].square().sum(), 2 * same),
    ):
        found = hessian(function)(Tensor(a)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_structures() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([3.0])

    def function(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"product": x * y, "x": x, "one": Tensor.ones(2)}

    for mode in (jacrev, jacfwd):
        found = mode(function, (0, 1))(x, y)
        values = {name: [part.tolist() for part in parts] for name, parts in found.items()}
        assert values == {
            "product": [[[3, 0], [0, 3]], [[1], [2]]],
            "x": [[[1, 0], [0, 1]], [[0], [0]]],
            "one": [[[0, 0], [0, 0]], [[0], [0]]],
        }
    (only,) = jacobian(lambda x: (x * 2,))(x)
    assert only.tolist() == [[2, 0], [0, 2]]
    made, aux = jacrev(lambda x: (x * x, {"sum": x.sum()}), has_aux=True)(x)
    assert (made.tolist(), aux["sum"].item()) == ([[2, 0], [0, 4]], 3.0)


def test_rows_are_one_batch() -> None:
    """No loop over rows: the graph has one product for each that one gradient has."""
    x, w = Tensor.empty(50), Tensor.empty(50, 40)

    def function(x: Tensor) -> Tensor:
        return (x @ w).tanh()

    found = jacrev(function)(x).uop.toposort()
    one = (function(x) * Tensor.empty(40)).sum().gradient(x)[0].uop.toposort()
    count = [sum(node.op is Ops.REDUCE_AXIS for node in nodes) for nodes in (found, one)]
    assert count[0] <= count[1] + 1
    assert len(found) < 2 * len(one)


def test_in_a_capture() -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return hessian(lambda x: (x * x * x).sum())(x).realize()

    for number in range(4):
        x = Tensor([1.0, 2.0 + number]).realize()
        assert step(x).tolist() == [[6.0, 0.0], [0.0, 12.0 + 6.0 * number]]


def test_of_a_batch() -> None:
    x = RANDOM.uniform(-1, 1, (4, 3))
    found = vmap(jacfwd(lambda row: row * row.sum()))(Tensor(x)).numpy()
    expected = x[:, :, None] + x.sum(1)[:, None, None] * np.eye(3)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_errors() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    n = Variable("n", 1, 4).bind(2)
    for mode in (jacrev, jacfwd):
        with pytest.raises(ShapeError, match=r"needs sizes that are numbers, not \(n,\)"):
            mode(lambda x: x * 2)(x[:n])
        with pytest.raises(TypeError, match=f"{mode.__name__}: the output is int32"):
            mode(lambda x: x.cast("int32"))(x)


@pytest.mark.parametrize("module", ["derivatives", "mapping", "module_functions", "recompute"])
def test_examples_in_docstrings_run(module: str) -> None:
    found = importlib.import_module(f"tilegrad.func.{module}")
    runner = doctest.DocTestRunner()
    for each in doctest.DocTestFinder(recurse=False).find(found):
        runner.run(each)
    for name in found.__all__:
        (example,) = doctest.DocTestFinder(recurse=False).find(
            getattr(found, name), name, globs={"Tensor": Tensor}
        )
        assert example.examples, name
        runner.run(example)
    assert not runner.failures
