"""The array API standard, version 2024.12, on tilegrad's tensors.

Libraries that are written for the standard (SciPy, scikit-learn) run on these arrays: they ask an
array for this module by `__array_namespace__`. docs/array-api.md says what is absent: complex
numbers, and with them the extension `fft`.

An `Array` is a thin handle around one `Tensor`, so all here is lazy, fused and compiled as tensors
are. The names, and what is positional or a keyword, are the standard's.
"""

from __future__ import annotations

import math

from tilegrad.array_api import linalg as linalg
from tilegrad.array_api.array import Array
from tilegrad.array_api.creation import *
from tilegrad.array_api.data_types import (
    astype,
    broadcast_arrays,
    broadcast_to,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from tilegrad.array_api.elementwise_functions import *
from tilegrad.array_api.info import Info
from tilegrad.array_api.manipulation import *
from tilegrad.array_api.matrix_functions import matmul, matrix_transpose, tensordot, vecdot
from tilegrad.array_api.pairwise import *
from tilegrad.array_api.reductions import *
from tilegrad.array_api.searching import *
from tilegrad.base.dtype import dtypes

bool = dtypes.bool
int8, int16, int32, int64 = dtypes.signed
uint8, uint16, uint32, uint64 = dtypes.unsigned
float32, float64 = dtypes.float32, dtypes.float64

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
__array_api_version__ = VERSIONS[-1]


def __array_namespace_info__() -> Info:
    """The limits, devices and dtypes of this namespace.

    >>> from tilegrad import array_api as xp
    >>> sorted(xp.__array_namespace_info__().dtypes(kind="signed integer"))
    ['int16', 'int32', 'int64', 'int8']
    """
    return Info()


__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add",
    "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays", "broadcast_to", "can_cast",
    "ceil", "clip", "concat", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod",
    "cumulative_sum", "diff", "divide", "e", "empty", "empty_like", "equal", "exp", "expand_dims",
    "expm1", "eye", "finfo", "flip", "float32", "float64", "floor", "floor_divide", "from_dlpack",
    "full", "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int8",
    "int16", "int32", "int64", "isdtype", "isfinite", "isinf", "isnan", "less", "less_equal",
    "linalg", "linspace", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum",
    "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative", "newaxis",
    "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive",
    "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll",
    "round", "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze",
    "stack", "std", "subtract", "sum", "take", "take_along_axis", "tan", "tanh", "tensordot",
    "tile", "tril", "triu", "trunc", "uint8", "uint16", "uint32", "uint64", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where",
    "zeros", "zeros_like",
]  # fmt: skip
