"""Random tensors. Their numbers are fixed when they are made, not when they are realized.

Each takes words of one stream (see generator.py). A float32 in 0 <= x < 1 is the upper 24 bits of a
word, times 2**-24.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.config import training
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError, UnsupportedDTypeError
from tilegrad.base.origin import composed
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.draws import drawn_at_once
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import (
    as_int,
    as_number,
    as_sizes,
    flat_arguments,
    is_zero,
)
from tilegrad.tensor.indexing.filled import DTypeLike
from tilegrad.tensor.indexing.generator import draw, generator
from tilegrad.tensor.indexing.written import Writing

__all__ = ["Random"]


def _check_floats(name: str, dtype: DType) -> None:
    """Refuse to round random numbers to integers."""
    if not dtype.is_float:
        raise UnsupportedDTypeError(f"{name}: a float dtype is needed, not {dtype.name}")


class Random(Writing):
    """Random methods; sizes are spelled out or are one tuple, and `device`, `dtype`,
    `requires_grad` are as in creation.
    """

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Begin the stream of random numbers that `seed` names.

        A forked process goes on in a stream of its own, so that children differ from each other and
        from their parent; the same program makes the same children again.

        Args:
            seed: any integer.

        Returns None.

        >>> Tensor.manual_seed(3)
        >>> a = Tensor.rand(2).tolist()
        >>> Tensor.manual_seed(3)
        >>> a == Tensor.rand(2).tolist()
        True
        """
        generator.restart(seed)

    @classmethod
    def random_bits(cls, *shape: Any, device: str | None = None) -> Self:
        """Random words, every value equally likely.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.

        Returns a uint32 tensor of `shape`.

        Raises ShapeError for a negative size, DeviceError for an unknown device.

        >>> Tensor.random_bits(4).dtype
        dtypes.uint
        """
        sizes, _ = as_sizes("rand", flat_arguments(shape))
        for size in sizes:
            if not isinstance(size, int):
                raise ShapeError("rand: sizes must be numbers; draw the maximum and cut")
        whole: tuple[int, ...] = sizes  # type: ignore[assignment]
        if any(is_zero(size) for size in whole):
            return cls._of(UOp.const(dtypes.uint32, 0), device).expand(whole)._apart()
        name = canonical(device)
        return cls._of(draw(whole, name), name)

    @classmethod
    def _uniform(cls, shape: tuple[Any, ...], device: str | None, dtype: DTypeLike) -> Self:
        """0 <= x < 1, with as many random bits as the dtype can hold exactly, which never rounds up
        to 1.
        """
        wanted = as_dtype(dtype or dtypes.default_float)
        _check_floats("rand", wanted)
        sizes = (2, *shape) if wanted is dtypes.float64 else shape
        return cls.random_bits(*sizes, device=device)._as_uniform(wanted)

    @templated
    def _as_uniform(self, dtype: DType) -> Self:
        """Numbers that `_uniform` makes of these words; of two for each float64."""
        if dtype is dtypes.float64:
            high, low = self.unbind()
            return (high >> 5).cast(dtype) * 2.0**-27 + (low >> 6).cast(dtype) * 2.0**-53
        bits: int = dtypes.finfo(dtype)[1] + 1
        return ((self >> (32 - bits)).cast(dtypes.float32) * 2.0**-bits).cast(dtype)

    @templated
    def _as_normal(self, dtype: DType) -> Self:
        """Numbers that `randn` makes of these words: as many as it takes for pairs of uniform
        numbers.
        """
        exact = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        radius, angle = self._as_uniform(exact).unbind()
        normal = ((1 - radius).log() * -2).sqrt() * (angle * (2 * math.pi)).cos()
        return normal.cast(dtype)

    @classmethod
    @composed
    def rand(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Uniform random numbers, 0 <= x < 1.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a dtype that is no float, DeviceError
        for an unknown device.

        >>> Tensor.manual_seed(0); Tensor.rand(2).shape
        (2,)
        """
        sizes, _ = as_sizes("rand", flat_arguments(shape))
        return cls._uniform(sizes, device, dtype)._wanting(requires_grad)

    @classmethod
    @composed
    def randn(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Normal random numbers with mean 0 and variance 1, by Box and Muller (1958): two uniform
        numbers for each.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a dtype that is no float, DeviceError
        for an unknown device.

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        sizes, _ = as_sizes("randn", flat_arguments(shape))
        wanted = as_dtype(dtype or dtypes.default_float)
        _check_floats("randn", wanted)
        count = (2, 2) if wanted is dtypes.float64 else (2,)
        words = cls.random_bits(*count, *sizes, device=device)
        return words._as_normal(wanted)._wanting(requires_grad)

    @classmethod
    @composed
    def randint(
        cls,
        *args: Any,
        low: int = 0,
        high: int = 10,
        size: Any = None,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Random integers, low <= x < high: `randint(2, 3, low=0, high=5)`, or `randint(0, 5, (2,
        3))` as PyTorch spells it.

        A 32-bit word is scaled by multiplication, so that the probability of a value differs by at
        most 2**-32 from that of another.

        Args:
            args: the sizes, or low, high and the shape.
            low: least value.
            high: end, not included.
            size: shape of the result.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: integer dtype, by default int32.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of the shape.

        Raises ShapeError unless low < high <= low + 2**32; DTypeError for a float dtype.

        >>> Tensor.randint(4, low=3, high=4).tolist()
        [3, 3, 3, 3]
        """
        if size is None and len(args) in (2, 3) and isinstance(args[-1], (tuple, list)):
            *limits, size = args
            low, high = limits if len(limits) == 2 else (0, limits[0])
            args = ()
        elif size is not None and args:
            low, high = args if len(args) == 2 else (0, args[0])
        shape, _ = as_sizes(
            "randint", flat_arguments(args) if size is None else flat_arguments((size,))
        )
        wanted = as_dtype(dtype or dtypes.default_int)
        if not wanted.is_int:
            raise DTypeError(
                f"randint: an integer dtype is needed, not {wanted.name}",
                remedy="uniform(low=, high=) draws floats; or cast what was drawn",
            )
        low, high = as_int("randint", "low", low), as_int("randint", "high", high)
        if not 0 < high - low <= 1 << 32:
            raise ShapeError(
                f"randint: no range from {low} to {high}", rule="low < high <= low + 2**32"
            )
        if low < wanted.min or high - 1 > wanted.max:
            raise DTypeError(f"randint: {low} to {high} does not fit {wanted.name}")
        words = cls.random_bits(*shape, device=device).cast(dtypes.uint64)
        scaled = (words * (high - low)) >> 32
        return (scaled.cast(dtypes.int64) + low).cast(wanted)._wanting(requires_grad)

    @classmethod
    @composed
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Uniform random numbers between `low` and `high`.

        Args:
            shape: the sizes, one by one or as one tuple.
            low: least value.
            high: end, not included.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.uniform(2, 3, low=-1.0, high=1.0).shape
        (2, 3)
        """
        sizes, _ = as_sizes("uniform", flat_arguments(shape))
        if requires_grad:
            made: Self | None = drawn_at_once(
                sizes,
                device,
                lambda count: cls.rand(count, device=device, dtype=dtype),
                lambda unit: unit * (high - low) + low,
                is_parameter=True,
            )
            if made is not None:
                return made._wanting(requires_grad)
        drawn = cls.rand(*sizes, device=device, dtype=dtype)
        return (drawn * (high - low) + low)._wanting(requires_grad)

    @classmethod
    @composed
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Normal random numbers with a given mean and standard deviation.

        Args:
            shape: the sizes, one by one or as one tuple.
            mean: the mean.
            std: the standard deviation.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a dtype that is no float, DeviceError
        for an unknown device.

        >>> Tensor.normal(2, 3, mean=5.0, std=0.1).shape
        (2, 3)
        """
        return (cls.randn(*shape, device=device, dtype=dtype) * std + mean)._wanting(requires_grad)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Uniform random numbers in -1..1, divided by the square root of the number of elements.

        Args:
            shape: the sizes, one by one or as one tuple.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 tensor of `shape`.

        Raises ShapeError for a negative size.

        >>> Tensor.scaled_uniform(2, 3).shape
        (2, 3)
        """
        sizes = flat_arguments(shape)
        return cls._symmetric(sizes, 1 / math.sqrt(max(1, math.prod(sizes))), options)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Uniform random weights within sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010).

        Args:
            shape: (outputs, inputs, ...).
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 tensor of `shape`.

        Raises ShapeError for no axes or a negative size.

        >>> Tensor.glorot_uniform(2, 3).shape
        (2, 3)
        """
        sizes = flat_arguments(shape)
        if not sizes:
            raise ShapeError("glorot_uniform: no sizes", rule="(outputs, inputs, ...)")
        return cls._symmetric(sizes, math.sqrt(6 / (sizes[0] + math.prod(sizes[1:]))), options)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Uniform random weights within sqrt(6 / ((1 + a^2) inputs)) (He et al. 2015,
        arXiv:1502.01852).

        Args:
            shape: (outputs, inputs, ...).
            a: negative slope of the leaky ReLU that follows.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 tensor of `shape`.

        Raises ShapeError for a negative size.

        >>> Tensor.kaiming_uniform(2, 3).shape
        (2, 3)
        """
        sizes = flat_arguments(shape)
        return cls._symmetric(sizes, math.sqrt(6 / ((1 + a * a) * math.prod(sizes[1:]))), options)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Normal random weights with standard deviation sqrt(2 / ((1 + a^2) inputs)) (He et al.
        2015, arXiv:1502.01852).

        Args:
            shape: (outputs, inputs, ...).
            a: negative slope of the leaky ReLU that follows.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 tensor of `shape`.

        Raises ShapeError for a negative size.

        >>> Tensor.kaiming_normal(2, 3).shape
        (2, 3)
        """
        sizes = flat_arguments(shape)
        return cls.normal(
            *sizes, std=math.sqrt(2 / ((1 + a * a) * math.prod(sizes[1:]))), **options
        )

    @classmethod
    def _symmetric(cls, sizes: Any, limit: float, options: dict[str, Any]) -> Self:
        return cls.uniform(*sizes, low=-limit, high=limit, **options)

    def rand_like(self, **options: Any) -> Self:
        """Uniform random numbers, 0 <= x < 1, in the shape of this tensor.

        Args:
            options: `device`, `dtype` and `requires_grad`; by default device and dtype are this
                tensor's.

        Returns a tensor of this shape.

        Raises DTypeError for a dtype that is no float.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return type(self).rand(
            *self.shape, **{"device": self.device, "dtype": self.dtype, **options}
        )

    def randn_like(self, **options: Any) -> Self:
        """Normal random numbers, mean 0 and variance 1, in the shape of this tensor.

        Args:
            options: `device`, `dtype` and `requires_grad`; by default device and dtype are this
                tensor's.

        Returns a tensor of this shape.

        Raises DTypeError for a dtype that is no float.

        >>> Tensor.zeros(2, 3).randn_like().dtype
        dtypes.float
        """
        return type(self).randn(
            *self.shape, **{"device": self.device, "dtype": self.dtype, **options}
        )

    def randint_like(self, low: int, high: int | None = None, **options: Any) -> Self:
        """Random integers, low <= x < high (or 0 <= x < low), in the shape of this tensor.

        Args:
            low: least value, or the end without `high`.
            high: end, not included.
            options: `device`, `dtype` and `requires_grad`.

        Returns a tensor of this shape, int32 unless `dtype` says otherwise.

        Raises ShapeError unless low < high, DTypeError for a float dtype.

        >>> Tensor.empty(2).randint_like(3, 4).tolist()
        [3, 3]
        """
        least, most = (0, low) if high is None else (low, high)
        options.setdefault("device", self.device)
        return self.randint(*self._sizes, low=least, high=most, **options)

    @composed
    def dropout(self, p: float = 0.5) -> Self:
        """While training (`Tensor.training`, on by default), set each element to zero with
        probability `p` and divide the others by 1 - p (Srivastava et al. 2014).

        Args:
            p: the probability, in 0..1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises ShapeError unless 0 <= p <= 1.

        >>> with Tensor.train(False):
        ...     Tensor([1.0, 2.0]).dropout(0.5).tolist()
        [1.0, 2.0]
        """
        if not 0 <= as_number("dropout", "p", p) <= 1:
            raise ShapeError(f"dropout: {p} is no probability", rule="from 0 to 1")
        if not training.get() or p == 0:
            return self
        if p == 1:
            return self.zeros_like()
        survives = type(self).rand(*self._sizes, device=self.device) >= p
        return survives.where(self * (1 / (1 - p)), 0)
