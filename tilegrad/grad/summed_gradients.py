"""Sums as the backward pass makes them: wide, one instead of several, and with plain indices.

*Factors before the sum.* A factor that is the same along all summed axes multiplies the sum, not
each term. That is less work; and the gradients of a normalisation by its input, its weight and its
bias, which all sum the same terms times other factors, so share two sums:

    before   SUM(x * expand(y) / c, a)
    after    SUM(x, a) * y / c

Distances from a mean over the same axes have the sum 0, which is not computed: the derivative of a
variance by its mean.

Two things more make the gradients of windows, and so of convolution and pooling, single kernels
like those of the forward pass.

*One sum.* The gradient of a convolution by its input is a sum over channels, moved, then a sum
over the positions of the kernel along one axis, moved, and again along the next. Computed one after
another, the first sums would go through memory, many times as large as the input. They are one sum
over all those axes: movement neither adds nor repeats an element, so it may as well come before
the sum.

    before   SUM(move(SUM(x, a)), b)
    after    SUM(move'(x), a and b)      move' leaves the axes a, now the last ones, where they are

Not so where x is a product and one factor is the same all along an axis of b, as for a bias before
a matrix product: the first sum is made once and then summed, which is less work, and it is wanted
by itself more often than not.

*Plain indices.* Windows are rows that were cut a little longer than the axis, so that each begins
one step later than the one before (tensor/views/patches.py). Undone op by op, that leaves a sum of
rows that each began one step earlier, and no simplification makes `(i + r*n) % (n + 1)` simple. The
same sum over the rows in reverse order begins one step later again:

    before   dx[i] = sum of a[q, p] where (q*(n + d) + p) % n is i
    after    dx[i] = sum over r of reversed(a)[r, i + d*r], after enough zeros in front
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.ir.op import Ops
from tilegrad.ir.runs import runs_of
from tilegrad.ir.uop import UOp, prod

__all__ = ["is_zero", "sum_axes"]

Move = tuple[Ops, tuple[Any, ...]]

# Movement that repeats no element.
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP})
# The zeros that a PAD adds are summed too: while they make the work no more than this many times
# larger, one sum is better than two.
_MOST_GROWTH = 4
# Depth to which the operations of a factor are looked at, and the most factors of a product.
_DEPTH = 3
_MOST_FACTORS = 16


def sum_axes(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over `axes`, which keep size 1; half and bfloat16 are summed in float32.

    Terms that were narrowed just before are taken as they were: to round each would waste the wide
    sum.
    """
    if not axes:
        return x
    if any(x.shape[axis] == 0 for axis in axes):
        # A sum without terms is 0, whatever its factors are: 0 times one that is infinite is not.
        return _zeros(x, axes)
    wide = sum_dtype(x.dtype)
    terms, factors = _without_factors(x, axes)
    if factors:
        # In the dtype of the sum, whose range is that of all terms.
        total = sum_axes(terms.cast(wide), axes)
        for op, factor in factors if not is_zero(total) else ():
            total = UOp(op, wide, (total, factor.cast(wide)))
        return total.cast(x.dtype)
    if _is_around_mean(x, axes):
        return _zeros(x, axes)
    base, moves = _unmoved(x, wide)
    plain = _unsheared(base.shape, moves, axes)
    moves = plain or moves
    terms = _moved(base.cast(wide), moves) if plain or base.dtype is wide else x.cast(wide)
    is_sum = base.op is Ops.REDUCE_AXIS and base.dtype is wide and base.combine is Ops.ADD
    if is_sum and _is_worth(base, terms) and not _is_repeated(base, moves, axes):
        total = _one_sum(base, moves, axes)
    else:
        total = UOp(Ops.REDUCE_AXIS, wide, (terms,), (Ops.ADD, axes))
    return total.cast(x.dtype)


def _zeros(x: UOp, axes: tuple[int, ...]) -> UOp:
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    zero = UOp.const(x.dtype, 0.0)
    return _moved(zero, [(Ops.RESHAPE, (1,) * len(shape)), (Ops.EXPAND, shape)])


