"""`torch.fft`: Fourier transforms, whose complex results are `torch.complex.Complex`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import UnsupportedDTypeError
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.autocast_methods import without_autocast
from tilegrad.torch.complex import Complex
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip

Sizes = Sequence[int] | None


def _pair(input: Any) -> Tensor:
    """Numbers as pairs."""
    if isinstance(input, Complex):
        return input.pair
    x = as_ours(input)
    x = x if x.dtype.is_float else x.float()
    found: Tensor = x.stack(x.zeros_like(), dim=-1)
    return found


def _listed(several: Any) -> Any:
    """Axes or sizes as a sequence; one integer stands for itself."""
    return (several,) if isinstance(several, int) else several


def _real(input: Any) -> Tensor:
    x: Tensor = as_ours(input)
    if isinstance(x, Complex):
        raise UnsupportedDTypeError(
            f"fft: a transform of real numbers, not of {x.dtype}",
            remedy="fft, fft2 and fftn are those of complex numbers; z.real and z.imag are real",
        )
    return x if x.dtype.is_float else x.float()


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The Fourier transform along an axis."""
    return Complex(_pair(input).fft(n, dim, norm))


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `fft`."""
    return Complex(_pair(input).ifft(n, dim, norm))


def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The first half of the transform of real numbers, which has all that is in it."""
    return Complex(_real(input).rfft(n, dim, norm))


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`."""
    return _pair(input).irfft(n, dim, norm)


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of the first half of a symmetric signal, real numbers."""
    return _pair(input).hfft(n, dim, norm)


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `hfft`."""
    return Complex(_real(input).ihfft(n, dim, norm))


def hfft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """As `hfftn`, over two axes."""
    return hfftn(input, s, dim, norm)


def hfftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """The transform over several axes of the first half, along the last one, of a symmetric signal;
    real numbers.
    """
    axes, sizes = _axes_of(input, s, dim)
    found = input
    for axis, size in zip(axes[:-1], sizes[:-1]):
        found = fft(found, size, axis, norm)
    return hfft(found, sizes[-1], axes[-1], norm)


def ihfft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Complex:
    """As `ihfftn`, over two axes."""
    return ihfftn(input, s, dim, norm)


def ihfftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Complex:
    """The inverse of `hfftn`."""
    axes, sizes = _axes_of(input, s, dim)
    found = ihfft(input, sizes[-1], axes[-1], norm)
    for axis, size in zip(axes[:-1], sizes[:-1]):
        found = ifft(found, size, axis, norm)
    return found


def _axes_of(input: Any, s: Sizes, dim: Sizes) -> tuple[list[int], list[int | None]]:
    """The axes of a transform, and the size of each."""
    s, dim = _listed(s), _listed(dim)
    axes = list(range(input.ndim) if dim is None else dim)
    if dim is None and s is not None:
        axes = axes[input.ndim - len(s) :]
    return axes, [None] * len(axes) if s is None else list(s)


def fft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Complex:
    """The Fourier transform over two axes."""
    return Complex(_pair(input).fft2(_listed(s), _listed(dim), norm))


def ifft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Complex:
    """The inverse of `fft2`."""
    return Complex(_pair(input).ifft2(_listed(s), _listed(dim), norm))


def rfft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Complex:
    """The transform of real numbers over two axes, half of the last one."""
    return Complex(_real(input).rfft2(_listed(s), _listed(dim), norm))


def irfft2(
    input: Any, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tensor:
    """The inverse of `rfft2`."""
    return _pair(input).irfft2(_listed(s), _listed(dim), norm)


def fftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Complex:
    """The Fourier transform over several axes."""
    return Complex(_pair(input).fftn(_listed(s), _listed(dim), norm))


def ifftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Complex:
    """The inverse of `fftn`."""
    return Complex(_pair(input).ifftn(_listed(s), _listed(dim), norm))


def rfftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Complex:
    """The transform of real numbers over several axes, half of the last one."""
    return Complex(_real(input).rfftn(_listed(s), _listed(dim), norm))


def irfftn(input: Any, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`."""
    return _pair(input).irfftn(_listed(s), _listed(dim), norm)


def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of `fft`."""
    return Tensor.fftfreq(n, d).to(device, dtype)


def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of `rfft`."""
    return Tensor.rfftfreq(n, d).to(device, dtype)


def _shifted(input: Any, name: str, dim: Any) -> Any:
    if not isinstance(input, Complex):
        return getattr(as_ours(input), name)(dim)
    axes = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return Complex(getattr(input.pair, name)([axis % input.ndim for axis in axes]))


def fftshift(input: Any, dim: Any = None) -> Any:
    """With the frequency 0 in the middle."""
    return _shifted(input, "fftshift", dim)


def ifftshift(input: Any, dim: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted(input, "ifftshift", dim)


def stft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Any = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, **options: Any,
) -> Any:  # fmt: skip
    """The Fourier transforms of overlapping windows; of complex signals, or windows, at all
    frequencies.
    """
    shape = (n_fft, hop_length, win_length)
    rest = (center, pad_mode, normalized)
    if not isinstance(input, Complex) and not isinstance(window, Complex):
        plain = as_ours(input).stft(*shape, window, *rest, onesided is not False, **options)
        return Complex(plain) if return_complex is not False else plain
    if onesided:
        raise RuntimeError("stft: complex signals, and windows, have no onesided transform")

    def transformed(signal: Any, weights: Any) -> Complex:
        return Complex(signal.stft(*shape, weights, *rest, False, **options))

    found: Any = None
    for factor, signal in _each_component(as_ours(input)):
        for other, weights in [(1, None)] if window is None else _each_component(window):
            each = transformed(signal, weights) * (factor * other)
            found = each if found is None else found + each
    return found if return_complex is not False else found.pair


def _each_component(value: Any) -> list[tuple[complex, Any]]:
    return [(1, value.real), (1j, value.imag)] if isinstance(value, Complex) else [(1, value)]


def istft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Any = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Any:  # fmt: skip
    """The signal whose `stft` is `input`: complex with `return_complex`, which takes all
    frequencies.
    """
    pair = _pair(input)
    half = pair.shape[-3] != n_fft if onesided is None else onesided
    if isinstance(window, Complex):
        raise RuntimeError("istft: the window must be real here")
    if not return_complex:
        if not half:
            # A real signal is that of the first half of the frequencies.
            pair, half = pair.narrow(-3, 0, n_fft // 2 + 1), True
        return pair.istft(n_fft, hop_length, win_length, window, center, normalized, half, length)
    options = (n_fft, hop_length, win_length, window, center, normalized, half, length)
    if half:
        raise RuntimeError("istft: a complex signal is that of all frequencies: onesided=False")
    # The real part of -i w is the imaginary part of w.
    real, imag = pair.istft(*options), (Complex(pair) * -1j).pair.istft(*options)
    return Complex(real.stack(imag, dim=-1))


if not TYPE_CHECKING:
    globals().update({name: without_autocast(globals()[name]) for name in __all__})

refuse_others(__name__)
