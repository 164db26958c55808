"""Every other function of the standard beside array-api-strict, in a handful of shapes: without
axes, without elements, and with some of each.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tests.array_api.cases import FLOATS, INTEGERS, NUMBERS, extremes, numbers, run
from tilegrad import array_api as xp

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (0,), (), (3, 0, 2), (5,))
# Functions that give positions and counts.
POSITIONS = (
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "unique_all",
    "unique_counts", "unique_inverse",
)  # fmt: skip
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def reductions(x: np.ndarray) -> Iterator[Call]:
    axes: list[Any] = [{}, {"keepdims": True}]
    if x.ndim:
        axes += [{"axis": -1}, {"axis": tuple(range(x.ndim)), "keepdims": True}]
    for kwargs in axes:
        for name in ("all", "any", "count_nonzero"):
            yield name, (x,), kwargs
        if x.dtype != bool:
            yield from ((name, (x,), kwargs) for name in ("sum", "prod"))
            if x.size:
                yield from ((name, (x,), kwargs) for name in ("max", "min"))
            if x.size and not isinstance(kwargs.get("axis"), tuple):
                yield from ((name, (x,), kwargs) for name in ("argmax", "argmin"))
        if x.dtype.kind == "f":
            yield from ((name, (x,), kwargs) for name in ("mean", "std", "var"))
            yield "var", (x,), {**kwargs, "correction": 0.5}
    if x.ndim and x.dtype != bool:
        for is_wanted in (False, True):
            for name in ("cumulative_sum", "cumulative_prod"):
                yield name, (x,), {"axis": -1, "include_initial": is_wanted}
        yield "diff", (x,), {}


def orders(x: np.ndarray) -> Iterator[Call]:
    if x.dtype == bool:
        return
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield name, (x,), {}
    if x.ndim:
        for is_descending in (False, True):
            yield "sort", (x,), {"descending": is_descending}
            yield "argsort", (x,), {"descending": is_descending}
        row = np.sort(numbers((5,), x.dtype.name))
        yield "searchsorted", (row, x), {}
        yield "searchsorted", (row, x), {"side": "right"}


def movements(x: np.ndarray) -> Iterator[Call]:
    if x.ndim:
        yield "nonzero", (x,), {}
        yield "flip", (x,), {"axis": -1}
        yield "roll", (x, (1, -2)), {"axis": (0, -1)}
        yield "concat", ([x, x],), {"axis": -1}
        yield "unstack", (x,), {}
        yield "moveaxis", (x, 0, -1), {}
        yield "repeat", (x, 3), {"axis": 0}
    yield "flip", (x,), {}
    yield "roll", (x, 1), {}
    yield "concat", ([x, x],), {"axis": None}
    yield "stack", ([x, x],), {"axis": -1}
    yield "expand_dims", (x, -1), {}
    yield "permute_dims", (x, tuple(reversed(range(x.ndim)))), {}
    yield "repeat", (x, 2), {}
    yield "reshape", (x, (x.size,)), {}
    yield "tile", (x, ()), {}
    yield "tile", (x, (2, 1, 3)), {}
    yield "broadcast_to", (x, (2, *x.shape)), {}
    yield "broadcast_arrays", (x, numbers((3, 1, 1), "float32")), {}
    yield "where", (numbers(x.shape, "bool"), x, x), {}
    yield "astype", (x, np.dtype("int16")), {}
    yield "zeros_like", (x,), {}
    yield "full_like", (x, 1), {}
    yield "triu", (numbers((*x.shape, 3, 2), x.dtype.name),), {"k": 1}
    if x.dtype != bool:
        yield "clip", (x, 1, 3), {}
        yield "clip", (x,), {"max": numbers(x.shape, x.dtype.name, 1)}


def check(call: Call, rtol: float = 1e-5) -> None:
    """Positions and the default float are of 32 bits here and of 64 there."""
    found, exact = run(xp, *call), run(strict, *call)
    assert len(found) == len(exact), call
    for ours, theirs in zip(found, exact):
        assert ours.shape == theirs.shape, call
        may_be_shorter = ours.dtype.kind == "f" or call[0] in POSITIONS
        is_shorter = ours.dtype.kind == theirs.dtype.kind and ours.dtype.itemsize == 4
        kinds = call, ours.dtype, theirs.dtype
        assert ours.dtype == theirs.dtype or (is_shorter and may_be_shorter), kinds
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol, err_msg=str(call))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("calls", [reductions, orders, movements])
def test_as_array_api_strict(calls: Any, shape: tuple[int, ...]) -> None:
    for dtype in ("float32", "bool"):
        for call in calls(numbers(shape, dtype)):
            check(call)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_of_integers_have_64_bits(dtype: str) -> None:
    x = extremes(dtype)
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
        check((name, (x,), {}))
        check((name, (x,), {"dtype": np.dtype(dtype)}))
    check(("linalg.trace", (numbers((2, 3), dtype),), {}))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("calls", [reductions, orders, movements])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_as_array_api_strict_in_every_dtype(calls: Any, shape: tuple[int, ...], dtype: str) -> None:
    for call in calls(numbers(shape, dtype)):
        check(call)


CREATION: list[Call] = [
    *[
        ("arange", args, {})
        for args in [(5,), (1, 7, 2), (5, 1, -2), (0,), (3, 3), (0.0, 1.0, 0.1), (1.0, 0.0, -0.25)]
    ],
    ("arange", (-3, 4), {"dtype": np.dtype("int8")}),
    *[
        ("linspace", args, {"endpoint": end, "dtype": np.dtype("float64")})
        for args in [(0, 1, 5), (0.0, 1.0, 0), (2, 3, 1), (-1e30, 1e30, 7)]
        for end in (True, False)
    ],
    *[("eye", (3,), {"k": k}) for k in (-3, -1, 0, 1, 4)],
    ("eye", (2, 4), {"k": 1, "dtype": np.dtype("int8")}),
    ("full", ((2, 0), 7), {}),
    ("meshgrid", (numbers((2,), "int8"), numbers((3,), "int8"), numbers((4,), "int8")), {}),
    ("meshgrid", (numbers((2,), "int8"), numbers((3,), "int8")), {"indexing": "ij"}),
    ("take", (numbers((4, 3), "int8"), np.array([2, 0])), {"axis": 1}),
    ("take_along_axis", (numbers((2, 3), "int8"), np.array([[1], [2]])), {}),
    ("take_along_axis", (numbers((2, 3), "int8"), np.array([[1, 0, 1]])), {"axis": 0}),
    ("repeat", (numbers((3, 2), "int8"), np.array([1, 0, 2])), {"axis": 0}),
    ("squeeze", (numbers((1, 3, 1), "int8"), (0, 2)), {}),
    ("searchsorted", (np.array([3, 1, 2]), np.array([2])), {"sorter": np.array([1, 2, 0])}),
]  # fmt: skip


def test_creation_and_picking() -> None:
    for call in CREATION:
        check(call)


def products(dtype: str) -> Iterator[Call]:
    def pair(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        return tuple([numbers(shape, dtype) for shape in shapes])

    for shapes in [
        ((2, 3), (3, 4)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2)), ((3,), (4, 3, 2)),
        ((0, 3), (3, 2)), ((2, 0), (0, 2)),
    ]:  # fmt: skip
        yield "matmul", pair(*shapes), {}
    yield "tensordot", pair((2, 3), (3, 4)), {"axes": 1}
    yield "tensordot", pair((2, 3), (4, 3)), {"axes": ((1,), (1,))}
    yield "tensordot", pair((2, 3), (4,)), {"axes": 0}
    yield "tensordot", pair((2, 0, 3), (3, 4)), {"axes": 1}
    yield "linalg.tensordot", pair((2, 0, 3), (0, 2)), {"axes": ([1], [0])}
    yield "linalg.tensordot", pair((0, 2), (0, 2)), {"axes": 0}
    yield "vecdot", pair((2, 3), (3,)), {}
    yield "vecdot", pair((3, 2), (3, 2)), {"axis": -2}
    yield "linalg.outer", pair((2,), (3,)), {}
    yield "linalg.trace", pair((2, 3, 4)), {"offset": 1}
    yield "linalg.diagonal", pair((3, 4)), {"offset": 5}
    yield "linalg.cross", pair((2, 3), (3,)), {}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products(dtype: str) -> None:
    for call in products(dtype):
        check(call)


def factors(shape: tuple[int, ...], dtype: str) -> Iterator[Call]:
    x = numbers(shape, dtype)
    a = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-2], dtype=dtype)
    square = {"upper": False}
    for name in ("cholesky", "slogdet", "inv", "eigvalsh"):
        yield f"linalg.{name}", (a,), square if name == "cholesky" else {}
    yield "linalg.cholesky", (a,), {"upper": True}
    yield "linalg.matrix_power", (a,), {}
    yield "linalg.solve", (a, numbers(a.shape[-1:], dtype)), {}
    yield "linalg.svdvals", (x,), {}
    if not x.size:
        return
    yield "linalg.pinv", (x,), {}
    yield "linalg.matrix_rank", (x,), {}
    for ord in ("fro", "nuc", 1, 2, np.inf, -1, -2, -np.inf):
        yield "linalg.matrix_norm", (x,), {"ord": ord, "keepdims": True}
    for ord in (0, 1, 2, 3.5, -1, np.inf, -np.inf):
        yield "linalg.vector_norm", (x,), {"ord": ord, "axis": -1}


@pytest.mark.parametrize(
    "shape", [(3, 2), (0, 3), pytest.param((2, 2, 3), marks=pytest.mark.nightly)], ids=str
)
def test_linalg(shape: tuple[int, ...]) -> None:
    for path, args, kwargs in factors(shape, "float64"):
        more = (2,) if path == "linalg.matrix_power" else ()
        check((path, (*args, *more), kwargs), 1e-8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_factors_multiply_to_their_matrix(dtype: str) -> None:
    """Signs and orders of vectors are free, so not compared one by one."""
    for shape in ((3, 2), (2, 3)):
        values = numbers(shape, dtype)
        x = xp.asarray(values)
        for mode in ("reduced", "complete"):
            q, r = xp.linalg.qr(x, mode=mode)
            np.testing.assert_allclose(np.asarray(q @ r), values, atol=1e-5)
        u, s, v = xp.linalg.svd(x, full_matrices=False)
        np.testing.assert_allclose(np.asarray(u * s @ v), values, atol=1e-5)
    symmetric = values @ values.T
    w, vectors = xp.linalg.eigh(xp.asarray(symmetric))
    np.testing.assert_allclose(np.asarray(vectors * w @ vectors.mT), symmetric, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@settings(deadline=None)
@drawn(st.data())
def test_random_calls(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    dtype = data.draw(st.sampled_from(("float32", "int64")))
    calls = data.draw(st.sampled_from((reductions, orders, movements)))
    values = numbers(shape, dtype, data.draw(st.integers(0, 9)))
    check(data.draw(st.sampled_from(list(calls(values)))))


def signatures(module: Any) -> dict[str, Any]:
    return {
        name: [
            (each.name, each.kind, each.default)
            for each in inspect.signature(getattr(module, name)).parameters.values()
        ]
        for name in module.__all__
        if inspect.isfunction(getattr(module, name)) and "strict" not in name
    }


# Of versions after 2024.12; and defaults that are sentinels there, None by the standard.
LATER = {"broadcast_shapes", "isin"}
SENTINELS = {"astype", "from_dlpack"}


@pytest.mark.parametrize("path", ["", "linalg"])
def test_signatures_are_the_standards(path: str) -> None:
    theirs = signatures(getattr(strict, path) if path else strict)
    ours = signatures(getattr(xp, path) if path else xp)
    assert theirs.keys() - LATER <= ours.keys()
    for name in theirs.keys() - LATER:
        if name in SENTINELS:
            assert [each[:2] for each in ours[name]] == [each[:2] for each in theirs[name]]
        else:
            assert ours[name] == theirs[name], name
