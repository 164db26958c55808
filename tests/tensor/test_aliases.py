"""Views are aliases: a write to one is seen by its base and by every other view, whatever the base
is and whether anything has run. NumPy's own views are the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from tests.tensor.helpers import close
from tilegrad import Tensor, dtypes, jit, nn
from tilegrad.base.errors import DTypeError, ShapeError

Array = np.ndarray[Any, Any]
START = np.arange(1, 17, dtype=np.float32).reshape(4, 4)


def diagonal(a: Array) -> Array:
    return np.lib.stride_tricks.as_strided(a, (4,), (sum(a.strides),), writeable=True)


def windows(a: Array) -> Array:
    return sliding_window_view(a, 2, axis=1, writeable=True)[:, ::2]


def flat_steps(a: Array) -> Array:
    return as_strided(a.reshape(-1)[1:], (3, 2), (20, 8), writeable=True)


# Ours, and what NumPy has for it.
VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "reshape": (lambda x: x.reshape(2, 8), lambda a: a.reshape(2, 8)),
    "view": (lambda x: x.view(16), lambda a: a.reshape(16)),
    "view_as": (lambda x: x.view_as(Tensor.empty(8, 2)), lambda a: a.reshape(8, 2)),
    "flatten": (lambda x: x.flatten(), lambda a: a.reshape(16)),
    "unflatten": (lambda x: x.unflatten(0, (2, 2)), lambda a: a.reshape(2, 2, 4)),
    "squeeze": (lambda x: x.unsqueeze(1).squeeze(1), lambda a: a),
    "unsqueeze": (lambda x: x.unsqueeze(0), lambda a: a[None]),
    "T": (lambda x: x.T, lambda a: a.T),
    "permute": (lambda x: x.permute(1, 0), lambda a: a.transpose(1, 0)),
    "transpose": (lambda x: x.transpose(0, 1), lambda a: a.T),
    "swapaxes": (lambda x: x.swapaxes(0, 1), lambda a: a.swapaxes(0, 1)),
    "movedim": (lambda x: x.movedim(0, 1), lambda a: np.moveaxis(a, 0, 1)),
    "row": (lambda x: x[1], lambda a: a[1]),
    "element": (lambda x: x[1, 2], lambda a: a[1, 2:3].reshape(())),
    "slice": (lambda x: x[1:3], lambda a: a[1:3]),
    "steps": (lambda x: x[::2, 1::3], lambda a: a[::2, 1::3]),
    "backwards": (lambda x: x[::-1, ::-2], lambda a: a[::-1, ::-2]),
    "new axis": (lambda x: x[:, None, 1:], lambda a: a[:, None, 1:]),
    "select": (lambda x: x.select(1, 2), lambda a: a[:, 2]),
    "narrow": (lambda x: x.narrow(1, 1, 2), lambda a: a[:, 1:3]),
    "shrink": (lambda x: x.shrink(((0, 2), (1, 4))), lambda a: a[:2, 1:]),
    "chunk": (lambda x: x.chunk(2, 1)[1], lambda a: a[:, 2:]),
    "split": (lambda x: x.split(3)[0], lambda a: a[:3]),
    "tensor_split": (lambda x: x.tensor_split(2)[1], lambda a: a[2:]),
    "unbind": (lambda x: x.unbind(1)[3], lambda a: a[:, 3]),
    "iteration": (lambda x: list(x)[2], lambda a: a[2]),
    "zip": (lambda x: next(iter(zip(x[1:], x)))[0], lambda a: a[1]),
    "diagonal": (lambda x: x.diagonal(), diagonal),
    "unfold": (lambda x: x.unfold(1, 2, 2), windows),
    "as_strided": (lambda x: x.as_strided((3, 2), (5, 2), 1), flat_steps),
    "detach": (lambda x: x.detach(), lambda a: a),
    "contiguous": (lambda x: x.contiguous(), lambda a: a),
    "view of a view": (lambda x: x.T[1:].reshape(3, 2, 2)[:, 1], lambda a: a.T[1:, 2:]),
    "rearrange": (lambda x: x.rearrange("(a b) c -> c a b", a=2),
                  lambda a: a.reshape(2, 2, 4).transpose(2, 0, 1)),
}  # fmt: skip
ORIGINS: dict[str, Callable[[], Tensor]] = {
    "memory": lambda: Tensor(START).realize(),
    "host": lambda: Tensor(START.tolist()),
    "computed": lambda: Tensor(START) * 2 - Tensor(START),
    "computed and realized": lambda: (Tensor(START) * 2 - Tensor(START)).realize(),
    "range": lambda: Tensor.arange(1, 17).reshape(4, 4).float() * 1,
    "clone": lambda: Tensor(START).clone(),
    "leaf": lambda: Tensor(START, requires_grad=True).detach(),
    "written": lambda: Tensor.zeros(4, 4).assign(Tensor(START)),
    "borrowed": lambda: _borrowed(),
    "view": lambda: Tensor(np.stack([START, START])).realize()[1],
    "lazy view": lambda: (Tensor(np.stack([START, START])) * 1)[1].T.T,
}
WRITES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Array], Any]]] = {
    "fill": (lambda v: v.fill_(9), lambda a: a.fill(9)),
    "add": (lambda v: v.add_(v * 2), lambda a: np.add(a, a * 2, out=a)),
    "set": (lambda v: v.__setitem__(..., 7), lambda a: a.__setitem__(..., 7)),
}
_kept: list[Tensor] = []


def _borrowed() -> Tensor:
    source = Tensor(START).realize()
    _kept[:] = [(source * 1.5).realize()]
    return (source * 1.5).realize() / 1.5


# Every view with two origins and every origin with several views; the nightly run has all.
PAIRS = [
    pytest.param(
        view,
        origin,
        marks=[] if (number + place) % 6 == 0 else [pytest.mark.nightly],
        id=f"{view} of {origin}",
    )
    for number, view in enumerate(VIEWS)
    for place, origin in enumerate(ORIGINS)
]


@pytest.mark.parametrize(("view", "origin"), PAIRS)
def test_a_write_is_seen_by_the_base_and_by_other_views(view: str, origin: str) -> None:
    """Views taken before and after, read or not read before, and a write to the base besides."""
    ours, theirs = VIEWS[view]
    for number, (write, expect) in enumerate(WRITES.values()):
        x, array = ORIGINS[origin](), START.copy()
        before, other = x[1:], x.T
        seen, values = ours(x), theirs(array)
        pending, was = seen.sum() + x, values.sum() + array
        if number == 1:
            Tensor.realize(seen, other)
        write(seen)
        expect(values)
        after = x.reshape(2, 8)
        for each, wanted in [
            (x, array), (seen, values), (before, array[1:]), (other, array.T),
            (after, array.reshape(2, 8)), (pending, was),
        ]:  # fmt: skip
            close(each, wanted)
        x += 1
        array += 1
        close(seen, values)
        close(after, array.reshape(2, 8))


def test_constants_are_written_through_and_stay_apart_from_equal_ones() -> None:
    x, twin = Tensor.ones(4), Tensor.ones(4)
    x.view(2, 2)[0].fill_(2)
    x[::2].zero_()
    assert (x.tolist(), twin.tolist()) == ([0, 2, 0, 1], [1, 1, 1, 1])
    number = Tensor(5.0)
    number.view(1).fill_(6)
    assert number.item() == 6
    # Random numbers are those that were drawn.
    Tensor.manual_seed(3)
    expected = Tensor.rand(4).numpy().copy()
    Tensor.manual_seed(3)
    drawn = Tensor.rand(4)
    drawn[1:3].mul_(10)
    expected[1:3] *= 10
    close(drawn, expected)


def test_parameters_are_written_through_detach() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.detach().copy_(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    layer.weight.detach()[0].fill_(9)
    layer.bias.detach().zero_()
    assert layer.weight.tolist() == [[9, 9], [3, 4]]
    out = layer(Tensor([[1.0, 1.0]]))
    assert out.tolist() == [[18, 7]]
    out.sum().backward()
    assert layer.weight.grad is not None and layer.bias.grad is not None
    assert (layer.weight.grad.tolist(), layer.bias.grad.tolist()) == ([[1, 1], [1, 1]], [1, 1])


def test_views_of_a_parameter_see_what_an_optimizer_does() -> None:
    weight = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    rows, first = weight.detach().view(2, 2), weight.detach()[:1]
    first.realize()
    optimizer = nn.optim.SGD([weight], lr=0.5)
    with Tensor.train():
        (weight * weight).sum().backward()
        optimizer.step()
    assert rows.tolist() == [[0, 0], [0, 0]]
    rows[1].fill_(3)
    assert (weight.tolist(), first.tolist()) == ([0, 0, 3, 3], [0])


PLACES: dict[str, Callable[[Any], Any]] = {
    "fill_": lambda v: v.fill_(3),
    "zero_": lambda v: v.zero_(),
    "copy_": lambda v: v.copy_(Tensor([7.0, 8.0])),
    "add_": lambda v: v.add_(2),
    "mul_": lambda v: v.mul_(2),
    "clamp_": lambda v: v.clamp_(2, 3),
    "masked_fill_": lambda v: v.masked_fill_(v > 3, 0),
    "index_fill_": lambda v: v.index_fill_(0, Tensor([1]), 5),
    "index_copy_": lambda v: v.index_copy_(0, Tensor([1]), Tensor([5.0])),
    "index_add_": lambda v: v.index_add_(0, Tensor([1]), Tensor([5.0])),
    "scatter_": lambda v: v.scatter_(0, Tensor([1, 0]), Tensor([5.0, 6.0])),
    "index_put_": lambda v: v.__setitem__(Tensor([1]), 4),
    "mask": lambda v: v.__setitem__(v > 3, 4),
    "part": lambda v: v[1:].__iadd__(4),
    "sqrt_": lambda v: v.sqrt_(),
    "squeeze_": lambda v: v.unsqueeze_(0).squeeze_(0).fill_(1),
}


@pytest.mark.parametrize("name", PLACES)
def test_every_spelling_of_a_write_goes_through_a_view(name: str) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]) * 1
    alone = Tensor([2.0, 4.0])
    PLACES[name](alone)
    PLACES[name](x[1::2])
    found, wanted = x.tolist(), alone.tolist()
    assert found == pytest.approx([1, wanted[0], 3, wanted[1]])


@pytest.mark.parametrize("draw", ["normal_", "uniform_", "exponential_", "bernoulli_", "random_"])
def test_draws_into_a_view_are_in_the_base(draw: str) -> None:
    x = Tensor.full((6,), -7.0)
    view = x[::2]
    getattr(view, draw)()
    assert x[1::2].tolist() == [-7, -7, -7]
    assert x[::2].tolist() == view.tolist() != [-7, -7, -7]


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda x: x.flip(0),
    "flip of nothing": lambda x: x.flip([]),
    "pad": lambda x: x.pad((0, 0)),
    "rows picked": lambda x: x[[0, 1]],
    "mask": lambda x: x[x > 0],
    "cat": lambda x: x.cat(x[:0]),
    "clone": lambda x: x.clone(),
    "contiguous of a transpose": lambda x: x.T.contiguous(),
    "reshape of a transpose": lambda x: x.T.reshape(-1),
    "reshape of an expanded one": lambda x: x.reshape(2, 2, 1).expand(2, 2, 2).reshape(8),
    "diag": lambda x: x.diag(),
    "power": lambda x: x**1,
    "sum over one": lambda x: x.unsqueeze(0).sum(0),
    "repeat": lambda x: x.repeat(1, 1),
    "roll": lambda x: x.roll(0, 0),
    "constructor": lambda x: Tensor(x),
}


@pytest.mark.parametrize("is_realized", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_what_pytorch_copies_is_no_alias(name: str, is_realized: bool) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]) * 1
    copied = COPIES[name](x)
    if is_realized:
        Tensor.realize(x, copied)
    held = copied.numpy().copy() if is_realized else None
    copied.fill_(9)
    assert x.tolist() == [[1, 2], [3, 4]]
    x.fill_(5)
    assert set(copied.flatten().tolist()) == {9}
    assert held is None or 9 not in held


def test_what_pytorch_refuses_raises() -> None:
    x = Tensor([[1.0], [2.0]])
    wide = x.expand(2, 3)
    for write in (lambda: wide.fill_(1), lambda: wide.realize().add_(1), lambda: wide[0].zero_()):
        with pytest.raises(ShapeError, match="assign: several elements of this view are one"):
            write()
    with pytest.raises(ShapeError, match="setitem: several elements"):
        wide[1] = 3
    wide[:, 0] = 4
    assert (x.tolist(), wide.tolist()) == ([[4], [4]], [[4, 4, 4]] * 2)
    with pytest.raises(ShapeError, match="several elements"):
        Tensor.arange(5).unfold(0, 3, 1).fill_(0)
    leaf = Tensor([1.0, 2.0], requires_grad=True)
    for view in (leaf[0], leaf.view(2, 1), leaf[:1].T):
        with pytest.raises(DTypeError, match="a view of a leaf that requires a gradient"):
            view.fill_(0)
    for write in (lambda: leaf.fill_(0), lambda: leaf.__iadd__(1), lambda: leaf.add_(1)):
        with pytest.raises(DTypeError, match="a leaf that requires a gradient cannot be changed"):
            write()
    assert leaf.tolist() == [1, 2]
    leaf.assign(leaf.detach() * 2)
    leaf.detach().add_(1)
    assert (leaf.tolist(), leaf.requires_grad) == ([3, 5], True)


def test_gradients_go_through_a_write_to_a_view() -> None:
    """d/dw of sum(z * z), where z is x with its diagonal replaced by 3 w."""
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    w = Tensor([5.0, 6.0], requires_grad=True)
    z = x * 2
    rows, read_before = z.view(4), (z * z).sum()
    z.diagonal().copy_(w * 3)
    assert rows.tolist() == [15, 4, 6, 18]
    (rows * rows).sum().backward()
    assert x.grad is not None and w.grad is not None
    assert x.grad.tolist() == [[0, 16], [24, 0]]
    assert w.grad.tolist() == [90, 108]
    # What was computed before the write has the value, and the gradient, of then.
    assert read_before.item() == 4 * (1 + 4 + 9 + 16)
    assert read_before.gradient(x)[0].tolist() == [[8, 16], [24, 32]]


def test_a_captured_function_writes_through_views_and_is_seen_outside() -> None:
    state = Tensor.zeros(2, 4).contiguous().realize()
    other = Tensor.zeros(2, 4).contiguous().realize()
    array, second = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)
    row, flat, column = state[1], state.view(8), state.detach()[:, 0]

    @jit
    def step(x: Tensor) -> Tensor:
        row.add_(x)
        flat[:2].fill_(x.sum())
        return state + 0

    for number in range(5):
        given = np.arange(4, dtype=np.float32) * number
        result = step(Tensor(given))
        array[1] += given
        array.reshape(-1)[:2] = given.sum()
        for each, wanted in [(result, array), (state, array), (row, array[1]),
                             (flat, array.reshape(8)), (column, array[:, 0])]:  # fmt: skip
            close(each, wanted)

    @jit
    def grow(part: Tensor) -> Tensor:
        return part.add_(1).realize() * 2

    for _ in range(3):
        for given, values in ((state[0], array[0]), (other[1], second[1]), (row, array[1])):
            result = grow(given)
            values += 1
            close(result, values * 2)
            close(state, array)
            close(flat, array.reshape(8))
            close(other, second)


def test_results_of_a_captured_function_are_aliases_as_they_were() -> None:
    @jit
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y.view(2, 2), x.T

    for number in range(4):
        x = (Tensor([[1.0, 2.0], [3.0, 4.0]]) * number).realize()
        y, view, turned = function(x)
        view[0].fill_(9)
        turned[0].fill_(7)
        assert y.tolist()[0] == [9, 9]
        assert x[:, 0].tolist() == [7, 7]
        y.fill_(1)
        assert view.tolist() == [[1, 1], [1, 1]]


TAKES = sorted(set(VIEWS) - {"view of a view", "as_strided", "rearrange", "unfold"})
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["view", "view", "write", "write", "part", "move", "read", "drop", "run"]),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=60)
@given(origin=st.sampled_from(sorted(ORIGINS)), program=STEPS)
def test_random_programs_of_views_and_writes(origin: str, program: list[Any]) -> None:
    """Views of views of one tensor, written and read in any order, as NumPy has it."""
    x, array = ORIGINS[origin](), START.copy()
    seen: list[tuple[Tensor, Array]] = [(x, array)]
    pending: list[tuple[Tensor, Array]] = []
    for kind, which, number in program:
        tensor, values = seen[which % len(seen)]
        if kind == "view" and values.shape == (4, 4):
            ours, theirs = VIEWS[TAKES[number % len(TAKES)]]
            if np.shares_memory(taken := theirs(values), array):
                # A reshape that NumPy must copy is a copy here.
                seen.append((ours(tensor), taken))
        elif kind == "view":
            seen.append((tensor.flatten(), values.reshape(-1)))
            if not np.shares_memory(seen[-1][1], array):
                del seen[-1]
        elif kind == "write":
            tensor.assign(tensor * 0.5 + number)
            values[...] = values * 0.5 + number
        elif kind == "part" and values.ndim:
            tensor[::2] = number
            values[::2] = number
        elif kind == "move":
            source, given = seen[number % len(seen)]
            if given.shape == values.shape:
                tensor.assign(source)
                values[...] = given.copy()
        elif kind == "read":
            pending.append((tensor.sum() + tensor, values.sum() + values))
        elif kind == "drop" and len(seen) > 1:
            del seen[which % len(seen)]
        elif kind == "run":
            tensor.realize()
    for each, wanted in [*reversed(pending), *seen]:
        close(each, wanted, rtol=1e-4)


def test_a_reversed_slice_of_one_element_is_a_view() -> None:
    x = Tensor(np.zeros((1, 3), "f4"))
    x[::-1, :2] = 1
    x[:, 2::-3].fill_(2)
    assert x.tolist() == [[1, 1, 2]]


def test_what_was_made_of_an_empty_view_is_not_kept_before_a_write() -> None:
    """It has no elements; a kernel that stored none of them was an internal error."""
    base = Tensor(np.arange(8).reshape(4, 2)) + 0
    empty = base.diagonal()[0:0]
    whole = base * 3
    base.permute(1, 0)[:, 3].copy_(Tensor([7, 7]))
    tripled = empty * 3
    base[0] = 1
    assert base.tolist() == [[1, 1], [2, 3], [4, 5], [7, 7]]
    assert whole.tolist() == [[0, 3], [6, 9], [12, 15], [18, 21]]
    assert tripled.tolist() == [] and empty.tolist() == []


def test_truth_values_are_filled_with_integers() -> None:
    flags = Tensor([True, False, False])
    flags[1:].masked_fill_(Tensor([False, True]), 1)
    assert flags.dtype is dtypes.bool and flags.tolist() == [True, False, True]
    assert flags.masked_fill(Tensor([True, True, False]), 0).tolist() == [False, False, True]
