"""Methods that follow from tables: int64 indices, pairs, products under autocast, and PyTorch's
names of arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.engine.run.run import current_recording
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.argument_methods import (
    anywhere,
    by_weights,
    counting,
    factors_in_one,
    from_the_end,
    in_one_mode,
    of_all_axes,
    of_wide_positions,
    wide_or_told,
)
from tilegrad.torch.autocast_methods import (
    from_float32,
    one_dtype,
    plain_product,
    product_of_kind,
    without_autocast,
)
from tilegrad.torch.draw_checks import drawn
from tilegrad.torch.expecting import of_ranks, with_tensors
from tilegrad.torch.indices import refuse_negative
from tilegrad.torch.named_pairs import (
    CountsAndEdges,
    LowestAndHighest,
    MantissaAndExponent,
    wide_pair,
)
from tilegrad.torch.naming import called
from tilegrad.torch.pivots import order_of
from tilegrad.torch.promotion import given_way

__all__ = ["LinAlgError", "adjust", "renamed"]


class LinAlgError(RuntimeError):
    """A matrix has no such factor or solution."""


_INDICES = (
    "argmax", "argmin", "argsort", "nonzero", "argwhere", "bincount", "count_nonzero",
    "multinomial",
)  # fmt: skip
# Reductions over all axes where none is named in a tuple.
_REDUCTIONS = (
    "sum", "mean", "var", "std", "amax", "amin", "nansum", "nanmean", "count_nonzero", "norm",
)  # fmt: skip
_PAIRS = ("sort", "topk", "kthvalue", "mode", "median", "nanmedian")
# Steps, whose gradient is 0.
_FLAT = ("sign", "sgn", "trunc", "fix", "floor", "ceil")
# Methods that write a number into a tensor, whose dtype stays: the number is rounded to that dtype.
_FILLS = ("masked_fill", "masked_fill_", "index_fill", "index_fill_", "fill_diagonal_")
# Methods that autocast computes in its own dtype, and that otherwise have that of the operands.
_PRODUCTS = (
    "matmul", "mm", "bmm", "linear", "conv2d", "conv_transpose2d", "addmm", "baddbmm", "addbmm",
    "scaled_dot_product_attention", "vecdot", "__matmul__",
)  # fmt: skip
_PLAIN_PRODUCTS = ("addmv", "dot", "mv", "vdot")
# Functions that are made of products here.
_OF_PRODUCTS = ("istft", "matrix_exp", "stft")
# Methods that autocast computes in float32.
FACTORS_FROM_FLOAT32 = (
    "cholesky", "cholesky_ex", "cond", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "lstsq", "matrix_rank", "qr", "solve", "solve_ex",
    "svd", "svdvals", "tensorinv", "tensorsolve",
)  # fmt: skip
_FROM_FLOAT32 = (
    *FACTORS_FROM_FLOAT32, "cdist", "cholesky_inverse", "cholesky_solve", "dist", "inverse",
    "nanquantile", "pinverse", "prod", "quantile", "trace",
)  # fmt: skip

# Methods that PyTorch refuses for bools.
_DIFFERENCES = ("__neg__", "neg", "negative", "__sub__", "__rsub__", "sub", "subtract", "sub_")
# Methods that PyTorch refuses for integers and some numbers.
_QUOTIENTS = (
    "__floordiv__", "__mod__", "__pow__", "div", "floor_divide", "fmod", "pow", "remainder",
)  # fmt: skip
_MASKS = ("masked_fill", "masked_fill_", "masked_select", "masked_scatter", "masked_scatter_")
_GRADIENTS = ("register_hook", "retain_grad")
# Methods that take tensors only, where others have no such names.
_OF_TENSORS = (
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "cross", "equal", "expand_as", "gather",
    "index_add", "index_add_", "index_copy", "index_copy_", "masked_fill", "masked_fill_",
    "masked_select", "mm", "mv", "outer", "scatter", "scatter_", "scatter_add", "scatter_add_",
    "type_as", "view_as",
)  # fmt: skip
# Methods that take an axis and indices along it.
_BY_INDICES = (
    "gather", "index_add", "index_add_", "index_copy", "index_copy_", "index_reduce",
    "index_reduce_", "index_select", "scatter", "scatter_", "scatter_add", "scatter_add_",
    "scatter_reduce", "scatter_reduce_",
)  # fmt: skip
# Numbers of axes of the tensors, for methods that PyTorch has only for some.
_RANKS: dict[str, tuple[tuple[int, ...], ...]] = {
    "dot": ((1,), (1,)), "outer": ((1,), (1,)), "ger": ((1,), (1,)), "vdot": ((1,), (1,)),
    "trace": ((2,),), "mv": ((2,), (1,)),
}  # fmt: skip
# Methods whose result is infinite, or no number, where a matrix has no such solution.
_SOLUTIONS = ("cholesky", "inv", "inverse", "solve")

_BATCHES: dict[str, str | None] = {"batch1": "left", "batch2": "right"}
_MATRICES: dict[str, str | None] = {"mat1": "left", "mat2": "right"}
_FACTORS: dict[str, str | None] = {"tensor1": "first", "tensor2": "second"}
_MATRIX_AND_VECTOR: dict[str, str | None] = {"mat": "left", "vec": "right"}
_VECTORS: dict[str, str | None] = {"vec1": "left", "vec2": "right"}
_FORMAT: dict[str, str | None] = {"memory_format": None}
_SECTIONS: dict[str, str | None] = {"split_size_or_sections": "indices_or_sections"}
# PyTorch's name of an argument -> tilegrad's; None: taken, and without effect.
_NAMES: dict[str, dict[str, str | None]] = {
    "addbmm": _BATCHES, "addbmm_": _BATCHES, "baddbmm": _BATCHES, "baddbmm_": _BATCHES,
    "bmm": {"mat2": "other"},
    "fill_diagonal_": {"fill_value": "value"},
    "random_": {"from": "low", "to": "high"}, "uniform_": {"from": "low", "to": "high"},
    "addcdiv": _FACTORS, "addcdiv_": _FACTORS, "addcmul": _FACTORS, "addcmul_": _FACTORS,
    "addmm": _MATRICES, "addmm_": _MATRICES,
    "addmv": _MATRIX_AND_VECTOR, "addmv_": _MATRIX_AND_VECTOR,
    "addr": _VECTORS, "addr_": _VECTORS,
    "apply_": {"callable": "function"},
    "cholesky_solve": {"input2": "L"},
    "copy_": {"src": "source", "other": "source", "non_blocking": None},
    "dsplit": _SECTIONS, "hsplit": _SECTIONS, "vsplit": _SECTIONS,
    "histogram": {"weight": "weights"},
    "map_": {"tensor": "other", "callable": "function"},
    "new_full": {"size": "shape"},
    "orgqr": {"input2": "tau"},
    "resize_as_": {"tensor": "the_template"},
    "swapaxes_": {"axis0": "dim0", "axis1": "dim1"},
    "unfold": {"dimension": "dim"},
    "clone": _FORMAT, "contiguous": _FORMAT,
    "byte": _FORMAT, "char": _FORMAT, "short": _FORMAT, "int": _FORMAT, "long": _FORMAT,
    "bool": _FORMAT, "half": _FORMAT, "bfloat16": _FORMAT, "float": _FORMAT, "double": _FORMAT,
    "gather": {"sparse_grad": None},
    "ger": {"vec2": "other"},
    "isin": {"test_elements": "elements", "assume_unique": None},
    "outer": {"vec2": "other"},
    "repeat_interleave": {"output_size": None},
    "scatter_add": {"src": "source"},
    "scatter_add_": {"src": "source"},
    "split": {"split_size": "sizes", "split_size_or_sections": "sizes"},
    "swapaxes": {"axis0": "dim0", "axis1": "dim1"},
}  # fmt: skip
# The argument that PyTorch also takes as one tuple by name.
_SEVERAL = {
    "expand": "size", "flip": "dims", "new_empty": "size", "new_ones": "size", "new_zeros": "size",
    "permute": "dims", "repeat": "repeats", "reshape": "shape",
    "view": "size",
}  # fmt: skip
_DRAWS = ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "log_normal_", "cauchy_",
          "geometric_", "bernoulli", "multinomial", "poisson")  # fmt: skip


def adjust(kind: Any) -> None:
    """Give a class of tensors the methods of the tables."""
    for names, make in (
        (_INDICES, _wide),
        (_PAIRS, _paired),
        (("cov",), by_weights),
        (("cdist",), in_one_mode),
        (("lu",), factors_in_one),
        (("searchsorted", "bucketize"), wide_or_told),
        (("unravel_index",), of_wide_positions),
        (("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"), anywhere),
        (_REDUCTIONS, of_all_axes),
        (_FLAT, _flat),
        (_FILLS, _filling),
        (("clamp", "clip"), _limited),
        (("aminmax",), _extremes),
        (("frexp",), _split_up),
        (("square", "__pow__"), counting),
        (("take_along_dim",), from_the_end),
        (("cross",), _default_cross_axis),
        (("lu_solve",), _by_exchanges),
        (_PRODUCTS, product_of_kind),
        (_PLAIN_PRODUCTS, plain_product),
        (_OF_PRODUCTS, without_autocast),
        ([name for name in _FROM_FLOAT32 if hasattr(kind, name)], from_float32),
        (_DIFFERENCES, _of_numbers),
        (_SOLUTIONS, _solved),
        (_QUOTIENTS, _by_number),
        (_MASKS, _masked),
        (_GRADIENTS, _with_gradient),
        (_OF_TENSORS, _of_tensors),
        (_BY_INDICES, _by_indices),
        (("histogram",), _of_own_dtype),
        (("all", "any"), _of_bytes),
        (("unique", "unique_consecutive"), _counted),
    ):
        for name in names:
            _set(kind, name, make(getattr(kind, name)))
    for name, ranks in _RANKS.items():
        _set(kind, name, _ranked(getattr(kind, name), ranks))
    for name, table in _NAMES.items():
        _set(kind, name, renamed(getattr(kind, name), table))
    for name, key in _SEVERAL.items():
        _set(kind, name, _named(getattr(kind, name), key))
    for name in _DRAWS:
        _set(kind, name, drawn(getattr(kind, name)))
    for name in ("argmax", "argmin"):
        # The position and its dtype are one template.
        setattr(kind, name, templated(getattr(kind, name)))


def _set(kind: Any, name: str, made: Any) -> None:
    called(made, name)
    made.__qualname__ = f"Tensor.{name}"
    made.__doc__ = getattr(kind, name).__doc__
    setattr(kind, name, made)


def _wide(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        found = method(self, *args, **options)
        if isinstance(found, tuple):
            return tuple(each.cast(dtypes.int64) for each in found)
        return found if found.dtype.is_float else found.cast(dtypes.int64)

    return give


def _by_indices(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        refuse_negative(method.__name__, args[1] if len(args) > 1 else options.get("index"))
        return method(self, *args, **options)

    return give


def _of_own_dtype(method: Callable[..., Any]) -> Any:
    """Counts in the dtype of the counted values."""

    def give(self: Any, *args: Any, **options: Any) -> Any:
        counts, edges = method(self, *args, **options)
        return CountsAndEdges(counts.cast(self.dtype), edges)

    return give


def _of_bytes(method: Callable[..., Any]) -> Any:
    """Truths of bytes as bytes, which were PyTorch's masks before it had bools."""

    def give(self: Any, *args: Any, **options: Any) -> Any:
        found = method(self, *args, **options)
        return found.cast(dtypes.uint8) if self.dtype is dtypes.uint8 else found

    return give


