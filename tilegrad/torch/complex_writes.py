"""Methods of complex numbers that write elements, and those that change a tensor in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex, as_complex, by_component, in_place
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor

__all__ = ["add_writes"]

# The position and the name of the written values, among the arguments of the real method.
_SOURCES = {
    "diagonal_scatter": (0, "src"), "index_add": (2, "source"), "index_copy": (2, "source"),
    "index_fill": (2, "value"), "index_put": (1, "values"), "masked_scatter": (1, "source"),
    "scatter": (2, "src"), "scatter_add": (2, "src"), "select_scatter": (0, "src"),
    "slice_scatter": (0, "src"),
}  # fmt: skip
_ALONE = ("nansum", "repeat_interleave", "sum_to_size")

# Methods whose results have the shape and dtype of the tensor, which may take them.
_TAKEN = (
    "acos", "acosh", "addcdiv", "addcmul", "addmm", "addmv", "asin", "asinh", "atan", "atanh",
    "baddbmm", "cos", "cosh", "cumprod", "cumsum", "exp2", "expm1", "index_add", "index_copy",
    "index_fill", "index_put", "lerp", "log10", "log1p", "log2", "masked_fill", "masked_scatter",
    "nan_to_num", "rsqrt", "scatter", "scatter_add", "sgn", "sigmoid", "sin", "sinh", "square",
    "tan", "tanh", "tril", "triu",
)  # fmt: skip
# Those that move axes; the tensor looks at its memory otherwise from there on.
_MOVED = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
_ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctanh": "atanh", "divide_": "div_", "multiply_": "mul_",
    "negative": "neg", "negative_": "neg_", "not_equal": "ne", "subtract_": "sub_",
    "true_divide_": "div_",
}  # fmt: skip


def _writing(name: str) -> Callable[..., Complex]:
    """The method of real tensors, whose source is complex."""
    position, keyword = _SOURCES[name]

    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        given, named = list(args), dict(options)
        where: Any = given if position < len(given) else named
        key: Any = position if position < len(given) else keyword
        if key == keyword and keyword not in named:
            # A number, under the other name that some of them have for it.
            key = "value"
        is_number = not isinstance(where[key], (OurTensor, Complex))
        source: Any = complex(where[key]) if is_number else as_complex(where[key])
        found = []
        for own, component in ((self.real, source.real), (self.imag, source.imag)):
            value = component if is_number else component.to(own.dtype)
            each_given, each_named = list(given), dict(named)
            (each_given if where is given else each_named)[key] = value
            found.append(getattr(own, name)(*each_given, **each_named))
        return self._with(*found)

    method.__doc__ = getattr(Tensor, name).__doc__
    return called(method, name)


def _moved(name: str) -> Callable[..., Complex]:
    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        self.pair = getattr(self, name)(*args, **options).pair
        return self

    method.__doc__ = f"As `{name}`, of this tensor."
    return called(method, f"{name}_")


def _new_tensor(self: Complex, data: Any, **options: Any) -> Complex:
    """A tensor of this one's dtype with the values of `data`."""
    if isinstance(data, (Complex, OurTensor)):
        data = data.detach().numpy()
    array = numpy.asarray(data, f"complex{16 * self.pair.dtype.itemsize}")
    pairs = numpy.stack([array.real, array.imag], -1)
    return Complex(tensor(pairs, dtype=self.pair.dtype))


def _register_hook(self: Complex, hook: Callable[[Any], Any]) -> Any:
    """Call hook(gradient) whenever a gradient flows through this tensor."""

    def call(pair: Any) -> Any:
        found = hook(Complex(pair))
        return None if found is None else as_complex(found).pair

    return self.pair.register_hook(call)


def _backward(self: Complex, gradient: Any = None, *args: Any, **options: Any) -> None:
    """Add the gradient of this tensor, which `gradient` weighs, to `grad` of every leaf below.

    Raises RuntimeError without `gradient`: only a real number has a gradient by itself.
    """
    if gradient is None:
        raise RuntimeError(
            "grad can be implicitly created only for real scalar outputs but got "
            f"{self.dtype!r}: pass gradient=, or go from .real or .abs()"
        )
    self.pair.backward(as_complex(gradient).pair, *args, **options)


def _nonzero_only(self: Complex) -> bool:
    """Whether the only element is not 0."""
    return self.item() != 0


def _drawn(name: str) -> Callable[..., Complex]:
    """A method that draws numbers, for both parts; normal ones share the variance."""

    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        getattr(self.pair, name)(*args, **options)
        if name == "normal_":
            mean = options.get("mean", args[0] if args else 0.0)
            self.pair.copy_((self.pair - mean) * 0.5**0.5 + mean)
        return self

    method.__doc__ = f"As `{name}` of real tensors, in both parts."
    return called(method, name)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "normal_": _drawn("normal_"),
    "uniform_": _drawn("uniform_"),
    "addbmm": lambda self, batch1, batch2, *, beta=1, alpha=1: (
        self * beta + (as_complex(batch1) @ batch2).sum(0) * alpha
    ),
    "addcdiv": lambda self, tensor1, tensor2, *, value=1: (
        self + as_complex(tensor1) / tensor2 * value
    ),
    "addmv": lambda self, mat, vec, *, beta=1, alpha=1: (
        self * beta + (as_complex(mat) @ vec) * alpha
    ),
    "addr": lambda self, vec1, vec2, *, beta=1, alpha=1: (
        self * beta + as_complex(vec1).outer(vec2) * alpha
    ),
    "argwhere": lambda self: self.nonzero(),
    "baddbmm": lambda self, batch1, batch2, *, beta=1, alpha=1: (
        self * beta + (as_complex(batch1) @ batch2) * alpha
    ),
    "bool": lambda self: (self.real != 0) | (self.imag != 0),
    "dist": lambda self, other, p=2: (self - other).norm(p),
    "float_power": lambda self, exponent: self.cdouble() ** exponent,
    "is_nonzero": _nonzero_only,
    "is_same_size": lambda self, other: self.shape == other.shape,
    "is_signed": lambda self: True,
    "logical_xor": lambda self, other: self.bool() ^ as_complex(other).bool(),
    "new_tensor": _new_tensor,
    "register_hook": _register_hook,
    "backward": _backward,
}


def add_writes() -> None:
    """Give complex tensors the methods of this file."""
    for name in _ALONE:
        setattr(Complex, name, by_component(name))
    for name in _SOURCES:
        setattr(Complex, name, _writing(name))
    for name, function in _FUNCTIONS.items():
        setattr(Complex, name, called(function, name))
    for name in _TAKEN:
        setattr(Complex, f"{name}_", in_place(name))
    for name in _MOVED:
        setattr(Complex, f"{name}_", _moved(name))
    for alias, name in _ALIASES.items():
        setattr(Complex, alias, getattr(Complex, name))
    setattr(Complex, "is_cpu", property(lambda self: self.pair.is_cpu))  # noqa: B010
    setattr(Complex, "itemsize", property(lambda self: self.dtype.itemsize))  # noqa: B010
    setattr(Complex, "retains_grad", property(lambda self: self.pair.retains_grad))  # noqa: B010
