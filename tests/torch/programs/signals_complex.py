"""Signals and complex numbers: spectra, STFT and its inverse, Hilbert transform, convolution by FFT, complex networks with gradients, windows, filters, phase retrieval."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(19)
fs, n = 64, 128
t = torch.arange(n) / fs
sig = torch.sin(2 * math.pi * 5 * t) + 0.5 * torch.sin(2 * math.pi * 12 * t + 0.3)
spec = torch.fft.rfft(sig)
freqs = torch.fft.rfftfreq(n, d=1 / fs)
print(freqs[spec.abs().topk(2).indices], spec.abs().max().item(), spec.dtype)
print(torch.allclose(torch.fft.irfft(spec, n=n), sig, atol=1e-5))
print(
    (spec.real**2 + spec.imag**2).sum().item(),
    spec.abs().pow(2).sum().item(),
    spec.angle()[10].item(),
)


def hilbert(x):
    N = x.shape[-1]
    X = torch.fft.fft(x)
    h = torch.zeros(N)
    h[0] = h[N // 2] = 1
    h[1 : N // 2] = 2
    return torch.fft.ifft(X * h)


analytic = hilbert(sig)
print(
    torch.abs(analytic).mean(),
    torch.allclose(analytic.real, sig, atol=1e-5),
    torch.angle(analytic)[:3],
)
S = torch.stft(
    sig, n_fft=32, hop_length=8, window=torch.hann_window(32), return_complex=True, center=True
)
print(S.shape, S.abs().sum().item(), S.dtype)
back = torch.istft(S, 32, 8, window=torch.hann_window(32), length=n)
print((back - sig).abs().max().item() < 1e-5)
mel = torch.clamp(S.abs().pow(2), min=1e-10).log10()
print(mel.mean().item(), torch.view_as_real(S).shape, torch.is_complex(S), S.is_complex())
k = torch.from_numpy(rng.normal(size=9)).float()
full = torch.fft.irfft(torch.fft.rfft(sig, n + 8) * torch.fft.rfft(k, n + 8), n + 8)
direct = F.conv1d(sig.view(1, 1, -1), k.flip(0).view(1, 1, -1), padding=8).flatten()
print((full - direct).abs().max().item() < 1e-4)


class ComplexLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.re, self.im = (
            nn.Parameter(torch.from_numpy(rng.normal(0, 0.4, (o, i))).float()) for _ in range(2)
        )

    def forward(self, z):
        W = torch.complex(self.re, self.im)
        return z @ W.T


class ModReLU(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.b = nn.Parameter(torch.full((c,), -0.1))

    def forward(self, z):
        r = z.abs()
        return F.relu(r + self.b) * z / (r + 1e-6)


net = nn.Sequential(ComplexLinear(4, 6), ModReLU(6), ComplexLinear(6, 2))
z = torch.from_numpy(rng.normal(size=(8, 4)) + 1j * rng.normal(size=(8, 4))).to(torch.complex64)
goal = torch.polar(torch.ones(8, 2), torch.linspace(0, 3, 16).view(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=0.05)
for step in range(4):
    out = net(z)
    loss = (out - goal).abs().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(
        f"complex {step} {loss.item():.5f} {net[0].re.grad.norm():.5f} {net[0].im.grad.norm():.5f}"
    )
a = torch.tensor([1 + 2j, -0.5 + 0.3j, 2 - 1j], requires_grad=True)
(a.abs().sum() + (a * a.conj()).real.sum() + a.exp().imag.sum()).backward()
print(a.grad)
M = torch.tensor([[2 + 0j, 1 - 1j], [1 + 1j, 3 + 0j]])
print(
    torch.linalg.eigvalsh(M),
    torch.linalg.eigh(M).eigenvalues,
    torch.linalg.det(M),
    M.mH,
    M.adjoint().equal(M),
)
print(torch.linalg.inv(M) @ M, torch.linalg.solve(M, torch.tensor([1 + 0j, 2j])), torch.trace(M))
print(
    a.detach().mean(),
    a.detach().std(),
    a.detach().var(),
    a.detach().sum(),
    a.detach().prod(),
    a.detach().cumsum(0),
)
print(
    (a.detach() == 2 - 1j).any(),
    a.detach().isnan().any(),
    a.detach().flip(0),
    a.detach().norm(),
    torch.linalg.vector_norm(a.detach()),
)
b = torch.stack([a.detach(), a.detach().conj()])
print(
    b.T.shape,
    b.reshape(-1)[1:4],
    b[0, 1].item(),
    b.tolist()[0][0],
    torch.vdot(b[0], b[1]),
    torch.dot(b[0], b[1]),
    b.real.sum(1),
)
print(
    torch.sqrt(a.detach()),
    torch.log(a.detach()),
    torch.sin(a.detach()),
    a.detach().pow(2),
    a.detach().reciprocal(),
    1 / a.detach(),
)
print(
    torch.tensor([3.0, 4.0]).to(torch.complex64),
    torch.zeros(2, dtype=torch.cfloat),
    torch.eye(2, dtype=torch.complex64)[0],
)
fft2 = torch.fft.fft2(torch.from_numpy(rng.normal(size=(4, 6))), norm="ortho")
print(
    fft2.abs().sum(),
    torch.fft.fftshift(fft2).abs()[2, 3],
    torch.fft.ifft2(fft2, norm="ortho").real.std(),
)
roots = torch.linalg.eigvals(torch.tensor([[0.0, -2.0], [1.0, 2.0]]))
print(sorted(roots.imag.tolist()), roots.real)
phase = torch.exp(1j * torch.linspace(0, 1, 3))
print(
    phase,
    torch.exp(1j * math.pi * torch.tensor([0.5])),
    (2j * torch.ones(1)).imag,
    torch.complex(torch.ones(1), torch.ones(1)).sgn(),
)
