"""einsum against NumPy; the order of products against the best of all orders."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor, dtypes
from tilegrad.tensor.products.path import _greedy, contraction_path, work_of

FORMULAS = [
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,kl", (2, 3), (3, 4), (4, 5)),
    ("i,ij,j", (3,), (3, 4), (4,)),
    ("bij,bjk,kl,l->bi", (2, 3, 4), (2, 4, 5), (5, 2), (2,)),
    ("ii,ij,jk->k", (3, 3), (3, 2), (2, 4)),
    ("ab,cd,ef->face", (2, 3), (2, 2), (3, 2)),
    ("...ij,...jk,kl->...il", (2, 1, 3, 4), (5, 4, 2), (2, 3)),
    ("...,...,...->...", (2, 3), (3,), (1, 3)),
    ("iij,ji,j...->...", (3, 3, 2), (2, 3), (2, 4)),
    ("a,a,a,a->", (4,), (4,), (4,), (4,)),
    ("ij,ij,ij->ij", (2, 3), (2, 3), (2, 3)),
    ("abc,cd,def,fg,ge->ab", (2, 2, 3), (3, 2), (2, 3, 2), (2, 3), (3, 3)),
]


def cost(
    path: list[tuple[int, int]], inputs: list[set[str]], output: set[str], sizes: dict[str, int]
) -> int:
    """The work of a path, by its definition."""
    left = {number: set(letters) for number, letters in enumerate(inputs)}
    total = 0
    for number, (one, other) in enumerate(path):
        both = left.pop(one) | left.pop(other)
        total += work_of(frozenset(both), sizes)
        left[len(inputs) + number] = both & output.union(*left.values())
    assert len(left) == 1
    return total


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula[0])
def test_values(formula: tuple[str, tuple[int, ...]]) -> None:
    text, *shapes = formula
    arrays = [np.random.RandomState(i).randn(*shape) for i, shape in enumerate(shapes)]
    found = Tensor.einsum(text, *[Tensor(array) for array in arrays]).numpy()
    np.testing.assert_allclose(found, np.einsum(text, *arrays), rtol=1e-12, atol=1e-12)


def test_gradients() -> None:
    a, b, c = [np.random.RandomState(i).randn(3, 3) for i in range(3)]
    x = Tensor(a)
    (gradient,) = Tensor.einsum("ij,jk,ki->", x, Tensor(b), Tensor(c)).gradient(x)
    np.testing.assert_allclose(gradient.numpy(), (b @ c).T, rtol=1e-12)


def test_the_best_of_all_orders() -> None:
    """No order of products does less work, for random networks of four operands."""
    draw = random.Random(0)

    def every_path(left: list[int], number: int) -> list[list[tuple[int, int]]]:
        if len(left) == 1:
            return [[]]
        return [
            [(one, other), *rest]
            for i, one in enumerate(left)
            for other in left[i + 1 :]
            for rest in every_path(
                [x for x in left if x not in (one, other)] + [number], number + 1
            )
        ]

    for _ in range(30):
        inputs = [set(draw.sample("abcdef", draw.randint(1, 3))) for _ in range(4)]
        output = set(draw.sample(sorted(set().union(*inputs)), 1))
        sizes = {letter: draw.randint(1, 20) for letter in "abcdef"}
        sets = [frozenset(letters) for letters in inputs]
        found = cost(contraction_path(sets, frozenset(output), sizes), inputs, output, sizes)
        least = min(cost(path, inputs, output, sizes) for path in every_path([0, 1, 2, 3], 4))
        assert found == least
        greedy = cost(_greedy(sets, frozenset(output), sizes), inputs, output, sizes)
        assert greedy >= least


def test_many_operands_are_multiplied_in_a_good_order() -> None:
    """A chain of twenty matrices and a vector: always towards the vector."""
    letters = "abcdefghijklmnopqrstu"
    inputs = [frozenset(pair) for pair in itertools.pairwise(letters)] + [frozenset("u")]
    sizes = dict.fromkeys(letters, 10)
    path = contraction_path(inputs, frozenset("a"), sizes)
    assert cost(path, [set(x) for x in inputs], {"a"}, sizes) == 20 * 100


def test_work_is_that_of_the_path() -> None:
    n = 64
    x, y = Tensor.empty(n, n), Tensor.empty(n)
    GlobalCounters.reset()
    Tensor.einsum("ij,jk,k->i", x, x + 1, y).realize()
    assert GlobalCounters.global_ops < 10 * n * n


def test_half_is_rounded_once() -> None:
    """Products beyond half's range in between, and 1 at the end."""
    big, small = Tensor([60000.0], dtype="half"), Tensor([1 / 60000.0], dtype="half")
    found = Tensor.einsum("i,i,i,i->", big, big, small, small)
    assert found.dtype is dtypes.float16
    expected = float(np.float64(big.numpy()[0] * 1.0) ** 2 * np.float64(small.numpy()[0]) ** 2)
    assert found.item() == pytest.approx(expected, rel=2e-3)
