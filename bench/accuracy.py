"""Errors of long reductions and scans by length and axis, beside PyTorch's.

    python bench/accuracy.py             1000 to 100 million terms, into docs/accuracy.md
    python bench/accuracy.py --powers 3 5 --ops norm mean --keep   some, printed only

Terms are equal wherever the op allows it: all roundings go to the same side, and the exact result
is a formula. Errors are of the worst element, in units of 2**-24, relative to the exact result;
those of `batch_norm` and `layer_norm` to the largest one, and of `log_softmax` and `logcumsumexp`
to the larger of 1 and the result.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilegrad import Tensor
from tilegrad.nn import functional

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
START, END = "<!-- bench/accuracy.py -->", "<!-- end -->"
UNIT = 2.0**-24
AXES = ("first", "middle", "last")
# Compared at a time: the float64 copies of 100 million numbers would not fit.
CHUNK = 10_000_000
TERM = float(np.float32(0.1))
FACTOR = 1 + 2.0**-20


@dataclass(frozen=True)
class Case:
    """An op on equal terms: `ours` and `theirs` take the array and the axis, `exact` counts."""

    name: str
    ours: Callable[[Any, int], Any]
    theirs: Callable[[Any, int], Any]
    exact: Callable[[Any], Any]
    term: float = TERM
    is_scan: bool = False
    smallest: float = 0.0
    axes: tuple[str, ...] = AXES


def shape_of(length: int, axis: str) -> tuple[tuple[int, ...], int]:
    shapes = {"first": (length, 2), "middle": (2, length, 1), "last": (2, length)}
    return shapes[axis], 0 if axis == "first" else 1


def _contracted(multiply: Callable[[Any, Any], Any]) -> Callable[[Any, int], Any]:
    """The matrix product that contracts `axis` of an array with itself."""

    def product(x: Any, axis: int) -> Any:
        flat = x.reshape(x.shape[0], x.shape[1])
        return multiply(flat.T, flat) if axis == 0 else multiply(flat, flat.T)

    return product


def _our_bias(x: Any, axis: int) -> Any:
    """The gradient of what is added to every slice along `axis`."""
    shape = tuple(1 if at == axis else size for at, size in enumerate(x.shape))
    bias = Tensor.zeros(*shape, requires_grad=True)
    ((x + bias) * x).sum().backward()
    return bias.grad


def _their_bias(x: Any, axis: int) -> Any:
    shape = tuple(1 if at == axis else size for at, size in enumerate(x.shape))
    bias = torch.zeros(shape, requires_grad=True)
    ((x + bias) * x).sum().backward()
    return bias.grad


def _signal(x: Any, axis: int) -> Any:
    """Batches, two channels and positions, with the sum along `axis`; no other axes."""
    return x.reshape(x.shape[0], 2, 1) if axis == 0 else x.reshape(1, 2, x.shape[1])


def _our_convolution(x: Any, axis: int) -> Any:
    weight = Tensor.zeros(1, 2, 1, requires_grad=True)
    functional.conv1d(_signal(x, axis), weight).sum().backward()
    return weight.grad


def _their_convolution(x: Any, axis: int) -> Any:
    weight = torch.zeros(1, 2, 1, requires_grad=True)
    torch.nn.functional.conv1d(_signal(x, axis), weight).sum().backward()
    return weight.grad


def _rows(x: Any, axis: int) -> Any:
    """The rows that are added up: `axis` first."""
    return x.transpose(0, axis).reshape(x.shape[axis], -1)


def _our_embedding(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    weight = Tensor.zeros(3, rows.shape[1], requires_grad=True)
    index = Tensor(np.ones(rows.shape[0], np.int32))
    (weight[index] * rows).sum().backward()
    return weight.grad[1]


def _their_embedding(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    weight = torch.zeros(3, rows.shape[1], requires_grad=True)
    index = torch.ones(rows.shape[0], dtype=torch.int64)
    (torch.nn.functional.embedding(index, weight) * rows).sum().backward()
    return weight.grad[1]


def _our_index_add(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    index = Tensor(np.ones(rows.shape[0], np.int32))
    return Tensor.zeros(3, rows.shape[1]).index_add(0, index, rows)[1]


def _their_index_add(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    index = torch.ones(rows.shape[0], dtype=torch.int64)
    return torch.zeros(3, rows.shape[1]).index_add(0, index, rows)[1]


def _our_scatter_add(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    index = Tensor(np.ones(rows.shape, np.int32))
    return Tensor.zeros(3, rows.shape[1]).scatter_add(0, index, rows)[1]


def _their_scatter_add(x: Any, axis: int) -> Any:
    rows = _rows(x, axis)
    index = torch.ones(rows.shape, dtype=torch.int64)
    return torch.zeros(3, rows.shape[1]).scatter_add(0, index, rows)[1]


def _our_bincount(x: Any, axis: int) -> Any:
    index = Tensor(np.ones(x.shape[axis], np.int32))
    return Tensor.bincount(index, weights=_rows(x, axis)[:, 0], minlength=3)[1]


def _their_bincount(x: Any, axis: int) -> Any:
    index = torch.ones(x.shape[axis], dtype=torch.int64)
    return torch.bincount(index, weights=_rows(x, axis)[:, 0], minlength=3)[1]


CASES = [
    Case("sum", lambda x, a: x.sum(a), lambda x, a: x.sum(a), lambda n: TERM * n),
    Case("mean", lambda x, a: x.mean(a), lambda x, a: x.mean(a), lambda n: TERM),
    Case("norm", lambda x, a: x.norm(2, a), lambda x, a: x.norm(2, a), lambda n: TERM * n**0.5),
    Case(
        "matmul",
        _contracted(lambda a, b: a @ b),
        _contracted(lambda a, b: a @ b),
        lambda n: TERM**2 * n,
    ),
    Case(
        "prod", lambda x, a: x.prod(a), lambda x, a: x.prod(a),
        lambda n: np.exp(n * np.log(FACTOR)), FACTOR,
    ),
    Case(
        "logsumexp",
        lambda x, a: x.logsumexp(a),
        lambda x, a: x.logsumexp(a),
        lambda n: TERM + np.log(n),
    ),
    Case("softmax", lambda x, a: x.softmax(a), lambda x, a: x.softmax(a), lambda n: 1 / n),
    Case(
        "log_softmax",
        lambda x, a: x.log_softmax(a),
        lambda x, a: x.log_softmax(a),
        lambda n: -np.log(n),
        smallest=1.0,
    ),
    Case("gradient of a bias", _our_bias, _their_bias, lambda n: TERM * n),
    Case("gradient of a convolution", _our_convolution, _their_convolution, lambda n: TERM * n),
    Case("gradient of an embedding", _our_embedding, _their_embedding, lambda n: TERM * n),
    Case("index_add", _our_index_add, _their_index_add, lambda n: TERM * n),
    Case("scatter_add", _our_scatter_add, _their_scatter_add, lambda n: TERM * n),
    Case("bincount, weights", _our_bincount, _their_bincount, lambda n: TERM * n, axes=("last",)),
    Case(
        "cumsum", lambda x, a: x.cumsum(a), lambda x, a: x.cumsum(a), lambda k: TERM * k,
        is_scan=True,
    ),
    Case(
        "cumprod", lambda x, a: x.cumprod(a), lambda x, a: x.cumprod(a),
        lambda k: np.exp(k * np.log(FACTOR)), FACTOR, is_scan=True,
    ),
    Case(
        "logcumsumexp",
        lambda x, a: x.logcumsumexp(a),
        lambda x, a: x.logcumsumexp(a),
        lambda k: TERM + np.log(k),
        is_scan=True,
        smallest=1.0,
    ),
]  # fmt: skip


def errors(case: Case, length: int, axis: str) -> tuple[float, float]:
    """Ours and PyTorch's on equal terms."""
    shape, at = shape_of(length, axis)
    # The product of more would be infinite.
    is_product = case.term == FACTOR
    term = 1 + 2.0**-23 if is_product and length > 10**7 else case.term
    x = np.full(shape, term, np.float32)
    exact = (lambda k: np.exp(k * np.log(term))) if is_product else case.exact
    ours = case.ours(Tensor(x), at).numpy()
    mine = _worst(ours, exact, length, at, case)
    del ours
    theirs = case.theirs(torch.from_numpy(x), at).detach().numpy()
    return mine, _worst(theirs, exact, length, at, case)


