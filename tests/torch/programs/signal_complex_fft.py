"""Complex numbers and Fourier transforms: STFT, filters by rfft, analytic signals, spectral derivatives, convolution
theorem, complex autograd, quantum gates, power spectra, 2-d filters, FFT shifts, Mandelbrot.
"""

import math

import numpy as np
import torch
import torch.fft as fft
import torch.nn as nn
import torch.nn.functional as F

N = 64
t = torch.arange(N) / N
sig = torch.sin(2 * torch.pi * 5 * t) + 0.5 * torch.cos(2 * math.pi * 12 * t)
X = fft.rfft(sig)
freqs = fft.rfftfreq(N, d=1 / N)
print(
    X.dtype,
    X.shape,
    freqs[X.abs().topk(2).indices].sort().values,
    X.angle()[5],
    torch.view_as_real(X)[5],
)
X[freqs > 8] = 0
low = fft.irfft(X, n=N)
print((low - torch.sin(2 * torch.pi * 5 * t)).abs().max() < 1e-4, low.norm())
k = fft.fftfreq(N, 1 / N) * 2j * torch.pi
d = fft.ifft(k * fft.fft(sig)).real
print(d[:3], fft.fftshift(fft.fftfreq(4)), fft.ifftshift(torch.arange(5)))
h = torch.zeros(N)
h[0] = h[N // 2] = 1
h[1 : N // 2] = 2
analytic = fft.ifft(fft.fft(sig) * h)
print(
    analytic.abs()[:4],
    analytic.imag[:3],
    torch.isreal(analytic)[:2],
    analytic.real.allclose(sig, atol=1e-5),
)
win = torch.hann_window(16)
S = torch.stft(
    sig, n_fft=16, hop_length=4, window=win, return_complex=True, center=True, pad_mode="reflect"
)
P = S.abs() ** 2
print(
    S.shape, P.mean(1)[:4], torch.istft(S, 16, 4, window=win, length=N).sub(sig).abs().max() < 1e-5
)
mel = torch.linspace(0, 1, 9 * 5).view(5, 9).softmax(1)
print((mel @ P).clamp(min=1e-10).log10()[:2, :3])
a, b = torch.rand(7) * 0 + torch.arange(7.0), torch.tensor([1.0, -1.0, 2.0])
n = 9
direct = F.conv1d(a.view(1, 1, -1), b.flip(0).view(1, 1, -1), padding=2).flatten()
print(
    fft.irfft(fft.rfft(a, n) * fft.rfft(b, n), n).sub(direct).abs().max() < 1e-4,
    np.allclose(np.convolve(a, b), direct.numpy()),
)
img = torch.outer(torch.hamming_window(8), torch.blackman_window(8)) + torch.eye(8)
I2 = fft.fftshift(fft.fft2(img))
yy, xx = torch.meshgrid(torch.arange(-4, 4), torch.arange(-4, 4), indexing="ij")
mask = (yy**2 + xx**2).sqrt() <= 2
print(
    fft.ifft2(fft.ifftshift(I2 * mask)).real[:2, :3],
    fft.rfftn(img, dim=(0, 1), norm="ortho").abs().sum(),
    fft.irfft2(fft.rfft2(img)).allclose(img, atol=1e-5),
    fft.hfft(torch.tensor([1 + 0j, 2 + 1j, 3 + 0j])),
)

# arithmetic
z = torch.complex(torch.tensor([3.0, 0.0]), torch.tensor([4.0, -1.0]))
print(
    z,
    z.abs(),
    z.angle(),
    z.conj(),
    z * z.conj(),
    z / (1 + 1j),
    z**2,
    z.exp(),
    (1j * z).real,
    z.real + z.imag,
    z.sum(),
    z == z,
    torch.polar(z.abs(), z.angle()).allclose(z),
    z.dtype,
    z.to(torch.complex128).dtype,
    torch.is_complex(z),
    z.is_complex(),
    complex(z[0]),
    z.tolist(),
    z.numpy(),
    z.mean(),
    torch.real(z),
    z.sgn(),
    z.reciprocal(),
)
z.imag[0] = 7
z.real *= 2
print(
    z,
    torch.view_as_complex(torch.tensor([[1.0, 2.0]])),
    z.size(),
    z.mul(2),
    torch.stack([z, z.conj()]).shape,
    torch.cat([z, z])[1:3],
    z.unsqueeze(0) @ z.unsqueeze(1),
    torch.einsum("i,j->ij", z, z.conj()),
    torch.vdot(z, z),
    torch.outer(z, z).diagonal(),
    z.cumsum(0),
    z[z.abs() > 3],
    torch.where(z.real > 1, z, torch.zeros_like(z)),
    torch.zeros(2, dtype=torch.cfloat),
    torch.ones(1, dtype=torch.complex64) * 1j,
    torch.tensor([1, 2j]),
    torch.eye(2, dtype=torch.cdouble)[0],
)

# quantum gates
H = torch.tensor([[1, 1], [1, -1]], dtype=torch.cfloat) / math.sqrt(2)
Y = torch.tensor([[0, -1j], [1j, 0]])
I = torch.eye(2, dtype=torch.cfloat)
CNOT = torch.eye(4)[[0, 1, 3, 2]].to(torch.cfloat)
state = torch.zeros(4, dtype=torch.complex64)
state[0] = 1
bell = CNOT @ torch.kron(H, I) @ state
print(
    bell,
    bell.abs().square(),
    (Y @ Y.conj().T).real,
    torch.linalg.eigvalsh(Y),
    torch.linalg.det(H),
    torch.trace(Y),
    (bell.conj() @ torch.kron(Y, Y) @ bell).real,
    torch.matrix_exp(-0.5j * math.pi * Y).real.round().abs(),
)

# gradients through complex values
theta = torch.tensor([0.3, 1.1], requires_grad=True)
loss = (torch.exp(1j * theta).sum() - (1 + 1j)).abs() ** 2
loss.backward()
print(loss, theta.grad)
w = torch.tensor([1 + 1j, 2 - 1j], requires_grad=True)
out = (w * torch.tensor([1j, 2 + 0j])).abs().pow(2).sum()
out.backward()
print(out, w.grad)


class SpectralConv(nn.Module):
    def __init__(self, cin, cout, modes):
        super().__init__()
        self.modes = modes
        re, im = torch.linspace(-1, 1, cin * cout * modes), torch.linspace(1, 0, cin * cout * modes)
        self.weight = nn.Parameter(torch.complex(re, im).view(cin, cout, modes) / (cin * cout))

    def forward(self, x):
        x_ft = fft.rfft(x)
        out = torch.zeros(
            x.size(0), self.weight.size(1), x.size(-1) // 2 + 1, dtype=torch.cfloat, device=x.device
        )
        out[:, :, : self.modes] = torch.einsum(
            "bix,iox->box", x_ft[:, :, : self.modes], self.weight
        )
        return fft.irfft(out, n=x.size(-1))


layer = SpectralConv(1, 2, 4)
mix = nn.Conv1d(2, 1, 1)
nn.init.constant_(mix.weight, 0.5), nn.init.zeros_(mix.bias)
opt = torch.optim.SGD([*layer.parameters(), *mix.parameters()], lr=0.05, momentum=0.9)
x = torch.stack([torch.sin(2 * torch.pi * (t[::4] + s)) for s in (0, 0.1, 0.3)]).unsqueeze(1)
target = torch.roll(x, 2, -1)
for step in range(5):
    opt.zero_grad()
    loss = F.mse_loss(mix(torch.tanh(layer(x))), target)
    loss.backward()
    opt.step()
    print(loss.item(), layer.weight.grad.abs().sum().item(), layer.weight.dtype)
c = torch.complex(
    *torch.meshgrid(torch.linspace(-2, 1, 12), torch.linspace(-1.2, 1.2, 7), indexing="xy")
)
m, count = torch.zeros_like(c), torch.zeros(c.shape, dtype=torch.long)
for _ in range(12):
    live = m.abs() <= 2
    m = torch.where(live, m * m + c, m)
    count += live
print(count)