def _flat(method: Callable[..., Any]) -> Any:
    def give(self: Any) -> Any:
        found = method(self)
        if not self._requires_grad:
            return found
        # Its gradient is 0, and not missing.
        return self._free_number(False).where(self, found.detach())

    return give


def _default_cross_axis(method: Callable[..., Any]) -> Any:
    """A cross product along the first axis of size 3, unless another is named."""

    def give(self: Any, other: Any, dim: int | None = None) -> Any:
        if dim is None:
            dim = next((axis for axis, size in enumerate(self.shape) if size == 3), -1)
        return method(self, other, dim)

    return give


def _extremes(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        return LowestAndHighest(*method(self, *args, **options))

    return give


def _split_up(method: Any) -> Any:
    @functools.wraps(method)
    def split(self: Any) -> MantissaAndExponent:
        return MantissaAndExponent(*method(self))

    return split


def _filling(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        args = (*args[:-1], *(_as_filled(method.__name__, self, each) for each in args[-1:]))
        for name in {"value", "fill_value"} & options.keys():
            options[name] = _as_filled(method.__name__, self, options[name])
        return method(self, *args, **options)

    return give


def _as_filled(name: str, filled: Any, value: Any) -> Any:
    """A number as it is in the integers or truth values `filled`; a tensor as `_given_way` says.

    Raises DTypeError for a number outside the dtype; in an unsigned one, the negative of a number
    inside it wraps.
    """
    dtype = filled.dtype
    if dtype.is_float or not isinstance(value, (int, float)):
        return _given_way(filled, value)
    if dtype is dtypes.bool:
        return bool(value)
    if not min(dtype.min, -dtype.max) <= value <= dtype.max:
        raise DTypeError(f"{name}: {value} does not fit {dtype.name}")
    return int(value) % (1 << dtype.bits) if dtype.min == 0 else int(value)


def _given_way(filled: Any, value: Any) -> Any:
    """A tensor of no axes that is put into `filled` takes its dtype, unless that is of a lower
    kind.
    """
    if not isinstance(value, ours.Tensor) or value.ndim:
        return value
    is_lower = value.dtype.is_float and not filled.dtype.is_float
    return value if is_lower else value.cast(filled.dtype)


def _by_exchanges(method: Callable[..., Any]) -> Any:
    """A solution by factors whose pivots are exchanges of rows, as LAPACK counts them."""

    def give(self: Any, LU_data: Any, LU_pivots: Any) -> Any:
        return method(self, LU_data, order_of(LU_pivots))

    return from_float32(give)


def _limited(method: Callable[..., Any]) -> Any:
    """A limit of no axes takes the dtype of the limited tensor, as in arithmetic."""

    def give(self: Any, *args: Any, **options: Any) -> Any:
        limits = dict(zip(("min", "max"), args)) | options
        tensors = {name: each for name, each in limits.items() if isinstance(each, ours.Tensor)}
        if not tensors:
            return method(self, *args, **options)
        first, *rest = given_way([self, *tensors.values()])
        return method(first, *args[2:], **(limits | dict(zip(tensors, rest))))

    return give


def _paired(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        found = method(self, *args, **options)
        return wide_pair(method.__name__, found) if isinstance(found, tuple) else found

    return give


def _of_numbers(method: Callable[..., Any]) -> Any:
    name = method.__name__.strip("_")

    def give(self: Any, *args: Any, **options: Any) -> Any:
        if self.dtype is dtypes.bool or any(_is_bool(each) for each in args[:1]):
            raise DTypeError(
                f"{name}: bools have no difference", remedy="~x of a mask, x ^ y, or x.long()"
            )
        return method(self, *args, **options)

    return give


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) is dtypes.bool


def _by_number(method: Callable[..., Any]) -> Any:
    """A division, or a power, of integers by a number for which PyTorch has no result."""
    name = method.__name__.strip("_")

    def give(self: Any, *args: Any, **options: Any) -> Any:
        if args and args[0].__class__ is int and not self.dtype.is_float:
            if name == "pow" and args[0] < 0:
                raise DTypeError(
                    "pow: integers have no negative powers among the integers", remedy="x.float()"
                )
            is_whole = name != "div" or options.get("rounding_mode") is not None
            if name != "pow" and is_whole and not args[0]:
                raise DTypeError(f"{name}: an integer is divided by 0", remedy="x.float()")
        return method(self, *args, **options)

    return give


def _masked(method: Callable[..., Any]) -> Any:
    name = method.__name__

    def give(self: Any, mask: Any, *args: Any, **options: Any) -> Any:
        if isinstance(mask, OurTensor) and mask.dtype is not dtypes.bool:
            raise DTypeError(f"{name}: the mask must be bool, it is {mask.dtype.name}")
        if name == "masked_scatter" and self.shape != mask.shape:
            self = self.expand(OurTensor.broadcast_shapes(self.shape, mask.shape))
        return method(self, mask, *args, **options)

    return give


def _with_gradient(method: Callable[..., Any]) -> Any:
    name = method.__name__

    def give(self: Any, *args: Any, **options: Any) -> Any:
        if not self._requires_grad:
            raise RuntimeError(f"cannot {name} on a tensor that doesn't require gradient")
        return method(self, *args, **options)

    return give


def _solved(method: Callable[..., Any]) -> Any:
    name = method.__name__

    def give(self: Any, *args: Any, **options: Any) -> Any:
        if not self.dtype.is_float:
            raise DTypeError(f"linalg.{name}: the dtype must be a float, it is {self.dtype.name}")
        one_dtype(f"linalg.{name}", (self, *args))
        found = method(self, *args, **options)
        if is_transforming() or current_recording() is not None:
            return found
        # The read stores what was found as well, which its gradient goes on from by a template.
        if not found.detach().isfinite().all().item() and self.detach().isfinite().all().item():
            kind = "not positive definite" if name == "cholesky" else "singular"
            raise LinAlgError(f"linalg.{name}: a matrix of shape {tuple(self.shape)} is {kind}")
        return found

    return give


def _of_tensors(method: Callable[..., Any]) -> Any:
    return with_tensors(method, method.__name__)


def _ranked(method: Callable[..., Any], ranks: Sequence[tuple[int, ...]]) -> Any:
    name = method.__name__

    def give(self: Any, *args: Any, **options: Any) -> Any:
        of_ranks(name, (self, *args, *options.values()), ranks)
        return method(self, *args, **options)

    return give


def _counted(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        found = method(self, *args, **options)
        if not isinstance(found, tuple):
            return found
        values, *indices = found
        return (values, *[each.long() for each in indices])

    return give


def renamed(method: Callable[..., Any], table: dict[str, str | None]) -> Any:
    """`method`, whose arguments also have PyTorch's names: the keys of `table`."""

    def give(self: Any, *args: Any, **options: Any) -> Any:
        for theirs, mine in table.items():
            if theirs in options:
                value = options.pop(theirs)
                if mine is not None:
                    options[mine] = value
        return method(self, *args, **options)

    return called(give, method.__name__)


def _named(method: Callable[..., Any], key: str) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        if options and key in options:
            given = options.pop(key)
            given = () if given is None else given
            args = (*args, *(given if isinstance(given, (tuple, list)) else (given,)))
        return method(self, *args, **options)

    return give
