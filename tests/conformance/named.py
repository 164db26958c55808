"""More ops under PyTorch's names: parts of numbers, places named by tensors, arrangements, systems
by factors, transforms along several axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.conformance.composed import NUMBERS, WIDE, Composed, definite, joined, parts
from tests.conformance.values import EVERY, INTEGERS
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes

__all__ = ["NAMED"]

EXPONENTS = np.arange(-12, 13).reshape(5, 5)
AT = np.array([0, 3, 0, 2])
MASK = np.random.default_rng(8).random((5, 7)) < 0.4
PARTED = (dtypes.float16, dtypes.float32, dtypes.float64)


def numbers() -> Iterator[Composed]:
    def op(name: str, shapes: Any, ours: Any, theirs: Any, steps: float = 0, **rest: Any) -> Any:
        pattern = rest.pop("pattern", "numbers")
        return Composed(
            "parts of numbers", name, pattern, shapes, ours, theirs, steps=steps, **rest
        )

    pair = ((37,), (37,))
    yield op("gcd", pair, lambda x, y: x.gcd(y), np.gcd, dtypes=INTEGERS)
    yield op("lcm", pair, lambda x, y: (x & 7).lcm((y & 7) + 1),
             lambda x, y: np.lcm(x & 7, (y & 7) + 1),
             dtypes=INTEGERS)  # fmt: skip
    yield op("frexp", ((5, 9),), lambda x: x.frexp().mantissa, lambda x: np.frexp(x)[0],
             dtypes=PARTED)  # fmt: skip
    yield op("frexp", (), lambda x: x.frexp().mantissa, lambda x: np.frexp(x)[0],
             dtypes=PARTED, pattern="special")  # fmt: skip
    yield op("frexp", (), lambda x: x.frexp().exponent, special_exponent, dtypes=PARTED,
             pattern="exponents", result=dtypes.int32)  # fmt: skip
    yield op("ldexp", ((5, 5),), lambda x: x.ldexp(Tensor(EXPONENTS)),
             lambda x: np.ldexp(x, EXPONENTS), 1, dtypes=PARTED)  # fmt: skip
    yield op("float_power", ((9,),), lambda x: x.float_power(3), lambda x: x**3, 20,
             dtypes=(dtypes.float32, dtypes.float64), result=dtypes.float64)  # fmt: skip
    yield op("sgn", ((9,),), lambda x: x.sgn(), np.sign, dtypes=NUMBERS, slopes=False)
    yield op("round", ((9, 9),), lambda x: x.round(decimals=2), lambda x: np.round(x, 2), 4,
             dtypes=WIDE, slopes=False, pattern="decimals")  # fmt: skip


def special_exponent(x: Any) -> Any:
    return np.where(np.isfinite(x), np.frexp(np.where(np.isfinite(x), x, 0))[1], 0)


def functions() -> Iterator[Composed]:
    """Within some roundings of the largest of a row of values; float32 is computed in float64."""

    def op(name: str, low: float, high: float, steps: float, ours: Any = None, theirs: Any = None,
           **rest: Any) -> Any:  # fmt: skip
        return Composed("special functions", name, "row", rest.pop("shapes", ((37,),)),
                        ours or (lambda *x: getattr(x[0], name)(*x[1:])),
                        theirs or special(name), WIDE, steps, low=low, high=high)  # fmt: skip

    for name in ("i0e", "i1e"):
        yield op(name, -90, 90, 60)
    for name, low, high in (("i0", -9, 9), ("i1", -9, 9), ("ndtr", -6, 6), ("log_ndtr", -30, 6)):
        yield op(name, low, high, 300)
    yield op("erfcx", -2, 40, 60)
    yield op("entr", 0.1, 4, 8)
    pair = ((37,), (37,))
    yield op("xlog1py", -0.9, 4, 8, shapes=pair)
    yield op("zeta", 1.5, 9, 100, shapes=pair)
    yield op("igamma", 0.1, 40, 60, theirs=special("gammainc"), shapes=pair)
    yield op("igammac", 0.1, 40, 60, theirs=special("gammaincc"), shapes=pair)
    yield op("polygamma", 0.5, 9, 100, lambda x: x.polygamma(2),
             lambda x: special("polygamma")(2, x))  # fmt: skip
    yield op("mvlgamma", 1.5, 9, 60, lambda x: x.mvlgamma(3),
             lambda x: np.vectorize(lambda v: special("multigammaln")(v, 3))(x))  # fmt: skip


def special(name: str) -> Any:
    """A function of SciPy, which comes with scikit-learn, and is loaded when it is needed."""

    def call(*x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*x)

    return call


def added(x: Any, y: Any) -> Any:
    result = x.copy()
    np.add.at(result, (AT, AT[::-1]), y)
    return result


def written(x: Any, y: Any) -> Any:
    result = x.copy()
    result[AT[1:], AT[:0:-1]] = y[1:]
    return result


def picks() -> Iterator[Composed]:
    def op(
        name: str, shapes: Any, ours: Any, theirs: Any, pattern: str = "rows", **rest: Any
    ) -> Any:
        return Composed("places", name, pattern, shapes, ours, theirs, **rest)

    summed = (*NUMBERS[:4], *WIDE)
    yield op("index_put", ((5, 7), (3,)),
             lambda x, y: x.index_put((Tensor(AT[1:]), Tensor(AT[:0:-1].copy())), y),
             lambda x, y: written(x, np.concatenate([y[:1], y])))  # fmt: skip
    yield op("index_put", ((5, 7), (4,)),
             lambda x, y: x.index_put((Tensor(AT), Tensor(AT[::-1].copy())), y, accumulate=True),
             added, "added", steps=4, dtypes=summed)  # fmt: skip
    yield op("index_reduce", ((5, 7), (4, 7)),
             lambda x, y: x.index_reduce(0, Tensor(AT), y, "amax"), largest,
             dtypes=NUMBERS)  # fmt: skip
    yield op("masked_scatter", ((5, 7), (40,)), lambda x, y: x.masked_scatter(Tensor(MASK), y),
             in_mask)  # fmt: skip
    for offset in (-2, 0, 3):
        name = f"offset-{offset}"
        length = np.zeros((5, 7)).diagonal(offset).size
        yield op("diagonal_scatter", ((5, 7), (length,)),
                 lambda x, y, o=offset: x.diagonal_scatter(y, o),
                 lambda x, y, o=offset: on_diagonal(x, y, o), name)  # fmt: skip
        yield op("diag_embed", ((2, 3),), lambda x, o=offset: x.diag_embed(o),
                 lambda x, o=offset: np.stack([np.diag(row, o) for row in x]), name)  # fmt: skip
        yield op("diagflat", ((2, 3),), lambda x, o=offset: x.diagflat(o),
                 lambda x, o=offset: np.diagflat(x, o), name)  # fmt: skip
    yield op("as_strided", ((4, 6),), lambda x: x.as_strided((5, 3, 2), (2, 3, 1), 4),
             lambda x: x.ravel()[4 + np.add.outer(np.add.outer(2 * np.arange(5), 3 * np.arange(3)),
                                                  np.arange(2))], "windows")  # fmt: skip
    yield op("unique_consecutive", ((60,),), lambda x: (x.int() & 1).unique_consecutive(),
             lambda x: runs(np.trunc(x).astype(np.int64) & 1), "runs", slopes=False,
             dtypes=(dtypes.int32, dtypes.float32), result=dtypes.int32)  # fmt: skip
    yield op("mode", ((6, 30),), lambda x: (x & 3).mode().values,
             lambda x: np.apply_along_axis(lambda row: np.bincount(row).argmax(), 1,
                                           (x & 3).astype(np.int64)), dtypes=INTEGERS)  # fmt: skip
    for shares in (0.3, 1.0):
        yield op("nanquantile", ((6, 9),), lambda x, q=shares: x.nanquantile(q, 1),
                 lambda x, q=shares: np.quantile(x, q, axis=1), f"{shares}", dtypes=WIDE,
                 steps=8)  # fmt: skip
    yield op("nanmedian", ((6, 9),), lambda x: x.nanmedian(0).values,
             lambda x: np.sort(x, 0)[2], "columns", dtypes=NUMBERS)  # fmt: skip


def largest(x: Any, y: Any) -> Any:
    result = x.copy()
    np.maximum.at(result, AT, y)
    return result


def in_mask(x: Any, y: Any) -> Any:
    result = x.copy()
    result[MASK] = y[: MASK.sum()]
    return result


def on_diagonal(x: Any, y: Any, offset: int) -> Any:
    result = x.copy()
    rows = np.arange(y.size) + max(-offset, 0)
    result[rows, rows + offset] = y
    return result


def runs(x: Any) -> Any:
    return x[np.concatenate([[True], x[1:] != x[:-1]])]


def arrangements() -> Iterator[Composed]:
    def op(name: str, shapes: Any, ours: Any, theirs: Any, pattern: str = "plain",
           **rest: Any) -> Any:  # fmt: skip
        return Composed("arrangements", name, pattern, shapes, ours, theirs, **rest)

    yield op("column_stack", ((4,), (4, 2)), lambda x, y: Tensor.column_stack([x, y]),
             lambda x, y: np.column_stack([x, y]))  # fmt: skip
    yield op("dstack", ((4,), (4,)), lambda x, y: Tensor.dstack([x, y]),
             lambda x, y: np.dstack([x, y]))  # fmt: skip
    yield op("atleast_3d", ((4, 3),), lambda x: Tensor.atleast_3d(x), np.atleast_3d)
    for count in (2, 3):
        yield op("combinations", ((6,),), lambda x, r=count: x.combinations(r),
                 lambda x, r=count: np.array(list(itertools.combinations(x, r))),
                 f"of-{count}")  # fmt: skip
    for result, kinds in ((dtypes.int64, (dtypes.int32,)), (None, WIDE)):
        yield op("vander", ((6,),), lambda x: x.vander(4), lambda x: np.vander(x, 4), steps=20,
                 result=result, dtypes=kinds)  # fmt: skip
    yield op("cumulative_trapezoid", ((5, 9),), lambda x: x.cumulative_trapezoid(dx=0.5),
             lambda x: np.cumsum((x[:, 1:] + x[:, :-1]) / 4, 1), steps=20, dtypes=WIDE)  # fmt: skip
    yield op("pdist", ((6, 4),), lambda x: x.pdist(),
             lambda x: np.array([math.dist(a, b) for a, b in itertools.combinations(x, 2)]),
             steps=20, dtypes=WIDE, slopes=False)  # fmt: skip
    yield op("movedim", ((2, 3, 4, 5),), lambda x: x.movedim((0, 3), (2, 0)),
             lambda x: np.moveaxis(x, (0, 3), (2, 0)), dtypes=EVERY)  # fmt: skip


def lower(x: Any) -> Any:
    return x.tril() if isinstance(x, Tensor) else np.tril(x)


def systems() -> Iterator[Composed]:
    def op(name: str, shapes: Any, ours: Any, theirs: Any, pattern: str = "small",
           steps: float = 300, **rest: Any) -> Any:  # fmt: skip
        rest.setdefault("dtypes", WIDE)
        return Composed("linear algebra", name, pattern, shapes, ours, theirs, steps=steps, **rest)

    for pattern, shape in (("small", (4, 4)), ("batch", (2, 3, 5, 5))):
        system = (shape, (*shape[:-1], 2))
        yield op("lu_solve", system, lambda a, b: b.lu_solve(*definite(a).lu_factor()),
                 lambda a, b: np.linalg.solve(definite(a), b), pattern)  # fmt: skip
        yield op("cholesky_solve", system, lambda a, b: b.cholesky_solve(definite(a).tril()),
                 lambda a, b: np.linalg.solve(lower(definite(a)) @ lower(definite(a)).swapaxes(
                     -1, -2), b), pattern, 3000)  # fmt: skip
        yield op("cond", (shape,), lambda a: definite(a).cond(1),
                 lambda a: np.linalg.cond(definite(a), 1), pattern, 3000)  # fmt: skip
    yield op("cholesky_inverse", ((4, 4),), lambda a: definite(a).tril().cholesky_inverse(),
             lambda a: np.linalg.inv(lower(definite(a)) @ lower(definite(a)).T),
             steps=3000)  # fmt: skip
    yield op("householder_product", ((6, 4), (3,)), lambda a, t: a.householder_product(t),
             reflected)  # fmt: skip
    yield op("multi_dot", ((3, 7), (7, 2), (2, 5), (5,)), lambda *a: Tensor.multi_dot(a),
             lambda *a: np.linalg.multi_dot(a), "chain", 60)  # fmt: skip
    yield op("vecdot", ((5, 9), (9,)), lambda x, y: x.vecdot(y), lambda x, y: (x * y).sum(-1),
             steps=40)  # fmt: skip
    for order in (0, 2, 3, -math.inf):
        yield op("vector_norm", ((5, 9),), lambda x, o=order: x.vector_norm(o, 1),
                 lambda x, o=order: np.linalg.norm(x, o, 1), f"order-{order}", 60,
                 slopes=order > 1)  # fmt: skip
    yield op("tensorinv", ((2, 3, 6),), lambda x: x.tensorinv(), lambda x: np.linalg.tensorinv(x),
             steps=3000)  # fmt: skip
    yield op("tensorsolve", ((2, 3, 6), (2, 3)), lambda x, y: x.tensorsolve(y),
             np.linalg.tensorsolve, steps=3000)  # fmt: skip


def reflected(a: Any, tau: Any) -> Any:
    q = np.eye(6)
    for k, scale in enumerate(tau):
        v = np.where(np.arange(6) > k, a[:, k], np.arange(6) == k)
        q = q @ (np.eye(6) - scale * np.outer(v, v))
    return q[:, :4]


def axes() -> Iterator[Composed]:
    def op(name: str, shape: Any, ours: Any, theirs: Any, pattern: str = "plain") -> Any:
        return Composed("transforms", name, pattern, (shape,), ours, theirs, WIDE, 60)

    pairs = (3, 6, 5, 2)
    sized: dict[str, Any] = {"s": (4, 7), "axes": (2, 0)}
    for name in ("fftn", "ifftn"):
        theirs = getattr(np.fft, name)
        yield op(name, pairs, lambda x, n=name: getattr(x, n)(),
                 lambda x, f=theirs: parts(f(joined(x), axes=(0, 1, 2))))  # fmt: skip
        yield op(name, pairs, lambda x, n=name: getattr(x, n)((4, 7), (2, 0)),
                 lambda x, f=theirs: parts(f(joined(x), **sized)), "sized")  # fmt: skip
    yield op("rfftn", (4, 6), lambda x: x.rfftn(), lambda x: parts(np.fft.rfftn(x)))
    yield op("irfftn", (4, 4, 2), lambda x: x.irfftn((4, 7)),
             lambda x: np.fft.irfftn(joined(x), (4, 7), (0, 1)))  # fmt: skip
    yield op("hfft", (3, 5, 2), lambda x: x.hfft(), lambda x: np.fft.hfft(joined(x)))
    yield op("ihfft", (3, 8), lambda x: x.ihfft(), lambda x: parts(np.fft.ihfft(x)))
    yield op("fftshift", (3, 8), lambda x: x.fftshift(), np.fft.fftshift)


NAMED = [*numbers(), *functions(), *picks(), *arrangements(), *systems(), *axes()]
