"""Fourier transforms against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import GlobalCounters, Tensor, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.tensor.spectral.fourier import radices

Array = npt.NDArray[Any]


def pairs(*shape: int) -> Array:
    return np.random.RandomState(sum(shape)).randn(*shape, 2)


def number(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1]


def pair(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def rms(ours: Tensor, theirs: Array) -> float:
    """The error in units of the reference's own size."""
    return float(np.sqrt(np.mean((ours.numpy() - theirs) ** 2) / np.mean(theirs**2)))


@pytest.mark.parametrize("n", [1, 3, 67, pytest.param(100, marks=pytest.mark.nightly)])
def test_all_transforms(n: int) -> None:
    """Of composite lengths, primes that are a factor, and primes that need a convolution."""
    x = pairs(2, n)
    ours = Tensor(x)
    np.testing.assert_allclose(ours.fft().numpy(), pair(np.fft.fft(number(x))), atol=1e-12)
    np.testing.assert_allclose(ours.ifft().numpy(), pair(np.fft.ifft(number(x))), atol=1e-12)
    half = ours[..., 0].rfft()
    np.testing.assert_allclose(half.numpy(), pair(np.fft.rfft(x[..., 0])), atol=1e-12)
    np.testing.assert_allclose(half.irfft(n).numpy(), x[..., 0], atol=1e-12)


def test_the_imaginary_part_of_the_ends_does_not_count() -> None:
    x = pairs(5)
    for n in (8, 9):
        np.testing.assert_allclose(
            Tensor(x).irfft(n).numpy(), np.fft.irfft(number(x), n), atol=1e-12
        )


@pytest.mark.parametrize("n", [1024, pytest.param(1009, marks=pytest.mark.nightly)])
def test_float32_is_near_its_limits(n: int) -> None:
    x = pairs(1, n).astype(np.float32)
    expected = pair(np.fft.fft(number(x.astype(np.float64))))
    assert rms(Tensor(x).fft(), expected) < 5 * 2.0**-23


@pytest.mark.nightly
@pytest.mark.parametrize("n", [4096, 65536, 100003])
def test_large_float32(n: int) -> None:
    x = pairs(1, n).astype(np.float32)
    expected = pair(np.fft.fft(number(x.astype(np.float64))))
    assert rms(Tensor(x).fft(), expected) < 6 * 2.0**-23


def test_axes_sizes_and_norms() -> None:
    x = pairs(3, 4, 5)
    z = number(x)
    for dim in (0, -2):
        for n in (3, 6):
            for norm in ("backward", "ortho", "forward"):
                found = Tensor(x).fft(n, dim, norm).numpy()
                expected = np.fft.fft(z, n, dim, norm)  # type: ignore[call-overload]
                np.testing.assert_allclose(found, pair(expected), atol=1e-12)
    found = Tensor(x[..., 0]).rfft(7, dim=1, norm="ortho").numpy()
    expected = np.fft.rfft(x[..., 0], 7, 1, "ortho")
    np.testing.assert_allclose(found, pair(expected), atol=1e-12)
    found = Tensor(x).irfft(6, dim=1, norm="forward").numpy()
    np.testing.assert_allclose(found, np.fft.irfft(z, 6, 1, "forward"), atol=1e-12)


def test_two_axes() -> None:
    x = pairs(2, 3, 4)
    np.testing.assert_allclose(Tensor(x).fft2().numpy(), pair(np.fft.fft2(number(x))), atol=1e-12)
    np.testing.assert_allclose(Tensor(x).fft2().ifft2().numpy(), x, atol=1e-12)


@pytest.mark.parametrize("n", [6, pytest.param(67, marks=pytest.mark.nightly)])
def test_gradients(n: int) -> None:
    """The gradient of a linear map is its transpose."""
    x, weights = pairs(n), pairs(n)
    ours = Tensor(x)
    (gradient,) = (ours.fft() * Tensor(weights)).sum().gradient(ours)
    # <F x, w> = <x, F* w>, where F* is the inverse times n.
    expected = pair(np.fft.ifft(number(weights)) * n)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-11)


def test_stft_and_back() -> None:
    x = np.random.RandomState(0).randn(2, 50)
    window = np.hanning(10)
    found = Tensor(x).stft(12, 5, 10, Tensor(window)).numpy()
    padded = np.pad(x, ((0, 0), (6, 6)), mode="reflect")
    weights = np.pad(window, 1)
    frames = [padded[:, at : at + 12] * weights for at in range(0, padded.shape[1] - 11, 5)]
    expected = np.fft.rfft(np.stack(frames, 1)).swapaxes(1, 2)
    np.testing.assert_allclose(found, pair(expected), atol=1e-12)
    back = Tensor(found).istft(12, 5, 10, Tensor(window), length=50).numpy()
    np.testing.assert_allclose(back, x, atol=1e-12)
    two = Tensor(x).stft(8, normalized=True, onesided=False)
    assert two.shape == (2, 8, 26, 2)
    np.testing.assert_allclose(
        two.istft(8, normalized=True, onesided=False, length=50).numpy(), x, atol=1e-12
    )


def test_work_is_n_log_n() -> None:
    """Operations for n numbers over n log n do not grow: not for powers of two, nor for primes."""

    def work(n: int) -> float:
        x = Tensor.empty(1, n, 2)
        GlobalCounters.reset()
        x.fft().realize()
        return GlobalCounters.global_ops / (n * np.log2(n))

    assert work(32**3) < 1.3 * work(32**2)


@pytest.mark.nightly
def test_work_for_primes_is_n_log_n() -> None:
    def work(n: int) -> float:
        x = Tensor.empty(1, n, 2)
        GlobalCounters.reset()
        x.fft().realize()
        return GlobalCounters.global_ops / (n * np.log2(n))

    assert work(20011) < 1.5 * work(1009)


def test_factors() -> None:
    assert radices(1 << 20) == [32, 32, 32, 32]
    assert radices(61 * 4) == [4, 61]
    assert radices(67) is None
    assert radices(1) == []


def test_dtypes() -> None:
    assert Tensor([1, 2, 3]).rfft().dtype is dtypes.float32
    assert Tensor([1.0, 2.0], dtype=dtypes.float16).rfft().dtype is dtypes.float16


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Tensor.ones(4).fft(), "fft: complex numbers are pairs along a last axis of size 2"),
    (lambda: Tensor.ones(4).rfft(0), "rfft: there is nothing to transform: n is 0"),
    (lambda: Tensor.ones(4).rfft(norm="x"), "rfft: no norm 'x'"),
    (lambda: Tensor.ones(4).stft(8, center=False), "stft: the signal has 4 numbers, a window 8"),
    (lambda: Tensor.ones(4, 3, 2).istft(4), "istft: 3 frequencies are needed"),
    (lambda: Tensor.ones(9).stft(4, win_length=5), "stft: n_fft is 4, hop_length 1, win_length 5"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_does_not_fit_raises(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        wrong()


def test_what_all_transforms_of_a_size_want_is_computed_once() -> None:
    x = Tensor(np.random.default_rng(3).normal(size=(2, 67)).astype(np.float32)).realize()
    counts = []
    for _ in range(2):
        before = GlobalCounters.kernel_count
        found = (x * 1.5).rfft().numpy()
        counts.append(GlobalCounters.kernel_count - before)
    assert counts[1] < counts[0]
    expected = np.fft.rfft(1.5 * x.numpy().astype(np.float64))
    np.testing.assert_allclose(found[..., 0], expected.real, atol=1e-4)
