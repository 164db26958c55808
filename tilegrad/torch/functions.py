"""Functions of `torch` that are methods of its tensors: `torch.sum(x)` is `x.sum()`.

First those whose arguments come otherwise than the method's; then the table.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, promote
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.creation import tensor
from tilegrad.torch.tensor import Tensor, as_ours, given_way, with_ours

__all__ = [
    "abs",
    "abs_",
    "absolute",
    "acos",
    "acos_",
    "acosh",
    "acosh_",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addmv_",
    "addr",
    "adjoint",
    "all",
    "allclose",
    "amax",
    "amin",
    "aminmax",
    "any",
    "arccos",
    "arccos_",
    "arccosh",
    "arccosh_",
    "arcsin",
    "arcsin_",
    "arcsinh",
    "arcsinh_",
    "arctan",
    "arctan2",
    "arctan_",
    "arctanh",
    "arctanh_",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_strided",
    "asin",
    "asin_",
    "asinh",
    "asinh_",
    "atan",
    "atan2",
    "atan_",
    "atanh",
    "atanh_",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "baddbmm",
    "bartlett_window",
    "bincount",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman_window",
    "block_diag",
    "bmm",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "can_cast",
    "cartesian_prod",
    "cat",
    "cdist",
    "ceil",
    "ceil_",
    "chain_matmul",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_",
    "clamp_max",
    "clamp_max_",
    "clamp_min",
    "clamp_min_",
    "clip",
    "clip_",
    "clone",
    "column_stack",
    "combinations",
    "concat",
    "concatenate",
    "cond",
    "copysign",
    "corrcoef",
    "cos",
    "cos_",
    "cosh",
    "cosh_",
    "count_nonzero",
    "cov",
    "cross",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "deg2rad",
    "deg2rad_",
    "det",
    "detach",
    "detach_",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "div",
    "divide",
    "dot",
    "dsplit",
    "dstack",
    "einsum",
    "eq",
    "equal",
    "erf",
    "erf_",
    "erfc",
    "erfc_",
    "erfinv",
    "exp",
    "exp2",
    "exp2_",
    "exp_",
    "expm1",
    "expm1_",
    "fix",
    "fix_",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float_power",
    "floor",
    "floor_",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frac_",
    "frexp",
    "frobenius_norm",
    "from_dlpack",
    "gather",
    "gcd",
    "gcd_",
    "ge",
    "ger",
    "gradient",
    "greater",
    "greater_equal",
    "gt",
    "hamming_window",
    "hann_window",
    "heaviside",
    "histc",
    "histogram",
    "hsplit",
    "hstack",
    "hypot",
    "i0",
    "i0_",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "inner",
    "inverse",
    "is_floating_point",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "is_tensor",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "istft",
    "kaiser_window",
    "kron",
    "kthvalue",
    "lcm",
    "lcm_",
    "ldexp",
    "ldexp_",
    "le",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log1p_",
    "log2",
    "log2_",
    "log10",
    "log10_",
    "log_",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logit_",
    "logsumexp",
    "lstsq",
    "lt",
    "lu",
    "lu_solve",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "matrix_rank",
    "max",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mm",
    "mode",
    "moveaxis",
    "movedim",
    "msort",
    "mul",
    "multiply",
    "mv",
    "mvlgamma",
    "nan_to_num",
    "nan_to_num_",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "ne",
    "neg",
    "neg_",
    "negative",
    "negative_",
    "nextafter",
    "nonzero",
    "nonzero_static",
    "norm",
    "not_equal",
    "numel",
    "outer",
    "pdist",
    "permute",
    "pinverse",
    "poisson",
    "polygamma",
    "positive",
    "pow",
    "prod",
    "promote_types",
    "put",
    "qr",
    "quantile",
    "rad2deg",
    "rad2deg_",
    "ravel",
    "reciprocal",
    "reciprocal_",
    "relu",
    "relu_",
    "remainder",
    "renorm",
    "repeat_interleave",
    "reshape",
    "result_type",
    "roll",
    "rot90",
    "round",
    "round_",
    "row_stack",
    "rsqrt",
    "rsqrt_",
    "rsub",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "select",
    "select_scatter",
    "sgn",
    "sigmoid",
    "sigmoid_",
    "sign",
    "signbit",
    "sin",
    "sin_",
    "sinc",
    "sinc_",
    "sinh",
    "sinh_",
    "slice_scatter",
    "slogdet",
    "softmax",
    "solve",
    "sort",
    "split",
    "sqrt",
    "sqrt_",
    "square",
    "square_",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "stft",
    "sub",
    "subtract",
    "sum",
    "svd",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tan_",
    "tanh",
    "tanh_",
    "tensor_split",
    "tensordot",
    "tile",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "trunc_",
    "typename",
    "unbind",
    "unflatten",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsqueeze",
    "vander",
    "var",
    "var_mean",
    "vdot",
    "vmap",
    "vsplit",
    "vstack",
    "where",
    "xlogy",
    "xlogy_",
    "zero_",
]  # fmt: skip


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, OurTensor)


def numel(input: ours.Tensor) -> int:
    """The number of elements."""
    return int(input.numel())


def typename(obj: object) -> str:
    """The name of a tensor's class, or of an object's."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    return f"{type(obj).__module__}.{type(obj).__name__}"


