"""Functions of `torch` that are methods of its tensors: `torch.sum(x)` is `x.sum()`.

First those whose arguments come otherwise than the method's; then the table.
"""

from __future__ import annotations

import string
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ConfigError, KindError, ShapeError, UnsupportedDTypeError, article
from tilegrad.nn.distributions import Binomial
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.autocast_methods import AUTOCAST_FROM
from tilegrad.torch.complex import Complex
from tilegrad.torch.contractions import tensordot
from tilegrad.torch.expecting import no_tensor, of_ranks, of_tensors
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.promotion import given_way
from tilegrad.torch.reduction_methods import mean_beside
from tilegrad.torch.size import Size
from tilegrad.torch.tensor import Tensor, as_ours, with_ours
from tilegrad.torch.thread_modes import autocast_dtype

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "bartlett_window", "binomial", "blackman_window",
    "block_diag",
    "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cat", "chain_matmul",
    "column_stack", "combinations", "concat", "concatenate", "dstack", "einsum", "frobenius_norm",
    "from_dlpack", "gradient", "hamming_window", "hann_window", "hstack", "is_tensor", "istft",
    "kaiser_window", "meshgrid", "norm", "numel", "poisson", "qr",
    "repeat_interleave", "result_type", "row_stack", "rsub", "split", "stack", "std", "std_mean",
    "stft", "svd", "tensordot",
    "typename", "unique", "var", "var_mean", "vmap", "vstack", "where",
]  # fmt: skip


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, OurTensor)


def numel(input: ours.Tensor) -> int:
    """The number of elements."""
    if not isinstance(input, OurTensor):
        raise no_tensor("numel", input)
    return int(input.numel())


def typename(obj: object) -> str:
    """The name of a tensor's class, or of an object's."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    return f"{type(obj).__module__}.{type(obj).__name__}"


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype in which two real tensors or numbers meet."""
    first, second = (
        as_ours(x) if isinstance(x, OurTensor) else tensor(x) for x in (tensor1, tensor2)
    )
    first, second = given_way([first, second])
    return promote(first.dtype, second.dtype)


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of `input` where the condition holds, else of `other`; alone, where it holds."""
    if condition.__class__ is input.__class__ is other.__class__ is Tensor:
        return condition._chosen_of(input, other)
    if not isinstance(condition, OurTensor):
        raise no_tensor("where", condition)
    chosen = as_ours(condition)
    if input is None and other is None:
        return chosen.nonzero(as_tuple=True)
    are_tensors = [isinstance(each, OurTensor) for each in (input, other)]
    if any(are_tensors) and not all(are_tensors):
        # A number takes the dtype of the tensor, also of one without axes.
        first, second = (
            as_ours(each) if isinstance(each, OurTensor) else each for each in (input, other)
        )
        return OurTensor.where(chosen.bool(), first, second)
    both = [each if isinstance(each, OurTensor) else tensor(each) for each in (input, other)]
    first, second = given_way([as_ours(each) for each in both])
    kind = promote(first.dtype, second.dtype)
    return OurTensor.where(chosen.bool(), first.cast(kind), second.cast(kind))


def rsub(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha * input."""
    is_number = not isinstance(other, OurTensor)
    found: Tensor = other - input * alpha if is_number else other.sub(input, alpha=alpha)
    return found


# several tensors


def each_tensor(name: str, given: Any) -> list[Any]:
    """The tensors in a list or tuple, as tensors of `torch`.

    Raises KindError for what is no list of tensors, ConfigError for an empty one.
    """
    if not isinstance(given, (list, tuple)):
        shown = article(type(given).__name__)
        raise KindError(f"{name}: a list of tensors is needed, not {shown}")
    for number, each in enumerate(given):
        if not isinstance(each, (OurTensor, Complex)):
            raise no_tensor(name, each, f" as element {number}")
    if not given:
        raise ConfigError(f"{name}: there is no tensor")
    return [as_ours(each) for each in given]