def is_zero(x: UOp) -> bool:
    """Whether `x` is seen to be 0 everywhere."""
    for _ in range(_MOST_FACTORS if x.is_constant else 0):
        if x.op.is_movement or x.op is Ops.CAST:
            x = x.src[0]
        elif x.op is Ops.MUL:
            zeros = [factor for factor in x.src if factor.op is Ops.CONST and factor.arg == 0]
            x = zeros[0] if zeros else x.src[0]
    return x.op is Ops.CONST and x.arg == 0


def _without_factors(x: UOp, axes: tuple[int, ...]) -> tuple[UOp, list[tuple[Ops, UOp]]]:
    """`x` without the factors and divisors that are invariant along `axes`; and these, with size 1
    there, each with its op. A value without any other factor keeps its own.
    """
    rest: list[UOp] = []
    found: list[tuple[Ops, UOp]] = []
    waiting = [x]
    while waiting:
        term = waiting.pop()
        if len(rest) + len(found) + len(waiting) > _MOST_FACTORS:
            return x, []
        divisor = _narrow(term.src[1], axes) if term.op is Ops.FDIV else None
        factor = _narrow(term, axes)
        if factor is not None:
            found.append((Ops.MUL, factor))
        elif divisor is not None:
            found.append((Ops.FDIV, divisor))
            waiting.append(term.src[0])
        elif term.op is Ops.MUL:
            waiting += term.src[::-1]
        elif term.op is Ops.ADD and term.src[0] is term.src[1]:
            # The derivative of a square.
            found.append((Ops.MUL, UOp.const(term.dtype, 2.0)))
            waiting.append(term.src[0])
        else:
            rest.append(term)
    if not found or not rest:
        return x, []
    terms = rest[0]
    for factor in rest[1:]:
        terms = UOp(Ops.MUL, x.dtype, (terms, factor))
    return terms, found


def _narrow(x: UOp, axes: tuple[int, ...], depth: int = _DEPTH) -> UOp | None:
    """`x` with size 1 along `axes`, if it is seen to be the same all along them."""
    if x.op is Ops.CONST or x.shape == ():
        # One number, which may be unknown until a step is run.
        return x
    if x.op is Ops.EXPAND:
        source = x.src[0]
        if any(source.shape[axis] != 1 for axis in axes):
            return None
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
        return source if shape == source.shape else UOp(Ops.EXPAND, x.dtype, (source,), shape)
    if not depth or not (x.op.is_alu or x.op is Ops.CAST):
        return None
    src: list[UOp] = []
    for source in x.src:
        narrow = _narrow(source, axes, depth - 1)
        if narrow is None:
            return None
        src.append(narrow)
    return x.replace(src=tuple(src))


def _is_around_mean(x: UOp, axes: tuple[int, ...]) -> bool:
    """Whether `x` is a value less its mean over `axes`."""
    if x.op is not Ops.ADD:
        return False
    count = prod(x.shape[axis] for axis in axes)
    for value, rest in (x.src, x.src[::-1]):
        total = UOp(Ops.REDUCE_AXIS, value.dtype, (value,), (Ops.ADD, axes))
        taken = (
            _narrow(rest, axes) if isinstance(count, int) and count and rest.op is Ops.MUL else None
        )
        if taken is not None and taken is total * (1 / count) * -1.0:
            return True
    return False


def _unmoved(x: UOp, wide: DType) -> tuple[UOp, list[Move]]:
    """The value below the movement of `x`, before it was narrowed from `wide`, and the movement,
    innermost first."""
    moves: list[Move] = []
    while x.op in _MOVES or (x.op is Ops.CAST and x.src[0].dtype is wide):
        if x.op in _MOVES:
            moves.append((x.op, x.arg))
        x = x.src[0]
    return x, moves[::-1]


def _moved(x: UOp, moves: list[Move]) -> UOp:
    for op, arg in moves:
        x = UOp(op, x.dtype, (x,), arg)
    return x


def _is_worth(base: UOp, terms: UOp) -> bool:
    before, after = prod(base.shape), prod(terms.shape)
    return isinstance(before, int) and isinstance(after, int) and after <= _MOST_GROWTH * before


