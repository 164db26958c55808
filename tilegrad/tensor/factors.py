"""Factorisations of matrices, as kernels: elimination, triangular systems, Cholesky, Householder,
Jacobi.

Each takes `count` matrices, one after another in memory, and works on a copy of each in the memory
that it makes; the matrices are independent and run side by side. Rows are what inner loops run
along, so that they move neighbouring elements. Where a textbook works on columns, the matrix is
taken transposed.

Sizes are at least 1. What does not exist (a pivot of zero, a root of a negative number) is what
arithmetic makes of it: inf or NaN, and only in the matrix that it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.steps import Steps, absolute, chosen, is_negative, root

__all__ = [
    "MOST_SWEEPS",
    "cholesky",
    "eigen",
    "eigen_size",
    "eliminate",
    "householder",
    "householder_size",
    "singular",
    "singular_size",
    "triangular",
]

# Sweeps of Jacobi's method, at most; six to ten are usual. A sweep with nothing to do is free.
MOST_SWEEPS = 30


def eliminate(made: UOp, a: UOp, *right: UOp, count: int, size: int, columns: int = 0) -> UOp:
    """Gauss: made[b] is (size, size + columns + 1), from the left L (below the diagonal, which is
    1) and U; then the solution for each column of `right`; last the row of `a` that each row was.

    The pivot of a column is its largest element, as in LAPACK. A column without any is left, so
    that U has a zero.
    """
    steps = Steps(made)
    width = size + columns + 1
    with steps.each(count) as matrix:
        first = matrix * (size * width)
        with steps.loop(size) as i, steps.loop(size) as j:
            steps.store(first + i * width + j, a.load((matrix * size + i) * size + j))
        if columns:
            with steps.loop(size) as i, steps.loop(columns) as j:
                value = right[0].load((matrix * size + i) * columns + j)
                steps.store(first + i * width + size + j, value)
        with steps.loop(size) as i:
            steps.store(first + i * width + size + columns, i.cast(steps.dtype))
        with steps.loop(size) as k:
            _pivot(steps, first, k, size, width)
        if columns:
            with steps.loop(size) as turn:
                _substitute_back(steps, first, -turn + (size - 1), size, columns)
    return steps.finished()


def _pivot(steps: Steps, first: UOp, k: UOp, size: int, width: int) -> None:
    """Row k becomes the one with the largest element in column k, which the rows below lose."""
    left = -k + size
    found = steps.first_largest(
        left, lambda i: absolute(steps.load(first + (k + i) * width + k)), size
    )
    other = (k + found).minimum(size - 1)
    with steps.loop(width) as j:
        mine, theirs = steps.load(first + k * width + j), steps.load(first + other * width + j)
        steps.store(first + k * width + j, theirs, mine, theirs)
        steps.store(first + other * width + j, mine)
    if size == 1:
        return
    pivot = steps.load(first + k * width + k)
    with steps.loop(left - 1) as below:
        row = first + (k + 1 + below) * width
        value = steps.load(row + k)
        factor = chosen(pivot.eq(0.0), steps.number(0), value / pivot)
        # All to the right but the last column, which names the row.
        with steps.loop(left + (width - size - 2)) as beside:
            at = row + k + 1 + beside
            taken = factor * steps.load(first + k * width + k + 1 + beside)
            steps.store(at, steps.load(at) - taken, value)
        steps.store(row + k, factor)


def _substitute_back(steps: Steps, first: UOp, k: UOp, size: int, columns: int) -> None:
    """Row k of the solution, taken out of the rows above."""
    width = size + columns + 1
    pivot = steps.load(first + k * width + k)
    mine = first + k * width + size
    with steps.loop(columns) as j:
        steps.store(mine + j, steps.load(mine + j) / pivot)
    if size == 1:
        return
    with steps.loop(k) as i:
        row = first + i * width
        factor = steps.load(row + k)
        with steps.loop(columns) as j:
            at = row + size + j
            steps.store(at, steps.load(at) - factor * steps.load(mine + j))


def triangular(
    made: UOp,
    a: UOp,
    right: UOp,
    *,
    count: int,
    size: int,
    columns: int,
    is_upper: bool,
    is_unit: bool,
) -> UOp:
    """made = a^-1 right; the other triangle of `a` is not read, nor a diagonal of ones."""
    steps = Steps(made)
    with steps.each(count) as matrix:
        first, rows = matrix * (size * columns), matrix * (size * size)
        with steps.loop(size * columns) as i:
            steps.store(first + i, right.load(first + i))
        with steps.loop(size) as turn:
            k = -turn + (size - 1) if is_upper else turn
            mine = first + k * columns
            if not is_unit:
                pivot = a.load(rows + k * size + k)
                with steps.loop(columns) as j:
                    steps.store(mine + j, steps.load(mine + j) / pivot)
            if size > 1:
                with steps.loop(-turn + (size - 1)) as other:
                    i = other if is_upper else k + 1 + other
                    factor = a.load(rows + i * size + k)
                    with steps.loop(columns) as j:
                        at = first + i * columns + j
                        steps.store(at, steps.load(at) - factor * steps.load(mine + j))
    return steps.finished()


def cholesky(made: UOp, a: UOp, *, count: int, size: int) -> UOp:
    """The upper triangle U with U^T U = a, of which the lower triangle is read."""
    steps = Steps(made)
    with steps.each(count) as matrix:
        first = matrix * (size * size)
        with steps.loop(size) as i, steps.loop(size) as j:
            value = a.load(first + j * size + i)
            steps.store(first + i * size + j, chosen(j < i, steps.number(0), value))
        with steps.loop(size) as k:
            row = first + k * size
            pivot = steps.load(row + k)
            scale = root(pivot)
            with steps.loop(-k + size) as beside:
                at = row + k + beside
                steps.store(at, steps.load(at) / scale, pivot)
            if size > 1:
                with steps.loop(-k + (size - 1)) as below:
                    i = k + 1 + below
                    factor = steps.load(row + i)
                    with steps.loop(-i + size) as beside:
                        at = first + i * size + i + beside
                        taken = factor * steps.load(row + i + beside)
                        steps.store(at, steps.load(at) - taken)
    return steps.finished()


def householder_size(rows: int, columns: int, vectors: int) -> int:
    """How many numbers `householder` makes for a matrix."""
    return columns * (rows + 1) + vectors * rows


def householder(made: UOp, a: UOp, *, count: int, rows: int, columns: int, vectors: int) -> UOp:
    """a = QR, by reflections: made[b] holds (columns, rows + 1), of which column i is row i of R^T
    up to the diagonal, and beyond it what made it so; then the first `vectors` columns of Q, one a
    row.
    """
    steps = Steps(made)
    width = rows + 1
    length = min(rows, columns)
    total = householder_size(rows, columns, vectors)
    with steps.each(count) as matrix:
        first = matrix * total
        with steps.loop(columns) as i, steps.loop(rows) as j:
            steps.store(first + i * width + j, a.load((matrix * rows + j) * columns + i))
        with steps.loop(columns) as i:
            steps.store(first + i * width + rows, steps.number(0))
        with steps.loop(length) as k:
            row = first + k * width
            _reflect(steps, row, k, rows)
            if columns > 1:
                with steps.loop(-k + (columns - 1)) as other:
                    _mirror(steps, row, first + (k + 1 + other) * width, k, rows)
        reflected = first + columns * width
        with steps.loop(vectors) as i, steps.loop(rows) as j:
            one = chosen(i.eq(j), steps.number(1), steps.number(0))
            steps.store(reflected + i * rows + j, one)
        with steps.loop(length) as turn:
            k = -turn + (length - 1)
            with steps.loop(vectors) as i:
                _mirror(steps, first + k * width, reflected + i * rows, k, rows)
    return steps.finished()


def _reflect(steps: Steps, row: UOp, k: UOp, rows: int) -> None:
    """Row k, from k on, becomes the vector v of the reflection I - tau v v^T that leaves only its
    first element; v[k] is 1 and not stored, tau stands behind the row.
    """
    alpha = steps.load(row + k)
    beyond = -k + (rows - 1)
    zero = steps.number(0)
    if rows == 1:
        largest = square = zero
    else:
        # Scaled, so that no square overflows.
        largest = steps.largest(beyond, lambda j: absolute(steps.load(row + k + 1 + j)))

        def scaled(j: UOp) -> UOp:
            value = steps.load(row + k + 1 + j) / scale
            return value * value

        scale = largest.alu(Ops.MAX, absolute(alpha))
        scale = chosen(scale.eq(0.0), steps.number(1), scale)
        square = steps.sum(beyond, scaled)
        head = alpha / scale
        norm = scale * root(head * head + square)
    # A column that has nothing below the diagonal stays; NaN goes on.
    is_done = square.eq(0.0)
    if rows == 1:
        beta, tau, shrink = alpha, zero, zero
    else:
        beta = chosen(is_done, alpha, chosen(is_negative(alpha), norm, -norm))
        tau = chosen(is_done, zero, (beta - alpha) / beta)
        shrink = chosen(is_done, steps.number(1), alpha - beta)
        with steps.loop(beyond) as j:
            at = row + k + 1 + j
            steps.store(at, steps.load(at) / shrink, tau, shrink, beta)
    steps.store(row + k, beta, tau)
    steps.store(row + rows, tau)


def _mirror(steps: Steps, row: UOp, other: UOp, k: UOp, rows: int) -> None:
    """The reflection of `row` on the vector at `other`."""
    beyond = -k + (rows - 1)
    head = steps.load(other + k)
    along = head
    if rows > 1:
        along = along + steps.sum(
            beyond, lambda j: steps.load(row + k + 1 + j) * steps.load(other + k + 1 + j)
        )
    along = along * steps.load(row + rows)
    if rows > 1:
        with steps.loop(beyond) as j:
            at = other + k + 1 + j
            steps.store(at, steps.load(at) - along * steps.load(row + k + 1 + j), along)
    steps.store(other + k, head - along)


def _rotation(steps: Steps, difference: UOp, product: UOp) -> UOp:
    """The smaller tangent t that makes a 2 x 2 matrix diagonal: t^2 + 2 t zeta = 1, where zeta is
    `difference` over twice the `product` off the diagonal.
    """
    zeta = difference / (product * 2.0)
    tangent = steps.number(1) / (absolute(zeta) + root(zeta * zeta + 1.0))
    return chosen(is_negative(zeta), -tangent, tangent)


def _turn_rows(
    steps: Steps, p: UOp, q: UOp, length: Any, angle: tuple[UOp, UOp], is_swapped: UOp | None = None
) -> None:
    """Rows at p and q turned by an angle, given by its sine and the tangent of its half: in this
    form (Rutishauser) the rounding errors of a small angle are small.
    """
    sine, half = angle
    with steps.loop(length) as j:
        x, y = steps.load(p + j), steps.load(q + j)
        new_x, new_y = x - sine * (y + half * x), y + sine * (x - half * y)
        if is_swapped is not None:
            new_x, new_y = chosen(is_swapped, new_y, new_x), chosen(is_swapped, new_x, new_y)
        steps.store(p + j, new_x, x, y)
        steps.store(q + j, new_y)


def _angle(steps: Steps, tangent: UOp) -> tuple[UOp, UOp]:
    """The sine, and the tangent of half the angle."""
    cosine = steps.number(1) / root(tangent * tangent + 1.0)
    sine = tangent * cosine
    return sine, sine / (cosine + 1.0)


def _product_of_rows(steps: Steps, row: UOp, other: UOp, length: int) -> UOp:
    return steps.sum(length, lambda j: steps.load(row + j) * steps.load(other + j))


def _unit(steps: Steps, place: UOp, a: UOp, matrix: UOp, count: int) -> UOp:
    """The largest size of the `count` elements of a matrix, or 1, kept at `place`: what is computed
    of the matrix in this unit neither overflows nor vanishes.
    """
    largest = steps.largest(count, lambda i: absolute(a.load(matrix * count + i)))
    steps.store(place, chosen(largest.eq(0.0), steps.number(1), largest))
    return steps.load(place)


def _set_identity(steps: Steps, place: UOp, size: int) -> None:
    with steps.loop(size) as i, steps.loop(size) as j:
        one = chosen(i.eq(j), steps.number(1), steps.number(0))
        steps.store(place + i * size + j, one)


@contextmanager
def _pairs(steps: Steps, rounds: UOp, size: int) -> Iterator[tuple[UOp, UOp, UOp]]:
    """Sweeps of Jacobi over all pairs p < q below `size`: p, q, and where to store what is not 0 if
    something was done with them. A sweep follows one in which something was; `rounds` has a number
    for each.
    """
    steps.store(rounds, steps.number(1))
    with steps.loop(MOST_SWEEPS) as sweep:
        is_needed = steps.load(rounds + sweep).ne(0.0)
        steps.store(rounds + sweep + 1, steps.number(0), is_needed)
        with (
            steps.loop(chosen(is_needed, _index(size - 1), _index(0))) as p,
            steps.loop(-p + (size - 1), carried=True) as beside,
        ):
            yield p, p + 1 + beside, rounds + sweep + 1


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
    steps = Steps(made)
    square = size * size
    total = eigen_size(size)
    with steps.each(count) as matrix:
        vectors = matrix * total
        values, work = vectors + square, vectors + (square + size)
        rounds = work + square
        scale, limit = rounds + (MOST_SWEEPS + 1), rounds + (MOST_SWEEPS + 2)
        image = rounds + (MOST_SWEEPS + 3)

        unit = _unit(steps, scale, a, matrix, square)
        with steps.loop(size) as i, steps.loop(size) as j:
            value = a.load(matrix * square + i.maximum(j) * size + i.minimum(j))
            steps.store(work + i * size + j, value / unit)
        _set_identity(steps, vectors, size)
        norm = steps.sum(square, lambda i: steps.load(work + i) * steps.load(work + i))
        steps.store(limit, root(norm) * (epsilon / size))
        if size > 1:
            with _pairs(steps, rounds, size) as (p, q, flag):
                _annihilate(steps, vectors, work, limit, flag, p, q, size)
        # Many rotations, each rounded, stretch a vector a little; its value is that of the matrix.
        with steps.loop(size) as i:
            row = vectors + i * size
            stretch = root(_product_of_rows(steps, row, row, size))
            with steps.loop(size) as j:
                steps.store(row + j, steps.load(row + j) / stretch, stretch)
        with steps.loop(size) as i, steps.loop(size) as j:
            value = a.load(matrix * square + i.maximum(j) * size + i.minimum(j))
            steps.store(work + i * size + j, value / unit)
        with steps.loop(size) as i:
            row = vectors + i * size
            with steps.loop(size) as r:
                steps.store(image + r, _product_of_rows(steps, work + r * size, row, size))
            steps.store(values + i, _product_of_rows(steps, row, image, size) * unit)
        with steps.loop(size) as k:
            found = steps.first_largest(-k + size, lambda i: -steps.load(values + k + i), size)
            other = (k + found).minimum(size - 1)
            _swap(steps, values + k, values + other, 1, k)
            _swap(steps, vectors + k * size, vectors + other * size, size, k)
    return steps.finished()


def _annihilate(
    steps: Steps, vectors: UOp, work: UOp, limit: UOp, flag: UOp, p: UOp, q: UOp, size: int
) -> None:
    """The rotation of rows and columns p and q that makes element (p, q) zero."""
    row, other = work + p * size, work + q * size
    off, left, right = steps.load(row + q), steps.load(row + p), steps.load(other + q)
    is_large = steps.load(limit) < absolute(off)
    zero = steps.number(0)
    tangent = chosen(is_large, _rotation(steps, right - left, off), zero)
    angle = _angle(steps, tangent)
    length = chosen(is_large, _index(size), _index(0))
    _turn_rows(steps, row, other, length, angle)
    _turn_rows(steps, vectors + p * size, vectors + q * size, length, angle)
    with steps.loop(length) as j:
        steps.store(work + j * size + p, steps.load(row + j))
        steps.store(work + j * size + q, steps.load(other + j))
    steps.store(row + p, left - tangent * off)
    steps.store(other + q, right + tangent * off)
    steps.store(row + q, chosen(is_large, zero, off))
    steps.store(other + p, chosen(is_large, zero, off))
    steps.raise_to(flag, chosen(is_large, steps.number(1), zero))


def _swap(steps: Steps, one: UOp, other: UOp, length: int, turn: UOp) -> None:
    with steps.loop(length) as j:
        x, y = steps.load(one + j), steps.load(other + j)
        steps.store(one + j, y, x, y)
        steps.store(other + j, x)


def _index(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


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
    steps = Steps(made)
    total = singular_size(rows, columns)
    tolerance = epsilon * math.sqrt(rows)
    with steps.each(count) as matrix:
        left = matrix * total
        right = left + columns * rows
        values = right + columns * columns
        rounds = values + columns
        scale = rounds + (MOST_SWEEPS + 1)

        unit = _unit(steps, scale, a, matrix, rows * columns)
        with steps.loop(columns) as i, steps.loop(rows) as j:
            value = a.load((matrix * rows + j) * columns + i)
            steps.store(left + i * rows + j, value / unit)
        _set_identity(steps, right, columns)
        if columns > 1:
            with _pairs(steps, rounds, columns) as (p, q, flag):
                lefts = left + p * rows, left + q * rows
                rights = right + p * columns, right + q * columns
                _part(steps, lefts, rights, flag, (rows, columns), tolerance)
        # Many rotations, each rounded, stretch both vectors a little.
        with steps.loop(columns) as i:
            row, other = left + i * rows, right + i * columns
            length = root(_product_of_rows(steps, row, row, rows))
            stretch = root(_product_of_rows(steps, other, other, columns))
            steps.store(values + i, length / stretch * unit)
            shrink = chosen(length.eq(0.0), steps.number(1), length)
            with steps.loop(rows) as j:
                steps.store(row + j, steps.load(row + j) / shrink, shrink)
            with steps.loop(columns) as j:
                steps.store(other + j, steps.load(other + j) / stretch, stretch)
    return steps.finished()


def _part(
    steps: Steps,
    lefts: tuple[UOp, UOp],
    rights: tuple[UOp, UOp],
    flag: UOp,
    lengths: tuple[int, int],
    tolerance: float,
) -> None:
    """The rotation that puts two columns at right angles, the longer one first."""
    p, q = lefts
    alpha = _product_of_rows(steps, p, p, lengths[0])
    beta = _product_of_rows(steps, q, q, lengths[0])
    gamma = _product_of_rows(steps, p, q, lengths[0])
    limit = root(alpha) * root(beta) * tolerance
    is_askew = limit < absolute(gamma)
    is_shorter = alpha < beta
    zero, one = steps.number(0), steps.number(1)
    tangent = chosen(is_askew, _rotation(steps, beta - alpha, gamma), zero)
    angle = _angle(steps, tangent)
    is_changed = is_askew | is_shorter
    for (first, second), length in zip((lefts, rights), lengths):
        count = chosen(is_changed, _index(length), _index(0))
        _turn_rows(steps, first, second, count, angle, is_shorter)
    steps.raise_to(flag, chosen(is_changed, one, zero))
