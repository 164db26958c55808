"""Complex numbers: a tensor of pairs (real, imaginary) along a last axis that is not shown.

tilegrad computes in real numbers only. What Fourier transforms give, and what is made of it, is
held here with the arithmetic of complex numbers. Gradients flow through the pairs.
"""

from __future__ import annotations

from typing import Any, Self

import numpy

from tilegrad.base.errors import DTypeError
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.creation import tensor
from tilegrad.torch.sizes import Size
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["Complex", "einsum", "make", "polar", "view_as_complex", "view_as_real"]


class Complex:
    """A tensor of complex numbers.

    >>> import tilegrad.torch as torch
    >>> z = torch.complex(torch.tensor([3.0]), torch.tensor([4.0]))
    >>> z.abs().tolist(), (z * z).real.tolist()
    ([5.0], [-7.0])
    """

    __array_priority__ = 2000

    def __init__(self, pair: Any):
        self.pair: Tensor = as_ours(pair)

    # what is known without computing

    @property
    def shape(self) -> Size:
        """The sizes."""
        return Size(self.pair.shape[:-1])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.pair.ndim - 1

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through it."""
        return self.pair.requires_grad

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    def is_complex(self) -> bool:
        """True."""
        return True

    def __len__(self) -> int:
        return int(self.shape[0])

    # parts

    @property
    def real(self) -> Tensor:
        """The real parts, a view."""
        found: Tensor = self.pair[..., 0]
        return found

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, a view."""
        found: Tensor = self.pair[..., 1]
        return found

    def abs(self) -> Tensor:
        """The distance from 0."""
        return self.real.hypot(self.imag)

    __abs__ = absolute = abs

    def angle(self) -> Tensor:
        """The angle to the real axis, in -pi..pi."""
        return self.imag.atan2(self.real)

    def conj(self) -> Self:
        """With the sign of the imaginary parts changed."""
        return self._with(self.real, -self.imag)

    def _with(self, real: Any, imag: Any) -> Self:
        return type(self)(real.stack(imag, dim=-1))

    # values

    def numpy(self) -> Any:
        """The values as a NumPy array."""
        pair = self.pair.detach().numpy()
        return pair[..., 0] + 1j * pair[..., 1]

    def tolist(self) -> Any:
        """The values as nested lists of Python's complex numbers."""
        return self.numpy().tolist()

    def item(self) -> complex:
        """The value of the only element."""
        return complex(self.numpy().item())

    def __repr__(self) -> str:
        text = numpy.array2string(self.numpy(), precision=4, separator=", ", prefix="tensor(")
        return f"tensor({text})"

    def detach(self) -> Self:
        """The same values without gradients."""
        return type(self)(self.pair.detach())

    def clone(self) -> Self:
        """A copy."""
        return type(self)(self.pair.clone())

    def to(self, *args: Any, **options: Any) -> Self:
        """The same values on another device."""
        return type(self)(self.pair.to(*args, **options))

    # arithmetic

    def __add__(self, other: Any) -> Self:
        real, imag = _parts(other, self)
        return self._with(self.real + real, self.imag + imag)

    __radd__ = __add__

    def __neg__(self) -> Self:
        return type(self)(-self.pair)

    def __sub__(self, other: Any) -> Self:
        real, imag = _parts(other, self)
        return self._with(self.real - real, self.imag - imag)

    def __rsub__(self, other: Any) -> Self:
        made: Self = (-self).__add__(other)
        return made

    def __mul__(self, other: Any) -> Self:
        if isinstance(other, (int, float)):
            return type(self)(self.pair * other)
        a, b = self.real, self.imag
        c, d = _parts(other, self)
        return self._with(a * c - b * d, a * d + b * c)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        if isinstance(other, (int, float)):
            return type(self)(self.pair / other)
        c, d = _parts(other, self)
        whole = c * c + d * d
        a, b = self.real, self.imag
        return self._with((a * c + b * d) / whole, (b * c - a * d) / whole)

    def __rtruediv__(self, other: Any) -> Self:
        real, imag = _parts(other, self)
        return self._with(real, imag) / self

    def __matmul__(self, other: Any) -> Self:
        c, d = _parts(other, self)
        a, b = self.real, self.imag
        return self._with(a @ c - b @ d, a @ d + b @ c)

    def __pow__(self, exponent: float) -> Self:
        size, angle = self.abs() ** exponent, self.angle() * exponent
        return self._with(size * angle.cos(), size * angle.sin())

    def exp(self) -> Self:
        """e to the power of each."""
        size = self.real.exp()
        return self._with(size * self.imag.cos(), size * self.imag.sin())

    def __eq__(self, other: object) -> Any:
        real, imag = _parts(other, self)
        return (self.real == real) & (self.imag == imag)

    __hash__ = object.__hash__

    def mul(self, other: Any) -> Self:
        """The product."""
        return self.__mul__(other)

    # axes

    def _axis(self, dim: int) -> int:
        return dim if dim >= 0 else dim - 1

    def _axes(self, dim: Any) -> Any:
        if dim is None:
            return tuple(range(self.ndim))
        return tuple(map(self._axis, dim)) if isinstance(dim, (tuple, list)) else self._axis(dim)

    def sum(self, dim: Any = None, keepdim: bool = False) -> Self:
        """The sum over axes."""
        return type(self)(self.pair.sum(self._axes(dim), keepdim))

    def mean(self, dim: Any = None, keepdim: bool = False) -> Self:
        """The mean over axes."""
        return type(self)(self.pair.mean(self._axes(dim), keepdim))

    def reshape(self, *shape: Any) -> Self:
        """The same values in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return type(self)(self.pair.reshape(*sizes, 2))

    view = reshape

    def flatten(self) -> Self:
        """The same values along one axis."""
        return self.reshape(-1)

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1."""
        return type(self)(self.pair.unsqueeze(self._axis(dim)))

    def squeeze(self, dim: int) -> Self:
        """Without an axis of size 1."""
        return type(self)(self.pair.squeeze(self._axis(dim)))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """With two axes exchanged."""
        return type(self)(self.pair.transpose(self._axis(dim0), self._axis(dim1)))

    def permute(self, *dims: int) -> Self:
        """With the axes in another order."""
        axes = [dim % self.ndim for dim in dims]
        return type(self)(self.pair.permute(*axes, self.ndim))

    def roll(self, shifts: Any, dims: Any) -> Self:
        """With the elements moved along axes, round the end."""
        return type(self)(self.pair.roll(shifts, self._axes(dims)))

    def __getitem__(self, key: Any) -> Self:
        return type(self)(self.pair[_with_pairs(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Complex):
            value = value.pair
        elif isinstance(value, complex):
            value = tensor([value.real, value.imag], dtype=self.pair.dtype)
        elif value != 0:
            value = tensor([float(value), 0.0], dtype=self.pair.dtype)
        self.pair[_with_pairs(key)] = value


def _with_pairs(key: Any) -> Any:
    """An index that leaves the axis of pairs as it is."""
    keys = key if isinstance(key, tuple) else (key,)
    return (*keys, slice(None)) if any(each is Ellipsis for each in keys) else key


def _parts(value: Any, like: Complex) -> tuple[Any, Any]:
    """The real and imaginary parts of an operand."""
    if isinstance(value, Complex):
        return value.real, value.imag
    if isinstance(value, OurTensor):
        found: Any = as_ours(value)
        return found, found.zeros_like()
    if isinstance(value, complex):
        return value.real, value.imag
    if isinstance(value, (int, float)):
        return float(value), 0.0
    raise DTypeError(
        f"complex: cannot use a {type(value).__name__} as an operand",
        rule="complex or real tensors, and numbers",
        line=here(),
    )


def make(real: Tensor, imag: Tensor) -> Complex:
    """The complex numbers of real and imaginary parts."""
    return Complex(as_ours(real).stack(as_ours(imag), dim=-1))


def polar(abs: Tensor, angle: Tensor) -> Complex:
    """The complex numbers of distances and angles."""
    return make(abs * as_ours(angle).cos(), abs * as_ours(angle).sin())


def view_as_complex(input: Tensor) -> Complex:
    """Pairs along the last axis as complex numbers, which share their memory."""
    return Complex(input)


def view_as_real(input: Complex) -> Tensor:
    """Complex numbers as pairs along a last axis, which share their memory."""
    return input.pair


def einsum(equation: str, *operands: Any) -> Complex:
    """Einstein's sum of products, of which one operand at least is complex."""
    pairs = [
        (each.real, each.imag) if isinstance(each, Complex) else (as_ours(each), None)
        for each in operands
    ]
    real: Any = None
    imag: Any = None
    for choice in range(1 << len(pairs)):
        chosen = [pair[choice >> place & 1] for place, pair in enumerate(pairs)]
        if any(each is None for each in chosen):
            continue
        turns = bin(choice).count("1")
        product = Tensor.einsum(equation, *chosen)
        signed = -product if turns % 4 in (2, 3) else product
        if turns % 2:
            imag = signed if imag is None else imag + signed
        else:
            real = signed if real is None else real + signed
    return make(real, imag)
