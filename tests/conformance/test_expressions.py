"""Random expressions of the ops that networks are made of, and their gradients.

They are larger than `test_programs` has them, and of composed ops: kernels get tiles, copies, lanes
and rows in scratch, with odd ends, padding and picked elements in all of them. Values are those of
NumPy in float64; a gradient, along a random direction, is the slope of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegrad import Tensor

SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 33, 64, 65, 100)
MOST_ELEMENTS = 12_000
# Each is compiled, forward and backward.
EXAMPLES = max(1, settings().max_examples // 6)
# At least so many.
LEAVES = 3
ERROR = 1e-3
STEP = 1e-6

Array = Any


class Move(NamedTuple):
    """A step as tensors take it and as arrays do, from the values so far."""

    name: str
    ours: Callable[[list[Tensor]], Tensor]
    theirs: Callable[[list[Array]], Array]


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def logsumexp(x: Array, axis: int) -> Array:
    top = x.max(axis, keepdims=True)
    return top + np.log(np.exp(x - top).sum(axis, keepdims=True))


def unary() -> Iterator[Move]:
    yield Move("relu", lambda v: v[-1].relu(), lambda v: np.maximum(v[-1], 0))
    yield Move("tanh", lambda v: v[-1].tanh(), lambda v: np.tanh(v[-1]))
    yield Move("sigmoid", lambda v: v[-1].sigmoid(), lambda v: 1 / (1 + np.exp(-v[-1])))
    yield Move("exp", lambda v: v[-1].clip(-3, 3).exp(), lambda v: np.exp(np.clip(v[-1], -3, 3)))
    yield Move("root", lambda v: (v[-1].abs() + 1).sqrt(), lambda v: np.sqrt(np.abs(v[-1]) + 1))
    yield Move("sin", lambda v: v[-1].sin(), lambda v: np.sin(v[-1]))


def along(axis: int, size: int, generator: Any) -> Iterator[Move]:
    """Steps that do something along an axis, the shape of whose result may be another."""
    yield Move(f"softmax {axis}", lambda v: v[-1].softmax(axis), lambda v: softmax(v[-1], axis))
    yield Move(
        f"log_softmax {axis}",
        lambda v: v[-1].log_softmax(axis),
        lambda v: v[-1] - logsumexp(v[-1], axis),
    )
    yield Move(
        f"logsumexp {axis}",
        lambda v: v[-1].logsumexp(axis, keepdim=True),
        lambda v: logsumexp(v[-1], axis),
    )
    yield Move(
        f"normalized {axis}",
        lambda v: (v[-1] - v[-1].mean(axis, True)) / (v[-1].var(axis, True, 0) + 1).sqrt(),
        lambda v: (
            (v[-1] - v[-1].mean(axis, keepdims=True)) / np.sqrt(v[-1].var(axis, keepdims=True) + 1)
        ),
    )
    yield Move(f"cumsum {axis}", lambda v: v[-1].cumsum(axis) * 0.3,
               lambda v: v[-1].cumsum(axis) * 0.3)  # fmt: skip
    yield Move(f"cummax {axis}", lambda v: v[-1].cummax(axis).values,
               lambda v: np.maximum.accumulate(v[-1], axis))  # fmt: skip
    yield Move(f"below the largest {axis}", lambda v: v[-1].max(axis, True) - v[-1],
               lambda v: v[-1].max(axis, keepdims=True) - v[-1])  # fmt: skip
    yield Move(f"sum {axis}", lambda v: v[-1].sum(axis, True) * 0.5,
               lambda v: v[-1].sum(axis, keepdims=True) * 0.5)  # fmt: skip
    yield Move(f"flip {axis}", lambda v: v[-1].flip(axis), lambda v: np.flip(v[-1], axis))
    by = int(generator.integers(1, 4))
    yield Move(f"roll {by} {axis}", lambda v: v[-1].roll(by, axis),
               lambda v: np.roll(v[-1], by, axis))  # fmt: skip
    yield Move(f"and rolled {by} {axis}", lambda v: v[-1] + v[-1].roll(by, axis),
               lambda v: v[-1] + np.roll(v[-1], by, axis))  # fmt: skip
    places = generator.integers(0, size, int(generator.integers(1, size + 4)))
    yield Move(
        f"index_select {axis} {len(places)}",
        lambda v: v[-1].index_select(axis, Tensor(places)),
        lambda v: np.take(v[-1], places, axis),
    )
    yield Move(
        f"gather {axis}",
        lambda v: v[-1].gather(axis, v[-1].argmax(axis, keepdim=True)),
        lambda v: v[-1].max(axis, keepdims=True),
    )
    start = int(generator.integers(0, size))
    count = int(generator.integers(1, size - start + 1))
    window = (slice(None),) * axis + (slice(start, start + count),)
    yield Move(f"narrow {axis} {start} {count}", lambda v: v[-1].narrow(axis, start, count),
               lambda v: v[-1][window])  # fmt: skip
    strided = (slice(None),) * axis + (slice(start, None, 2),)
    yield Move(f"every second {axis} from {start}", lambda v: v[-1][strided],
               lambda v: v[-1][strided])  # fmt: skip


def moves(shapes: list[tuple[int, ...]], generator: Any) -> list[Move]:
    """Steps from the last value, alone or with an earlier one."""
    shape = shapes[-1]
    axis = int(generator.integers(len(shape)))
    found = [*unary(), *along(axis, shape[axis], generator)]
    order = tuple(int(place) for place in generator.permutation(len(shape)))
    found.append(Move(f"permute {order}", lambda v: v[-1].permute(order),
                      lambda v: v[-1].transpose(order)))  # fmt: skip
    around = tuple((int(a), int(b)) for a, b in generator.integers(0, 4, (len(shape), 2)))
    found.append(
        Move(f"pad {around}", lambda v: v[-1].pad(around), lambda v: np.pad(v[-1], around))
    )
    flat = (-1, shape[axis]) if len(shape) > 2 else (1, *shape)
    found.append(Move(f"reshape {flat}", lambda v: v[-1].reshape(flat),
                      lambda v: v[-1].reshape(flat)))  # fmt: skip
    if len(shape) >= 2:
        found += [
            Move("tril", lambda v: v[-1].tril(), lambda v: np.tril(v[-1])),
            Move("by itself", lambda v: (v[-1] @ v[-1].transpose(-1, -2)) * 0.1,
                 lambda v: (v[-1] @ np.swapaxes(v[-1], -1, -2)) * 0.1),
        ]  # fmt: skip
    for other, theirs in enumerate(shapes):
        found += pairs(shape, theirs, other, axis)
    return found


def pairs(shape: tuple[int, ...], theirs: tuple[int, ...], other: int, axis: int) -> Iterator[Move]:
    try:
        np.broadcast_shapes(shape, theirs)
    except ValueError:
        pass
    else:
        yield Move(f"+ {other}", lambda v: v[-1] + v[other], lambda v: v[-1] + v[other])
        yield Move(f"* {other}", lambda v: v[-1] * v[other].tanh(),
                   lambda v: v[-1] * np.tanh(v[other]))  # fmt: skip
        if other < LEAVES:
            # Of what was computed, a rounded zero may be on either side.
            yield Move(f"where {other}", lambda v: (v[other] > 0).where(v[-1], 0.5),
                       lambda v: np.where(v[other] > 0, v[-1], 0.5))  # fmt: skip
    if len(theirs) == 2 and shape[-1] == theirs[0]:
        yield Move(f"@ {other}", lambda v: (v[-1] @ v[other]) * 0.3,
                   lambda v: (v[-1] @ v[other]) * 0.3)  # fmt: skip
    if len(shape) == len(theirs) and all(
        a == b for place, (a, b) in enumerate(zip(shape, theirs, strict=True)) if place != axis
    ):
        yield Move(f"cat {other} {axis}", lambda v: v[-1].cat(v[other], dim=axis),
                   lambda v: np.concatenate([v[-1], v[other]], axis))  # fmt: skip


class Expression(NamedTuple):
    """Leaves, and steps that each continue from the last value."""

    leaves: list[Array]
    steps: list[Move]
    generator: Any

    def __repr__(self) -> str:
        return f"{[leaf.shape for leaf in self.leaves]}: " + ", ".join(s.name for s in self.steps)

    def ours(self, leaves: list[Tensor]) -> Tensor:
        values = list(leaves)
        for step in self.steps:
            values.append(step.ours(values))
        return values[-1]

    def theirs(self, leaves: list[Array]) -> Array:
        values = list(leaves)
        for step in self.steps:
            values.append(step.theirs(values))
        return values[-1]


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    """Up to seven steps, none of whose values are large."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns, others = (int(size) for size in generator.choice(SIZES, 3))
    shapes: list[tuple[int, ...]] = [(columns, others), (rows, 1), (rows, columns)]
    if generator.integers(2):
        shapes.append((int(generator.integers(1, 5)), rows, columns))
    leaves = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    values, steps = [leaf.astype(np.float64) for leaf in leaves], []
    for _ in range(draw(st.integers(2, 7))):
        found = moves([value.shape for value in values], generator)
        step = found[int(generator.integers(len(found)))]
        made = step.theirs(values)
        if 0 < made.size <= MOST_ELEMENTS and np.abs(made).max() < 1e3:
            steps.append(step)
            values.append(made)
    return Expression(leaves, steps, generator)


