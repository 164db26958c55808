"""Fourier transforms along several axes, those of signals with real spectra, and frequencies.

As in fourier.py a complex number is a pair along the last axis, which `dim` does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import as_axes, as_int
from tilegrad.tensor.spectral.fourier import Fourier

__all__ = ["Spectra"]

Sizes = Sequence[int] | None


class Spectra(Fourier):
    """Transforms along several axes; `s` are the sizes to cut or fill them to, `dim` the axes, by
    default as many of the last as `s` names, or all.
    """

    __slots__ = ()

    @templated
    @composed
    def fftn(self, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Self:
        """Discrete Fourier transform of complex numbers along several axes; see `fft`.

        Args:
            s: length of each transform.
            dim: the axes, counted without that of the pairs; by default the last ones, as many as
                `s` has sizes, or all.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s, 2).

        Raises ShapeError unless the last axis has size 2, there is an axis for each size, sizes are
        positive and `norm` is known.

        >>> Tensor.ones(2, 2, 2).fftn()[0, 0].tolist()
        [4.0, 4.0]
        """
        x = self
        for size, axis in self._sized_axes("fftn", self.ndim - 1, s, dim):
            x = x.fft(size, axis, norm)
        return x

    @templated
    @composed
    def ifftn(self, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Self:
        """Inverse of `fftn`.

        Args:
            s: length of each transform.
            dim: the axes, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s, 2).

        Raises ShapeError unless the last axis has size 2, there is an axis for each size, sizes are
        positive and `norm` is known.

        >>> Tensor.ones(2, 2, 2).ifftn()[0, 0].tolist()
        [1.0, 1.0]
        """
        x = self
        for size, axis in self._sized_axes("ifftn", self.ndim - 1, s, dim):
            x = x.ifft(size, axis, norm)
        return x

    @templated
    @composed
    def rfftn(self, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Self:
        """Discrete Fourier transform of real numbers along several axes: `rfft` along the last of
        them, `fft` along the others.

        Args:
            s: length of each transform.
            dim: the axes, by default the last ones, as many as `s` has sizes, or all.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., s[-1] // 2 + 1, 2).

        Raises ShapeError unless there is an axis for each size, sizes are positive and `norm` is
        known.

        >>> Tensor.ones(2, 4).rfftn().shape
        (2, 3, 2)
        """
        pairs = self._sized_axes("rfftn", self.ndim, s, dim)
        size, axis = pairs[-1]
        x = self.rfft(size, axis, norm)
        for size, axis in pairs[:-1]:
            x = x.fft(size, axis, norm)
        return x

    @templated
    @composed
    def irfftn(self, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Self:
        """The real numbers whose `rfftn` this is; without `s` the last size is even.

        Args:
            s: sizes of the result along the axes.
            dim: the axes, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s).

        Raises ShapeError unless the last axis has size 2, there is an axis for each size, sizes are
        positive and `norm` is known.

        >>> Tensor.ones(2, 4).rfftn().irfftn().tolist()
        [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
        """
        pairs = self._sized_axes("irfftn", self.ndim - 1, s, dim)
        x = self
        for size, axis in pairs[:-1]:
            x = x.ifft(size, axis, norm)
        size, axis = pairs[-1]
        return x.irfft(size, axis, norm)

    def fft2(self, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None) -> Self:
        """`fftn` along two axes.

        Args:
            s: length of each transform.
            dim: the axes, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s, 2).

        Raises ShapeError for what `fftn` refuses.

        >>> Tensor.ones(2, 2, 2).fft2()[0, 0].tolist()
        [4.0, 4.0]
        """
        return self.fftn(s, dim, norm)

    def ifft2(
        self, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
    ) -> Self:
        """Inverse of `fft2`.

        Args:
            s: length of each transform.
            dim: the axes, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s, 2).

        Raises ShapeError for what `fftn` refuses.

        >>> Tensor.ones(2, 2, 2).ifft2()[0, 0].tolist()
        [1.0, 1.0]
        """
        return self.ifftn(s, dim, norm)

    def rfft2(
        self, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
    ) -> Self:
        """`rfftn` along two axes.

        Args:
            s: length of each transform.
            dim: the axes.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., s[-1] // 2 + 1, 2).

        Raises ShapeError for what `fftn` refuses.

        >>> Tensor.ones(2, 4).rfft2()[0, 0, 0].item()
        8.0
        """
        return self.rfftn(s, dim, norm)

    def irfft2(
        self, s: Sizes = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
    ) -> Self:
        """Inverse of `rfft2`.

        Args:
            s: sizes of the result along the axes.
            dim: the axes, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., *s).

        Raises ShapeError for what `fftn` refuses.

        >>> Tensor.ones(2, 2).rfft2().irfft2().tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        return self.irfftn(s, dim, norm)

    def _sized_axes(
        self, name: str, ndim: int, s: Sizes, dim: Sizes
    ) -> list[tuple[int | None, int]]:
        """For each axis the size that it is transformed in, None its own."""
        if dim is None:
            dim = range(ndim) if s is None else range(max(ndim - len(s), 0), ndim)
        if not dim or (s is not None and len(s) != len(dim)):
            raise ShapeError(
                f"{name}: {len(s or ())} sizes for {len(dim)} axes", tensor=describe(self.uop)
            )
        # Counted from the end, where pairs are not counted.
        axes = [axis - ndim if axis >= 0 else axis for axis in dim]
        sizes = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
        return list(zip(sizes, axes))

    # signals whose spectrum is real

    @templated
    @composed
    def hfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """Real transform of a signal whose second half, not given, is the conjugate of the first.

        Args:
            n: length of the result, by default twice the size less one.
            dim: the axis, counted without that of the pairs.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., n) for shape (..., m, 2).

        Raises ShapeError unless the last axis has size 2, there is an axis `dim`, n >= 1 and `norm`
        is known.

        >>> Tensor([[1.0, 0.0], [1.0, 0.0]]).hfft().tolist()
        [2.0, 0.0]
        """
        inverse_norm = {"forward": "backward", "ortho": "ortho"}.get(norm or "", "forward")
        return self._conjugated().irfft(n, dim, inverse_norm)

    @templated
    @composed
    def ihfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """Inverse of `hfft`.

        Args:
            n: length of the transform.
            dim: the axis; a negative one counts from the last.
            norm: as that of `fft`.

        Returns a float tensor of shape (..., n // 2 + 1, 2) for shape (..., m).

        Raises ShapeError unless there is an axis `dim`, n >= 1 and `norm` is known.

        >>> Tensor([2.0, 0.0]).ihfft()[:, 0].tolist()
        [1.0, 1.0]
        """
        inverse_norm = {"forward": "backward", "ortho": "ortho"}.get(norm or "", "forward")
        return self.rfft(n, dim, inverse_norm)._conjugated()

    def _conjugated(self) -> Self:
        kind: Any = type(self)
        signs: Self = kind([1.0, -1.0], device=self.device)
        return self * signs.cast(self.dtype)

    # frequencies

    def fftshift(self, dim: int | Sequence[int] | None = None) -> Self:
        """Rotate axes so that frequency 0 is in the middle.

        Args:
            dim: the axes, by default all; with complex numbers name them, as the pairs are an axis
                too.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor.fftfreq(4).fftshift().tolist()
        [-0.5, -0.25, 0.0, 0.25]
        """
        return self._rolled_by_half(dim, 0)

    def ifftshift(self, dim: int | Sequence[int] | None = None) -> Self:
        """Inverse of `fftshift`.

        Args:
            dim: the axes, by default all.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).fftshift().ifftshift().tolist()
        [1, 2, 3]
        """
        return self._rolled_by_half(dim, 1)

    def _rolled_by_half(self, dim: int | Sequence[int] | None, more: int) -> Self:
        name = "ifftshift" if more else "fftshift"
        axes = as_axes(name, dim, self.ndim)
        return self.roll([(self._sizes[axis] + more) // 2 for axis in axes], list(axes))

    @classmethod
    def fftfreq(cls, n: int, d: float = 1.0, **options: Any) -> Self:
        """Frequencies of `fft`, in cycles per unit of `d`: 0, 1, ..., -2, -1 divided by n d.

        Args:
            n: length of the transform.
            d: distance of two samples.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (n,).

        Raises ShapeError unless `n` is above 0.

        >>> Tensor.fftfreq(4).tolist()
        [0.0, 0.25, -0.5, -0.25]
        """
        kind: Any = cls
        _check_length("fftfreq", n)
        frequencies = list(itertools.chain(range((n + 1) // 2), range(-(n // 2), 0)))
        made: Self = kind([number / (n * d) for number in frequencies], **options)
        return made

    @classmethod
    def rfftfreq(cls, n: int, d: float = 1.0, **options: Any) -> Self:
        """Frequencies of `rfft`, in cycles per unit of `d`: 0, 1, ... divided by n d.

        Args:
            n: length of the transform.
            d: distance of two samples.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (n // 2 + 1,).

        Raises ShapeError unless `n` is above 0.

        >>> Tensor.rfftfreq(4).tolist()
        [0.0, 0.25, 0.5]
        """
        kind: Any = cls
        _check_length("rfftfreq", n)
        made: Self = kind([number / (n * d) for number in range(n // 2 + 1)], **options)
        return made


def _check_length(name: str, n: Any) -> None:
    if as_int(name, "n", n) < 1:
        raise ShapeError(f"{name}: there is no transform of length {n}")