def promote_types(type1: DType, type2: DType) -> DType:
    """The dtype in which two meet."""
    return promote(type1, type2)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype in which two tensors or numbers meet."""
    first, second = (
        as_ours(x) if isinstance(x, OurTensor) else tensor(x) for x in (tensor1, tensor2)
    )
    first, second = given_way([first, second])
    return promote(first.dtype, second.dtype)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of one dtype may be written to a tensor of another: to one of a higher
    kind (bool, integer, float), or of its own.
    """
    rank = [2 if kind.is_float else 1 if kind.is_int else 0 for kind in (from_, to)]
    return rank[0] <= rank[1]


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of `input` where the condition holds, else of `other`; alone, where it holds."""
    chosen = as_ours(condition)
    if input is None and other is None:
        return chosen.nonzero(as_tuple=True)
    both = [each if isinstance(each, OurTensor) else tensor(each) for each in (input, other)]
    first, second = given_way([as_ours(each) for each in both])
    kind = promote(first.dtype, second.dtype)
    return chosen.bool().where(first.cast(kind), second.cast(kind))


def rsub(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha * input."""
    found: Tensor = other - input * alpha
    return found


# several tensors


def _each(tensors: Any) -> list[Any]:
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else [
        *tensors
    ]  # fmt: skip
    return [as_ours(each) for each in given]


def cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one after the other along an axis."""
    parts = [as_ours(each) for each in tensors]
    # As in PyTorch, a vector without elements fits any shape.
    full = [each for each in parts if tuple(each.shape) != (0,)] or parts[:1]
    found: Tensor = full[0].cat(*full[1:], dim=dim if axis is None else axis)
    return found


concat = concatenate = cat


def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    first, *others = [as_ours(each) for each in tensors]
    found: Tensor = first.stack(*others, dim=dim)
    return found


def hstack(tensors: Any) -> Tensor:
    """Tensors side by side: along axis 1, vectors along axis 0."""
    return Tensor.hstack(_each((tensors,)))


def vstack(tensors: Any) -> Tensor:
    """Tensors one below the other."""
    return Tensor.vstack(_each((tensors,)))


row_stack = vstack


def dstack(tensors: Any) -> Tensor:
    """Tensors one behind the other, along axis 2."""
    return Tensor.dstack(_each((tensors,)))


def column_stack(tensors: Any) -> Tensor:
    """Vectors as columns, and matrices, side by side."""
    return Tensor.column_stack(_each((tensors,)))


def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of a larger one."""
    return Tensor.block_diag(*_each(tensors))


def cartesian_prod(*tensors: Any) -> Tensor:
    """All tuples of elements, one of each vector."""
    return Tensor.cartesian_prod(*_each(tensors))


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector."""
    found: Tensor = as_ours(input).combinations(r, with_replacement)
    return found


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Each vector's elements along an axis of its own."""
    first, *others = _each(tensors)
    found: tuple[Tensor, ...] = first.meshgrid(*others, indexing=indexing)
    return found


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors stretched to one shape."""
    return Tensor.broadcast_tensors(*_each(tensors))


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape to which several stretch."""
    return Tensor.broadcast_shapes(*shapes)