def _each(name: str, tensors: Any) -> list[Any]:
    is_list = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return each_tensor(name, tensors[0] if is_list else tensors)


def cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one after the other along an axis."""
    given = each_tensor("cat", tensors)
    dim = dim if axis is None else axis
    if any(tuple(each.shape) == (0,) for each in given):
        given = _fitting_empty(given, dim)
    found: Tensor = given[0].cat(*given[1:], dim=dim)
    return found


def _fitting_empty(tensors: list[Any], dim: int) -> list[Any]:
    """The tensors, where a vector without elements fits any shape, as in PyTorch: only its dtype
    counts.
    """
    shapes = [tuple(each.shape) for each in tensors]
    wanted = list(next((shape for shape in shapes if shape != (0,)), (0,)))
    if -len(wanted) <= dim < len(wanted):
        wanted[dim] = 0
    return [each.reshape(wanted) if each.shape == (0,) else each for each in tensors]


concat = concatenate = cat


def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    first, *others = each_tensor("stack", tensors)
    found: Tensor = first.stack(*others, dim=dim)
    return found


def hstack(tensors: Any) -> Tensor:
    """Tensors side by side: along axis 1, vectors along axis 0."""
    return Tensor.hstack(each_tensor("hstack", tensors))


def vstack(tensors: Any) -> Tensor:
    """Tensors one below the other."""
    return Tensor.vstack(each_tensor("vstack", tensors))


row_stack = vstack


def dstack(tensors: Any) -> Tensor:
    """Tensors one behind the other, along axis 2."""
    return Tensor.dstack(each_tensor("dstack", tensors))


def column_stack(tensors: Any) -> Tensor:
    """Vectors as columns, and matrices, side by side."""
    return Tensor.column_stack(each_tensor("column_stack", tensors))


def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of a larger one."""
    return Tensor.block_diag(*_each("block_diag", tensors))


def cartesian_prod(*tensors: Any) -> Tensor:
    """All tuples of elements, one of each vector."""
    given = _each("cartesian_prod", tensors)
    of_ranks("cartesian_prod", given, [(1,)] * len(given))
    return Tensor.cartesian_prod(*given)


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector."""
    found: Tensor = as_ours(input).combinations(r, with_replacement)
    return found


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Each vector's elements along an axis of its own."""
    first, *others = given = _each("meshgrid", tensors)
    of_ranks("meshgrid", given, [(0, 1)] * len(given))
    found: tuple[Tensor, ...] = first.meshgrid(*others, indexing=indexing)
    return found


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors stretched to one shape; those that have it as they are."""
    given = _each("broadcast_tensors", tensors)
    found = Tensor.broadcast_tensors(*given)
    pairs = zip(given, found, strict=True)
    return tuple([one if one.shape == other.shape else other for one, other in pairs])


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape to which several stretch."""
    return Size(Tensor.broadcast_shapes(*shapes))


def atleast_1d(*tensors: Any) -> Any:
    """The tensors with at least one axis; those that have them as they are."""
    given = _each("atleast_1d", tensors)
    found = [each if each.ndim >= 1 else Tensor.atleast_1d(each) for each in given]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_2d(*tensors: Any) -> Any:
    """The tensors with at least two axes; those that have them as they are."""
    given = _each("atleast_2d", tensors)
    found = [each if each.ndim >= 2 else Tensor.atleast_2d(each) for each in given]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_3d(*tensors: Any) -> Any:
    """The tensors with at least three axes; those that have them as they are."""
    given = _each("atleast_3d", tensors)
    found = [each if each.ndim >= 3 else Tensor.atleast_3d(each) for each in given]
    return found[0] if len(found) == 1 else tuple(found)