def _is_repeated(base: UOp, moves: list[Move], axes: tuple[int, ...]) -> bool:
    """Whether `base` sums products of two factors that both repeat along some axis, as those of a
    matrix product do, and one of them along one of `axes`, as they are after `moves`.
    """
    product = base.src[0]
    while product.op in _MOVES or product.op is Ops.CAST:
        moves, product = _before(product, moves), product.src[0]
    if product.op is not Ops.MUL:
        return False
    shapes = [product.shape]
    for move in moves:
        shapes.append(_shape_after(shapes[-1], move))
    everywhere = range(len(product.shape))
    moved = [{axis for axis in everywhere if _varies(factor, {axis})} for factor in product.src]
    if not (moved[0] - moved[1] and moved[1] - moved[0]):
        return False
    for axis in axes:
        summed = {axis}
        for move, before, after in reversed(list(zip(moves, shapes, shapes[1:]))):
            summed = _axes_before(move, before, after, summed)
        if summed & (moved[0] ^ moved[1]) and not all(summed & each for each in moved):
            return True
    return False


def _before(moved: UOp, moves: list[Move]) -> list[Move]:
    return moves if moved.op is Ops.CAST else [(moved.op, moved.arg), *moves]


def _axes_before(
    move: Move, before: tuple[Any, ...], after: tuple[Any, ...], axes: set[int]
) -> set[int]:
    """The axes of `before` that those of `after` may come from."""
    op, arg = move
    if op is Ops.PERMUTE:
        return {arg[axis] for axis in axes}
    if op is Ops.RESHAPE:
        runs = runs_of(before, after)
        return {axis for ours, theirs in runs if not axes.isdisjoint(theirs) for axis in ours}
    return axes


def _varies(x: UOp, axes: set[int]) -> bool:
    """Whether the values of `x` may differ along `axes`."""
    while axes and x.op is not Ops.CONST:
        if x.op is Ops.EXPAND:
            axes = {axis for axis in axes if x.src[0].shape[axis] == x.shape[axis]}
        elif x.op is Ops.PERMUTE or x.op is Ops.RESHAPE:
            axes = _axes_before((x.op, x.arg), x.src[0].shape, x.shape, axes)
        elif x.op is Ops.PAD:
            if any(x.arg[axis] != (0, 0) for axis in axes):
                return True
        elif x.op not in (Ops.CAST, Ops.SHRINK, Ops.FLIP):
            return any(x.shape[axis] != 1 for axis in axes)
        x = x.src[0]
    return False


def _one_sum(base: UOp, moves: list[Move], axes: tuple[int, ...]) -> UOp:
    """The sum over `axes` of the sum `base` after `moves`."""
    x, inner = base.src[0], base.axes
    order = tuple(axis for axis in range(len(x.shape)) if axis not in inner)
    sizes = tuple(x.shape[axis] for axis in inner)
    x = UOp(Ops.PERMUTE, x.dtype, (x,), (*order, *inner))
    x = UOp(Ops.RESHAPE, x.dtype, (x,), (*base.shape, *sizes))
    x = _moved(x, [(op, (*arg, *_unchanged(op, arg, sizes))) for op, arg in moves])
    shape = x.shape[: len(x.shape) - len(sizes)]
    last = range(len(shape), len(x.shape))
    total = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, (*axes, *last)))
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return UOp(Ops.RESHAPE, x.dtype, (total,), reduced)


