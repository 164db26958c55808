"""Complex-valued code: layers with complex weights, modReLU, complex batch statistics, phase
retrieval by Wirtinger gradients, a quantum circuit's gradients, signals on a carrier.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def complex_array(rng, *shape):
    return torch.from_numpy((rng.randn(*shape) + 1j * rng.randn(*shape)).astype(np.complex64))


class ComplexLinear(nn.Module):
    def __init__(self, inside, outside, rng):
        super().__init__()
        self.weight = nn.Parameter(complex_array(rng, outside, inside) / math.sqrt(2 * inside))
        self.bias = nn.Parameter(torch.zeros(outside, dtype=torch.complex64))

    def forward(self, x):
        return x @ self.weight.T + self.bias


class ModReLU(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.b = nn.Parameter(torch.full((features,), -0.1))

    def forward(self, z):
        size = z.abs()
        return torch.where(size + self.b >= 0, (size + self.b) / (size + 1e-6), 0.0) * z


class Whiten(nn.Module):
    """Real and imaginary parts whitened together by the inverse root of their covariance."""

    def forward(self, z):
        z = z - z.mean(0, keepdim=True)
        parts = torch.view_as_real(z)
        covariance = torch.einsum("nfi,nfj->fij", parts, parts) / len(z) + 1e-5 * torch.eye(2)
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors @ torch.diag_embed(values.rsqrt()) @ vectors.mT
        return torch.view_as_complex(torch.einsum("fij,nfj->nfi", root, parts).contiguous())


rng = np.random.RandomState(0)
net = nn.Sequential(ComplexLinear(6, 8, rng), Whiten(), ModReLU(8), ComplexLinear(8, 3, rng))
signals = complex_array(rng, 12, 6)
labels = torch.tensor([0, 1, 2] * 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
for step in range(4):
    logits = net(signals).abs()
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"net {step} {loss.item():.5f}")
for name, p in net.named_parameters():
    g = p.grad
    print(
        name,
        p.dtype,
        f"{g.abs().norm().item():.5f}",
        f"{g.sum().real.item() if g.is_complex() else 0:.5f}",
    )

# Phase retrieval: y = |A x|^2; the gradient that PyTorch gives is that of the conjugate.
a, truth = complex_array(rng, 40, 5) / math.sqrt(2), complex_array(rng, 5)
y = (a @ truth).abs() ** 2
vectors = (a.conj().unsqueeze(2) * a.unsqueeze(1) * y[:, None, None]).mean(0)
values, eigen = torch.linalg.eigh(vectors.resolve_conj())
print("spectrum", [f"{v:.4f}" for v in values.tolist()])
z = (torch.ones(5, dtype=torch.complex64) + 0.5j * torch.arange(5)).detach().requires_grad_(True)
for step in range(30):
    loss = ((a @ z).abs().square() - y).square().mean() / y.mean() ** 2
    z.grad = None
    loss.backward()
    with torch.no_grad():
        z -= 0.3 * z.grad
    if step % 10 == 0:
        print(f"retrieval {step} {loss.item():.6f} {z.grad.abs().max().item():.5f}")
phase = torch.angle(torch.vdot(z.detach(), truth))
aligned = z.detach() * torch.exp(1j * phase)
print(f"distance {torch.linalg.vector_norm(aligned - truth).item():.4f}", z.grad.dtype)

# A circuit of two qubits with three angles: energy of a Hamiltonian.
X = torch.tensor([[0, 1], [1, 0]], dtype=torch.cfloat)
Y = torch.tensor([[0, -1j], [1j, 0]])
Z = torch.diag(torch.tensor([1.0, -1.0])).to(torch.cfloat)
eye = torch.eye(2, dtype=torch.cfloat)
cnot = torch.eye(4, dtype=torch.cfloat)[[0, 1, 3, 2]]
H = torch.kron(Z, Z) + 0.5 * (torch.kron(X, eye) + torch.kron(eye, X)) + 0.2 * torch.kron(Y, Y)


def rotation(pauli, angle):
    return torch.cos(angle / 2) * eye - 1j * torch.sin(angle / 2) * pauli


def energy(angles):
    state = torch.zeros(4, dtype=torch.cfloat)
    state[0] = 1
    first = torch.kron(rotation(Y, angles[0]), rotation(Y, angles[1]))
    state = torch.kron(rotation(X, angles[2]), eye) @ (cnot @ (first @ state))
    return torch.vdot(state, H @ state).real


angles = torch.tensor([0.4, -1.1, 0.3], requires_grad=True)
optimizer = torch.optim.Adam([angles], lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    e = energy(angles)
    e.backward()
    shift = (
        energy((angles + math.pi / 2 * torch.eye(3)[0]).detach())
        - energy((angles - math.pi / 2 * torch.eye(3)[0]).detach())
    ) / 2
    optimizer.step()
    if step % 3 == 0:
        print(f"energy {step} {e.item():.5f} {angles.grad[0].item():.5f} {shift.item():.5f}")
print(
    f"ground {torch.linalg.eigvalsh(H)[0].item():.5f}",
    torch.linalg.matrix_exp(-0.1j * H).diagonal().sum().imag.item().__round__(5),
)

# A message on a carrier: modulation, a filter, demodulation.
t = torch.arange(256, dtype=torch.float64) / 256
message = 0.5 * torch.cos(2 * torch.pi * 3 * t) + 0.2 * torch.sin(2 * torch.pi * 5 * t)
carrier = torch.polar(torch.ones_like(t), 2 * torch.pi * 40 * t)
sent = ((1 + message) * carrier).real
base = torch.fft.fft(sent * carrier.conj())
keep = torch.fft.fftfreq(256, 1 / 256).abs() < 20
got = 2 * torch.fft.ifft(torch.where(keep, base, torch.zeros((), dtype=base.dtype))).abs() - 1
print(f"demodulated {(got - message).abs().max().item():.6f}", got.dtype, base.dtype)
w = torch.polar(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -2.0]))
print(
    [
        f"{v:.5f}"
        for v in torch.view_as_real(torch.log(w) * torch.sqrt(w) / w.conj()).flatten().tolist()
    ]
)
print(
    w.sgn().abs().tolist(),
    torch.isreal(w).tolist(),
    torch.is_complex(w),
    f"{torch.prod(w).real:.5f}",
)
