"""Losses of margins, distances and distributions: values and gradients against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError

Array = npt.NDArray[Any]
rng = np.random.default_rng(0)
X, Y, Z = rng.normal(size=(3, 4, 5))
SIGNS = np.where(rng.normal(size=(4, 5)) > 0, 1.0, -1.0)
ZEROS_ONES = (SIGNS + 1) / 2
COUNTS = np.arange(20.0).reshape(4, 5) % 7
CLASSES = np.array([1, 4, 0, 1])
WEIGHT = rng.uniform(0.5, 2, size=5)
LABELS = np.array([[3, 0, -1, 1, 2], [-1, 4, 1, 2, 3], [0, 1, 2, 3, 4], [2, -1, -1, -1, -1]])


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def distance(a: Array, b: Array, p: float = 2.0, eps: float = 1e-6) -> Array:
    return np.asarray((np.abs(a - b + eps) ** p).sum(-1) ** (1 / p))


def cosine(a: Array, b: Array) -> Array:
    return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))


def multi_margin(x: Array, p: int, margin: float) -> Array:
    rows = []
    for row, y in zip(x, CLASSES):
        short = [max(0, margin - row[y] + row[i]) ** p for i in range(5) if i != y]
        rows.append(WEIGHT[y] * sum(short) / 5)
    return np.array(rows)


def multilabel(x: Array) -> Array:
    rows = []
    for row, labels in zip(x, LABELS.tolist()):
        own = labels[: labels.index(-1)] if -1 in labels else labels
        others = [i for i in range(5) if i not in own]
        rows.append(sum(max(0, 1 - row[t] + row[i]) for t in own for i in others) / 5)
    return np.array(rows)


def logistic(x: Array) -> Array:
    return np.log1p(np.exp(-x))


def stirling(n: Array) -> Array:
    safe = np.maximum(n, 1)
    return np.where(n > 1, safe * np.log(safe) - safe + np.log(2 * math.pi * safe) / 2, 0)


def swapped(x: Array) -> Array:
    far = np.minimum(distance(x, Z), distance(Y, Z))
    return relu(distance(x, Y) - far + 1.5)


# The module, what it is given beside X, and what NumPy gives for it.
LOSSES: list[tuple[Any, tuple[Any, ...], Callable[[Array], Array]]] = [
    (nn.MarginRankingLoss(0.3), (Y, SIGNS), lambda x: relu(0.3 - SIGNS * (x - Y))),
    (nn.HingeEmbeddingLoss(1.5), (SIGNS,), lambda x: np.where(SIGNS > 0, x, relu(1.5 - x))),
    (nn.SoftMarginLoss(), (SIGNS,), lambda x: logistic(SIGNS * x)),
    (nn.TripletMarginLoss(1.5, swap=True), (Y, Z), swapped),
    (
        nn.TripletMarginLoss(2.0, 3.0),
        (Y, Z),
        lambda x: relu(distance(x, Y, 3) - distance(x, Z, 3) + 2),
    ),
    (
        nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1)),
        (Y, Z),
        lambda x: relu(np.abs(x - Y).sum(-1) - np.abs(x - Z).sum(-1) + 1),
    ),
    (
        nn.CosineEmbeddingLoss(0.1),
        (Y, SIGNS[:, 0]),
        lambda x: np.where(SIGNS[:, 0] > 0, 1 - cosine(x, Y), relu(cosine(x, Y) - 0.1)),
    ),
    (nn.MultiMarginLoss(1, 1.0, WEIGHT), (CLASSES,), lambda x: multi_margin(x, 1, 1.0)),
    (nn.MultiMarginLoss(2, 0.5, WEIGHT), (CLASSES,), lambda x: multi_margin(x, 2, 0.5)),
    (nn.MultiLabelMarginLoss(), (LABELS,), multilabel),
    (
        nn.MultiLabelSoftMarginLoss(WEIGHT),
        (ZEROS_ONES,),
        lambda x: (WEIGHT * logistic(SIGNS * x)).mean(-1),
    ),
    (nn.PoissonNLLLoss(), (COUNTS,), lambda x: np.exp(x) - COUNTS * x),
    (
        nn.PoissonNLLLoss(full=True),
        (COUNTS,),
        lambda x: np.exp(x) - COUNTS * x + stirling(COUNTS),
    ),
    (
        nn.GaussianNLLLoss(full=True),
        (Y, np.abs(Z)),
        lambda x: (np.log(np.abs(Z)) + (x - Y) ** 2 / np.abs(Z) + math.log(2 * math.pi)) / 2,
    ),
    (
        nn.GaussianNLLLoss(eps=2.0),
        (Y, np.ones(4)),
        lambda x: (math.log(2) + (x - Y) ** 2 / 2) / 2,
    ),
    (nn.KLDivLoss(), (np.abs(Z),), lambda x: np.abs(Z) * (np.log(np.abs(Z)) - x)),
    (nn.KLDivLoss(log_target=True), (Z,), lambda x: np.exp(Z) * (Z - x)),
]


@pytest.mark.parametrize(
    ("loss", "given", "formula"), LOSSES, ids=[type(loss).__name__ for loss, _, _ in LOSSES]
)
def test_value_and_gradient(loss: Any, given: tuple[Any, ...], formula: Any) -> None:
    if isinstance(getattr(loss, "weight", None), np.ndarray):
        loss.weight = Tensor(loss.weight)
    x = Tensor(X, requires_grad=True)
    loss.reduction = "none"
    found = loss(x, *[Tensor(each) for each in given])
    np.testing.assert_allclose(found.numpy(), formula(X), rtol=1e-9, atol=1e-12)
    found.sum().backward()
    assert x.grad is not None
    step = rng.normal(size=X.shape)
    slope = (formula(X + 1e-6 * step).sum() - formula(X - 1e-6 * step).sum()) / 2e-6
    assert (x.grad.numpy() * step).sum() == pytest.approx(slope, rel=1e-6)


def test_reductions() -> None:
    x, y, signs = Tensor(X), Tensor(Y), Tensor(SIGNS)
    each = relu(-SIGNS * (X - Y))
    rank = nn.functional.margin_ranking_loss
    assert rank(x, y, signs).item() == pytest.approx(each.mean())
    assert rank(x, y, signs, reduction="sum").item() == pytest.approx(each.sum())
    with pytest.raises(ConfigError, match="margin_ranking_loss: unknown reduction 'max'"):
        rank(x, y, signs, reduction="max")


def test_a_poisson_mean_that_is_no_logarithm() -> None:
    mean = np.abs(X)
    found = nn.functional.poisson_nll_loss(Tensor(mean), Tensor(COUNTS), False, reduction="sum")
    assert found.item() == pytest.approx((mean - COUNTS * np.log(mean + 1e-8)).sum())


def test_distances() -> None:
    x, y = Tensor(X), Tensor(Y)
    np.testing.assert_allclose(nn.CosineSimilarity(-1)(x, y).numpy(), cosine(X, Y), rtol=1e-9)
    found = nn.PairwiseDistance(1.0, keepdim=True)(x, y)
    np.testing.assert_allclose(found.numpy(), distance(X, Y, 1)[:, None], rtol=1e-9)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    wanted = [distance(X[i], X[j], eps=0) for i, j in pairs]
    np.testing.assert_allclose(nn.functional.pdist(x).numpy(), wanted, rtol=1e-9)


def test_a_loss_is_a_module() -> None:
    loss = nn.CrossEntropyLoss(weight=Tensor([1.0, 2.0])).to("CPU").eval()
    assert list(loss.parameters()) == [] and list(loss.state_dict()) == ["weight"]
    assert repr(nn.TripletMarginLoss(0.5)).startswith("TripletMarginLoss(margin=0.5, p=2.0")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda f, x: f.margin_ranking_loss(x, x, x[0]),
            ShapeError,
            r"margin_ranking_loss: shapes differ: \(4, 5\) and \(5,\)",
        ),
        (lambda f, x: f.multi_margin_loss(x, Tensor([1]), 3), ConfigError, "p must be 1 or 2"),
        (
            lambda f, x: f.multi_margin_loss(x, Tensor([1])),
            ShapeError,
            r"multi_margin_loss: target \(1,\) does not fit \(4, 5\)",
        ),
        (lambda f, x: f.pdist(x[0]), ShapeError, r"pdist: rows of a matrix, not \(5,\)"),
    ],
)
def test_what_does_not_fit(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(nn.functional, Tensor(X))
