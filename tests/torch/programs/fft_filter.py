"""Filters in the frequency domain, and the gradient through a transform."""

import numpy as np
import torch

t = torch.arange(128) / 128.0
signal = torch.sin(2 * torch.pi * 5 * t) + 0.5 * torch.sin(2 * torch.pi * 40 * t)
X = torch.fft.rfft(signal)
freqs = torch.fft.rfftfreq(128, d=1 / 128)
print(X.shape, freqs[:4].tolist())
magnitude = X.abs()
print(magnitude.topk(2).indices.sort().values.tolist(), f"{magnitude.max().item():.3f}")
X[freqs > 20] = 0
filtered = torch.fft.irfft(X, n=128)
print(f"{(filtered - torch.sin(2 * torch.pi * 5 * t)).abs().max().item() < 1e-4}")

image = torch.tensor(np.random.default_rng(21).normal(size=(8, 8)), dtype=torch.float32)
F2 = torch.fft.fftshift(torch.fft.fft2(image))
print(f"{F2.abs().sum().item():.4f} {F2.real[4, 4].item():.4f} {F2.imag.abs().max().item():.4f}")
back = torch.fft.ifft2(torch.fft.ifftshift(F2))
print(torch.allclose(back.real, image, atol=1e-5))

# Convolution as a product of transforms.
a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, 0.5])
product = torch.fft.ifft(torch.fft.fft(a, n=5) * torch.fft.fft(b, n=5)).real
print([round(v, 4) for v in product.tolist()])

phase = torch.zeros(16, requires_grad=True)
power = torch.fft.rfft(torch.sin(torch.arange(16.0) + phase)).abs().pow(2)
loss = power[1:4].sum() / power.sum()
loss.backward()
print(f"{loss.item():.5f} {phase.grad.norm().item():.5f}")
z = torch.polar(torch.tensor([1.0, 2.0]), torch.tensor([0.0, torch.pi / 2]))
print([round(v, 4) for v in (z * z.conj()).real.tolist()], torch.angle(z).tolist())
