"""A variational autoencoder whose noise comes from NumPy."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(11)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 12)
        self.fc21 = nn.Linear(12, 3)
        self.fc22 = nn.Linear(12, 3)
        self.fc3 = nn.Linear(3, 12)
        self.fc4 = nn.Linear(12, 20)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 20))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


model = VAE()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype(np.float32)))
data = torch.from_numpy((rng.random((16, 4, 5)) > 0.6).astype(np.float32))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(5):
    eps = torch.from_numpy(rng.standard_normal((16, 3)).astype(np.float32))
    optimizer.zero_grad()
    recon, mu, logvar = model(data, eps)
    loss = loss_function(recon, data, mu, logvar)
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch}: {loss.item() / len(data):.4f}")
print(f"{mu.abs().mean().item():.5f} {logvar.mean().item():.5f}")
