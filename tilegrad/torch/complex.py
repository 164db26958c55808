"""Complex numbers: a tensor of pairs (real, imaginary) along a last axis that is not shown.

tilegrad computes in real numbers: the arithmetic of complex numbers is here, and gradients flow
through the pairs. Real operands and Python's complex numbers meet them as in PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.nn.tree import Paired
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex_axes import ComplexAxes
from tilegrad.torch.complex_dtypes import ComplexDType
from tilegrad.torch.complex_families import linear
from tilegrad.torch.foreign_operands import yield_to_others
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.methods import renamed
from tilegrad.torch.naming import called
from tilegrad.torch.quick_calls import METHODS, quick_methods
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "Complex", "as_complex", "by_component", "in_place", "make", "polar", "view_as_complex",
    "view_as_real",
]  # fmt: skip


# Integer powers up to this one are products, which are exact where the numbers are.
_MOST_PRODUCTS = 8
# From these real parts on `tanh` is 1 in float32 and in float64.
_FLAT = 40.0, 350.0


class Complex(ComplexAxes):
    """A tensor of complex numbers: an instance of `torch.Tensor`.

    >>> import tilegrad.torch as torch
    >>> z = torch.complex(torch.tensor([3.0]), torch.tensor([4.0]))
    >>> z.abs().tolist(), (z * z).real.tolist()
    ([5.0], [-7.0])
    """

    # Functions of tilegrad's `nn` whose formulas hold for complex numbers.
    _functions = frozenset({
        "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "dropout", "embedding", "fold", "l1_loss", "linear",
        "pairwise_distance", "rms_norm", "triplet_margin_loss", "unfold", "Bilinear", "Conv1d",
        "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding",
        "Linear", "RMSNorm", "RNNCell", "LSTMCell", "GRUCell", "RNN", "LSTM", "GRU",
    })  # fmt: skip

    @property
    def data(self) -> Self:
        """The same memory without gradients."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.pair.data = as_complex(value).pair

    def __iter__(self) -> Iterator[Self]:
        return iter([self[index] for index in range(len(self))])

    # arithmetic

    def __add__(self, other: Any) -> Self:
        real, imag = _real_and_imaginary(other, self)
        return self._with(self.real + real, self.imag + imag)

    __radd__ = __add__

    def __neg__(self) -> Self:
        return type(self)(-self.pair)

    def __sub__(self, other: Any) -> Self:
        real, imag = _real_and_imaginary(other, self)
        return self._with(self.real - real, self.imag - imag)

    def __rsub__(self, other: Any) -> Self:
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> Self:
        """The product with a number, or with numbers of a shape that broadcasts."""
        if isinstance(other, (int, float)):
            return type(self)(self.pair * other)
        a, b = self.real, self.imag
        c, d = _real_and_imaginary(other, self)
        return self._with(a * c - b * d, a * d + b * c)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        """The quotient by a number, or by numbers of a shape that broadcasts; infinite or NaN where
        that is 0.
        """
        if isinstance(other, (int, float)):
            return type(self)(self.pair / other)
        if not isinstance(other, (Complex, OurTensor)):
            other = self._beside(other)
        c, d = _real_and_imaginary(other, self)
        # Scaled, so that no square leaves the dtype.
        size = c.abs().maximum(d.abs()).detach()
        is_zero = size == 0
        size = is_zero.where(1, size)
        c, d = c / size, d / size
        whole = is_zero.where(1, c * c + d * d)
        a, b = self.real, self.imag
        # Over 0 each component is infinite, or NaN.
        real = is_zero.where(a / is_zero.where(c.abs(), 1), (a * c + b * d) / whole / size)
        imag = is_zero.where(b / is_zero.where(c.abs(), 1), (b * c - a * d) / whole / size)
        return self._with(real, imag)

    def __rtruediv__(self, other: Any) -> Self:
        made: Self = self._beside(other) / self
        return made

    def _beside(self, other: Any) -> Any:
        """An operand as complex numbers: a number in this dtype."""
        if isinstance(other, (Complex, OurTensor)):
            return as_complex(other)
        number = complex(other)
        return type(self)(tensor([number.real, number.imag], dtype=self.pair.dtype))

    def __matmul__(self, other: Any) -> Self:
        """The matrix product of (..., n, k) and (..., k, m), or of vectors, as of real tensors."""
        c, d = _real_and_imaginary(other, self)
        a, b = self.real, self.imag
        return self._with(a @ c - b @ d, a @ d + b @ c)

    def __rmatmul__(self, other: Any) -> Self:
        return as_complex(other) @ self

    def __pow__(self, exponent: Any) -> Self:
        """The power by a number, or by numbers of a shape that broadcasts: the principal value."""
        if isinstance(exponent, int) and 0 <= exponent <= _MOST_PRODUCTS:
            made = self._with(self.real.ones_like(), self.real.zeros_like())
            for _ in range(exponent):
                made = made * self
            return made
        if isinstance(exponent, (int, float)):
            size, angle = self.abs() ** exponent, self.angle() * exponent
            return self._with(size * angle.cos(), size * angle.sin())
        real, imag = _real_and_imaginary(exponent, self)
        return (self.log() * self._with(self.real * 0 + real, self.real * 0 + imag)).exp()

    # functions of each number

    def exp(self) -> Self:
        """e to the power of each."""
        size = self.real.exp()
        return self._with(size * self.imag.cos(), size * self.imag.sin())

    def log(self) -> Self:
        """The logarithm with an imaginary part in -pi..pi."""
        size = self.abs()
        # Near 1 the distance from it is what counts.
        first, second = self.real.abs(), self.imag.abs()
        is_near = (size > 0.5) & (size < 2)
        # One of two equal components is the larger: halves of both have no second derivative.
        is_first = first >= second
        large = is_near.where(is_first.where(first, second), 1)
        small = is_near.where(is_first.where(second, first), 0)
        near = ((large - 1) * (large + 1) + small * small).log1p() / 2
        return self._with(is_near.where(near, size.log()), self.angle())

    def sqrt(self) -> Self:
        """The root with a real part that is not negative."""
        x, y = self.real, self.imag
        is_right, side = x >= 0, x.ones_like().copysign(y)
        # This one of the two components loses no digits; the other is half of y over it.
        large = ((is_right.where(x, -x) + self.abs()) / 2).sqrt()
        small = (large > 0).where(y / (2 * (large > 0).where(large, 1)), y)
        return self._with(is_right.where(large, small * side), is_right.where(small, large * side))

    def sin(self) -> Self:
        """The sine."""
        x, y = self.real, self.imag
        return self._with(x.sin() * y.cosh(), x.cos() * y.sinh())

    def cos(self) -> Self:
        """The cosine."""
        x, y = self.real, self.imag
        return self._with(x.cos() * y.cosh(), -(x.sin() * y.sinh()))

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        x, y = self.real, self.imag
        return self._with(x.sinh() * y.cos(), x.cosh() * y.sin())

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        x, y = self.real, self.imag
        return self._with(x.cosh() * y.cos(), x.sinh() * y.sin())

    def tanh(self) -> Self:
        """The hyperbolic tangent, without a quotient of two large numbers."""
        x, y = self.real, self.imag
        # Beyond the limit the real part is 1 or -1.
        limit = _FLAT[self.pair.dtype is dtypes.float64]
        near = x.clip(-limit, limit)
        sine, cosine, slope = y.sin(), y.cos(), near.tanh()
        whole = cosine.square() + (slope * sine).square()
        narrow = near.cosh().reciprocal().square()
        return self._with(slope / whole, sine * cosine * narrow / whole)

    def reciprocal(self) -> Self:
        """1 over each."""
        return 1.0 / self

    def square(self) -> Self:
        """The square of each."""
        return self * self

    def sgn(self) -> Self:
        """Each over its distance from 0; 0 of 0."""
        size = self.abs()
        is_there = size > 0
        found: Self = self * is_there.where(1 / is_there.where(size, 1), 0)
        return found

    def neg(self) -> Self:
        """With the signs changed."""
        return -self

    def isnan(self) -> Tensor:
        """Whether a part is NaN."""
        return self.real.isnan() | self.imag.isnan()

    def isfinite(self) -> Tensor:
        """Whether both parts are finite."""
        return self.real.isfinite() & self.imag.isfinite()

    def isclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        """Whether the distance of each two is at most `atol + rtol * |other|`."""
        right = as_complex(other)
        found = (self == right) | ((self - right).abs() <= atol + rtol * right.abs())
        return found | (self.isnan() & right.isnan()) if equal_nan else found

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all are close."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def equal(self, other: Any) -> bool:
        """Whether all are equal, in the same shape."""
        return self.shape == other.shape and bool((self == other).all().item())

    def vector_norm(self, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The norm of the distances from 0."""
        return self.abs().vector_norm(ord, dim, keepdim)

    def norm(self, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The norm of the distances from 0."""
        return self.abs().norm(p, dim, keepdim)

    def __eq__(self, other: object) -> Any:
        real, imag = _real_and_imaginary(other, self)
        return (self.real == real) & (self.imag == imag)

    def __ne__(self, other: object) -> Any:
        return (self == other).logical_not()

    __hash__ = object.__hash__
    mul, div, matmul, pow = __mul__, __truediv__, __matmul__, __pow__
    multiply, divide, true_divide, mm, bmm = mul, div, div, matmul, matmul

    def add(self, other: Any, *, alpha: Any = 1) -> Self:
        """The sum with `alpha` times another tensor or number."""
        found: Self = self + (other if alpha == 1 else self._beside(other) * alpha)
        return found

    def sub(self, other: Any, *, alpha: Any = 1) -> Self:
        """The difference from `alpha` times another tensor or number."""
        found: Self = self - (other if alpha == 1 else self._beside(other) * alpha)
        return found

    subtract = sub

    def __rpow__(self, other: Any) -> Self:
        made: Self = self._beside(other) ** self
        return made

    eq, ne = __eq__, __ne__

    # in place

    def copy_(self, src: Any, non_blocking: bool = False) -> Self:
        """Write the values of another tensor here."""
        self.pair.copy_(as_complex(src).pair)
        return self

    def fill_(self, value: Any) -> Self:
        """Write a number everywhere."""
        number = complex(value)
        self.pair.copy_(tensor([number.real, number.imag], dtype=self.pair.dtype))
        return self

    def zero_(self) -> Self:
        """Write 0 everywhere."""
        self.pair.zero_()
        return self

    # products

    def dot(self, other: Any) -> Self:
        """The sum of products of two vectors."""
        found: Self = (self * other).sum()
        return found

    def vdot(self, other: Any) -> Self:
        """The sum of products of the conjugates with another vector."""
        found: Self = (self.conj() * other).sum()
        return found

    def outer(self, other: Any) -> Self:
        """The products of each with each."""
        return self.unsqueeze(-1) * as_complex(other).unsqueeze(0)

    def prod(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """The product along an axis, one factor after the other."""
        whole = self.flatten() if dim is None or not self.ndim else self
        axis = (0 if dim is None else dim) % whole.ndim
        factors = whole.unbind(axis)
        made: Self = factors[0]
        for factor in factors[1:]:
            made = made * factor
        return made.unsqueeze(axis) if keepdim and self.ndim else made

    def __getitem__(self, key: Any) -> Self:
        return type(self)(self.pair[_with_pairs(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Complex):
            value = value.pair
        elif isinstance(value, OurTensor):
            value = as_complex(value).pair
        elif isinstance(value, complex):
            value = tensor([value.real, value.imag], dtype=self.pair.dtype)
        elif value != 0:
            value = tensor([float(value), 0.0], dtype=self.pair.dtype)
        self.pair[_with_pairs(key)] = value


def by_component(name: str) -> Any:
    """The method of real tensors, for the real and the imaginary components."""

    return linear(name, getattr(Tensor, name), Complex)


for _name in (
    "cumsum", "diag", "flip", "gather", "masked_select", "nan_to_num", "repeat", "take", "tile",
    "trace", "tril", "triu", "unfold",
):  # fmt: skip
    setattr(Complex, _name, by_component(_name))


def in_place(name: str) -> Any:
    """The method that writes what method `name` gives."""

    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        return self.copy_(getattr(self, name)(*args, **options))

    method.__doc__ = f"As `{name}`, written here."
    return called(method, f"{name}_")


for _name in ("add", "sub", "mul", "div", "pow", "neg", "exp", "log", "sqrt", "reciprocal", "conj"):
    setattr(Complex, f"{_name}_" if _name != "conj" else "conj_physical_", in_place(_name))
for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Complex, f"__i{_name}__", in_place(f"__{_name}__"))


def as_complex(value: Any) -> Complex:
    """A real tensor, or a number, as complex numbers."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, complex):
        return Complex(tensor([value.real, value.imag]))
    real = as_ours(value) if isinstance(value, OurTensor) else tensor(value)
    real = real if real.dtype.is_float else real.float()
    return make(real, real.zeros_like())


def _meeting(name: str) -> Any:
    plain = getattr(Tensor, name)

    @functools.wraps(plain)
    def method(self: Tensor, other: Any, *args: Any, **options: Any) -> Any:
        if other.__class__ is complex or isinstance(other, Complex):
            return getattr(as_complex(self), name)(other, *args, **options)
        if isinstance(other, Paired):
            return other._meets(name, self)
        return plain(self, other, *args, **options)

    return called(method, name)


# A real tensor beside complex numbers.
for _name in (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__matmul__", "__pow__", "__eq__", "__ne__", "add", "sub", "mul", "div",
    "divide", "eq", "float_power", "logical_and", "logical_or", "logical_xor", "matmul",
    "multiply", "ne", "not_equal", "pow", "subtract", "true_divide",
):  # fmt: skip
    setattr(Tensor, _name, _meeting(_name))
Tensor.mm = renamed(_meeting("mm"), {"mat2": "other"})  # type: ignore[method-assign]

_to, _type = Tensor.to, Tensor.type


def _to_complex(self: Tensor, *args: Any, **options: Any) -> Any:
    given = [getattr(each, "dtype", each) for each in (*args, *options.values())]
    kind = next((each for each in given if isinstance(each, ComplexDType)), None)
    return _to(self, *args, **options) if kind is None else as_complex(self).to(kind)


def _type_of(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    is_complex = isinstance(dtype, ComplexDType)
    return as_complex(self).to(dtype) if is_complex else _type(self, dtype, non_blocking)


for _name, _method, _like in (("to", _to_complex, _to), ("type", _type_of, _type)):
    setattr(Tensor, _name, called(functools.wraps(_like)(_method), _name))
yield_to_others(Tensor)
quick_methods(Tensor, METHODS)


def _with_pairs(key: Any) -> Any:
    """An index that leaves the axis of pairs as it is."""
    keys = key if isinstance(key, tuple) else (key,)
    return (*keys, slice(None)) if any(each is Ellipsis for each in keys) else key


def _real_and_imaginary(value: Any, like: Complex) -> tuple[Any, Any]:
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
        f"complex: cannot use {article(type(value).__name__)} as an operand",
        rule="complex or real tensors, and numbers",
    )


def make(real: Tensor, imag: Tensor) -> Complex:
    """The complex numbers of real and imaginary parts."""
    first, second = as_ours(real), as_ours(imag)
    if first.dtype is not second.dtype or not first.dtype.is_float:
        raise DTypeError(
            f"complex: two floats of one dtype are needed, not {first.dtype.name} and "
            f"{second.dtype.name}"
        )
    return Complex(OurTensor.stack(*OurTensor.broadcast_tensors(first, second), dim=-1))


def polar(abs: Tensor, angle: Tensor) -> Complex:
    """The complex numbers of distances and angles."""
    return make(abs * as_ours(angle).cos(), abs * as_ours(angle).sin())


def view_as_complex(input: Tensor) -> Complex:
    """Pairs along the last axis as complex numbers, which share their memory."""
    if not isinstance(input, OurTensor) or not input.ndim or input.shape[-1] != 2:
        shown = getattr(input, "shape", None) or article(type(input).__name__)
        raise ShapeError(f"view_as_complex: the last axis holds pairs, not {shown}")
    return Complex(input)


def view_as_real(input: Complex) -> Tensor:
    """Complex numbers as pairs along a last axis, which share their memory."""
    if not isinstance(input, Complex):
        raise DTypeError("view_as_real: the tensor is real already")
    return input.pair
