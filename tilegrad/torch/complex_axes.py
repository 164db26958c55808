"""Complex numbers: their axes, which move as those of the pairs do.

A method that only names axes is that of the pairs, whose last axis stays where it is: its result is
a view where theirs is one. Other methods that are linear in their tensors are applied to the real
and the imaginary parts by complex_families.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilegrad.tensor.handle.size_arguments import as_axis
from tilegrad.torch.complex_dtypes import ComplexDType
from tilegrad.torch.complex_families import of_components
from tilegrad.torch.complex_values import ComplexValues
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor

__all__ = ["ComplexAxes"]

_ONE, _TWO = ((0, ("dim",)),), ((0, ("dim0", "axis0")), (1, ("dim1", "axis1")))
_SECOND = ((1, ("dim",)),)
_ENDS = ((0, ("source",)), (1, ("destination",)))
# The arguments that name axes: their positions and names.
_VIEWS: dict[str, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "chunk": _SECOND, "index_select": _ONE, "moveaxis": _ENDS, "movedim": _ENDS, "narrow": _ONE,
    "select": _ONE, "split": _SECOND, "split_with_sizes": _SECOND, "swapaxes": _TWO,
    "swapdims": _TWO, "tensor_split": _SECOND, "transpose": _TWO, "unbind": _ONE,
    "unflatten": _ONE,
}  # fmt: skip


class ComplexAxes(ComplexValues):
    """Complex numbers, whose axes move."""

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(self.shape)

    def _length(self, axis: int) -> int:
        return int(self.shape[axis])

    def _axis(self, dim: int) -> int:
        return as_axis("complex", dim, self.ndim)

    def _axes(self, dim: Any) -> Any:
        if dim is None or dim in ((), []):
            return tuple(range(self.ndim))
        return tuple(map(self._axis, dim)) if isinstance(dim, (tuple, list)) else self._axis(dim)

    def _summed(self, name: str, dim: Any, keepdim: bool, dtype: Any) -> Any:
        given: Any = self if dtype is None else self.to(dtype)
        if not isinstance(given, ComplexValues):
            return getattr(given, name)(dim, keepdim)
        if not self.ndim:
            return given.clone()
        return type(self)(getattr(given.pair, name)(self._axes(dim), keepdim))

    def sum(
        self, dim: Any = None, keepdim: bool = False, *, dtype: ComplexDType | None = None
    ) -> Self:
        """The sum over axes."""
        found: Self = self._summed("sum", dim, keepdim, dtype)
        return found

    def mean(
        self, dim: Any = None, keepdim: bool = False, *, dtype: ComplexDType | None = None
    ) -> Self:
        """The mean over axes."""
        found: Self = self._summed("mean", dim, keepdim, dtype)
        return found

    def reshape(self, *shape: Any, **options: Any) -> Self:
        """The same values in another shape."""
        given = shape or tuple(options.values())
        sizes = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        return type(self)(self.pair.reshape(*sizes, 2))

    def view(self, *shape: Any, **options: Any) -> Any:
        """The same values in another shape, or in the dtype that stands alone."""
        if len(shape) == 1 and shape[0] is self.dtype:
            return self
        if len(shape) == 1 and shape[0] is self.pair.dtype and self.ndim:
            return self.pair.flatten(-2)
        return self.reshape(*shape, **options)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """With the axes from one to another joined."""
        if not self.ndim:
            return self.reshape(1)
        first, last = self._axis(start_dim), self._axis(end_dim)
        sizes = self.shape
        return self.reshape(*sizes[:first], -1, *sizes[last + 1 :])

    @property
    def T(self) -> Self:
        """With the axes in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Self:
        """With the last two axes exchanged."""
        found: Self = self.transpose(-2, -1)
        return found

    @property
    def mH(self) -> Self:
        """The conjugates with the last two axes exchanged."""
        return self.mT.conj()

    @property
    def H(self) -> Self:
        """The conjugate of a matrix with its axes exchanged; a number alone."""
        return self.mH if self.ndim else self.conj()

    def adjoint(self) -> Self:
        """The conjugates with the last two axes exchanged."""
        return self.mH

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1."""
        return type(self)(self.pair.unsqueeze(as_axis("unsqueeze", dim, self.ndim + 1)))

    def squeeze(self, dim: Any = None) -> Self:
        """Without axes of size 1: all of them, or those of `dim`."""
        if not self.ndim:
            return self
        axes = () if dim in ((), []) else self._axes(dim)
        axes = axes if isinstance(axes, tuple) else (axes,)
        sizes = [size for axis, size in enumerate(self.shape) if size != 1 or axis not in axes]
        return self.reshape(*sizes)

    def permute(self, *dims: Any) -> Self:
        """With the axes in another order."""
        given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        return type(self)(self.pair.permute(*map(self._axis, given), self.ndim))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """With the elements moved along axes, round the end; without axes in row-major order."""
        if dims is None or (isinstance(dims, (tuple, list)) and not dims):
            return self.flatten().roll(shifts, 0).reshape(*self.shape)
        return type(self)(self.pair.roll(shifts, self._axes(dims)))

    def expand(self, *sizes: Any, **options: Any) -> Self:
        """Stretched along axes of size 1; -1 leaves an axis as it is."""
        given = sizes or tuple(options.values())
        wanted = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        return type(self)(self.pair.expand(*wanted, -1))

    broadcast_to = expand

    def t(self) -> Self:
        """The transpose of a matrix; what has fewer axes as it is."""
        return self.mT if self.ndim == 2 else self.permute(*range(self.ndim))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements along a diagonal of two axes, which are one axis at the end."""
        found = self.pair.diagonal(offset, self._axis(dim1), self._axis(dim2))
        return type(self)(found.transpose(-2, -1))


def _of_pairs(name: str) -> Callable[..., Any]:
    """The method of the pairs, with axes that count from the front."""
    axes, plain = _VIEWS[name], getattr(Tensor, name)

    def method(self: ComplexAxes, *args: Any, **options: Any) -> Any:
        if not self.ndim:
            return of_components(plain, (self, *args), options, type(self))
        given, named = list(args), dict(options)
        for position, names in axes:
            if position < len(given):
                given[position] = self._axes(given[position])
            for key in names:
                if key in named:
                    named[key] = self._axes(named[key])
        found = plain(self.pair, *given, **named)
        if isinstance(found, (tuple, list)):
            return tuple([type(self)(each) for each in found])
        return type(self)(found)

    method.__doc__ = plain.__doc__
    return called(method, name)


for _name in _VIEWS:
    setattr(ComplexAxes, _name, _of_pairs(_name))
