"""Whole graphs: shared nodes, long chains, what depends on what, and whose line a node bears."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grad.numeric import check, evaluate, leaf, ones, total
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, InternalError, ShapeError
from tilegrad.grad import gradients
from tilegrad.grad.rules import DERIVATIVES
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, Variable

MOVEMENT = {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP}


def expand(x: UOp, *shape: int) -> UOp:
    return UOp(Ops.EXPAND, x.dtype, (x,), shape)


def reshape(x: UOp, *shape: int) -> UOp:
    return UOp(Ops.RESHAPE, x.dtype, (x,), shape)


def permute(x: UOp, *axes: int) -> UOp:
    return UOp(Ops.PERMUTE, x.dtype, (x,), axes)


def reduce(x: UOp, *axes: int, op: Ops = Ops.ADD) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (op, axes))


def shrink(x: UOp, *window: tuple[int, int]) -> UOp:
    return UOp(Ops.SHRINK, x.dtype, (x,), window)


def windows(x: UOp, kernel: int) -> UOp:
    """All stretches of `kernel` elements of the last axis, one after another, by movement alone.

    The row is repeated often enough that, cut into pieces one longer than the row, each piece
    begins one element later.
    """
    *lead, size = x.shape
    full = tuple((0, extent) for extent in lead)
    copies = expand(reshape(x, *lead, 1, size), *lead, kernel + 1, size)
    repeated = shrink(reshape(copies, *lead, (kernel + 1) * size), *full, (0, kernel * (size + 1)))
    pieces = reshape(repeated, *lead, kernel, size + 1)
    starts = shrink(pieces, *full, (0, kernel), (0, size - kernel + 1))
    return permute(starts, *range(len(lead)), len(lead) + 1, len(lead))


def convolution(x: UOp, w: UOp) -> UOp:
    """Images (N, C, H, W) with filters (O, C, K, K)."""
    n, c, *_ = x.shape
    o, _, k, _ = w.shape
    rows = windows(permute(windows(x, k), 0, 1, 3, 4, 2), k)  # (N, C, W', KW, H', KH)
    width, height = rows.shape[2], rows.shape[4]
    patches = reshape(permute(rows, 0, 4, 2, 1, 5, 3), n, 1, height, width, c, k, k)
    filters = reshape(w, 1, o, 1, 1, c, k, k)
    full = (n, o, height, width, c, k, k)
    products = expand(patches, *full) * expand(filters, *full)
    return reshape(reduce(products, 4, 5, 6), n, o, height, width)


def test_convolution_and_its_second_derivatives() -> None:
    random = np.random.default_rng(0)
    x, w = leaf(2, 2, 4, 4), leaf(3, 2, 3, 3)
    values = {x: random.normal(size=(2, 2, 4, 4)), w: random.normal(size=(3, 2, 3, 3))}
    check(convolution(x, w), values, order=2)


def test_backward_of_a_convolution_has_no_scatter() -> None:
    x, w = leaf(2, 2, 6, 6), leaf(3, 2, 3, 3)
    y = convolution(x, w)
    for made in gradients(y, ones(y), [x, w]):
        assert made is not None
        ops = {node.op for node in made.toposort()}
        assert ops <= MOVEMENT | {Ops.BUFFER, Ops.CONST, Ops.ADD, Ops.MUL, Ops.REDUCE_AXIS}


def test_a_chain_of_20000_nodes() -> None:
    x = leaf(4)
    y = x
    for i in range(20_000):
        y = y * (1.0 + 1e-5 * (i % 7)) if i % 2 else y + x
    (found,) = gradients(total(y), UOp.const(x.dtype, 1.0), [x])
    assert found is not None
    at = np.arange(4.0)
    slope = 1.0
    for i in range(20_000):
        slope = slope * (1.0 + 1e-5 * (i % 7)) if i % 2 else slope + 1.0
    np.testing.assert_allclose(evaluate(found, {x: at}), np.full(4, slope))


def test_a_ladder_of_shared_nodes_stays_linear() -> None:
    """Each step doubles the number of paths; the gradient's graph grows by a few nodes."""
    x = leaf(1)
    y = x
    for _ in range(200):
        y = y + y * 0.001
    (found,) = gradients(y, ones(y), [x])
    assert found is not None
    assert len(found.toposort()) < 1000
    np.testing.assert_allclose(evaluate(found, {x: np.ones(1)}), 1.001**200)


