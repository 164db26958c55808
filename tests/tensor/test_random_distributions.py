"""Distributions and choices: fair, by fixed seeds; the same whatever runs first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from tilegrad import Tensor, TinyJit, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.ir.interpret import threefry
from tilegrad.tensor.composed.random_draws import _log_factorial

COUNT = 4000

DISTRIBUTIONS: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "rand": (lambda: Tensor.rand(COUNT), scipy.stats.uniform()),
    "randn": (lambda: Tensor.randn(COUNT), scipy.stats.norm()),
    "exponential": (lambda: Tensor.exponential(COUNT, scale=2.0), scipy.stats.expon(scale=2.0)),
    "gamma": (lambda: Tensor.gamma(COUNT, alpha=2.5, scale=3.0), scipy.stats.gamma(2.5, scale=3.0)),
    "gamma-below-1": (lambda: Tensor.gamma(COUNT, alpha=0.3), scipy.stats.gamma(0.3)),
    "beta": (lambda: Tensor.beta(COUNT, alpha=2.0, beta=0.7), scipy.stats.beta(2.0, 0.7)),
}
COUNTS: dict[str, tuple[Callable[[], Tensor], Callable[[int], float]]] = {
    "poisson": (
        lambda: Tensor([2.5]).expand(COUNT).poisson(),
        lambda k: float(scipy.stats.poisson(2.5).pmf(k)),
    ),
    "poisson-of-large-rate": (
        lambda: Tensor([40.0]).expand(COUNT).poisson(),
        lambda k: float(scipy.stats.poisson(40.0).pmf(k)),
    ),
    "bernoulli": (
        lambda: Tensor([0.3]).expand(COUNT).bernoulli(),
        lambda k: [0.7, 0.3][k],
    ),
    "multinomial": (
        lambda: Tensor([1.0, 0.0, 3.0]).multinomial(COUNT, replacement=True),
        lambda k: [0.25, 0.0, 0.75][k],
    ),
    "choice": (lambda: Tensor.choice(5, COUNT), lambda k: 0.2),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name: str) -> None:
    """Kolmogorov and Smirnov's test, at a fixed seed."""
    make, law = DISTRIBUTIONS[name]
    Tensor.manual_seed(1)
    assert scipy.stats.kstest(make().numpy(), law.cdf).pvalue > 0.01


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    """Pearson's test of how often each value occurs; rare ones are taken together."""
    make, chance = COUNTS[name]
    Tensor.manual_seed(2)
    found = Counter(int(x) for x in make().numpy())
    seen, wanted = [0.0], [0.0]
    for value in range(max(found) + 1):
        seen[-1] += found[value]
        wanted[-1] += chance(value) * COUNT
        if wanted[-1] > 20:
            seen.append(0.0)
            wanted.append(0.0)
    wanted[-1] += COUNT - sum(wanted)
    if wanted[-1] < 5:
        seen[-2:], wanted[-2:] = [sum(seen[-2:])], [sum(wanted[-2:])]
    assert scipy.stats.chisquare(seen, wanted).pvalue > 0.01


def test_all_orders_are_equally_likely() -> None:
    Tensor.manual_seed(3)
    found = Counter(tuple(Tensor.randperm(3).tolist()) for _ in range(120))
    assert len(found) == 6
    assert scipy.stats.chisquare(list(found.values())).pvalue > 0.01


def test_without_replacement() -> None:
    Tensor.manual_seed(4)
    weights = Tensor([[1.0, 2.0, 0.0, 3.0]]).expand(2000, 4)
    found = weights.multinomial(2).numpy()
    assert (found[:, 0] != found[:, 1]).all()
    assert (found != 2).all()
    first = Counter(found[:, 0].tolist())
    assert scipy.stats.chisquare(
        [first[0], first[1], first[3]], [2000 / 6, 4000 / 6, 6000 / 6]
    ).pvalue > 0.01  # fmt: skip
    assert sorted(Tensor.choice(4, 4, replace=False).tolist()) == [0, 1, 2, 3]


def draws() -> list[Tensor]:
    return [
        Tensor.gamma(5, alpha=2.0),
        Tensor([3.0, 30.0]).poisson(),
        Tensor.randperm(6),
        Tensor([1.0, 2.0, 3.0]).multinomial(2),
        Tensor.randn(3),
    ]


def test_order_and_capture_do_not_matter() -> None:
    """The numbers are fixed by the seed and the order of the calls."""
    Tensor.manual_seed(5)
    expected = [each.tolist() for each in draws()]
    Tensor.manual_seed(5)
    assert [each.tolist() for each in reversed(draws())] == expected[::-1]
    step = TinyJit(lambda: [each.realize() for each in draws()])
    Tensor.manual_seed(5)
    assert [each.tolist() for each in step()] == expected
    for _ in range(3):
        Tensor.manual_seed(5)
        assert [each.tolist() for each in step()] == expected


def test_the_same_on_every_device() -> None:
    Tensor.manual_seed(6)
    here = Tensor.randperm(5).tolist(), Tensor.exponential(4).numpy()
    Tensor.manual_seed(6)
    there = Tensor.randperm(5, device="EMU").tolist(), Tensor.exponential(4, device="EMU").numpy()
    assert here[0] == there[0]
    np.testing.assert_allclose(here[1], there[1], rtol=3e-7)


def test_threefry_is_that_of_the_reference() -> None:
    words = Tensor([5, 1 << 40], dtype=dtypes.uint64).threefry(
        Tensor([7, 3 << 33], dtype=dtypes.uint64)
    )
    expected = [threefry((5, 0), (7, 0)), threefry((0, 1 << 8), (0, 6))]
    assert words.tolist() == [low | high << 32 for low, high in expected]


def test_log_factorial() -> None:
    k = np.arange(200.0)
    found = _log_factorial(Tensor(k)).numpy()
    np.testing.assert_allclose(found, scipy.special.gammaln(k + 1), rtol=1e-10, atol=1e-11)


def test_permutation_and_choice_of_rows() -> None:
    rows = Tensor([[1, 2], [3, 4], [5, 6]])
    assert sorted(Tensor.permutation(rows).tolist()) == rows.tolist()
    assert sorted(Tensor.permutation(4).tolist()) == [0, 1, 2, 3]
    assert Tensor.choice(rows, 2, 2, p=Tensor([0.0, 1.0, 0.0])).tolist() == [[[3, 4]] * 2] * 2
    assert Tensor.randperm(0).tolist() == []


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: Tensor.randperm(-1), ShapeError, "randperm: -1 numbers"),
    (lambda: Tensor.ones(2).multinomial(3), ShapeError, "multinomial: 3 of 2 places"),
    (lambda: Tensor(1.0).multinomial(), ShapeError, "multinomial: .* are no weights"),
    (lambda: Tensor.choice(2, 3, replace=False), ShapeError, "choice: 3 of 2"),
    (lambda: Tensor.choice(2, 3, p=Tensor.ones(3)), ShapeError, r"choice: p has shape \(3,\)"),
    (lambda: Tensor.permutation(Tensor(1.0)), ShapeError, "permutation: a tensor without axes"),
    (lambda: Tensor([1]).threefry(Tensor([1])), DTypeError, "threefry: uint64 is needed"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG)
def test_what_does_not_fit_raises(
    wrong: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrong()
