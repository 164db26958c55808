"""`autograd.Function` whose `backward` runs when gradients come, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])


def _of_arrays(torch: Any) -> Any:
    class OfArrays(torch.autograd.Function):  # type: ignore[misc]
        """The size of a spectrum, and a gradient by NumPy."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.new(np.abs(np.fft.rfft2(x.detach().numpy())))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.new(np.fft.irfft2(g.numpy()))

    return OfArrays


@BOTH
def test_a_backward_computes_with_numpy(torch: Any) -> None:
    x = torch.arange(64.0).reshape(8, 8).sin().requires_grad_()
    y = _of_arrays(torch).apply(x)
    y.backward(torch.ones(y.size()))
    expected = np.fft.irfft2(np.ones((8, 5)))
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-6)


@BOTH
def test_a_backward_looks_at_values_and_runs_once_for_each_pass(torch: Any) -> None:
    calls = []

    class Clipped(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            calls.append((g.tolist(), x.tolist(), ctx.needs_input_grad))
            if g.abs().max() > 1:
                g = g.clamp(-1, 1)
            return g * w, g * x

    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([w], lr=0.5)
    for step in range(4):
        x = torch.tensor([0.5, float(step)])
        loss = (Clipped.apply(x, w * 2) * torch.tensor([3.0, 0.5])).sum()
        assert len(calls) == step
        optimizer.zero_grad()
        loss.backward()
        assert calls[step] == ([3, 0.5], [0.5, step], (False, True))
        assert w.grad.tolist() == [1, step]
        optimizer.step()


@BOTH
def test_gradients_that_nothing_depends_on(torch: Any) -> None:
    seen: list[Any] = []

    class Two(torch.autograd.Function):  # type: ignore[misc]
        fills = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(Two.fills)
            return x * 2, x * 3, None, "label"

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            seen.append([g if g is None else g.tolist() for g in gradients])
            return gradients[0] * 2

    x = torch.ones(2, requires_grad=True)
    first, _, nothing, label = Two.apply(x)
    assert (nothing, label) == (None, "label")
    first.sum().backward()
    Two.fills = False
    Two.apply(x)[0].sum().backward()
    assert seen == [[[1, 1], [0, 0], None, None], [[1, 1], None, None, None]]
    assert x.grad.tolist() == [4, 4]


@BOTH
def test_saved_tensors_have_the_values_of_then(torch: Any) -> None:
    class Squared(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x.clone())
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    x = torch.tensor([1.0, 3.0], requires_grad=True)
    y = Squared.apply(x)
    with torch.no_grad():
        x.mul_(100)
    y.sum().backward()
    assert x.grad.tolist() == [2, 6]


@BOTH
def test_an_argument_that_is_written_to_is_the_output(torch: Any) -> None:
    class Triple(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(3)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = torch.ones(3, requires_grad=True)
    t = x * 2
    out = Triple.apply(t)
    assert out is t
    assert t.tolist() == [6, 6, 6]
    (out * out).sum().backward()
    assert x.grad.tolist() == [2 * 6 * 3 * 2] * 3


@BOTH
def test_nothing_flows_back_that_was_applied_without_gradients(torch: Any) -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        y = _square(torch).apply(x)
    assert not y.requires_grad
    (y * w).sum().backward()
    assert x.grad is None
    assert w.grad.tolist() == [1, 1]


def _square(torch: Any) -> Any:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return Square


@BOTH
def test_second_derivatives_go_through_backward(torch: Any) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = _square(torch).apply(_square(torch).apply(x))
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(first.detach().numpy(), [4, 32])
    np.testing.assert_allclose(second.numpy(), [12, 48])


@BOTH
def test_what_backward_raises_is_raised_by_backward(torch: Any) -> None:
    class Wrong(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, kind: str) -> Any:
            ctx.kind = kind
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.kind == "raises":
                raise KeyError("mine")
            return (g, None, None) if ctx.kind == "one more" else g

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        Wrong.apply(x, "raises").sum().backward()
    with pytest.raises(RuntimeError):
        Wrong.apply(x, "one less").sum().backward()
    Wrong.apply(x, "one more").sum().backward()
    assert x.grad.tolist() == [1, 1]


@BOTH
def test_an_anomaly_is_found_where_backward_is_called(torch: Any) -> None:
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        with pytest.raises(RuntimeError, match="nan values"):
            x.sqrt().sum().backward()
        with pytest.raises(RuntimeError, match="nan values"):
            torch.autograd.grad(x.sqrt().sum(), x)
        (x * x).sum().backward()
    x.grad = None
    torch.autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(RuntimeError, match="nan values"):
            x.log().sqrt().sum().backward()
    finally:
        torch.autograd.set_detect_anomaly(False)
    x.grad = None
    x.sqrt().sum().backward()
    assert np.isnan(x.grad.numpy()[0])