def atleast_1d(*tensors: Any) -> Any:
    """The tensors with at least one axis."""
    found = [each.atleast_1d() for each in _each(tensors)]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_2d(*tensors: Any) -> Any:
    """The tensors with at least two axes."""
    found = [each.atleast_2d() for each in _each(tensors)]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_3d(*tensors: Any) -> Any:
    """The tensors with at least three axes."""
    found = [each.atleast_3d() for each in _each(tensors)]
    return found[0] if len(found) == 1 else tuple(found)


def einsum(equation: str, *operands: Any) -> Tensor:
    """The sum of products that Einstein's notation names."""
    return Tensor.einsum(equation, *_each(operands))


def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """The sum of products over several axes."""
    found: Tensor = as_ours(a).tensordot(b, dims)
    return found


def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices, in the order that takes the least work."""
    first, *others = _each(matrices)
    found: Tensor = first.chain_matmul(*others)
    return found


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Slices of a size, or of several, along an axis."""
    found: tuple[Tensor, ...] = as_ours(tensor).split(split_size_or_sections, dim)
    return found


# one tensor


def std(input: Any, *args: Any, **options: Any) -> Tensor:
    """The standard deviation."""
    found: Tensor = as_ours(input).std(*args, **options)
    return found


def var(input: Any, *args: Any, **options: Any) -> Tensor:
    """The variance."""
    found: Tensor = as_ours(input).var(*args, **options)
    return found


