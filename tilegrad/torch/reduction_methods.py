"""Reductions of `torch.Tensor` that differ: pairs of values and indices along one axis, means and
variances of floats only, indices of int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.named_pairs import ValuesAndIndices, pair_of, wide_pair

__all__ = ["Reductions"]


class Reductions(OurTensor):
    """A tensor with PyTorch's reductions."""

    # A tensor of tilegrad's as one of the class below.
    _adopt: Callable[[OurTensor], Any]

    def var(self, *args: Any, **options: Any) -> Any:
        """The variance; a bool behind the axes is PyTorch's `unbiased`."""
        if not self.dtype.is_float:
            raise DTypeError(f"var: the dtype must be a float, it is {self.dtype.name}")
        return super().var(*_unbiased(args, options), **options)

    def std(self, *args: Any, **options: Any) -> Any:
        """The standard deviation; a bool behind the axes is PyTorch's `unbiased`."""
        if not self.dtype.is_float:
            raise DTypeError(f"std: the dtype must be a float, it is {self.dtype.name}")
        return super().std(*_unbiased(args, options), **options)

    def mean(self, *args: Any, dtype: DType | None = None, **options: Any) -> Any:
        """The mean.

        Raises DTypeError for integers: PyTorch has no dtype for it.
        """
        if dtype is None and not self.dtype.is_float:
            raise DTypeError(
                f"mean: the dtype must be a float, it is {self.dtype.name}",
                remedy="x.float().mean(), or x.mean(dtype=torch.float32)",
            )
        if dtype is not None:
            return self.to(dtype).mean(*args, **options)
        return super().mean(*args, **options)

    def unique(  # type: ignore[override]
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The different values in order, or with `dim` the different slices along an axis, which
        are found now; and with them where each element's stands, and how often each occurs.
        """
        if dim is None:
            return super().unique(sorted, return_inverse, return_counts)
        values = self.detach().float() if self.dtype.itemsize < 4 else self.detach()
        _, first, inverse, counts = numpy.unique(
            values.numpy(), return_index=True, return_inverse=True, return_counts=True, axis=dim
        )
        made = [self.detach().index_select(dim, self._indices(first))]
        made += [self._indices(inverse.reshape(-1))] * return_inverse
        made += [self._indices(counts)] * return_counts
        return tuple(made) if len(made) > 1 else made[0]

    def _indices(self, array: Any) -> Self:
        return type(self)(array, device=device_of(self), dtype=dtypes.int64)

    def max(self, *args: Any, **options: Any) -> Any:
        """The largest value; over one axis a pair of values and indices; with another tensor, the
        larger of each two elements.
        """
        return self._extreme_pair("max", args, options)

    def min(self, *args: Any, **options: Any) -> Any:
        """The smallest value, as `max`."""
        return self._extreme_pair("min", args, options)

    def _extreme_pair(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if len(args) + len(options) == 1:
            # As a rule.
            axis = args[0] if args else options.get("dim")
            if axis.__class__ is int:
                return self._with_positions(name, axis, False)
        options = dict(options)
        other = options.pop("other", args[0] if args and isinstance(args[0], OurTensor) else None)
        if other is not None:
            return getattr(self, f"{name}imum")(other)
        named = options.pop("dim", options.pop("axis", None))
        dim = args[0] if args else named
        keepdim = args[1] if len(args) > 1 else options.pop("keepdim", False)
        if options:
            raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(options))!r}")
        if dim is None or isinstance(dim, tuple):
            return getattr(OurTensor, name)(self, dim, keepdim)
        return self._with_positions(name, dim, keepdim)

    def _with_positions(self, name: str, dim: int, keepdim: bool) -> ValuesAndIndices:
        values = (self._greatest if name == "max" else self._least)(dim, keepdim)
        return pair_of(name, values, getattr(self, f"arg{name}")(dim, keepdim))

    def cummax(self, dim: int = 0, **options: Any) -> Any:  # type: ignore[override]
        """The largest value so far, and where it stands."""
        dim = options.get("axis", dim)
        return self._running_pair("cummax", super().cummax(dim), dim)

    def cummin(self, dim: int = 0, **options: Any) -> Any:  # type: ignore[override]
        """The smallest value so far, and where it stands."""
        dim = options.get("axis", dim)
        return self._running_pair("cummin", super().cummin(dim), dim)

    def _running_pair(self, name: str, made: Any, dim: int) -> ValuesAndIndices:
        """Running extremes, and the last position that has the value of each."""
        if isinstance(made, tuple):
            values, indices = wide_pair(name, made)
            return pair_of(name, self._taken_at(dim, values, indices), indices)
        values = made
        if not self.ndim:
            return pair_of(name, values, self.zeros_like(dtype=dtypes.int64))
        size = self.shape[dim]
        positions = OurTensor.arange(size, dtype=dtypes.int64, device=device_of(self))
        sizes = [size if axis == dim % self.ndim else 1 for axis in range(self.ndim)]
        is_here = (self == values) | (self.isnan() & values.isnan())
        marked = is_here.where(self._adopt(positions.reshape(sizes)).expand(self.shape), -1)
        found = OurTensor.cummax(marked, dim)
        indices = found[0] if isinstance(found, tuple) else found
        return pair_of(name, self._taken_at(dim, values, indices), indices)

    def _taken_at(self, dim: int, values: Any, indices: Any) -> Any:
        """`values`, each with its gradient from the element that it was taken from."""
        return self.gather(dim, indices) if self._requires_grad and self.ndim else values


def _unbiased(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Positional arguments of a variance as tilegrad takes them: (dim, unbiased, keepdim)."""
    if options.get("correction", 1) is None:
        options["correction"] = 1
    if args and isinstance(args[0], bool):
        options["unbiased"] = args[0]
        return args[1:]
    if len(args) > 1:
        options["unbiased"] = args[1]
        return (args[0], *args[2:])
    return args


def mean_beside(x: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The mean of a tensor with the arguments of a variance."""
    axes = _unbiased(args, rest := dict(options))
    spread = ("unbiased", "correction")
    return x.mean(*axes, **{name: value for name, value in rest.items() if name not in spread})
