"""Elimination, triangular systems and Cholesky's factorisation, as kernels for matrices of any
sizes: numbers, or lengths, so that data that grow have one plan.

As in factors.py, each takes `count` matrices, one after another in memory, and works on a copy of
each in the memory that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.ir.sizes import is_one
from tilegrad.ir.uop import UOp
from tilegrad.tensor.matrices.kernel_builder import MatrixKernel, absolute, chosen, root
from tilegrad.tensor.results.kernel_families import KernelFamily

__all__ = ["CHOLESKY", "ELIMINATE", "SOLVE", "TRIANGULAR", "Factors"]


class Factors(NamedTuple):
    """A kernel for matrices of any sizes; numbers, or lengths (`ir.lengths`).

    Attributes:
        name: of the kernel.
        build: takes pointers and sizes, as `KernelFamily.build` does.
        shapes: as `KernelFamily.shapes`.
        sources: the number of operands, all of one dtype.
        options: what else shapes the kernel.
    """

    name: str
    build: Callable[..., UOp]
    shapes: Callable[..., tuple[tuple[Any, ...], ...]]
    sources: int
    options: tuple[tuple[str, Any], ...] = ()

    def with_options(self, **options: Any) -> Factors:
        """The kernel with these options."""
        return self._replace(options=tuple(options.items()))

    def of(self, dtype: DType) -> KernelFamily:
        """The kernel for matrices of a dtype."""
        kinds = (dtype,) * (1 + self.sources)
        return KernelFamily(self.name, self.build, self.shapes, kinds, self.options)


def eliminate(made: UOp, a: UOp, count: Any, size: Any) -> UOp:
    """`solve` without right sides."""
    return _eliminated(made, a, None, count, size, 0)


def solve(made: UOp, a: UOp, right: UOp, count: Any, size: Any, columns: Any) -> UOp:
    """Gauss: made[b] is (size, size + columns + 1), from the left L (below the diagonal, which is
    1) and U; then the solution for each column of `right`; last the row of `a` that each row was.

    The pivot of a column is its largest element, as in LAPACK. A column without any is left, so
    that U has a zero.
    """
    return _eliminated(made, a, right, count, size, columns)


def _eliminated(made: UOp, a: UOp, right: UOp | None, count: Any, size: Any, columns: Any) -> UOp:
    kernel = MatrixKernel(made)
    width = size + columns + 1
    with kernel.each(count) as matrix:
        first = matrix * (size * width)
        with kernel.loop(size) as i, kernel.loop(size) as j:
            kernel.store(first + i * width + j, a.load((matrix * size + i) * size + j))
        if right is not None:
            with kernel.loop(size) as i, kernel.loop(columns) as j:
                value = right.load((matrix * size + i) * columns + j)
                kernel.store(first + i * width + size + j, value)
        with kernel.loop(size) as i:
            kernel.store(first + i * width + size + columns, i.cast(kernel.dtype))
        with kernel.loop(size) as k:
            _pivot(kernel, first, k, size, width)
        if right is not None:
            with kernel.loop(size) as step:
                _substitute_back(kernel, first, -step + (size - 1), size, columns)
    return kernel.finished()


def _pivot(kernel: MatrixKernel, first: UOp, k: UOp, size: Any, width: Any) -> None:
    """Row k becomes the one with the largest element in column k, which the rows below lose."""
    left = -k + size
    found = kernel.first_largest(
        left, lambda i: absolute(kernel.load(first + (k + i) * width + k)), size
    )
    other = (k + found).minimum(size - 1)
    with kernel.loop(width) as j:
        mine, theirs = kernel.load(first + k * width + j), kernel.load(first + other * width + j)
        kernel.store(first + k * width + j, theirs, mine, theirs)
        kernel.store(first + other * width + j, mine)
    if is_one(size):
        return
    pivot = kernel.load(first + k * width + k)
    with kernel.loop(left - 1) as below:
        row = first + (k + 1 + below) * width
        value = kernel.load(row + k)
        factor = chosen(pivot.eq(0.0), kernel.number(0), value / pivot)
        # All to the right but the last column, which names the row.
        with kernel.loop(left + (width - size - 2)) as beside:
            at = row + k + 1 + beside
            taken = factor * kernel.load(first + k * width + k + 1 + beside)
            kernel.store(at, kernel.load(at) - taken, value)
        kernel.store(row + k, factor)


def _substitute_back(kernel: MatrixKernel, first: UOp, k: UOp, size: Any, columns: Any) -> None:
    """Row k of the solution, taken out of the rows above."""
    width = size + columns + 1
    pivot = kernel.load(first + k * width + k)
    mine = first + k * width + size
    with kernel.loop(columns) as j:
        kernel.store(mine + j, kernel.load(mine + j) / pivot)
    if is_one(size):
        return
    with kernel.loop(k) as i:
        row = first + i * width
        factor = kernel.load(row + k)
        with kernel.loop(columns) as j:
            at = row + size + j
            kernel.store(at, kernel.load(at) - factor * kernel.load(mine + j))


def triangular(
    made: UOp,
    a: UOp,
    right: UOp,
    count: Any,
    size: Any,
    columns: Any,
    *,
    is_upper: bool,
    is_unit: bool,
) -> UOp:
    """made = a^-1 right; the other triangle of `a` is not read, nor a diagonal of ones."""
    kernel = MatrixKernel(made)
    with kernel.each(count) as matrix:
        first, rows = matrix * (size * columns), matrix * (size * size)
        with kernel.loop(size * columns) as i:
            kernel.store(first + i, right.load(first + i))
        with kernel.loop(size) as step:
            k = -step + (size - 1) if is_upper else step
            mine = first + k * columns
            if not is_unit:
                pivot = a.load(rows + k * size + k)
                with kernel.loop(columns) as j:
                    kernel.store(mine + j, kernel.load(mine + j) / pivot)
            if not is_one(size):
                with kernel.loop(-step + (size - 1)) as other:
                    i = other if is_upper else k + 1 + other
                    factor = a.load(rows + i * size + k)
                    with kernel.loop(columns) as j:
                        at = first + i * columns + j
                        kernel.store(at, kernel.load(at) - factor * kernel.load(mine + j))
    return kernel.finished()


def cholesky(made: UOp, a: UOp, count: Any, size: Any) -> UOp:
    """The upper triangle U with U^T U = a; the lower triangle of `a` is read."""
    kernel = MatrixKernel(made)
    with kernel.each(count) as matrix:
        first = matrix * (size * size)
        with kernel.loop(size) as i, kernel.loop(size) as j:
            value = a.load(first + j * size + i)
            kernel.store(first + i * size + j, chosen(j < i, kernel.number(0), value))
        with kernel.loop(size) as k:
            row = first + k * size
            pivot = kernel.load(row + k)
            scale = root(pivot)
            with kernel.loop(-k + size) as beside:
                at = row + k + beside
                kernel.store(at, kernel.load(at) / scale, pivot)
            if not is_one(size):
                with kernel.loop(-k + (size - 1)) as below:
                    i = k + 1 + below
                    factor = kernel.load(row + i)
                    with kernel.loop(-i + size) as beside:
                        at = first + i * size + i + beside
                        taken = factor * kernel.load(row + i + beside)
                        kernel.store(at, kernel.load(at) - taken)
    return kernel.finished()


def _square(count: Any, size: Any) -> tuple[Any, ...]:
    return count, size, size


CHOLESKY = Factors(
    "cholesky", cholesky, lambda count, size: (_square(count, size), _square(count, size)), 1
)
ELIMINATE = Factors(
    "eliminate", eliminate, lambda count, size: ((count, size, size + 1), _square(count, size)), 1
)
SOLVE = Factors(
    "solve",
    solve,
    lambda count, size, columns: (
        (count, size, size + columns + 1),
        _square(count, size),
        (count, size, columns),
    ),
    2,
)
TRIANGULAR = Factors(
    "triangular",
    triangular,
    lambda count, size, columns: (
        (count, size, columns),
        _square(count, size),
        (count, size, columns),
    ),
    2,
)
