"""Factors and solutions of complex matrices, and LU factors of matrices that are not square."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

_random = np.random.default_rng(9)


def _numbers(*shape: int) -> Any:
    return _random.normal(size=shape) + 1j * _random.normal(size=shape)


SQUARE, TALL, WIDE = _numbers(4, 4), _numbers(2, 5, 3), _numbers(3, 6)
HERMITIAN = SQUARE @ SQUARE.conj().T + np.eye(4)
RIGHT = _numbers(4, 2)


def close(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    array = found.detach().numpy()
    assert array.shape == np.shape(expected)
    np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["complex", "real"])
@pytest.mark.parametrize("array", [SQUARE, TALL, WIDE, SQUARE[:1], SQUARE[:, :1]])
def test_lu_factors_of_any_shape(array: Any, kind: str) -> None:
    given = array if kind == "complex" else array.real
    P, L, U = torch.linalg.lu(torch.tensor(given))
    close(P @ L @ U, given)
    size = min(given.shape[-2:])
    assert (L.shape[-2], L.shape[-1], U.shape[-2]) == (given.shape[-2], size, size)
    assert (L.triu(1).abs().max() == 0) and (U.tril(-1).abs().max() == 0)
    packed, pivots = torch.linalg.lu_factor(torch.tensor(given))
    assert pivots.dtype is torch.int32 and pivots.shape == (*given.shape[:-2], size)
    again = torch.lu_unpack(packed, pivots)
    close(again[0] @ again[1] @ again[2], given)
    made, exchanges, info = torch.linalg.lu_factor_ex(torch.tensor(given))
    close(made, packed.numpy())
    assert exchanges.tolist() == pivots.tolist() and not info.any()


def test_rows_are_exchanged_as_lapack_does() -> None:
    # Its magnitude of a pivot is the sum of those of the parts: 3 + 3 is above 4.5.
    packed, pivots = torch.linalg.lu_factor(torch.tensor([[4.5 + 0j, 1], [3 + 3j, 2]]))
    assert pivots.tolist() == [2, 2]
    assert packed[0].tolist() == [3 + 3j, 2]


def test_systems_by_their_factors() -> None:
    A, B = torch.tensor(SQUARE), torch.tensor(RIGHT)
    packed, pivots = torch.linalg.lu_factor(A)
    close(torch.linalg.lu_solve(packed, pivots, B), np.linalg.solve(SQUARE, RIGHT))
    close(torch.lu_solve(B, packed, pivots), np.linalg.solve(SQUARE, RIGHT))
    adjoint = torch.linalg.lu_solve(packed, pivots, B, adjoint=True)
    close(adjoint, np.linalg.solve(SQUARE.conj().T, RIGHT))
    left = torch.linalg.lu_solve(packed, pivots, B.mH, left=False)
    close(left, RIGHT.conj().T @ np.linalg.inv(SQUARE))
    for upper in (False, True):
        factor = torch.linalg.cholesky(torch.tensor(HERMITIAN), upper=upper)
        close(factor.mH @ factor if upper else factor @ factor.mH, HERMITIAN)
        solved = torch.cholesky_solve(B, factor, upper=upper)
        close(solved, np.linalg.solve(HERMITIAN, RIGHT))
        close(torch.cholesky_inverse(factor, upper=upper), np.linalg.inv(HERMITIAN))
    for upper in (False, True):
        triangle = np.triu(SQUARE) if upper else np.tril(SQUARE)
        close(torch.linalg.solve_triangular(A, B, upper=upper), np.linalg.solve(triangle, RIGHT))
        solution, copied = torch.triangular_solve(B, A, upper=upper, transpose=True)
        close(solution, np.linalg.solve(triangle.conj().T, RIGHT))
        close(copied, SQUARE)
    unit = np.tril(SQUARE, -1) + np.eye(4)
    found = torch.linalg.solve_triangular(A, B.mT, upper=False, left=False, unitriangular=True)
    close(found, RIGHT.T @ np.linalg.inv(unit))


def test_what_says_where_it_failed() -> None:
    both = torch.tensor(np.stack([HERMITIAN, -HERMITIAN]))
    factor, info = torch.linalg.cholesky_ex(both)
    assert info.tolist() == [0, 1]
    close(factor[0], np.linalg.cholesky(HERMITIAN))
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        torch.linalg.cholesky(-torch.tensor(HERMITIAN))
    inverse, info = torch.linalg.inv_ex(torch.tensor(SQUARE))
    close(inverse, np.linalg.inv(SQUARE))
    assert info.item() == 0
    assert torch.linalg.inv_ex(torch.zeros(2, 2, dtype=torch.complex64)).info.item() == 1
    result, info = torch.linalg.solve_ex(torch.tensor(SQUARE), torch.tensor(RIGHT))
    close(result, np.linalg.solve(SQUARE, RIGHT))


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_and_condition_numbers(ord: Any) -> None:
    close(torch.linalg.matrix_norm(torch.tensor(WIDE), ord), np.linalg.norm(WIDE, ord))
    close(torch.linalg.cond(torch.tensor(SQUARE), ord), np.linalg.cond(SQUARE, ord))


def test_least_squares_and_pseudoinverses() -> None:
    A, B = TALL[0], _numbers(5, 2)
    found = torch.linalg.lstsq(torch.tensor(A), torch.tensor(B))
    expected = np.linalg.lstsq(A, B, rcond=None)
    close(found.solution, expected[0])
    close(found.residuals, expected[1])
    assert found.rank.item() == 3 and found.singular_values.shape == (0,)
    by_values = torch.linalg.lstsq(torch.tensor(A), torch.tensor(B), driver="gelsd")
    close(by_values.singular_values, expected[3])
    close(torch.linalg.pinv(torch.tensor(TALL)), np.linalg.pinv(TALL))
    close(torch.linalg.pinv(torch.tensor(HERMITIAN), hermitian=True), np.linalg.inv(HERMITIAN))
    close(torch.linalg.pinv(torch.tensor(A), rtol=0.9), np.linalg.pinv(A, 0.9))
    tensor = _numbers(2, 3, 6)
    close(torch.linalg.tensorinv(torch.tensor(tensor), 2), np.linalg.tensorinv(tensor, 2))
    right = _numbers(2, 3)
    close(
        torch.linalg.tensorsolve(torch.tensor(tensor), torch.tensor(right)),
        np.linalg.tensorsolve(tensor, right),
    )
    close(torch.logdet(torch.tensor(HERMITIAN)).exp(), np.linalg.det(HERMITIAN))


# What depends on no phases, so that the slope is that of the numbers.
LOSSES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "cholesky": (HERMITIAN, lambda z: torch.linalg.cholesky(z)),
    "cholesky upper": (HERMITIAN, lambda z: torch.linalg.cholesky(z, upper=True)),
    "eigh": (
        HERMITIAN, lambda z: (lambda e, v: (v * e.log1p()) @ v.mH)(*torch.linalg.eigh(z)),
    ),
    "eigh vectors": (HERMITIAN, lambda z: torch.linalg.eigh(z)[1].abs()),
    "svd": (TALL[0], lambda z: (lambda u, s, v: (u * s.log1p()) @ v)(*torch.linalg.svd(z, False))),
    "svd wide": (WIDE, lambda z: (lambda u, s, v: (u * s.sin()) @ v)(*torch.linalg.svd(z, False))),
    "qr": (TALL[0], lambda z: torch.linalg.qr(z)[0].abs()),
    "qr upper": (TALL[0], lambda z: torch.linalg.qr(z)[1].abs()),
    "lu": (SQUARE, lambda z: torch.linalg.lu_factor(z)[0]),
    "lu tall": (TALL[0], lambda z: torch.linalg.lu_factor(z)[0]),
    "lu wide": (WIDE, lambda z: torch.linalg.lu_factor(z)[0]),
    "lu of real": (WIDE.real, lambda z: torch.linalg.lu_factor(z)[0]),
    "lu of tall real": (TALL.real, lambda z: torch.linalg.lu(z)[1]),
    "slogdet": (SQUARE, lambda z: torch.linalg.slogdet(z)[1] + torch.linalg.slogdet(z)[0].real),
    "pinv": (TALL[0], lambda z: torch.linalg.pinv(z)),
    "solve_triangular": (SQUARE, lambda z: torch.linalg.solve_triangular(
        z, torch.tensor(RIGHT), upper=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_factors_are_slopes(name: str) -> None:
    array, function = LOSSES[name]
    is_hermitian = array is HERMITIAN

    def loss(values: Any, requires_grad: bool = False) -> tuple[Any, Any]:
        leaf = torch.tensor(values, requires_grad=requires_grad)
        found = function((leaf + leaf.mH) / 2 if is_hermitian else leaf)
        weights = np.linspace(0.5, 1.5, found.numel()).reshape(tuple(found.shape))
        real = found.real + 0.5 * found.imag if found.is_complex() else found
        return (real * torch.tensor(weights)).sum(), leaf

    total, leaf = loss(array, requires_grad=True)
    total.backward()
    gradient, step = leaf.grad.numpy(), 1e-6
    # Any direction shows any element that is wrong.
    directions = [_random.normal(size=array.shape)]
    if np.iscomplexobj(array):
        directions.append(1j * _random.normal(size=array.shape))
    for direction in directions:
        slope = (loss(array + step * direction)[0] - loss(array - step * direction)[0]) / (2 * step)
        expected = (gradient.conj() * direction).real.sum()
        assert abs(slope.item() - expected) <= 2e-6 * max(1.0, abs(expected))