def _worst(found: Any, exact: Callable[[Any], Any], length: int, axis: int, case: Case) -> float:
    rows = np.moveaxis(found, axis, 0).reshape(length, -1) if case.is_scan else found.reshape(1, -1)
    worst = 0.0
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK].astype(np.float64)
        counts = np.arange(start + 1, start + len(part) + 1)[:, None] if case.is_scan else length
        expected = exact(counts)
        scale = np.maximum(np.abs(expected), case.smallest)
        worst = max(worst, float(np.max(np.abs(part - expected) / scale)))
    return worst / UNIT


def normalised(length: int, name: str, axis: str) -> tuple[float, float]:
    """The same for a layer that normalises over `axis`, of a block of random numbers around 10 that
    repeats: its statistics are those of the block.
    """
    block = (10 + np.random.default_rng(1).standard_normal(1000)).astype(np.float32)
    exact = block.astype(np.float64)
    if name == "var":
        expected, x = exact.var() * length / (length - 1), np.resize(block, length)
    else:
        expected, x = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5), np.resize(block, length)
    if axis == "first":
        given = np.repeat(x[:, None], 2, 1)
    else:
        given = np.repeat(x[None], 2, 0)
        given = given[:, :, None] if axis == "middle" else given
    along = 0 if axis == "first" else 1
    if name == "var":
        pair = Tensor(given).var(along).numpy(), torch.from_numpy(given).var(along).numpy()
        mine, other = (float(np.max(np.abs(each - expected) / expected)) / UNIT for each in pair)
        return mine, other
    pair = _layers(name, given, length)
    mine, other = (_from_block(each, expected, along) for each in pair)
    return mine, other


