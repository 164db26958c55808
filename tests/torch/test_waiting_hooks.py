"""Hooks on gradients, and functions with gradients of their own, in steps whose calls wait: what
hooks see and in which order, and that equal steps make no nodes. The oracle is PyTorch where it is
installed, else a closed form.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.torch.test_waiting import _Asked, asked  # noqa: F401  # a fixture

_random = np.random.default_rng(13)
_X = _random.normal(size=(14, 5, 3)).astype(np.float32)
_WEIGHTS = [_random.normal(size=(3, 3)).astype(np.float32) * 0.7 for _ in range(4)]
# The first steps make nodes, as each method has a template from its second call on.
_FIRST = 4


def _linear(torch: Any, number: int) -> Any:
    layer = torch.nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(_WEIGHTS[number]))
        layer.bias.copy_(torch.tensor(_WEIGHTS[number][0]))
    return layer


def _rows(gradient: Any) -> list[float]:
    return [round(float(each), 3) + 0.0 for each in gradient.reshape(-1).tolist()]


# Each program gives a step: from a network of two layers and what is noted.
Step = Callable[[Any], Any]
Program = Callable[[Any, Any, Any, list[Any]], Step]


def _parameter_hooks(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    first.weight.register_hook(lambda g: seen.append(("first", _rows(g))))
    first.weight.register_hook(lambda g: g.clamp(-0.2, 0.2))
    first.weight.register_hook(lambda g: seen.append(("clamped", _rows(g))))
    second.bias.register_hook(lambda g: g * 2)
    return lambda x: second(first(x).tanh()).square().mean()


def _tensor_hooks(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    def step(x: Any) -> Any:
        low = first(x)
        low.register_hook(lambda g: seen.append(("low", _rows(g))))
        high = low.tanh()
        high.register_hook(lambda g: g * 0.5)
        gone = high.register_hook(lambda g: seen.append("never"))
        high.register_hook(lambda g: seen.append(("high", _rows(g))))
        gone.remove()
        # Beside the way that is watched another one goes by it.
        return (second(high) + low).square().mean()

    first.bias.register_hook(lambda g: seen.append(("bias", _rows(g))))
    second.weight.register_hook(lambda g: seen.append(("weight", _rows(g))))
    return step


def _kept_gradients(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    kept: list[Any] = []

    def step(x: Any) -> Any:
        if kept:
            seen.append(_rows(kept.pop().grad))
        low = first(x)
        low.register_hook(lambda g: torch.ones_like(g))
        low.retain_grad()
        kept.append(low)
        return second(low).square().sum()

    return step


def _module_hooks(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    def note(module: Any, made: Any, given: Any) -> Any:
        seen.append(("module", [None if g is None else _rows(g) for g in made], _rows(given[0])))
        return tuple(None if g is None else g * 0.5 for g in made)

    first.register_full_backward_hook(note)
    second.register_full_backward_hook(note)
    second.register_full_backward_pre_hook(lambda module, given: (given[0] * 3,))

    def step(x: Any) -> Any:
        y = second(first(x).tanh())
        # The hook of the caller comes before those of the module.
        y.register_hook(lambda g: seen.append(("caller", _rows(g))))
        return y.square().mean()

    return step


def _rounded(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    class Round(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float, offset: Any) -> Any:
            ctx.scale = scale
            inside = (x * scale + offset).abs() < 4
            ctx.save_for_backward(inside)
            return torch.round(x * scale + offset) / scale

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (inside,) = ctx.saved_tensors
            seen.append(("round", ctx.scale, _rows(gradient)))
            return gradient * inside, None, None

    apply, offset = Round.apply, torch.zeros(())
    return lambda x: second(apply(first(apply(x, 8.0, offset)), 4.0, offset)).square().mean()


def _two_outputs(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    class Both(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x + y, (x > 0).long()

        @staticmethod
        def backward(ctx: Any, one: Any, two: Any, _: Any) -> Any:
            x, y = ctx.saved_tensors
            seen.append(_rows(two))
            return one * y + two, one * x + two

    def step(x: Any) -> Any:
        low = first(x)
        one, two, positive = Both.apply(low, second.weight[0].expand(5, 3))
        _unused, again, _ = Both.apply(two, low)
        again.register_hook(lambda g: g * 0.3)
        return (one * positive).mean() + again.square().mean()

    return step


def _loss_of_its_own(torch: Any, first: Any, second: Any, seen: list[Any]) -> Step:
    class Loss(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.square().mean()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append(_rows(gradient))
            return gradient * 2 * x / x.numel()

    return lambda x: Loss.apply(second(first(x).relu()))


_PROGRAMS: dict[str, Program] = {
    "parameter hooks": _parameter_hooks,
    "tensor hooks": _tensor_hooks,
    "kept gradients": _kept_gradients,
    "module hooks": _module_hooks,
    "rounded": _rounded,
    "two outputs": _two_outputs,
    "a loss of its own": _loss_of_its_own,
}


def _run(torch: Any, program: Program, before: Callable[[int], None]) -> list[Any]:
    """What a program notes in each step, with the gradients and parameters after it."""
    first, second = _linear(torch, 0), _linear(torch, 1)
    seen: list[Any] = []
    step = program(torch, first, second, seen)
    steps: list[Any] = []
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.05)
    for number, rows in enumerate(_X):
        before(number)
        optimizer.zero_grad()
        loss = step(torch.tensor(rows))
        loss.backward()
        gradients = [None if p.grad is None else _rows(p.grad) for p in parameters]
        optimizer.step()
        steps.append(([*seen], gradients, round(loss.item(), 3)))
        seen.clear()
    return steps


def _assert_close(ours: Any, theirs: Any) -> None:
    """Equal in structure, and close in numbers."""
    if isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple)) and len(ours) == len(theirs), (ours, theirs)
        for one, other in zip(ours, theirs):
            _assert_close(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=3e-3)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", _PROGRAMS)
def test_hooks_see_what_those_of_pytorch_see(name: str) -> None:
    theirs: Any = pytest.importorskip("torch")
    ours = _run(torch, _PROGRAMS[name], lambda number: None)[_FIRST:]
    _assert_close(ours, _run(theirs, _PROGRAMS[name], lambda number: None)[_FIRST:])


@pytest.mark.parametrize("name", _PROGRAMS)
def test_equal_steps_make_no_nodes(name: str, asked: _Asked) -> None:  # noqa: F811
    counts: list[int] = []
    _run(torch, _PROGRAMS[name], lambda number: counts.append(asked.count))
    assert counts[-1] == counts[-3], counts


def test_a_hook_that_fails_leaves_what_came_before() -> None:
    """As in PyTorch: the gradients above the hook are there, those below are not."""
    first, second = _linear(torch, 0), _linear(torch, 1)
    for number, rows in enumerate(_X):
        low = first(torch.tensor(rows))
        low.register_hook(lambda gradient: 1 / 0)
        loss = second(low.tanh()).square().mean()
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        if number >= _FIRST:
            assert second.weight.grad is not None and first.weight.grad is None
        second.weight.grad = None
        # The loss is as it was, and the next one is another.
        assert np.isfinite(loss.item())
    second(first(torch.tensor(_X[0])).tanh()).square().mean().backward()
    assert first.weight.grad is not None


def test_a_hook_may_not_change_the_shape() -> None:
    first = _linear(torch, 0)
    handle = first.weight.register_hook(lambda gradient: gradient.sum())
    for rows in _X:
        with pytest.raises(RuntimeError, match="register_hook: the hook gave"):
            first(torch.tensor(rows)).square().mean().backward()
    handle.remove()
    first(torch.tensor(_X[0])).square().mean().backward()
    assert first.weight.grad is not None


def test_equal_tensors_have_hooks_of_their_own() -> None:
    """Two calls of one value are two tensors, also after their nodes were made."""
    weight = torch.nn.Parameter(torch.tensor(_WEIGHTS[0]))
    for number in range(6):
        weight.grad = None
        one, two = weight * 2, weight * 2
        two.register_hook(lambda gradient: gradient * 0)
        if number % 2:
            _ = one.uop, two.uop
        (one.sum() + two.sum()).backward()
        if number >= 3:
            np.testing.assert_allclose(weight.grad.numpy(), np.full((3, 3), 2.0))


def test_weights_of_losses_that_change_make_no_nodes(asked: _Asked) -> None:  # noqa: F811
    """Two of them are multiplied in the gradient: more values than there are templates for."""
    weight = torch.nn.Parameter(torch.tensor(_WEIGHTS[0]))
    counts: list[int] = []
    for number in range(40):
        share, weight.grad = 0.3 + 0.011 * number, None
        loss = 0.7 * (share * (weight * 3).sum() + (1 - share) * weight.square().sum())
        loss.backward()
        expected = 0.7 * (share * 3 + (1 - share) * 2 * _WEIGHTS[0])
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-5)
        counts.append(asked.count)
    assert counts[-1] == counts[-8], counts


def test_a_float_of_numpy_is_a_number(asked: _Asked) -> None:  # noqa: F811
    x = torch.tensor(_X[0])
    counts: list[int] = []
    for number in range(12):
        factor = np.exp(np.float64(0.1 * number + 0.05))
        np.testing.assert_allclose((x * factor).numpy(), _X[0] * np.float32(factor), rtol=1e-6)
        counts.append(asked.count)
    assert counts[-1] == counts[-4], counts


def test_a_state_that_was_detached_is_sliced_without_nodes(asked: _Asked) -> None:  # noqa: F811
    state = torch.zeros(6, 2)
    want = np.zeros((6, 2))
    counts: list[int] = []
    for number in range(14):
        state.requires_grad_(True)
        loss = (state[..., 0] * 2 - number).square().sum() + state[..., 1].sum()
        loss.backward()
        state = (state - 0.1 * state.grad).detach()
        want[:, 0] -= 0.1 * 4 * (2 * want[:, 0] - number)
        want[:, 1] -= 0.1
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-4)
        counts.append(asked.count)
    # A leaf is memory: that is one read.
    assert counts[-1] - counts[-3] <= 2, counts


def test_networks_with_hooks_go_away() -> None:
    """A weak reference without a callback, dying in one long chain with its tensor, crashed."""
    for number in range(6):
        layers = [_linear(torch, each % 4) for each in range(24)]
        for layer in layers:
            layer.register_full_backward_hook(lambda module, made, given: None)
        for rows in _X[: 1 + number % 3]:
            x = torch.tensor(rows)
            for layer in layers:
                x = layer(x).tanh()
            x.sum().backward()
        del layers, layer, x
    gc.collect()


def test_a_gradient_of_numbers_alone_is_read() -> None:
    """A product of two numbers that change has a template of unknown numbers; a gradient that is
    one has nothing else to be computed from.
    """
    for step in range(40):
        weight, share = 0.1 + step, 1.5 - step
        x = torch.tensor(np.ones((3, 4), np.float32), requires_grad=True)
        (0.3 * ((x * weight).sum() * share)).backward()
        assert x.grad is not None
        expected = np.full((3, 4), 0.3 * weight * share)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)
