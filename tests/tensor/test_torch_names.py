"""Methods under PyTorch's names, beside NumPy and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, ShapeError

RANDOM = np.random.default_rng(5)
A = RANDOM.standard_normal((3, 4))
B = RANDOM.standard_normal((4, 3))
V = RANDOM.standard_normal(4)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30])
x, b, v, edges = Tensor(A), Tensor(B), Tensor(V), Tensor(EDGES)
ids = Tensor([2, 0])


def copied(axis: int, places: list[int], source: Any) -> Any:
    made = A.copy()
    made[(slice(None),) * axis + (places,)] = source
    return made


# What is computed, and NumPy's value of it.
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "sum dim": (lambda: x.sum(dim=1), lambda: A.sum(1)),
    "softmax dim": (
        lambda: x.softmax(dim=0),
        lambda: np.exp(A) / np.exp(A).sum(0),
    ),
    "var unbiased": (lambda: x.var(dim=0, unbiased=False), lambda: A.var(0)),
    "std_mean": (lambda: x.std_mean(dim=1)[0], lambda: A.std(1, ddof=1)),
    "cumsum dim": (lambda: x.cumsum(dim=1), lambda: A.cumsum(1)),
    "atan2": (
        lambda: edges.reshape(8, 1).atan2(edges),
        lambda: np.arctan2(EDGES[:, None], EDGES),
    ),
    "hypot": (
        lambda: (x * 1e200).hypot(x[::-1] * 1e200),
        lambda: np.hypot(A * 1e200, A[::-1] * 1e200),
    ),
    "sinc": (lambda: edges[:4].sinc(), lambda: np.sinc(EDGES[:4]).round(15)),
    "deg2rad": (lambda: x.deg2rad().rad2deg(), lambda: A),
    "logit": (lambda: x.sigmoid().logit(), lambda: A),
    "xlogy": (lambda: edges.xlogy(Tensor([0.0] * 8).double())[:2], lambda: np.zeros(2)),
    "nan_to_num": (lambda: edges.nan_to_num(), lambda: np.nan_to_num(EDGES)),
    "heaviside": (lambda: edges.heaviside(0.5), lambda: np.heaviside(EDGES, 0.5)),
    "signbit": (lambda: edges.signbit(), lambda: np.signbit(EDGES)),
    "isposinf": (lambda: edges.isposinf(), lambda: np.isposinf(EDGES)),
    "isneginf": (lambda: edges.isneginf(), lambda: np.isneginf(EDGES)),
    "frac": (lambda: (x * 3).frac(), lambda: A * 3 - np.trunc(A * 3)),
    "fmax": (lambda: edges.fmax(edges.flip(0)), lambda: np.fmax(EDGES, EDGES[::-1])),
    "fmin": (lambda: edges.fmin(edges.flip(0)), lambda: np.fmin(EDGES, EDGES[::-1])),
    "logaddexp2": (lambda: x.logaddexp2(x * 2), lambda: np.logaddexp2(A, A * 2)),
    "addcmul": (lambda: x.addcmul(x, x, value=2), lambda: A + 2 * A * A),
    "addcdiv": (lambda: x.addcdiv(x, x + 9, value=2), lambda: A + 2 * A / (A + 9)),
    "logical_and": (lambda: x.logical_and(x > 0), lambda: np.logical_and(A, A > 0)),
    "logical_or": (lambda: (x < -1).logical_or(x > 1), lambda: (A < -1) | (A > 1)),
    "logical_xor": (lambda: (x < 1).logical_xor(x > -1), lambda: (A < 1) ^ (A > -1)),
    "isin": (lambda: Tensor([1, 5, 3]).isin([3, 1], invert=True), lambda: [False, True, False]),
    "softshrink": (
        lambda: x.softshrink(),
        lambda: np.sign(A) * np.maximum(np.abs(A) - 0.5, 0),
    ),
    "hardshrink": (lambda: x.hardshrink(), lambda: np.where(np.abs(A) > 0.5, A, 0)),
    "amax": (lambda: x.amax((0, 1)), lambda: A.max()),
    "aminmax": (lambda: x.aminmax(dim=1)[0], lambda: A.min(1)),
    "nansum": (lambda: edges[6:].nansum(), lambda: 1e-30),
    "nanmean": (lambda: edges[6:].nanmean(), lambda: 1e-30),
    "count_nonzero": (lambda: edges.count_nonzero(), lambda: np.count_nonzero(EDGES)),
    "kthvalue": (lambda: x.kthvalue(2, 1).values, lambda: np.sort(A, 1)[:, 1]),
    "median of odd": (lambda: x.median(0).values, lambda: np.median(A, 0)),
    "median place": (lambda: x.median(0).indices, lambda: np.argsort(A, 0)[1]),
    "median of nan": (lambda: edges.median(), lambda: np.nan),
    "quantile": (
        lambda: x.quantile([0.1, 0.75], dim=1, keepdim=True),
        lambda: np.quantile(A, [0.1, 0.75], axis=1, keepdims=True),
    ),
    "quantile nearest": (
        lambda: x.quantile(0.3, interpolation="midpoint"),
        lambda: np.quantile(A, 0.3, method="midpoint"),
    ),
    "histc": (lambda: x.histc(5, -2, 2), lambda: np.histogram(A, 5, (-2, 2))[0]),
    "cov": (lambda: x.cov(), lambda: np.cov(A)),
    "corrcoef": (lambda: x.corrcoef(), lambda: np.corrcoef(A)),
    "diff": (lambda: x.diff(2), lambda: np.diff(A, 2)),
    "diff append": (
        lambda: x.diff(dim=0, prepend=x[:1]),
        lambda: np.diff(A, axis=0, prepend=A[:1]),
    ),
    "trapezoid": (lambda: x.trapezoid(v), lambda: np.trapezoid(A, V)),
    "cdist": (
        lambda: x.cdist(b.T),
        lambda: np.linalg.norm(A[:, None] - B.T[None], axis=-1),
    ),
    "dist": (lambda: x.dist(x * 2, 1), lambda: np.abs(A).sum()),
    "renorm": (
        lambda: x.renorm(2, 0, 1.0),
        lambda: A * np.minimum(1, 1 / (np.linalg.norm(A, axis=1, keepdims=True) + 1e-7)),
    ),
    "sum_to_size": (lambda: x.sum_to_size(1, 4), lambda: A.sum(0, keepdims=True)),
    "t": (lambda: x.t(), lambda: A.T),
    "mT": (lambda: x.mT, lambda: A.T),
    "rot90": (lambda: x.rot90(), lambda: np.rot90(A)),
    "rot90 back": (lambda: x.rot90(-1), lambda: np.rot90(A, -1)),
    "fliplr": (lambda: x.fliplr().flipud(), lambda: A[::-1, ::-1]),
    "diag_embed": (lambda: v.diag_embed(), lambda: np.diag(V)),
    "select": (lambda: x.select(1, -1), lambda: A[:, -1]),
    "tensor_split": (lambda: x.tensor_split(3, 1)[0], lambda: np.array_split(A, 3, 1)[0]),
    "tensor_split at": (lambda: x.hsplit([1, 3])[1], lambda: np.hsplit(A, [1, 3])[1]),
    "take_along_dim": (
        lambda: x.take_along_dim(x.argsort(1), 1),
        lambda: np.sort(A, 1),
    ),
    "index_add": (
        lambda: x.index_add(0, ids, x[:2], alpha=2),
        lambda: copied(0, [2, 0], A[[2, 0]] + 2 * A[:2]),
    ),
    "index_copy": (lambda: x.index_copy(0, ids, x[:2]), lambda: copied(0, [2, 0], A[:2])),
    "index_fill": (lambda: x.index_fill(1, ids, 7.0), lambda: copied(1, [2, 0], 7)),
    "select_scatter": (
        lambda: x.select_scatter(v * 2, 0, -1),
        lambda: copied(0, [2], V * 2),
    ),
    "slice_scatter": (
        lambda: x.slice_scatter(x[:, :2], 1, 0, 4, 2),
        lambda: copied(1, [0, 2], A[:, :2]),
    ),
    "logspace": (lambda: Tensor.logspace(0, 2, 5), lambda: np.logspace(0, 2, 5)),
    "tril_indices": (lambda: Tensor.tril_indices(3, 4, 1), lambda: np.tril_indices(3, 1, 4)),
    "triu_indices": (lambda: Tensor.triu_indices(3, 4, -1), lambda: np.triu_indices(3, -1, 4)),
    "hstack": (lambda: Tensor.hstack([x, x]), lambda: np.hstack([A, A])),
    "vstack": (lambda: Tensor.vstack(v, x), lambda: np.vstack([V, A])),
    "cat of a list": (lambda: Tensor.cat([x, x], 1), lambda: np.concatenate([A, A], 1)),
    "stack of a list": (lambda: Tensor.stack([v, v], dim=1), lambda: np.stack([V, V], 1)),
    "cartesian_prod": (
        lambda: Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])),
        lambda: [[1, 3], [1, 4], [2, 3], [2, 4]],
    ),
    "meshgrid": (lambda: v.meshgrid(v * 2)[1], lambda: np.meshgrid(V, V * 2, indexing="ij")[1]),
    "broadcast_tensors": (
        lambda: Tensor.broadcast_tensors(x, v)[1],
        lambda: np.broadcast_to(V, (3, 4)),
    ),
    "mm": (lambda: x.mm(b), lambda: A @ B),
    "bmm": (lambda: x.unsqueeze(0).bmm(b.unsqueeze(0)), lambda: (A @ B)[None]),
    "mv": (lambda: x.mv(v), lambda: A @ V),
    "inner": (lambda: x.inner(x), lambda: np.inner(A, A)),
    "tensordot": (
        lambda: x.tensordot(b, ([1, 0], [0, 1])),
        lambda: np.tensordot(A, B, ([1, 0], [0, 1])),
    ),
    "addmm": (lambda: v[:3].addmm(x, b, beta=2, alpha=3), lambda: 2 * V[:3] + 3 * A @ B),
    "addmm of nan": (lambda: edges[6].addmm(x, b, beta=0), lambda: A @ B),
    "addbmm": (
        lambda: x[:, :3].addbmm(x.reshape(1, 3, 4), b.reshape(1, 4, 3)),
        lambda: A[:, :3] + A @ B,
    ),
    "addr": (lambda: x.addr(v[:3], v), lambda: A + np.outer(V[:3], V)),
    "logdet": (lambda: (x @ x.T).logdet(), lambda: np.linalg.slogdet(A @ A.T)[1]),
    "matrix_exp": (
        lambda: Tensor([[0.0, -1.0], [1.0, 0.0]]).double().mul(math.pi / 3).matrix_exp(),
        lambda: [[0.5, -math.sqrt(0.75)], [math.sqrt(0.75), 0.5]],
    ),
    "matrix_exp of large": (
        lambda: Tensor([[-30.0, 1.0], [0.0, -30.0]]).double().matrix_exp(),
        lambda: [[math.exp(-30), math.exp(-30)], [0, math.exp(-30)]],
    ),
    "to dtype": (lambda: x.to(dtypes.int32), lambda: A.astype(np.int32)),
    "new_full": (lambda: x.new_full((2,), 3), lambda: np.full(2, 3.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    made, expected = (each() for each in CASES[name])
    found = made.numpy()
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if found.dtype == np.float32 else 1e-12)


POINTS = [-170.3, -3.7, -0.5, 1e-8, 0.3, 1.0, 1.5, 2.0, 9.99, 10.0, 33.3, 1e6]
FAR = [-5.9, -1.0, -0.2, 0.0, 0.5, 1.0, 1.01, 3.0, 5.99, 6.01, 10.0, 26.0]


@pytest.mark.parametrize(("dtype", "within"), [("float32", 3e-7), ("float64", 2e-13)])
def test_functions_of_the_standard_library(dtype: str, within: float) -> None:
    points, far = np.array(POINTS, dtype), np.array(FAR if dtype == "float64" else FAR[:-2], dtype)
    np.testing.assert_allclose(
        Tensor(points).lgamma().numpy(), [math.lgamma(p) for p in points.tolist()], within, within
    )
    np.testing.assert_allclose(
        Tensor(far).erfc().numpy(), [math.erfc(p) for p in far.tolist()], max(within, 5e-13)
    )
    # digamma as the slope of lgamma, of the standard library; far from the poles.
    step = 1e-4
    some = points[4:-1].tolist()
    slopes = [(math.lgamma(p + step) - math.lgamma(p - step)) / (2 * step) for p in some]
    np.testing.assert_allclose(Tensor(points[4:-1]).digamma().numpy(), slopes, 1e-6, 1e-6)
    assert Tensor(points[:1]).digamma().item() == pytest.approx(
        math.log(171.3) - 1 / 342.6 - 1 / (12 * 171.3**2) + math.pi / math.tan(math.pi * 171.3),
        rel=1e-3 if dtype == "float32" else 1e-9,
    )
    inside = np.array([-0.999, -0.5, 0.0, 1e-9, 0.3, 0.9999], dtype)
    back = [math.erf(p) for p in Tensor(inside).erfinv().double().tolist()]
    np.testing.assert_allclose(back, inside.astype(float), 1e-6 if dtype == "float32" else 1e-14)
    assert Tensor([1.0, -1.0]).erfinv().tolist() == [math.inf, -math.inf]
    assert Tensor([0.0, -1.0]).lgamma().tolist() == [math.inf, math.inf]


def test_gradients_of_special_functions() -> None:
    y = Tensor([0.3, 2.5], dtype="float64", requires_grad=True)
    for function in (Tensor.lgamma, Tensor.erfc, lambda t: (t * 0.3).erfinv(), Tensor.sinc):
        (slope,) = function(y).sum().gradient(y)
        step = 1e-6
        ends = [function(y.detach() + side).numpy() for side in (step, -step)]
        np.testing.assert_allclose(slope.numpy(), (ends[0] - ends[1]) / (2 * step), 1e-7)


def test_what_ends_in_an_underscore_writes_the_tensor() -> None:
    y = Tensor([1.0, 2.0]).realize()
    before = y + 0
    assert y.add_(1) is y and y.mul_(2).clamp_(max=5).tolist() == [4.0, 5.0]
    assert before.tolist() == [1.0, 2.0]
    assert y.fill_(3).tolist() == [3.0, 3.0] and y.zero_().tolist() == [0.0, 0.0]
    assert y.copy_(Tensor([7])).tolist() == [7.0, 7.0]
    assert Tensor.zeros(2, 2).contiguous().fill_diagonal_(1.0).tolist() == [[1, 0], [0, 1]]
    places = Tensor([1])
    assert Tensor([1, 2]).index_fill_(0, places, 9).tolist() == [1, 9]
    drawn = Tensor.zeros(1000).contiguous().uniform_(2, 3).numpy()
    assert 2 <= drawn.min() < 2.1 and 2.9 < drawn.max() < 3
    assert Tensor.zeros(1000).contiguous().bernoulli_(1.0).sum().item() == 1000
    assert Tensor.add_.__name__ == "add_" and "add" in (Tensor.add_.__doc__ or "")


def test_both_names_of_an_axis_are_one_too_many() -> None:
    with pytest.raises(TypeError, match=r"sum\(\) got both 'axis' and 'dim'"):
        x.sum(axis=0, dim=0)


def test_a_condition_in_the_wrong_place_is_told() -> None:
    with pytest.raises(DTypeError, match="where: the condition is float, and what to choose is"):
        x.where(x > 0, 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: x.mm(v), r"mm: \(3, 4\) and \(4,\) have not 2 and 2 axes"),
        (lambda: x.kthvalue(5), "kthvalue: k is 5, of 4 elements"),
        (lambda: x.quantile(1.5), r"quantile: shares \[1.5\] of 12 elements"),
        (lambda: x.unsqueeze(0).t(), r"t: a matrix is needed, not \(1, 3, 4\)"),
        (lambda: x.sum_to_size(3), r"sum_to_size: \(3,\) does not broadcast to \(3, 4\)"),
        (lambda: x.index_add(0, ids, x), r"index_add: an index of \(2,\) along axis 0"),
        (lambda: x.cdist(x[:, :2]), r"cdist: rows of \(3, 4\) and \(3, 2\) differ"),
        (lambda: Tensor.cat([]), "cat: there is no tensor in the list"),
    ],
)
def test_wrong_shapes(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        wrong()


def test_keepdims_stands_for_keepdim() -> None:
    """As NumPy spells it, which PyTorch takes too: `transformers` does in its beam search."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    for name in ("all", "any", "sum", "max", "mean"):
        found = getattr(Tensor(values), name)(axis=1, keepdims=True).numpy()
        np.testing.assert_allclose(found, getattr(values, name)(axis=1, keepdims=True))
    with pytest.raises(TypeError, match=r"sum\(\) got both 'keepdim' and 'keepdims'"):
        Tensor(values).sum(axis=1, keepdim=True, keepdims=True)
