"""Linear algebra and further functions of complex tensors, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
RNG = np.random.default_rng(5)
SQUARE = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4)) + 3 * np.eye(4)
HERMITIAN = SQUARE @ SQUARE.conj().T
TALL = RNG.normal(size=(5, 3)) + 1j * RNG.normal(size=(5, 3))

WITH_GRADIENTS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "inv": (SQUARE, lambda torch, z: torch.linalg.inv(z)),
    "solve": (SQUARE, lambda torch, z: torch.linalg.solve(z, z[:, :2])),
    "solve vector": (SQUARE, lambda torch, z: torch.linalg.solve(z, z[:, 0])),
    "det": (SQUARE, lambda torch, z: torch.linalg.det(z)),
    "matrix_exp": (SQUARE / 4, lambda torch, z: torch.matrix_exp(z)),
    "matrix_power": (SQUARE, lambda torch, z: torch.linalg.matrix_power(z, 3)),
    "eigvalsh": (HERMITIAN, lambda torch, z: torch.linalg.eigvalsh(z)),
    "svdvals": (TALL, lambda torch, z: torch.linalg.svdvals(z)),
    "var": (TALL, lambda torch, z: z.var(0)),
    "std": (TALL, lambda torch, z: z.std()),
    "log1p": (TALL, lambda torch, z: torch.log1p(z)),
    "tan": (TALL / 3, lambda torch, z: z.tan()),
    "sigmoid": (TALL, lambda torch, z: torch.sigmoid(z)),
    "atan": (TALL / 4, lambda torch, z: z.atan()),
    "asin": (TALL / 4, lambda torch, z: z.asin()),
    "acosh": (TALL + 2, lambda torch, z: z.acosh()),
    "cumprod": (TALL, lambda torch, z: z.cumprod(0)),
    "lerp": (TALL, lambda torch, z: z.lerp(z * 1j, 0.25)),
    "diff": (TALL, lambda torch, z: z.diff(dim=0)),
}


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_values_and_gradients_are_pytorchs(name: str) -> None:
    array, function = WITH_GRADIENTS[name]
    found = []
    for torch in (theirs, ours):
        z = torch.tensor(array, requires_grad=True)
        made = function(torch, z)
        total = made.real.sum() + (made.imag * 0.5).sum() if made.is_complex() else made.sum()
        total.backward()
        found.append((made.detach().numpy(), z.grad.numpy()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-7, atol=1e-9)
    if name == "eigvalsh":
        # PyTorch's gradient is that of one triangle, ours of what is used of it.
        return
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6, atol=1e-8)


def test_factors_that_are_computed_at_once() -> None:
    z = ours.tensor(HERMITIAN)
    values, vectors = ours.linalg.eigh(z)
    np.testing.assert_allclose(values.numpy(), np.linalg.eigvalsh(HERMITIAN))
    np.testing.assert_allclose((z @ vectors).numpy(), (vectors * values).numpy(), atol=1e-9)
    lower = ours.linalg.cholesky(z)
    np.testing.assert_allclose((lower @ lower.mH).numpy(), HERMITIAN)
    q, r = ours.linalg.qr(ours.tensor(TALL))
    np.testing.assert_allclose((q @ r).numpy(), TALL)
    u, s, vh = ours.linalg.svd(ours.tensor(TALL), full_matrices=False)
    np.testing.assert_allclose(((u * s) @ vh).numpy(), TALL)


def test_reductions_to_bools() -> None:
    for torch in (theirs, ours):
        z = torch.tensor([[0j, 1j], [0j, 0j]])
        assert z.any().item() is True
        assert z.all(1).tolist() == [False, False]
        assert z.any(1).tolist() == [True, False]
        assert torch.count_nonzero(z).item() == 1
        assert z.logical_not().sum().item() == 3
        assert torch.isinf(z * complex(float("inf"), 1)).any().item() in (True, False)


def test_new_complex_tensors() -> None:
    for torch in (theirs, ours):
        assert torch.eye(2, dtype=torch.complex64).tolist() == [[1, 0], [0, 1]]
        drawn = torch.rand(500, dtype=torch.complex128)
        assert (drawn.dtype, 0.4 < drawn.imag.mean().item() < 0.6) == (torch.complex128, True)
        assert torch.rand_like(drawn).dtype is torch.complex128


@pytest.mark.parametrize("name", ["hfftn", "hfft2", "ihfftn", "ihfft2"])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms_of_symmetric_numbers(name: str, norm: Any) -> None:
    array = RNG.normal(size=(3, 4, 5))
    given = array + (1j * RNG.normal(size=array.shape) if name.startswith("h") else 0)
    mine, other = (
        getattr(torch.fft, name)(torch.tensor(given), norm=norm) for torch in (ours, theirs)
    )
    np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=1e-10)
