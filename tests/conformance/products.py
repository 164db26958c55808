"""Matrix products, convolutions and pooling. Products are bilinear, so the error that their
roundings may cause is the same product of the magnitudes, times what one term may be off by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.conformance.case import Case
from tests.conformance.values import (
    EVERY,
    FLOATS,
    INTEGERS,
    check,
    exact,
    roundoff,
    sample,
    spacing,
    tensor,
    zero_padded,
)
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["PRODUCTS", "product_cases"]

Shape = tuple[int, ...]
Compute = Callable[..., Any]


@dataclass(frozen=True)
class Product:
    """A product of two or three arguments of the given shapes, with `terms` summed for an element.

    `turn` looks at the first argument in another order than that of memory.
    """

    name: str
    pattern: str
    shapes: tuple[Shape, ...]
    terms: int
    ours: Compute
    theirs: Compute
    dtypes: tuple[DType, ...] = EVERY
    turn: Compute | None = None
    often: tuple[DType, ...] | None = None


def matmul(a: Any, b: Any) -> Any:
    return np.matmul(a, b) if a.shape[-1] else np.zeros((a.shape[0], b.shape[1]), a.dtype)


def conv2d(x: Any, w: Any, stride: int = 1, padding: int = 0, dilation: int = 1) -> Any:
    x = zero_padded(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    height, width = (dilation * (size - 1) + 1 for size in w.shape[2:])
    windows = sliding_window_view(x, (height, width), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("bchwij,ocij->bohw", windows, w)


def grouped(x: Any, w: Any) -> Any:
    half, outputs = x.shape[1] // 2, w.shape[0] // 2
    parts = [
        conv2d(x[:, g * half : (g + 1) * half], w[g * outputs : (g + 1) * outputs]) for g in (0, 1)
    ]
    return np.concatenate(parts, 1)


def transposed(x: Any, w: Any) -> Any:
    """Each input element adds the kernel, times itself, at twice its place."""
    batch, _, height, width = x.shape
    _, outputs, rows, columns = w.shape
    result = np.zeros((batch, outputs, 2 * height + rows - 2, 2 * width + columns - 2), x.dtype)
    for i in range(rows):
        for j in range(columns):
            part = np.einsum("bchw,co->bohw", x, w[:, :, i, j])
            result[:, :, i : i + 2 * height : 2, j : j + 2 * width : 2] += part
    return result


def pooled(x: Any, size: int, stride: int) -> Any:
    windows = sliding_window_view(x, (size, size), axis=(2, 3))
    return windows[:, :, ::stride, ::stride]


def product(a: Any, b: Any) -> Any:
    return a @ b


def swapped(x: Any) -> Any:
    return x.transpose(1, 0)


PRODUCTS = [
    Product("dot", "vectors", ((131,), (131,)), 131, product, np.dot),
    Product("matmul", "tail", ((37, 65), (65, 41)), 65, product, matmul),
    Product("matmul", "one", ((1, 1), (1, 1)), 1, product, matmul),
    Product("matmul", "no-terms", ((3, 0), (0, 4)), 0, product, matmul),
    Product("matmul", "small", ((3, 5), (5, 4)), 5, product, matmul),
    Product("matmul", "row", ((1, 70), (70, 33)), 70, product, matmul),
    Product("matmul", "column", ((33, 70), (70, 1)), 70, product, matmul),
    Product("matmul", "vector-matrix", ((19,), (19, 21)), 19, product, np.matmul),
    Product("matmul", "matrix-vector", ((21, 19), (19,)), 19, product, np.matmul),
    Product("matmul", "tiles", ((64, 96), (96, 80)), 96, product, matmul),
    Product("matmul", "long", ((5, 600), (600, 7)), 600, product, matmul),
    Product("matmul", "batches", ((3, 1, 9, 17), (2, 17, 5)), 17, product, np.matmul),
    Product("matmul", "transposed", ((65, 37), (65, 41)), 65, product, matmul, turn=swapped),
    Product("matmul", "by-transposed", ((37, 65), (41, 65)), 65, lambda a, b: a @ b.T,
            lambda a, b: a @ b.T),
    Product("matmul", "strided", ((18, 66), (33, 10)), 33, product, matmul,
            turn=lambda x: x[::2, ::2]),
    Product("matmul", "reversed", ((9, 33), (33, 10)), 33, product, matmul,
            turn=lambda x: x[:, ::-1]),
    Product("linear", "bias", ((9, 33), (33, 10), (10,)), 34, lambda x, w, b: x.linear(w, b),
            lambda x, w, b: x @ w + b),
    Product("outer", "vectors", ((9,), (11,)), 1, lambda a, b: a.outer(b), np.outer),
    Product("einsum", "bik,bjk->ij", ((3, 9, 7), (3, 5, 7)), 21,
            lambda a, b: Tensor.einsum("bik,bjk->ij", a, b),
            lambda a, b: np.einsum("bik,bjk->ij", a, b)),
    Product("mm", "small", ((3, 5), (5, 4)), 5, lambda a, b: a.mm(b), matmul),
    Product("bmm", "batches", ((3, 4, 5), (3, 5, 2)), 5, lambda a, b: a.bmm(b), np.matmul),
    Product("mv", "small", ((7, 5), (5,)), 5, lambda a, b: a.mv(b), np.matmul),
    Product("inner", "matrices", ((3, 5), (4, 5)), 5, lambda a, b: a.inner(b),
            lambda a, b: a @ b.T),
    Product("vdot", "vectors", ((19,), (19,)), 19, lambda a, b: a.vdot(b), np.dot),
    Product("tensordot", "two-axes", ((3, 4, 5), (4, 5, 2)), 20, lambda a, b: a.tensordot(b, 2),
            lambda a, b: a.reshape(3, 20) @ b.reshape(20, 2)),
    Product("addmm", "small", ((3, 4), (3, 5), (5, 4)), 6, lambda c, a, b: c.addmm(a, b),
            lambda c, a, b: c + a @ b, (*INTEGERS, *FLOATS)),
    Product("baddbmm", "batches", ((3, 4, 2), (3, 4, 5), (3, 5, 2)), 6,
            lambda c, a, b: c.baddbmm(a, b), lambda c, a, b: c + a @ b, (*INTEGERS, *FLOATS)),
    Product("addcmul", "rows", ((4, 9), (4, 9), (9,)), 2, lambda c, a, b: c.addcmul(a, b),
            lambda c, a, b: c + a * b, (*INTEGERS, *FLOATS)),
    Product("conv2d", "padding", ((2, 3, 9, 11), (4, 3, 3, 3)), 27,
            lambda x, w: x.conv2d(w, padding=1), partial(conv2d, padding=1)),
    Product("conv2d", "stride", ((1, 5, 13, 12), (7, 5, 3, 2)), 30,
            lambda x, w: x.conv2d(w, stride=2), partial(conv2d, stride=2)),
    Product("conv2d", "dilation", ((2, 2, 12, 13), (3, 2, 3, 3)), 18,
            lambda x, w: x.conv2d(w, dilation=2), partial(conv2d, dilation=2)),
    Product("conv2d", "groups", ((2, 4, 8, 9), (6, 2, 3, 3)), 18,
            lambda x, w: x.conv2d(w, groups=2), grouped),
    Product("conv2d", "pointwise", ((2, 33, 5, 7), (9, 33, 1, 1)), 33,
            lambda x, w: x.conv2d(w), conv2d),
    Product("conv2d", "whole", ((2, 3, 5, 5), (4, 3, 5, 5)), 75, lambda x, w: x.conv2d(w), conv2d),
    Product("conv1d", "padding", ((2, 3, 37), (5, 3, 4)), 12, lambda x, w: x.conv2d(w, padding=2),
            lambda x, w: conv2d(zero_padded(x, ((0, 0), (0, 0), (2, 2)))[:, :, None],
                                w[:, :, None])[:, :, 0]),
    Product("conv_transpose2d", "stride", ((2, 3, 5, 6), (3, 4, 3, 3)), 12,
            lambda x, w: x.conv_transpose2d(w, stride=2), transposed),
    Product("avg_pool2d", "stride", ((2, 3, 9, 11),), 9,
            lambda x: x.avg_pool2d((3, 3), stride=2), lambda x: pooled(x, 3, 2).mean((4, 5)),
            FLOATS),
    Product("max_pool2d", "stride", ((2, 3, 9, 11),), 0,
            lambda x: x.max_pool2d((3, 3), stride=2), lambda x: pooled(x, 3, 2).max((4, 5))),
]  # fmt: skip


def run(case: Product, dtype: DType) -> None:
    """Compute the product, and compare."""
    arrays = [sample(shape, dtype, (case.name, at)) for at, shape in enumerate(case.shapes)]
    leaves = [tensor(array, dtype) for array in arrays]
    values = [exact(array, dtype) for array in arrays]
    if dtype is dtypes.bool:
        values = [value.astype(object) * 1 for value in values]
    if case.turn is not None:
        leaves[0], values[0] = case.turn(leaves[0]), case.turn(values[0])
    found = case.ours(*leaves)
    assert found.dtype is dtype, f"{found.dtype}, expected {dtype}"
    with np.errstate(over="ignore"):
        expected = np.asarray(case.theirs(*values))
    if not dtype.is_float:
        check(found.numpy(), expected, dtype)
        return
    magnitude = case.theirs(*[np.abs(value) for value in values])
    # A product is rounded to its own dtype, a sum to float32 at least, the result once more.
    wide = roundoff(dtype if dtype is dtypes.float64 else dtypes.float32)
    error = (case.terms * wide + (roundoff(dtype) if case.terms else 0)) * magnitude
    error = error + case.terms * spacing(0.0, dtype)
    check(found.numpy(), expected, dtype, ulp=0.51 if dtype.itemsize < 4 else 0.0, error=error,
          magnitude=magnitude)  # fmt: skip


def product_cases() -> Iterator[Case]:
    for number, case in enumerate(PRODUCTS):
        small = all(np.prod(shape) <= 20 for shape in case.shapes)
        for place, dtype in enumerate(case.dtypes):
            often = case.pattern == "tail" or place == number % len(case.dtypes)
            often |= dtype is dtypes.float32
            check_it = partial(run, case, dtype)
            yield Case(
                "products", case.name, case.pattern, dtype, check_it, often=often, small=small
            )
