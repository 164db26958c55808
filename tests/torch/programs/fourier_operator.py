"""Fourier neural operators in one and two dimensions with complex weights, the heat equation
solved by its spectrum as the data, Sobolev losses, and resolution doubled after training.
"""

import numpy as np
import torch
import torch.fft
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv1d(nn.Module):
    def __init__(self, inside, outside, modes, rng):
        super().__init__()
        self.outside, self.modes = outside, modes
        scale = 1 / (inside * outside)
        values = rng.rand(inside, outside, modes) + 1j * rng.rand(inside, outside, modes)
        self.weights = nn.Parameter(scale * torch.from_numpy(values).to(torch.cfloat))

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        out = torch.zeros(
            x.shape[0], self.outside, x.size(-1) // 2 + 1, device=x.device, dtype=torch.cfloat
        )
        out[:, :, : self.modes] = torch.einsum(
            "bix,iox->box", spectrum[:, :, : self.modes], self.weights
        )
        return torch.fft.irfft(out, n=x.size(-1))


class SpectralConv2d(nn.Module):
    def __init__(self, inside, outside, modes, rng):
        super().__init__()
        self.outside, self.modes = outside, modes
        make = lambda: rng.rand(inside, outside, modes, modes, 2).astype(np.float32)
        scale = 1 / (inside * outside)
        self.low = nn.Parameter(torch.from_numpy(scale * make()))
        self.high = nn.Parameter(torch.from_numpy(scale * make()))

    def forward(self, x):
        m = self.modes
        spectrum = torch.fft.rfft2(x, norm="ortho")
        out = torch.zeros_like(spectrum[:, :1]).repeat(1, self.outside, 1, 1)
        low, high = torch.view_as_complex(self.low), torch.view_as_complex(self.high)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], high)
        return torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho")


class FNO(nn.Module):
    def __init__(self, dims, width=6, modes=4, layers=2, seed=0):
        super().__init__()
        rng = np.random.RandomState(seed)
        spectral, conv = (SpectralConv1d, nn.Conv1d) if dims == 1 else (SpectralConv2d, nn.Conv2d)
        self.lift = nn.Linear(1 + dims, width)
        self.spectral = nn.ModuleList([spectral(width, width, modes, rng) for _ in range(layers)])
        self.local = nn.ModuleList([conv(width, width, 1) for _ in range(layers)])
        self.project = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, 1))
        for name, p in self.named_parameters():
            if not name.startswith("spectral"):
                p.data.copy_(torch.tensor(rng.uniform(-0.4, 0.4, p.shape), dtype=torch.float32))

    def forward(self, x):
        sizes = x.shape[1:]
        axes = [torch.linspace(0, 1, n) for n in sizes]
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        x = torch.cat([x.unsqueeze(-1), places.expand(len(x), *places.shape)], dim=-1)
        x = self.lift(x).movedim(-1, 1)
        for i, (s, c) in enumerate(zip(self.spectral, self.local)):
            x = s(x) + c(x)
            if i < len(self.spectral) - 1:
                x = F.gelu(x, approximate="tanh")
        return self.project(x.movedim(1, -1)).squeeze(-1)


def heat(u, time=0.01):
    n = u.shape[-1]
    axes = tuple(range(1, u.dim()))
    k = torch.fft.fftfreq(n, d=1.0 / n) * 2 * torch.pi
    square = k**2 if u.dim() == 2 else k[:, None] ** 2 + k[None, :] ** 2
    return torch.fft.ifftn(torch.fft.fftn(u, dim=axes) * torch.exp(-time * square), dim=axes).real


def relative(out, wanted):
    out, wanted = out.flatten(1), wanted.flatten(1)
    return torch.mean(torch.norm(out - wanted, 2, 1) / torch.norm(wanted, 2, 1))


def sobolev(out, wanted):
    error = torch.fft.rfft(out - wanted, dim=-1, norm="forward")
    k = torch.fft.rfftfreq(out.size(-1), 1 / out.size(-1))
    return ((1 + k**2) * error.abs().square()).sum(-1).sqrt().mean()


rng = np.random.RandomState(1)
for dims in (1, 2):
    t = torch.arange(16) / 16
    phases = torch.from_numpy(rng.rand(6, 3).astype(np.float32)) * 2 * np.pi
    waves = sum(
        torch.sin(2 * np.pi * (j + 1) * t + phases[:, j : j + 1]) / (j + 1) for j in range(3)
    )
    data = waves if dims == 1 else waves[:, :, None] * waves.roll(1, 0)[:, None, :]
    wanted = heat(data)
    model = FNO(dims)
    count = sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())
    print(dims, "parameters", count, model.spectral[0].__class__.__name__)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    for epoch in range(6):
        optimizer.zero_grad()
        out = model(data)
        loss = relative(out, wanted) + (0.1 * sobolev(out, wanted) if dims == 1 else 0)
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"  {epoch} {loss.item():.5f} {scheduler.get_last_lr()[0]:.4f}")
    for name, p in model.named_parameters():
        if name.startswith("spectral.0"):
            print(
                "  ",
                name,
                p.dtype,
                tuple(p.shape),
                f"{p.grad.abs().sum():.5f}",
                p.grad.is_complex(),
            )
    fine = F.interpolate(data[:, None], scale_factor=2, mode="linear" if dims == 1 else "bilinear")
    with torch.no_grad():
        print(f"  doubled {relative(model(fine[:, 0]), heat(fine[:, 0])):.5f}")

x = torch.from_numpy(rng.randn(3, 8).astype(np.float32)).requires_grad_()
power = torch.fft.rfft(x, norm="ortho").abs().pow(2)
power[:, 1:3].sum().backward()
print(
    "power", f"{power.sum():.5f} {x.grad.norm():.5f}", torch.fft.fftshift(torch.arange(5)).tolist()
)
z = torch.fft.hfft(torch.complex(x.detach(), x.detach().flip(1)), n=12)
print("hfft", tuple(z.shape), f"{z.abs().mean():.5f}", torch.fft.ihfft(z).dtype)
y = torch.fft.rfftn(x.detach().reshape(3, 2, 4), s=(4, 6), dim=(1, 2))
print("rfftn", tuple(y.shape), f"{y.abs().sum():.4f} {torch.fft.irfftn(y, s=(4, 6)).std():.5f}")