def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that Einstein's notation names."""
    if isinstance(equation, OurTensor):
        # As (tensor, labels, tensor, labels, ..., labels of the result).
        given = (equation, *operands)
        labels = [*given[1::2], *([given[-1]] if len(given) % 2 else [])]
        texts = ["".join(_label(each) for each in axes) for axes in labels]
        count = len(given) // 2
        equation = ",".join(texts[:count]) + "".join(f"->{text}" for text in texts[count:])
        operands = given[: 2 * count : 2]
    if not isinstance(equation, str):
        shown = article(type(equation).__name__)
        raise KindError(f"einsum: the equation must be a text, not {shown}")
    tensors = _each("einsum", operands)
    wanted = autocast_dtype()
    if wanted is not None:
        tensors = [each.cast(wanted) if each.dtype in AUTOCAST_FROM else each for each in tensors]
    return Tensor.einsum(equation, *tensors)


def _label(axis: Any) -> str:
    return "..." if axis is Ellipsis else string.ascii_letters[axis]


def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices, in the order that takes the least work."""
    found: Tensor = with_ours(Tensor.multi_dot(*_each("chain_matmul", matrices)))
    return found


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Slices of a size, or of several, along an axis."""
    found: tuple[Tensor, ...] = as_ours(tensor).split(split_size_or_sections, dim)
    return found


# one tensor


@of_tensors
def std(input: Any, *args: Any, **options: Any) -> Tensor:
    """The standard deviation."""
    found: Tensor = as_ours(input).std(*args, **options)
    return found


@of_tensors
def var(input: Any, *args: Any, **options: Any) -> Tensor:
    """The variance."""
    found: Tensor = as_ours(input).var(*args, **options)
    return found


