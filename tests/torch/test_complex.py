"""Complex numbers under PyTorch's names, beside Python's and NumPy's."""

from __future__ import annotations

import cmath
from pathlib import Path

import numpy as np
import pytest

import tilegrad.torch as torch

A = np.array([[1 + 2j, -3j], [0.5 - 0.25j, -2 + 0j]], np.complex64)
B = np.array([[0.5 - 1j, 2 + 0j], [1j, -1.5 + 1j]], np.complex64)
X = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "matmul"])
def test_arithmetic_of_complex_and_real_operands(name: str) -> None:
    plain = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "matmul": np.matmul,
    }[name]  # fmt: skip
    function = getattr(torch, name)
    a, b, x = torch.tensor(A), torch.tensor(B), torch.tensor(X)
    close(function(a, b).numpy(), plain(A, B))
    close(function(a, x).numpy(), plain(A, X))
    close(function(x, b).numpy(), plain(X, B))


@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "sin", "cos", "tanh", "reciprocal", "square", "abs", "angle"]
)
def test_functions_of_each_number(name: str) -> None:
    plain = {"abs": np.abs, "angle": np.angle}.get(name) or getattr(np, name)
    found = getattr(torch, name)(torch.tensor(B))
    close(found.numpy(), plain(B.astype(np.complex128)))


@pytest.mark.parametrize(
    "number", [4 + 0j, -4 + 0j, complex(-4, -0.0), 1e-3 - 1j, -1e6 + 1e-3j, 0j, 3j]
)
def test_a_root_keeps_both_parts(number: complex) -> None:
    found = torch.sqrt(torch.tensor(number, dtype=torch.complex128)).item()
    assert abs(found - cmath.sqrt(number)) <= 1e-14 * max(1.0, abs(number) ** 0.5)


def test_numbers_of_python_beside_tensors() -> None:
    x = torch.tensor(X)
    close((x * 1j).numpy(), X * 1j)
    close((2j - x).numpy(), 2j - X)
    close((1 / torch.tensor(A[:1])).numpy(), 1 / A[:1])


@pytest.mark.parametrize("exponent", [0, 1, 3, 2.5, -1.0, 0.5 + 0.5j])
def test_powers(exponent: complex) -> None:
    close((torch.tensor(B) ** exponent).numpy(), B.astype(np.complex128) ** exponent)


def test_dtypes_have_pytorchs_names() -> None:
    z = torch.tensor([1 + 2j])
    assert z.dtype is torch.complex64 is torch.cfloat
    assert z.to(torch.complex128).dtype is torch.cdouble
    assert repr(torch.complex64) == "torch.complex64"
    assert torch.zeros(2, dtype=torch.cfloat).dtype.is_complex
    assert torch.tensor([1.0]).to(torch.complex64).numpy().dtype == np.complex64
    assert z.to(torch.float32).tolist() == [1.0]


def test_axes_move_as_those_of_arrays() -> None:
    z = torch.tensor(A)
    close(z.T.numpy(), A.T)
    close(z.mH.numpy(), A.conj().T)
    close(torch.cat([z, z], dim=1).numpy(), np.concatenate([A, A], 1))
    close(torch.stack([z, z], dim=-1).numpy(), np.stack([A, A], -1))
    close(z.expand(3, 2, 2).numpy(), np.broadcast_to(A, (3, 2, 2)))
    close(z.flatten().numpy(), A.reshape(-1))
    close(z.prod().numpy(), A.prod())
    close(torch.where(torch.tensor(X) > 0, z, torch.tensor(B)).numpy(), np.where(X > 0, A, B))


def test_a_gradient_is_that_of_both_parts() -> None:
    z = torch.tensor([1 + 2j, 3j], requires_grad=True)
    (z.abs() ** 2).sum().backward()
    close(z.grad.numpy(), 2 * np.array([1 + 2j, 3j]))


def test_they_print_as_in_pytorch() -> None:
    assert repr(torch.tensor([1 + 2j, -1.5 - 2.5j])) == (
        "tensor([ 1.0000+2.0000j, -1.5000-2.5000j])"
    )
    assert repr(torch.tensor([1 - 1j])) == "tensor([1.-1.j])"


class Rotated(torch.nn.Module):
    """A layer with a buffer of complex numbers, as rotary embeddings have."""

    def __init__(self, angle: float):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(2), torch.tensor([0.0, angle])))
        self.register_buffer("rest", torch.polar(torch.ones(2), torch.ones(2)), persistent=False)
        self.register_buffer("last", torch.zeros(2))
        self.linear = torch.nn.Linear(2, 2)


def test_complex_numbers_are_tensors() -> None:
    z = torch.fft.fft(torch.tensor([1.0, 2.0]))
    assert isinstance(z, torch.Tensor) and issubclass(type(z), torch.Tensor)
    assert torch.is_tensor(z) and torch.is_complex(z) and z.is_complex()
    assert not isinstance(z, (torch.FloatTensor, torch.nn.Parameter))
    assert not isinstance(1j, torch.Tensor)
    assert (z.is_meta, z.is_cuda, z.stride(), z.nbytes, z.is_contiguous()) == (
        False, False, (1,), 16, True,
    )  # fmt: skip


def test_buffers_of_complex_numbers_are_state() -> None:
    module, other = Rotated(1.0), Rotated(2.0)
    state = module.state_dict()
    assert list(state) == ["turns", "last", "linear.weight", "linear.bias"]
    assert [name for name, _ in module.named_buffers()] == ["turns", "rest", "last"]
    assert len(list(module.parameters())) == 2
    assert other.load_state_dict(state) == ([], [])
    close(other.turns.numpy(), np.exp(1j * np.array([0.0, 1.0])))
    other.turns.zero_()
    # The values were copied.
    close(module.turns.numpy(), np.exp(1j * np.array([0.0, 1.0])))
    assert module.double().turns.dtype is torch.complex64
    assert module.to("cpu").turns.dtype is torch.complex64
    with pytest.raises(RuntimeError, match="size mismatch for turns"):
        module.load_state_dict({**state, "turns": torch.zeros(3, dtype=torch.cfloat)})


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_saved_complex_numbers_are_complex_numbers(kind: object, tmp_path: Path) -> None:
    z = torch.tensor(A).to(kind)
    torch.save({"z": z, "parts": [z.T, z.real]}, tmp_path / "z.pt")
    found = torch.load(tmp_path / "z.pt")
    assert found["z"].dtype is kind
    close(found["z"].numpy(), A)
    close(found["parts"][0].numpy(), A.T)
    close(found["parts"][1].numpy(), A.real)
    theirs = pytest.importorskip("torch")
    read = theirs.load(tmp_path / "z.pt")
    close(read["parts"][0].numpy(), A.T)
    theirs.save({"z": theirs.tensor(A)[:, 1]}, tmp_path / "theirs.pt")
    close(torch.load(tmp_path / "theirs.pt")["z"].numpy(), A[:, 1])


def test_complex_numbers_are_written_in_place() -> None:
    z = torch.tensor(A)
    same, row = z, z[1]
    z += 1
    row.mul_(2j)
    expected = A + 1
    expected[1] *= 2j
    close(same.numpy(), expected)
    z.real.zero_()
    close(z.numpy(), 1j * expected.imag)
    assert z.copy_(torch.tensor(B)) is z
    close(row.numpy(), B[1])
    close(z.fill_(2 - 1j).numpy(), np.full((2, 2), 2 - 1j))


def test_a_sparse_tensor_is_no_parameter() -> None:
    with pytest.raises(NotImplementedError, match="hold its values"):
        torch.nn.Parameter(torch.eye(2).to_sparse())
