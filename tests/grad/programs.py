"""Functions of one or two float64 tensors that together use every op of a tensor graph that has a
derivative: what transforms of functions are checked on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad import Tensor

Program = tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]

INDEX = Tensor([[2, 0], [1, 2]])

PROGRAMS: dict[str, Program] = {
    "add and multiply": (lambda x, y: x * y + 3 * x - 1, ((2, 3), (2, 3))),
    "broadcast": (lambda x, y: x - y * x, ((3, 1), (1, 4))),
    "divide": (lambda x, y: x / (y * y + 1), ((2, 3), (3,))),
    "power": (lambda x: (x * x + 1) ** 1.5, ((4,),)),
    "exp and log": (lambda x: (x.exp() + 1).log() + x.exp2(), ((5,),)),
    "sin and cos": (lambda x: x.sin() * x.cos(), ((5,),)),
    "sqrt and reciprocal": (lambda x: (x * x + 1).sqrt().reciprocal(), ((2, 2),)),
    "maximum": (lambda x, y: x.maximum(y) + x.minimum(0.3), ((2, 3), (2, 3))),
    "where": (lambda x, y: (x > 0.1).where(x * y, y.exp()), ((2, 3), (2, 3))),
    "remainder": (lambda x: x % 0.7 + x.floor(), ((6,),)),
    "steps": (lambda x: x * x.sign() + (x > 0).cast("float64"), ((4,),)),
    "sum": (lambda x: x.sum(1) * x.sum(), ((2, 3),)),
    "mean and variance": (lambda x: (x - x.mean(0)) / (x.var(0) + 1).sqrt(), ((4, 2),)),
    "max": (lambda x: x.max(1) * x.min(), ((3, 4),)),
    "product": (lambda x: x.prod(1), ((2, 4),)),
    "softmax": (lambda x: x.softmax(-1).log(), ((2, 5),)),
    "cumulative sum": (lambda x: x.cumsum(1), ((2, 5),)),
    "cumulative product": (lambda x: x.cumprod(0), ((4, 2),)),
    "reshape and permute": (lambda x: x.permute(2, 0, 1).reshape(4, 6).T, ((2, 3, 4),)),
    "pad and shrink": (lambda x: x.pad((1, 2))[:, :4] * 2, ((2, 3),)),
    "flip and step": (lambda x: x.flip(0)[::2, ::-1], ((5, 3),)),
    "expand": (lambda x: x.reshape(3, 1).expand(3, 4) * x.reshape(1, 3, 1), ((3,),)),
    "gather rows": (lambda x: x[INDEX], ((3, 2),)),
    "gather": (lambda x: x.gather(1, INDEX), ((2, 3),)),
    "scatter add": (lambda x, y: x.scatter_add(1, INDEX, y), ((2, 3), (2, 2))),
    "concatenate": (lambda x, y: x.cat(y, dim=1), ((2, 3), (2, 2))),
    "matrix product": (lambda x, y: (x @ y).tanh(), ((3, 4), (4, 2))),
    "einsum": (lambda x, y: Tensor.einsum("ij,kj->ik", x, y), ((2, 3), (4, 3))),
    "convolution": (lambda x, y: x.conv2d(y, padding=1), ((1, 2, 4, 4), (3, 2, 3, 3))),
    "max pooling": (lambda x: x.max_pool2d(2), ((1, 2, 4, 4),)),
    "cast": (lambda x: x.cast("float64").contiguous() * 2, ((3,),)),
    "clone": (lambda x: x.clone() * x.contiguous_backward(), ((3,),)),
    "layer norm": (lambda x: x.layernorm(), ((2, 6),)),
    "cross entropy": (lambda x: x.log_softmax(-1)[0, 1] + x[1].logsumexp(), ((2, 3),)),
    "no axes": (lambda x: x * x + 1, ((),)),
    "constant": (lambda x: Tensor.ones(3, dtype="float64"), ((2,),)),
}
SECOND: tuple[Any, ...] = (
    "divide",
    "softmax",
    "product",
    "matrix product",
    "gather",
    "sin and cos",
)
