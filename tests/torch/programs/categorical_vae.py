"""A VAE with categorical latents by Gumbel-softmax: soft, then hard with straight-through, KL by hand."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(7)
N, K, D = 3, 4, 10
enc, dec = nn.Linear(D, N * K), nn.Linear(N * K, D)
params = [*enc.parameters(), *dec.parameters()]
with torch.no_grad():
    for p in params:
        p.copy_(torch.from_numpy(rng.uniform(-0.3, 0.3, tuple(p.shape)).astype(np.float32)))
opt = torch.optim.Adamax(params, lr=0.02)
data = torch.from_numpy((rng.rand(20, D) > 0.5).astype(np.float32))


def gumbel(logits, tau, hard, noise):
    y = F.softmax((logits + noise) / tau, -1)
    if not hard:
        return y
    index = y.max(-1, keepdim=True)[1]
    one = torch.zeros_like(logits).scatter_(-1, index, 1.0)
    return one - y.detach() + y


tau = 1.0
for step in range(16):
    x = data[(step * 5) % 20 : (step * 5) % 20 + 5]
    logits = enc(x).view(-1, N, K)
    noise = torch.from_numpy(-np.log(-np.log(rng.uniform(1e-6, 1, (5, N, K)))).astype(np.float32))
    z = gumbel(logits, tau, step >= 8, noise)
    recon = F.binary_cross_entropy_with_logits(dec(z.flatten(1)), x, reduction="none").sum(1)
    q = logits.softmax(-1)
    kl = (q * (torch.log(q + 1e-20) - np.log(1 / K))).sum((-1, -2))
    loss = (recon + kl).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 3:
        tau = max(tau * np.exp(-0.1 * step), 0.3)
    print(
        step,
        f"{loss.item():.5f} {kl.mean().item():.5f} {tau:.4f} {z.max(-1)[0].mean().item():.5f} {enc.weight.grad.abs().sum().item():.5f}",
    )