@given(expressions())
@settings(max_examples=EXAMPLES)
def test_values_and_gradients(expression: Expression) -> None:
    wide = [leaf.astype(np.float64) for leaf in expression.leaves]
    exact = expression.theirs(wide)
    leaves = [Tensor(leaf, requires_grad=True) for leaf in expression.leaves]
    result = expression.ours(leaves)
    scale = max(1.0, np.abs(exact).max())
    np.testing.assert_allclose(result.numpy(), exact, rtol=ERROR, atol=ERROR * scale)

    weights = expression.generator.standard_normal(exact.shape)
    ways = [expression.generator.standard_normal(leaf.shape) for leaf in wide]
    (result * Tensor(weights.astype(np.float32))).sum().backward()
    found = [np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]
    sides = [
        expression.theirs([leaf + sign * STEP * way for leaf, way in zip(wide, ways, strict=True)])
        for sign in (1, -1)
    ]
    slopes = (sides[0] - sides[1]) / (2 * STEP)
    terms = [slope * way for slope, way in zip(found, ways, strict=True)]
    reach = sum(np.abs(term).sum() for term in terms) + np.abs(slopes * weights).sum()
    # Where equal elements are the largest, or a zero is rectified, the slope is not one number.
    assert abs(sum(term.sum() for term in terms) - (slopes * weights).sum()) <= ERROR * (1 + reach)
