"""Factors of symmetric matrices, and few singular values and eigenvalues, against LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg as sla

import tilegrad.torch as torch
from tilegrad.torch import linalg

SYMMETRIC = [
    np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]]),
    np.array([[4.0, 1, 2], [1, -3, 0.5], [2, 0.5, 2]]),
    *(m + m.T for m in np.random.default_rng(0).normal(size=(8, 7, 7))),
]


@pytest.mark.parametrize("matrix", SYMMETRIC, ids=range(len(SYMMETRIC)))
def test_factors_with_pivots_are_those_of_lapack(matrix: np.ndarray) -> None:
    packed, pivots, _ = sla.lapack.dsytrf(matrix, lower=1)
    found = linalg.ldl_factor(torch.tensor(matrix))
    np.testing.assert_allclose(found.LD.numpy(), np.tril(packed), rtol=1e-10, atol=1e-12)
    assert found.pivots.tolist() == pivots.tolist()
    b = np.random.default_rng(1).normal(size=(len(matrix), 2))
    x = linalg.ldl_solve(found.LD, found.pivots, torch.tensor(b))
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(matrix, b), rtol=1e-9)


def test_factors_of_a_batch_and_of_a_singular_matrix() -> None:
    both = torch.tensor(np.stack(SYMMETRIC[2:4]))
    found = linalg.ldl_factor_ex(both)
    assert found.LD.shape == (2, 7, 7) and found.info.tolist() == [0, 0]
    assert linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="singular"):
        linalg.ldl_factor(torch.zeros(2, 2))
    assert linalg.lu_factor_ex(torch.ones(2, 2)).info.item() == 2


@pytest.mark.parametrize("shape", [(9, 5), (5, 9)])
def test_a_matrix_of_low_rank_is_found_whole(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1]))
    U, S, V = torch.svd_lowrank(torch.tensor(a), q=3)
    assert U.shape == (shape[0], 3) and V.shape == (shape[1], 3)
    values = np.linalg.svd(a, compute_uv=False)[:3]
    np.testing.assert_allclose(S.numpy(), values, atol=1e-9)
    np.testing.assert_allclose((U @ S.diag() @ V.T).numpy(), a, atol=1e-9)


def test_principal_components() -> None:
    a = np.random.default_rng(0).normal(size=(30, 4)) * [5, 3, 1, 0.1] + 2
    _, S, V = torch.pca_lowrank(torch.tensor(a), q=2, niter=8)
    _, values, rows = np.linalg.svd(a - a.mean(0), full_matrices=False)
    np.testing.assert_allclose(S.numpy(), values[:2], rtol=1e-4)
    np.testing.assert_allclose(abs((V.numpy() * rows[:2].T).sum(0)), 1, rtol=1e-3)
    with pytest.raises(ValueError, match="not greater than 4"):
        torch.pca_lowrank(torch.tensor(a), q=5)


def test_a_few_eigenvalues() -> None:
    rng = np.random.default_rng(0)
    a, half = (rng.normal(size=(9, 9)) for _ in range(2))
    a, b = a + a.T, half @ half.T + np.eye(9)
    values, vectors = torch.lobpcg(torch.tensor(a), k=2, B=torch.tensor(b))
    np.testing.assert_allclose(values.numpy(), sla.eigh(a, b)[0][:-3:-1], rtol=1e-7)
    apart = a @ vectors.numpy() - b @ vectors.numpy() * values.numpy()
    np.testing.assert_allclose(apart, 0, atol=1e-7)
    smallest, _ = torch.lobpcg(torch.tensor(a), k=1, largest=False)
    np.testing.assert_allclose(smallest.numpy(), np.linalg.eigvalsh(a)[:1], rtol=1e-7)
    with pytest.raises(ValueError, match="fewer than 3 x 4"):
        torch.lobpcg(torch.tensor(a), k=4)


@pytest.mark.parametrize("shape", [(3, 3), (5, 5), (2, 3, 4, 4), (1, 1)])
def test_pivots_are_the_exchanges_of_lapack(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(len(shape)).standard_normal(shape)
    size = shape[-1]
    packed, pivots = torch.linalg.lu_factor(torch.tensor(array))
    assert pivots.dtype is torch.int32 and tuple(pivots.shape) == shape[:-1]
    for mine, factors, matrix in zip(
        pivots.numpy().reshape(-1, size),
        packed.numpy().reshape(-1, size, size),
        array.reshape(-1, size, size),
    ):
        wanted, order = sla.lu_factor(matrix)
        np.testing.assert_array_equal(mine, order + 1)
        np.testing.assert_allclose(factors, wanted, rtol=1e-10)
    assert torch.linalg.lu_factor_ex(torch.tensor(array)).pivots.tolist() == pivots.tolist()


def test_solutions_take_the_exchanges_of_lapack() -> None:
    a, b = (np.random.default_rng(k).standard_normal((4, 4)) for k in (1, 2))
    packed, order = sla.lu_factor(a)
    factors, pivots = torch.tensor(packed), torch.tensor(order + 1)
    wanted = np.linalg.solve(a, b)
    for found in (
        torch.linalg.lu_solve(factors, pivots, torch.tensor(b)),
        torch.lu_solve(torch.tensor(b), factors, pivots),
        torch.tensor(b).lu_solve(factors, pivots),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    turned = torch.linalg.lu_solve(factors, pivots, torch.tensor(b), adjoint=True)
    np.testing.assert_allclose(turned, np.linalg.solve(a.T, b), rtol=1e-9)
