# ruff: noqa: E501 - a table: one statement a line
"""The statements of loops (`loops.py`): how each is written with tensors and with NumPy.

In a line `{a}`, `{b}` and `{c}` are values, `{p}`, `{q}` and `{r}` numbers that change from step to
step, `{t}` what is assigned to. NumPy's values have the same names in upper case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["BOUND", "STATEFUL", "STATEMENTS", "Numbers", "Seen", "StatementKind"]

Shape = tuple[int, ...]
# The longest axis, as a rule and now and then.
_LONGEST, _VERY_LONG = 24, 300


@dataclass(frozen=True)
class Seen:
    """A value over all steps: its shapes, and the kind of its dtype.

    Attributes:
        name: what the loop calls it.
        shapes: one a step, or more.
        kind: f, i or b.
        is_state: whether it was there before the first step.
    """

    name: str
    shapes: tuple[Shape, ...]
    kind: str
    is_state: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes, -1 if that changes."""
        counts = {len(shape) for shape in self.shapes}
        return counts.pop() if len(counts) == 1 else -1

    def least(self, axis: int = 0) -> int:
        """The shortest that an axis was."""
        return min(shape[axis] for shape in self.shapes)


class Numbers(Protocol):
    """Makes numbers that change from step to step, and says what these are called."""

    def integer(self, low: int, high: int) -> str:
        """The name of an integer."""

    def factor(self) -> str:
        """The name of a number of any kind."""


Params = tuple[str, ...] | None
Draw = Callable[[random.Random, Numbers, Sequence[Seen]], Params]


