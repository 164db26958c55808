"""New tensors, of complex numbers too."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.handle.size_arguments import flat_arguments
from tilegrad.tensor.storage.host_memory import is_array
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import made_tensors, random_tensors
from tilegrad.torch.complex import Complex, make
from tilegrad.torch.complex_dtypes import ComplexDType, complex_dtype_of
from tilegrad.torch.naming import called

__all__ = [
    "as_tensor", "asarray", "empty", "empty_like", "eye", "from_numpy", "full", "full_like",
    "linspace", "logspace", "ones", "ones_like", "rand", "rand_like", "randn", "randn_like",
    "scalar_tensor", "tensor", "zeros", "zeros_like",
]  # fmt: skip

# The name is that of a function elsewhere.
_PYTHONS = builtins.complex


def _is_complex(data: Any) -> bool:
    """Whether Python's complex numbers, or NumPy's, are among `data`."""
    if is_array(data):
        # A picture has no dtype, and that of another library's tensor no kind.
        dtype = getattr(data, "dtype", None)
        return getattr(dtype, "kind", "") == "c" or bool(getattr(dtype, "is_complex", False))
    stack = [data]
    while stack:
        item = stack.pop()
        if item.__class__ is _PYTHONS or isinstance(item, numpy.complexfloating):
            return True
        if isinstance(item, (list, tuple)):
            stack.extend(item)
    return False


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False, **options: Any) -> Any:
    """A tensor of a copy of `data`: a number, nested lists, an array, another tensor.

    >>> import tilegrad.torch as torch
    >>> torch.tensor([1 + 2j]).dtype
    torch.complex64
    """
    if isinstance(data, Complex):
        made = data.detach().clone()
    elif isinstance(dtype, ComplexDType) or (dtype is None and _is_complex(data)):
        array = numpy.asarray(data.detach() if hasattr(data, "detach") else data)
        wide = array.dtype in (numpy.complex128, numpy.float64) and is_array(data)
        component = (
            dtype.component if dtype is not None else dtypes.float64 if wide else dtypes.float32
        )
        pairs = numpy.stack([array.real, array.imag], -1).astype(component.name)
        made = Complex(made_tensors.tensor(pairs, dtype=component, **options))
    else:
        return made_tensors.tensor(data, dtype=dtype, requires_grad=requires_grad, **options)
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """`data` as a tensor; what is one with that dtype and device stays itself."""
    if isinstance(data, Complex):
        return data if dtype is None else data.to(dtype)
    if isinstance(dtype, ComplexDType) or (not isinstance(data, OurTensor) and _is_complex(data)):
        return tensor(data, dtype=dtype, device=device)
    return made_tensors.as_tensor(data, dtype, device)


def from_numpy(array: Any) -> Any:
    """A tensor of an array's values."""
    return tensor(array) if _is_complex(array) else made_tensors.from_numpy(array)


def _filled(plain: Callable[..., Any]) -> Callable[..., Any]:
    name = plain.__name__

    @functools.wraps(plain)
    def make_one(*size: Any, dtype: Any = None, **options: Any) -> Any:
        if isinstance(dtype, ComplexDType):
            given = {**options, "dtype": dtype.component}
            if name in ("rand", "randn"):
                # Normal numbers have a variance of 1: half of it in each part.
                drawn = plain(*flat_arguments(size), 2, **given)
                return Complex(drawn * 0.5**0.5 if name == "randn" else drawn)
            whole = plain(*flat_arguments(size), **given)
            return Complex(whole.stack(whole.zeros_like(), dim=-1))
        return plain(*size, **(options if dtype is None else {**options, "dtype": dtype}))

    return called(make_one, name)


zeros, ones = _filled(made_tensors.zeros), _filled(made_tensors.ones)
empty, eye = _filled(made_tensors.empty), _filled(made_tensors.eye)
rand, randn = _filled(random_tensors.rand), _filled(random_tensors.randn)


