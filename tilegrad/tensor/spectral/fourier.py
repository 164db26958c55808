"""Fourier transforms. A complex number is a pair: a last axis of size 2, real and imaginary part.

There is no complex dtype (docs/decisions/fft.md says why). Axes are counted as if numbers were
numbers: `dim=-1` of a complex tensor (5, 8, 2) is the axis of size 8.

A transform of n = r m numbers is m transforms of r numbers (one product with an r x r matrix), a
rotation of each result, and r transforms of m numbers. So n is taken apart into few factors of up
to 32, each a matrix product of a size that kernels like. Where a prime factor of n is large, the
transform becomes a convolution of a length that has none (Bluestein). The work is O(n log n) for
every n. Angles are exact: whole numbers are reduced to an eighth of a turn before any rounding.
All of it is linear, so derivatives come from those of products and movement.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import as_axis
from tilegrad.tensor.matrices.linear_algebra import LinearAlgebra

__all__ = ["Fourier", "radices"]

# The largest factor that joins several primes, and the largest prime that is transformed directly.
_JOINED, _DIRECT = 32, 61
# How many chirps are kept, and how long ones: 8 MiB of float32 for each of the longest.
_MOST_CACHED, _LONGEST_CACHED = 8, 1 << 20
_chirps: OrderedDict[tuple[int, DType, str], tuple[Any, Any, Any]] = OrderedDict()
Device.on_renewal.append(lambda name: _chirps.clear())


def radices(n: int) -> list[int] | None:
    """The factors of n that a transform takes in turn; None if one of its primes is too large."""
    primes: list[int] = []
    rest, prime = n, 2
    while prime * prime <= rest:
        while rest % prime == 0:
            primes.append(prime)
            rest //= prime
        prime += 1
    if rest > 1:
        primes.append(rest)
    if primes and max(primes) > _DIRECT:
        return None
    joined: list[int] = []
    for prime in sorted(primes, reverse=True):
        for position, factor in enumerate(joined):
            if factor * prime <= _JOINED:
                joined[position] *= prime
                break
        else:
            joined.append(prime)
    return sorted(joined)


class Fourier(LinearAlgebra):
    """Fourier transforms; `norm` is "backward" (the inverse divides by n), "forward" (the transform
    does), or "ortho" (both divide by the root of n).
    """

    __slots__ = ()

    @templated
    @composed
    def fft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """Discrete Fourier transform of complex numbers along `dim`: sum of x[k] exp(-2 pi i j k /
        n) over k.

        Complex numbers are pairs of real ones in the last axis.

        Args:
            n: length of the transform; the axis is cut, or filled with zeros.
            dim: the axis, counted without that of the pairs.
            norm: "backward" (no factor), "ortho" (1 / sqrt(n)) or "forward" (1 / n).

        Returns a float tensor of shape (..., n, 2) for shape (..., m, 2).

        Raises ShapeError unless the last axis has size 2, there is an axis `dim`, n >= 1 and `norm`
        is known.

        >>> Tensor([[1.0, 0.0], [0.0, 0.0]]).fft().tolist()
        [[1.0, 0.0], [1.0, 0.0]]
        """
        return self._over_axis("fft", n, dim, norm, is_inverse=False)

    @templated
    @composed
    def ifft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """Inverse of `fft`.

        Args:
            n: length of the transform.
            dim: the axis, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., n, 2) for shape (..., m, 2).

        Raises as `fft`.

        >>> Tensor([[1.0, 0.0], [1.0, 0.0]]).ifft().tolist()
        [[1.0, 0.0], [0.0, 0.0]]
        """
        return self._over_axis("ifft", n, dim, norm, is_inverse=True)

    @templated
    @composed
    def rfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """Discrete Fourier transform of n real numbers: the first n // 2 + 1 results; the others
        are their conjugates.

        Args:
            n: length of the transform; the axis is cut, or filled with zeros.
            dim: the axis; a negative one counts from the last.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., n // 2 + 1, 2) for shape (..., m).

        Raises as `fft`.

        >>> Tensor([1.0, 1.0, 1.0, 1.0]).rfft()[0].tolist()
        [4.0, -0.0]
        """
        axis, size = self._transformed_axis("rfft", self.ndim, n, dim)
        rows = self._floating()._of_size(axis, size).movedim(axis, -1)
        flat = rows._wide().reshape(math.prod(rows._sizes[:-1]), 1, size)
        made = flat._transformed() * _scale("rfft", size, norm, is_inverse=False)
        half = size // 2 + 1
        made = made._slice(2, 0, half).transpose(1, 2).reshape(*rows.shape[:-1], half, 2)
        return made.cast(rows.dtype).movedim(-2, axis)

    @templated
    @composed
    def irfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The `n` real numbers whose `rfft` this is. The imaginary parts of the first and (for even
        n) the last are taken as zero.

        Args:
            n: length of the result, by default even: twice the size less one.
            dim: the axis, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., n) for shape (..., m, 2).

        Raises as `fft`.

        >>> Tensor([[4.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).irfft().tolist()
        [1.0, 1.0, 1.0, 1.0]
        """
        self._pairs("irfft")
        given = self._sizes[as_axis("irfft", dim, self.ndim - 1)]
        axis, size = self._transformed_axis(
            "irfft", self.ndim - 1, 2 * (given - 1) if n is None else n, dim
        )
        half = size // 2 + 1
        rows = self._floating()._of_size(axis, half).movedim(axis, -2)
        flat = rows._wide().reshape(math.prod(rows._sizes[:-2]), half, 2).transpose(1, 2)
        # The second half, as conjugates; twice the sum of the first is as good as the sum of both.
        real, imaginary = flat._slice(1, 0, 1), flat._slice(1, 1, 2)
        count = size - half
        mirrored = real._slice(2, 1, 1 + count).flip(2)
        opposite = -imaginary._slice(2, 1, 1 + count).flip(2)
        position = self._iota(half)
        is_real = position.eq(0) | (position * 2).eq(size)
        imaginary = is_real.where(0.0, imaginary)
        whole = imaginary.cat(opposite, dim=2).cat(real.cat(mirrored, dim=2), dim=1)
        made = whole._transformed()._slice(1, 1, 2)
        made = made * _scale("irfft", size, norm, is_inverse=True)
        return made.reshape(*rows.shape[:-2], size).cast(rows.dtype).movedim(-1, axis)

    @templated
    @composed
    def stft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        normalized: bool = False,
        onesided: bool = True,
    ) -> Self:
        """Short-time Fourier transform: transforms of the slices of a real signal (..., time).

        Args:
            n_fft: length of a slice.
            hop_length: distance of two slices, by default a quarter of `n_fft`.
            win_length: length of the window without `window`.
            window: factors of a slice, by default ones, padded with zeros to `n_fft` on both sides.
            center: put the middle of slice t at t times `hop_length`, by padding.
            pad_mode: mode of that padding, as of `pad`.
            normalized: divide by the root of `n_fft`.
            onesided: leave out the redundant frequencies.

        Returns a float tensor of shape (..., frequencies, frames, 2).

        Raises ShapeError if the signal is shorter than a slice, or the window's length does not
        fit.

        >>> Tensor.ones(16).stft(8, 4).shape
        (5, 5, 2)
        """
        hop, weights = self._windowed("stft", n_fft, hop_length, win_length, window)
        x = self._floating()
        lead = self.shape[:-1]
        rows = x.reshape(-1, x.shape[-1])
        if center:
            edge = n_fft // 2
            rows = rows.pad(((0, 0), (edge, edge)), mode=pad_mode)
        length = rows._sizes[1]
        if length < n_fft:
            raise ShapeError(
                f"stft: the signal has {length} numbers, a window {n_fft}",
                tensor=describe(self.uop),
            )
        frames = 1 + (length - n_fft) // hop
        # A segment of `n_fft` numbers is several rows of `hop` numbers.
        strides = -(-n_fft // hop)
        needed = (frames - 1 + strides) * hop
        grid = rows._of_size(1, needed).reshape(rows.shape[0], frames - 1 + strides, hop)
        shifted = [grid._slice(1, at, at + frames) for at in range(strides)]
        segments = shifted[0].cat(*shifted[1:], dim=2)._slice(2, 0, n_fft) * weights
        norm = "ortho" if normalized else None
        if onesided:
            made = segments.rfft(norm=norm)
        else:
            made = segments.as_complex().fft(norm=norm)
        return made.transpose(1, 2).reshape(*lead, made.shape[2], frames, 2)

    @templated
    @composed
    def istft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        normalized: bool = False,
        onesided: bool = True,
        length: int | None = None,
    ) -> Self:
        """The real signal whose `stft`, with the same arguments, is nearest to this in least
        squares (Griffin and Lim 1984).

        Where no window reaches, the result is NaN.

        Args:
            n_fft: length of a slice.
            hop_length: distance of two slices, by default a quarter of `n_fft`.
            win_length: length of the window without `window`.
            window: factors of a slice.
            center: whether `stft` padded the signal.
            normalized: whether `stft` divided by the root of `n_fft`.
            onesided: whether redundant frequencies are left out.
            length: cuts the signal, or fills it with zeros.

        Returns a float tensor of shape (..., time) for shape (..., frequencies, frames, 2).

        Raises ShapeError if the sizes do not fit.

        >>> x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        >>> [round(v, 4) for v in x.stft(4, 2).istft(4, 2).tolist()]
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        """
        self._pairs("istft")
        expected = n_fft // 2 + 1 if onesided else n_fft
        if self.ndim < 3 or self._sizes[-3] != expected:
            raise ShapeError(
                f"istft: {expected} frequencies are needed before the frames",
                tensor=describe(self.uop),
            )
        hop, weights = self._windowed("istft", n_fft, hop_length, win_length, window)
        lead, frames = self.shape[:-3], self._sizes[-2]
        rows = self.reshape(-1, *self.shape[-3:]).transpose(1, 2)
        norm = "ortho" if normalized else None
        segments = rows.irfft(n_fft, norm=norm) if onesided else rows.ifft(norm=norm)[..., 0]
        total = (segments * weights)._overlapped(hop)
        squares = (weights * weights).reshape(1, 1, n_fft).expand(1, frames, n_fft)
        signal = total / squares._overlapped(hop)
        begin = n_fft // 2 if center else 0
        end = signal._sizes[1] - begin if center else signal._sizes[1]
        signal = signal._slice(1, begin, end)
        if length is not None:
            signal = signal._of_size(1, length)
        return signal.reshape(*lead, signal.shape[1])

    @composed
    def as_complex(self) -> Self:
        """These real numbers as complex ones with imaginary part 0, for `fft`.

        Returns a float tensor of shape (*shape, 2).

        >>> Tensor([3.0]).as_complex().tolist()
        [[3.0, 0.0]]
        """
        x = self._floating()
        return x.stack(x.zeros_like(), dim=-1)

    # axes

    def _pairs(self, name: str) -> None:
        if not self.ndim or self._sizes[-1] != 2:
            raise ShapeError(
                f"{name}: complex numbers are pairs along a last axis of size 2",
                tensor=describe(self.uop),
                remedy="real numbers become complex by .as_complex()",
            )

    def _transformed_axis(self, name: str, ndim: int, n: int | None, dim: int) -> tuple[int, int]:
        """The axis, and how many numbers are transformed."""
        axis = as_axis(name, dim, ndim)
        size = self._sizes[axis] if n is None else n
        if size < 1:
            raise ShapeError(
                f"{name}: there is nothing to transform: n is {size}", tensor=describe(self.uop)
            )
        return axis, size

    def _of_size(self, axis: int, size: int) -> Self:
        """Cut, or filled with zeros at the end."""
        have = self._sizes[axis]
        if have < size:
            return self.pad([(0, size - have if i == axis else 0) for i in range(self.ndim)])
        return self if have == size else self._slice(axis, 0, size)

    def _over_axis(
        self, name: str, n: int | None, dim: int, norm: str | None, *, is_inverse: bool
    ) -> Self:
        self._pairs(name)
        axis, size = self._transformed_axis(name, self.ndim - 1, n, dim)
        rows = self._floating()._of_size(axis, size).movedim(axis, -2)
        flat = rows._wide().reshape(math.prod(rows._sizes[:-2]), size, 2).transpose(1, 2)
        # With parts exchanged before and after, the transform is the inverse.
        made = flat.flip(1)._transformed().flip(1) if is_inverse else flat._transformed()
        made = made * _scale(name, size, norm, is_inverse=is_inverse)
        made = made.transpose(1, 2).reshape(*rows.shape[:-2], size, 2).cast(rows.dtype)
        return made.movedim(-2, axis)

    def _windowed(
        self, name: str, n_fft: int, hop: int | None, length: int | None, window: Self | None
    ) -> tuple[int, Self]:
        """The step, and the weights of a window."""
        step = n_fft // 4 if hop is None else hop
        size = n_fft if length is None else length
        if n_fft < 1 or step < 1 or not 1 <= size <= n_fft:
            raise ShapeError(
                f"{name}: n_fft is {n_fft}, hop_length {step}, win_length {size}",
                rule="1 <= hop_length, 1 <= win_length <= n_fft",
            )
        dtype = self._floating().dtype
        if window is None:
            weights = type(self).ones(size, dtype=dtype, device=self.device)
        else:
            weights = window
            if weights.shape != (size,):
                raise ShapeError(f"{name}: the window has shape {weights.shape}, not ({size},)")
        before = (n_fft - size) // 2
        return step, weights.pad(((before, n_fft - size - before),))

    def _overlapped(self, hop: int) -> Self:
        """Patches (rows, frames, size), each `hop` after the one before, added up."""
        rows, frames, size = self._sizes
        hops = -(-size // hop)
        grid = self._of_size(2, hops * hop).reshape(rows, frames, hops, hop)
        total: Any = None
        for hop_number in range(hops):
            moved = grid._slice(2, hop_number, hop_number + 1).reshape(rows, frames, hop)
            moved = moved.pad(((0, 0), (hop_number, hops - 1 - hop_number), (0, 0)))
            total = moved if total is None else total + moved
        flat: Self = total.reshape(rows, (frames + hops - 1) * hop)
        return flat._slice(1, 0, (frames - 1) * hop + size)

    # transforms of rows: (rows, 2, n), or (rows, 1, n) of real numbers

    def _transformed(self) -> Self:
        """(rows, 2, n) of the transforms."""
        size = self._sizes[2]
        factors = radices(size)
        return self._by_convolution() if factors is None else self._by_factors(factors)

    def _by_factors(self, factors: Sequence[int]) -> Self:
        rows, components, size = self._sizes
        if size == 1:
            return self if components == 2 else self.pad(((0, 0), (0, 1), (0, 0)))
        radix, rest = factors[-1], size // factors[-1]
        position = self._iota(radix)
        angles = (position.reshape(radix, 1) * position.reshape(1, radix)) % radix
        cosine, sine = self._unit(angles, radix)
        # Rows: real parts, then imaginary ones; columns likewise, those that there are.
        matrix = cosine.cat(-sine, dim=0)
        if components == 2:
            matrix = matrix.cat(sine.cat(cosine, dim=0), dim=1)
        made = matrix.contiguous() @ self.contiguous().reshape(rows, components * radix, rest)
        made = made.reshape(rows, 2, radix, rest)
        if rest == 1:
            return made.reshape(rows, 2, radix)
        made = made.contiguous()
        angles = self._iota(radix).reshape(radix, 1) * self._iota(rest).reshape(1, rest)
        cosine, sine = [each.contiguous() for each in self._unit(angles, size)]
        rotated = made * cosine + made.flip(1) * _signs(sine)
        rotated = rotated.transpose(1, 2).contiguous().reshape(rows * radix, 2, rest)
        made = rotated._by_factors(factors[:-1]).reshape(rows, radix, 2, rest)
        result: Self = made.permute(0, 2, 3, 1).reshape(rows, 2, size)
        return result

    def _by_convolution(self) -> Self:
        """Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2 makes the transform a convolution."""
        _, components, size = self._sizes
        length = _smooth(2 * size - 1)
        cosine, sine, spectrum = self._chirp(size, length)
        if components == 1:
            x = (self * cosine).cat(-self * sine, dim=1)
        else:
            x = self * cosine + self.flip(1) * _signs(sine.reshape(1, size))
        wide = x.pad(((0, 0), (0, 0), (0, length - size)))._transformed().contiguous()
        real, imaginary = spectrum._slice(1, 0, 1), spectrum._slice(1, 1, 2)
        product = wide * real - wide.flip(1) * _signs(imaginary)
        made = product.contiguous().flip(1)._transformed().flip(1)._slice(2, 0, size).contiguous()
        made = made * (1 / length)
        result: Self = made * cosine + made.flip(1) * _signs(sine.reshape(1, size))
        return result

    def _chirp(self, size: int, length: int) -> tuple[Self, Self, Self]:
        """The angles k^2 / 2 out of `size`, and the transform of their convolution. Those that were
        wanted last are kept, as every transform of a size wants them.
        """
        key = size, self.dtype, self.device
        if key in _chirps:
            _chirps.move_to_end(key)
            return _chirps[key]
        position = self._iota(size).cast(dtypes.int64)
        cosine, sine = [
            each.contiguous() for each in self._unit((position * position) % (2 * size), 2 * size)
        ]
        chirp = cosine.reshape(1, size).cat(sine.reshape(1, size), dim=0)
        # The chirp at -size + 1 .. size - 1, where negative positions count from the end.
        gap = length - 2 * size + 1
        filter_ = chirp.pad(((0, 0), (0, gap))).cat(chirp._slice(1, 1, size).flip(1), dim=1)
        spectrum = filter_.reshape(1, 2, length)._transformed().contiguous()
        found = cosine, sine, spectrum
        if length <= _LONGEST_CACHED:
            cosine.realize(sine, spectrum)
            _chirps[key] = found
            if len(_chirps) > _MOST_CACHED:
                _chirps.popitem(last=False)
        return found

    def _unit(self, angles: Self, count: int) -> tuple[Self, Self]:
        """The cosine and the sine of `angles`, 0 to count - 1, where `count` is a circle."""
        quarter = (angles * 4 + count // 2) // count
        rest = angles * 4 - quarter * count
        angle = rest.cast(self.dtype) * (math.pi / 2 / count)
        cosine, sine = angle.cos(), angle.sin()
        is_odd, is_half = (quarter % 2).eq(1), ((quarter // 2) % 2).eq(1)
        one, other = is_odd.where(-sine, cosine), is_odd.where(cosine, sine)
        return is_half.where(-one, one), is_half.where(-other, other)


def _signs(sine: Any) -> Any:
    """(2, ...): what the imaginary part adds to the real one, and the real to the imaginary, in a
    turn clockwise.
    """
    one = sine.reshape(1, *sine.shape) if sine.ndim == 2 and sine.shape[0] != 1 else sine
    if sine.ndim == 3:
        return sine.cat(-sine, dim=1)
    return one.cat(-one, dim=0)


def _scale(name: str, size: int, norm: str | None, *, is_inverse: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise ShapeError(f"{name}: no norm {norm!r}: 'backward', 'forward' or 'ortho'")
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if (norm == "forward") is not is_inverse else 1.0


def _smooth(least: int) -> int:
    """The smallest length from `least` on among 1, 3, 5 and 9 times powers of two."""
    return min(odd << max(0, math.ceil(math.log2(least / odd))) for odd in (1, 3, 5, 9))
