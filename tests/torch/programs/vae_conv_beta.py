"""A convolutional VAE: reparameterised draws from given noise, KL by formula and by distributions, a beta schedule, interpolation."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, Normal, kl

rng = np.random.default_rng(12)


class Reshape(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.reshape(x.shape[0], *self.shape)


class VAE(nn.Module):
    def __init__(self, latent=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(4, 8, 3, stride=2, padding=1),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.to_stats = nn.Linear(8 * 3 * 3, 2 * latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 8 * 3 * 3),
            Reshape(8, 3, 3),
            nn.SiLU(),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(8, 4, 3, padding=1),
            nn.ELU(),
            nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1),
        )

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return eps.mul(std).add_(mu)

    def forward(self, x, eps):
        mu, logvar = self.to_stats(self.encoder(x)).chunk(2, dim=-1)
        z = self.reparameterize(mu, logvar, eps)
        return self.decoder(z), mu, logvar


def loss_function(recon_x, x, mu, logvar, beta):
    BCE = F.binary_cross_entropy_with_logits(recon_x, x, reduction="sum") / x.size(0)
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / x.size(0)
    return BCE + beta * KLD, BCE, KLD


model = VAE()
for p in model.parameters():
    if p.ndim > 1:
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape))))
    else:
        nn.init.constant_(p, 0.05)
print(sum(p.numel() for p in model.parameters() if p.requires_grad), len(model.state_dict()))
x = torch.from_numpy((rng.uniform(size=(6, 1, 12, 12)) > 0.5).astype(np.float32))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
for step in range(5):
    eps = torch.from_numpy(rng.normal(size=(6, 3))).to(x)
    recon, mu, logvar = model(x, eps)
    loss, bce, kld = loss_function(recon, x, mu, logvar, beta=min(1.0, step / 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warmup.step()
    print(f"{step}: {loss:.4f} {bce:.4f} {kld:.5f} lr {optimizer.param_groups[0]['lr']:.2e}")
with torch.inference_mode():
    recon, mu, logvar = model(x, torch.zeros(6, 3))
    posterior = Independent(Normal(mu, (0.5 * logvar).exp()), 1)
    prior = Independent(Normal(torch.zeros(3), torch.ones(3)), 1)
    print(f"{kl.kl_divergence(posterior, prior).mean():.6f}")
    print(posterior.log_prob(mu).mean(), posterior.batch_shape, posterior.event_shape)
    path = torch.stack([torch.lerp(mu[0], mu[1], w) for w in torch.linspace(0, 1, 4)])
    print(torch.sigmoid(model.decoder(path)).flatten(1).mean(1))
