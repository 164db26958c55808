"""Random choices, orders and distributions, made of the words of indexing/random.py.

Draws take a number of words that depends on the shape alone, never on a value: so the position in
the stream, and with it every later number, is the same on all devices, in whatever order things are
realized, captured or not. A method that rejects candidates draws a fixed number of them and takes
the first good one; the probability that all are rejected is below 1e-12.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import as_int, as_sizes, flat_arguments, show_shape
from tilegrad.tensor.indexing.filled import DTypeLike
from tilegrad.tensor.spectral.spectra import Spectra
from tilegrad.tensor.storage.checked import check_weights

__all__ = ["Distributions"]

# Candidates for a gamma number (one in twenty is rejected), for a Poisson number (one in three).
_GAMMA, _POISSON = 10, 32
# The rate below which Poisson numbers are found in a table, and the probabilities in that table.
_SMALL_RATE, _TABLE = 10.0, 56
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Distributions(Spectra):
    """Random methods that need more than one word for a number."""

    __slots__ = ()

    @composed
    def threefry(self, seed: Self) -> Self:
        """Random words of 64 bits: threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel
        random numbers: as easy as 1, 2, 3") of these counters under a key.

        Args:
            seed: the key, uint64, broadcast with the counters.

        Returns a uint64 tensor of this shape.

        Raises DTypeError unless both are uint64.

        >>> x = Tensor([0, 1], dtype="uint64")
        >>> x.threefry(Tensor([0, 0], dtype="uint64")).shape
        (2,)
        """
        for each in (self, seed):
            if each.dtype is not dtypes.uint64:
                raise DTypeError(f"threefry: uint64 is needed, not {each.dtype.name}")
        keys = [(seed & 0xFFFFFFFF).cast(dtypes.uint32), (seed >> 32).cast(dtypes.uint32)]
        keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
        x0 = (self & 0xFFFFFFFF).cast(dtypes.uint32) + keys[0]
        x1 = (self >> 32).cast(dtypes.uint32) + keys[1]
        for step in range(5):
            for bits in _ROTATIONS[step % 2]:
                x0 = x0 + x1
                x1 = ((x1 << bits) | (x1 >> (32 - bits))) ^ x0
            x0 = x0 + keys[(step + 1) % 3]
            x1 = x1 + keys[(step + 2) % 3] + (step + 1)
        return (x1.cast(dtypes.uint64) << 32) | x0.cast(dtypes.uint64)

    # orders and choices

    @classmethod
    @composed
    def randperm(cls, n: int, device: str | None = None, dtype: DTypeLike = None) -> Self:
        """Numbers 0 to n - 1 in random order, all orders equally likely.

        Args:
            n: how many.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result, by default int32.

        Returns a vector of shape (n,).

        Raises ShapeError for n < 0.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        count = as_int("randperm", "n", n)
        if count < 0:
            raise ShapeError(f"randperm: {count} numbers")
        kind = dtypes.int32 if dtype is None else dtype
        if count == 0:
            return cls.zeros(0, dtype=kind, device=device)
        return cls._random_keys((count,), device).argsort().cast(kind)

    @classmethod
    def _random_keys(cls, shape: tuple[int, ...], device: str | None) -> Self:
        """Words of 64 bits, which are hardly ever equal."""
        high, low = cls.random_bits(2, *shape, device=device).unbind()
        return (high.cast(dtypes.uint64) << 32) | low.cast(dtypes.uint64)

    @classmethod
    @composed
    def permutation(cls, x: Self | int, device: str | None = None) -> Self:
        """Rows of a tensor (along the first axis) in random order; for a number n, 0 to n - 1.

        Args:
            x: a tensor, or a number.
            device: name of the device, by default `Device.DEFAULT`.

        Returns a tensor of the shape and dtype of `x`, or int32 of shape (n,).

        Raises ShapeError for a tensor without axes.

        >>> Tensor.permutation(Tensor([[1, 1], [1, 1]])).tolist()
        [[1, 1], [1, 1]]
        """
        if isinstance(x, int):
            return cls.randperm(x, device=device)
        if not x.ndim:
            raise ShapeError("permutation: a tensor without axes has no rows")
        return x[cls.randperm(x._sizes[0], device=x.device)]

    @composed
    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Draw positions along the last axis, each with a probability proportional to the value
        there.

        Weights that are still to be computed are not looked at: a negative one among them, or a
        row of zeros, gives undefined positions.

        Args:
            num_samples: how many to draw.
            replacement: whether a position can be drawn more than once.

        Returns int32 positions: (num_samples,) for shape (n,), (rows, num_samples) for (rows, n).

        Raises ShapeError unless there are one or two axes, and enough positions; DataError for
        weights that are known to be negative, infinite, NaN or all 0.

        >>> Tensor([0.0, 1.0]).multinomial(3, replacement=True).tolist()
        [1, 1, 1]
        """
        count = as_int("multinomial", "num_samples", num_samples)
        if self.ndim not in (1, 2) or not self._sizes[-1]:
            raise ShapeError(
                f"multinomial: {show_shape(self.shape)} are no weights",
                tensor=describe(self.uop),
                rule="a vector or the rows of a matrix, with one weight or more",
            )
        size = self._sizes[-1]
        if count < 1 or (not replacement and count > size):
            raise ShapeError(
                f"multinomial: {count} of {size} places",
                remedy="draw at least one; more than there are with replacement=True",
            )
        check_weights("multinomial", self)
        rows = self.detach()._floating()._wide()
        rows = rows if self.ndim == 2 else rows.unsqueeze(0)
        if replacement:
            sums = rows.cumsum(1)
            drawn = type(self).rand(rows._sizes[0], count, device=self.device, dtype=rows.dtype)
            levels = drawn * sums._slice(1, size - 1, size)
            found = sums.contiguous().searchsorted(levels.contiguous(), right=True)
            # A level may be rounded up to the sum of all.
            last = (rows > 0).where(self._iota(size), 0).amax(1, keepdim=True)
            found = found.cast(dtypes.int32).minimum(last)
        else:
            # The first of exponential clocks that run at these rates (Efraimidis, Spirakis).
            clocks = type(self).exponential(*rows._sizes, device=self.device, dtype=rows.dtype)
            found = (rows > 0).where(clocks / rows, math.inf).topk(count, 1, largest=False)[1]
        return found.reshape(*self.shape[:-1], count)

    @classmethod
    @composed
    def choice(
        cls,
        a: Self | int,
        *size: Any,
        replace: bool = True,
        p: Self | None = None,
        device: str | None = None,
    ) -> Self:
        """Rows of `a` drawn at random, or numbers below it.

        Args:
            a: a tensor, or a number n for 0 to n - 1.
            size: shape of the draw.
            replace: whether a row can be drawn more than once.
            p: weights of the rows, (rows,); by default all are equally likely.
            device: name of the device, by default `Device.DEFAULT`.

        Returns a tensor of shape (*size, *a.shape[1:]) in the dtype of `a`, or int32 of shape
        `size`.

        Raises ShapeError if there are none, or too few to draw without replacement.

        >>> Tensor.choice(1, 2, 2).tolist()
        [[0, 0], [0, 0]]
        """
        count = a if isinstance(a, int) else a._sizes[0]
        where = device if isinstance(a, int) else a.device
        shape, _ = as_sizes("choice", flat_arguments(size))
        total = math.prod(as_int("choice", "size", each) for each in shape)
        if count < 1 or (not replace and total > count):
            raise ShapeError(f"choice: {total} of {count}")
        if p is not None and p.shape != (count,):
            raise ShapeError(f"choice: p has shape {show_shape(p.shape)}, not ({count},)")
        if total == 0:
            picked = cls.zeros(0, dtype=dtypes.int32, device=where)
        elif p is not None:
            picked = p.multinomial(total, replacement=replace)
        elif replace:
            picked = cls.randint(total, low=0, high=count, device=where)
        else:
            picked = cls.randperm(count, device=where)._slice(0, 0, total)
        picked = picked.reshape(shape)
        return picked if isinstance(a, int) else a[picked]

    # distributions

    @composed
    def bernoulli(self) -> Self:
        """Draw 1 with the probability that each element names, else 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        p = self.detach()._floating()
        drawn = type(self).rand(*p._sizes, device=self.device)
        return (drawn < p).cast(p.dtype)

    @classmethod
    @composed
    def exponential(
        cls, *shape: Any, scale: float = 1.0, device: str | None = None, dtype: DTypeLike = None
    ) -> Self:
        """Draw exponential numbers with mean `scale`.

        Args:
            shape: the sizes, one by one or as one tuple.
            scale: the mean.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.exponential(2, 3).shape
        (2, 3)
        """
        drawn = cls.rand(*shape, device=device, dtype=dtype)
        return -(1 - drawn).log() * scale

    @classmethod
    @composed
    def gamma(
        cls,
        *shape: Any,
        alpha: Any = 1.0,
        scale: Any = 1.0,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> Self:
        """Draw gamma numbers, with density proportional to x^(alpha - 1) exp(-x / scale). No
        gradient flows to `alpha`.

        Args:
            shape: the sizes, one by one or as one tuple.
            alpha: the shape parameter, a number or a tensor that broadcasts to `shape`.
            scale: the scale, likewise.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).

        Returns a tensor of `shape`. By the method of Marsaglia and Tsang (2000).

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.gamma(3, alpha=2.0).shape
        (3,)
        """
        sizes, _ = as_sizes("gamma", flat_arguments(shape))
        kind = dtypes.default_float if dtype is None else dtype
        wide = cls.zeros(1, dtype=kind)._wide().dtype
        power = (alpha if isinstance(alpha, Distributions) else cls(alpha, dtype=wide)).detach()
        power = power.to(device).cast(wide).expand(sizes)
        # Below 1 a number of alpha + 1 is made smaller.
        is_small = power < 1
        d = is_small.where(power + 1, power) - 1 / 3
        c = 1 / (d * 9).sqrt()
        normal = cls.randn(_GAMMA, *sizes, device=device, dtype=wide)
        level = 1 - cls.rand(_GAMMA, *sizes, device=device, dtype=wide)
        base = normal * c + 1
        cube = base * base * base
        safe = (base > 0).where(cube, 1.0)
        is_good = (base > 0) & (level.log() < normal * normal * 0.5 + d - d * safe + d * safe.log())
        made = d * _first(is_good, safe)
        shrunk = (1 - cls.rand(*sizes, device=device, dtype=wide)).log() / power
        made = is_small.where(made * is_small.where(shrunk, 0.0).exp(), made)
        result: Self = (made * scale).cast(kind)
        return result

    @classmethod
    @composed
    def beta(
        cls,
        *shape: Any,
        alpha: Any = 1.0,
        beta: Any = 1.0,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> Self:
        """Draw beta numbers, between 0 and 1, with density proportional to x^(alpha - 1) (1 -
        x)^(beta - 1).

        Args:
            shape: the sizes, one by one or as one tuple.
            alpha: first parameter, a number or a tensor that broadcasts to `shape`.
            beta: second parameter, likewise.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.beta(3, alpha=2.0, beta=1.0).shape
        (3,)
        """
        one = cls.gamma(*shape, alpha=alpha, device=device, dtype=dtype)
        other = cls.gamma(*shape, alpha=beta, device=device, dtype=dtype)
        return one / (one + other)

    @composed
    def poisson(self) -> Self:
        """Draw Poisson numbers with these rates; computed in float64.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 0.0]).poisson().tolist()
        [0.0, 0.0]
        """
        kind = self._floating().dtype
        rate = self.detach().cast(dtypes.float64)
        sizes = rate._sizes
        cls = type(self)
        level = cls.rand(*sizes, device=self.device, dtype=dtypes.float64)
        is_small = rate < _SMALL_RATE
        small = is_small.where(rate, 1.0).unsqueeze(-1)
        position = self._iota(_TABLE).cast(dtypes.float64)
        powers = position.eq(0).where(0.0, position * small.eq(0).where(1.0, small).log())
        chances = (powers - small - _log_factorial(position)).exp()
        chances = (small.eq(0) & position.ne(0)).where(0.0, chances)
        of_table = (level.unsqueeze(-1) >= chances.cumsum(-1)).sum(-1, dtype=dtypes.float64)

        large = is_small.where(_SMALL_RATE, rate)
        b = large.sqrt() * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        within = 0.9277 - 3.6224 / (b - 2)
        drawn = cls.rand(2, _POISSON, *sizes, device=self.device, dtype=dtypes.float64)
        u, v = drawn[0] - 0.5, 1 - drawn[1]
        us = 0.5 - u.abs()
        safe = (us > 0).where(us, 1.0)
        k = ((a * 2 / safe + b) * u + large + 0.43).floor()
        is_sure = (us >= 0.07) & (v <= within)
        is_wrong = (k < 0) | ((us < 0.013) & (v > us)) | (us <= 0)
        count = (k < 0).where(0.0, k)
        left = (v * inverse / (a / (safe * safe) + b)).log()
        is_below = left <= count * large.log() - large - _log_factorial(count)
        is_good = is_sure | (is_wrong.logical_not() & is_below)
        return is_small.where(of_table, _first(is_good, count)).cast(kind)


def _first(is_good: Any, values: Any) -> Any:
    """Along the first axis, the value at the first good position; the last one if there is none."""
    count = is_good.shape[0]
    position = values._iota(count).reshape(count, *(1 for _ in is_good.shape[1:]))
    first = is_good.where(position, count - 1).amin(0)
    return position.eq(first.unsqueeze(0)).where(values, 0.0).sum(0)


def _log_factorial(k: Any) -> Any:
    """log k! for whole k >= 0: Stirling's series from 8 on, below that the products themselves."""
    product = k + 1
    for step in range(2, 9):
        product = product * (k < 8).where(k + step, 1.0)
    is_small = k < 8
    x = is_small.where(k + 9, k + 1)
    inverse = 1 / x
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    whole = (x - 0.5) * x.log() - x + 0.5 * math.log(2 * math.pi) + series
    return is_small.where(whole - is_small.where(product, 1.0).log(), whole)
