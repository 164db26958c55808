"""Factorisations of matrices as kernels with derivatives, and what is asked of their arguments.

A kernel takes matrices along one axis, (count, rows, columns), in at least float32; see factors.py.
Its derivative is the closed form, in the same methods, so that it has derivatives too.
linear_algebra.py makes of these what a user calls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ShapeError
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import check_devices, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.matrices import elimination, factors
from tilegrad.tensor.matrices.elimination import Factors
from tilegrad.tensor.ordering.counting import Counting

__all__ = ["Factorising", "epsilon", "take", "unfit"]

Rule = Callable[..., Sequence[Any]]


class Factorising(Counting):
    """Checks of matrices, and the steps from which linear algebra is composed."""

    __slots__ = ()

    # checks and shapes

    def _matrix(self, name: str) -> tuple[int, int]:
        """(rows, columns); raises ShapeError if there are no two axes."""
        if self.ndim < 2:
            raise ShapeError(
                f"{name}: a matrix has two axes, this has {self.ndim}", tensor=describe(self.uop)
            )
        sizes = self._sizes
        return sizes[-2], sizes[-1]

    def _square(self, name: str) -> int:
        rows, columns = self._matrix(name)
        if rows != columns:
            raise ShapeError(
                f"{name}: the matrix is {rows} x {columns}, not square", tensor=describe(self.uop)
            )
        return rows

    def _matrices(self) -> Self:
        """All matrices along one axis, in at least float32."""
        sizes = self._sizes
        return self._wide().reshape(math.prod(sizes[:-2]), *sizes[-2:])

    def _each_matrix(self, function: Callable[[Self], Self], shape: Sequence[Any]) -> Self:
        made = function(self._matrices())
        return made.reshape(*self.shape[:-2], *shape).cast(self._floating().dtype)

    def _identity(self) -> Self:
        """As many unit matrices as this has matrices, of its size."""
        count, size = self._sizes[0], self._sizes[-1]
        unit = type(self).eye(size, dtype=self.dtype, device=self.device)
        return unit.reshape(1, size, size).expand(count, size, size)._apart()

    def _system(self, name: str, other: Self, function: Callable[[Self, Self], Self]) -> Self:
        """A function of matrices and right sides, which are broadcast, along one axis each."""
        size = self._square(name)
        check_devices(name, [self, other])
        is_vector = other.ndim == 1
        right = other.reshape(-1, 1) if is_vector else other
        if right.ndim < 2 or right._sizes[-2] != size:
            raise unfit(name, self, other)
        lead = _broadcast(name, self, right)
        columns = right._sizes[-1]
        dtype = promote(self._floating().dtype, right._floating().dtype)
        count = math.prod(lead)
        if 0 in (count, size, columns):
            x = type(self).zeros(*lead, size, columns, dtype=dtype, device=self.device)
        else:
            left = self.cast(dtype).expand(*lead, size, size)._matrices()
            made = function(left, right.cast(dtype).expand(*lead, size, columns)._matrices())
            x = made.reshape(*lead, size, columns).cast(dtype)
        return x.squeeze(-1) if is_vector else x

    # kernels with their derivatives

    def _by_rule(
        self, name: str, shape: tuple[int, ...], build: Any, inputs: list[Self], rule: Rule
    ) -> Self:
        """As `_by_kernel`; `rule` takes the gradient, the result and `inputs`, and gives their
        gradients.
        """
        return self._by_kernel(name, shape, self.dtype, build, inputs, self._gradient_by(rule))

    def _factored(
        self, kernel: Factors, sizes: tuple[int, ...], inputs: list[Self], rule: Rule
    ) -> Self:
        """As `_by_rule`, by a kernel for any sizes. `rule` takes these from its operands."""
        return self._by_family(kernel.of(self.dtype), sizes, inputs, self._gradient_by(rule))

    def _gradient_by(self, rule: Rule) -> Callable[[UOp, UOp], list[UOp | None]]:
        # The kernel outlives this tensor, where a template holds it.
        tensor_of, device, variables = type(self)._of, self.device, self._variables

        def gradient(g: UOp, node: UOp) -> list[UOp | None]:
            operands = [tensor_of(each, device, variables) for each in (g, node, *node.src)]
            return [None if operand is None else operand.uop for operand in rule(*operands)]

        return gradient

    def _solved(self, right: Self) -> Self:
        """Solutions by elimination."""
        count, size, columns = right._sizes

        def rule(g: Self, made: Self, a: Self, right: Self) -> list[Self]:
            _, size, columns = right._sizes
            x = made._slice(2, size, size + columns)
            flow = a.transpose(1, 2)._solved(g._slice(2, size, size + columns))
            return [-(flow @ x.transpose(1, 2)), flow]

        made = self._factored(elimination.SOLVE, (count, size, columns), [self, right], rule)
        return made._slice(2, size, size + columns)

    def _solved_triangle(
        self, right: Self, *, is_upper: bool, is_unit: bool, is_transposed: bool = False
    ) -> Self:
        """Solutions for triangles."""
        if is_transposed:
            return self.transpose(1, 2)._solved_triangle(
                right, is_upper=not is_upper, is_unit=is_unit
            )
        count, size, columns = right._sizes

        def rule(g: Self, x: Self, a: Self, _: Self) -> list[Self]:
            flow = a._solved_triangle(g, is_upper=is_upper, is_unit=is_unit, is_transposed=True)
            both = -(flow @ x.transpose(1, 2))
            edge = int(is_unit)
            return [both.triu(edge) if is_upper else both.tril(-edge), flow]

        kernel = elimination.TRIANGULAR.with_options(is_upper=is_upper, is_unit=is_unit)
        return self._factored(kernel, (count, size, columns), [self, right], rule)

    def _eliminated(self) -> Self:
        """(matrices, size, size + 1): L and U in one, and the order of the rows."""
        count, size, _ = self._sizes

        def rule(g: Self, made: Self, a: Self) -> list[Self]:
            return [a._eliminated_rule(g, made)]

        return self._factored(elimination.ELIMINATE, (count, size), [self], rule)

    def _eliminated_rule(self, g: Self, made: Self) -> Self:
        """The gradient of matrices from that of `made`, what they were eliminated to."""
        count, size, _ = self._sizes
        both, flow = made._slice(2, 0, size), g._slice(2, 0, size)
        lower = both.tril(-1) + both._identity()
        upper = both.triu()
        # A pivot of zero is made a tiny one, which cancels where the gradient is finite.
        pivots = both.diagonal(0, 1, 2)
        largest = upper.abs().max((1, 2)).reshape(count, 1)
        tiny = largest.eq(0).where(1.0, largest * epsilon(made))
        upper = upper + (pivots.eq(0).where(tiny, 0.0).reshape(count, size, 1)) * (both._identity())
        inner = (lower.transpose(1, 2) @ flow.tril(-1)).tril(-1)
        inner = inner + (flow.triu() @ upper.transpose(1, 2)).triu()
        left = lower._solved_triangle(inner, is_upper=False, is_unit=True, is_transposed=True)
        right = upper._solved_triangle(left.transpose(1, 2), is_upper=True, is_unit=False)
        order = made._slice(2, size, size + 1).detach()
        is_row = order.eq(self._iota(size)).cast(made.dtype)
        return is_row.transpose(1, 2) @ right.transpose(1, 2)

    def _pivots(self) -> tuple[Self, Self]:
        """The sign of the exchanges that elimination made, and the pivots."""
        return self._pivots_of(self._eliminated())

    def _pivots_of(self, packed: Self) -> tuple[Self, Self]:
        count, size, _ = self._sizes
        order = packed._slice(2, size, size + 1).detach().reshape(count, size)
        position = self._iota(size)
        is_inverted = order.reshape(count, size, 1) > order.reshape(count, 1, size)
        is_before = position.reshape(size, 1) < position.reshape(1, size)
        inversions = (is_inverted & is_before).sum((1, 2), dtype=dtypes.int32)
        sign = (1 - 2 * (inversions % 2)).cast(packed.dtype)
        return sign, packed._slice(2, 0, size).diagonal(0, 1, 2)

    def _reflected(self, vectors: int) -> tuple[Self, Self]:
        """Q with `vectors` columns, and R with `vectors` rows."""
        count, rows, columns = self._sizes
        length = min(rows, columns)
        total = factors.householder_size(rows, columns, vectors)

        def factors_of(made: Self) -> tuple[Self, Self]:
            edge = columns * (rows + 1)
            packed_rows = made._slice(1, 0, edge).reshape(count, columns, rows + 1)
            q = made._slice(1, edge, total).reshape(count, vectors, rows).transpose(1, 2)
            return q, packed_rows._slice(2, 0, vectors).transpose(1, 2).triu()

        def rule(g: Self, made: Self, a: Self) -> list[Self]:
            (q, r), (flow_q, flow_r) = factors_of(made), factors_of(g)
            q, flow_q = q._slice(2, 0, length), flow_q._slice(2, 0, length)
            r, flow_r = r._slice(1, 0, length), flow_r._slice(1, 0, length)
            beyond: Self | None = None
            if columns > length:
                # Beyond the square part R is Q^T times what is there.
                rest, flow = a._slice(2, length, columns), flow_r._slice(2, length, columns)
                beyond = q @ flow
                flow_q = flow_q + rest @ flow.transpose(1, 2)
                r, flow_r = r._slice(2, 0, length), flow_r._slice(2, 0, length)
            inner = r @ flow_r.transpose(1, 2) - flow_q.transpose(1, 2) @ q
            inner = inner.tril() + inner.tril(-1).transpose(1, 2)
            total_flow = flow_q + q @ inner
            solved = r._solved_triangle(
                total_flow.transpose(1, 2), is_upper=True, is_unit=False
            ).transpose(1, 2)
            return [solved if beyond is None else solved.cat(beyond, dim=2)]

        build = functools.partial(
            factors.householder, count=count, rows=rows, columns=columns, vectors=vectors
        )
        return factors_of(self._by_rule("householder", (count, total), build, [self], rule))

    def _rotated(self) -> tuple[Self, Self, Self]:
        """U (rows, columns), S and V, for rows >= columns."""
        count, rows, columns = self._sizes
        total = factors.singular_size(rows, columns)
        build = functools.partial(
            factors.singular, count=count, rows=rows, columns=columns, epsilon=epsilon(self)
        )
        a = self.detach()
        raw = a._by_kernel("singular", (count, total), a.dtype, build, [a])
        edge = columns * rows
        # Where a singular value is zero its left vector is missing: reflections complete them.
        unit = raw._slice(1, 0, edge).reshape(count, columns, rows).transpose(1, 2)
        q, r = unit._reflected(columns)
        signs = (r.diagonal(0, 1, 2) < 0).where(-1.0, 1.0).reshape(count, 1, columns)
        u = (q * signs).cast(a.dtype)
        width = (rows + columns + 1) * columns
        both = u.reshape(count, edge).cat(raw._slice(1, edge, width), dim=1)

        def factors_of(made: Self) -> tuple[Self, Self, Self]:
            middle = edge + columns * columns
            left = made._slice(1, 0, edge).reshape(count, rows, columns)
            right = made._slice(1, edge, middle).reshape(count, columns, columns)
            return left, made._slice(1, middle, width), right.transpose(1, 2)

        def rule(g: Self, made: Self, _: Self, __: Self) -> list[Self | None]:
            return [None, _singular_rule(factors_of(made), factors_of(g))]

        made = self._by_rule("take", (count, width), take, [both, self], rule)
        return factors_of(made)


def _singular_rule(made: Any, flow: Any) -> Any:
    """The gradient of a matrix from those of its singular vectors and values (Townsend)."""
    (u, s, v), (flow_u, flow_s, flow_v) = made, flow
    count, size = s._sizes
    row, column = s.reshape(count, 1, size), s.reshape(count, size, 1)
    gaps = (row - column) * (row + column)
    # Not divided by 0 where that is not taken, as its own derivative would be NaN.
    is_equal = gaps.eq(0)
    gaps = is_equal.where(1.0, gaps)

    def rotation(x: Any, g: Any) -> Any:
        inner = x.transpose(1, 2) @ g
        return is_equal.where(0.0, (inner - inner.transpose(1, 2)) / gaps)

    inner = rotation(u, flow_u) * row + column * rotation(v, flow_v)
    inner = inner + flow_s.reshape(count, size, 1) * inner._identity()
    inverse = row.eq(0).where(0.0, 1 / row.eq(0).where(1.0, row))
    total = u @ inner @ v.transpose(1, 2)
    beyond_u = flow_u - u @ (u.transpose(1, 2) @ flow_u)
    beyond_v = flow_v - v @ (v.transpose(1, 2) @ flow_v)
    total = total + (beyond_u * inverse) @ v.transpose(1, 2)
    return total + (u * inverse) @ beyond_v.transpose(1, 2)


def take(made: UOp, value: UOp, *_: UOp) -> UOp:
    """made = value: the position where a gradient goes another way."""
    position = UOp.range(made.dtype.size, 0)  # type: ignore[attr-defined]
    return UOp.sink(made.store(position, value.load(position)).end(position))


def epsilon(x: Any) -> float:
    """The distance from 1 to the next number of at least float32."""
    return 2.0**-52 if x.dtype is dtypes.float64 else 2.0**-23


def unfit(name: str, left: Any, right: Any) -> ShapeError:
    return ShapeError(
        f"{name}: {show_shape(left.shape)} and {show_shape(right.shape)} do not fit",
        left=describe(left.uop),
        right=describe(right.uop),
        rule="right is a vector, or a matrix, with as many rows as the matrix on the left",
    )


def _broadcast(name: str, left: Any, right: Any) -> tuple[int, ...]:
    """The common sizes before the matrices."""
    one, other = left._sizes[:-2], right._sizes[:-2]
    length = max(len(one), len(other))
    one, other = (1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other
    if any(a != b and 1 not in (a, b) for a, b in zip(one, other)):
        raise unfit(name, left, right)
    return tuple(b if a == 1 else a for a, b in zip(one, other))
