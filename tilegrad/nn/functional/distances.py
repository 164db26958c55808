"""How far apart vectors are: along one axis, and in pairs."""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ShapeError
from tilegrad.tensor.calls.number_tables import number_table
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["cosine_similarity", "pairwise_distance", "pdist"]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors: x1 * x2 summed along an axis, divided by the product of
    the lengths.

    Args:
        x1: a tensor.
        x2: a tensor whose shape broadcasts with it.
        dim: the axis; a negative one counts from the last.
        eps: least length.

    Returns a float tensor of the broadcast shape without `dim`.

    Raises ShapeError unless the shapes broadcast, IndexBoundsError for an axis that is out of
    range.

    >>> nn.functional.cosine_similarity(Tensor([[2.0, 0.0]]), Tensor([[0.0, 3.0]])).tolist()
    [0.0]
    """
    check_tensors("cosine_similarity", x1, x2)
    kind = promote(x1.dtype, x2.dtype)
    if kind.is_float and kind.itemsize < dtypes.float32.itemsize:
        # The square of `eps` is 0 there.
        x1, x2 = x1.float(), x2.float()
    x1, x2 = Tensor.broadcast_tensors(x1, x2)
    lengths = [x.square().sum(dim).maximum(eps * eps).sqrt() for x in (x1, x2)]
    # One after the other, whose product may be infinite.
    found = (x1 * x2).sum(dim) / lengths[0] / lengths[1]
    return found.cast(kind) if kind.is_float else found


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Distance of vectors: the p-norm of x1 - x2 + eps along the last axis.

    Args:
        x1: (..., D).
        x2: (..., D), which broadcasts with it.
        p: order of the norm.
        eps: added to the difference, so that there is a gradient at 0.
        keepdim: keep the last axis, with size 1.

    Returns a float tensor of the broadcast shape without the last axis.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.functional.pairwise_distance(Tensor([3.0, 4.0]), Tensor([0.0, 0.0]), eps=0.0).item()
    5.0
    """
    check_tensors("pairwise_distance", x1, x2)
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows i < j of a matrix (N, M), in the order (0, 1), (0, 2), ...,
    (1, 2), ...

    Args:
        input: (N, M).
        p: order of the norm.

    Returns a float tensor of shape (N * (N - 1) / 2,).

    Raises ShapeError unless `input` is a matrix.

    >>> nn.functional.pdist(Tensor([[0.0], [1.0], [3.0]])).tolist()
    [1.0, 3.0, 2.0]
    """
    check_tensors("pdist", input)
    if input.ndim != 2:
        raise ShapeError(
            f"pdist: rows of a matrix, not {show_shape(input.shape)}", input=describe(input.uop)
        )
    return _between_pairs(input, p)


@templated
def _between_pairs(input: Tensor, p: float) -> Tensor:
    count = input._sizes[0]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = (
        number_table(input, [pair[at] for pair in pairs], dtypes.int32) for at in (0, 1)
    )
    return (input[first] - input[second]).norm(p, -1)
