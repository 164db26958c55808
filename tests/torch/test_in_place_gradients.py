"""What requires no gradient and takes a value that does, in place, requires one from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Tensor

POSITIONS = torch.tensor([0, 1])
MASK = torch.tensor([True, False, True])

# Each writes values of `w`, three numbers, into zeros; and the gradient of the sum.
WRITES: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "add_": (lambda x, w: x.add_(w * 2), [2, 2, 2]),
    "+=": (lambda x, w: x.__iadd__(w * 2), [2, 2, 2]),
    "copy_": (lambda x, w: x.copy_(w), [1, 1, 1]),
    "index_add_": (lambda x, w: x.index_add_(0, POSITIONS, w[:2]), [1, 1, 0]),
    "index_copy_": (lambda x, w: x.index_copy_(0, POSITIONS, w[:2] * 1), [1, 1, 0]),
    "index_put_": (lambda x, w: x.index_put_((POSITIONS,), w[:2] * 3), [3, 3, 0]),
    "scatter_": (lambda x, w: x.scatter_(0, POSITIONS, w[:2]), [1, 1, 0]),
    "masked_fill_": (lambda x, w: x.masked_fill_(MASK, w.sum()), [2, 2, 2]),
    "masked_scatter_": (lambda x, w: x.masked_scatter_(MASK, w), [1, 1, 0]),
    "lerp_": (lambda x, w: x.lerp_(w, 0.5), [0.5, 0.5, 0.5]),
    "slice": (lambda x, w: x.__setitem__(slice(1, None), w[:2]), [1, 1, 0]),
}


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_it_requires_a_gradient_and_has_it(name: str, is_read: bool) -> None:
    write, expected = WRITES[name]
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = torch.zeros(3)
    view = x[1:]
    write(x, w)
    assert x.requires_grad and not x.is_leaf and view.requires_grad
    if is_read:
        assert np.isfinite(x.detach().numpy()).all()
    x.sum().backward()
    assert w.grad.tolist() == expected


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_required_without_gradients(name: str) -> None:
    w, x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.zeros(3)
    made = w * 2
    with torch.no_grad():
        WRITES[name][0](x, made)
    assert not x.requires_grad
    assert (x * w).requires_grad


def test_index_put_has_the_gradient_of_its_values() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    made = Tensor.zeros(3).index_put((Tensor([2, 0]),), w * 5)
    assert made.requires_grad
    made[2].backward()
    assert w.grad is not None and w.grad.tolist() == [5, 0]


def test_sums_over_choices_that_are_read_between() -> None:
    """A mixture of experts: what is added up in place, between reads of the choices."""
    rng = np.random.default_rng(0)
    array = rng.standard_normal((20, 4)).astype(np.float32)
    w = torch.from_numpy(array).requires_grad_()
    values, choices = (w * 2).topk(2, dim=-1)
    out = torch.zeros(20)
    for expert in range(4):
        token, _ = torch.where(choices == expert)
        out.index_add_(0, token, values[token, 0])
    out.sum().backward()
    # Each token's first choice is added once for each of its two choices.
    expected = np.zeros_like(array)
    expected[np.arange(20), array.argmax(1)] = 4
    assert np.array_equal(w.grad.numpy(), expected)


# Each writes without gradients to a view of `w`, [[1, 2], [3, 4]], and gives the view.
INTO_LEAVES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], list[list[float]]]] = {
    "row": (lambda w: w[0], lambda v: v.zero_(), [[0, 0], [3, 4]]),
    "flat": (lambda w: w.view(-1), lambda v: v.mul_(2), [[2, 4], [6, 8]]),
    "column": (lambda w: w.T[1], lambda v: v.add_(1), [[1, 3], [3, 5]]),
    "part": (lambda w: w.unbind(0)[1], lambda v: v.fill_(7), [[1, 2], [7, 7]]),
    "slice of slice": (lambda w: w[1:][:, 1:], lambda v: v.neg_(), [[1, 2], [3, -4]]),
    "element": (lambda w: w[1], lambda v: v.__setitem__(0, 9.0), [[1, 2], [9, 4]]),
    "mask of all": (
        lambda w: w.view(2, 2),
        lambda v: v.__setitem__(v > 2, v[v > 2] * 2),
        [[1, 2], [6, 8]],
    ),
}


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("where", ["made before", "made inside", "of data"])
@pytest.mark.parametrize("name", INTO_LEAVES)
def test_a_view_of_a_leaf_is_written_without_gradients(name: str, where: str) -> None:
    look, write, expected = INTO_LEAVES[name]
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    view = look(w.data) if where == "of data" else look(w)
    before = (w * 3).sum()
    with torch.no_grad():
        write(look(w) if where == "made inside" else view)
    assert w.is_leaf and w.requires_grad and w.tolist() == expected
    assert view.requires_grad == (where != "of data")
    before.backward()
    assert w.grad.tolist() == [[3, 3], [3, 3]]
    w.grad = None
    (w * w).sum().backward()
    assert w.grad.tolist() == [[2 * each for each in row] for row in expected]
    if where != "of data":
        w.grad = None
        (view * view).sum().backward()
        seen = torch.zeros(2, 2)
        look(seen).copy_(2 * view.detach())
        assert w.grad.tolist() == seen.tolist()


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_detached_alias_has_the_gradient_of_what_it_takes(is_leaf: bool, is_whole: bool) -> None:
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = w if is_leaf else w * 2
    before, k = y.detach().clone(), torch.tensor([2.0, 5.0], requires_grad=True)
    alias = y.detach()
    column = alias[:, 1]
    if is_whole:
        alias *= k
    else:
        alias[1] = k
    assert alias.requires_grad and column.requires_grad and y.is_leaf == is_leaf
    expected = before * k if is_whole else torch.stack([before[0], k])
    assert y.tolist() == alias.tolist() == expected.tolist()
    (alias.sum() + 10 * column.sum() + (y * 3).sum()).backward()
    factors = torch.tensor([1.0, 11.0])
    assert k.grad.tolist() == ((before.sum(0) if is_whole else 1.0) * factors).tolist()
    assert w.grad.tolist() == [[3, 3], [3, 3]] if is_leaf else [[6, 6], [6, 6]]


def test_an_alias_of_data_has_the_gradient_of_what_it_takes() -> None:
    x, k = torch.ones(3), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    alias = x.detach()
    alias *= k
    alias[1:] += k[:2]
    alias[0] = 4.0
    alias.sum().backward()
    assert not x.requires_grad and x.tolist() == [4.0, 3.0, 5.0]
    assert k.grad.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_extreme_of_an_axis_has_its_gradient_at_its_index(name: str) -> None:
    x = torch.tensor([[1.0, 1.0, 1.0], [2.0, float("nan"), 2.0]], requires_grad=True)
    values, indices = getattr(x, name)(1)
    assert indices.tolist() == [0, 1]
    values.sum().backward()
    assert x.grad.tolist() == [[1, 0, 0], [0, 1, 0]]
    x.grad = None
    values, indices = getattr(x, f"cum{name}")(1)
    assert indices.tolist() == [[0, 1, 2], [0, 1, 1]]
    values.sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [1, 2, 0]]


# What changes nothing gives another tensor of the same memory all the same.
SAME: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(2, 3),
    "expand_as": lambda x: x.expand_as(x),
    "permute": lambda x: x.permute(0, 1),
    "transpose": lambda x: x.transpose(1, 1),
    "chunk": lambda x: x.chunk(1)[0],
    "split": lambda x: x.split(2)[0],
    "narrow": lambda x: x.narrow(0, 0, 2),
    "movedim": lambda x: x.movedim(0, 0),
}


@pytest.mark.parametrize("name", SAME)
def test_a_view_of_all_is_a_tensor_of_its_own(name: str) -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    view = SAME[name](leaf)
    assert view is not leaf and not view.is_leaf and view.grad_fn is not None
    (view * 2 + leaf).sum().backward()
    assert leaf.grad.tolist() == [[3] * 3] * 2
    plain = torch.zeros(2, 3)
    SAME[name](plain).fill_(4)
    assert plain.sum().item() == 24


def test_contiguous_is_the_tensor_or_a_copy() -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    assert leaf.contiguous() is leaf
    x = torch.zeros(2, 3)
    for copy in (x[:, 0], x[:, :1], x.T, x[:, ::2], x[:1].expand(2, 3)):
        assert not copy.is_contiguous()
        copy.contiguous().fill_(1)
    assert x.sum().item() == 0
    for alias in (x, x[0], x[1:], x[1:, 1:], x[:1, 1:]):
        assert alias.is_contiguous() == (alias.data_ptr() == alias.contiguous().data_ptr())
    x[1:].contiguous().fill_(1)
    assert x.tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("where", ["made", "after a write", "in part"])
def test_retained_gradients_are_those_of_what_is_there(where: str, is_read: bool) -> None:
    w = torch.ones(2, requires_grad=True)
    y = w * 3
    if where != "after a write":
        y.retain_grad()
    if where == "in part":
        y[0] = 4.0
    else:
        y.mul_(2)
    if where == "after a write":
        y.retain_grad()
    if is_read:
        y.tolist()
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5, 5]
    assert w.grad.tolist() == ([0, 15] if where == "in part" else [30, 30])


@pytest.mark.parametrize("is_read", [False, True])
def test_a_view_of_all_of_what_was_written_in_part_keeps_the_gradient(is_read: bool) -> None:
    """Once it was read, no gradient came to `w`, without a word."""
    w, x = torch.ones(2, 2, requires_grad=True), torch.arange(4.0).reshape(2, 2)
    x[1:] = x[:-1].clone()
    view = x[None]
    view.fill_((w * 1).sum())
    if is_read:
        assert x.tolist() == [[4, 4], [4, 4]]
    (x * 2).sum().backward()
    assert w.grad.tolist() == [[8, 8], [8, 8]]


def test_views_of_a_leaf_keep_its_gradient_when_it_takes_other_data() -> None:
    leaf = torch.ones(3, requires_grad=True)
    head, double = leaf[:2], leaf * 2
    leaf.data = torch.tensor([5.0, 6.0, 7.0])
    assert head.tolist() == [1, 1] and leaf.tolist() == [5, 6, 7]
    (head.sum() + leaf.sum()).backward()
    assert leaf.grad.tolist() == [2, 2, 1]
    double.data = torch.zeros(3)
    assert not double.is_leaf
    double.sum().backward()
    assert leaf.grad.tolist() == [4, 4, 3]


READERS = {
    "flip": lambda w: w.flip(0),
    "repeat": lambda w: w.repeat(2, 1),
    "transposed": lambda w: w.T.contiguous(),
    "rows": lambda w: w[[0, 1]],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("way", ["detach", "no_grad", "data", "row"])
def test_a_write_after_a_copy_of_a_leaf_leaves_its_gradient(
    reader: str, is_read: bool, way: str
) -> None:
    """The closed form: each element of the leaf is in the sum itself, and in the copy."""
    start = torch.tensor([[1.0, -2.0], [3.0, 4.0]]) * 2
    if is_read:
        start.sum().item()
    w = start.requires_grad_()
    y = READERS[reader](w)
    if way == "detach":
        w.detach().add_(1)
    elif way == "data":
        w.data.add_(1)
    elif way == "row":
        w.detach()[0].add_(1)
    else:
        with torch.no_grad():
            w.add_(1)
    (w.sum() + y.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[1.0 + y.numel() / 4] * 2] * 2


@pytest.mark.parametrize("mask", [True, False])
def test_a_leaf_written_in_part_and_then_through_an_alias(mask: bool) -> None:
    w = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    with torch.no_grad():
        if mask:
            w[w > 0] *= 2
        else:
            w[0] *= 2
    y = w.flip(0)
    w.detach().add_(1)
    (w.sum() + y.sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [[2.0, 2.0]] * 2


def test_parameters_that_are_updated_by_their_gradients_through_data() -> None:
    """A leaf is a leaf, whatever its memory was computed from: a loss of tied weights, whose
    gradients depend on each other, stays differentiable from step to step.
    """
    tied = torch.full((3, 3), 0.5, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    x = torch.tensor([[1.0, 2.0, -1.0]])
    weight, offset = np.full((3, 3), 0.5), np.zeros(3)
    state = torch.zeros(1, 3)
    for _ in range(4):
        before = state.detach()
        out = (x @ tied + before) @ tied + bias
        inner = np.array(x.tolist()) @ weight + np.array(before.tolist())
        ((out**2).sum()).backward()
        outer = 2 * (inner @ weight + offset)
        slope = inner.T @ outer + np.array(x.tolist()).T @ (outer @ weight.T)
        assert tied.grad is not None and bias.grad is not None
        np.testing.assert_allclose(tied.grad.numpy(), slope, rtol=1e-4)
        for each in (tied, bias):
            each.data.add_(each.grad, alpha=-0.01)
            each.grad = None
        weight, offset = weight - 0.01 * slope, offset - 0.01 * outer[0]
        state = out
        out.sum().item()


def test_a_random_leaf_that_never_ran_takes_values() -> None:
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for each in layer.parameters():
            each.copy_(torch.ones(each.shape))
    assert layer(torch.ones(1, 3)).tolist() == [[4.0, 4.0]]


def test_an_embedding_of_rows_that_are_there() -> None:
    rows = torch.eye(3)
    frozen = torch.nn.Embedding.from_pretrained(rows)
    trained = torch.nn.Embedding.from_pretrained(rows, freeze=False)
    assert isinstance(frozen.weight, torch.nn.Parameter) and not frozen.weight.requires_grad
    assert trained.weight.requires_grad and trained(torch.tensor([2])).tolist() == [[0, 0, 1]]


def _in_memory(values: list[float]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, np.float32))


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("through", ["itself", "an alias", "a leaf's alias", "a part", "twice"])
def test_what_gradients_need_stays_where_memory_is_written(through: str, is_read: bool) -> None:
    x, k = _in_memory([2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    if through == "a leaf's alias":
        x.requires_grad_()
    written = x.detach() if "alias" in through else x
    if through == "a part":
        written[1:] *= k[1:]
    else:
        written *= k
    expected = [2.0, 6.0, 12.0]
    wanted = [2.0, 3.0, 4.0] if through != "a part" else [0.0, 3.0, 4.0]
    if is_read:
        assert x.tolist() == written.tolist() == expected
    if through == "twice":
        written *= k
        expected, wanted = [2.0, 12.0, 36.0], [4.0, 12.0, 24.0]
    assert x.requires_grad == (through != "an alias") and written.requires_grad
    assert x.tolist() == written.tolist() == expected
    written.sum().backward()
    assert k.grad.tolist() == wanted
    assert x.tolist() == expected


def test_a_state_that_is_written_in_place_with_gradients_and_read_at_each_step() -> None:
    state, weight = _in_memory([1.0, 2.0]), torch.tensor([0.5, 3.0], requires_grad=True)
    for step in range(1, 5):
        state *= weight
        state += 1.0
        assert state.shape == (2,) and len(state.tolist()) == 2
        if step == 3:
            weight.grad = None
            state.sum().backward()
    # ((s w + 1) w + 1) w + 1, by w: 3 s w^2 + 2 w + 1
    assert weight.grad.tolist() == [3 * 1 * 0.25 + 2 * 0.5 + 1, 3 * 2 * 9 + 2 * 3 + 1]


def test_what_writes_nothing_leaves_values_and_gradients() -> None:
    """Masks without a true element and indices without one, in a few steps."""
    for _ in range(4):
        w, value = torch.ones(2, 3).requires_grad_(), torch.ones(2).requires_grad_()
        x, y, z = w * 2, w * 3, w * 1
        x[torch.zeros(2, dtype=torch.bool)] = 5.0
        y[torch.tensor([], dtype=torch.long)] = 7.0
        z[torch.zeros(2, 3, dtype=torch.bool)] = value.sum()
        total = x.sum() + y.sum() + z.sum()
        total.backward()
        assert total.item() == 36.0
        assert w.grad.tolist() == [[6.0] * 3] * 2
        assert value.grad.tolist() == [0.0, 0.0]
