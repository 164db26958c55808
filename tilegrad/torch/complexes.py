"""Functions of `torch` that take complex numbers too, or make them."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError, KindError
from tilegrad.nn.tree import is_tensor as is_tensor_of_any_kind
from tilegrad.tensor.handle.size_arguments import as_axis
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import functions, tabled
from tilegrad.torch.complex import Complex, as_complex, make
from tilegrad.torch.complex_dtypes import ComplexDType, complex_dtype_of
from tilegrad.torch.complex_families import joining
from tilegrad.torch.complex_formulas import add_formulas
from tilegrad.torch.complex_functions import add_functions
from tilegrad.torch.complex_linalg import add_linear_algebra
from tilegrad.torch.complex_linalg import einsum as complex_einsum
from tilegrad.torch.complex_made import (
    as_tensor,
    asarray,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    rand,
    rand_like,
    randn,
    randn_like,
    scalar_tensor,
    tensor,
    zeros,
    zeros_like,
)
from tilegrad.torch.complex_unbound import answer_unbound
from tilegrad.torch.complex_writes import add_writes
from tilegrad.torch.expecting import no_tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import as_ours

__all__ = [
    "allclose", "angle", "as_tensor", "asarray", "atleast_1d", "atleast_2d", "atleast_3d",
    "block_diag", "broadcast_tensors", "can_cast", "cartesian_prod", "cat", "column_stack",
    "complex", "concat", "concatenate", "conj", "dstack", "einsum", "empty", "empty_like", "equal",
    "eye", "from_numpy", "full", "full_like", "hstack", "imag", "is_complex", "is_tensor",
    "linspace", "logspace", "meshgrid", "ones", "ones_like", "promote_types", "rand", "rand_like",
    "randn", "randn_like", "real", "result_type", "row_stack", "scalar_tensor", "stack", "tensor",
    "tensordot", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip


add_functions()
add_formulas()
add_linear_algebra()
add_writes()
answer_unbound()

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
            raise KindError(f"promote_types: a dtype is needed, not {kind!r}")
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
            raise KindError(f"can_cast: a dtype is needed, not {kind!r}")
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
        raise DTypeError("imag: the tensor is real")
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


def _joined(name: str) -> Callable[..., Any]:
    return joining(getattr(functions, name), as_complex, Complex)


atleast_1d, atleast_2d, atleast_3d = map(_joined, ("atleast_1d", "atleast_2d", "atleast_3d"))
block_diag, broadcast_tensors = _joined("block_diag"), _joined("broadcast_tensors")
cartesian_prod, column_stack = _joined("cartesian_prod"), _joined("column_stack")
dstack, hstack, meshgrid = _joined("dstack"), _joined("hstack"), _joined("meshgrid")
row_stack = vstack = _joined("vstack")


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """The sum of products over several axes."""
    if any(isinstance(each, Complex) for each in (a, b)):
        return as_complex(a).tensordot(as_complex(b), dims)
    return functions.tensordot(a, b, dims)


def _joining(name: str) -> Callable[..., Any]:
    plain = getattr(functions, name)

    @functools.wraps(plain)
    def joined(tensors: Any, dim: int = 0, **options: Any) -> Any:
        is_list = isinstance(tensors, (list, tuple))
        if not is_list or not any(isinstance(each, Complex) for each in tensors):
            return plain(tensors, dim, **options)
        given = [as_complex(each) for each in tensors]
        # As in PyTorch, a vector without elements fits any shape.
        full = given if name == "stack" else [each for each in given if tuple(each.shape) != (0,)]
        pairs = [each.pair for each in full or given[:1]]
        axis = as_axis(name, options.pop("axis", dim), pairs[0].ndim - 1 + (name == "stack"))
        return Complex(plain(pairs, axis, **options))

    return called(joined, name)


cat, stack = _joining("cat"), _joining("stack")
concat = concatenate = cat


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of `input` where the condition holds, else of `other`; alone, where it holds."""
    if not any(isinstance(each, (Complex, _PYTHONS)) for each in (input, other)):
        return functions.where(condition, input, other)
    first, second = as_complex(input).pair, as_complex(other).pair
    return Complex(functions.where(as_ours(condition).unsqueeze(-1), first, second))


def allclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether each two numbers differ by at most `atol + rtol * |other|`."""
    if isinstance(input, Complex):
        return input.allclose(other, rtol, atol, equal_nan)
    return bool(tabled.allclose(input, other, rtol, atol, equal_nan))


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and values."""
    if isinstance(input, Complex):
        return input.equal(other)
    return bool(tabled.equal(input, other))
