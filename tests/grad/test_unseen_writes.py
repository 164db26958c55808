"""Writes that gradients take no notice of: without gradients, and through a detached alias. What
was written to keeps the gradient that it had, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor
from tilegrad.tensor.handle.gradient_modes import no_grad

VALUES = np.float32([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def without(write: Callable[[Any], Any]) -> Callable[[Any], None]:
    def run(x: Any) -> None:
        with no_grad():
            write(x)

    return run


WRITES: dict[str, Callable[[Any], Any]] = {
    "no_grad": without(lambda x: x.add_(10)),
    "no_grad, a part": without(lambda x: x.__setitem__(0, 7.0)),
    "no_grad, a view": without(lambda x: x[1].zero_()),
    "no_grad, twice": without(lambda x: x.mul_(2).clamp_(-1, 1)),
    "detached": lambda x: x.detach().add_(10),
    "detached, a part": lambda x: x.detach()[0].mul_(3),
    "detached, twice": lambda x: (x.detach().add_(1), x.detach().neg_()),
}


@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_a_value_keeps_its_gradient(name: str, is_read: bool, segments: int) -> None:
    with Context(SEGMENTS=segments):
        w = Tensor(VALUES.copy(), requires_grad=True)
        x = w * 3
        view = x.reshape(-1)
        plain = Tensor(VALUES * 3)
        WRITES[name](x)
        WRITES[name](plain)
        if is_read:
            np.testing.assert_array_equal(x.numpy(), plain.numpy())
        (x * x + view.reshape(2, 3)).sum().backward()
        assert w.grad is not None
        # The derivative of the written value by the one before it is 1.
        np.testing.assert_allclose(w.grad.numpy(), 3 * (2 * plain.numpy() + 1), rtol=1e-6)


@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("name", ["no_grad", "no_grad, a part", "detached"])
def test_what_was_computed_before_a_leaf_was_written_has_its_gradient(
    name: str, segments: int
) -> None:
    """Of the values that the leaf had then."""
    with Context(SEGMENTS=segments):
        for is_read in (False, True, True):
            w = Tensor(VALUES.copy(), requires_grad=True)
            loss = (w * w).sum()
            if is_read:
                assert loss.item() == pytest.approx(float((VALUES**2).sum()))
            WRITES[name](w)
            loss.backward()
            assert w.grad is not None
            np.testing.assert_allclose(w.grad.numpy(), 2 * VALUES, rtol=1e-6)


def test_a_gradient_of_a_scan_whose_source_is_summed() -> None:
    """Constants are scanned in the other order, and summed: the scan has memory of its own."""
    for axis in (0, 1):
        w = Tensor(VALUES.copy(), requires_grad=True)
        (w.sum() + w).cumsum(axis).sum().backward()
        size = VALUES.shape[axis]
        counts = np.arange(size, 0, -1, dtype=np.float32)
        own = counts[:, None] if axis == 0 else counts[None]
        expected = np.broadcast_to(own, VALUES.shape) + counts.sum() * VALUES.size / size
        assert w.grad is not None
        np.testing.assert_array_equal(w.grad.numpy(), expected)


MOVED: dict[str, Callable[[Any], Any]] = {
    "reshaped": lambda x: (x.reshape(-1) + 1).reshape(2, 3),
    "transposed": lambda x: (x.T + 1).T,
    "a part": lambda x: (x + 1)[:, 1:],
    "picked": lambda x: x.index_fill(0, Tensor([0]), 2.0),
}


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", MOVED)
def test_a_movement_that_is_written_through_a_view_and_read(name: str, is_read: bool) -> None:
    w = Tensor(VALUES.copy(), requires_grad=True)
    x = MOVED[name](w * 2)
    x.T.mul_(3)
    if is_read:
        x.tolist()
    x.sum().backward()
    expected = np.full_like(VALUES, 6.0)
    if name == "a part":
        expected[:, 0] = 0
    if name == "picked":
        expected[0] = 0
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), expected)


def test_a_computed_tensor_that_is_written_in_another_order_and_again() -> None:
    w = Tensor(VALUES.copy(), requires_grad=True)
    x = w * w
    x.T.mul_(x.T)
    x.mul_(x)
    x.tolist()
    x.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 8 * VALUES.astype(np.float64) ** 7, rtol=1e-6)


@pytest.mark.parametrize("through", [False, True], ids=["itself", "through what was detached"])
def test_a_tensor_that_moves_to_a_mean_of_a_leaf_after_a_write_without_gradients(
    through: bool,
) -> None:
    """Its values from before are lost, and no gradient needs them."""
    for _ in range(4):
        w = Tensor.ones(2, 3).contiguous().requires_grad_()
        x = Tensor(VALUES.copy())
        y = x.detach()
        first = y if through else x
        with no_grad():
            first -= first.mean()
        x.lerp_(w.mean(), 0.5)
        given = y.numpy()
        np.testing.assert_allclose(given, (VALUES - VALUES.mean()) / 2 + 0.5, rtol=1e-6)
        ((x * x).sum() + 2 * (y * y).sum()).backward()
        assert w.grad is not None
        # d/dw of the sum of squares: 2 x times 0.5, the share of each item of w in its mean.
        np.testing.assert_allclose(w.grad.numpy(), np.full_like(VALUES, given.sum() / 6), rtol=1e-6)


def test_what_a_gradient_needs_of_a_detached_tensor_that_was_written_is_kept() -> None:
    for _ in range(4):
        w = Tensor.ones(2, 3).contiguous().requires_grad_()
        x = Tensor(VALUES.copy())
        y = x.detach()
        with no_grad():
            y -= y.mean()
        x.mul_(w)
        y.numpy()
        x.sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), VALUES - VALUES.mean(), rtol=1e-6)


def test_a_part_that_is_written_with_gradients_after_one_without() -> None:
    """The gradient of the rest goes on to the value before both writes."""
    w = Tensor(VALUES.copy(), requires_grad=True)
    x = w * 2
    x.detach().add_(1)
    x[0].mul_(3)
    np.testing.assert_allclose(x.numpy()[0], (VALUES[0] * 2 + 1) * 3)
    x.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[6, 6, 6], [2, 2, 2]]


def test_a_value_that_is_read_by_one_and_not_by_others() -> None:
    """Who read a view of it knows it by its memory, others by its graph."""
    w = Tensor(VALUES.copy(), requires_grad=True)
    x = w * 2
    x.detach().mul_(0.5)
    row = x[0]
    row.tolist()
    (x.sum() + row.sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [[4, 4, 4], [2, 2, 2]]


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ("add", [4.0, 6.0, 8.0]),
        ("read add", [4.0, 6.0, 8.0]),
        ("add read mul", [16.0, 24.0, 32.0]),
        ("mul read square", [64.0, 512.0, 1728.0]),
        ("add read unseen", [12.0, 18.0, 24.0]),
    ],
)
def test_memory_that_was_written_and_read_leads_to_what_it_was_computed_from(
    writes: str, expected: list[float]
) -> None:
    """Each write of all of it stands for what it wrote."""
    steps: dict[str, Callable[[Tensor], object]] = {
        "add": lambda y: y.add_(1),
        "mul": lambda y: y.mul_(2),
        "square": lambda y: y.mul_(y),
        "read": lambda y: y.tolist(),
        "unseen": without(lambda y: y.mul_(3)),
    }
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x.clone()
    for write in writes.split():
        steps[write](y)
    y.tolist()
    (y * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == expected
