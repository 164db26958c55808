"""C functions that read nothing but their arguments: what is not listed here is not captured.

The list names what may be called, never what may not. A function belongs here if it always gives
the same for the same arguments, and looks at no attribute of a user's object by name.
NumPy's are looked up by name, once it is imported.
"""

from __future__ import annotations

import builtins
import cmath
import collections
import datetime
import decimal
import fractions
import functools
import itertools
import math
import operator
import re
import struct
import sys
import types
from typing import Any

__all__ = [
    "MUTATORS", "is_immutable", "is_pure_class", "is_pure_descriptor", "is_pure_function",
    "is_pure_method",
]  # fmt: skip

_FUNCTIONS: set[int] = {
    id(vars(builtins)[name])
    for name in (
        "abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "hash", "hex",
        "isinstance", "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow",
        "repr", "round", "sorted", "sum", "__build_class__",
    )
}  # fmt: skip
_FUNCTIONS |= {id(each) for module in (math, cmath) for each in vars(module).values()}
_FUNCTIONS |= {
    id(vars(operator)[name])
    for name in (
        "abs", "add", "and_", "concat", "contains", "eq", "floordiv", "ge", "getitem", "gt",
        "index", "inv", "invert", "is_", "is_not", "le", "lshift", "lt", "matmul", "mod", "mul",
        "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "truth", "xor",
        "countOf", "indexOf",
    )
}  # fmt: skip
_FUNCTIONS |= {id(each) for each in (functools.reduce, struct.pack, struct.unpack, struct.calcsize)}
# Functions that the `abc` module and `dataclasses` call for isinstance and the like.
_FUNCTIONS |= {
    id(each)
    for name in ("_abc_instancecheck", "_abc_subclasscheck", "_abc_init", "get_cache_token")
    if (each := getattr(sys.modules.get("_abc"), name, None)) is not None
}
_FUNCTIONS |= {id(sys.intern), id(functools.cmp_to_key)}

_CLASSES: set[type] = {
    bool, bytearray, bytes, classmethod, complex, dict, enumerate, filter, float, frozenset, int,
    list, map, object, property, range, reversed, set, slice, staticmethod, str, super, tuple,
    type, zip, functools.partial, collections.deque, collections.OrderedDict,
    collections.defaultdict, types.SimpleNamespace, types.MappingProxyType, types.MethodType,
    operator.attrgetter, operator.itemgetter, operator.methodcaller, decimal.Decimal,
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
    types.GenericAlias,
}  # fmt: skip
_CLASSES |= {each for each in vars(itertools).values() if isinstance(each, type)}

_IMMUTABLE = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis),
    type(NotImplemented), types.CodeType, types.BuiltinFunctionType, types.FunctionType,
    types.MethodType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ModuleType, type, property, staticmethod, classmethod,
    datetime.date, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal,
    fractions.Fraction, re.Pattern, re.Match, types.GenericAlias, types.UnionType, super,
    operator.attrgetter, operator.itemgetter, operator.methodcaller,
)  # fmt: skip

MUTATORS: frozenset[str] = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "update",
    "remove", "reverse", "rotate", "sort", "move_to_end", "difference_update",
    "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__", "__iadd__",
    "__ior__", "__init__",
})  # fmt: skip
"""Methods of containers that change them and give nothing that stood there."""

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, types.MappingProxyType)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_ITERATORS: tuple[type, ...] = (
    types.GeneratorType, type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(range(0))), type(iter("")), type(reversed([])),
    type(iter(set())), enumerate, zip, map, filter, reversed,
)  # fmt: skip
_VALUES = (
    bool, int, float, complex, str, bytes, bytearray, range, slice, type(None), datetime.timedelta,
    decimal.Decimal, re.Pattern, re.Match,
)  # fmt: skip
# Methods of every class that look at no more than the class says.
_OBJECT = frozenset({
    "__init__", "__new__", "__repr__", "__str__", "__eq__", "__ne__", "__lt__", "__le__",
    "__gt__", "__ge__", "__hash__", "__init_subclass__", "__subclasshook__", "__format__",
    "__class_getitem__", "__set_name__", "__instancecheck__", "__subclasscheck__",
    "__prepare__", "mro",
})  # fmt: skip