def _none(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return ()


def _factor(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.factor(),)


def _factors(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return numbers.factor(), numbers.factor()


def _power(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(0, 3),)


def _count(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(1, _LONGEST),)


def _size(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    low, high = chance.choice(((1, _LONGEST), (2, _LONGEST), (2, _LONGEST), (2, _VERY_LONG)))
    return numbers.integer(low, high), str(chance.choice((3, 4, 5))), str(chance.randrange(50))


def _two_sizes(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return numbers.integer(1, _LONGEST), numbers.integer(1, 6), str(chance.randrange(50))


def _list(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return numbers.factor(), numbers.factor(), str(chance.randrange(1, 5))


def _axis(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (str(chance.randrange(-1, given[0].ndim)),) if given[0].ndim > 0 else None


def _axis_or_none(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return chance.choice((("None",), _axis(chance, numbers, given)))


def _changing_axis(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(0, given[0].ndim - 1),) if given[0].ndim > 1 else None


def _position(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 1:
        return None
    least = given[0].least()
    return (numbers.integer(chance.choice((0, 0, 0, -least)), least - 1),)


def _column(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 2:
        return None
    return (numbers.integer(0, given[0].least(-1) - 1),)


def _both(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 2:
        return None
    return numbers.integer(0, given[0].least() - 1), numbers.integer(0, given[0].least(1) - 1)


def _slice(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    """Where a slice begins, and its length, which stays."""
    if given[0].ndim < 1 or given[0].least() < 3:
        return None
    length = chance.randint(2, min(given[0].least() - 1, 6))
    return numbers.integer(0, given[0].least() - length), str(length)


def _half(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    """Where a slice begins that has half of the rows, however many there are."""
    if given[0].ndim < 1 or given[0].least() < 2:
        return None
    return (numbers.integer(0, given[0].least() // 2),)


def _slice_or_not(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    """A slice, and at which steps it is one."""
    found = _slice(chance, numbers, given)
    return None if found is None else (*found, numbers.integer(0, 1))


def _slice_of_matrix(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return _slice(chance, numbers, given) if given[0].ndim == 2 else None


def _slice_and_length(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    """Where a slice begins, and its length, which change."""
    if given[0].ndim < 1 or given[0].least() < 4:
        return None
    longest = min(given[0].least() // 2, _LONGEST)
    return numbers.integer(0, given[0].least() - longest), numbers.integer(1, longest)


def _two_positions(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    """Where a slice to the end begins, and a position in it."""
    if given[1].ndim < 1 or given[1].least() < 3:
        return None
    first = given[1].least() // 2
    return numbers.integer(0, first), numbers.integer(0, given[1].least() - first - 1)


def _end(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 1 or given[0].least() < 2:
        return None
    return (numbers.integer(1, min(given[0].least(), _LONGEST)),)


def _rows(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 1:
        return None
    last = given[0].least() - 1
    return numbers.integer(0, last), numbers.integer(0, last), numbers.integer(0, last)


def _pad(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    if given[0].ndim < 1:
        return None
    return numbers.integer(0, 3), numbers.integer(0, 2), ", (0, 0)" * (given[0].ndim - 1)


def _shift(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(-3, 3),) if given[0].ndim > 0 else None


def _matrix(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(-2, 2),) if given[0].ndim == 2 else None


def _two_axes(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return () if given[0].ndim == 2 else None


def _divisor(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(1, 5),)


def _shifted(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(0, 4),)


def _rare(chance: random.Random, numbers: Numbers, given: Sequence[Seen]) -> Params:
    return (numbers.integer(0, 1),)


@dataclass(frozen=True)
class StatementKind:
    """One kind of statement.

    Attributes:
        name: what it is called.
        takes: for each value that it takes, the kinds of dtype that suit.
        line: what is written with tensors, the right side unless it `is_write`.
        numpys: the same with NumPy, where it is another text.
        draw: the numbers for values; None where these do not suit.
        is_alike: whether the values have equal shapes.
        is_write: whether it changes its first value, a state.
        changes: whether it changes its first value, a state, and makes another.
        weight: how often it is drawn.
    """

    name: str
    takes: tuple[str, ...]
    line: str
    numpys: str = ""
    draw: Draw = _none
    is_alike: bool = False
    is_write: bool = False
    changes: bool = False
    weight: float = 1.0


_FI, _ANY = "fi", "fib"
_ROWS = [
    # New data, of lengths that change.
    StatementKind("new", (), "Tensor(data(k, ({p}, {q}), {r}))", "data(k, ({p}, {q}), {r}).astype('f8')", _size, weight=4),
    StatementKind("new_vector", (), "Tensor(data(k, ({p},), {r}))", "data(k, ({p},), {r}).astype('f8')", _size, weight=2),
    StatementKind("new_of_two_sizes", (), "Tensor(data(k, ({p}, {q}), {r}))", "data(k, ({p}, {q}), {r}).astype('f8')", _two_sizes),
    StatementKind("new_of_one_size", (), "Tensor(data(k, ({q}, 4), {r}))", "data(k, ({q}, 4), {r}).astype('f8')", _size, weight=2),
    StatementKind("new_transposed", (), "Tensor(data(k, ({q}, {p}), {r}).T)", "data(k, ({q}, {p}), {r}).T.astype('f8')", _size),
    StatementKind("new_integers", (), "Tensor((data(k, ({p},), {r}) * 2).astype('i4'))", "(data(k, ({p},), {r}) * 2).astype('i8')", _size),
    StatementKind("new_list", (), "Tensor([{p}, {q}, 0.5, {r}])", "np.array([{p}, {q}, 0.5, {r}])", _list),
    StatementKind("new_scalar", (), "Tensor({p}) * 1.0", "np.array({p} * 1.0)", _factor),
    StatementKind("arange", (), "Tensor.arange({p})", "np.arange({p})", _count),
    StatementKind("full", (), "Tensor.full(({p}, {q}), {r}) * 1.0", "np.full(({p}, {q}), {r}) * 1.0", lambda chance, numbers, given: (numbers.integer(1, _LONGEST), str(chance.choice((3, 4))), numbers.factor())),
    StatementKind("ones", (), "Tensor.ones({p}, 4)", "np.ones(({p}, 4))", _count),
    # Slices, most of memory at positions that change.
    StatementKind("row", (_ANY,), "{a}[{p}]", "{a}[{p}, ...]", _position, weight=5),
    StatementKind("column", (_ANY,), "{a}[..., {p}]", "", _column, weight=2),
    StatementKind("element", (_ANY,), "{a}[{p}, {q}]", "{a}[{p}, {q}, ...]", _both),
    StatementKind("slice", (_ANY,), "{a}[{p}:{p} + {q}]", "", _slice, weight=4),
    StatementKind("slice_and_length", (_ANY,), "{a}[{p}:{p} + {q}]", "", _slice_and_length, weight=3),
    StatementKind("slice_beside_half", (_FI,), "{a}[{p}:{p} + -(-{a}.shape[0] // 2)] * 2 - {a}.chunk(2)[0]", "{a}[{p}:{p} + -(-{a}.shape[0] // 2)] * 2 - {a}[:-(-{a}.shape[0] // 2)]", _half),
    StatementKind("columns", (_ANY,), "{a}[:, {p}:]", "", _column),
    StatementKind("first", (_ANY,), "{a}[:{p}]", "", _end, weight=2),
    StatementKind("last", (_ANY,), "{a}[-{p}:]", "", _end),
    StatementKind("every_other", (_ANY,), "{a}[::2]", "", _axis),
    StatementKind("backwards", (_ANY,), "{a}[::-1]", "", _axis),
    StatementKind("some_rows", (_ANY,), "{a}[[{p}, {q}, {r}]]", "", _rows),
    StatementKind("rows_of_tensor", (_ANY,), "{a}[Tensor([{p}, {q}, {r}])]", "{a}[[{p}, {q}, {r}]]", _rows),
    StatementKind("select", (_ANY,), "{a}.index_select(0, Tensor([{p}, {q}]))", "{a}[[{p}, {q}]]", _rows),
    StatementKind("where_mask", ("f",), "{a}[{a} > 0.0625]", "", _axis),
    StatementKind("rows_by_integers", (_ANY, "i"), "{a}[{b}.abs() % {a}.shape[0]]", "{a}[abs({b}) % {a}.shape[0]]", _position),
    # Views and movement.
    StatementKind("transposed", (_ANY,), "{a}.T", "", _two_axes, weight=2),
    StatementKind("flat", (_ANY,), "{a}.reshape(-1)", "", _axis),
    StatementKind("pairs", (_ANY,), "{a}.reshape(-1, 2)", "", _axis),
    StatementKind("unsqueezed", (_ANY,), "{a}.unsqueeze({p})", "np.expand_dims({a}, {p})", _axis),
    StatementKind("flip", (_ANY,), "{a}.flip({p})", "np.flip({a}, {p}).copy()", _axis),
    StatementKind("padded", (_ANY,), "{a}.pad((({p}, {q}){r}))", "np.pad({a}, (({p}, {q}){r}))", lambda chance, numbers, given: _pad(chance, numbers, given) if given[0].ndim > 1 else None),
    StatementKind("roll", (_ANY,), "{a}.roll({p}, 0)", "np.roll({a}, {p}, 0)", _shift),
    StatementKind("tril", (_FI,), "{a}.tril({p})", "np.tril({a}, {p})", _matrix),
    StatementKind("repeat", (_ANY,), "{a}.repeat({p}, 1)", "np.tile({a}, ({p}, 1))", lambda chance, numbers, given: (numbers.integer(1, 3),) if given[0].ndim == 2 else None),
    StatementKind("joined", (_FI, _FI), "{a}.cat({b}, dim=0)", "np.concatenate([{a}, {b}])", _axis, weight=2),
    StatementKind("joined_four", ("f", "f"), "Tensor.cat({a}, {b}, {a}, {b} * 2)", "np.concatenate([{a}, {b}, {a}, {b} * 2])", _axis),
    StatementKind("joined_either", ("f", "f"), "Tensor.cat({a}, {b}, ({a}, {b})[{p}])", "np.concatenate([{a}, {b}, ({a}, {b})[{p}]])", lambda chance, numbers, given: _rare(chance, numbers, given) if given[0].ndim > 0 else None, is_alike=True),
    StatementKind("stacked", ("f", "f"), "{a}.stack({b}, dim={p})", "np.stack([{a}, {b}], {p})", lambda chance, numbers, given: (str(chance.randrange(2)),) if given[0].ndim > 0 else None, is_alike=True),
    StatementKind("stacked_four", ("f", "f"), "Tensor.stack({a}, {b}, {b}, {a})", "np.stack([{a}, {b}, {b}, {a}])", _none, is_alike=True),
    StatementKind("expanded", ("f",), "{a}.expand({p}, *{a}.shape)", "np.broadcast_to({a}, ({p}, *{a}.shape))", lambda chance, numbers, given: (numbers.integer(1, 5),)),
    StatementKind("halves", ("f",), "{a}.chunk(2)[0]", "{a}[:-(-{a}.shape[0] // 2)]", lambda chance, numbers, given: () if given[0].ndim > 0 and given[0].least() > 1 else None),
    # Arithmetic.
    StatementKind("tanh", ("f",), "{a}.tanh()", "np.tanh({a})", weight=2),
    StatementKind("sin", ("f",), "{a}.sin()", "np.sin({a})"),
    StatementKind("exp", ("f",), "(-{a}.abs()).exp()", "np.exp(-abs({a}))"),
    StatementKind("relu", ("f",), "{a}.relu()", "np.maximum({a}, 0)"),
    StatementKind("square", (_FI,), "{a} * {a}", weight=2),
    StatementKind("negative", (_FI,), "-{a}"),
    StatementKind("float", (_ANY,), "{a} * 1.0"),
    StatementKind("double", ("f",), "({a}.double() / 3).float()", "{a} / 3"),
    StatementKind("half", ("f",), "{a}.half().float()", "{a}.astype('f2').astype('f8')"),
    StatementKind("contiguous", (_ANY,), "{a}.contiguous() * 1", "{a} * 1"),
    StatementKind("times", (_FI,), "{a} * {p}", "", _factor, weight=4),
    StatementKind("plus", (_FI,), "{a} + {p}", "", _factor, weight=3),
    StatementKind("less", (_FI,), "{p} - {a}", "", _factor, weight=2),
    StatementKind("minus", (_FI,), "{a} - {p}", "", _factor, weight=2),
    StatementKind("divided", ("f",), "{a} / {p}", "", _divisor, weight=2),
    StatementKind("power", ("f",), "{a} ** {p}", "", _power),
    StatementKind("at_most", ("f",), "{a}.minimum({p})", "np.minimum({a}, {p})", _factor),
    StatementKind("clip", ("f",), "{a}.clip(-1, {p})", "np.clip({a}, -1, {p})", _divisor),
    StatementKind("affine", ("f",), "{a} * {p} + {q}", "", _factors, weight=2),
    # Numbers beside constants that may be equal to them.
    StatementKind("share", (_FI,), "{a}.sum(-1) * {p}", "", _factor, weight=2),
    StatementKind("by_length", ("f",), "{a}.sum(0) / {a}.shape[0]", "", _axis),
    StatementKind("inverse_length", ("f",), "{a} * (1 / {a}.shape[0])", "", _axis),
    StatementKind("three_quarters", ("f",), "{a} * 0.75"),
    StatementKind("beside_mean", ("f",), "{a}.sum(-1) * ({p} * 0.3 or 1 / {a}.shape[-1]) - {a}.mean(-1) * 2", "", lambda chance, numbers, given: (numbers.integer(0, 3),) if given[0].ndim > 0 else None, weight=2),
    StatementKind("beside_leaky", ("f",), "{a}.leaky_relu(0.1) + {a} * ({p} * 0.3 or 0.1)", "np.where({a} > 0, {a}, {a} * 0.1) + {a} * ({p} * 0.3 or 0.1)", _shifted),
    StatementKind("beside_relu6", ("f",), "({a} * 5).relu6() + ({a} * 5).relu().minimum({p} or 6)", "np.clip({a} * 5, 0, 6) + np.clip({a} * 5, 0, {p} or 6)", _shifted),
    StatementKind("masked", ("f",), "{a}.masked_fill({a} > 0.0625, {p})", "np.where({a} > 0.0625, {p}, {a})", _factor),
    StatementKind("mask", ("f",), "{a} > {p} + 0.0625", "", _rare),
    StatementKind("remainder", ("i",), "{a} % {p}", "", _divisor),
    StatementKind("floor", ("i",), "{a} // {p}", "", _divisor),
    StatementKind("shift", ("i",), "{a} << {p}", "", _shifted),
    StatementKind("sum_of", (_FI, _FI), "{a} + {b}", "", _none, weight=5),
    StatementKind("product", (_FI, _FI), "{a} * {b}", "", _none, weight=5),
    StatementKind("difference", (_FI, _FI), "{a} - {b}", "", _none, weight=3),
    StatementKind("quotient", ("f", "f"), "{a} / ({b}.abs() + 1)", "{a} / (abs({b}) + 1)"),
    StatementKind("larger", ("f", "f"), "{a}.maximum({b})", "np.maximum({a}, {b})"),
    StatementKind("chosen", ("b", "f", "f"), "{a}.where({b}, {c})", "np.where({a}, {b}, {c})"),
    StatementKind("chosen_number", ("b", "f"), "{a}.where({b}, {p} * 1.0)", "np.where({a}, {b}, {p})", _factor),
    # Values that are one at some steps, and two at others.
    StatementKind("either", ("f", "f"), "({a}, {b})[{p}]", "", _rare, is_alike=True, weight=2),
    StatementKind("chosen_either", ("f", "f"), "({a} > 0.0625).where({b}, ({a}, {b})[{p}])", "np.where({a} > 0.0625, {b}, ({a}, {b})[{p}])", _rare, is_alike=True),
    StatementKind("greater", ("f", "f"), "({a} > {b} + 0.0625) * 1.0"),
    StatementKind("matrix_product", ("f", "f"), "{a} @ {b}", "", lambda chance, numbers, given: () if given[0].ndim > 0 and given[1].ndim > 0 else None, weight=4),
    StatementKind("transposed_product", ("f", "f"), "{a} @ {b}.T", "", lambda chance, numbers, given: () if given[0].ndim == 2 == given[1].ndim else None, weight=2),
    # Reductions.
    StatementKind("sum", (_ANY,), "{a}.sum({p})", "", _axis_or_none, weight=4),
    StatementKind("mean", ("f",), "{a}.mean({p})", "", _axis_or_none, weight=2),
    StatementKind("sum_with_axis", ("f",), "{a}.sum({p}, keepdim=True)", "{a}.sum({p}, keepdims=True)", _axis, weight=2),
    StatementKind("sum_of_changing_axis", ("f",), "{a}.sum({p})", "", _changing_axis),
    StatementKind("max", (_FI,), "{a}.max({p})", "", _axis),
    StatementKind("min", (_FI,), "{a}.min({p})", "", _axis_or_none),
    StatementKind("argmax", ("f",), "{a}.argmax({p})", "", _axis),
    StatementKind("cumsum", ("f",), "{a}.cumsum({p})", "", _axis),
    StatementKind("softmax", ("f",), "{a}.softmax({p})", "np.exp({a}) / np.exp({a}).sum({p}, keepdims=True)", _axis),
    StatementKind("logsumexp", ("f",), "{a}.logsumexp({p})", "np.log(np.exp({a}).sum({p}))", _axis),
    StatementKind("spread", ("f",), "{a}.var({p}, correction=0)", "{a}.var({p})", _axis),
    StatementKind("sorted", ("f",), "{a}.sort({p})[0]", "np.sort({a}, {p})", _axis),
    StatementKind("any", ("b",), "{a}.any(0)", "", _axis),
    StatementKind("norm", ("f",), "({a}.square().sum({p}) + 1).sqrt()", "np.sqrt((({a}) ** 2).sum({p}) + 1)", _axis),
    # Several results, and as many calls as a number says.
    StatementKind("rows_added", ("f",), "sum(row * (i + 1) for i, row in enumerate({a}))", "", lambda chance, numbers, given: () if given[0].ndim > 1 else None),
    StatementKind("both_halves", ("f",), "(lambda x, y: x.sum(0) + y.sum(0) * 2)(*{a}.chunk(2))", "(lambda n: {a}[:n].sum(0) + {a}[n:].sum(0) * 2)(-(-{a}.shape[0] // 2))", lambda chance, numbers, given: () if given[0].ndim > 0 and given[0].least() > 1 else None),
    StatementKind("top", ("f",), "(lambda found: found[0] * 2 + found[1] * 0)({a}.topk(2, dim=0))", "np.sort({a}, 0)[::-1][:2] * 2", lambda chance, numbers, given: () if given[0].ndim > 0 and given[0].least() > 1 else None),
    StatementKind("repeated", ("f", "f"), "(lambda x: [x := x * 0.5 + {b} for _ in range({p})][-1])({a})", "", lambda chance, numbers, given: (numbers.integer(1, 5),), is_alike=True, weight=2),
    # Pending values are computed in the middle of a step.
    StatementKind("realized", (_ANY,), "{a}.realize()", "{a}"),
    StatementKind("rarely_read", (_ANY,), "({a}.numpy(), {a})[1] if k % 7 == 3 else {a}", "{a}"),
    StatementKind("times_item", ("f", "f"), "{a} * {b}.mean().item()", "{a} * float({b}.mean())", weight=2),
    StatementKind("times_item_if", ("f", "f"), "{a} * 2 if {b}.sum().item() > 0.0625 else {a} - 1", "", weight=2),
    StatementKind("times_element", ("f", "f"), "{a} * {b}.reshape(-1)[{p}].item()", "{a} * float({b}.reshape(-1)[{p}])", lambda chance, numbers, given: (numbers.integer(0, min(map(math.prod, given[1].shapes)) - 1),)),
    StatementKind("times_item_of_view", ("f", "f"), "{a} * {b}[{p}:][{q}].reshape(-1)[0].item()", "{a} * float({b}[{p}:][{q}, ...].reshape(-1)[0])", _two_positions),
    StatementKind("plus_counted", ("f", "i"), "{a} + (int({b}.reshape(-1)[{p}] + {q}) - 3)", "{a} + (int({b}.reshape(-1)[{p}]) + {q} - 3)", lambda chance, numbers, given: (numbers.integer(0, min(map(math.prod, given[1].shapes)) - 1), numbers.integer(0, 5))),
    StatementKind("branch", ("f", "f"), "{a} + {b} if {p} else {a} - {b} * 2", "", _rare, weight=2),
    StatementKind("without_gradients", ("f", "f"), "no_grad()(lambda: {a} * {b})()", "{a} * {b}"),
    StatementKind("after_an_error", ("f",), "(np.testing.assert_raises(Exception, {a}.reshape, (977, 3)), {a} * 2)[1]", "{a} * 2"),
    StatementKind("of_random_numbers", ("f",), "{a} + (Tensor.rand(*{a}.shape) < 2) * 1.0", "{a} + 1.0"),
    StatementKind("of_new_random_numbers", ("f",), "{a} + (drawn.pop() != (drawn.append(Tensor.rand(9)) or drawn[0])).any() * 1.0", "{a} + 1.0"),
    # Gradients, and captured functions.
    StatementKind("gradient", ("f",), "(lambda w: (w * {p}).tanh().sum().gradient(w)[0])({a}.detach().requires_grad_())", "{p} / np.cosh({a} * {p}) ** 2", _factor, weight=2),
    StatementKind("gradient_of_product", ("f", "f"), "(lambda w: ((w * {b}).sin()).sum().gradient(w)[0])({a}.detach().requires_grad_())", "np.cos({a} * {b}) * {b}", is_alike=True, weight=2),
    StatementKind("gradient_of_either", ("f", "f"), "(lambda w, v: ((w * v + w).sin()).sum().gradient((w, v)[{p}])[0])({a}.detach().requires_grad_(), {b}.detach().requires_grad_())", "np.cos({a} * {b} + {a}) * ({b} + 1, {a})[{p}]", _rare, is_alike=True, weight=2),
    StatementKind("gradient_of_leaf_or_not", ("f", "f"), "(lambda w, v: ((w * v + w).sin()).sum().gradient(w)[0])({a}.detach().requires_grad_(), {b}.detach().requires_grad_(bool({p})))", "np.cos({a} * {b} + {a}) * ({b} + 1)", _rare, is_alike=True),
    StatementKind("gradient_after_none", ("f",), "(lambda w: (lambda f: ([no_grad()(f)() for _ in range({p})], f().sum().gradient(w)[0])[1])(lambda: (w * {q}).tanh()))({a}.detach().requires_grad_())", "{q} / np.cosh({a} * {q}) ** 2", lambda chance, numbers, given: (numbers.integer(0, 3), numbers.factor())),
    StatementKind("gradient_of_row", ("f",), "(lambda w: (w[{p}] * {q}).square().sum().gradient(w)[0])({a}.detach().requires_grad_())", "(np.arange({a}.shape[0]) == {p} % {a}.shape[0]).reshape(-1, *[1] * ({a}.ndim - 1)) * 2 * {a} * {q} ** 2", lambda chance, numbers, given: None if given[0].ndim < 1 else (numbers.integer(0, given[0].least() - 1), numbers.factor()), weight=2),
    StatementKind("gradient_by_backward", ("f", "f"), "(lambda w: (({b} @ w.T).tanh().sum().backward(), w.grad)[1])({a}.detach().requires_grad_())", "(1 / np.cosh({b} @ {a}.T) ** 2).T @ {b}", lambda chance, numbers, given: () if given[0].ndim == 2 == given[1].ndim else None, weight=2),
    StatementKind("captured", ("f",), "twice({a})", "TWICE({a})", weight=3),
    StatementKind("captured_with_two", ("f", "f"), "mixed({a}, {b})", "MIXED({a}, {b})", weight=3),
    StatementKind("captured_with_either", ("f", "f"), "mixed({a}, ({a}, {b})[{p}])", "MIXED({a}, ({a}, {b})[{p}])", _rare, is_alike=True, weight=2),
    StatementKind("captured_with_number", ("f",), "scaled({a}, {p})", "SCALED({a}, {p})", _factor),
    StatementKind("captured_pick", ("f",), "picked({a}, {p})[0]", "PICKED({a}, {p})[0]", lambda chance, numbers, given: None if given[0].ndim < 1 else (numbers.integer(0, min(given[0].least() - 1, 5)),), weight=2),
    StatementKind("captured_view", ("f",), "viewed({a})[{p}]", "VIEWED({a})[{p}]", lambda chance, numbers, given: (str(chance.randrange(2)),) if given[0].ndim == 2 else None, weight=2),
    StatementKind("captured_view_of_slice", ("f",), "viewed({a}[{p}:{p} + {q}])[0]", "VIEWED({a}[{p}:{p} + {q}])[0]", _slice_of_matrix, weight=2),
    StatementKind("captured_view_of_what_changes", ("f",), "(lambda found: ({a}.mul_(0.5), found * 1)[1])(viewed({a}[{p}:{p} + {q}])[0])", "(lambda found: (np.multiply({a}, 0.5, {a}), found * 1)[1])(VIEWED({a}[{p}:{p} + {q}])[0])", _slice_of_matrix, changes=True, weight=2),
    StatementKind("captured_sum", ("f",), "picked({a}, 0)[1]", "PICKED({a}, 0)[1]", _axis),
    StatementKind("captured_before", ("f",), "(kept.append(twice({a})), kept[-{p}:][0] * 1)[1]", "(KEPT.append(TWICE({a})), KEPT[-{p}:][0] * 1)[1]", lambda chance, numbers, given: (str(chance.choice((2, 3, 5))),), weight=2),
    StatementKind("captured_gradient", ("f", "f"), "sloped({a}.detach().requires_grad_(), {b})", "SLOPED({a}, {b})", is_alike=True),
    StatementKind("captured_with_state", ("f",), "seen({a})", "SEEN({a})", weight=2),
    StatementKind("captured_write", ("f",), "wrote({a})", "WROTE({a})", lambda chance, numbers, given: () if set(given[0].shapes) == {(4,)} else None, weight=2),
    # Writes to a state, also through views of it.
    StatementKind("set_row", ("f", "f"), "{a}[{p}] = {b}", "", _position, is_write=True, weight=3),
    StatementKind("detached_from_what_changes", ("f",), "(lambda other: ({a}.mul_(0.5), other * 1)[1])({a}.detach())", "(np.multiply({a}, 0.5, {a}), {a} * 1)[1]", changes=True, weight=2),
    StatementKind("view_of_what_changes", ("f",), "(lambda other: ({a}.mul_(0.5), other * 1)[1])({a}.T)", "(lambda other: (np.multiply({a}, 0.5, {a}), other * 1)[1])({a}.T)", _two_axes, changes=True),
    StatementKind("slice_of_what_changes", ("f",), "(lambda other: ({a}.mul_(0.5), other * 1)[1])({a}[{p}:{p} + {q}])", "(lambda other: (np.multiply({a}, 0.5, {a}), other * 1)[1])({a}[{p}:{p} + {q}])", _slice, changes=True, weight=2),
    StatementKind("what_a_view_changes", ("f",), "(lambda other: (other.mul_(0.5), {a} * 1)[1])({a}[{p}:{p} + {q}])", "(lambda other: (np.multiply(other, 0.5, other), {a} * 1)[1])({a}[{p}:{p} + {q}])", _slice, changes=True, weight=2),
    StatementKind("set_number", ("f",), "{a}[{p}] = {q}", "", lambda chance, numbers, given: None if given[0].ndim < 1 else (numbers.integer(0, given[0].least() - 1), numbers.factor()), is_write=True, weight=2),
    StatementKind("set_slice", ("f", "f"), "{a}[{p}:{p} + {q}] = {b}", "", _slice, is_write=True, weight=2),
    StatementKind("set_column", ("f", "f"), "{a}[..., {p}] = {b}", "", _column, is_write=True, weight=2),
    StatementKind("add_to_row", ("f", "f"), "{a}[{p}] += {b}", "", _position, is_write=True, weight=2),
    StatementKind("shift_rows", ("f",), "{a}[1:] = {a}[:-1] * {p}", "", lambda chance, numbers, given: (numbers.factor(),) if given[0].ndim > 0 and given[0].least() > 1 else None, is_write=True),
    StatementKind("decay", ("f",), "{a}.mul_(0.5)", "{a} *= 0.5", is_write=True, weight=2),
    StatementKind("scale", ("f",), "{a}.mul_({p})", "{a} *= {p}", _factor, is_write=True),
    StatementKind("decay_and_add", ("f", "f"), "{a}.mul_(0.5).add_({b})", "{a} *= 0.5; {a} += {b}", is_write=True, is_alike=True, weight=2),
    StatementKind("assign", ("f", "f"), "{a}.assign({b})", "{a}[...] = {b}", is_write=True, is_alike=True, weight=2),
    StatementKind("copy", ("f", "f"), "{a}.copy_({b})", "{a}[...] = {b}", is_write=True, is_alike=True),
    StatementKind("fill", ("f",), "{a}.fill_({p})", "{a}[...] = {p}", _factor, is_write=True),
    StatementKind("write_transposed", ("f",), "{a}.T[{p}] = {q}", "", lambda chance, numbers, given: None if given[0].ndim != 2 else (numbers.integer(0, given[0].least(1) - 1), numbers.factor()), is_write=True),
    StatementKind("write_flat", ("f",), "{a}.view(-1)[{p}:].mul_(0.5)", "{a}.reshape(-1)[{p}:] *= 0.5", _position, is_write=True),
    StatementKind("write_half", ("f",), "{a}[:2].add_(0.25)", "{a}[:2] += 0.25", _axis, is_write=True),
    StatementKind("write_rows", ("f",), "{a}[Tensor([{p}, {q}])] = 0.5", "{a}[[{p}, {q}]] = 0.5", _rows, is_write=True),
    StatementKind("write_where", ("f",), "{a}[{a} > 0.0625] = {p}", "", _factor, is_write=True),
    StatementKind("captured_halving", ("f", "f"), "lowered({a}, {b})", "LOWERED({a}, {b})", _position, is_write=True, weight=2),
    StatementKind("captured_slice_halving", ("f", "f"), "lowered({a}[{p}:{p} + {q}] if {r} else ({a} * 0.5)[:{q}], {b})", "LOWERED({a}[{p}:{p} + {q}] if {r} else ({a} * 0.5)[:{q}], {b})", _slice_or_not, is_write=True, weight=2),
    StatementKind("captured_halving_beside", ("f", "f"), "lowered({a}[{p}:{p} + {q}], {a}[{p}] if {r} else {b})", "LOWERED({a}[{p}:{p} + {q}], {a}[{p}] if {r} else {b})", _slice_or_not, is_write=True, weight=2),
    # States that are bound anew.
    StatementKind("average", ("f", "f"), "{a} * 0.5 + {b}", "({a} * 0.5 + {b}).copy()", is_alike=True, is_write=True, weight=4),
    StatementKind("lengthen", ("f", "f"), "{a}.cat({b})[-{p}:]", "np.concatenate([{a}, {b}])[-{p}:]", _count, is_write=True, weight=3),
    StatementKind("start_again", ("f",), "{a}[:1] * 0.5 if k % 10 == 9 else {a} * 1", "", _axis, is_write=True),
    StatementKind("step", ("f", "f"), "({a} - {p} * ({a} * {b} - 0.5) * {b} / 8).detach()", "({a} - {p} * ({a} * {b} - 0.5) * {b} / 8).copy()", _rare, is_alike=True, is_write=True),
    # A parameter, which an optimizer changes.
    StatementKind("train", ("p", "f"), "(o0.zero_grad(), (({a} * {b}).tanh() - 0.5).square().mean().backward(), o0.step())", "G0 = (2 * (np.tanh({a} * {b}) - 0.5) / np.cosh({a} * {b}) ** 2 * {b} / {b}.size).reshape(-1, 4).sum(0); B0 = B0 * 0.5 + G0; {a} -= 0.125 * B0", lambda chance, numbers, given: () if given[1].ndim > 0 and {shape[-1] for shape in given[1].shapes} == {4} else None, is_write=True, weight=4),
    StatementKind("predict", ("p", "f"), "{a}.detach() * {b}", "{a} * {b}", weight=2),
    StatementKind("predict_without_gradients", ("p", "f"), "no_grad()(lambda: {a} + {b})()", "{a} + {b}"),
    StatementKind("gradient_of_parameter", ("p", "f"), "({a} * {b}).tanh().sum().gradient({a})[0].detach()", "({b} / np.cosh({a} * {b}) ** 2).reshape(-1, 4).sum(0)", lambda chance, numbers, given: () if given[1].ndim > 0 and {shape[-1] for shape in given[1].shapes} == {4} else None),
    StatementKind("gradient_beside_none", ("p", "f"), "(no_grad()(lambda: ({a} * {b}).tanh().sum())(), ({a} * {b}).tanh().sum().gradient({a})[0].detach())[1]", "({b} / np.cosh({a} * {b}) ** 2).reshape(-1, 4).sum(0)", lambda chance, numbers, given: () if given[1].ndim > 0 and {shape[-1] for shape in given[1].shapes} == {4} else None),
    StatementKind("gradients_added", ("p", "f"), "(o0.zero_grad(set_to_none=bool({p})), ({a} * {b}).sum().backward(), ({a} * {b}).sin().sum().backward(), {a}.grad.detach() * 1)[3]", "({b} * (1 + np.cos({a} * {b}))).reshape(-1, 4).sum(0)", lambda chance, numbers, given: (numbers.integer(0, 1),) if given[1].ndim > 0 and {shape[-1] for shape in given[1].shapes} == {4} else None, weight=2),
]  # fmt: skip
# Statements with memory that others look at, with values computed in the middle of a step, and with
# gradients.
STATEFUL = tuple([
    kind for kind in _ROWS
    if kind.is_write or kind.changes or "p" in kind.takes
    or any(word in kind.name for word in ("captured", "gradient", "times_", "beside", "branch", "repeated", "either"))
])  # fmt: skip
# Writes whose line is what a state is bound to.
BOUND = frozenset({"average", "lengthen", "start_again", "step"})
STATEMENTS = {kind.name: kind for kind in _ROWS}
