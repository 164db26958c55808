"""Functions of complex numbers by families: moves and joins, products, exponentials, statistics."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

_random = np.random.default_rng(8)


def _numbers(*shape: int) -> Any:
    return _random.normal(size=shape) + 1j * _random.normal(size=shape)


A, B, V, W = _numbers(3, 4), _numbers(3, 4), _numbers(5), _numbers(5)
X = _random.normal(size=(3, 4))
CUBE = _numbers(2, 3, 4)


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    array = found.detach().numpy() if hasattr(found, "detach") else np.asarray(found)
    assert array.shape == np.shape(expected)
    np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


_t = torch.tensor

# What PyTorch's function gives, and NumPy's.
MOVES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "hstack": (lambda: torch.hstack([_t(A), _t(B)]), lambda: np.hstack([A, B])),
    "hstack of real": (lambda: torch.hstack([_t(A), _t(X)]), lambda: np.hstack([A, X])),
    "vstack": (lambda: torch.vstack([_t(A), _t(B)]), lambda: np.vstack([A, B])),
    "dstack": (lambda: torch.dstack([_t(A), _t(B)]), lambda: np.dstack([A, B])),
    "column_stack": (lambda: torch.column_stack([_t(V), _t(W)]), lambda: np.column_stack([V, W])),
    "cat of nothing": (
        lambda: torch.cat([torch.zeros(0, dtype=torch.complex128), _t(A)], 1), lambda: A,
    ),
    "cat by axis": (lambda: torch.cat([_t(A), _t(B)], -1), lambda: np.concatenate([A, B], -1)),
    "block_diag": (
        lambda: torch.block_diag(_t(A), _t(V)),
        lambda: np.block([[A, np.zeros((3, 5))], [np.zeros((1, 4)), V[None]]]),
    ),
    "meshgrid": (
        lambda: torch.meshgrid(_t(V), _t(W), indexing="ij")[1],
        lambda: np.meshgrid(V, W, indexing="ij")[1],
    ),
    "cartesian_prod": (
        lambda: torch.cartesian_prod(_t(V), _t(W)),
        lambda: np.stack([np.repeat(V, 5), np.tile(W, 5)], -1),
    ),
    "combinations": (
        lambda: torch.combinations(_t(V), 2),
        lambda: np.array([[V[i], V[j]] for i in range(5) for j in range(i + 1, 5)]),
    ),
    "atleast_3d": (lambda: torch.atleast_3d(_t(A)), lambda: A[:, :, None]),
    "pad": (
        lambda: torch.nn.functional.pad(_t(A), (1, 2), value=2 - 1j),
        lambda: np.pad(A, ((0, 0), (1, 2)), constant_values=2 - 1j),
    ),
    "pad by one": (
        lambda: torch.nn.functional.pad(_t(A), (1, 2), value=1.0),
        lambda: np.pad(A, ((0, 0), (1, 2)), constant_values=1.0),
    ),
    "reflected": (
        lambda: torch.nn.functional.pad(_t(A), (1, 2), "reflect"),
        lambda: np.pad(A, ((0, 0), (1, 2)), "reflect"),
    ),
    "circular": (
        lambda: torch.nn.functional.pad(_t(A), (1, 2), "circular"),
        lambda: np.pad(A, ((0, 0), (1, 2)), "wrap"),
    ),
    "unfold": (
        lambda: _t(V).unfold(0, 3, 1), lambda: np.lib.stride_tricks.sliding_window_view(V, 3),
    ),
    "roll": (lambda: torch.roll(_t(A), 5), lambda: np.roll(A, 5)),
    "roll of an axis": (lambda: torch.roll(_t(A), 1, -1), lambda: np.roll(A, 1, -1)),
    "squeeze": (lambda: _t(A)[None, :, None].squeeze((0, 2)), lambda: A),
    "squeeze none": (lambda: _t(A)[None].squeeze(()), lambda: A[None]),
    "split_with_sizes": (lambda: torch.split_with_sizes(_t(A), [1, 3], 1)[1], lambda: A[:, 1:]),
    "permute": (lambda: torch.permute(_t(CUBE), (2, 0, -2)), lambda: CUBE.transpose(2, 0, 1)),
    "movedim": (lambda: torch.movedim(_t(CUBE), -1, 0), lambda: np.moveaxis(CUBE, -1, 0)),
    "diagonal": (lambda: torch.diagonal(_t(A), 1), lambda: np.diagonal(A, 1)),
    "put": (
        lambda: torch.put(_t(A), _t([1, 4]), _t([1j, 2.0 + 0j], dtype=torch.complex128)),
        lambda: np.where(np.arange(12).reshape(3, 4) == 1, 1j,
                         np.where(np.arange(12).reshape(3, 4) == 4, 2, A)),
    ),
    "diff": (lambda: torch.diff(_t(A), 2), lambda: np.diff(A, 2)),
    "diff after": (
        lambda: torch.diff(_t(A), prepend=_t(B)), lambda: np.diff(A, prepend=B),
    ),
    "gradient": (lambda: torch.gradient(_t(V), spacing=0.5)[0], lambda: np.gradient(V, 0.5)),
    "trapezoid": (lambda: torch.trapezoid(_t(A), dx=0.5), lambda: np.trapezoid(A, dx=0.5)
                  if hasattr(np, "trapezoid") else np.trapz(A, dx=0.5)),
    "trapezoid of positions": (
        lambda: torch.trapz(_t(A), _t(B)),
        lambda: ((A[:, 1:] + A[:, :-1]) * np.diff(B)).sum(-1) / 2,
    ),
    "cumulative_trapezoid": (
        lambda: torch.cumulative_trapezoid(_t(A)),
        lambda: np.cumsum((A[:, 1:] + A[:, :-1]) / 2, -1),
    ),
    "pixel_shuffle": (
        lambda: torch.nn.functional.pixel_shuffle(_t(CUBE.reshape(1, 4, 2, 3)), 2),
        lambda: CUBE.reshape(1, 1, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 4, 6),
    ),
    "full_like": (lambda: torch.full_like(_t(A), 2j), lambda: np.full_like(A, 2j)),
    "new_full": (lambda: _t(A).new_full((2,), 1 + 1j), lambda: np.full(2, 1 + 1j)),
    "new_ones": (lambda: _t(A).new_ones(2, 3), lambda: np.ones((2, 3))),
    "linspace": (
        lambda: torch.linspace(0, 2 + 2j, 5, dtype=torch.complex128),
        lambda: np.linspace(0, 2 + 2j, 5),
    ),
    "logspace": (
        lambda: torch.logspace(0, 1, 3, 2.0, dtype=torch.complex128),
        lambda: 2.0 ** np.array([0, 0.5, 1]),
    ),
    "scalar_tensor": (
        lambda: torch.scalar_tensor(3, dtype=torch.complex128), lambda: np.complex128(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_joins_are_numpys(name: str) -> None:
    mine, other = MOVES[name]
    found = mine()
    assert found.dtype is torch.complex128
    close(found, other())


def _convolved(x: Any, kernel: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, kernel)


IMAGES, KERNEL, BIAS = _numbers(2, 2, 5, 6), _numbers(3, 2, 2, 3), _numbers(3)
PRODUCTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "linear": (
        lambda: torch.nn.functional.linear(_t(A), _t(B), _t(BIAS)), lambda: A @ B.T + BIAS,
    ),
    "conv2d": (
        lambda: torch.nn.functional.conv2d(_t(IMAGES), _t(KERNEL), _t(BIAS)),
        lambda: _convolved(IMAGES, KERNEL) + BIAS[:, None, None],
    ),
    "conv2d, padded": (
        lambda: torch.nn.functional.conv2d(_t(IMAGES), _t(KERNEL), padding=1),
        lambda: _convolved(np.pad(IMAGES, ((0, 0), (0, 0), (1, 1), (1, 1))), KERNEL),
    ),
    "conv1d": (
        lambda: torch.nn.functional.conv1d(_t(V[None, None]), _t(W[None, None, :3])),
        lambda: np.correlate(V, W[:3].conj(), "valid")[None, None],
    ),
    "conv_transpose1d": (
        lambda: torch.nn.functional.conv_transpose1d(_t(V[None, None]), _t(W[None, None, :3])),
        lambda: np.convolve(V, W[:3])[None, None],
    ),
    "bilinear": (
        lambda: torch.nn.functional.bilinear(_t(A), _t(B), _t(_KINDS)),
        lambda: np.einsum("ni,oij,nj->no", A, _KINDS, B),
    ),
    "tensordot": (
        lambda: torch.tensordot(_t(CUBE), _t(A), 2), lambda: np.tensordot(CUBE, A, 2),
    ),
    "tensordot of real": (
        lambda: torch.tensordot(_t(X), _t(CUBE), ([0], [1])),
        lambda: np.tensordot(X, CUBE, ([0], [1])),
    ),
    "inner": (lambda: torch.inner(_t(CUBE), _t(A)), lambda: np.inner(CUBE, A)),
    "cross": (lambda: torch.cross(_t(A), _t(B), 0), lambda: np.cross(A, B, axis=0)),
    "vecdot": (
        lambda: torch.linalg.vecdot(_t(A), _t(B)), lambda: (A.conj() * B).sum(-1),
    ),
    "multi_dot": (
        lambda: torch.linalg.multi_dot([_t(A), _t(B.T), _t(A)]), lambda: A @ B.T @ A,
    ),
}  # fmt: skip
_KINDS = _numbers(2, 4, 4)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_numpys(name: str) -> None:
    mine, other = PRODUCTS[name]
    close(mine(), other())


FUNCTIONS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "silu": (lambda: torch.nn.functional.silu(_t(A)), lambda: A / (1 + np.exp(-A))),
    "softsign": (lambda: torch.nn.functional.softsign(_t(A)), lambda: A / (1 + np.abs(A))),
    "sinc": (lambda: torch.sinc(_t(A)), lambda: np.sin(np.pi * A) / (np.pi * A)),
    "sinc of 0": (lambda: torch.sinc(_t([0j], dtype=torch.complex128)), lambda: np.ones(1)),
    "logsumexp": (
        lambda: torch.logsumexp(_t(A) + 800, 1), lambda: np.log(np.exp(A).sum(1)) + 800,
    ),
    "logaddexp": (
        lambda: torch.logaddexp(_t(A), _t(B)).exp(), lambda: np.exp(A) + np.exp(B),
    ),
    "logcumsumexp": (
        lambda: torch.logcumsumexp(_t(A), 1).exp(), lambda: np.cumsum(np.exp(A), 1),
    ),
    "ldexp": (lambda: torch.ldexp(_t(A), _t([0, 1, 2, 3])), lambda: A * [1, 2, 4, 8]),
    "normalize": (
        lambda: torch.nn.functional.normalize(_t(A)),
        lambda: A / np.linalg.norm(A, axis=1, keepdims=True),
    ),
    "l1_loss": (
        lambda: torch.nn.functional.l1_loss(_t(A), _t(B)), lambda: np.abs(A - B).mean(),
    ),
    "pairwise_distance": (
        lambda: torch.nn.functional.pairwise_distance(_t(A), _t(B), eps=0.0),
        lambda: np.linalg.norm(A - B, axis=-1),
    ),
    "rms_norm": (
        lambda: torch.nn.functional.rms_norm(_t(A), (4,), eps=0.0),
        lambda: A / np.sqrt((A * A).mean(-1, keepdims=True)),
    ),
    "cov": (lambda: torch.cov(_t(A)), lambda: np.cov(A)),
    "cov, weighted": (
        lambda: torch.cov(_t(A), fweights=_t([1, 2, 1, 3])),
        lambda: np.cov(A, fweights=[1, 2, 1, 3]),
    ),
    "corrcoef": (lambda: torch.corrcoef(_t(A)), lambda: np.corrcoef(A)),
    "renorm": (
        lambda: torch.renorm(_t(A), 2, 0, 1.0).abs().square().sum(1), lambda: np.ones(3),
    ),
    "softmax of a real dtype": (
        lambda: torch.softmax(_t(A), 1, torch.float64),
        lambda: np.exp(A.real) / np.exp(A.real).sum(1, keepdims=True),
    ),
    "isclose": (
        lambda: torch.isclose(_t([complex(np.nan, 1), 1]), _t([complex(np.nan, 1), 2]),
                              equal_nan=True),
        lambda: np.array([True, False]),
    ),
    "vander": (lambda: torch.linalg.vander(_t(V)), lambda: np.vander(V, increasing=True)),
    "power": (lambda: 2 ** _t(A), lambda: 2**A),
    "add with a factor": (lambda: torch.add(_t(A), _t(B), alpha=2j), lambda: A + 2j * B),
    "sum in a dtype": (lambda: _t(A).sum(0, dtype=torch.complex128), lambda: A.sum(0)),
    "prod": (lambda: torch.prod(_t(A), 1, keepdim=True), lambda: A.prod(1, keepdims=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_the_formulas(name: str) -> None:
    mine, other = FUNCTIONS[name]
    close(mine(), other(), 1e-7 if name == "renorm" else 1e-10)


DIFFERENTIABLE: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: torch.nn.functional.linear(z, _t(B)),
    "conv1d": lambda z: torch.nn.functional.conv1d(z[None], _t(KERNEL[0, :1, :1].repeat(3, 1))),
    "hstack": lambda z: torch.hstack([z, z * 1j]),
    "pad": lambda z: torch.nn.functional.pad(z, (1, 1), "reflect"),
    "diff": lambda z: torch.diff(z),
    "logsumexp": lambda z: torch.logsumexp(z, 1),
    "logcumsumexp": lambda z: torch.logcumsumexp(z, 1),
    "silu": lambda z: torch.nn.functional.silu(z),
    "normalize": lambda z: torch.nn.functional.normalize(z),
    "cov": lambda z: torch.cov(z),
    "unbind": lambda z: z.unbind(1)[2] * z.select(1, 0),
    "rms_norm": lambda z: torch.nn.functional.rms_norm(z, (4,)),
    "vecdot": lambda z: torch.linalg.vecdot(z, _t(B)),
    "roll": lambda z: torch.roll(z, 3) * z,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_the_slopes_of_both_parts(name: str) -> None:
    function = DIFFERENTIABLE[name]

    def loss(z: Any) -> Any:
        found = function(z)
        weights = np.linspace(0.5, 1.5, found.numel()).reshape(tuple(found.shape))
        return ((found.real + 0.5 * found.imag) * _t(weights)).sum()

    z = _t(A, requires_grad=True)
    loss(z).backward()
    step = 1e-6
    for index in ((0, 0), (1, 3), (2, 1)):
        for unit, found in ((1, z.grad.numpy()[index].real), (1j, z.grad.numpy()[index].imag)):
            moved = [A.copy(), A.copy()]
            moved[0][index] += step * unit
            moved[1][index] -= step * unit
            slope = (loss(_t(moved[0])).item() - loss(_t(moved[1])).item()) / (2 * step)
            assert abs(slope - found) <= 1e-6 * max(1.0, abs(slope))


def test_methods_are_called_unbound() -> None:
    z = _t(A)
    assert torch.Tensor.view(z, 12).shape == (12,)
    assert torch.Tensor.view(z.real, 12).shape == (12,)
    close(torch.Tensor.permute(z, (1, 0)), A.T)
    close(torch.Tensor.expand(z, 2, -1, 4), np.broadcast_to(A, (2, 3, 4)))
    close(torch.Tensor.repeat(z, 2, 1), np.tile(A, (2, 1)))
    assert torch.Tensor.to(z, torch.complex64).dtype is torch.complex64
    assert torch.Tensor.contiguous(z) is z
    assert torch.Tensor.view is torch.Tensor.view


def test_a_class_of_a_program_keeps_its_own_method() -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        def flip(self, *dims: Any) -> Any:
            return "own"

    assert Own.flip(torch.ones(2)) == "own"
    old = torch.Tensor.flip
    try:
        torch.Tensor.flip = lambda self, *dims: "replaced"
        assert torch.Tensor.flip(torch.ones(2)) == torch.ones(2).flip(0) == "replaced"
    finally:
        torch.Tensor.flip = old
    assert torch.ones(2).flip(0).tolist() == [1.0, 1.0]


def test_views_share_their_memory() -> None:
    z = _t(A)
    z.select(0, 1).zero_()
    z.unbind(1)[3].fill_(1j)
    z.chunk(2, -1)[0].mul_(2)
    z.narrow(0, 2, 1).fill_(3)
    expected = A.copy()
    expected[1] = 0
    expected[:, 3] = 1j
    expected[:, :2] *= 2
    expected[2] = 3
    close(z, expected)
    square = _t(np.zeros((2, 2), complex))
    square.diagonal().fill_(5j)
    close(square, 5j * np.eye(2))


def test_axes_that_are_not_there_are_refused() -> None:
    for refused in (
        lambda: _t(V).sum(1), lambda: _t(V).select(1, 0), lambda: _t(A).squeeze(2),
        lambda: _t(A).permute(0, 2),
    ):  # fmt: skip
        with pytest.raises(IndexError, match="out of range"):
            refused()


def test_what_only_real_numbers_have_is_refused() -> None:
    with pytest.raises(TypeError, match="not for complex numbers"):
        torch.softmax(_t(A), 1)
    z = _t(A, requires_grad=True)
    total = z.sum()
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        torch.autograd.grad(total, z)


@pytest.mark.parametrize("onesided", [None, False])
def test_short_transforms_of_complex_signals(onesided: bool | None) -> None:
    signal, window = _numbers(32), np.hanning(9)[:8]
    found = torch.stft(
        _t(signal), 8, 4, window=_t(window), onesided=onesided,
        return_complex=True,
    )  # fmt: skip
    padded = np.pad(signal, 4, "reflect")
    frames = np.stack([padded[at : at + 8] * window for at in range(0, 33, 4)])
    close(found, np.fft.fft(frames).T)
    back = torch.istft(
        found, 8, 4, window=_t(window), onesided=False,
        return_complex=True, length=32,
    )  # fmt: skip
    close(back, signal)


def test_quotients_do_not_leave_the_dtype() -> None:
    large = torch.tensor([3e30 + 1e30j, 1e-30j, 2 + 4j])
    close(large / large, np.ones(3), 1e-6)
    close(large / 2j, np.array([0.5e30 - 1.5e30j, 0.5e-30, 2 - 1j]), 1e-6)
    assert [cmath.isinf(each) for each in (torch.tensor([1 + 1j]) / 0j).tolist()] == [True]
    z = torch.tensor([0j, 1j, 2 + 1j], requires_grad=True)
    (1j / (z + 1j)).real.sum().backward()
    w = z.detach().numpy() + 1j
    close(z.grad, (-1j / w**2).conj(), 1e-6)


def test_the_sign_of_0_has_no_slope() -> None:
    z = torch.tensor([0j, 1j], requires_grad=True)
    z.sgn().real.sum().backward()
    assert z.grad.tolist() == [0, 1]


def test_numbers_beside_complex_ones() -> None:
    is_there = torch.tensor([True, False])
    assert torch.where(is_there, torch.tensor([1.0, 1.0]), 1j).tolist() == [1, 1j]
    assert torch.tensor([1j, 2.0]).view(torch.float32).tolist() == [0, 1, 2, 0]
    third = torch.tensor([1j], dtype=torch.complex128)
    assert (0.1 / third).item() == 0.1 / 1j
    assert third.masked_fill(third.isfinite(), 0.1j).item() == 0.1j
    index = torch.tensor([0])
    assert third.index_fill(0, index, 0.1j).item() == 0.1j