_ARRAY_FUNCTIONS = (
    "abs", "all", "allclose", "amax", "amin", "any", "arange", "argmax", "argmin", "argsort",
    "around", "array", "array_equal", "asarray", "ascontiguousarray", "atleast_1d",
    "atleast_2d", "average", "bincount", "broadcast_shapes", "broadcast_to", "ceil", "clip",
    "column_stack", "concatenate", "convolve", "copy", "cov", "cross", "cumprod", "cumsum",
    "diag", "diff", "digitize", "dot", "dstack", "einsum", "expand_dims", "eye", "finfo",
    "flatnonzero", "flip", "floor", "full", "full_like", "gradient", "hanning", "hamming",
    "histogram", "hstack", "identity", "iinfo", "inner", "interp", "isclose", "isfinite",
    "isnan", "isscalar", "issubdtype", "kron", "linspace", "logspace", "matmul", "max", "mean",
    "median", "meshgrid", "min", "moveaxis", "nan_to_num", "ndim", "nonzero", "ones",
    "ones_like", "outer", "pad", "percentile", "prod", "promote_types", "quantile", "ravel",
    "repeat", "reshape", "result_type", "roll", "rot90", "round", "searchsorted", "shape",
    "size", "sort", "split", "squeeze", "stack", "std", "sum", "swapaxes", "take", "tensordot",
    "tile", "trace", "transpose", "tri", "tril", "triu", "unique", "vander", "var", "vstack",
    "where", "zeros", "zeros_like",
)  # fmt: skip
_ARRAY_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum",
    "diagonal", "dot", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ravel",
    "repeat", "reshape", "round", "squeeze", "std", "sum", "swapaxes", "take", "tobytes", "tolist",
    "trace", "transpose", "var", "view", "conj",
})  # fmt: skip


@functools.cache
def _array_functions(numpy: Any) -> frozenset[int]:
    return frozenset(
        id(each) for name in _ARRAY_FUNCTIONS if (each := getattr(numpy, name, None)) is not None
    )


def is_pure_function(function: Any) -> bool:
    """Whether a function in C, or one of NumPy's or `re`'s, depends on its arguments alone."""
    if id(function) in _FUNCTIONS:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(function, numpy.ufunc):
            return True
        return id(function) in _array_functions(numpy)
    return False


def is_pure_class(kind: type) -> bool:
    """Whether making an instance of a class that is written in C depends on the arguments alone."""
    if kind in _CLASSES or issubclass(kind, BaseException):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.generic, numpy.dtype))


def is_pure_method(owner: Any, name: str) -> bool:
    """Whether the method `name` of `owner`, which is written in C, looks at nothing else."""
    if name in _OBJECT:
        return True
    if isinstance(owner, type):
        # Alternative constructors: dict.fromkeys, bytes.fromhex, int.from_bytes.
        return owner in (dict, bytes, int, float, str, tuple, itertools.chain) and name in (
            "fromkeys", "fromhex", "from_bytes", "maketrans", "from_iterable"
        )  # fmt: skip
    if isinstance(owner, (*_VALUES, *_CONTAINERS, *_VIEWS, *_ITERATORS)):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(owner, (numpy.ndarray, numpy.generic)):
            return name in _ARRAY_METHODS
        if isinstance(owner, numpy.ufunc):
            return name in ("reduce", "accumulate", "outer")
    return isinstance(owner, (property, BaseException, functools.partial))


def is_pure_descriptor(function: Any) -> bool:
    """Whether a method in C, as its class has it (`str.upper`), looks at its arguments alone."""
    owner = function.__objclass__
    return function.__name__ in _OBJECT or issubclass(owner, (*_VALUES, *_CONTAINERS))


def is_immutable(value: Any) -> bool:
    """Whether no operator on `value` looks at anything that may change."""
    return isinstance(value, _IMMUTABLE)
