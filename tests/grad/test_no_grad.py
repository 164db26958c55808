"""`no_grad`: what is computed inside requires no gradient, and leaves are written in place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad
from tilegrad import GlobalCounters, Tensor, enable_grad, func, is_grad_enabled, jit, nn, no_grad
from tilegrad.base.errors import DTypeError, TilegradError


def weight() -> Tensor:
    return Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


RESULTS: list[Callable[[Tensor], Tensor]] = [
    lambda w: w * 2,
    lambda w: 1 - w,
    lambda w: w @ w,
    lambda w: w[0],
    lambda w: w[Tensor([1])],
    lambda w: w.reshape(4),
    lambda w: w.T,
    lambda w: w.sum(),
    lambda w: w.max(1),
    lambda w: w.softmax(),
    lambda w: w.clone(),
    lambda w: w.cast("half"),
    lambda w: w.contiguous(),
    lambda w: w.cat(w),
    lambda w: Tensor([[True], [False]]).where(w, 0.0),
    lambda w: Tensor([1.0, 2.0]).linear(w),
    lambda w: w.gather(0, Tensor([[0, 1]])),
    lambda w: w.sort().values,
    lambda w: w.cumsum(1),
    lambda w: w.var(),
    lambda w: w.flip(0),
]


@pytest.mark.parametrize("call", RESULTS)
def test_no_result_requires_a_gradient_or_leads_to_one(call: Callable[[Tensor], Tensor]) -> None:
    w = weight()
    with no_grad():
        made = call(w)
        assert not made.requires_grad and w.requires_grad
    assert not made.requires_grad
    assert made.sum().gradient(w) == [None]
    # Beside it, what was made outside has one.
    (made.sum() * w.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[made.sum().item()] * 2] * 2
    assert call(w).sum().gradient(w)[0] is not None


CHANGES: dict[str, tuple[Callable[[Tensor], Any], Any]] = {
    "sub": (lambda w: w.__isub__(Tensor([1.0, 1.0])), [[0.0, 1.0], [2.0, 3.0]]),
    "add_": (lambda w: w.add_(1.0), [[2.0, 3.0], [4.0, 5.0]]),
    "mul_": (lambda w: w.mul_(w), [[1.0, 4.0], [9.0, 16.0]]),
    "zero_": (lambda w: w.zero_(), [[0.0, 0.0], [0.0, 0.0]]),
    "fill_": (lambda w: w.fill_(7), [[7.0, 7.0], [7.0, 7.0]]),
    "clamp_": (lambda w: w.clamp_(2, 3), [[2.0, 2.0], [3.0, 3.0]]),
    "copy_": (lambda w: w.copy_(Tensor([[9.0, 8.0], [7.0, 6.0]])), [[9.0, 8.0], [7.0, 6.0]]),
    "a window": (lambda w: w.__setitem__(0, 5.0), [[5.0, 5.0], [3.0, 4.0]]),
    "picked": (lambda w: w.__setitem__(Tensor([1]), 5.0), [[1.0, 2.0], [5.0, 5.0]]),
    "a mask": (lambda w: w.__setitem__(w > 2, 0.0), [[1.0, 2.0], [0.0, 0.0]]),
    "a view": (lambda w: w[:, 1].mul_(10), [[1.0, 20.0], [3.0, 40.0]]),
    "a reshaped view": (lambda w: w.reshape(4)[2:].zero_(), [[1.0, 2.0], [0.0, 0.0]]),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_computed", [False, True], ids=["pending", "computed"])
def test_leaves_are_written_in_place(name: str, is_computed: bool) -> None:
    change, wanted = CHANGES[name]
    w = weight()
    if is_computed:
        w.realize()
    with no_grad():
        change(w)
    assert w.tolist() == wanted
    assert w.requires_grad
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[2 * value for value in row] for row in wanted]


def test_outside_a_leaf_is_not_written_and_the_error_names_no_grad() -> None:
    w = weight()
    for change in (lambda: w.__isub__(1.0), lambda: w.__setitem__(0, 1.0)):
        with pytest.raises(DTypeError, match=r"under tilegrad\.no_grad\(\)"):
            change()


def test_a_loop_of_gradient_descent() -> None:
    """As PyTorch's tutorials write it."""
    w, target = Tensor([0.0, 0.0], requires_grad=True), Tensor([3.0, -1.0])
    for _ in range(60):
        loss = ((w - target) ** 2).sum()
        loss.backward()
        with tilegrad.no_grad():
            assert w.grad is not None
            w -= 0.2 * w.grad
            w.grad = None
    assert [round(value, 5) for value in w.tolist()] == [3.0, -1.0]


def test_before_a_function_with_brackets_and_without() -> None:
    w = weight()

    @no_grad()
    def first(x: Tensor) -> Tensor:
        return x * w

    @no_grad
    def second(x: Tensor) -> Tensor:
        """Its text."""
        return x * w

    assert not first(w).requires_grad and not second(w).requires_grad
    assert second.__name__ == "second" and second.__doc__ == "Its text."
    assert is_grad_enabled()


def test_blocks_nest_and_end_with_an_error() -> None:
    with no_grad():
        with enable_grad():
            assert is_grad_enabled() and (weight() * 2).requires_grad
        with no_grad():
            pass
        assert not is_grad_enabled()
    with pytest.raises(ZeroDivisionError), no_grad():
        _ = 1 / 0
    assert is_grad_enabled()


def test_set_grad_enabled_holds_until_it_is_set_again() -> None:
    tilegrad.set_grad_enabled(False)
    try:
        assert not is_grad_enabled()
    finally:
        tilegrad.set_grad_enabled(True)
    with tilegrad.set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_other_threads_go_on_recording() -> None:
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_backward_finds_nothing_of_what_was_made_inside() -> None:
    with no_grad():
        loss = weight().sum()
    with pytest.raises(TilegradError, match="nothing below this tensor requires a gradient"):
        loss.backward()


def test_functions_that_are_differentiated_are_so_inside_too() -> None:
    with no_grad():
        found = func.grad(lambda x: (x * x).sum())(Tensor([3.0], requires_grad=True))
    assert found.tolist() == [6.0]


def test_a_captured_function_is_another_one_inside() -> None:
    w = weight()

    @jit
    def double(x: Tensor) -> Tensor:
        return (x * w).realize()

    x = Tensor([2.0, 2.0]).realize()
    for _ in range(3):
        with no_grad():
            assert not double(x).requires_grad
    for _ in range(3):
        assert double(x).requires_grad


def test_it_takes_no_kernel_more() -> None:
    """What stands between two ops would hide from the scheduler that they belong together."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    for parameter in layer.parameters():
        parameter.requires_grad_().realize()
    x = Tensor.randn(2, 5, 16).realize()

    def kernels() -> int:
        before = GlobalCounters.kernel_count
        layer(x).realize()
        return GlobalCounters.kernel_count - before

    outside = kernels()
    with no_grad():
        assert kernels() == outside