def _layers(name: str, x: Any, length: int) -> tuple[Any, Any]:
    theirs = torch.from_numpy(x)
    if name == "layer_norm":
        found = torch.nn.functional.layer_norm(theirs, (length,))
        return functional.layer_norm(Tensor(x), length).numpy(), found.numpy()
    found = torch.nn.functional.batch_norm(theirs, None, None, training=True)
    return functional.batch_norm(Tensor(x), training=True).numpy(), found.numpy()


def _from_block(found: Any, expected: Any, axis: int) -> float:
    rows = np.moveaxis(found, axis, 0).reshape(-1, 1000, found.size // found.shape[axis])
    exact = expected[None, :, None]
    worst = (float(np.max(np.abs(each - exact))) for each in np.array_split(rows, 20) if each.size)
    return max(worst) / float(np.abs(expected).max()) / UNIT


NORMALISED = [
    ("var", "first"), ("var", "middle"), ("var", "last"),
    ("batch_norm", "first"), ("layer_norm", "last"),
]  # fmt: skip


def measured(powers: list[int], names: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    for case in CASES:
        if names and case.name not in names:
            continue
        for axis in case.axes:
            yield case.name, axis, [cell(*errors(case, 10**power, axis)) for power in powers]
    for name, axis in NORMALISED:
        if not names or name in names:
            cells = [cell(*normalised(10**power, name, axis)) for power in powers]
            yield name, axis, cells


def cell(mine: float, other: float) -> str:
    return f"{_short(mine)} / {_short(other)}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--powers", type=int, nargs="+", default=[3, 4, 5, 6, 7, 8])
    parser.add_argument("--ops", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="leave the page as it is")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| op | axis | " + " | ".join(f"10^{power}" for power in given.powers) + " |",
        "| --- | --- |" + " --- |" * len(given.powers),
    ]
    for name, axis, cells in measured(given.powers, given.ops):
        lines.append(f"| {name} | {axis} | " + " | ".join(cells) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    if given.keep:
        return
    where = f"{platform.machine()}, PyTorch {torch.__version__.split('+')[0]} on one thread"
    text = PAGE.read_text()
    before, after = text.split(START)[0], text.split(END)[1]
    made = "\n".join([START, "", f"tilegrad / PyTorch, {where}:", "", *lines, "", END])
    PAGE.write_text(before + made + after)


if __name__ == "__main__":
    main()