def full(size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """A tensor of one number."""
    if isinstance(fill_value, Complex):
        fill_value = fill_value.item()
    if isinstance(dtype, ComplexDType) or (dtype is None and isinstance(fill_value, _PYTHONS)):
        component = dtypes.default_float if dtype is None else dtype.component
        number = _PYTHONS(fill_value.item() if hasattr(fill_value, "item") else fill_value)
        components = [made_tensors.full(size, value, dtype=component, **options)
                      for value in (number.real, number.imag)]  # fmt: skip
        return make(*components)
    return made_tensors.full(size, fill_value, dtype=dtype, **options)


def _like(plain: Callable[..., Any], make_one: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def made(input: Any, *, dtype: Any = None, **options: Any) -> Any:
        if isinstance(input, Complex) or isinstance(dtype, ComplexDType):
            kind = input.dtype if dtype is None else dtype
            return make_one(tuple(input.shape), dtype=kind, **options)
        return plain(input, **options) if dtype is None else plain(input, dtype=dtype, **options)

    return called(made, plain.__name__)


zeros_like, ones_like = _like(made_tensors.zeros_like, zeros), _like(made_tensors.ones_like, ones)
empty_like = _like(made_tensors.empty_like, empty)
rand_like = _like(random_tensors.rand_like, rand)
randn_like = _like(random_tensors.randn_like, randn)


def full_like(input: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """`fill_value` in the shape, dtype and device of another tensor."""
    if isinstance(input, Complex) or isinstance(dtype, ComplexDType):
        options.setdefault("device", input.device)
        kind = input.dtype if dtype is None else dtype
        return full(tuple(input.shape), fill_value, dtype=kind, **_making(options))
    given = options if dtype is None else {**options, "dtype": dtype}
    return made_tensors.full_like(input, fill_value, **given)


def scalar_tensor(s: Any, *, dtype: Any = None, **options: Any) -> Any:
    """A number as a tensor without axes."""
    if isinstance(dtype, ComplexDType):
        return tensor(s, dtype=dtype, **_making(options))
    return made_tensors.scalar_tensor(s, dtype=dtype, **options)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """As `as_tensor`, or `tensor` with `copy`."""
    made = (tensor if copy else as_tensor)(obj, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def _making(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a new tensor without those that say how memory looks, which have no effect."""
    return {key: each for key, each in options.items() if key not in ("layout", "memory_format")}


def _spaced(name: str) -> Callable[..., Any]:
    """`linspace`, or `logspace`: of complex ends, and in complex dtypes."""
    plain = getattr(made_tensors, name)

    @functools.wraps(plain)
    def space(
        start: Any, end: Any, steps: int, *args: Any, dtype: Any = None, **options: Any
    ) -> Any:
        ends = [each.item() if hasattr(each, "item") else each for each in (start, end)]
        if dtype is None and any(isinstance(each, _PYTHONS) for each in ends):
            dtype = complex_dtype_of(dtypes.default_float)
        if not isinstance(dtype, ComplexDType):
            return plain(start, end, steps, *args, **{**options, "dtype": dtype})
        spread: Any = numpy.linspace(_PYTHONS(ends[0]), _PYTHONS(ends[1]), steps)
        if name == "logspace":
            spread = _PYTHONS(options.pop("base", args[0] if args else 10.0)) ** spread
        return tensor(spread, dtype=dtype, **_making(options))

    return called(space, name)


linspace, logspace = _spaced("linspace"), _spaced("logspace")


def _new(make_one: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(make_one)
    def method(self: Complex, *size: Any, dtype: Any = None, **options: Any) -> Any:
        """A new tensor of this one's dtype and device, or of those named."""
        options.setdefault("device", self.device)
        kind = self.dtype if dtype is None else dtype
        given = (options.pop("size"),) if "size" in options else ()
        return make_one(*given, *size, dtype=kind, **_making(options))

    return called(method, name)


for _name, _make in (
    ("new_zeros", zeros), ("new_ones", ones), ("new_empty", empty), ("new_full", full),
    ("new_tensor", tensor),
):  # fmt: skip
    setattr(Complex, _name, _new(_make, _name))
