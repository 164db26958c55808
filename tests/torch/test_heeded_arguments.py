"""Arguments that were taken and not heeded, beside PyTorch: which triangle of a matrix is read,
absolute tolerances, thresholds, names that stand twice, and gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

# Of no symmetry: the two triangles are other matrices.
_MATRIX = [[4.0, 2.5, 1.0], [2.0, 5.0, 0.5], [0.5, 1.5, 6.0]]
_SIZES = [1.0, 1e-2, 1e-4]


def _triangles(torch: Any) -> list[Any]:
    x = torch.tensor(_MATRIX)
    found = [torch.linalg.eigvalsh(x, UPLO=which) for which in "LUlu"]
    found += [torch.linalg.eigh(x, UPLO=which).eigenvalues for which in "LU"]
    found += [torch.linalg.cholesky(x, upper=upper) for upper in (False, True)]
    found += [torch.linalg.cholesky_ex(x, upper=True).L, x.cholesky(upper=True)]
    found.append(torch.linalg.pinv(x, hermitian=True))
    skew = torch.tensor([[1.0, 5.0], [1.0, 1.0]])
    return [*found, torch.linalg.matrix_rank(skew, hermitian=True), torch.linalg.matrix_rank(skew)]


def _complex_triangles(torch: Any) -> list[Any]:
    real, imaginary = torch.tensor(_MATRIX), torch.tensor([[0.0, 1, 2], [0, 0, 3], [0.5, 0.25, 0]])
    x = torch.complex(real, imaginary)
    upper = torch.linalg.cholesky(x, upper=True)
    values = [torch.linalg.eigvalsh(x), torch.linalg.eigvalsh(x, UPLO="U")]
    return [*values, upper.real, upper.imag]


def _ranks(torch: Any) -> list[Any]:
    x = torch.diag(torch.tensor(_SIZES))
    both = torch.stack([x, torch.eye(3)])
    rank = torch.linalg.matrix_rank
    return [
        rank(x),
        rank(x, 1e-3),
        *[rank(x, atol=atol, rtol=rtol) for atol in (None, 0.0, 1e-3, 0.5) for rtol in (None, 0.1)],
        rank(both, atol=torch.tensor([1e-3, 2.0])),
        rank(both, rtol=torch.tensor([0.5, 1e-3])),
    ]


def _inverses(torch: Any) -> list[Any]:
    x = torch.diag(torch.tensor(_SIZES))
    pinv = torch.linalg.pinv
    pairs = [(None, None), (1e-3, None), (None, 1e-3), (1e-3, 0.1), (0.5, 1e-5)]
    found = [pinv(x, atol=atol, rtol=rtol) for atol, rtol in pairs]
    wide = torch.tensor([[3.0, 0.0, 1.0], [0.0, 0.01, 0.0]], requires_grad=True)
    made = pinv(wide, atol=0.1)
    made.square().sum().backward()
    return [*found, pinv(x, 1e-3), pinv(x, rcond=1e-3), made, wide.grad]


def _softplus(torch: Any) -> list[Any]:
    found = []
    for beta in (1.0, -1.75):
        for threshold in (20.0, 1.0, -1.0):
            x = torch.tensor([-3.0, -0.5, 0.25, 0.5, 2.0, 30.0], requires_grad=True)
            y = torch.nn.functional.softplus(x, beta, threshold)
            y.sum().backward()
            found += [y, x.grad, torch.nn.Softplus(beta, threshold)(x)]
    return found


def _graphs(torch: Any) -> list[Any]:
    found = []
    for backward in (lambda y: y.backward(create_graph=True),
                     lambda y: torch.autograd.backward(y, create_graph=True),
                     lambda y: torch.autograd.backward([y, y], create_graph=True)):  # fmt: skip
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(2):
            backward((x**3).sum())
            assert x.grad.requires_grad
        (second,) = torch.autograd.grad(x.grad.sum(), x)
        found += [second, x.grad]
    return found


def _values(torch: Any) -> list[Any]:
    """Without vectors these are zeros."""
    return [each.abs() for each in torch.svd(torch.tensor(_MATRIX), compute_uv=False)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [_triangles, _complex_triangles, _ranks, _inverses, _softplus, _graphs, _values],
)
def test_an_argument_is_heeded(program: Callable[[Any], list[Any]]) -> None:
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(program(ours), program(torch), strict=True):
        mine, theirs = mine.detach().numpy(), theirs.detach().numpy()
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)


def test_names_that_stand_twice() -> None:
    torch = pytest.importorskip("torch")

    def names(torch: Any) -> list[list[str]]:
        layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        model = torch.nn.Sequential(layer, layer)
        model.register_buffer("mean", torch.ones(1))
        model.register_buffer("again", model.mean)
        asked = ("named_modules", "named_buffers", "named_parameters")
        return [
            [name for name, _ in getattr(model, each)(remove_duplicate=once, prefix=prefix)]
            for each in asked
            for once in (True, False)
            for prefix in ("", "net")
        ]

    assert names(ours) == names(torch)


@pytest.mark.parametrize("name", ["lu", "lu_factor", "lu_factor_ex"])
def test_rows_are_always_exchanged(name: str) -> None:
    with pytest.raises(RuntimeError, match="without pivoting"):
        getattr(ours.linalg, name)(ours.eye(2), pivot=False)


def test_a_triangle_is_lower_or_upper() -> None:
    with pytest.raises(RuntimeError, match="UPLO"):
        ours.linalg.eigvalsh(ours.eye(2), UPLO="X")