@of_tensors
def std_mean(input: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    x = as_ours(input)
    return x.std(*args, **options), mean_beside(x, args, options)


@of_tensors
def var_mean(input: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    x = as_ours(input)
    return x.var(*args, **options), mean_beside(x, args, options)


@of_tensors
def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The p-norm over axes."""
    x = as_ours(input) if dtype is None else as_ours(input).to(dtype)
    axes = tuple(dim) if isinstance(dim, list) else dim
    if p == "nuc":
        last = (-2, -1)
        sums: Tensor = x.movedim(axes or last, last).matrix_norm("nuc", keepdim)
        return sums.movedim(last, axes or last) if keepdim else sums
    found: Tensor = x.norm(2.0 if p is None else p, axes, keepdim)
    return found


@of_tensors
def frobenius_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over axes."""
    return norm(input, "fro", dim, keepdim)


@of_tensors
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
    from tilegrad.torch.streams import drawing

    with drawing(generator):
        found: Tensor = as_ours(input).poisson()
    return found


def binomial(count: Any, prob: Any, generator: Any = None) -> Tensor:
    """The number of successes in `count` trials, each with the probability `prob`."""
    from tilegrad.torch.streams import drawing

    with drawing(generator):
        drawn = Binomial(count, as_ours(prob)).sample()
    found: Tensor = as_ours(drawn.cast(count.dtype))
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


@of_tensors
def svd(input: Any, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V of U diag(S) V^T; `torch.linalg.svd` gives V^T. Without `compute_uv` U and V are
    zeros.
    """
    left, values, right = as_ours(input).svd(not some)
    found = left, values, right.mH
    return found if compute_uv else (found[0].zeros_like(), values, found[2].zeros_like())


@of_tensors
def qr(input: Any, some: bool = True) -> tuple[Tensor, Tensor]:
    """An orthogonal times a triangular matrix."""
    found: tuple[Tensor, Tensor] = as_ours(input).qr("reduced" if some else "complete")
    return found


@of_tensors
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element as often as `repeats` says; of counts alone, each position as often."""
    given = as_ours(input)
    if repeats is None:
        given, repeats = Tensor.arange(len(given)).long(), given
    if isinstance(repeats, OurTensor) and repeats.dtype.is_float:
        raise UnsupportedDTypeError(
            f"repeat_interleave: repeats are integers, not {repeats.dtype.name}"
        )
    found: Tensor = given.repeat_interleave(repeats, dim)
    return found


def gradient(
    input: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The slope along each axis, by differences of neighbours: `spacing` is how far they are apart,
    by default 1, or for each axis that or a vector of their positions.
    """
    x, spacing = as_ours(input), 1 if spacing is None else spacing
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = spacing if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    return tuple(
        _slopes(x, axis, _widths(x, axis, step), edge_order)
        for axis, step in zip(axes, steps, strict=True)
    )


def _widths(x: Tensor, axis: int, step: Any) -> Any:
    """How far neighbours along an axis are apart: a number, or a vector that lies along the axis.

    Raises ShapeError for positions of another number than the axis has.
    """
    if not isinstance(step, (OurTensor, Complex)) or not step.ndim:
        return step
    positions, size = as_ours(step), x.shape[axis]
    if tuple(positions.shape) != (size,):
        raise ShapeError(
            f"gradient: positions of shape {tuple(positions.shape)} along an axis of {size}"
        )
    shape = [1] * x.ndim
    shape[axis] = size - 1
    return (positions[1:] - positions[:-1]).reshape(shape)


def _slopes(x: Tensor, axis: int, widths: Any, edge_order: int) -> Tensor:
    """Slopes along an axis: of the parabola through three neighbours; at the ends of a line through
    two, or with an `edge_order` of 2 of such a parabola.
    """
    size, are_different = x.shape[axis], isinstance(widths, (OurTensor, Complex))

    def width(first: int, count: int) -> Any:
        return widths.narrow(axis, first, count) if are_different else widths

    def at(first: int, count: int) -> Tensor:
        return x.narrow(axis, first, count)

    count = size - 2
    before, after = width(0, count), width(1, count)
    if are_different:
        rise = (at(2, count) - at(1, count)) * before / after
        rise = rise + (at(1, count) - at(0, count)) * after / before
        inner = rise / (before + after)
    else:
        inner = (at(2, count) - at(0, count)) / (2 * widths)
    first = (at(1, 1) - at(0, 1)) / width(0, 1)
    last = (at(size - 1, 1) - at(size - 2, 1)) / width(size - 2, 1)
    if edge_order == 2:
        # The line's slope, and as much as the parabola bends from its middle to its end.
        second = (at(2, 1) - at(1, 1)) / width(1, 1)
        first = first - (second - first) * width(0, 1) / (width(0, 1) + width(1, 1))
        second = (at(size - 2, 1) - at(size - 3, 1)) / width(size - 3, 1)
        near, far = width(size - 2, 1), width(size - 3, 1)
        last = last + (last - second) * near / (near + far)
    joined: Tensor = first.cat(inner, last, dim=axis)
    return joined


# signals


def _make_window(name: str) -> Any:
    def window(
        window_length: int, periodic: bool = True, *args: float, dtype: Any = None,
        device: Any = None, requires_grad: bool = False, **shape: Any,
    ) -> Tensor:  # fmt: skip
        make = getattr(Tensor, name)
        made = with_ours(make(window_length, periodic, *args, dtype=dtype, **shape))
        placed = made.to(device)
        return placed.requires_grad_() if requires_grad else placed  # type: ignore[no-any-return]

    window.__name__ = window.__qualname__ = name
    window.__doc__ = getattr(Tensor, name).__doc__
    return window


hann_window = _make_window("hann_window")
hamming_window = _make_window("hamming_window")
blackman_window = _make_window("blackman_window")
bartlett_window = _make_window("bartlett_window")
kaiser_window = _make_window("kaiser_window")


def stft(input: Any, n_fft: int, *args: Any, **options: Any) -> Any:
    """The Fourier transforms of overlapping windows, as complex numbers."""
    from tilegrad.torch.fft import stft as transform

    return transform(input, n_fft, *args, **options)


def istft(input: Any, n_fft: int, *args: Any, **options: Any) -> Tensor:
    """The signal whose `stft` is `input`."""
    from tilegrad.torch.fft import istft as transform

    found: Tensor = transform(input, n_fft, *args, **options)
    return found