def _unchanged(op: Ops, arg: tuple[Any, ...], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Entries to append to the argument of `op` so that it leaves the last axes, of `sizes`,
    unchanged.
    """
    if op is Ops.RESHAPE:
        return sizes
    if op is Ops.PERMUTE:
        return tuple(range(len(arg), len(arg) + len(sizes)))
    if op is Ops.PAD:
        return tuple((0, 0) for _ in sizes)
    if op is Ops.SHRINK:
        return tuple((0, size) for size in sizes)
    return tuple(False for _ in sizes)


def _unsheared(
    shape: tuple[Any, ...], moves: list[Move], axes: tuple[int, ...]
) -> list[Move] | None:
    """Movement with the same sum over `axes` as `moves`, if they end by undoing windows.

        before   k rows padded to length n*t + d, joined, and cut into rows of n
        after    k rows in reverse, padded with d*(k - 1) zeros in front, each begun d later than
                 the one before

    The sum is over the rows. Element p of row q lands at (q*d + p) % n, and where that never wraps
    at q*d + p.
    """
    shapes = [shape]
    for move in moves:
        shapes.append(_shape_after(shapes[-1], move))
    if any(not isinstance(size, int) for sizes in shapes for size in sizes):
        return None
    found = _sheared_rows(shapes, moves)
    if found is None or len(shapes[-1]) - 2 not in axes or len(shapes[-1]) - 1 in axes:
        return None
    begin, k, width, length = found
    lead, n = shapes[begin][:-2], shapes[-1][-1]
    step = length % n
    # Zeros between the elements of a strided window: the last ones may go.
    length = width - _zeros_at_the_end(shapes, moves, begin)
    wraps = step * (k - 1) + length > n or (k - 1) * length + length > shapes[-1][-2] * n
    if step == 0 or wraps:
        return None
    whole = tuple((0, size) for size in lead)
    none = tuple((0, 0) for _ in lead)
    long = n + step * (k - 1)
    cut = [(Ops.SHRINK, (*whole, (0, k), (0, length)))] if length < width else []
    return [
        *moves[:begin],
        *cut,
        (Ops.FLIP, (*(False for _ in lead), True, False)),
        (Ops.PAD, (*none, (0, 0), (step * (k - 1), n - length))),
        (Ops.RESHAPE, (*lead, k * long)),
        (Ops.PAD, (*none, (0, k * step))),
        (Ops.RESHAPE, (*lead, k, long + step)),
        (Ops.SHRINK, (*whole, (0, k), (0, n))),
    ]


def _sheared_rows(
    shapes: list[tuple[Any, ...]], moves: list[Move]
) -> tuple[int, int, int, int] | None:
    """(where, k, width, length), if `moves` from `where` on pad rows, join them and cut others.

    The first rows are (..., k, width), padded to `length`.
    """
    if len(moves) < 2 or moves[-1][0] is not Ops.RESHAPE or len(shapes[-1]) < 2:
        return None
    lead, n = shapes[-1][:-2], shapes[-1][-1]
    at = len(moves) - 2
    if moves[at][0] in (Ops.PAD, Ops.SHRINK) and _changes_only_the_end(shapes[at], moves[at]):
        at -= 1
    if at < 0 or n == 0:
        return None
    is_joined = moves[at][0] is Ops.RESHAPE and shapes[at + 1][:-1] == shapes[at][:-2] == lead
    if not is_joined:
        return None
    k, length = shapes[at][-2:]
    if at and moves[at - 1][0] is Ops.PAD and _changes_only_the_end(shapes[at - 1], moves[at - 1]):
        at -= 1
    return at, k, shapes[at][-1], length


def _changes_only_the_end(shape: tuple[int, ...], move: Move) -> bool:
    """Whether a PAD or SHRINK adds or takes elements only behind the last axis."""
    op, arg = move
    if op is Ops.PAD:
        return all(around == (0, 0) for around in arg[:-1]) and arg[-1][0] == 0
    return all(window == (0, size) for window, size in zip(arg[:-1], shape)) and arg[-1][0] == 0


def _zeros_at_the_end(shapes: list[tuple[Any, ...]], moves: list[Move], end: int) -> int:
    """How many zeros end each row after `moves[:end]`, if they put some behind each element."""
    if end < 2 or moves[end - 1][0] is not Ops.RESHAPE or moves[end - 2][0] is not Ops.PAD:
        return 0
    before, padded, joined = shapes[end - 2], shapes[end - 1], shapes[end]
    is_spread = (
        len(padded) == len(joined) + 1
        and padded[: len(joined) - 1] == joined[:-1]
        and before[-1] == 1
        and _changes_only_the_end(before, moves[end - 2])
    )
    return int(padded[-1]) - 1 if is_spread else 0


def _shape_after(shape: tuple[Any, ...], move: Move) -> tuple[Any, ...]:
    op, arg = move
    if op is Ops.RESHAPE:
        return arg
    if op is Ops.PERMUTE:
        return tuple(shape[axis] for axis in arg)
    if op is Ops.PAD:
        return tuple(size + sum(around) for size, around in zip(shape, arg, strict=True))
    if op is Ops.SHRINK:
        return tuple(end - start for start, end in arg)
    return shape