def test_targets_in_the_middle_of_the_graph() -> None:
    x = leaf(3)
    y = x * 2.0
    z = total(y * y)
    of_x, of_y, of_z = gradients(z, UOp.const(z.dtype, 1.0), [x, y, z])
    assert of_x is not None
    assert of_y is not None
    assert of_z is not None
    values = {x: np.arange(3.0)}
    np.testing.assert_array_equal(evaluate(of_y, values), 4 * values[x])
    np.testing.assert_array_equal(evaluate(of_x, values), 8 * values[x])
    assert float(evaluate(of_z, values)) == 1.0


def test_nothing_flows_to_what_the_loss_does_not_need() -> None:
    x, other = leaf(3), leaf(3)
    rows = leaf(3, dtype=dtypes.int32)
    picked = UOp(Ops.GATHER, x.dtype, (x, rows))
    assert gradients(picked, ones(picked), [other, rows]) == [None, None]


def test_parts_that_no_target_needs_are_not_derived() -> None:
    x, w = leaf(3), leaf(3)
    expensive = UOp(Ops.SIN, x.dtype, (x,))
    (found,) = gradients(total(expensive * w), UOp.const(w.dtype, 1.0), [w])
    assert found is not None
    assert sum(node.op is Ops.SIN for node in found.toposort()) == 1


def test_the_seed_is_what_the_rest_passes_down() -> None:
    x, seed = leaf(3), leaf(3)
    (found,) = gradients(x * x, seed, [x])
    assert found is not None
    values = {x: np.array([1.0, 2.0, 3.0]), seed: np.array([5.0, 7.0, 11.0])}
    np.testing.assert_array_equal(evaluate(found, values), [10.0, 28.0, 66.0])


def test_what_backward_makes_bears_the_forward_line() -> None:
    """The nodes that a rule makes have the origin of the node that it derives, and no other."""
    x = leaf(3)
    y = UOp(Ops.SIN, x.dtype, (x,))
    y.origin = (("sine",),)
    z = y * y
    z.origin = (("square",),)
    (found,) = gradients(total(z), UOp.const(x.dtype, 1.0), [x])
    assert found is not None
    assert found.origin == (("sine",),)
    assert found.src[0].origin == (("square",),)
    assert x.origin == ()


def test_symbolic_sizes() -> None:
    """Sizes stay nodes, and come out in the form that the forward graph has."""
    n = Variable("n", 1, 8)
    buffer = leaf(8).src[0]
    x = UOp(
        Ops.RESHAPE, buffer.dtype, (UOp(Ops.SHRINK, buffer.dtype, (buffer,), ((0, n),)),), (n, 1)
    )
    y = UOp(Ops.EXPAND, x.dtype, (x,), (n, 3))
    loss = reduce(UOp(Ops.PAD, x.dtype, (y * y,), ((1, 2), (0, 0))), 0, 1)
    (found,) = gradients(loss, UOp.const(x.dtype, 1.0), [x])
    assert found is not None
    assert found.shape == x.shape


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.bool])
def test_integers_have_no_gradient(dtype: object) -> None:
    x = leaf(3, dtype=dtype)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"^backward: an? (int32|bool) tensor has no gradient"):
        gradients(x, x, [x])


def test_a_seed_of_another_dtype() -> None:
    x = leaf(3)
    with pytest.raises(DTypeError, match="the gradient is float32, the tensor float64"):
        gradients(x, UOp.const(dtypes.float32, 1.0), [x])


def test_a_seed_of_another_shape() -> None:
    x = leaf(3)
    with pytest.raises(ShapeError, match=r"the gradient has shape \(4,\), the tensor \(3,\)"):
        gradients(x, leaf(4), [x])


def test_an_op_without_a_rule_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(3)
    y = UOp(Ops.SIN, x.dtype, (x,))
    monkeypatch.delitem(DERIVATIVES, Ops.SIN)
    with pytest.raises(InternalError, match=r"grad: no rule for Ops\.SIN"):
        gradients(y, ones(y), [x])
