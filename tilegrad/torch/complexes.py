"""Functions of `torch` that take complex numbers too, or make them."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError, KindError
from tilegrad.nn.tree import is_tensor as is_tensor_of_any_kind
from tilegrad.tensor.handle.size_arguments import flat_arguments, here
from tilegrad.tensor.storage.host_memory import is_array
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import functions, made_tensors, random_tensors, tabled
from tilegrad.torch.complex import Complex, as_complex, make
from tilegrad.torch.complex_dtypes import ComplexDType, complex_dtype_of
from tilegrad.torch.complex_functions import add_functions
from tilegrad.torch.complex_linalg import add_linear_algebra
from tilegrad.torch.complex_linalg import einsum as complex_einsum
from tilegrad.torch.complex_writes import add_writes
from tilegrad.torch.expecting import no_tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import as_ours

__all__ = [
    "allclose", "angle", "as_tensor", "can_cast", "cat", "complex", "concat", "concatenate", "conj",
    "einsum", "empty", "empty_like", "equal", "eye", "from_numpy", "full", "imag", "is_complex",
    "is_tensor", "ones", "ones_like", "promote_types", "rand", "rand_like", "randn", "randn_like",
    "real", "result_type", "stack", "tensor", "where", "zeros", "zeros_like",
]  # fmt: skip


add_functions()
add_linear_algebra()
add_writes()

# The name is that of a function here.
_PYTHONS = builtins.complex


def is_complex(input: Any) -> bool:
    """Whether the numbers are complex."""
    return isinstance(input, Complex)


def is_tensor(obj: Any) -> bool:
    """Whether something is a tensor."""
    return is_tensor_of_any_kind(obj)


def promote_types(type1: Any, type2: Any) -> Any:
    """The dtype in which two meet; beside a complex one, that of complex numbers whose parts are
    wide enough.

    >>> import tilegrad.torch as torch
    >>> torch.promote_types(torch.complex64, torch.float64)
    torch.complex128
    """
    for kind in (type1, type2):
        if not isinstance(kind, (DType, ComplexDType)):
            raise KindError(f"promote_types: a dtype is needed, not {kind!r}", line=here())
    if not any(isinstance(kind, ComplexDType) for kind in (type1, type2)):
        return promote(type1, type2)
    # Parts in float16 are none of PyTorch's that are here.
    first, second = (
        kind.component if isinstance(kind, ComplexDType) else kind for kind in (type1, type2)
    )
    return complex_dtype_of(promote(first, second))


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype in which two tensors or numbers meet."""
    given = (tensor1, tensor2)
    if not any(isinstance(each, (Complex, _PYTHONS)) for each in given):
        return functions.result_type(tensor1, tensor2)
    real = [each.real if isinstance(each, Complex) else _real_component(each) for each in given]
    return complex_dtype_of(functions.result_type(*real))


def _real_component(value: Any) -> Any:
    return value.real if isinstance(value, _PYTHONS) else value


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a result of one dtype may be written to a tensor of another: to one of a higher
    kind (bool, integer, float, complex), or of its own.
    """
    for kind in (from_, to):
        if not isinstance(kind, (DType, ComplexDType)):
            raise KindError(f"can_cast: a dtype is needed, not {kind!r}", line=here())
    return _rank(from_) <= _rank(to)


def _rank(kind: Any) -> int:
    return 3 if isinstance(kind, ComplexDType) else 2 if kind.is_float else 1 if kind.is_int else 0


def complex(real: Any, imag: Any) -> Complex:
    """The complex numbers of real and imaginary parts."""
    return make(real, imag)


def real(input: Any) -> Any:
    """The real parts."""
    return input.real if isinstance(input, Complex) else _as_tensor("real", input)


def imag(input: Complex) -> Any:
    """The imaginary parts."""
    if not isinstance(input, Complex):
        _as_tensor("imag", input)
        raise DTypeError("imag: the tensor is real", line=here())
    return input.imag


def conj(input: Any) -> Any:
    """With the sign of the imaginary parts changed."""
    return input.conj() if isinstance(input, Complex) else _as_tensor("conj", input)


def angle(input: Any) -> Any:
    """The angle to the real axis: of real numbers 0 or pi."""
    return input.angle() if isinstance(input, Complex) else _as_tensor("angle", input).angle()


def _as_tensor(name: str, input: Any) -> Any:
    if not isinstance(input, OurTensor):
        raise no_tensor(name, input)
    return as_ours(input)


def einsum(equation: str, *operands: Any) -> Any:
    """The sum of products that Einstein's notation names."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list) else operands
    if any(isinstance(each, Complex) for each in given):
        return complex_einsum(equation, *given)
    return functions.einsum(equation, *given)


# several tensors


def _joining(name: str) -> Callable[..., Any]:
    plain = getattr(functions, name)

    @functools.wraps(plain)
    def joined(tensors: Any, dim: int = 0, **options: Any) -> Any:
        is_list = isinstance(tensors, (list, tuple))
        if not is_list or not any(isinstance(each, Complex) for each in tensors):
            return plain(tensors, dim, **options)
        pairs = [as_complex(each).pair for each in tensors]
        axes = pairs[0].ndim - 1 + (name == "stack")
        return Complex(plain(pairs, dim % axes))

    return called(joined, name)


cat, stack = _joining("cat"), _joining("stack")
concat = concatenate = cat


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of `input` where the condition holds, else of `other`; alone, where it holds."""
    if not any(isinstance(each, Complex) for each in (input, other)):
        return functions.where(condition, input, other)
    first, second = as_complex(input).pair, as_complex(other).pair
    return Complex(functions.where(as_ours(condition).unsqueeze(-1), first, second))


def allclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether each two numbers differ by at most `atol + rtol * |other|`."""
    if isinstance(input, Complex):
        return input.allclose(other, rtol, atol)
    return bool(tabled.allclose(input, other, rtol, atol, equal_nan))


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and values."""
    if isinstance(input, Complex):
        return input.equal(other)
    return bool(tabled.equal(input, other))


# new tensors


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
    if isinstance(dtype, ComplexDType) or isinstance(fill_value, _PYTHONS):
        component = dtypes.float32 if dtype is None else dtype.component
        number = _PYTHONS(fill_value)
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