def std_mean(input: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    x = as_ours(input)
    return x.std(*args, **options), x.mean(*args[:1], **without_spread(options))


def var_mean(input: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    x = as_ours(input)
    return x.var(*args, **options), x.mean(*args[:1], **without_spread(options))


def without_spread(options: dict[str, Any]) -> dict[str, Any]:
    """Keywords of a variance as those of a mean."""
    return {
        name: value for name, value in options.items() if name not in ("unbiased", "correction")
    }


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The p-norm over axes."""
    x = as_ours(input) if dtype is None else as_ours(input).to(dtype)
    axes = tuple(dim) if isinstance(dim, list) else dim
    found: Tensor = x.norm(2.0 if p is None else p, axes, keepdim)
    return found


def frobenius_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over axes."""
    return norm(input, "fro", dim, keepdim)


def unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different values in order, and with them where each element's value stands, and how often
    each occurs.
    """
    return as_ours(input).unique(sorted, return_inverse, return_counts, dim)


def poisson(input: Any, generator: Any = None) -> Tensor:
    """Random numbers of Poisson's distribution with rates `input`."""
    from tilegrad.torch.random import drawing

    with drawing(generator):
        found: Tensor = as_ours(input).poisson()
    return found


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor that shares another library's memory, where the device can."""
    return Tensor.from_dlpack(ext_tensor)


def vmap(
    func: Any, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", **rest: Any
) -> Any:
    """`func` of each slice along an axis, as one function of the whole."""
    from tilegrad.torch.func import vmap as mapped

    return mapped(func, in_dims, out_dims, randomness, **rest)


def svd(input: Any, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of U diag(S) V^T; `torch.linalg.svd` gives V^T."""
    left, values, right = as_ours(input).svd(not some)
    return left, values, right.mT


def qr(input: Any, some: bool = True) -> tuple[Tensor, Tensor]:
    """An orthogonal times a triangular matrix."""
    found: tuple[Tensor, Tensor] = as_ours(input).qr("reduced" if some else "complete")
    return found


def gradient(
    input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The slope along each axis, by differences of neighbours `spacing` apart."""
    x = as_ours(input)
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = spacing if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    found = []
    for axis, step in zip(axes, steps, strict=True):
        size = x.shape[axis]
        inner = (x.narrow(axis, 2, size - 2) - x.narrow(axis, 0, size - 2)) / (2 * step)
        first = (x.narrow(axis, 1, 1) - x.narrow(axis, 0, 1)) / step
        last = (x.narrow(axis, size - 1, 1) - x.narrow(axis, size - 2, 1)) / step
        if edge_order == 2:
            first = 2 * first - (x.narrow(axis, 2, 1) - x.narrow(axis, 0, 1)) / (2 * step)
            last = 2 * last - (x.narrow(axis, size - 1, 1) - x.narrow(axis, size - 3, 1)) / (
                2 * step
            )
        found.append(first.cat(inner, last, dim=axis))
    return tuple(found)


# signals


def _window(name: str) -> Any:
    def window(
        window_length: int, periodic: bool = True, *args: float, dtype: Any = None,
        device: Any = None, requires_grad: bool = False, **shape: Any,
    ) -> Tensor:  # fmt: skip
        made = with_ours(getattr(Tensor, name)(window_length, periodic, *args, **shape))
        placed = made.to(device, dtype)
        return placed.requires_grad_() if requires_grad else placed  # type: ignore[no-any-return]

    window.__name__ = window.__qualname__ = name
    window.__doc__ = getattr(Tensor, name).__doc__
    return window


hann_window = _window("hann_window")
hamming_window = _window("hamming_window")
blackman_window = _window("blackman_window")
bartlett_window = _window("bartlett_window")
kaiser_window = _window("kaiser_window")


def stft(input: Any, n_fft: int, *args: Any, **options: Any) -> Any:
    """The Fourier transforms of overlapping windows, as complex numbers."""
    from tilegrad.torch.fft import stft as transform

    return transform(input, n_fft, *args, **options)


def istft(input: Any, n_fft: int, *args: Any, **options: Any) -> Tensor:
    """The signal whose `stft` is `input`."""
    from tilegrad.torch.fft import istft as transform

    found: Tensor = transform(input, n_fft, *args, **options)
    return found


# the table

abs = Tensor.abs
abs_ = Tensor.abs_
absolute = Tensor.absolute
acos = Tensor.acos
acos_ = Tensor.acos_
acosh = Tensor.acosh
acosh_ = Tensor.acosh_
add = Tensor.add
addbmm = Tensor.addbmm
addcdiv = Tensor.addcdiv
addcmul = Tensor.addcmul
addmm = Tensor.addmm
addmv = Tensor.addmv
addmv_ = Tensor.addmv_
addr = Tensor.addr
adjoint = Tensor.adjoint
all = Tensor.all
allclose = Tensor.allclose
amax = Tensor.amax
amin = Tensor.amin
aminmax = Tensor.aminmax
any = Tensor.any
arccos = Tensor.arccos
arccos_ = Tensor.arccos_
arccosh = Tensor.arccosh
arccosh_ = Tensor.arccosh_
arcsin = Tensor.arcsin
arcsin_ = Tensor.arcsin_
arcsinh = Tensor.arcsinh
arcsinh_ = Tensor.arcsinh_
arctan = Tensor.arctan
arctan2 = Tensor.arctan2
arctan_ = Tensor.arctan_
arctanh = Tensor.arctanh
arctanh_ = Tensor.arctanh_
argmax = Tensor.argmax
argmin = Tensor.argmin
argsort = Tensor.argsort
argwhere = Tensor.argwhere
as_strided = Tensor.as_strided
asin = Tensor.asin
asin_ = Tensor.asin_
asinh = Tensor.asinh
asinh_ = Tensor.asinh_
atan = Tensor.atan
atan2 = Tensor.atan2
atan_ = Tensor.atan_
atanh = Tensor.atanh
atanh_ = Tensor.atanh_
baddbmm = Tensor.baddbmm
bincount = Tensor.bincount
bitwise_and = Tensor.bitwise_and
bitwise_left_shift = Tensor.bitwise_left_shift
bitwise_not = Tensor.bitwise_not
bitwise_or = Tensor.bitwise_or
bitwise_right_shift = Tensor.bitwise_right_shift
bitwise_xor = Tensor.bitwise_xor
bmm = Tensor.bmm
broadcast_to = Tensor.broadcast_to
bucketize = Tensor.bucketize
cdist = Tensor.cdist
ceil = Tensor.ceil
ceil_ = Tensor.ceil_
cholesky = Tensor.cholesky
cholesky_inverse = Tensor.cholesky_inverse
cholesky_solve = Tensor.cholesky_solve
chunk = Tensor.chunk
clamp = Tensor.clamp
clamp_ = Tensor.clamp_
clamp_max = Tensor.clamp_max
clamp_max_ = Tensor.clamp_max_
clamp_min = Tensor.clamp_min
clamp_min_ = Tensor.clamp_min_
clip = Tensor.clip
clip_ = Tensor.clip_
clone = Tensor.clone
cond = Tensor.cond
copysign = Tensor.copysign
corrcoef = Tensor.corrcoef
cos = Tensor.cos
cos_ = Tensor.cos_
cosh = Tensor.cosh
cosh_ = Tensor.cosh_
count_nonzero = Tensor.count_nonzero
cov = Tensor.cov
cross = Tensor.cross
cummax = Tensor.cummax
cummin = Tensor.cummin
cumprod = Tensor.cumprod
cumsum = Tensor.cumsum
cumulative_trapezoid = Tensor.cumulative_trapezoid
deg2rad = Tensor.deg2rad
deg2rad_ = Tensor.deg2rad_
det = Tensor.det
detach = Tensor.detach
detach_ = Tensor.detach_
diag = Tensor.diag
diag_embed = Tensor.diag_embed
diagflat = Tensor.diagflat
diagonal = Tensor.diagonal
diagonal_scatter = Tensor.diagonal_scatter
diff = Tensor.diff
digamma = Tensor.digamma
dist = Tensor.dist
div = Tensor.div
divide = Tensor.divide
dot = Tensor.dot
dsplit = Tensor.dsplit
eq = Tensor.eq
equal = Tensor.equal
erf = Tensor.erf
erf_ = Tensor.erf_
erfc = Tensor.erfc
erfc_ = Tensor.erfc_
erfinv = Tensor.erfinv
exp = Tensor.exp
exp2 = Tensor.exp2
exp2_ = Tensor.exp2_
exp_ = Tensor.exp_
expm1 = Tensor.expm1
expm1_ = Tensor.expm1_
fix = Tensor.fix
fix_ = Tensor.fix_
flatten = Tensor.flatten
flip = Tensor.flip
fliplr = Tensor.fliplr
flipud = Tensor.flipud
float_power = Tensor.float_power
floor = Tensor.floor
floor_ = Tensor.floor_
floor_divide = Tensor.floor_divide
fmax = Tensor.fmax
fmin = Tensor.fmin
fmod = Tensor.fmod
frac = Tensor.frac
frac_ = Tensor.frac_
frexp = Tensor.frexp
gather = Tensor.gather
gcd = Tensor.gcd
gcd_ = Tensor.gcd_
ge = Tensor.ge
ger = Tensor.ger
greater = Tensor.greater
greater_equal = Tensor.greater_equal
gt = Tensor.gt
heaviside = Tensor.heaviside
histc = Tensor.histc
histogram = Tensor.histogram
hsplit = Tensor.hsplit
hypot = Tensor.hypot
i0 = Tensor.i0
i0_ = Tensor.i0_
index_add = Tensor.index_add
index_copy = Tensor.index_copy
index_fill = Tensor.index_fill
index_put = Tensor.index_put
index_reduce = Tensor.index_reduce
index_select = Tensor.index_select
inner = Tensor.inner
inverse = Tensor.inverse
is_floating_point = Tensor.is_floating_point
is_nonzero = Tensor.is_nonzero
is_same_size = Tensor.is_same_size
is_signed = Tensor.is_signed
isclose = Tensor.isclose
isfinite = Tensor.isfinite
isin = Tensor.isin
isinf = Tensor.isinf
isnan = Tensor.isnan
isneginf = Tensor.isneginf
isposinf = Tensor.isposinf
isreal = Tensor.isreal
kron = Tensor.kron
kthvalue = Tensor.kthvalue
lcm = Tensor.lcm
lcm_ = Tensor.lcm_
ldexp = Tensor.ldexp
ldexp_ = Tensor.ldexp_
le = Tensor.le
lerp = Tensor.lerp
less = Tensor.less
less_equal = Tensor.less_equal
lgamma = Tensor.lgamma
log = Tensor.log
log10 = Tensor.log10
log10_ = Tensor.log10_
log1p = Tensor.log1p
log1p_ = Tensor.log1p_
log2 = Tensor.log2
log2_ = Tensor.log2_
log_ = Tensor.log_
log_softmax = Tensor.log_softmax
logaddexp = Tensor.logaddexp
logaddexp2 = Tensor.logaddexp2
logcumsumexp = Tensor.logcumsumexp
logdet = Tensor.logdet
logical_and = Tensor.logical_and
logical_not = Tensor.logical_not
logical_or = Tensor.logical_or
logical_xor = Tensor.logical_xor
logit = Tensor.logit
logit_ = Tensor.logit_
logsumexp = Tensor.logsumexp
lstsq = Tensor.lstsq
lt = Tensor.lt
lu = Tensor.lu
lu_solve = Tensor.lu_solve
masked_fill = Tensor.masked_fill
masked_scatter = Tensor.masked_scatter
masked_select = Tensor.masked_select
matmul = Tensor.matmul
matrix_exp = Tensor.matrix_exp
matrix_power = Tensor.matrix_power
matrix_rank = Tensor.matrix_rank
max = Tensor.max
maximum = Tensor.maximum
mean = Tensor.mean
median = Tensor.median
min = Tensor.min
minimum = Tensor.minimum
mm = Tensor.mm
mode = Tensor.mode
moveaxis = Tensor.moveaxis
movedim = Tensor.movedim
msort = Tensor.msort
mul = Tensor.mul
multiply = Tensor.multiply
mv = Tensor.mv
mvlgamma = Tensor.mvlgamma
nan_to_num = Tensor.nan_to_num
nan_to_num_ = Tensor.nan_to_num_
nanmean = Tensor.nanmean
nanmedian = Tensor.nanmedian
nanquantile = Tensor.nanquantile
nansum = Tensor.nansum
narrow = Tensor.narrow
ne = Tensor.ne
neg = Tensor.neg
neg_ = Tensor.neg_
negative = Tensor.negative
negative_ = Tensor.negative_
nextafter = Tensor.nextafter
nonzero = Tensor.nonzero
nonzero_static = Tensor.nonzero_static
not_equal = Tensor.not_equal
outer = Tensor.outer
pdist = Tensor.pdist
permute = Tensor.permute
pinverse = Tensor.pinverse
polygamma = Tensor.polygamma
positive = Tensor.positive
pow = Tensor.pow
prod = Tensor.prod
put = Tensor.put
quantile = Tensor.quantile
rad2deg = Tensor.rad2deg
rad2deg_ = Tensor.rad2deg_
ravel = Tensor.ravel
reciprocal = Tensor.reciprocal
reciprocal_ = Tensor.reciprocal_
relu = Tensor.relu
relu_ = Tensor.relu_
remainder = Tensor.remainder
renorm = Tensor.renorm
repeat_interleave = Tensor.repeat_interleave
reshape = Tensor.reshape
roll = Tensor.roll
rot90 = Tensor.rot90
round = Tensor.round
round_ = Tensor.round_
rsqrt = Tensor.rsqrt
rsqrt_ = Tensor.rsqrt_
scatter = Tensor.scatter
scatter_add = Tensor.scatter_add
scatter_reduce = Tensor.scatter_reduce
searchsorted = Tensor.searchsorted
select = Tensor.select
select_scatter = Tensor.select_scatter
sgn = Tensor.sgn
sigmoid = Tensor.sigmoid
sigmoid_ = Tensor.sigmoid_
sign = Tensor.sign
signbit = Tensor.signbit
sin = Tensor.sin
sin_ = Tensor.sin_
sinc = Tensor.sinc
sinc_ = Tensor.sinc_
sinh = Tensor.sinh
sinh_ = Tensor.sinh_
slice_scatter = Tensor.slice_scatter
slogdet = Tensor.slogdet
softmax = Tensor.softmax
solve = Tensor.solve
sort = Tensor.sort
sqrt = Tensor.sqrt
sqrt_ = Tensor.sqrt_
square = Tensor.square
square_ = Tensor.square_
squeeze = Tensor.squeeze
sub = Tensor.sub
subtract = Tensor.subtract
sum = Tensor.sum
swapaxes = Tensor.swapaxes
swapdims = Tensor.swapdims
t = Tensor.t
take = Tensor.take
take_along_dim = Tensor.take_along_dim
tan = Tensor.tan
tan_ = Tensor.tan_
tanh = Tensor.tanh
tanh_ = Tensor.tanh_
tensor_split = Tensor.tensor_split
tile = Tensor.tile
topk = Tensor.topk
trace = Tensor.trace
transpose = Tensor.transpose
trapezoid = Tensor.trapezoid
trapz = Tensor.trapz
tril = Tensor.tril
triu = Tensor.triu
true_divide = Tensor.true_divide
trunc = Tensor.trunc
trunc_ = Tensor.trunc_
unbind = Tensor.unbind
unflatten = Tensor.unflatten
unique_consecutive = Tensor.unique_consecutive
unravel_index = Tensor.unravel_index
unsqueeze = Tensor.unsqueeze
vander = Tensor.vander
vdot = Tensor.vdot
vsplit = Tensor.vsplit
xlogy = Tensor.xlogy
xlogy_ = Tensor.xlogy_
zero_ = Tensor.zero_
