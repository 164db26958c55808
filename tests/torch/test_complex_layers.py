"""Layers, data and transforms of complex numbers, beside NumPy's formulas and PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn

_random = np.random.default_rng(12)


def _numbers(*shape: int) -> Any:
    found = _random.normal(size=shape) + 1j * _random.normal(size=shape)
    return found.astype(np.complex64)


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def test_layers_with_complex_parameters() -> None:
    layer = nn.Linear(3, 2, dtype=torch.complex64)
    assert [each.dtype for each in layer.parameters()] == [torch.complex64] * 2
    weight = layer.weight.detach().numpy()
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    assert (weight.real != weight.imag).all() and (np.abs(weight.imag) <= 3**-0.5).all()
    x = _numbers(4, 3)
    close(layer(torch.tensor(x)), x @ weight.T + layer.bias.detach().numpy())
    layer.reset_parameters()
    assert (layer.weight.detach().numpy().imag != weight.imag).all()
    signal = _numbers(1, 1, 6)
    convolution = nn.Conv1d(1, 1, 3, bias=False, dtype=torch.complex64)
    kernel = convolution.weight.detach().numpy()[0, 0]
    close(
        convolution(torch.tensor(signal)),
        np.correlate(signal[0, 0], kernel.conj(), "valid")[None, None],
    )
    transposed = nn.ConvTranspose1d(1, 1, 3, bias=False, dtype=torch.complex64)
    kernel = transposed.weight.detach().numpy()[0, 0]
    close(transposed(torch.tensor(signal)), np.convolve(signal[0, 0], kernel)[None, None])
    assert nn.RMSNorm(2, dtype=torch.complex64).weight.tolist() == [1, 1]
    both = nn.Bilinear(3, 3, 2, dtype=torch.complex64)
    expected = np.einsum("ni,oij,nj->no", x, both.weight.detach().numpy(), x)
    close(both(torch.tensor(x), torch.tensor(x)), expected + both.bias.detach().numpy())


def test_modules_move_between_dtypes() -> None:
    layer = nn.Linear(3, 2)
    real = layer.weight.detach().numpy()
    layer.to(torch.complex64)
    assert layer.weight.dtype is torch.complex64 and layer.weight.is_leaf
    close(layer.weight, real)
    assert layer.to(torch.complex128).bias.dtype is torch.complex128
    assert layer.double().weight.dtype is torch.complex128
    layer.to(torch.float32)
    assert layer.weight.dtype is torch.float32 and len(list(layer.parameters())) == 2
    close(layer.weight, real)


def test_layers_are_copied_and_stored() -> None:
    layer = nn.Linear(3, 2, dtype=torch.complex64)
    weight = layer.weight.detach().numpy()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other.weight, weight)
        assert isinstance(other.weight, nn.Parameter)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = nn.Linear(3, 2, dtype=torch.complex64)
    fresh.load_state_dict(torch.load(file))
    close(fresh.weight, weight)


def test_first_values_of_complex_tensors() -> None:
    z = torch.empty(2000, dtype=torch.complex64)
    nn.init.normal_(z, 3.0, 2.0)
    values = z.numpy()
    assert abs(values.mean() - (3 + 3j)) < 0.2
    assert abs(values.real.std() - 2**0.5) < 0.1 and abs(values.imag.std() - 2**0.5) < 0.1
    nn.init.uniform_(z, -1, 1)
    assert abs(z.numpy().imag).max() <= 1 and z.numpy().imag.std() > 0.5
    assert nn.init.constant_(z[:2], 1j).tolist() == [1j, 1j]
    assert nn.init.eye_(torch.empty(2, 2, dtype=torch.complex64)).tolist() == [[1, 0], [0, 1]]
    square = nn.init.xavier_uniform_(torch.empty(4, 4, dtype=torch.complex64)).numpy()
    assert (square.real != square.imag).all() and abs(square.imag).max() <= (6 / 8) ** 0.5
    with pytest.raises(NotImplementedError, match="orthogonal_"):
        nn.init.orthogonal_(torch.empty(2, 2, dtype=torch.complex64))


def test_batches_of_complex_items() -> None:
    x = _numbers(4, 3)
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.arange(4))
    batches = list(torch.utils.data.DataLoader(data, batch_size=2))
    assert batches[1][0].dtype is torch.complex64
    close(batches[1][0], x[2:])
    joined = torch.utils.data.default_collate([torch.tensor(row) for row in x])
    close(joined, x)
    rows = [(torch.tensor(row), number) for number, row in enumerate(x)]
    found = next(iter(torch.utils.data.DataLoader(rows, batch_size=4)))  # type: ignore[arg-type]
    close(found[0], x)


def test_functions_of_functions() -> None:
    x, y = _numbers(4, 3), _numbers(4, 3)
    a, b = torch.tensor(x), torch.tensor(y)
    close(torch.vmap(lambda p, q: (p * q).sum())(a, b), (x * y).sum(1))
    close(torch.vmap(lambda p, q: p * q, (0, None))(a, b[0]), x * y[0])
    close(torch.func.grad(lambda z: (z.abs() ** 2).sum())(a), 2 * x)
    value, pull = torch.func.vjp(lambda z: z * z, a)
    close(value, x * x)
    close(pull(b)[0], y * (2 * x).conj())
    value, change = torch.func.jvp(lambda z: z * z, (a,), (b,))
    close(change, 2 * x * y)
    with pytest.raises(RuntimeError, match="complex"):
        torch.func.jacrev(lambda z: z * z)(a)
    with pytest.raises(NotImplementedError, match="in_dims"):
        torch.vmap(lambda z: z, -1)(a)


def test_gradients_on_request() -> None:
    x, y = _numbers(4), _numbers(4)
    z = torch.tensor(x, requires_grad=True)
    (found,) = torch.autograd.grad(z * z, z, torch.tensor(y))
    close(found, y * (2 * x).conj())
    (found,) = torch.autograd.grad((z * z).abs().square().sum(), [z])
    close(found, 4 * x * np.abs(x) ** 2)
    torch.autograd.backward([z * z], [torch.tensor(y)])
    close(z.grad, y * (2 * x).conj())


def test_a_function_with_its_own_gradient() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Any, scale: Any) -> Any:
            ctx.save_for_backward(z)
            ctx.scale = scale
            return z * z * scale

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (z,) = ctx.saved_tensors
            return gradient * (2 * z * ctx.scale).conj(), None

    x, y = _numbers(4), _numbers(4)
    z = torch.tensor(x, requires_grad=True)
    made = Square.apply(z, 2j)
    close(made, 2j * x * x)
    made.backward(torch.tensor(y))
    close(z.grad, y * (4j * x).conj())


def test_limits_and_comparisons() -> None:
    assert torch.finfo(torch.complex64).eps == torch.finfo(torch.float32).eps
    z = torch.tensor(_numbers(3))
    torch.testing.assert_close(z, z + 1e-8)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(z, z + 1e-3j)
    with pytest.raises(AssertionError, match="dtypes differ"):
        torch.testing.assert_close(z, z.cdouble())


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_complex_network_is_trained_as_by_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch")
    x = _numbers(5, 1, 8)

    def make(library: Any) -> Any:
        class Net(library.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.convolution = library.nn.Conv1d(1, 2, 3, dtype=library.complex64)
                self.last = library.nn.Linear(12, 3, dtype=library.complex64)

            def forward(self, given: Any) -> Any:
                hidden = self.convolution(given)
                hidden = hidden / (1 + hidden.abs())
                return self.last(hidden.flatten(1)).abs()

        return Net()

    def train(library: Any, model: Any) -> list[float]:
        optimizer, seen = getattr(library.optim, name)(model.parameters(), lr=0.02), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(library.from_numpy(x)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    other, mine = make(theirs), make(torch)
    state = {key: torch.from_numpy(each.numpy()) for key, each in other.state_dict().items()}
    mine.load_state_dict(state)
    np.testing.assert_allclose(train(torch, mine), train(theirs, other), rtol=1e-4)
    for key, each in other.state_dict().items():
        close(mine.state_dict()[key], each.numpy(), 1e-4)
