"""Factorisations of matrices, as kernels: Householder, Jacobi.

Each takes `count` matrices, one after another in memory, and works on a copy of each in the memory
that it makes; the matrices are independent and run side by side. Rows are what inner loops run
along, so that they move neighbouring elements. Where a textbook works on columns, the matrix is
taken transposed.

Sizes are at least 1. Where a value does not exist (a pivot of zero, a root of a negative number),
arithmetic gives inf or NaN, and only in the matrix that it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.sizes import as_node
from tilegrad.ir.uop import UOp
from tilegrad.tensor.matrices.kernel_builder import (
    MatrixKernel,
    absolute,
    chosen,
    is_negative,
    root,
)

__all__ = [
    "MOST_SWEEPS", "eigen", "eigen_size", "householder", "householder_size", "singular",
    "singular_size",
]  # fmt: skip

# Sweeps of Jacobi's method, at most; six to ten are usual. A sweep with nothing to do is free.
MOST_SWEEPS = 30


def householder_size(rows: int, columns: int, vectors: int) -> int:
    """How many numbers `householder` makes for a matrix."""
    return columns * (rows + 1) + vectors * rows


def householder(made: UOp, a: UOp, *, count: int, rows: int, columns: int, vectors: int) -> UOp:
    """a = QR, by reflections: made[b] holds (columns, rows + 1), where column i is row i of R^T up
    to the diagonal, and beyond it the reflection that made it so; then the first `vectors` columns
    of Q, one a row.
    """
    kernel = MatrixKernel(made)
    width = rows + 1
    length = min(rows, columns)
    total = householder_size(rows, columns, vectors)
    with kernel.each(count) as matrix:
        first = matrix * total
        with kernel.loop(columns) as i, kernel.loop(rows) as j:
            kernel.store(first + i * width + j, a.load((matrix * rows + j) * columns + i))
        with kernel.loop(columns) as i:
            kernel.store(first + i * width + rows, kernel.number(0))
        with kernel.loop(length) as k:
            row = first + k * width
            _reflect(kernel, row, k, rows)
            if columns > 1:
                with kernel.loop(-k + (columns - 1)) as other:
                    _mirror(kernel, row, first + (k + 1 + other) * width, k, rows)
        reflected = first + columns * width
        with kernel.loop(vectors) as i, kernel.loop(rows) as j:
            one = chosen(i.eq(j), kernel.number(1), kernel.number(0))
            kernel.store(reflected + i * rows + j, one)
        with kernel.loop(length) as step:
            k = -step + (length - 1)
            with kernel.loop(vectors) as i:
                _mirror(kernel, first + k * width, reflected + i * rows, k, rows)
    return kernel.finished()


def _reflect(kernel: MatrixKernel, row: UOp, k: UOp, rows: int) -> None:
    """Row k, from k on, becomes the vector v of the reflection I - tau v v^T that leaves only its
    first element; v[k] is 1 and not stored, tau stands behind the row.
    """
    alpha = kernel.load(row + k)
    beyond = -k + (rows - 1)
    zero = kernel.number(0)
    if rows == 1:
        largest = square = zero
    else:
        # Scaled, so that no square overflows.
        largest = kernel.largest(beyond, lambda j: absolute(kernel.load(row + k + 1 + j)))

        def scaled(j: UOp) -> UOp:
            value = kernel.load(row + k + 1 + j) / scale
            return value * value

        scale = largest.alu(Ops.MAX, absolute(alpha))
        scale = chosen(scale.eq(0.0), kernel.number(1), scale)
        square = kernel.sum(beyond, scaled)
        head = alpha / scale
        norm = scale * root(head * head + square)
    # A column that has nothing below the diagonal stays; NaN goes on.
    is_done = square.eq(0.0)
    if rows == 1:
        beta, tau, shrink = alpha, zero, zero
    else:
        beta = chosen(is_done, alpha, chosen(is_negative(alpha), norm, -norm))
        tau = chosen(is_done, zero, (beta - alpha) / beta)
        shrink = chosen(is_done, kernel.number(1), alpha - beta)
        with kernel.loop(beyond) as j:
            at = row + k + 1 + j
            kernel.store(at, kernel.load(at) / shrink, tau, shrink, beta)
    kernel.store(row + k, beta, tau)
    kernel.store(row + rows, tau)


def _mirror(kernel: MatrixKernel, row: UOp, other: UOp, k: UOp, rows: int) -> None:
    """The reflection of `row` on the vector at `other`."""
    beyond = -k + (rows - 1)
    head = kernel.load(other + k)
    projection = head
    if rows > 1:
        projection = projection + kernel.sum(
            beyond, lambda j: kernel.load(row + k + 1 + j) * kernel.load(other + k + 1 + j)
        )
    projection = projection * kernel.load(row + rows)
    if rows > 1:
        with kernel.loop(beyond) as j:
            at = other + k + 1 + j
            kernel.store(
                at, kernel.load(at) - projection * kernel.load(row + k + 1 + j), projection
            )
    kernel.store(other + k, head - projection)


def _rotation(kernel: MatrixKernel, difference: UOp, product: UOp) -> UOp:
    """The smaller tangent t that makes a 2 x 2 matrix diagonal: t^2 + 2 t zeta = 1, where zeta is
    `difference` over twice the `product` off the diagonal.
    """
    zeta = difference / (product * 2.0)
    tangent = kernel.number(1) / (absolute(zeta) + root(zeta * zeta + 1.0))
    return chosen(is_negative(zeta), -tangent, tangent)


def _rotate_rows(
    kernel: MatrixKernel,
    p: UOp,
    q: UOp,
    length: Any,
    angle: tuple[UOp, UOp],
    is_swapped: UOp | None = None,
) -> None:
    """Rows at p and q rotated by an angle, given by its sine and the tangent of its half: in this
    form (Rutishauser) the rounding errors of a small angle are small.
    """
    sine, half = angle
    with kernel.loop(length) as j:
        x, y = kernel.load(p + j), kernel.load(q + j)
        new_x, new_y = x - sine * (y + half * x), y + sine * (x - half * y)
        if is_swapped is not None:
            new_x, new_y = chosen(is_swapped, new_y, new_x), chosen(is_swapped, new_x, new_y)
        kernel.store(p + j, new_x, x, y)
        kernel.store(q + j, new_y)


def _angle(kernel: MatrixKernel, tangent: UOp) -> tuple[UOp, UOp]:
    """The sine, and the tangent of half the angle."""
    cosine = kernel.number(1) / root(tangent * tangent + 1.0)
    sine = tangent * cosine
    return sine, sine / (cosine + 1.0)


def _product_of_rows(kernel: MatrixKernel, row: UOp, other: UOp, length: int) -> UOp:
    return kernel.sum(length, lambda j: kernel.load(row + j) * kernel.load(other + j))


def _unit(kernel: MatrixKernel, index: UOp, a: UOp, matrix: UOp, count: int) -> UOp:
    """The largest size of the `count` elements of a matrix, or 1, stored at `index`: what is
    computed of the matrix in this unit neither overflows nor vanishes.
    """
    largest = kernel.largest(count, lambda i: absolute(a.load(matrix * count + i)))
    kernel.store(index, chosen(largest.eq(0.0), kernel.number(1), largest))
    return kernel.load(index)


def _set_identity(kernel: MatrixKernel, index: UOp, size: int) -> None:
    with kernel.loop(size) as i, kernel.loop(size) as j:
        one = chosen(i.eq(j), kernel.number(1), kernel.number(0))
        kernel.store(index + i * size + j, one)


@contextmanager
def _pairs(kernel: MatrixKernel, rounds: UOp, size: int) -> Iterator[tuple[UOp, UOp, UOp]]:
    """Sweeps of Jacobi over all pairs p < q below `size`: p, q, and where to store what is not 0 if
    something was done with them. A sweep follows one in which something was; `rounds` has a number
    for each.
    """
    kernel.store(rounds, kernel.number(1))
    with kernel.loop(MOST_SWEEPS) as sweep:
        is_needed = kernel.load(rounds + sweep).ne(0.0)
        kernel.store(rounds + sweep + 1, kernel.number(0), is_needed)
        with (
            kernel.loop(chosen(is_needed, as_node(size - 1), as_node(0))) as p,
            kernel.loop(-p + (size - 1), carried=True) as beside,
        ):
            yield p, p + 1 + beside, rounds + sweep + 1


def _set_symmetric(
    kernel: MatrixKernel, work: UOp, a: UOp, matrix: UOp, size: int, unit: UOp
) -> None:
    """Let `work` be the symmetric matrix of `a` from `matrix` on, in units of `unit`."""
    with kernel.loop(size) as i, kernel.loop(size) as j:
        value = a.load(matrix + i.maximum(j) * size + i.minimum(j))
        kernel.store(work + i * size + j, value / unit)


def eigen_size(size: int) -> int:
    """How many numbers `eigen` makes for a matrix."""
    return 2 * size * size + 2 * size + MOST_SWEEPS + 3


def eigen(made: UOp, a: UOp, *, count: int, size: int, epsilon: float) -> UOp:
    """Jacobi: made[b] begins with the eigenvectors of a symmetric matrix, one a row, and their
    eigenvalues, the smallest first. The lower triangle is read.

    Each rotation makes one element off the diagonal zero, unless it is so small that all like it
    together are a rounding error of the matrix. A sweep visits all; one that found nothing to do is
    the last.
    """
    kernel = MatrixKernel(made)
    square = size * size
    total = eigen_size(size)
    with kernel.each(count) as matrix:
        vectors = matrix * total
        values, work = vectors + square, vectors + (square + size)
        rounds = work + square
        scale, limit = rounds + (MOST_SWEEPS + 1), rounds + (MOST_SWEEPS + 2)
        image = rounds + (MOST_SWEEPS + 3)

        unit = _unit(kernel, scale, a, matrix, square)
        _set_symmetric(kernel, work, a, matrix * square, size, unit)
        _set_identity(kernel, vectors, size)
        norm = kernel.sum(square, lambda i: kernel.load(work + i) * kernel.load(work + i))
        kernel.store(limit, root(norm) * (epsilon / size))
        if size > 1:
            with _pairs(kernel, rounds, size) as (p, q, flag):
                _annihilate(kernel, vectors, work, limit, flag, p, q, size)
        # Many rotations, each rounded, stretch a vector a little; its value is that of the matrix.
        with kernel.loop(size) as i:
            row = vectors + i * size
            stretch = root(_product_of_rows(kernel, row, row, size))
            with kernel.loop(size) as j:
                kernel.store(row + j, kernel.load(row + j) / stretch, stretch)
        _set_symmetric(kernel, work, a, matrix * square, size, unit)
        with kernel.loop(size) as i:
            row = vectors + i * size
            with kernel.loop(size) as r:
                kernel.store(image + r, _product_of_rows(kernel, work + r * size, row, size))
            kernel.store(values + i, _product_of_rows(kernel, row, image, size) * unit)
        with kernel.loop(size) as k:
            found = kernel.first_largest(-k + size, lambda i: -kernel.load(values + k + i), size)
            other = (k + found).minimum(size - 1)
            _swap(kernel, values + k, values + other, 1)
            _swap(kernel, vectors + k * size, vectors + other * size, size)
    return kernel.finished()


def _annihilate(
    kernel: MatrixKernel, vectors: UOp, work: UOp, limit: UOp, flag: UOp, p: UOp, q: UOp, size: int
) -> None:
    """The rotation of rows and columns p and q that makes element (p, q) zero."""
    row, other = work + p * size, work + q * size
    off, left, right = kernel.load(row + q), kernel.load(row + p), kernel.load(other + q)
    is_large = kernel.load(limit) < absolute(off)
    zero = kernel.number(0)
    tangent = chosen(is_large, _rotation(kernel, right - left, off), zero)
    angle = _angle(kernel, tangent)
    length = chosen(is_large, as_node(size), as_node(0))
    _rotate_rows(kernel, row, other, length, angle)
    _rotate_rows(kernel, vectors + p * size, vectors + q * size, length, angle)
    with kernel.loop(length) as j:
        kernel.store(work + j * size + p, kernel.load(row + j))
        kernel.store(work + j * size + q, kernel.load(other + j))
    kernel.store(row + p, left - tangent * off)
    kernel.store(other + q, right + tangent * off)
    kernel.store(row + q, chosen(is_large, zero, off))
    kernel.store(other + p, chosen(is_large, zero, off))
    kernel.raise_to(flag, chosen(is_large, kernel.number(1), zero))


def _swap(kernel: MatrixKernel, one: UOp, other: UOp, length: int) -> None:
    with kernel.loop(length) as j:
        x, y = kernel.load(one + j), kernel.load(other + j)
        kernel.store(one + j, y, x, y)
        kernel.store(other + j, x)


def singular_size(rows: int, columns: int) -> int:
    """How many numbers `singular` makes for a matrix."""
    return columns * (rows + columns + 1) + MOST_SWEEPS + 2


def singular(made: UOp, a: UOp, *, count: int, rows: int, columns: int, epsilon: float) -> UOp:
    """One-sided Jacobi (Hestenes, de Rijk), for rows >= columns: made[b] begins with the left
    singular vectors, one a row (zero where the singular value is), the right ones likewise, and the
    singular values, the largest first.

    Columns of `a` are rotated in pairs until all are at right angles; their lengths are the
    singular values. The longer of a pair comes first, so that all are in order at the end.
    """
    kernel = MatrixKernel(made)
    total = singular_size(rows, columns)
    tolerance = epsilon * math.sqrt(rows)
    with kernel.each(count) as matrix:
        left = matrix * total
        right = left + columns * rows
        values = right + columns * columns
        rounds = values + columns
        scale = rounds + (MOST_SWEEPS + 1)

        unit = _unit(kernel, scale, a, matrix, rows * columns)
        with kernel.loop(columns) as i, kernel.loop(rows) as j:
            value = a.load((matrix * rows + j) * columns + i)
            kernel.store(left + i * rows + j, value / unit)
        _set_identity(kernel, right, columns)
        if columns > 1:
            with _pairs(kernel, rounds, columns) as (p, q, flag):
                lefts = left + p * rows, left + q * rows
                rights = right + p * columns, right + q * columns
                _orthogonalise(kernel, lefts, rights, flag, (rows, columns), tolerance)
        # Many rotations, each rounded, stretch both vectors a little.
        with kernel.loop(columns) as i:
            row, other = left + i * rows, right + i * columns
            length = root(_product_of_rows(kernel, row, row, rows))
            stretch = root(_product_of_rows(kernel, other, other, columns))
            kernel.store(values + i, length / stretch * unit)
            shrink = chosen(length.eq(0.0), kernel.number(1), length)
            with kernel.loop(rows) as j:
                kernel.store(row + j, kernel.load(row + j) / shrink, shrink)
            with kernel.loop(columns) as j:
                kernel.store(other + j, kernel.load(other + j) / stretch, stretch)
    return kernel.finished()


def _orthogonalise(
    kernel: MatrixKernel,
    lefts: tuple[UOp, UOp],
    rights: tuple[UOp, UOp],
    flag: UOp,
    lengths: tuple[int, int],
    tolerance: float,
) -> None:
    """The rotation that puts two columns at right angles, the longer one first."""
    p, q = lefts
    alpha = _product_of_rows(kernel, p, p, lengths[0])
    beta = _product_of_rows(kernel, q, q, lengths[0])
    gamma = _product_of_rows(kernel, p, q, lengths[0])
    limit = root(alpha) * root(beta) * tolerance
    is_askew = limit < absolute(gamma)
    is_shorter = alpha < beta
    zero, one = kernel.number(0), kernel.number(1)
    tangent = chosen(is_askew, _rotation(kernel, beta - alpha, gamma), zero)
    angle = _angle(kernel, tangent)
    is_changed = is_askew | is_shorter
    for (first, second), length in zip((lefts, rights), lengths):
        count = chosen(is_changed, as_node(length), as_node(0))
        _rotate_rows(kernel, first, second, count, angle, is_shorter)
    kernel.raise_to(flag, chosen(is_changed, one, zero))
