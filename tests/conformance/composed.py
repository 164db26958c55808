"""Ops that are composed of others: sorting and counting, losses and normalization, linear algebra,
Fourier transforms, resampling.

What sorts, picks or counts is exact. The others are as far off as their method leads: `steps`
roundings of the largest element, which says more of an algorithm than units of each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.case import Case
from tests.conformance.values import (
    EVERY,
    FLOATS,
    INTEGERS,
    check,
    exact,
    extremes,
    quantize,
    roundoff,
    sample,
    tensor,
)
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["COMPOSED", "Composed", "composed_cases", "values_of"]

Shape = tuple[int, ...]
NUMBERS = (*INTEGERS, *FLOATS)
WIDE = (dtypes.float32, dtypes.float64)


@dataclass(frozen=True)
class Composed:
    """An op on arguments of the given shapes.

    Attributes:
        group, name, pattern, shapes, dtypes: as in a case; without shapes the special values.
        ours, theirs: on tensors, and on exact values.
        steps: how many roundings of the largest element a result may be off; 0 if it is exact.
        result: the dtype of the result, if not that of the arguments.
        low, high: what random floats lie between.
        slopes: whether its gradient is compared with differences.
    """

    group: str
    name: str
    pattern: str
    shapes: tuple[Shape, ...]
    ours: Callable[..., Tensor]
    theirs: Callable[..., Any]
    dtypes: tuple[DType, ...] = EVERY
    steps: float = 0.0
    result: DType | None = None
    low: float = -2.0
    high: float = 2.0
    slopes: bool = True


CLASSES = np.array([2, 0, 1, 2, 1])
WINDOW = np.hanning(8)
PLACES = np.random.default_rng(4).permuted(np.tile(np.arange(6), (7, 1)).T, axis=0)
GRID = np.random.default_rng(5).uniform(-1.1, 1.1, (2, 4, 5, 2))
EDGES = np.array([-1.5, -0.5, 0.0, 0.75, 1.5])


def order(x: Any, axis: int, *, down: bool = False) -> Any:
    """Places in stable order, NaN last or, downwards, first."""
    ranked = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-ranked if down else ranked, axis=axis, kind="stable")


def ordered(x: Any, axis: int, *, down: bool = False) -> Any:
    return np.take_along_axis(x, order(x, axis, down=down), axis)


def highest(x: Any, count: int) -> Any:
    return ordered(x, -1, down=True)[..., :count]


def put(x: Any, y: Any) -> Any:
    result = x.copy()
    np.put_along_axis(result, PLACES, y, 0)
    return result


def put_largest(x: Any, y: Any) -> Any:
    result = x.copy()
    for row, column in np.ndindex(y.shape):
        place = ROWS[row, column], column
        result[place] = max(result[place], y[row, column])
    return result


ROWS = np.random.default_rng(6).integers(0, 6, (9, 7))


def sorting() -> Iterator[Composed]:
    def op(name: str, pattern: str, shapes: Any, ours: Any, theirs: Any, **rest: Any) -> Composed:
        return Composed("sorting and counting", name, pattern, shapes, ours, theirs, **rest)

    places: dict[str, Any] = {"result": dtypes.int32}
    for pattern, shape in (("rows", (5, 40)), ("long", (700,)), ("one", (3, 1)), ("special", ())):
        shapes = (shape,) if shape else ()
        yield op("sort", pattern, shapes, lambda x: x.sort()[0], partial(ordered, axis=-1))
        yield op("argsort", pattern, shapes, lambda x: x.argsort(), partial(order, axis=-1),
                 **places)  # fmt: skip
    yield op("sort", "columns-down", ((23, 6),), lambda x: x.sort(0, descending=True)[0],
             partial(ordered, axis=0, down=True))  # fmt: skip
    yield op("topk", "rows", ((5, 40),), lambda x: x.topk(7)[0], partial(highest, count=7))
    yield op("topk", "few", ((300,),), lambda x: x.topk(3)[0], partial(highest, count=3))
    yield op("unique", "repeated", ((60,),), lambda x: (x.int() % 7).unique(),
             lambda x: np.unique(np.trunc(x).astype(object) % 7), **places,
             dtypes=(dtypes.int8, dtypes.int16, dtypes.int32, *FLOATS), slopes=False)  # fmt: skip
    yield op("nonzero", "half", ((9, 8),), lambda x: (x > 0).nonzero(),
             lambda x: np.argwhere(x > 0), **places)  # fmt: skip
    yield op("searchsorted", "left", ((11,), (30,)), lambda x, y: x.sort()[0].searchsorted(y),
             lambda x, y: np.searchsorted(np.sort(x), y), **places, dtypes=NUMBERS)  # fmt: skip
    yield op("searchsorted", "right", ((11,), (30,)),
             lambda x, y: x.sort()[0].searchsorted(y, right=True),
             lambda x, y: np.searchsorted(np.sort(x), y, side="right"), **places,
             dtypes=NUMBERS)  # fmt: skip
    yield op("bucketize", "edges", ((4, 9),), lambda x: x.bucketize(Tensor(EDGES)),
             lambda x: np.searchsorted(EDGES, x), **places, dtypes=WIDE)  # fmt: skip
    yield op("bincount", "few", ((80,),), lambda x: (x & 15).bincount(minlength=20),
             lambda x: np.bincount((x & 15).astype(np.int64), minlength=20), dtypes=INTEGERS,
             **places)  # fmt: skip
    yield op("histogram", "edges", ((80,),), lambda x: x.histogram(Tensor(EDGES))[0],
             lambda x: np.histogram(x, EDGES)[0], dtypes=WIDE, **places)  # fmt: skip
    yield op("one_hot", "classes", ((20,),), lambda x: (x & 7).one_hot(8),
             lambda x: np.eye(8)[(x & 7).astype(np.int64)], dtypes=INTEGERS, **places)  # fmt: skip
    yield op("scatter", "rows", ((6, 7), (6, 7)), lambda x, y: x.scatter(0, Tensor(PLACES), y), put)
    yield op("scatter_reduce", "amax", ((6, 7), (9, 7)),
             lambda x, y: x.scatter_reduce(0, Tensor(ROWS), y, "amax"), put_largest)  # fmt: skip
    yield op("embedding", "table", ((6, 9),), lambda x: x.embedding(Tensor(ROWS % 6)),
             lambda x: x[ROWS % 6])  # fmt: skip
    yield op("max_unpool2d", "windows", ((1, 2, 6, 8),), unpooled, theirs_unpooled, dtypes=NUMBERS)
    yield op("kron", "matrices", ((3, 4), (2, 5)), lambda x, y: x.kron(y), np.kron, dtypes=NUMBERS)
    yield op("cross", "rows", ((7, 3), (7, 3)), lambda x, y: x.cross(y), cross, dtypes=NUMBERS,
             steps=4)  # fmt: skip
    for result, kinds in ((dtypes.int64, (dtypes.int32, dtypes.int64)), (None, WIDE)):
        yield op("trace", "square", ((9, 9),), lambda x: x.trace(), np.trace, steps=9,
                 result=result, dtypes=kinds)  # fmt: skip


def counting() -> Iterator[Composed]:
    """Folds that count, rank and compare."""

    def op(name: str, pattern: str, ours: Any, theirs: Any, steps: float = 0, **rest: Any) -> Any:
        rest.setdefault("dtypes", WIDE)
        return Composed(
            "folds that rank", name, pattern, ((7, 15),), ours, theirs, steps=steps, **rest
        )

    counted: dict[str, Any] = {"result": dtypes.int64, "dtypes": EVERY}
    for axis, pattern in ((1, "rows"), (0, "columns")):
        along: dict[str, Any] = {"axis": axis}
        yield op("count_nonzero", pattern, lambda x, a=axis: (x > 0).count_nonzero(a),
                 lambda x, o=along: np.count_nonzero(x > 0, **o), **counted)  # fmt: skip
        yield op("amax", pattern, lambda x, a=axis: x.amax(a), lambda x, o=along: x.max(**o),
                 dtypes=EVERY)  # fmt: skip
        yield op("amin", pattern, lambda x, a=axis: x.amin(a), lambda x, o=along: x.min(**o),
                 dtypes=EVERY)  # fmt: skip
        yield op(
            "nansum", pattern, lambda x, a=axis: x.nansum(a), lambda x, o=along: x.sum(**o), 40
        )
        yield op("nanmean", pattern, lambda x, a=axis: x.nanmean(a), lambda x, o=along: x.mean(**o),
                 40)  # fmt: skip
        yield op("median", pattern, lambda x, a=axis: x.median(a)[0],
                 lambda x, o=along: np.median(x, **o))  # fmt: skip
        yield op("quantile", pattern, lambda x, a=axis: x.quantile(0.3, a),
                 lambda x, o=along: np.quantile(x, 0.3, **o), 8)  # fmt: skip
        yield op("kthvalue", pattern, lambda x, a=axis: x.kthvalue(3, a)[0],
                 lambda x, o=along: np.sort(x, **o).take(2, **o), dtypes=NUMBERS)  # fmt: skip
        yield op("diff", pattern, lambda x, a=axis: x.diff(dim=a),
                 lambda x, o=along: np.diff(x, **o), dtypes=NUMBERS)  # fmt: skip
    yield op("cov", "rows", lambda x: x.cov(), np.cov, 60)
    yield op("corrcoef", "rows", lambda x: x.corrcoef(), np.corrcoef, 60)
    yield op("msort", "columns", lambda x: x.msort(), lambda x: np.sort(x, 0), dtypes=NUMBERS)


def cross(x: Any, y: Any) -> Any:
    a, b = x.T, y.T
    return np.stack([a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)], 1)


def unpooled(x: Tensor) -> Tensor:
    values, places = x.max_pool2d(2, return_indices=True)
    return values.max_unpool2d(places, 2)


def theirs_unpooled(x: Any) -> Any:
    windows = x.reshape(1, 2, 3, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(1, 2, 3, 4, 4)
    first = np.arange(4) == order(windows, -1, down=True)[..., :1]
    kept = np.where(first, windows, windows * 0)
    return kept.reshape(1, 2, 3, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(x.shape)


def shares(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def crossed(x: Any) -> Any:
    return -np.log(shares(x, 1))[np.arange(5), CLASSES]


def uneven_means(x: np.ndarray) -> np.ndarray:
    """3 by 4 windows of (..., 5, 9): each from the floor to the ceiling of its share."""
    rows, columns = ((0, 2), (1, 4), (3, 5)), ((0, 3), (2, 5), (4, 7), (6, 9))
    return np.array([[x[..., a:b, c:d].mean((-2, -1)) for c, d in columns] for a, b in rows]) \
        .transpose(2, 3, 0, 1)  # fmt: skip


def attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -1e30)
    return shares(scores, -1) @ v


def normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def learning() -> Iterator[Composed]:
    def op(
        name: str, pattern: str, shapes: Any, ours: Any, theirs: Any, steps: float, **rest: Any
    ) -> Composed:
        rest.setdefault("dtypes", FLOATS)
        return Composed("learning", name, pattern, shapes, ours, theirs, steps=steps, **rest)

    pair = ((5, 9), (5, 9))
    yield op("mse_loss", "mean", pair, lambda x, y: x.mse_loss(y),
             lambda x, y: ((x - y) ** 2).mean(), 50)  # fmt: skip
    yield op("mse_loss", "none", pair, lambda x, y: x.mse_loss(y, "none"),
             lambda x, y: (x - y) ** 2, 8)  # fmt: skip
    yield op("l1_loss", "sum", pair, lambda x, y: x.l1_loss(y, "sum"),
             lambda x, y: np.abs(x - y).sum(), 50)  # fmt: skip
    yield op("binary_crossentropy", "mean", pair, lambda x, y: x.binary_crossentropy(y),
             lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)).mean(), 80, low=0.05,
             high=0.95)  # fmt: skip
    yield op("binary_crossentropy_logits", "mean", pair,
             lambda x, y: x.binary_crossentropy_logits(y.sigmoid()),
             lambda x, y: (np.logaddexp(0, x) - x / (1 + np.exp(-y))).mean(), 80)  # fmt: skip
    yield op("cross_entropy", "classes", ((5, 3),), lambda x: x.cross_entropy(Tensor(CLASSES)),
             lambda x: crossed(x).mean(), 40)  # fmt: skip
    yield op(
        "cross_entropy",
        "smoothed",
        ((5, 3),),
        lambda x: x.cross_entropy(Tensor(CLASSES), label_smoothing=0.3),
        lambda x: (0.7 * crossed(x) - 0.3 * np.log(shares(x, 1)).mean(1)).mean(),
        40,
    )
    yield op(
        "cross_entropy",
        "shares",
        ((5, 3), (5, 3)),
        lambda x, y: x.cross_entropy(y.softmax(1)),
        lambda x, y: -(shares(y, 1) * np.log(shares(x, 1))).sum(1).mean(),
        60,
    )
    yield op("sparse_categorical_crossentropy", "classes", ((5, 3),),
             lambda x: x.sparse_categorical_crossentropy(Tensor(CLASSES)),
             lambda x: crossed(x).mean(), 40)  # fmt: skip
    yield op("nll_loss", "weighted", ((5, 3),),
             lambda x: x.nll_loss(Tensor(CLASSES), Tensor([1.0, 2.0, 0.5], dtype=x.dtype)),
             lambda x: -(np.array([1, 2, 0.5])[CLASSES] * x[np.arange(5), CLASSES]).sum()
             / np.array([1, 2, 0.5])[CLASSES].sum(), 30)  # fmt: skip
    yield op("layernorm", "last", ((5, 19),), lambda x: x.layernorm(), normed, 40)
    yield op("batchnorm", "channels", ((4, 3, 5), (3,), (3,), (3,)),
             lambda x, w, b, m: x.batchnorm(w, b, m, Tensor([1.0, 0.5, 2.0], dtype=x.dtype)),
             lambda x, w, b, m: (x - m[:, None]) * w[:, None] * np.array([[1], [0.5], [2]])
             + b[:, None], 8)  # fmt: skip
    yield op("normalize", "rows", ((5, 19),), lambda x: x.normalize(),
             lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), 30)  # fmt: skip
    for name in ("var_mean", "std_mean"):
        for place in (0, 1):
            part = getattr(np, name[:3]) if place == 0 else np.mean
            more = {"ddof": 1} if place == 0 else {}
            yield op(name, ("spread", "mean")[place], ((5, 33),),
                     lambda x, name=name, place=place: getattr(x, name)(1)[place],
                     lambda x, part=part, more=more: part(x, axis=1, **more), 60)  # fmt: skip
    heads = ((2, 2, 6, 5),) * 3
    yield op("scaled_dot_product_attention", "plain", heads,
             lambda q, k, v: q.scaled_dot_product_attention(k, v), attention, 80)  # fmt: skip
    yield op("scaled_dot_product_attention", "causal", heads,
             lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
             partial(attention, causal=True), 80)  # fmt: skip
    yield op("adaptive_avg_pool2d", "even", ((2, 3, 6, 9),),
             lambda x: x.adaptive_avg_pool2d((2, 3)),
             lambda x: x.reshape(2, 3, 2, 3, 3, 3).mean((3, 5)), 12)  # fmt: skip
    yield op("adaptive_avg_pool2d", "uneven", ((2, 3, 5, 9),),
             lambda x: x.adaptive_avg_pool2d((3, 4)), uneven_means, 12)  # fmt: skip
    yield op("interpolate", "nearest", ((1, 2, 4, 5),), lambda x: x.interpolate((8, 15), "nearest"),
             lambda x: x.repeat(2, 2).repeat(3, 3), 0)  # fmt: skip
    yield op("interpolate", "corners", ((1, 2, 4),),
             lambda x: x.interpolate((9,), "linear", align_corners=True), stretched, 8)  # fmt: skip
    yield op("grid_sample", "zeros", ((2, 3, 5, 6),),
             lambda x: x.grid_sample(Tensor(GRID.astype(np.float32)).cast(x.dtype)), sampled, 200,
             dtypes=WIDE)  # fmt: skip


def stretched(x: Any) -> Any:
    at = np.arange(9) * 3 / 8
    low = np.minimum(at.astype(int), 2)
    return x[..., low] + (x[..., low + 1] - x[..., low]) * (at - low)


def sampled(x: Any) -> Any:
    """Bilinear, borders in the middle between elements, zeros outside."""
    n, channels, height, width = x.shape
    grid = GRID.astype(np.float32).astype(np.float64)
    across, down = ((grid[..., i] + 1) * size / 2 - 0.5 for i, size in ((0, width), (1, height)))
    result = np.zeros((n, channels, *grid.shape[1:3]))
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = np.floor(down) + dy, np.floor(across) + dx
            weight = (1 - np.abs(down - i)) * (1 - np.abs(across - j))
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            i, j = (np.where(inside, place, 0).astype(int) for place in (i, j))
            picked = np.stack([x[b, :, i[b], j[b]].transpose(2, 0, 1) for b in range(n)])
            result += picked * np.where(inside, weight, 0)[:, None]
    return result


def definite(x: Any) -> Any:
    """A symmetric matrix with eigenvalues from 1."""
    one = Tensor.eye(x.shape[-1], dtype=x.dtype) if isinstance(x, Tensor) else np.eye(x.shape[-1])
    turned = x.transpose(-2, -1) if isinstance(x, Tensor) else x.swapaxes(-2, -1)
    return x @ turned + one


def algebra() -> Iterator[Composed]:
    def op(
        name: str,
        pattern: str,
        shapes: Any,
        ours: Any,
        theirs: Any,
        steps: float = 300,
        **rest: Any,
    ) -> Composed:
        rest.setdefault("dtypes", WIDE)
        return Composed("linear algebra", name, pattern, shapes, ours, theirs, steps=steps, **rest)

    for pattern, shape in (("small", (4, 4)), ("batch", (2, 3, 5, 5)), ("one", (1, 1))):
        one = (shape,)
        system = (shape, (*shape[:-1], 2))
        yield op("solve", pattern, system, lambda a, b: definite(a).solve(b),
                 lambda a, b: np.linalg.solve(definite(a), b))  # fmt: skip
        yield op("solve_triangular", pattern, system,
                 lambda a, b: definite(a).tril().solve_triangular(b, upper=False),
                 lambda a, b: np.linalg.solve(np.tril(definite(a)), b))  # fmt: skip
        yield op("inv", pattern, one, lambda a: definite(a).inv(),
                 lambda a: np.linalg.inv(definite(a)))  # fmt: skip
        yield op("det", pattern, one, lambda a: definite(a).det(),
                 lambda a: np.linalg.det(definite(a)))  # fmt: skip
        yield op("slogdet", pattern, one, lambda a: definite(a).slogdet()[1],
                 lambda a: np.linalg.slogdet(definite(a))[1])  # fmt: skip
        yield op("cholesky", pattern, one, lambda a: definite(a).cholesky(),
                 lambda a: np.linalg.cholesky(definite(a)))  # fmt: skip
        yield op("eigvalsh", pattern, one, lambda a: definite(a).eigvalsh(),
                 lambda a: np.linalg.eigvalsh(definite(a)))  # fmt: skip
        yield op("svdvals", pattern, one, lambda a: a.svdvals(),
                 lambda a: np.linalg.svd(a, compute_uv=False))  # fmt: skip
        yield op("pinv", pattern, one, lambda a: definite(a).pinv(),
                 lambda a: np.linalg.pinv(definite(a)))  # fmt: skip
        yield op("matrix_power", pattern, one, lambda a: a.matrix_power(3),
                 lambda a: np.linalg.matrix_power(a, 3))  # fmt: skip
        yield op("lu", pattern, one, multiplied_lu, lambda a: a)
        yield op("eigh", pattern, one, multiplied_eigh, definite)
    for pattern, shape in (("wide", (3, 6)), ("tall", (7, 4))):
        one = (shape,)
        yield op("qr", pattern, one, multiplied_qr, lambda a: a)
        yield op("svd", pattern, one, multiplied_svd, lambda a: a)
        yield op("matrix_rank", pattern, one, lambda a: a.matrix_rank(), np.linalg.matrix_rank,
                 0, result=dtypes.int32)  # fmt: skip
        yield op("matrix_norm", pattern, one, lambda a: a.matrix_norm(), np.linalg.norm)
        yield op("pinv", pattern, one, lambda a: a.pinv(), np.linalg.pinv, 2000)
    yield op("lstsq", "tall", ((7, 4), (7, 2)), lambda a, b: a.lstsq(b)[0],
             lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], 2000)  # fmt: skip


def multiplied_lu(a: Tensor) -> Tensor:
    p, low, up = a.lu()
    return p @ low @ up


def multiplied_qr(a: Tensor) -> Tensor:
    q, r = a.qr("reduced")
    return q @ r


def multiplied_svd(a: Tensor) -> Tensor:
    u, s, v = a.svd(full_matrices=False)
    return u * s.unsqueeze(-2) @ v


def multiplied_eigh(a: Tensor) -> Tensor:
    values, vectors = definite(a).eigh()
    return vectors * values.unsqueeze(-2) @ vectors.transpose(-2, -1)


def parts(z: Any) -> Any:
    return np.stack([z.real, z.imag], -1)


def joined(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


def transforms() -> Iterator[Composed]:
    def op(name: str, pattern: str, shapes: Any, ours: Any, theirs: Any) -> Composed:
        return Composed("transforms", name, pattern, shapes, ours, theirs, WIDE, 40)

    for size in (8, 15, 31, 1):
        pattern, pairs = f"of-{size}", ((3, size, 2),)
        yield op("fft", pattern, pairs, lambda x: x.fft(), lambda x: parts(np.fft.fft(joined(x))))
        yield op("ifft", pattern, pairs, lambda x: x.ifft(),
                 lambda x: parts(np.fft.ifft(joined(x))))  # fmt: skip
        yield op("rfft", pattern, ((3, size),), lambda x: x.rfft(),
                 lambda x: parts(np.fft.rfft(x)))  # fmt: skip
        if size > 1:
            yield op("irfft", pattern, ((3, size // 2 + 1, 2),),
                     lambda x, size=size: x.irfft(n=size),
                     lambda x, size=size: np.fft.irfft(joined(x), n=size))  # fmt: skip
    yield op("fft2", "uneven", ((6, 7, 2),), lambda x: x.fft2(),
             lambda x: parts(np.fft.fft2(joined(x))))  # fmt: skip
    yield op("ifft2", "uneven", ((6, 7, 2),), lambda x: x.ifft2(),
             lambda x: parts(np.fft.ifft2(joined(x))))  # fmt: skip
    yield op("stft", "window", ((2, 24),),
             lambda x: x.stft(8, 4, window=Tensor(WINDOW).cast(x.dtype), center=False),
             spectra)  # fmt: skip


def spectra(x: Any) -> Any:
    frames = np.stack([x[:, at : at + 8] * WINDOW for at in range(0, 17, 4)], 1)
    return parts(np.fft.rfft(frames).swapaxes(1, 2))


COMPOSED = [*sorting(), *counting(), *learning(), *algebra(), *transforms()]


def values_of(op: Composed, dtype: DType) -> list[np.ndarray]:
    if not op.shapes:
        special = np.array(extremes(dtype), np.float64 if dtype.is_float else object)
        return [quantize(np.tile(special, 2), dtype)]
    return [np.asarray(sample(shape, dtype, (op.name, place), op.low, op.high))
            for place, shape in enumerate(op.shapes)]  # fmt: skip


def run(op: Composed, dtype: DType) -> None:
    """Compute the op, and compare."""
    arrays = values_of(op, dtype)
    found = op.ours(*[tensor(array, dtype) for array in arrays])
    result = op.result or dtype
    assert found.dtype is result, f"{found.dtype}, expected {result}"
    with np.errstate(all="ignore"):
        expected = np.asarray(op.theirs(*[exact(array, dtype) for array in arrays]))
    if not result.is_float or not op.steps:
        check(found.numpy(), expected, result)
        return
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    # Half types may round between the steps.
    error = (op.steps * roundoff(wide) + (4 * roundoff(dtype) if wide is not dtype else 0)) * size
    check(found.numpy(), expected, result, error=error)


def composed_cases(ops: Sequence[Composed]) -> Iterator[Case]:
    for number, op in enumerate(ops):
        for place, dtype in enumerate(op.dtypes):
            often = place == number % len(op.dtypes) and op.group != "linear algebra"
            loose = bool(op.steps) and (op.result or dtype).is_float
            check_it = partial(run, op, dtype)
            yield Case(op.group, op.name, op.pattern, dtype, check_it, often, is_loose=loose)
