"""A mixture density network: several values for one input."""

import math

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

rng = np.random.default_rng(33)
y = rng.uniform(-8, 8, (64, 1)).astype(np.float32)
x = (7 * np.sin(0.75 * y) + 0.5 * y + rng.standard_normal(y.shape)).astype(np.float32)
x, y = torch.from_numpy(x), torch.from_numpy(y)


class MDN(nn.Module):
    def __init__(self, n_hidden, n_gaussians):
        super().__init__()
        self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
        self.z_pi = nn.Linear(n_hidden, n_gaussians)
        self.z_mu = nn.Linear(n_hidden, n_gaussians)
        self.z_sigma = nn.Linear(n_hidden, n_gaussians)

    def forward(self, x):
        z_h = self.z_h(x)
        pi = nn.functional.softmax(self.z_pi(z_h), -1)
        return pi, torch.exp(self.z_sigma(z_h)), self.z_mu(z_h)


def gaussian(y, mu, sigma):
    result = (y.expand_as(mu) - mu) * torch.reciprocal(sigma)
    result = -0.5 * (result * result)
    return (torch.exp(result) * torch.reciprocal(sigma)) / math.sqrt(2.0 * math.pi)


def mdn_loss(pi, sigma, mu, y):
    return -torch.log((gaussian(y, mu, sigma) * pi).sum(dim=1) + 1e-12).mean()


model = MDN(10, 5)
state = {
    k: torch.from_numpy(rng.normal(0, 0.5, tuple(v.shape)).astype(np.float32))
    for k, v in model.state_dict().items()
}
print(model.load_state_dict(state))
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
for epoch in range(12):
    pi, sigma, mu = model(x)
    loss = mdn_loss(pi, sigma, mu, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch} loss {loss.item():.4f}")
with torch.no_grad():
    pi, sigma, mu = model(x[:6])
    mixture = MixtureSameFamily(Categorical(pi), Normal(mu, sigma))
    print(mixture.log_prob(y[:6, 0]))
    print(mixture.mean, mixture.variance.sqrt())
    print(pi.max(dim=1))
    print(mixture.batch_shape, mixture.event_shape, mixture.component_distribution)
